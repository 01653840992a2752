"""Profiles read from files of ours in TT-Metal's form, and from traces; and files that are not as they should be."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError, UnknownDevice
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured import OTHER, kind_of, read_profile
from tbuda_lab.core.measured.attributes import read_facts
from tbuda_lab.core.measured.match import align
from tbuda_lab.core.measured.ops_perf import TIMES, read_ops_perf_text
from tbuda_lab.core.measured.steps import profile_steps
from tbuda_lab.core.session import Session
from tests.measured.files import op, perceptron_rows, signpost, table


def read(text: str):
    return read_ops_perf_text(text, "run.csv")


@pytest.mark.parametrize(
    "code, kind",
    [
        ("Matmul", "matmul"),
        ("MatmulDeviceOperation", "matmul"),
        ("MinimalMatmulOp", "matmul"),
        ("tt::operations::primary::Matmul", "matmul"),
        ("AttnMatmulDeviceOperation", "matmul"),
        ("BinaryNgDeviceOperation", "binary"),
        ("LayerNormDeviceOperation", "norm"),
        ("GroupNorm", "norm"),
        ("SoftmaxDeviceOperation", "softmax"),
        ("Conv2dDeviceOperation", "conv"),
        ("OptimizedConvNew", "conv"),
        ("HaloDeviceOperation", "halo"),
        ("TransposeDeviceOperation", "transpose"),
        ("ReshapeDeviceOperation", "reshape"),
        ("TilizeWithValPadding", "tilize"),
        ("UntilizeWithUnpaddingDeviceOperation", "untilize"),
        ("RingJointSDPADeviceOperation", "attention"),
        ("ReduceScatterMinimalAsyncDeviceOperation", "collective"),
        ("FastReduceNCDeviceOperation", "reduce"),
        ("InterleavedToShardedDeviceOperation", "reshard"),
        ("NLPConcatHeadsDeviceOperation", "heads"),
        ("UpdateKVCacheOperation", "cache"),
        ("RotaryEmbeddingLlamaDeviceOperation", "rotary"),
        ("MoveDeviceOperation", "copy"),
        ("EmbeddingsDeviceOperation", "embedding"),
        ("Pool2D", "pool"),
        ("UpsampleOperation", "upsample"),
        ("TypecastDeviceOperation", "typecast"),
        ("SliceWriteDeviceOperation", "slice_write"),
        ("aten::addmm", "matmul"),
        ("aten::mm", "matmul"),
        ("aten::bmm", "matmul"),
        ("aten::baddbmm", "matmul"),
        ("aten::linear", "matmul"),
        ("aten::_scaled_mm", "matmul"),
        ("aten.addmm.default", "matmul"),
        ("addmm", "matmul"),
        ("mm", "matmul"),
        ("volta_sgemm_128x64_nn", "matmul"),
        ("ampere_bf16_s16816gemm_bf16_128x128", "matmul"),
        ("void gemv2T_kernel_val<int, float>", "matmul"),
        ("aten::add_", "binary"),
        ("aten::sub", "binary"),
        ("aten::rsub", "binary"),
        ("aten::masked_fill_", "binary"),
        ("aten::rsqrt", "unary"),
        ("aten::abs", "unary"),
        ("aten::_softmax", "softmax"),
        ("aten::native_layer_norm", "norm"),
        ("aten::linalg_vector_norm", "reduce"),
        ("aten::sum", "reduce"),
        ("aten::amax", "reduce"),
        ("aten::t", "transpose"),
        ("aten::cat", "concat"),
        ("aten::select", "slice"),
        ("aten::index_select", "gather"),
        ("aten::as_strided", "reshape"),
        ("aten::_to_copy", "copy"),
        ("aten::copy_", "copy"),
        ("aten::empty", "fill"),
        ("aten::_convolution", "conv"),
        ("aten::mkldnn_convolution", "conv"),
        ("sm80_xmma_fprop_implicit_gemm_f32", "conv"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("aten::max_pool2d_with_indices", "pool"),
        ("Memcpy HtoD (Pinned -> Device)", "copy"),
        ("Memset (Device)", "fill"),
        ("vectorized_elementwise_kernel<4, GeluFunctor>", "unary"),
        ("vectorized_elementwise_kernel<4, FillFunctor>", "fill"),
        ("vectorized_elementwise_kernel<4>", "binary"),
        ("layer", OTHER),
        ("Model.forward", OTHER),
        ("aten::zzyzx", OTHER),
        ("Zzyzx", OTHER),
        ("", OTHER),
    ],
)
def test_kinds_of_op_codes(code: str, kind: str) -> None:
    assert kind_of(code) == kind


def test_a_file_is_read_by_the_names_of_its_columns() -> None:
    rows = [signpost("encoder"), *perceptron_rows(), signpost("end")]
    profile = read(table(rows))
    first = profile.ops[1]
    assert [o.kind for o in profile.ops] == ["tilize", "matmul", "unary", "matmul"]
    assert (first.name, first.time, first.cores, first.available, first.fidelity) == (
        "MatmulDeviceOperation_1",
        9000,
        8,
        64,
        "HiFi4",
    )
    assert first.inputs[0].shape == (1, 1, 128, 256) and first.inputs[2].padded == (1, 1, 32, 512)
    assert first.inputs[0].bytes == 128 * 256 * 2 and first.inputs[0].tiles == 32 and first.inputs[0].in_dram
    assert profile.signposts == ((0, "encoder"), (4, "end")) and first.section == "encoder"
    assert profile.total == 2500 + 9000 + 1500 + 7000 and profile.typed == 1 and profile.arch == "blackhole"
    assert not profile.findings


@pytest.mark.parametrize(
    "without",
    [
        "OP TYPE",
        "DEVICE ARCH",
        "CORE COUNT",
        "ATTRIBUTES",
        "INPUT_1_DATATYPE",
        "PM IDEAL [ns]",
        "METAL TRACE ID",
        "DEVICE KERNEL DURATION PER CORE MAX [ns]",
        "GLOBAL CALL COUNT",
    ],
)
def test_any_column_but_code_and_time_may_be_missing(without: str) -> None:
    profile = read(table(perceptron_rows(), without=[without]))
    assert [o.time for o in profile.ops] == [2500, 9000, 1500, 7000]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_files_that_went_through_a_spreadsheet_are_read(delimiter: str) -> None:
    rows = list(csv.reader(io.StringIO(table(perceptron_rows(), old=True))))
    rows[1:] = [[f"{cell}.0" if cell.isdigit() else cell for cell in row] for row in rows[1:]]
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    profile = read(stream.getvalue())
    assert [o.time for o in profile.ops] == [2500, 9000, 1500, 7000] and not profile.findings
    assert profile.ops[1].inputs[1].shape == (1, 1, 256, 512)


def test_ops_of_the_host_are_counted_and_left_out() -> None:
    host = op("(torch) Tensor.add", "", **{"OP TYPE": "python_fallback", "DEVICE ID": ""})
    profile = read(table([r for row in perceptron_rows() for r in (row, host)]))
    assert [o.time for o in profile.ops] == [2500, 9000, 1500, 7000]
    (finding,) = profile.findings
    assert finding.rule == "profile-host" and "4 ops of the host" in finding.message


def test_older_files_have_plain_sizes() -> None:
    profile = read(table(perceptron_rows(), old=True))
    assert profile.ops[1].inputs[1].shape == (1, 1, 256, 512)


def test_the_time_per_core_counts_where_it_is_filled_and_slips_of_the_clock_are_outliers() -> None:
    profile = read(
        table(
            [
                op("Matmul", 9000, **{"DEVICE KERNEL DURATION PER CORE MAX [ns]": 8000}),
                op("Matmul", 1.764e12),
                op("Matmul", ""),
            ]
        )
    )
    assert [o.time for o in profile.ops] == [8000, 1.764e12, None] and [o.outlier for o in profile.ops] == [
        False,
        True,
        False,
    ]
    assert profile.total == 8000
    assert {f.where: f.rule for f in profile.findings} == {
        "run.csv, row 3": "profile-outlier",
        "run.csv, row 4": "profile-time",
    }


PER_CORE, KERNEL, FIRMWARE = TIMES


@pytest.mark.parametrize(
    "per_core, kernel, firmware, time",
    [
        (8000, 9000, 9500, 8000),
        ("", 9000, 9500, 9000),
        (0, 9000, 9500, 9000),
        (0, 0, 9500, None),  # of its firmware, beside one of a kernel
        ("0.0", "", "", None),
        (0, 0, 0, None),
        ("-", 9000, "", 9000),
    ],
)
def test_a_time_of_0_is_none(per_core: object, kernel: object, firmware: object, time: float | None) -> None:
    text = table([op("Matmul", kernel, **{PER_CORE: per_core}), op("Softmax", 7)])
    lines = [f"{line},{cell}" for line, cell in zip(text.split("\r\n"), (FIRMWARE, firmware, ""), strict=False)]
    profile = read("\n".join(lines))
    assert [o.time for o in profile.ops] == [time, 7]
    assert [f.where for f in profile.findings] == (["run.csv, row 2"] if time is None else [])


@pytest.mark.parametrize(
    "above, delimiter, told",
    [
        ("sep=,\n", ",", False),
        ("sep=;\r\n", ";", False),
        ('"sep=\t"\n', "\t", False),
        ("Report of run 5\n\n", ",", True),
        ("Run;of;5;November\n" * 3, ",", True),
        ("\n\n", ",", False),
        ("\ufeffa title\n", ",", True),
    ],
)
def test_what_stands_above_the_names_of_the_columns(above: str, delimiter: str, told: bool) -> None:
    """Rows are counted from the top of the file."""
    rows = list(csv.reader(io.StringIO(table([*perceptron_rows(), op("Matmul", "oops")]))))
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows(rows)
    profile = read(above + stream.getvalue())
    assert [o.time for o in profile.ops] == [2500, 9000, 1500, 7000, None]
    head = above.count("\n")
    assert [o.row for o in profile.ops] == [head + k for k in (2, 3, 4, 5, 6)]
    wheres = [f.where for f in profile.findings]
    assert wheres == ["run.csv, row 1"] * told + [f"run.csv, row {head + 6}"] * 2


def test_a_title_without_end_is_no_profile() -> None:
    with pytest.raises(InputError, match=r"run\.csv, row 1: a profile has the columns"):
        read("title\n" * 21 + WHOLE)


@pytest.mark.parametrize("row", [0, 2])
def test_a_machine_that_nobody_knows_is_named_with_its_row(
    row: int, mlp: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [r | {"DEVICE ARCH": "quasar" if k >= row else ""} for k, r in enumerate(perceptron_rows())]
    (tmp_path / "run.csv").write_text(table(rows))
    where = f"run.csv, row {row + 2}, column 'DEVICE ARCH': no machine for profiles of 'quasar'; there are wormhole_b0"
    with pytest.raises(UnknownDevice, match=re.escape(where)):
        mlp.load_profile(tmp_path / "run.csv")
    assert main(["calibrate", "--profile", str(tmp_path / "run.csv")]) == 1
    assert where in capsys.readouterr().err
    mixed = read(table([*rows, *perceptron_rows()]))
    assert mixed.arch == "" and "'quasar' (row" in mixed.findings[-1].message


def test_runs_of_a_trace_are_one_run_with_the_median_time() -> None:
    rows = [
        op(code, time + run, METAL_TRACE_ID="", **{"METAL TRACE ID": 1, "METAL TRACE REPLAY SESSION ID": run})
        for run in (1, 2, 9)
        for code, time in (("Matmul", 100), ("Softmax", 50))
    ]
    profile = read(table(rows))
    assert [(o.code, o.time, o.repeats) for o in profile.ops] == [("Matmul", 102, 3), ("Softmax", 52, 3)]
    uneven = read(table([*rows[:2], rows[0], *rows[2:]]))
    assert len(uneven.ops) == 7 and uneven.findings[0].rule == "profile-replays"


REPLAYS = [
    row | {"METAL TRACE ID": 1, "METAL TRACE REPLAY SESSION ID": run, "DEVICE ID": device}
    for run in (1, 2, 3)
    for row in perceptron_rows()
    for device in (0, 1)
]


@pytest.mark.parametrize(
    "lost, kept",
    [(1, {1: 3}), (2, {0: 3, 1: 3}), (3, {0: 3, 1: 2}), (7, {0: 1}), (8, {})],
)
def test_a_last_replay_that_ends_early_is_left_out(lost: int, kept: dict[int, int]) -> None:
    """kept: by device how many ops its last run has, where it is not whole; a run of which nothing is left is none."""
    profile = read(table(REPLAYS[:-lost]))
    assert [o.time for o in profile.ops if o.device == 0] == [2500, 9000, 1500, 7000] and len(profile.ops) == 8
    assert profile.total == 20_000 and {(o.device, o.repeats) for o in profile.ops} == {
        (device, 2 if lost >= 7 or device in kept else 3) for device in (0, 1)
    }
    text = "the last of its 3 runs has {} of 4 ops; it is left out"
    assert [(f.where, f.message) for f in profile.findings] == [
        (f"run.csv, device {device}, trace 1", text.format(count)) for device, count in kept.items()
    ]


@pytest.mark.parametrize("back", range(4, 400, 13))
def test_a_last_replay_may_be_cut_in_a_row(back: int) -> None:
    """It may have lost shapes, or the trace that it is of."""
    text = table(row for row in REPLAYS if row["DEVICE ID"] == 0)
    profile = read(text[:-back])
    assert [(o.time, o.repeats) for o in profile.ops] == [(time, 2) for time in (2500, 9000, 1500, 7000)]
    assert "profile-replay-cut" in {f.rule for f in profile.findings}


def test_a_replay_that_ends_early_is_told_beside_the_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(table(perceptron_rows()))
    one = [row for row in REPLAYS if row["DEVICE ID"] == 0]
    (tmp_path / "b.csv").write_text(table(one[:-1]))
    (tmp_path / "c.csv").write_text(table([one[0], *one]))
    words = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert main([*words, "--fail-if-slower", "1%"]) == 0
    text = capsys.readouterr().out
    assert "As fast as before: 20,000 ns" in text and "the last of its 3 runs has 3 of 4 ops" in text
    assert main(["diff", words[1], str(tmp_path / "c.csv"), "--fail-if-slower", "1%"]) == 2
    assert "c.csv, device 0, trace 1: its 3 runs are not of the same ops" in capsys.readouterr().err


def test_devices_that_run_the_same_count_once_with_the_slowest() -> None:
    rows = [
        op(code, time + device, **{"DEVICE ID": device})
        for code, time in (("Matmul", 10), ("Add", 20))
        for device in (2, 0, 1)
    ]
    profile = read(table(rows))
    assert profile.devices == (0, 1, 2) and [o.time for o in profile.sequence()] == [12, 22]


def test_attributes_are_read_by_a_grammar_and_never_evaluated() -> None:
    text = (
        "{'program_config': 'MatmulMultiCoreReuseMultiCastProgramConfig(in0_block_w=14;per_core_M=10)'; "
        "'compute_kernel_config': 'K(math_fidelity=HiFi2;fp32_dest_acc_en=1)'; 'binary_op_type': 'BinaryOpType::ADD'}"
    )
    assert dict(read_facts(text)) == {
        "program": "MatmulMultiCoreReuseMultiCastProgramConfig",
        "in0_block_w": "14",
        "per_core_M": "10",
        "fp32_dest_acc_en": "1",
        "binary_op_type": "ADD",
    }
    for odd in ("", "{", "__import__('os').system('true')", "'" * 100_000, "{'program_config': '" + "(" * 50_000):
        read_facts(odd)


WHOLE = table([signpost("mark"), *perceptron_rows()])


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 97))
def test_a_file_cut_anywhere_keeps_its_whole_rows_or_is_refused_with_its_row(cut: int) -> None:
    whole_rows = WHOLE[:cut].count("\n") - 2  # header and mark
    try:
        profile = read(WHOLE[:cut])
    except InputError as error:
        assert "run.csv" in str(error) and whole_rows < 1
    else:
        assert len(profile.ops) in (whole_rows, whole_rows + 1)
        assert [o.time for o in profile.ops[:whole_rows]] == [2500, 9000, 1500, 7000][:whole_rows]


@pytest.mark.parametrize("without", ["", "DEVICE KERNEL DURATION PER CORE MAX [ns]"])
def test_a_number_that_was_cut_is_not_read(without: str) -> None:
    """Cut at each byte of its last row, a file has that row's numbers whole or not at all."""
    text = table(perceptron_rows(), without=[without])
    whole = read(text).ops[-1]
    for cut in range(text.rstrip().rfind("\n") + 2, len(text) - 1):
        try:
            (*_, last) = read(text[:cut]).ops
        except InputError:
            continue
        if last.row == whole.row:
            assert last.time in (whole.time, None) and last.cores in (whole.cores, 0)
            assert last.call in (whole.call, 0) and last.available in (whole.available, 0)
            assert all(not a.known or a.padded == b.padded for a, b in zip(last.inputs, whole.inputs, strict=False))


