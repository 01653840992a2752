"""`Session.optimise` also looks for another lowering: other ops, the same outputs, less time."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session

PAIR = "2.matmul"
"""The second matmul of a pair of which the first, 784 by 512, takes long on the 8 columns that it can have."""


@functools.cache
def model() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 10)).eval(), (torch.randn(1, 784),)


def session(**options: Any) -> Session:
    module, inputs = model()
    return Session(module, inputs, "wormhole_b0", CompileOptions(microbatch=64, **options))


def time_of(of: Session) -> float:
    report = of.compile().placement.report
    assert report is not None and report.objective is not None
    return report.objective.time


def test_a_pair_of_matmuls_is_cut_where_that_is_faster() -> None:
    found = session()
    before, time_before = found.compile(), time_of(found)
    curve = found.optimise(steps=9)
    assert dict(found.options.op_parts)[PAIR] > 1 and found.options.optimise_steps == 9
    assert curve[0] == (0, time_before)
    assert all(b[1] <= a[1] for a, b in itertools.pairwise(curve)) and curve[-1] == (9, time_of(found))
    assert time_of(found) < 0.97 * curve[0][1]
    again = Session(*model(), "wormhole_b0", found.options)  # what was found is told as options
    assert again.compile().placement.ops == found.compile().placement.ops and time_of(again) == time_of(found)
    module, (x,) = model()
    for (out,) in Runner(found.compile()).run([(x,)] * 64):
        torch.testing.assert_close(out.flatten(), module(x).detach().flatten(), rtol=0.02, atol=0.02)
    found.undo()
    assert found.options.op_parts == () and found.compile().placement.ops == before.placement.ops


def test_what_was_found_is_saved_and_its_parts_can_be_edited(tmp_path: Path) -> None:
    found = session()
    found.optimise(steps=9)
    opened = Session.open(found.save(tmp_path / "found.json"), *model())
    assert opened.options == found.options and opened.compile().placement.ops == found.compile().placement.ops
    part = f"{PAIR}.lc1"
    epochs = found.compile().placement.epochs
    found.gesture(f"resize {part} to 1x2")
    edited = found.compile().placement
    assert edited.candidate(part)["grid_c"] == 2 and len(edited.epochs) == len(epochs)


def test_ops_that_overrides_address_stay_as_they_are() -> None:
    kept = session()
    kept.gesture(f"resize {PAIR} to 1x4")
    kept.optimise(steps=2)
    assert kept.options.op_parts == () and kept.options.optimise_steps == 2
    row = kept.compile().placement.candidate(PAIR)
    assert (row["grid_r"], row["grid_c"]) == (1, 4)


def test_time_and_steps_end_the_trials() -> None:
    short = session()
    short.compile()
    short.optimise(seconds=1e-6)
    assert short.options.op_parts == ()
    assert short.optimise(steps=1)[-1][0] == 1 and short.options.op_parts == ((PAIR, 2),)  # one trial: not in 4 parts


def test_a_search_can_be_cancelled_and_changes_nothing() -> None:
    stopped = session()
    before = stopped.compile()
    stopped.on("stage", lambda stage, fraction: stopped.cancel() if stage == "place" else None)
    with pytest.raises(Cancelled):
        stopped.optimise(steps=4)
    assert stopped.options.op_parts == () and stopped.options.optimise_steps == 0
    assert stopped.compile().placement.ops == before.placement.ops
