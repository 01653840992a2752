"""Tables of a hand-made placement, where every number is known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tbuda_lab.cli.output import epoch_table, modelled_cycles, summary
from tbuda_lab.core.balancer.types import CANDIDATE, Epoch, OpModels, OpPlacement, Placement
from tbuda_lab.core.epochsim import BatchTime, Bound, EpochTime, OpTime


@pytest.fixture
def result() -> SimpleNamespace:
    """Three epochs; the last two run at the same time on two chips. 1 GHz, so a cycle is a nanosecond."""
    cycles = {"a": 100, "b": 300, "c": 50, "d": 80}
    rows = {name: np.zeros(1, CANDIDATE) for name in cycles}
    for name, row in rows.items():
        row["cycles"] = cycles[name]
    ops = {
        "a": OpPlacement("a", 0, 0, (0, 0), (2, 3), False, 0),
        "b": OpPlacement("b", 0, 0, (2, 0), (1, 8), False, 0),
        "c": OpPlacement("c", 1, 0, (0, 0), (1, 1), False, 0),
        "d": OpPlacement("d", 2, 1, (0, 0), (4, 4), False, 0),
    }
    epochs = (Epoch(0, 0, 0, ("a", "b")), Epoch(1, 1, 0, ("c",)), Epoch(2, 1, 1, ("d",)))
    models = {name: OpModels(name, row) for name, row in rows.items()}
    placement = Placement(ops, epochs, {}, models, tuple(cycles), (300, 50, 80))
    device = SimpleNamespace(name="two", arch="wormhole_b0", rows=8, cols=8, chips=(0, 1), clock_hz=1e9)
    return SimpleNamespace(placement=placement, device=device, diagnostics=())


def test_epoch_table(result: SimpleNamespace) -> None:
    """What it says is what is simulated: two inputs in 4,000 cycles are 2,000 per input, and most of it the switch."""
    names = [epoch.ops for epoch in result.placement.epochs]
    cycles = {"a": 100, "b": 300, "c": 50, "d": 80}
    times = BatchTime(
        2,
        8000,
        tuple(
            EpochTime(
                4000,
                2 * max(cycles[n] for n in ops),
                100,
                0,
                3000,
                Bound.SWITCH,
                len(ops) - 1,
                0,
                tuple(
                    OpTime(cycles[n], 0, cycles[n], "kernel", Bound.COMPUTE, cycles[n], 0, 0, 0, 0, True) for n in ops
                ),
            )
            for ops in names
        ),
    )
    assert [line.split() for line in epoch_table(result, times).splitlines()[2:]] == [
        ["0", "0", "0", "2", "14/64", "2,000", "the", "epoch", "switch", "b"],
        ["1", "1", "0", "1", "1/64", "2,000", "the", "epoch", "switch", "c"],
        ["2", "1", "1", "1", "16/64", "2,000", "the", "epoch", "switch", "d"],
    ]


def test_epochs_side_by_side_count_once(result: SimpleNamespace) -> None:
    assert modelled_cycles(result) == 300 + 80
    assert "380 cycles per input, 2,631,578.9 inputs/s" in summary(result)
