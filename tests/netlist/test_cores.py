"""What the cores of an epoch keep in L1: each rule on a case of our own, with the bytes that its words give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist import check
from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.cases import judge_case, judge_lines
from tbuda_lab.core.netlist.schema import Execute, Netlist
from tests.netlist import builders as b

B16, B8, F32 = 2080, 1120, 4128  # bytes of a tile with its header


def queue(
    rows: int,
    columns: int,
    grid: tuple[int, int] = (1, 1),
    t: int = 1,
    *tms: list[Any],
    df: str = "Float16_b",
    **fields: Any,
) -> dict[str, Any]:
    """An operand of `rows` x `columns` tiles in DRAM, in one row of ublocks of one tile for each buffer."""
    block = {"grid": list(grid), "t": t, "mblock": [rows // grid[0], columns // grid[1]], "ublock": [1, 1]}
    return {"from": "queue", "df": df, "tms": list(tms), "prologue": False, "queue": block, **fields}


def op(
    name: str,
    *inputs: dict[str, Any],
    grid: tuple[int, int] = (1, 1),
    t: int = 1,
    mblock: tuple[int, int] = (1, 1),
    ublock: tuple[int, int] = (1, 1),
    **fields: Any,
) -> dict[str, Any]:
    base = {
        "type": name,
        "grid": list(grid),
        "t": t,
        "mblock": list(mblock),
        "ublock": list(ublock),
        "order": "r",
        "buf_size_mb": 2,
        "out_df": "Float16_b",
        "intermed_df": "Float16_b",
        "acc_df": "Float16_b",
        "inputs": list(inputs),
    }
    return {**base, **fields}


def judged(*ops: dict[str, Any], arch: str = "wormhole_b0", input_count: int = 1) -> dict[str, Any]:
    return judge_case({"id": 1, "arch": arch, "input_count": input_count, "ops": list(ops)})


def kinds(result: dict[str, Any], at: tuple[int, int] = (0, 0), number: int = 0) -> dict[str, list[int]]:
    return next(g["kinds"] for g in result["cores"] if g["op"] == number and list(at) in g["cores"])


def streams(result: dict[str, Any], at: tuple[int, int] = (0, 0), number: int = 0) -> int:
    return next(g["extra_streams"] for g in result["cores"] if g["op"] == number and list(at) in g["cores"])


def matmul(
    in0: dict[str, Any],
    in1: dict[str, Any],
    grid: tuple[int, int] = (1, 1),
    mblock: tuple[int, int] = (2, 3),
    m_k: int = 4,
    u_kt: int = 5,
    **fields: Any,
) -> dict[str, Any]:
    return op("matmul", in0, in1, grid=grid, mblock=mblock, m_k=m_k, u_kt=u_kt, **fields)


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        # the output buffer is buf_size_mb blocks; untilized, so many rows of ublocks without headers
        (op("exp", queue(6, 4), mblock=(6, 4)), "dram_io", [2 * 24 * B16]),
        (op("exp", queue(6, 4), mblock=(6, 4), untilize=True), "dram_io", [2 * 4 * 2048]),
        # partial results: a block where the formats differ, none where the output may hold them
        (matmul(queue(2, 20), queue(20, 3)), "intermediates", None),
        (matmul(queue(2, 20), queue(20, 3), intermed_df="Float32"), "intermediates", [6 * F32]),
        (matmul(queue(2, 20), queue(20, 3), m_k=1, u_kt=20, intermed_df="Float32"), "intermediates", None),
        # the ordinary buffer: two granules, at least 32 KiB of tiles rounded to a power of two, in whole pairs
        (matmul(queue(2, 20), queue(20, 3), min_buffer=0), "input_0", [2 * 20 * B16]),
        (matmul(queue(40, 20), queue(20, 3), mblock=(40, 3)), "input_0", [2 * 40 * 5 * B16]),
        (
            op("nop", queue(8, 2), mblock=(8, 2)),
            "input_0",
            [32 * B16],
        ),  # of 16 tiles, and twice that by reads from DRAM
        (
            op("nop", queue(8, 2, df="Float32"), mblock=(8, 2), out_df="Float32", intermed_df="Float32"),
            "input_0",
            [16 * F32],
        ),
        # a minimum that is larger replaces it, in granules
        (op("nop", queue(8, 2, min_tiles=200), mblock=(8, 2)), "input_0", [200 * B16]),
        # with kernel_broadcast no least size holds
        (
            op("add", queue(8, 2), queue(1, 1, (1, 1), 1, ["r", 8], ["c", 2], kernel_broadcast=1), mblock=(8, 2)),
            "input_1",
            [16 * B16],
        ),
        # preloaded and small enough for its buffer: kept as the kernel reads it, all of it
        (op("add", queue(8, 2), queue(8, 2, prologue=True), mblock=(8, 2)), "prologue_after_tms_in1", [16 * B16]),
        (
            op("add", queue(2, 2, (1, 1), 4), queue(2, 2, (1, 1), 1, ["z", 4], prologue=True), t=4, mblock=(2, 2)),
            "prologue_after_tms_in1",
            [16 * B16],
        ),
        # a matmul's second operand on one row of cores has nobody to share with: all of it, and no buffer beside
        (matmul(queue(2, 80), queue(80, 3, prologue=True), m_k=16), "prologue_after_tms_in1", [240 * B16]),
        (matmul(queue(2, 80), queue(80, 3, prologue=True), m_k=16), "input_1", None),
        # any TM: kept as it lies, whole, with the ordinary buffer beside it
        (
            matmul(queue(2, 80, (1, 1), 2), queue(80, 6, (1, 1), 1, ["hslice", 2], prologue=True), t=2, m_k=16),
            "prologue_before_tms",
            [480 * B16],
        ),
        (
            matmul(queue(2, 80, (1, 1), 2), queue(80, 6, (1, 1), 1, ["hslice", 2], prologue=True), t=2, m_k=16),
            "input_1",
            [2 * 3 * 5 * B16],
        ),
        # every size of tile beyond the first takes 32 KiB, an untilized output is one of its own
        (op("nop", queue(8, 2, df="Bfp8_b"), mblock=(8, 2)), "tile_headers", [32768]),
        (op("nop", queue(8, 2, df="Bfp8_b"), mblock=(8, 2), untilize=True), "tile_headers", [32768]),
        (op("nop", queue(8, 2), mblock=(8, 2)), "tile_headers", None),
    ],
)
def test_bytes_of_a_core(given: dict[str, Any], kind: str, expected: list[int] | None) -> None:
    assert kinds(judged(given)).get(kind) == expected


def test_a_preloaded_second_operand_is_shared_by_its_column() -> None:
    result = judged(matmul(queue(8, 20, (4, 1)), queue(20, 3, prologue=True), grid=(4, 1), m_k=10, u_kt=2))
    for row in range(4):
        assert kinds(result, (row, 0))["prologue_share"] == [60 // 4 * B16]
        assert kinds(result, (row, 0))["input_1"] == [24 * B16]  # pairs of granules of 6 in at least 16
    assert kinds(result, (3, 0))["gather_relays"] == [4 * B16] * 3  # four sources: three relays of max(4, 12 / 4)
    assert [streams(result, (row, 0)) for row in range(4)] == [1, 1, 1, 4]


def test_multicasts_are_staged_on_the_first_column_and_the_last_row() -> None:
    result = judged(matmul(queue(4, 20, (2, 1)), queue(20, 9, (1, 3)), grid=(2, 3)))
    staged = {(r, c): len(kinds(result, (r, c))["dram_io"]) - 1 for r in range(2) for c in range(3)}
    assert staged == {(0, 0): 1, (0, 1): 0, (0, 2): 0, (1, 0): 2, (1, 1): 1, (1, 2): 1}
    assert all(g["extra_streams"] == 0 for g in result["cores"])


def test_an_operand_kept_as_it_lies_goes_to_the_cores_of_its_buffers() -> None:
    """A weight of two buffers on 3 x 2 cores: the last row of each column; an element-wise operand: the first rows."""
    result = judged(
        op(
            "matmul",
            queue(6, 20, (3, 1), 2),
            queue(20, 24, (1, 2), 1, ["hslice", 2], prologue=True),
            grid=(3, 2),
            t=2,
            mblock=(2, 6),
            m_k=10,
            u_kt=2,
        )
    )
    assert {tuple(at) for g in result["cores"] if "prologue_before_tms" in g["kinds"] for at in g["cores"]} == {
        (2, 0),
        (2, 1),
    }
    result = judged(
        op("add", queue(12, 16, (3, 2)), queue(1, 16, (1, 2), 1, ["r", 12], prologue=True), grid=(3, 2), mblock=(4, 8))
    )
    held = {
        tuple(at): g["extra_streams"]
        for g in result["cores"]
        if "prologue_before_tms" in g["kinds"]
        for at in g["cores"]
    }
    assert held == {(0, 0): 3, (0, 1): 3}  # each is read by the three cores of its column


def test_gathers_beyond_those_of_a_core_have_one_relay() -> None:
    """A bias of two buffers, both on core (0, 0), that six rows of cores read: a list for each row."""
    bias = queue(1, 8, (1, 2), 1, ["r", 30], prologue=True, df="Bfp8_b")
    given = op(
        "matmul",
        queue(30, 1, (6, 1), df="Bfp8_b"),
        queue(1, 8, df="Bfp8_b"),
        bias,
        grid=(6, 1),
        mblock=(5, 8),
        m_k=1,
        u_kt=1,
        bias=True,
        out_df="Bfp8_b",
        intermed_df="Bfp8_b",
    )
    for arch, most in (("grayskull", 3), ("wormhole_b0", 4)):
        at_home = kinds(judged(given, arch=arch))
        assert at_home["gather_relays"] == [6 * B8] * 2 * most
        assert at_home["relay"] == [6 * B8] * (6 - most)


def test_streams_decide_beside_bytes() -> None:
    """A scalar for each of four operands of 8 x 8 cores: 64 cores read each entry on one core."""
    scalar = [["r", 32], ["c", 64]]
    given = op(
        "fused_op",
        queue(32, 64, (8, 8)),
        queue(1, 1, (1, 1), 1, *scalar, prologue=True),
        grid=(8, 8),
        mblock=(4, 8),
        fused=[{"type": "add", "inputs": ["input0", "input1"], "output": "output"}],
    )
    result = judged(given)
    assert (result["verdict"], result["stage"], result["class"]) == ("illegal", "net2pipe", "extra_streams")
    assert result["router"]["extra_streams"] == 66
    given["inputs"][1] = queue(1, 1, (1, 1), 1, *scalar)
    assert judged(given)["verdict"] == "legal"


def test_what_is_over_the_limit_is_refused_and_what_wraps_too() -> None:
    for tiles, stage in ((190, "ok"), (200, "pipegen2"), (260, "arithmetic")):
        result = judged(op("nop", queue(tiles, 1), mblock=(tiles, 1)), arch="grayskull")
        assert result["stage"] == stage, result["bytes"]
        assert (result["verdict"] == "legal") == (result["bytes"] <= 839_616)


def test_two_ops_gather_from_every_core_of_the_first() -> None:
    first = op("nop", queue(6, 4, (3, 1)), grid=(3, 1), mblock=(2, 4))
    second = op("exp", {"from": "op", "df": "Float16_b", "tms": [], "prologue": False}, mblock=(6, 4))
    result = judged(first, second)
    assert kinds(result, number=0)["output"] == [2 * 8 * B16]
    assert kinds(result, number=1)["gather_relays"] == [4 * B16] * 3
    assert "dram_io" not in kinds(result, number=0)


def test_sizes_of_candidates_are_those_of_single_ones() -> None:
    random = np.random.default_rng(7)
    g, _k, s = random.integers(1, 40, (3, 500))
    length = g * s * random.integers(1, 60, 500)
    tile = random.choice([B16, B8, F32], 500)
    block, kernel = length, buffers.ordinary(g, tile)
    chunk = buffers.read_chunk(length, g, s, tile)
    inside, staging = buffers.streamed(kernel, chunk, g, tile, block, length)
    for i in range(500):
        alone = buffers.streamed(kernel[i], chunk[i], g[i], tile[i], block[i], length[i])
        assert (int(alone[0]), int(alone[1])) == (inside[i], staging[i])
    assert (inside % kernel == 0).all() and (chunk % s == 0).all()
    assert (staging * tile <= np.maximum(100 << 10, chunk * tile)).all()
    assert [int(buffers.largest_divisor(n, b)) for n, b in ((12, 5), (7, 6), (4096, 100), (2310, 256))] == [
        4,
        1,
        64,
        231,
    ]


def test_a_line_that_is_no_case_is_named_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good = {"id": "a", "arch": "wormhole_b0", "input_count": 1, "ops": [op("nop", queue(8, 2), mblock=(8, 2))]}
    bad, out = tmp_path / "bad.jsonl", tmp_path / "out.jsonl"
    wrong = (
        "{",
        "[]",
        json.dumps({**good, "arch": "unknown"}),
        json.dumps({**good, "ops": []}),
        json.dumps({**good, "ops": [op("nop", queue(8, 3), mblock=(8, 2))]}),
        json.dumps({**good, "ops": [op("nop", queue(8, 2, (1, 1), 1, ["hslice", 3]), mblock=(8, 2))]}),
        json.dumps({**good, "ops": [op("nop", queue(1 << 20, 1 << 10), mblock=(1 << 20, 1 << 10))]}),
        json.dumps({**good, "ops": [op("nop", queue(8, 2), grid=(1 << 20, 1 << 20), mblock=(8, 2))]}),
        json.dumps({**good, "ops": [op("spin", queue(8, 2), mblock=(8, 2))]}),
        json.dumps({**good, "ops": [op("nop", queue(8, 2, df="Float99"), mblock=(8, 2))]}),
    )
    for text in wrong:
        bad.write_text(json.dumps(good) + "\n" + text + "\n")
        assert main(["netlist", "cores", str(bad), "--out", str(out)]) == 1, text
        assert "line 2" in capsys.readouterr().err
        assert not out.exists()
    with pytest.raises(InputError, match="line 1"):
        list(judge_lines(['{"ops": 3}']))
    bad.write_text(json.dumps(good) + "\n")
    assert main(["netlist", "cores", str(bad), "--out", str(out)]) == 0
    assert json.loads(out.read_text())["verdict"] == "legal"


def sliced(inner: int) -> Netlist:
    """(2, 2, inner) x (inner, 24) tiles, the weight preloaded and sliced in two over its columns."""
    mm = b.op(
        "mm", "matmul", ["x", "w"], (2, 2, 12), attributes={"m_k": inner // 5, "u_kt": 5}, tms={1: [b.tm("hslice", 2)]}
    )
    netlist = b.build([mm], {"x": (2, 2, inner)}, [b.queue("w", (1, inner, 24), kind="ram", entries=1)])
    (settings,) = [i.settings for i in netlist.programs[0].instructions if isinstance(i, Execute)]
    settings["w"].fields["prologue"] = True
    return netlist


def test_the_check_names_core_kinds_and_what_would_fit() -> None:
    """A weight that is sliced over columns and preloaded: whole as it lies, with its buffer beside it."""
    assert not [f for f in check(sliced(5), "grayskull") if f.rule in ("R6", "N17")]
    (finding,) = [f for f in check(sliced(10), "grayskull") if f.rule in ("R6", "N17")]
    assert finding.where == ("graphs", "g", "mm")
    assert f"preloaded as it lies in its queue {10 * 24 * B16:,}" in finding.message
    assert f"buffer of input 1 {2 * 12 * 5 * B16:,}" in finding.message
    assert "core [0, 0]" in finding.message and "839,616 for buffers" in finding.message
    assert finding.fix == "it fits without a prologue of 'w', or with 1 more column of cores"


def test_the_check_counts_streams() -> None:
    """A scalar that is preloaded for 8 x 8 cores."""
    add = b.op("add", "add", ["x", "s"], (1, 32, 64), grid=(8, 8), tms={1: [b.tm("broadcast", r=32, c=64)]})
    netlist = b.build(
        [add], queues=[b.queue("x", (1, 32, 64), grid=(8, 8)), b.queue("s", (1, 1, 1), kind="ram", entries=1)]
    )
    assert not [f for f in check(netlist) if f.rule in ("R6", "N17")]
    (settings,) = [i.settings for i in netlist.programs[0].instructions if isinstance(i, Execute)]
    settings["s"].fields["prologue"] = True
    (finding,) = [f for f in check(netlist) if f.rule in ("R6", "N17")]
    assert (finding.rule, finding.where) == ("N17", ("graphs", "g", "add"))
    assert "the router counts 66 extra streams" in finding.message and "'s'" in finding.fix
