"""What is compiled: every bench model on both archs at one and 64 inputs, on several chips, trainings, and sessions
with random edits, each as a job that gives netlists one after the other."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator

import torch
from torch import nn

from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import NetlistError, TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.models import NAMES, make
from tests.session.models import encoder, perceptron
from tests.session.test_random_edits import random_edit

ARCHS = ("grayskull", "wormhole_b0")


@dataclasses.dataclass(frozen=True)
class Job:
    """A compile, or a session of edits. netlists: made when asked for; a refusal by our own check is raised."""

    name: str
    device: DeviceSpec
    netlists: Callable[[], Iterator[Netlist]]


@functools.lru_cache(maxsize=2)
def _bench(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    if name in NAMES:
        return make(name)
    from bench.models import make as bench_model

    return bench_model(name)


def _compiled(name: str, device: DeviceSpec, microbatch: int) -> Iterator[Netlist]:
    yield Session(*_bench(name), device, CompileOptions(microbatch=microbatch)).compile().netlist


def _convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2))


TRAINED: dict[str, Callable[[int], tuple[nn.Module, torch.Tensor, tuple[int, ...]]]] = {
    "small": lambda n: (nn.Sequential(nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 8)), torch.randn(n, 16, 40), (16, 8)),
    "wide": lambda n: (
        nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)),
        torch.randn(n, 64, 256),
        (64, 64),
    ),
    "normed": lambda n: (
        nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 32)),
        torch.randn(n, 32, 64),
        (32, 32),
    ),
    "images": lambda n: (_convolutions(), torch.randn(n, 3, 16, 16), (8, 7, 7)),
}


def _trained(name: str, device: DeviceSpec, microbatch: int, optimizer: str) -> Iterator[Netlist]:
    torch.manual_seed(0)
    model, x, shape = TRAINED[name](microbatch)
    options = CompileOptions(microbatch=microbatch)
    session = Session.for_training(
        model, x, nn.MSELoss(), torch.randn(microbatch, *shape), optimizer, 0.01, options=options, device=device
    )
    yield session.compile().netlist


SESSIONS = {"perceptron": perceptron, "encoder": encoder}


def _edited(name: str, device: DeviceSpec, edits: int, seed: int) -> Iterator[Netlist]:
    """The netlists after edits that were made; what is refused with a reason leaves no netlist."""
    session, rng = Session(*SESSIONS[name](), device, CompileOptions(schedule_swaps=2)), random.Random(seed)
    made = 0
    for _ in range(4 * edits):
        try:
            session.attempt(*random_edit(session, rng))
            netlist = session.compile().netlist
        except NetlistError:
            raise
        except TbudaError:
            continue
        yield netlist
        made += 1
        if made == edits:
            return


def jobs(models: tuple[str, ...], edits: int = 12) -> list[Job]:
    """All of them, cheap ones first."""
    boards = {
        "n300": load_device("n300"),
        "pair": load_device("wormhole_b0", chips=2),
        "mesh": load_device("wormhole_b0", chips=4),
        "cards": load_device("grayskull", chips=2),
    }
    singles = {arch: load_device(arch) for arch in ARCHS}
    everywhere = {**singles, **boards}
    result = [
        Job(f"edits {name} {board}", device, functools.partial(_edited, name, device, edits, k))
        for k, (name, (board, device)) in enumerate(
            itertools.product(SESSIONS, {**singles, "n300": boards["n300"], "cards": boards["cards"]}.items())
        )
    ]
    result += [
        Job(
            f"training {name} {board} at {count} {optimizer}",
            device,
            functools.partial(_trained, name, device, count, optimizer),
        )
        for (board, device), (name, count, optimizer) in itertools.product(
            {**singles, "n300": boards["n300"], "mesh": boards["mesh"]}.items(),
            (
                ("small", 1, "sgd"),
                ("small", 32, "adam"),
                ("wide", 32, "sgd"),
                ("wide", 2, "adam"),
                ("normed", 8, "lamb"),
                ("images", 4, "sgd"),
            ),
        )
    ]
    result += [
        Job(f"{name} {board} at {count}", device, functools.partial(_compiled, name, device, count))
        for name in models
        for count in (1, 64)
        for board, device in everywhere.items()
    ]
    return result


def formats(name: str) -> Iterator[Job]:
    """One model in every format and arch."""
    for arch, df in itertools.product(ARCHS, ("Float32", "Float16", "Float16_b", "Bfp8_b", "Bfp8")):
        device = load_device(arch)

        def netlists(device: DeviceSpec = device, df: str = df) -> Iterator[Netlist]:
            options = CompileOptions(default_df_override=DataFormat[df])
            yield Session(*_bench(name), device, options).compile().netlist

        yield Job(f"{name} {arch} in {df}", device, netlists)
