"""Formats that hold an accuracy: measured by a run of our own, undone, written to files."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions, PrecisionRule
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.tune import MOST_LISTED, FormatChange, FrontierPoint, TunedFormats, parse_target
from tbuda_lab.core.verification import measure_error


def session() -> Session:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32))
    return Session(model, torch.randn(1, 64, 64), "wormhole_b0")


def measured(own: Session) -> float:
    """The lowest correlation with torch, by the session's own verification with the machine's rounding."""
    return min(c.pcc for c in own.verify(mode="device"))


def test_what_holds_is_taken_as_one_edit_and_taken_back() -> None:
    own, told = session(), []
    own.compile()
    before = own.time().per_input
    plain = measured(own)
    tuned = own.tune_formats(min_pcc=0.999, progress=lambda done, steps: told.append((done, steps)))
    assert tuned.changes and tuned.pcc_after >= 0.999 and tuned.pcc_before == pytest.approx(plain, abs=1e-9)
    assert tuned.cycles_before == before and tuned.cycles_after == own.time().per_input < before
    assert measured(own) == pytest.approx(tuned.pcc_after, abs=1e-9)
    assert told and all(0 < done <= steps for done, steps in told)
    assert {r.reason for r in own.options.precision} <= {c.reason for c in tuned.changes}
    assert own.undo() == "tune formats for PCC 0.999"
    assert own.options.precision == () and own.time().per_input == before


def test_less_accuracy_takes_at_least_as_many_changes_and_cycles_fall() -> None:
    strict, loose = session().tune_formats(min_pcc=0.9995), session().tune_formats(min_pcc=0.95)
    assert loose.cycles_after <= strict.cycles_after
    assert loose.pcc_after >= 0.95
    assert "changes taken" in str(loose)
    many = dataclasses.replace(loose, changes=loose.changes * 20)
    listed = [line for line in str(many).splitlines() if line.startswith("  ")]
    assert len(listed) == MOST_LISTED + 1 and f"and {len(many.changes) - MOST_LISTED} more" in listed[-1]
    page = many._repr_html_()
    assert page.index("<img") < page.index("<details>") and page.count("core cycles") == len(many.changes)


def test_errors_of_ops_are_those_of_rounding() -> None:
    """A weight of one sixteenth steps is exact in 8-bit blocks and not in 4-bit ones."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False)
    layer.weight.data = torch.randint(-60, 61, (64, 64)) / 64.0
    own = Session(
        layer, torch.randn(1, 32, 64), "wormhole_b0", options=CompileOptions(default_df_override=DataFormat.Float32)
    )
    tuned = own.tune_formats(min_pcc=0.5)
    mild, cheap = sorted((*tuned.changes, *tuned.left), key=lambda change: change.error)
    assert "8-bit" in mild.reason and "4-bit" in cheap.reason
    result = layer(own.sample_inputs[0]).detach().reshape(-1, 16)  # 16 numbers share an exponent, of 7 bits each
    step = 2.0 ** (result.abs().amax(-1, keepdim=True).log2().floor() - 6)
    rounding = float(((result / step).round().clamp(-127, 127) * step - result).square().sum() / result.square().sum())
    assert mild.error == pytest.approx(2.0**-14 + rounding, rel=0.01)  # of fidelity and output
    assert cheap.error > 2.0**-10 + rounding


def test_cancel_and_demands_that_cannot_be_met() -> None:
    own, stop = session(), threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        own.tune_formats(min_pcc=0.99, cancel=stop)
    assert own.options.precision == ()
    with pytest.raises(InputError, match="give a correlation"):
        own.tune_formats(min_pcc=1.0)
    with pytest.raises(InputError, match="min_pcc"):
        own.tune_formats(min_pcc=2)


def test_rules_are_written_to_files_and_as_python(tmp_path: Path) -> None:
    own = session()
    own.tune_formats(min_pcc=0.99)
    own.save(tmp_path / "s.buda.json")
    again = Session.open(tmp_path / "s.buda.json", own.model, own.sample_inputs)
    assert again.options.precision == own.options.precision
    own.export_tti(tmp_path / "s.tti")
    assert Session.open(tmp_path / "s.tti").options.precision == own.options.precision
    assert "configure_mixed_precision(name_regex=" in own.to_python()


@pytest.mark.parametrize(
    "text", ["", "pcc", "pcc<=0.9", "relative>=0.1", "pcc>=2", "relative<=-1", "x<=1", "pcc>=nan", "pcc>=1e"]
)
def test_targets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        session().tune(target=text)


def test_a_target_of_another_measure_holds_and_says_what_decided() -> None:
    own = session()
    tuned = own.tune(target="relative<=0.02")
    best = next(p for p in tuned.points if p.changes == len(tuned.changes) and p.holds)
    assert best.error.relative_l2 <= 0.02 and own.undo() == "tune formats for relative<=0.02"
    failed = [p for p in tuned.points if not p.holds]
    assert all(p.error.relative_l2 > 0.02 for p in failed)
    assert failed, "or what decided is not shown"
    assert tuned.deciding and set(tuned.deciding) <= {c.op for c in tuned.left}
    errors = [p.error.relative_l2 for p in tuned.frontier]
    cycles = [p.cycles for p in tuned.frontier]
    assert errors == sorted(errors, reverse=True) and cycles == sorted(cycles)
    assert tuned.svg().count("<circle") == len(tuned.points) + 1 and "relative&lt;=0.02 holds" in tuned.svg()
    (first, *_) = tuned.first_left  # with it and all before it the error is beyond the target, by a run of our own
    assert f"decided by {first.level} at {first.op}" in str(tuned)
    beyond = CompileOptions(precision=tuple({c.op: c.rule for c in (*tuned.changes, *tuned.first_left)}.values()))
    model, inputs = own.model, own.sample_inputs
    with_it = Session(model, inputs, "wormhole_b0", beyond, name=own.name).verify(mode="device")
    assert min(c.pcc for c in with_it) < tuned.pcc_after


def test_changes_that_hold_and_make_nothing_faster_are_told_from_those_that_do_not_hold() -> None:
    """Of five changes three hold, and none is faster: the fourth and fifth decided."""
    error = measure_error("y", np.ones(4), np.array([1.0, 1, 1, 1.01]))
    points = [FrontierPoint(n, 100.0 + n, error, n <= 3) for n in (0, 3, 5)]
    left = tuple(FormatChange(f"op{k}", "8-bit weights", PrecisionRule("why"), 0.0, 1.0) for k in range(5))
    tuned = TunedFormats((), left, 0.9, 0.9, 100.0, 100.0, (), tuple(points), parse_target("relative<=0.01"))
    assert tuned.deciding == ("op3", "op4")
    assert "relative 0.005 -> 0.005" in str(tuned) and "PCC" not in str(tuned)
    assert "it holds with 3, but those that are left make nothing faster" in str(tuned)