ODD = [
    "",
    "=1+1",
    "@SUM(A1)",
    "nan",
    "-1",
    "1e400",
    "9" * 30,
    "32[",
    "[3]",
    "0[0]",
    "32[19",
    "\u0663",
    "x" * 5000,
    "1;2",
]


def damaged(text: str, kind: str, source: random.Random) -> str:
    """A file that was cut, lost columns, has odd cells, stray characters or an open quote."""
    if kind == "cut":
        return text[: source.randrange(len(text))]
    if kind == "stray":
        places = [source.randrange(len(text)) for _ in range(source.randrange(1, 30))]
        return "".join(source.choice(',"\n;[0-e') if at in places else c for at, c in enumerate(text))
    if kind == "quote":
        at = source.randrange(len(text))
        return f'{text[:at]}"{text[at:]}'
    rows = list(csv.reader(io.StringIO(text)))
    if kind == "columns":
        share = source.choice([0.02, 0.3, 0.7])
        kept = [k for k in range(len(rows[0])) if source.random() > share]
        rows = [[row[k] for k in kept] for row in rows]
    else:
        for _ in range(40):
            row = source.choice(rows[1:])
            row[source.randrange(len(row))] = source.choice(ODD)
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["cut", "columns", "cells", "stray", "quote"])
def test_whatever_was_done_to_a_file_it_is_read_or_refused_by_type(kind: str) -> None:
    """And what was read can be shown, as a document and against another run."""
    source, whole, got = random.Random(kind), read(WHOLE), 0
    for _ in range(60):
        try:
            profile = read(damaged(WHOLE, kind, source))
        except InputError as error:
            assert "run.csv" in str(error)
            continue
        got += 1
        assert len(measured_frame(profile).columns["row_time"]) == len(profile.sequence())
        assert all(f.where.startswith("run.csv") for f in profile.findings)
        assert profile.total >= 0 and len(align(profile_steps(whole.ops), profile_steps(profile.ops))[0]) <= 4
    assert got > 10


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "abc", "nan", "inf", "-5", "1e400", "0x10", "1,5"])
def test_numbers_that_are_none_are_findings_with_their_row(text: str) -> None:
    profile = read(table([op("Matmul", text), op("Matmul", 5)]))
    assert [o.time for o in profile.ops] == [None, 5]
    assert profile.findings[0].where == "run.csv, row 2" and text[:4] in profile.findings[0].message


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "OP CODE,OP TYPE\nMatmul,tt_dnn_device\n", "\n\n", WHOLE.split("\n")[0] + "\n"]
)
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="run"):
        read_profile(path)


