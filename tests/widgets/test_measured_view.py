"""A measured run as views see it: its frame, its document, its page; and the page that is sent with tables."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames.measured_frame import layer_of, measured_frame
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import MeasuredView, open_profile, report
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tests.measured.files import op, perceptron_rows, table
from tests.session.models import perceptron


@pytest.fixture(scope="module")
def mlp() -> Session:
    model, inputs = perceptron()
    session = Session(model, inputs, "n150", name="mlp")
    session.compile()
    return session


def profile_of(rows):
    return read_ops_perf_text(table(rows), "run.csv")


def test_the_frame_of_a_run_alone() -> None:
    frame = measured_frame(profile_of([*perceptron_rows(), op("Matmul", 2e12), op("Zzyzx", "x")]))
    assert frame.text("row_kind") == ["tilize", "matmul", "unary", "matmul", "matmul", "other"]
    assert frame.columns["row_time"][:4].tolist() == [2500, 9000, 1500, 7000] and np.isnan(frame.columns["row_time"][5])
    assert frame.columns["row_outlier"].tolist() == [0, 0, 0, 0, 1, 0]
    assert frame.meta["total"] == 20000 and frame.meta["finding_count"] == 3 and not frame.meta["matched"]
    assert set(frame.text("row_op")) == {""} and "op_name" not in frame.columns


def test_the_frame_of_a_run_over_a_placement_keeps_the_two_stacks_apart(mlp: Session) -> None:
    frame = measured_frame(mlp.load_profile(profile_of(perceptron_rows())))
    assert frame.text("row_op") == ["", "first.matmul", "relu", "second.matmul"]
    assert frame.text("row_layer") == ["", "first", "", "second"]
    assert [layer_of(m) for m in ("", "encoder.layers.3.mlp.fc1", "head.out")] == ["", "encoder.layers.3", "head.out"]
    assert np.nansum(frame.columns["op_measured"]) == pytest.approx(17500)
    placed = mlp.compile().placement
    cycles = sum(float(placed.candidate(n)["cycles"]) for n in placed.ops)
    assert frame.columns["op_pipelined"].sum() >= cycles / mlp.device.clock_hz * 1e9 * 0.999
    assert frame.meta["missing"] == [] and frame.meta["unmatched_count"] == 1


def test_a_run_that_was_loaded_before_the_first_view_is_there() -> None:
    session = Session(*perceptron(), "n150", name="mlp")
    session.load_profile(profile_of(perceptron_rows()))
    assert "measured" in hub_of(session).frames


def test_views_of_runs(mlp: Session, tmp_path: Path) -> None:
    path = tmp_path / "ops_perf_results.csv"
    path.write_text(table(perceptron_rows()))
    alone = open_profile(path)
    assert "MatmulDeviceOperation_1" in alone.stored_html() and "ops_perf_results" in repr(alone)
    beside = MeasuredView(mlp)
    mlp.load_profile(path)
    assert beside.hub.frame("measured").meta["name"] == "ops_perf_results.csv"
    with pytest.raises(InputError):
        open_profile(tmp_path / "none.csv")


def test_five_thousand_ops_are_a_frame_in_time() -> None:
    """Of the second that a page has; the limit is the machine's, so the count of columns stands for it here."""
    frame = measured_frame(profile_of([op("Matmul", k, [(32, 64), (64, 32)], (32, 32)) for k in range(1, 5001)]))
    assert frame.columns["row_time"].size == 5000 and len(frame.strings) < 5100


built = pytest.mark.skipif(not (report.STATIC / "page.js").is_file(), reason="needs the built front end")


@built
def test_a_page_to_send_has_tables_and_measured_times(mlp: Session) -> None:
    mlp.load_profile(profile_of(perceptron_rows()))
    tables = report.shared_tables(mlp, 5, seconds=10)
    text = report.report_html(mlp, tables=tables)
    packed = re.search(r'data-packed="deflate">([^<]*)<', text)
    assert packed is not None
    data = json.loads(zlib.decompress(base64.b64decode(packed.group(1))))
    assert {f["header"]["meta"]["op"] for f in data["tables"]["legal"]} == set(mlp.compile().placement.ops)
    assert all(hint["gain"] >= 0 for hint in data["tables"]["suggest"]) and data["tables"]["why"]
    assert "measured" in {f["header"]["key"] for f in data["frames"]}
    with pytest.raises(InputError, match="redact"):
        report.report_html(mlp, tables=tables, redact="names")
    assert '"measured"' not in report.report_html(mlp, redact="names").split('id="tb-data"')[1].split("frames")[0]


@built
def test_the_command_that_sends_a_page_says_what_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a compiled folder as of a model, with a run over it; of a placement that no edit makes better it says so."""
    file, out, run = tmp_path / "mlp.py", tmp_path / "page.html", tmp_path / "ops_perf_results.csv"
    file.write_text("from tests.session.models import perceptron as make\n")
    run.write_text(table(perceptron_rows()))
    assert main(["compile", f"{file}:make", "--device", "n150", "--out", str(tmp_path / "mlp")]) == 0
    capsys.readouterr()
    assert main(["share", str(tmp_path / "mlp"), "--profile", str(run), "--out", str(out), "--seconds", "5"]) == 0
    said = capsys.readouterr().out
    packed = re.search(r'data-packed="deflate">([^<]*)<', out.read_text(encoding="utf-8"))
    assert packed is not None
    tables = json.loads(zlib.decompress(base64.b64decode(packed.group(1))))["tables"]
    count = len(tables["suggest"])
    edits = {0: "no single edit gains", 1: "1 edit that gains"}.get(count, f"{count} edits that gain")
    assert f"MB, {edits}, tables of {tables['count']} ops to drag" in said
    assert main(["share", str(tmp_path / "mlp"), "--profile", str(file), "--out", str(tmp_path / "no.html")]) == 1
    assert not (tmp_path / "no.html").exists()
