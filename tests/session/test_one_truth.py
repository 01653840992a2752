"""One fact, one value: what limits an epoch, its slowest op, its time, in every view, page, export and command."""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path

import pytest
import torch

from tbuda_lab.cli.demo import closing
from tbuda_lab.cli.output import epoch_table, summary
from tbuda_lab.core.epochsim import EpochLimit, batch_time, epoch_limits
from tbuda_lab.core.explore.numbers import numbers_of
from tbuda_lab.core.frames import Frame, op_load
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.core.session.profile import epoch_costs
from tbuda_lab.core.session.whatif import time_of
from tbuda_lab.widgets import OpTable, open_netlist
from tbuda_lab.widgets.handlers.queries import why_data
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.report import report_html
from tests.session.models import encoder, perceptron


def _convolutions() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 10),
    )
    return model.eval(), (torch.randn(1, 3, 32, 32),)


def _training() -> Session:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10))
    inputs, targets = torch.randn(32, 64), torch.randint(0, 10, (32,))
    return Session.for_training(model, (inputs,), torch.nn.CrossEntropyLoss(), (targets,), device="n150", name="train")


MODELS = {
    "perceptron, 64 inputs": lambda: Session(*perceptron(), "n150", CompileOptions(microbatch=64)),
    "encoder": lambda: Session(*encoder(1), "n150"),
    "encoder, 32 inputs, several chips": lambda: Session(*encoder(1), "n300", CompileOptions(microbatch=32)),
    "encoder, smallest grids": lambda: Session(
        *encoder(1), "n150", CompileOptions(microbatch=64, balancer_policy="MinimizeGrid")
    ),
    "convolutions": lambda: Session(*_convolutions(), "grayskull"),
    "training": _training,
}


@functools.cache
def opened(model: str) -> Session:
    session = MODELS[model]()
    session.compile()
    return session


@pytest.fixture(params=MODELS)
def session(request: pytest.FixtureRequest) -> Session:
    return opened(request.param)


def truths(session: Session) -> tuple[EpochLimit, ...]:
    return epoch_limits(session.compile().placement, session.time())


def test_bound_slowest_and_time_are_the_same_wherever_they_are_shown(session: Session, tmp_path: Path) -> None:
    result, times, limits = session.compile(), session.time(), truths(session)
    frame = session.frames.ops(result)
    names, column = frame.text("op_name"), frame.columns
    assert frame.meta["time"] == times.per_input == batch_time(result, times.batch).per_input
    assert time_of(session.placed()) == times
    totals, bars, lines = OpTable(session).totals(), epoch_costs(result, times), epoch_table(result).splitlines()[2:]
    page = report_html(session)
    for e, (limit, time) in enumerate(zip(limits, times.epochs, strict=True)):
        spent = time.cycles / times.batch
        assert names[column["epoch_slowest"][e]] == totals[e]["slowest"] == limit.slowest
        assert frame.text("epoch_bound")[e] == bars[e].bound == limit.bound.value
        assert frame.text("epoch_limits")[e] == totals[e]["limits"] == bars[e].limits == limit.text
        assert column["epoch_time"][e] == totals[e]["time"] == pytest.approx(bars[e].time) == spent
        assert limit.slowest in lines[e] and f" {spent:,.0f}  {limit.bound.words} " in lines[e]
        why = why_data(session, {"op": limit.slowest})
        assert (why["limiter_op"], why["limiter"], why["limits"]) == (limit.slowest, limit.op_bound, limit.text)
        assert why["epoch_time"] == spent and why["limiter_cycles"] == limit.cycles
        assert limit.slowest in page
        svg = epoch_svg(frame, e)
        assert svg.count("▲") == (1 if limit.limiting else 0)
    session.export_table(tmp_path / "ops.csv")
    session.export_netlist(tmp_path / "net.yaml")
    with (tmp_path / "ops.csv").open() as file:
        table = {row["name"]: row for row in csv.DictReader(file)}
    with (tmp_path / "net.cycles.csv").open() as file:
        cycles = {row["op"]: row for row in csv.DictReader(file)}
    for name, row in table.items():
        assert float(row["limiter_cycles"]) == float(cycles[name]["limiter_cycles"])
        assert row["limiter"].split(" ")[-1] == cycles[name]["limiter"].split(" ")[-1]