def test_files_that_are_no_text_missing_or_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"OP CODE\0\0")
    for path in (tmp_path / "x.csv", tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError):
            read_profile(path)


def test_too_many_rows_are_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tbuda_lab.core.measured.ops_perf.MOST_ROWS", 3)
    profile = read(table([op("Matmul", 5)] * 6))
    assert len(profile.ops) == 3 and "row 5" in profile.findings[0].where


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    for text in ("", "\n\n"):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(InputError, match="the file is empty"):
            read_profile(tmp_path / "x.csv")


def test_a_quotation_mark_and_rows_run_together_are_told() -> None:
    text = table(perceptron_rows() * 3)
    lines = text.splitlines(keepends=True)
    for damaged, said in (
        ([*lines[:3], lines[3].replace("tt_dnn_device", '"tt_dnn_device', 1), *lines[4:]], "quotation mark takes"),
        ([*lines[:3], lines[3].rstrip("\r\n") + "," + lines[4], *lines[5:]], "run together"),
    ):
        profile = read_ops_perf_text("".join(damaged), "x.csv")
        assert any(said in f.message and "row 4" in f.where for f in profile.findings), profile.findings
    assert read_ops_perf_text(text, "x.csv").findings == ()


def test_our_own_trace_gives_the_kernels_of_every_op(mlp: Session, tmp_path: Path) -> None:
    profile = read_profile(mlp.export_trace(tmp_path / "trace.json", batch=3))
    assert profile.source == "trace" and {o.name for o in profile.ops} == set(mlp.compile().placement.ops)
    for measured in profile.ops:
        assert measured.repeats == 3 and 0 < measured.time < 1e9


