"""`tbuda cost` and `tbuda calibrate` as they are called."""

from __future__ import annotations

import csv
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.cli.app import main

SHEET = """\
Test-ID,Unary-Type,math_fidelity,input0_df,output_t,output_mb_r,output_mb_c,output_ub_r,output_ub_c,total-runtime,note
7,gelu,LoFi,Bfp8_b,1,2,2,1,1,141000,"a, b"
8,gelu,LoFi,Bfp8_b,1,2,2,1,8,1100000,
9,exp,HiFi4,Float16_b,1,4,2,2,2,7280375,x
"""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_cost_adds_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text(SHEET, encoding="utf-8")
    assert main(["cost", "--arch", "wormhole_b0", str(source), "--out", str(target)]) == 0
    before, after = rows_of(source), rows_of(target)
    assert [list(row) for row in after] == [[*row, "estimated_cycles"] for row in before]
    for old, new in zip(before, after, strict=True):
        assert {name: new[name] for name in old} == old
        assert int(new["estimated_cycles"]) == pytest.approx(float(old["total-runtime"]) / 128, rel=0.25)
    assert "3 runs" in capsys.readouterr().out
    again = tmp_path / "again.csv"
    assert main(["cost", "--arch", "WORMHOLE_B0", str(target), "--out", str(again)]) == 0
    assert again.read_text(encoding="utf-8") == target.read_text(encoding="utf-8")


def test_cost_of_a_sheet_without_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text("input0_df,t,mblock_m,mblock_n,ublock_rt,ublock_ct\nBfp8_b,1,2,2,1,4\n", encoding="utf-8")
    assert main(["cost", "--arch", "grayskull", str(source), "--out", str(target)]) == 1
    assert "--op" in capsys.readouterr().err
    assert not target.exists() and list(tmp_path.iterdir()) == [source]
    assert main(["cost", "--arch", "grayskull", str(source), "--out", str(target), "--op", "sqrt"]) == 0
    assert int(rows_of(target)[0]["estimated_cycles"]) > 0
    assert main(["cost", "--arch", "grayskull", str(source), "--out", str(target), "--op", "softplus"]) == 1


def test_missing_files_and_wrong_archs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--arch", "grayskull", str(tmp_path / "none.csv"), "--out", str(tmp_path / "o.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit) as wrong:
        main(["cost", "--arch", "z80", "a.csv", "--out", "b.csv"])
    assert wrong.value.code == 2


def test_calibrate_writes_what_cost_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    lines = ["input0_df,math_fidelity,t,mblock_m,mblock_n,ublock_rt,ublock_ct,runtime"]
    lines += [
        f"Bfp8_b,LoFi,1,{m},{n},1,{c},{m * n * (100 + 37 * c)}"
        for m in (1, 2, 4, 8)
        for n in (1, 2, 4)
        for c in (1, 2, 4, 8)
    ]
    (folder / "tanh.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    fitted, out = tmp_path / "fitted.yaml", tmp_path / "out.csv"
    assert main(["calibrate", str(folder), "--arch", "grayskull", "--out", str(fitted)]) == 0
    assert "tanh" in capsys.readouterr().out
    call = ["cost", str(folder / "tanh.csv"), "--out", str(out), "--coefficients", str(fitted)]
    assert main([*call, "--arch", "grayskull"]) == 0
    for row in rows_of(out):
        assert int(row["estimated_cycles"]) == pytest.approx(int(row["runtime"]), abs=2)
    capsys.readouterr()
    assert main([*call, "--arch", "wormhole_b0"]) == 1
    assert "coefficients of grayskull" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path / "nothing"), "--arch", "grayskull"]) == 1