def test_files_and_commands_say_the_same(session: Session, tmp_path: Path) -> None:
    """The time of the model, and place, size, epoch, chip and kernel of every op: in the netlist, in that file opened
    again, in the table, in an image opened again, in what commands print, in the tables of placements and trials."""
    result, times, limits = session.compile(), session.time(), truths(session)
    frame, spots = session.frames.ops(result), result.placement.ops

    def facts(frame: Frame) -> dict[str, tuple[int, ...]]:
        fields = ("epoch", "chip", "row", "col", "rows", "cols", "transposed")
        columns = zip(*(frame.columns[f"op_{f}"].tolist() for f in fields), strict=True)
        return dict(zip(frame.text("op_name"), columns, strict=True))

    shown = facts(frame)
    assert shown == {n: (s.epoch, s.chip, *s.start, *s.size, s.transposed) for n, s in spots.items()}
    opened = open_netlist(session.export_netlist(tmp_path / "net.yaml")).hub.frames["ops"]
    assert facts(opened) == shown
    assert opened.columns["epoch_cycles"].tolist() == frame.columns["epoch_cycles"].tolist()
    again = dict(zip(opened.text("op_name"), opened.columns["op_cycles"].tolist(), strict=True))
    kernels = dict(zip(frame.text("op_name"), frame.columns["op_cycles"].tolist(), strict=True))
    assert {n: c for n, c in again.items() if c} == {n: c for n, c in kernels.items() if again[n]}
    session.export_table(tmp_path / "ops.csv")
    with (tmp_path / "ops.csv").open() as file:
        for row in csv.DictReader(file):
            assert shown[row["name"]][:6] == tuple(int(row[f]) for f in ("epoch", "chip", "row", "col", "rows", "cols"))
            assert float(row["cycles"]) == kernels[row["name"]]
    whole = f"{times.per_input:,.0f} cycles per input in a batch of {times.batch}"
    longest = max(range(len(limits)), key=lambda e: times.epochs[e].cycles)
    said = closing(session, (), tmp_path)
    assert whole in summary(result) and whole in said and limits[longest].text in said
    assert [row.facts.cycles for row in session.placements if row.current] == [pytest.approx(times.per_input)]
    assert numbers_of(result)["cycles/input"] == pytest.approx(times.per_input)


@pytest.mark.parametrize("model", ["perceptron, 64 inputs", "encoder, 32 inputs, several chips", "training"])
def test_an_image_says_what_its_session_says(model: str, tmp_path: Path) -> None:
    session = opened(model)
    image = Session.open(session.export_tti(tmp_path / "image.tti"))
    assert truths(image) == truths(session)
    assert (image.time().per_input, image.time().parts) == (session.time().per_input, session.time().parts)
    ours, theirs = (s.frames.ops(s.compile()) for s in (session, image))
    assert ours.text("op_name") == theirs.text("op_name")
    for name in ("rows", "cols", "cycles", "limiter_cycles", "epoch"):
        assert ours.columns[f"op_{name}"].tolist() == theirs.columns[f"op_{name}"].tolist(), name


WAYS = {"dram": "DRAM", "host": "host link", "noc": "NoC", "kernel": "compute"}


def test_no_two_columns_of_an_op_name_another_limit(session: Session) -> None:
    frame = session.frames.ops(session.compile())
    for limiter, bound in zip(frame.text("op_limiter"), frame.text("op_bound"), strict=True):
        assert bound in (WAYS[limiter.rpartition(" ")[2]], "stall")


def test_the_mark_stands_where_enlarging_gains_or_nowhere(session: Session) -> None:
    """The model is faster with the shape that the mark beside an op says; where filling, stalls or the switch take most
    of an epoch there is no mark."""
    limits = truths(session)
    for limit in limits:
        assert not limit.limiting or limit.bound.value in ("compute", "DRAM", "NoC", "host link")
        if limit.limiting:
            assert limit.larger is not None
            assert session.whatif(ResizeOp(limit.limiting, limit.larger)).gain > 0
        else:
            assert "no op limits it" in limit.text or limit.slowest in limit.text
    frame = session.frames.ops(session.compile())
    marked = [n for n, on in zip(frame.text("op_name"), op_load(frame)[2], strict=True) if on]
    assert sorted(marked) == sorted(limit.limiting for limit in limits if limit.limiting)


def test_the_smallest_grids_leave_something_to_mark() -> None:
    limits = truths(opened("encoder, smallest grids"))
    assert any(limit.limiting for limit in limits), "the test above would be about nothing"


def test_a_timeline_file_ends_when_the_simulation_does(tmp_path: Path) -> None:
    session = opened("encoder")
    session.export_trace(tmp_path / "t.json", batch=2)
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    end = max(e["ts"] + e["dur"] for e in events)
    cycles = session.timeline(2).cycles
    assert end <= cycles / session.device.clock_hz * 1e6 * 1.0001 and end > 0.5 * cycles / session.device.clock_hz * 1e6