def test_traces_of_chrome(tmp_path: Path) -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "name": "aten::matmul", "ts": 5, "dur": 2.5, "pid": 1, "tid": 1},
        {"ph": "B", "name": "softmax", "ts": 8, "pid": 1, "tid": 2},
        {"ph": "E", "ts": 9, "pid": 1, "tid": 2},
        {"ph": "X", "name": "bad", "ts": "x", "dur": 1},
        {"ph": "X", "name": "worse", "ts": 1, "dur": -1},
        7,
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    profile = read_profile(path)
    assert [(o.kind, o.time) for o in profile.ops] == [("matmul", 2500), ("softmax", 1000)]
    assert [f.where for f in profile.findings] == ["t.json, event 5", "t.json, event 6"]
    for text in ("[]", "{}", '{"traceEvents": 3}', "[", '[{"ph":"X","name":"a","ts":1e999,"dur":1}]'):
        path.write_text(text)
        with pytest.raises(InputError, match="t"):
            read_profile(path)


def span(name: str, begin: float, duration: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin, "dur": duration, "pid": 1, "tid": 1} | more


def begins(name: str, at: float) -> dict[str, Any]:
    return {"ph": "B", "name": name, "ts": at, "pid": 1, "tid": 1}


def ends(at: float) -> dict[str, Any]:
    return {"ph": "E", "ts": at, "pid": 1, "tid": 1}