def test_every_row_of_an_odd_sheet_is_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Joined sheets, other line ends, quotes, rows cut short, columns of one's own, op types that nobody knows."""
    plain, target = tmp_path / "plain.csv", tmp_path / "out.csv"
    plain.write_text(SHEET, encoding="utf-8")
    assert main(["cost", "--arch", "wormhole_b0", str(plain), "--out", str(target)]) == 0
    expected = [row["estimated_cycles"] for row in rows_of(target)]
    header, first, second, third = SHEET.splitlines()
    odd = [header, first, "", header, second.removesuffix(","), third.replace("exp", "Exp")]
    odd.append(third.replace("exp", "softplus"))
    source = tmp_path / "odd.csv"
    source.write_bytes(("\ufeff" + "\r\n".join(odd) + "\r\n").encode())
    capsys.readouterr()
    assert main(["cost", "--arch", "wormhole_b0", str(source), "--out", str(target)]) == 0
    message = capsys.readouterr().err
    assert "line 4 repeats the header" in message and "line 7: unknown op type 'softplus', priced as nop" in message
    matches = [row["estimated_cycles"] for row in rows_of(target)]
    assert matches[:3] == expected and len(matches) == 4 and 0 < int(matches[3]) < int(matches[2])


def test_a_sheet_says_what_it_is_by_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "input0_df,math_fidelity,mblock_m,mblock_n,ublock_rt,ublock_ct,m_k,u_kt\nFloat16_b,HiFi4,2,2,2,2,4,2\n"
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    (tmp_path / "matmul.csv").write_text(text, encoding="utf-8")
    for name in ("a", "matmul"):
        call = ["cost", "--arch", "wormhole_b0", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / f"{name}.out")]
        assert main(call) == 0
        assert ("taken as matmul" in capsys.readouterr().err) == (name == "a")
    assert (tmp_path / "a.out").read_text() == (tmp_path / "matmul.out").read_text()


