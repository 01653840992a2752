"""Cells, columns and rows of a profile that are not as they should be: told with their row, never misread."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured import MeasuredProfile
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.session import Session
from tests.measured.files import op, perceptron_rows, table

FIRMWARE, KERNEL = "DEVICE FW DURATION [ns]", "DEVICE KERNEL DURATION [ns]"


def read(text: str) -> MeasuredProfile:
    return read_ops_perf_text(text, "run.csv")


def with_cell(column: str, value: object, row: int = 1) -> str:
    """The perceptron's file with one cell changed."""
    rows = perceptron_rows()
    rows[row] |= {column: value}
    return table(rows)


@pytest.mark.parametrize("column", ["DEVICE ID", "CORE COUNT", "AVAILABLE WORKER CORE COUNT", "GLOBAL CALL COUNT"])
@pytest.mark.parametrize("text", ["1.5", "63.9", "1e30", "-1", "inf", "nan", "0x8", "1_0", "eight", "=1+1"])
def test_whole_numbers_that_are_none_are_told_and_not_rounded(column: str, text: str) -> None:
    whole, profile = read(table(perceptron_rows())), read(with_cell(column, text))
    (finding,) = profile.findings
    assert finding.where == "run.csv, row 3" and column in finding.message and text in finding.message
    first = profile.ops[1]
    of = {"DEVICE ID": first.device, "CORE COUNT": first.cores, "GLOBAL CALL COUNT": first.call}
    assert of.get(column, first.available) == 0
    assert profile.total == whole.total and profile.devices == (0,)
    assert bool(profile.gaps) == (column == "DEVICE ID")


@pytest.mark.parametrize("text, value", [("8", 8), ("8.0", 8), ("8.", 8), ("1e1", 10), ("", 0), ("-", 0)])
def test_whole_numbers_in_any_form(text: str, value: int) -> None:
    profile = read(with_cell("CORE COUNT", text))
    assert profile.ops[1].cores == value and not profile.findings


def test_an_op_without_a_device_counts_to_that_of_the_row_before() -> None:
    """A file without any says nothing and needs nothing."""
    rows = [row | {"DEVICE ID": 3} for row in perceptron_rows()]
    profile = read(table([*rows[:2], rows[2] | {"DEVICE ID": ""}, rows[3]]))
    assert profile.devices == (3,) and profile.total == 20_000
    assert [(f.where, f.rule) for f in profile.gaps] == [("run.csv, row 4", "profile-device")]
    assert not read(table(row | {"DEVICE ID": ""} for row in rows)).findings


TWICE = {  # cells of a second column of this name: those of the first, or others
    KERNEL: "7",
    "OP CODE": "Softmax",
    "DEVICE ID": "1",
    "INPUT_0_Y_PAD[LOGICAL]": "64[64]",
    "MATH FIDELITY": "LoFi",
    "METAL TRACE ID": "5",
}


@pytest.mark.parametrize("front", [True, False])
@pytest.mark.parametrize("column", TWICE)
def test_a_column_that_stands_twice_is_read_where_both_agree(column: str, front: bool) -> None:
    rows = list(csv.reader(io.StringIO(table(perceptron_rows()))))
    at = rows[0].index(column)

    def doubled(change: dict[int, str]) -> str:
        new = [
            [change.get(k, row[at]), *row] if front else [*row, change.get(k, row[at])] for k, row in enumerate(rows)
        ]
        stream = io.StringIO()
        csv.writer(stream).writerows(new)
        return stream.getvalue()

    profile = read(doubled({}))
    (finding,) = profile.findings
    places = (1, at + 2) if front else (at + 1, len(rows[0]) + 1)
    said = "{!r} stands twice, as columns {} and {}".format(column, *places)
    assert said in finding.message and profile.ops == read(table(perceptron_rows())).ops
    for change in ({2: TWICE[column]}, {4: TWICE[column]}, {3: "" if rows[3][at] else "x"}):
        with pytest.raises(InputError, match=f"run.csv, row {min(change) + 1}: .*stands twice") as refused:
            read(doubled(change))
        assert said in str(refused.value)