NESTED = {
    "modules": (
        [span("Model.forward", 0, 100), span("layer", 1, 90), span("matmul", 2, 5), span("add", 8, 1)],
        [("matmul", 5000), ("binary", 1000)],
    ),
    "an operator of others": (
        [span("aten::linear", 0, 10), span("aten::t", 1, 1), span("aten::addmm", 3, 6), span("aten::copy_", 4, 1)],
        [("transpose", 1000), ("matmul", 6000)],
    ),
    "what it moves belongs to it": (
        [span("aten::layer_norm", 0, 9), span("aten::native_layer_norm", 0, 9), span("aten::empty", 1, 2)],
        [("norm", 9000)],
    ),
    "moves within a move": ([span("aten::reshape", 0, 9), span("aten::copy_", 2, 4)], [("copy", 4000)]),
    "in the order of the file's end": (
        [span("aten::mm", 2, 5), span("layer", 1, 9), span("Model.forward", 0, 20)],
        [("matmul", 5000)],
    ),
    "begins and ends": (
        [begins("layer", 0), begins("matmul", 1), ends(4), begins("softmax", 5), ends(6), ends(9)],
        [("matmul", 3000), ("softmax", 1000)],
    ),
    "rounded ends": ([span("layer", 0, 10), span("aten::mm", 0, 10.0004)], [("matmul", 10000.4)]),
    "one behind the other": ([span("mm", 0, 5), span("add", 5, 2), span("mm", 7, 5)], None),
    "side by side": ([span("mm", 0, 9, tid=1), span("add", 1, 2, tid=2)], [("matmul", 9000), ("binary", 2000)]),
    "overlapping": ([span("mm", 0, 9), span("add", 5, 9)], [("matmul", 9000), ("binary", 9000)]),
    "a graphics card": (
        [
            span("aten::mm", 0, 10, cat="cpu_op"),
            span("cudaLaunchKernel", 3, 1, cat="cuda_runtime"),
            span("sgemm", 4, 3, cat="kernel", pid=0, tid=7),
        ],
        [("matmul", 3000)],
    ),
}


