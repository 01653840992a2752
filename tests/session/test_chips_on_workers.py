"""Chips of one model on workers: outputs bit for bit those of one executor, who waits, cancel, what is refused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from tbuda_lab.core.errors import Cancelled, InputError, NotSupported
from tbuda_lab.core.explore import chips as chips_module
from tbuda_lab.core.explore import parse_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import ChipBreak, Session
from tbuda_lab.sim.parts import Inbox, Inboxes, pack, unpack


class Layers(torch.nn.Module):
    """Products with a residual from the first to the last, so that a queue passes over chips."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = last = torch.relu(self.layers[0](x))
        for layer in self.layers[1:]:
            last = torch.relu(layer(last))
        return last + first, first.sum(-1, keepdim=True)


def split(device: str, microbatch: int, chips: int) -> Session:
    """A session whose layers are on so many chips."""
    session = Session(
        Layers().eval(),
        (torch.randn(1, 32, 64),),
        parse_device(device),
        CompileOptions(microbatch=microbatch),
        cache=False,
    )
    for layer in range(1, chips):
        names = session.compile().placement.schedule
        session.apply(ChipBreak(next(n for n in names if n.startswith(f"layers.{layer}"))))
    assert {op.chip for op in session.compile().placement.ops.values()} == set(range(chips))
    return session


def samples(count: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(1, 32, 64, generator=draw) for _ in range(count)]


@pytest.mark.parametrize(
    ("device", "microbatch", "chips", "mode"),
    [
        ("n300", 1, 2, "golden"),
        ("wormhole_b0:4", 2, 4, "golden"),
        ("wormhole_b0:4", 1, 4, "device"),
        ("grayskull:2", 2, 2, "exact"),
    ],
)
def test_outputs_are_those_of_one_executor(device: str, microbatch: int, chips: int, mode: str) -> None:
    session = split(device, microbatch, chips)
    given = samples(4)
    here = session.run(given, mode)
    there = session.run_on_workers(given, mode)
    for one, other in zip(here, there.outputs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert set(there.workers) == set(range(chips))
    assert {i.chip for i in there.intervals if i.source < 0} == set(range(chips))
    assert {source for _, source, _ in there.waits()} <= set(range(chips))
    assert all(chip != source and seconds >= 0 for (chip, source, _), seconds in there.waits().items())
    ops = session.compile().placement.ops
    first = next(op.chip for name, op in ops.items() if name.startswith("layers.0"))
    assert {chip for chip, _, _ in there.waits()} == set(range(chips)) - {first}  # who comes later needs what it makes
    assert there.svg().count("<rect") == len(there.intervals) and "waited" in str(there)


def test_cancel_ends_a_run_whose_chips_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    session = split("n300", 1, 2)
    waits = threading.Event()

    class Lost(Inboxes):
        """A link on which nothing arrives."""

        def receive(self, name: str, timeout: float) -> bytes | None:
            waits.set()
            return None

    monkeypatch.setattr(chips_module, "Inboxes", Lost)
    done: list[BaseException] = []

    def run() -> None:
        try:
            session.run_on_workers(samples(2))
        except Cancelled as error:
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert waits.wait(60)
    session.cancel()
    thread.join(60)
    assert not thread.is_alive() and len(done) == 1


def test_an_error_of_one_chip_ends_all() -> None:
    session = split("n300", 2, 2)
    with pytest.raises(InputError, match="2 at a time"):
        session.run_on_workers(samples(3))
    with pytest.raises(InputError, match="workers are a number"):
        session.run_on_workers(samples(2), workers=-1)


def test_what_keeps_state_is_refused() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1, 1, 32, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)
            return self.seen * 2.0

    session = Session(Counter().eval(), (torch.ones(1, 1, 32, 32),), "n150", cache=False)
    with pytest.raises(NotSupported, match="keeps state"):
        session.run_on_workers()


def test_messages_keep_numbers_axes_and_what_memory_holds_once() -> None:
    draw = np.random.default_rng(0)
    plain = draw.normal(size=(2, 3, 4)).astype(np.float32)
    entries = [
        plain,
        plain.transpose(0, 2, 1),
        np.broadcast_to(plain[:, :1], (2, 3, 4)),
        np.broadcast_to(np.float32(0), (1, 32, 32)),
        np.arange(6, dtype=np.int32).reshape(1, 2, 3),
    ]
    again = unpack(pack(entries))
    for a, b in zip(entries, again, strict=True):
        assert np.array_equal(a, b) and a.dtype == b.dtype
        once = [[s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True)] for x in (a, b)]
        assert once[0] == once[1]
    assert again[1].strides == entries[1].strides
    data = pack(entries)
    for cut in range(0, len(data), 7):
        with pytest.raises(InputError, match="damaged"):
            unpack(data[:cut])
    assert len(pack([entries[3]])) < 100


def test_an_inbox_gives_what_has_come_and_nothing_else() -> None:
    boxes = [Inbox(), Inbox()]
    one, two = Inboxes(boxes, 0), Inboxes(boxes, 1)
    one.send(1, "b", b"2")
    one.send(1, "a", b"1")
    assert (two.receive("a", 0.0), two.receive("b", 0.0), two.receive("a", 0.0)) == (b"1", b"2", None)
    assert one.receive("a", 0.0) is None