@pytest.mark.parametrize(
    ("change", "into", "message", "empty"),
    [
        ("2,2,1,8,", "2,two,1,8,", "output_mb_c 'two' is not a count", True),
        ("2,2,1,8,", "2,0,1,8,", "output_mb_c '0' is not a count", True),
        ("2,2,1,8,", "2,,1,8,", "output_mb_c is empty", True),
        ("Bfp8_b,1,2,2,1,8", "Bfp9,1,2,2,1,8", "'Bfp9'", True),
        ("LoFi,Bfp8_b,1,2,2,1,8", "NoFi,Bfp8_b,1,2,2,1,8", "'NoFi'", True),
        ("8,gelu,LoFi,Bfp8_b,1,2,2,1,8,1100000,", ",,,,,,,,,,", "column output_t is empty, taken as 1", True),
        ("Bfp8_b,1,2,2,1,8", "Bfp8_b,,2,2,1,8", "column output_t is empty, taken as 1", False),
        ("8,1100000,", "8,1100000,,more", "12 cells under 11 columns", False),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_left_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, into: str, message: str, empty: bool
) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "out.csv"
    call = ["cost", "--arch", "wormhole_b0", str(source), "--out", str(target)]
    source.write_text(SHEET, encoding="utf-8")
    assert main(call) == 0
    expected = [row["estimated_cycles"] for row in rows_of(target)]
    capsys.readouterr()
    assert SHEET.count(change) == 1
    source.write_text(SHEET.replace(change, into), encoding="utf-8")
    assert main(call) == 0
    told = capsys.readouterr()
    assert "line 3: " in told.err and message in told.err and ("without an estimate" in told.out) == empty
    cycles = [row["estimated_cycles"] for row in rows_of(target)]
    assert cycles == [expected[0], "" if empty else expected[1], expected[2]]


def test_a_sheet_without_any_row_to_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text(SHEET.replace("Bfp8_b", "Bfp9").replace("Float16_b", "Half"), encoding="utf-8")
    assert main(["cost", "--arch", "wormhole_b0", str(source), "--out", str(target)]) == 1
    message = capsys.readouterr().err
    assert "none of its 3 rows" in message and "'Bfp9'" in message and "'Half'" in message and not target.exists()


def test_columns_may_stand_in_any_order_and_come_from_several_layouts(tmp_path: Path) -> None:
    """What pandas makes of two sheets joined: all columns of both, each filled in the rows of its own."""
    (tmp_path / "runs.csv").write_text(SHEET, encoding="utf-8")
    rows = rows_of(tmp_path / "runs.csv")
    other = {
        "Binary-Type": "add",
        "math_fidelity": "HiFi4",
        "input0_df": "Float16_b",
        "t": "1",
        "mblock_m": "2",
        "mblock_n": "4",
        "ublock_rt": "2",
        "ublock_ct": "2",
        "runtime": "4000",
    }
    header = sorted({*rows[0], *other}, reverse=True)
    with (tmp_path / "joined.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows([*rows, other])
    with (tmp_path / "other.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(other))
        writer.writeheader()
        writer.writerow(other)
    for name in ("runs", "other", "joined"):
        call = ["cost", "--arch", "grayskull", str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / f"{name}.out")]
        assert main(call) == 0
    runs, one, joined = (
        [row["estimated_cycles"] for row in rows_of(tmp_path / f"{name}.out")] for name in ("runs", "other", "joined")
    )
    assert joined == runs + one and all(int(value) > 0 for value in joined)


def test_notes_of_a_kind_are_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten thousand rows of two unknown types and of many wrong counts: a page of notes, and every row answered."""
    head, row, *_ = SHEET.splitlines()
    rows = [
        row.replace("gelu", "softplus" if i % 2 else "mish").replace(",2,2,1,", f",2,{i}?,1,")
        if i < 60
        else row.replace("gelu", "softplus")
        for i in range(10_000)
    ]
    source, target = tmp_path / "runs.csv", tmp_path / "out.csv"
    source.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    assert main(["cost", "--arch", "wormhole_b0", str(source), "--out", str(target)]) == 0
    message = capsys.readouterr().err
    assert "unknown op type 'softplus', priced as nop (and" in message and len(message.splitlines()) <= 25
    matches = [row["estimated_cycles"] for row in rows_of(target)]
    assert matches[:60] == [""] * 60 and len(set(matches[60:])) == 1 and int(matches[60]) > 0


_CELL = st.sampled_from(
    [
        "",
        "0",
        "1",
        "2",
        "-1",
        "1e9",
        "1e400",
        "nan",
        "x",
        '"',
        "gelu",
        "matmul",
        "reduce",
        "splice",
        "sparse_matmul",
        "embedding",
        "Int32",
        "Int8",
        "Bfp8_b",
        "Tf32",
        "Lf8",
        "HiFi4",
        "r",
        "c",
        "True",
        "\r",
        "\u00e9",
        "  ",
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    arch=st.sampled_from(["grayskull", "wormhole_b0", "blackhole"]),
    order=st.randoms(use_true_random=False),
    rows=st.lists(st.lists(_CELL, max_size=20), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_no_sheet_makes_it_fall_over(arch: str, order: random.Random, rows: list[list[str]], end: str) -> None:
    """Whatever stands in the cells: every row has a positive estimate or an empty cell, or the sheet is refused."""
    header = [
        "op_type",
        "input0_df",
        "math_fidelity",
        "t",
        "mblock_m",
        "mblock_n",
        "ublock_rt",
        "ublock_ct",
        "m_k",
        "u_kt",
        "z",
        "nz_tiles",
        "nz_ublocks",
        "nz_strips",
        "Vector-Mode",
        "approx",
        "l1_acc",
        "runtime",
        "own",
    ]
    order.shuffle(header)
    good = {"op_type": "gelu", "input0_df": "Bfp8_b"} | dict.fromkeys(
        ("mblock_m", "mblock_n", "ublock_rt", "ublock_ct", "t", "m_k", "u_kt", "z"), "1"
    )
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "runs.csv", Path(folder) / "out.csv"
        lines = [",".join(header), ",".join(good.get(name, "") for name in header), *(",".join(row) for row in rows)]
        source.write_bytes(end.join(lines).encode())
        assert main(["cost", "--arch", arch, str(source), "--out", str(target)]) == 0
        matches = [row["estimated_cycles"] for row in rows_of(target)]
        assert matches and all(not value or int(value) > 0 for value in matches) and int(matches[0]) > 0