@pytest.mark.parametrize("case", NESTED)
def test_each_moment_of_a_thread_counts_once(case: str, tmp_path: Path) -> None:
    events, ops = NESTED[case]
    expected = ops or [(kind_of(e["name"]), 1000 * e["dur"]) for e in events]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    profile = read_profile(tmp_path / "t.json")
    assert [o.kind for o in profile.ops] == [kind for kind, _ in expected]
    assert [o.time for o in profile.ops] == pytest.approx([time for _, time in expected])
    left_out = len([e for e in events if e["ph"] != "E"]) - len(profile.ops)
    assert bool(left_out) == bool(profile.findings) and {f.severity for f in profile.findings} <= {"note"}


def end_of(name: str, at: float, **more: Any) -> dict[str, Any]:
    return ends(at) | {"name": name} | more


UNPAIRED = {  # events: ops with their times, and events that are told
    "no name": ([span("mm", 0, 5), {**span("", 6, 9)}, {**span("x", 6, 9), "name": None}], ["mm 5"], [2, 3]),
    "a name that is no text": ([span("mm", 0, 5), {**span("x", 6, 9), "name": 7}], ["mm 5"], [2]),
    "a begin without a name": ([span("mm", 0, 5), begins("", 6), ends(8)], ["mm 5"], [2]),
    "an end that names nothing": ([begins("mm", 0), ends(5)], ["mm 5"], []),
    "an end without a begin": ([span("mm", 0, 5), end_of("add", 9)], ["mm 5"], [2]),
    "an end in another thread": ([span("mm", 0, 5), begins("add", 6), end_of("add", 9, tid=2)], ["mm 5"], [3, 2]),
    "an end in another process": ([span("mm", 0, 5), begins("add", 6), end_of("add", 9, pid=2)], ["mm 5"], [3, 2]),
    "an end above its begin": ([end_of("mm", 5), begins("mm", 0)], ["mm 5"], []),
    "an end before its begin": ([begins("mm", 10), end_of("mm", 3), span("add", 20, 5)], ["add 5"], [2, 1]),
    "an end at its begin": ([begins("mm", 3), end_of("mm", 3), span("add", 20, 5)], ["mm 0", "add 5"], []),
    "across each other": (
        [begins("mm", 0), begins("add", 1), end_of("mm", 9), end_of("add", 12)],
        ["mm 9"],
        [2, 4],
    ),
    "an end of another name": ([begins("mm", 0), end_of("add", 9), span("add", 20, 5)], ["add 5"], [2, 1]),
    "a begin that is no op": (
        [begins("layer", 0), begins("wait", 1) | {"cat": "wait"}, ends(4), begins("mm", 5), ends(8), ends(9)],
        ["mm 3"],
        [],
    ),
    "asynchronous": (
        [span("mm", 0, 5), {**begins("add", 6), "ph": "b", "id": 1}, {**ends(9), "ph": "e", "id": 1}],
        ["mm 5"],
        [2],
    ),
    "asynchronous, of old": ([span("mm", 0, 5), {**begins("add", 6), "ph": "S", "id": 1}], ["mm 5"], [2]),
}