@pytest.mark.parametrize("cell", ["", "NaN", "-", "0", "x", "-5"])
def test_the_time_of_a_firmware_is_not_taken_among_those_of_kernels(
    cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An op without that of its kernel has none, and a gate refuses the run; where all are of firmware they count."""
    lines = with_cell(KERNEL, cell).split("\r\n")
    text = "\n".join(
        f"{fw},{line}" for fw, line in zip((FIRMWARE, 99_000, 99_000, 99_000, 99_000), lines, strict=False)
    )
    profile = read(text + "\n")
    assert [o.time for o in profile.ops] == [2500, None, 1500, 7000] and profile.clocks == (KERNEL,)
    assert any(f.where == "run.csv, row 3" and FIRMWARE in f.message for f in profile.findings)
    (tmp_path / "a.csv").write_text(table(perceptron_rows()))
    (tmp_path / "b.csv").write_text(text + "\n")
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-if-slower", "3%"]) == 2
    assert "without a time: MatmulDeviceOperation_1 (row 3)" in capsys.readouterr().err
    cut = read(text[: text.rindex(",tt_dnn_device,") + 20])  # between the two columns of times
    assert cut.ops[-1].row == 5 and cut.ops[-1].time is None and cut.gaps
    only = read(text.replace(f",{KERNEL},", ",ELSE,") + "\n")
    assert [o.time for o in only.ops] == [99_000] * 4 and only.clocks == (FIRMWARE,)


SIZES = {  # a cell of an operand: what is said of it
    "32[19": "is no size",
    "[3]": "is no size",
    "x": "is no size",
    "": "is no size",
    "32[64]": "has more elements than it stores",
    "32[0]": "stores no element",
    "3.5": "is no size",
}


@pytest.mark.parametrize("text", SIZES)
@pytest.mark.parametrize("operand", ["INPUT_0", "INPUT_1", "INPUT_2", "OUTPUT_0"])
def test_operands_keep_their_places_where_a_size_cannot_be_read(operand: str, text: str, mlp: Session) -> None:
    whole, profile = read(table(perceptron_rows())), read(with_cell(f"{operand}_Y_PAD[LOGICAL]", text))
    (finding,) = profile.findings
    assert finding.where == "run.csv, row 3" and f"{operand}_Y: {text!r} {SIZES[text]}" in finding.message
    pairs = list(zip(profile.ops[1].inputs, whole.ops[1].inputs, strict=True))
    pairs += zip(profile.ops[1].outputs, whole.ops[1].outputs, strict=True)
    at = 3 if operand == "OUTPUT_0" else int(operand[-1])
    assert [a == b for a, b in pairs] == [k != at for k in range(4)]
    assert not pairs[at][0].known and "?" in profile.ops[1].shape_text and not profile.ops[1].sized
    frame = measured_frame(profile)
    assert np.isnan(frame.columns["row_table"][1]) and not np.isnan(frame.columns["row_table"][3])
    overlay = mlp.load_profile(profile)
    assert overlay.match.times() == {"first.matmul": 9000, "relu": 1500, "second.matmul": 7000}
    assert all(row.ttnn for row in overlay.ops if row.measured)


@pytest.mark.parametrize("lost", ["all its columns", "its cells", "its last column"])
def test_operands_keep_their_places_where_the_first_is_missing(lost: str) -> None:
    columns = [f"INPUT_0_{d}_PAD[LOGICAL]" for d in "WZYX"]
    if lost == "its cells":
        profile = read(table(row | dict.fromkeys(columns, "") for row in perceptron_rows()))
    else:
        profile = read(table(perceptron_rows(), without=columns if lost == "all its columns" else columns[-1:]))
    matmul = profile.ops[1]
    assert [t.shape[-2:] for t in matmul.inputs] == [(0, 0), (256, 512), (1, 512)] and not matmul.inputs[0].known
    assert any("INPUT_0" in f.message and f.where == "run.csv, row 3" for f in profile.findings)


def test_columns_in_another_order_are_the_same_operands() -> None:
    rows = list(csv.DictReader(io.StringIO(table(perceptron_rows()))))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, sorted(rows[0], reverse=True))
    writer.writeheader()
    writer.writerows(rows)
    assert read(stream.getvalue()).ops == read(table(perceptron_rows())).ops


@pytest.mark.parametrize("text", ["0[0]", "0"])
def test_an_operand_without_an_element_is_told(text: str) -> None:
    """Ops of real files have results of that kind."""
    profile = read(
        with_cell("INPUT_2_Y_PAD[LOGICAL]", text) + with_cell("INPUT_0_X_PAD[LOGICAL]", text).split("\n", 1)[1]
    )
    (finding,) = profile.findings
    assert (finding.severity, finding.where) == ("note", "run.csv, row 3")
    assert finding.message == "INPUT_2 has no element, nor have 1 more"
    assert profile.ops[1].inputs[2].known and profile.ops[1].inputs[2].bytes == 0


TWO_FILES: dict[str, tuple[dict[str, Any], int]] = {  # how the second is written, and ops that are read of both
    "the same columns": ({}, 8),
    "a column less": ({"without": ["DEVICE ID"]}, 4),
    "another operand": ({"inputs": 4}, 4),
    "an older version": ({"old": True}, 4),
}


@pytest.mark.parametrize("case", TWO_FILES)
def test_a_second_header_is_no_op(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, ops = TWO_FILES[case]
    rows = table(perceptron_rows())
    for between in ("", "\n"):
        profile = read(rows + between + table(perceptron_rows(), **words))
        assert len(profile.ops) == ops and profile.total == 5000 * ops
        (gap,) = profile.gaps
        number = 6 + len(between)
        assert gap.where == f"run.csv, row {number}" and f"a second header at row {number}" in gap.message
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text(rows + table(perceptron_rows(), **words))
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-if-slower", "300%"]) == 2
    assert "a second header" in capsys.readouterr().err


def test_the_codes_of_ops_may_be_any_words() -> None:
    profile = read(table([op("OP TYPE", 5), op("DEVICE ID", 7)]))
    assert [o.time for o in profile.ops] == [5, 7] and not profile.findings