@pytest.mark.parametrize("case", UNPAIRED)
def test_events_that_are_no_whole_span_are_told_and_no_op(case: str, tmp_path: Path) -> None:
    events, ops, told = UNPAIRED[case]
    (tmp_path / "t.json").write_text(json.dumps(events))
    profile = read_profile(tmp_path / "t.json")
    assert [f"{o.code} {o.time / 1000:g}" for o in profile.ops] == ops
    assert [f.where for f in profile.gaps] == [f"t.json, event {k}" for k in told]


EVENTS = [span("mm", 10 * k, 5, args={"of": "a\u00fcb", "list": [1, {"deep": [2]}]}) for k in range(4)]


@pytest.mark.parametrize("top", [True, False], ids=["list", "object"])
def test_a_trace_cut_anywhere_keeps_its_whole_events(top: bool, tmp_path: Path) -> None:
    """A list at the top that lacks its end alone is legal."""
    path = tmp_path / "t.json"
    encoded = [json.dumps(event, ensure_ascii=False).encode() for event in EVENTS]
    text = (b"[" if top else b'{"displayTimeUnit": "ns", "traceEvents": [') + b", ".join(encoded)
    ends_at = [text.index(event) + len(event) for event in encoded]
    end = b"]" if top else b"]}"
    for cut in range(1, len(text) + len(end)):
        path.write_bytes((text + end)[:cut])
        kept = sum(cut >= at for at in ends_at)
        if not kept:
            with pytest.raises(InputError, match=r"t\.json"):
                read_profile(path)
            continue
        profile = read_profile(path)
        assert [(o.kind, o.time) for o in profile.ops] == [("matmul", 5000)] * kept
        (finding,) = profile.findings
        between = top and (text + end)[:cut].rstrip(b", ").endswith(b"}}") and cut - ends_at[kept - 1] <= 2
        assert finding.rule == ("profile-open" if between else "profile-event")
        assert bool(profile.gaps) == (not between)
    path.write_bytes(text + end)
    assert not read_profile(path).findings


def test_spans_without_an_end_and_more_events_than_are_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([span("mm", 0, 5), begins("softmax", 6)]))
    profile = read_profile(path)
    assert [f.where for f in profile.gaps] == ["t.json, event 2"] and len(profile.ops) == 1
    monkeypatch.setattr("tbuda_lab.core.measured.trace_json.MOST_EVENTS", 3)
    path.write_text(json.dumps(EVENTS))
    profile = read_profile(path)
    assert len(profile.ops) == 3 and "first 3 of 4 events" in profile.gaps[0].message


@pytest.mark.parametrize(
    "event",
    [
        {"name": "m", "ts": 0, "dur": 1, "args": {"op": "a", "cycles": 1, "input": [0]}},
        {"name": "m", "ts": 0, "dur": int("1" + "0" * 400)},
        {"name": "m", "ts": 0, "dur": 1e308},
        {"name": "\ud800foo", "ts": 0, "dur": 1},
        {"name": "m", "ts": 0, "dur": 3e6, "args": {"op": "\ud800", "cycles": 1}},
    ],
)
def test_odd_events_of_a_trace_are_read_or_refused_by_type(
    event: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"ph": "X", **event}, {"ph": "X", "name": "add", "ts": 9, "dur": 2}]))
    assert main(["profile", "import", str(path)]) == 0
    assert "binary" in capsys.readouterr().out
    assert read_profile(path).total < 1e9
