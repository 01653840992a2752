"""Attributes, formats and settings that the tests of single ops leave out, judged by float64 NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tbuda_lab.core import netlist
from tbuda_lab.core.formats import DataFormat as F
from tbuda_lab.core.netlist.schema import (
    EndLoop,
    Execute,
    Loop,
    Netlist,
    Program,
    QueueSetting,
    SubOp,
    Var,
    VarInst,
)
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import agree, command, noise, run

ONE = (1, 1, 1)
Setting = dict[str, Any]


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return noise((1, shape[0], 32 * shape[1], 32 * shape[2]), seed)


def entries(*numbers: float) -> np.ndarray:
    return np.broadcast_to(np.array(numbers, np.float32)[:, None, None, None], (len(numbers), 1, 32, 32)).copy()


# -- formats -----------------------------------------------------------------------------------------------------------
FLOATS = {
    F.Float32: F.Float32,
    F.Float16: F.Float16,
    F.Float16_b: F.Float16_b,
    F.Bfp8: F.Float16,
    F.Bfp8_b: F.Float16_b,
    F.Bfp4: F.Float16,
    F.Bfp4_b: F.Float16_b,
    F.Bfp2: F.Float16,
    F.Bfp2_b: F.Float16_b,
}
STEPS = {
    "Float32": 2**-10,
    "Float16": 2**-9,
    "Float16_b": 2**-7,
    "Bfp8": 2**-5,
    "Bfp8_b": 2**-5,
    "Bfp4": 2**-2,
    "Bfp4_b": 2**-2,
    "Bfp2": 1.0,
    "Bfp2_b": 1.0,
}


def block_rounded(x: np.ndarray, bits: int, half: float = 0.5) -> np.ndarray:
    """Sixteen values of a row share an exponent; `bits` of magnitude each, halves away from zero, saturated. half 0:
    what is below a unit is cut off."""
    blocks = x.astype(np.float64).reshape(-1, 16)
    peak = np.abs(blocks).max(axis=1, keepdims=True)
    step = 2.0 ** (np.floor(np.log2(np.where(peak > 0, peak, 1))) - bits + 1)
    whole = np.minimum(np.floor(np.abs(blocks) / step + half), 2**bits - 1)
    return (np.sign(blocks) * whole * step).reshape(x.shape)


def as_held(x: np.ndarray, df: F) -> np.ndarray:
    bits = {"Bfp8": 7, "Bfp4": 3, "Bfp2": 1}.get(df.name.removesuffix("_b"))
    return block_rounded(x, bits) if bits else x.astype(np.float64)


@pytest.mark.parametrize("df", FLOATS)
@pytest.mark.parametrize("kind", ["nop", "add", "multiply", "matmul", "reduce", "splice"])
def test_every_float_format_through_every_kind_of_op(kind: str, df: F, tmp_path: Path) -> None:
    """What the host pushes is rounded once; what is made of it once more, when the host reads it."""
    inputs = ["x"] if kind in ("nop", "reduce") else ["x", "y"]
    shape = (1, 4, 2) if kind == "splice" else (1, 2, 1) if kind == "reduce" else (1, 2, 2)
    extra = {
        "matmul": {"m_k": 1, "u_kt": 2},
        "reduce": {"dim": "c", "type": "max", "m_k": 1, "u_kt": 2},
        "splice": {"input0": [0, 4, 4], "input1": [0, 4, 4]},
    }.get(kind, {})
    wide = df.name.removesuffix("_b") in ("Bfp4", "Bfp2") and kind == "matmul"
    n = b.build(
        [
            b.op(
                "o",
                kind,
                inputs,
                shape,
                df=df,
                acc_df=FLOATS[df],
                intermed_df=FLOATS[df] if wide else df,
                attributes=extra,
            )
        ],
        None,
        [b.queue(name, (1, 2, 2), df=df) for name in inputs],
    )
    x, y = values(1, 2, 2, seed=1), values(1, 2, 2, seed=2)
    p, q = as_held(x, df), as_held(y, df)
    best = np.zeros((1, 1, 64, 32))
    best[..., :1] = p.max(axis=3, keepdims=True)
    expected = {
        "nop": p,
        "add": p + q,
        "multiply": p * q,
        "matmul": p @ q,
        "reduce": best,
        "splice": np.concatenate([p, q], axis=2),
    }[kind]
    got = run(tmp_path, n, {"x": x, "y": y} if len(inputs) > 1 else {"x": x})["o.out"]
    scale = float(np.abs(expected).max()) * (1 if df.is_bfp else 0.01)
    least = 2**-14 if df is F.Float16 else 0  # Float16 has no denormals
    np.testing.assert_allclose(got, expected, rtol=STEPS[df.name], atol=STEPS[df.name] * scale + least)
    if kind in ("nop", "splice") and df.is_bfp:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("df,bits", [(F.Bfp4_b, 3), (F.Bfp2_b, 1)])
def test_small_blocks_are_cut_between_ops(df: F, bits: int, tmp_path: Path) -> None:
    """The golden model packs 4- and 2-bit outputs, so the second op sees the sum without the bits beyond."""
    n = b.build(
        [
            b.op("a", "add", ["x", "y"], df=df, acc_df=F.Float16_b),
            b.op("o", "multiply", ["a", "a"], df=F.Float16_b, in_df=[df, df], loc=(0, 1)),
        ],
        None,
        [b.queue(name, (1, 2, 2), df=df) for name in "xy"],
    )
    n.graphs["g"].ops["o"].out_df = F.Float16_b
    x, y = values(1, 2, 2, seed=3), values(1, 2, 2, seed=4)
    total = block_rounded(block_rounded(x, bits) + block_rounded(y, bits), bits, half=0)
    got = run(tmp_path, n, {"x": x, "y": y})["o.out"]
    np.testing.assert_allclose(got, total * total, rtol=2**-7)


# -- attributes that change no value ---------------------------------------------------------------------------------
PLACEMENT: list[tuple[str, Setting]] = [
    ("matmul", {"kernel_broadcast": {"input_1": 4}}),
    ("matmul", {"kernel_broadcast_per_t": {"input_1": 4}}),
    ("matmul", {"single_tile": [1]}),
    ("matmul", {"min_buffer_input": 1}),
    ("matmul", {"sfpu_execution_thread": "pack"}),
    ("matmul", {"stoch_rnd_mode": "none"}),
    ("exp", {"approximate_mode": True}),
    ("exp", {"approximate_mode": False}),
    ("exp", {"sfpu_execution_thread": "math"}),
    ("exp", {"vector": "rc"}),
    ("nop", {"m_k": 4, "u_kt": 2}),
]


@pytest.mark.parametrize("kind,extra", PLACEMENT)
def test_attributes_of_placement(kind: str, extra: Setting, tmp_path: Path) -> None:
    if kind == "matmul":
        rows = 1 if "single_tile" in extra else 2  # which takes one tile for all
        n = b.build(
            [
                b.op(
                    "o",
                    kind,
                    ["x", "w"],
                    (2, 2, 4),
                    tms={1: [b.tm("broadcast", z=2, r=2 // rows, c=4 // rows)]},
                    buf_size_mb=4,
                    attributes={"m_k": 1, "u_kt": 2, **extra},
                )
            ],
            {"x": (2, 2, 2), "w": (1, rows, rows)},
        )
        x, w = values(2, 2, 2, seed=1), values(1, rows, rows, seed=2)
        feeds = {"x": x, "w": w}
        expected = x.astype(float) @ np.tile(w.astype(float), (1, 2, 2 // rows, 4 // rows))
    else:
        n = b.build(
            [
                b.op(
                    "o",
                    kind,
                    ["x"],
                    (2, 2, 2),
                    attributes=extra,
                    overlay_size=65536,
                    buf_size_mb=4,
                    input_buf_min_size_tiles=[8],
                    input_dram_io_buf_size_tiles=[16],
                )
            ],
            {"x": (2, 2, 2)},
        )
        feeds = {"x": values(2, 2, 2)}
        expected = feeds["x"].astype(float) if kind == "nop" else np.exp(feeds["x"].astype(float))
    agree(tmp_path, n, feeds, {"o.out": expected})


@pytest.mark.parametrize("fidelity", ["LoFi", "HiFi2", "HiFi3", "HiFi4", "HiFi2_A", "HiFi2_B"])
def test_fidelities(fidelity: str, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "matmul", ["x", "w"], (1, 2, 2), fidelity=fidelity, attributes={"m_k": 2, "u_kt": 1})],
        {"x": (1, 2, 2), "w": (1, 2, 2)},
    )
    feeds = {"x": values(1, 2, 2, seed=1), "w": values(1, 2, 2, seed=2)}
    agree(tmp_path, n, feeds, {"o.out": feeds["x"].astype(float) @ feeds["w"].astype(float)})


# -- reductions, sums, several cores -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "dim,shape,grid", [("r", (2, 1, 4), (1, 2)), ("c", (2, 4, 1), (2, 1)), ("rc", (2, 1, 1), (1, 1))]
)
@pytest.mark.parametrize("kind", ["max", "sum"])
def test_reductions(dim: str, shape: b.Shape, grid: tuple[int, int], kind: str, tmp_path: Path) -> None:
    n = b.build([b.op("o", "reduce", ["x"], shape, grid=grid, attributes={"dim": dim, "type": kind})], {"x": (2, 4, 4)})
    x = values(2, 4, 4)
    axes = {"r": (2,), "c": (3,), "rc": (2, 3)}[dim]
    best = (np.max if kind == "max" else np.sum)(x.astype(float), axis=axes, keepdims=True)
    expected = np.zeros((1, shape[0], 32 * shape[1], 32 * shape[2]))
    expected[:, :, : best.shape[2], : best.shape[3]] = best
    agree(tmp_path, n, {"x": x}, {"o.out": expected})


@pytest.mark.parametrize("sort", ["max", "argmax"])
@pytest.mark.parametrize("k", [20, 40])
def test_topk_on_two_columns_of_cores(sort: str, k: int, tmp_path: Path) -> None:
    wide = -(-k // 32)
    queues = [b.queue("x", (1, 2, 8)), b.queue("i", (1, 2, 8), df=F.UInt16)]
    n = b.build(
        [
            b.op(
                "o",
                "topk",
                ["x", "i"],
                (1, 2, 2 * wide),
                grid=(1, 2),
                in_df=[F.Float16_b, F.UInt16],
                out_df=F.Float16_b if sort == "max" else F.UInt16,
                attributes={"m_k": 4, "u_kt": 1, "k": k, "sort": sort, "kreduce": k},
            )
        ],
        None,
        queues,
    )
    rng = np.random.default_rng(5)
    x = np.stack([rng.permutation(256) for _ in range(64)])[None, None].astype(np.float32)
    index = rng.permutation(65536)[: 64 * 256].reshape(1, 1, 64, 256).astype(np.int32)
    expected = np.zeros((1, 1, 64, 64 * wide))
    for core in range(2):
        part = np.s_[..., core * 128 : core * 128 + 128]
        order = np.argsort(-x[part], axis=-1)[..., :k]
        expected[..., core * 32 * wide : core * 32 * wide + k] = np.take_along_axis(
            (x if sort == "max" else index)[part], order, -1
        )
    agree(tmp_path, n, {"x": x, "i": index}, {"o.out": expected}, exact=True)


def test_int32_chain_is_exact(tmp_path: Path) -> None:
    selected = {"acc_df": F.Int32, "fidelity": "HiFi4", "df": F.Int32}
    n = b.build(
        [b.op("a", "add", ["x", "y"], **selected), b.op("o", "maximum", ["a", "y"], loc=(0, 1), **selected)],
        None,
        [b.queue(name, (1, 2, 2), df=F.Int32) for name in "xy"],
    )
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**30), 2**30, (1, 1, 64, 64)).astype(np.int32) for _ in "xy")
    agree(tmp_path, n, {"x": x, "y": y}, {"o.out": np.maximum(x + y, y)}, exact=True)


def test_fused_quantisation(tmp_path: Path) -> None:
    subs: list[SubOp] = [
        b.sub("q", "quantization", ["input0", "input1"], "intermed0", mblock=(2, 2), zero_point=2.0),
        b.sub(
            "d", "dequantization", ["intermed0", "input2"], "output", mblock=(2, 2), zero_point=2.0, pop=["intermed0"]
        ),
    ]
    queues = [b.queue(name, (1, 2, 2), df=F.Float32) for name in ("x", "s", "t")]
    n = b.build(
        [
            b.op(
                "o",
                "fused_op",
                ["x", "s", "t"],
                df=F.Float32,
                acc_df=F.Int32,
                intermed_df=F.Int32,
                fidelity="HiFi4",
                attributes={"fused_op_id": "0"},
            )
        ],
        None,
        queues,
        fused_ops=[b.fused("0", 3, [subs], 1)],
    )
    x = values(1, 2, 2) * 3
    scale, back = np.full_like(x, 32), np.full_like(x, 1 / 32)
    y = x.astype(float) * 32 + 2
    whole = np.clip(np.sign(y) * np.floor(np.abs(y) + 0.5), -127, 127)
    agree(tmp_path, n, {"x": x, "s": scale, "t": back}, {"o.out": (whole - 2) / 32}, device=0.999)


# -- queues, settings, several epochs ---------------------------------------------------------------------------------
def stream(pointer: str, **more: Any) -> QueueSetting:
    return QueueSetting(
        {"prologue": False, "epilogue": False, "zero": False, "rd_ptr_local": pointer, "rd_ptr_global": pointer, **more}
    )


def test_neighbours_on_two_chips_pass_inputs_one_by_one(tmp_path: Path) -> None:
    """A relay queue of one entry between two graphs that the backend runs as one epoch."""
    n = b.build(
        {"g": [b.op("a", "square", ["x"], ONE)], "h": [b.op("o", "add", ["relay", "relay"], ONE)]},
        None,
        [
            b.queue("x", ONE, entries=4),
            b.queue("relay", ONE, source="a", entries=4, chip=1),
            b.queue("out", ONE, source="o", entries=4, chip=1),
        ],
        chips={"h": 1},
        input_count=4,
        program=False,
    )
    n.programs = [
        Program(
            "run",
            [
                Var(True, {"$p": 0, "$q": 0}),
                Loop(2),
                Execute("g", {"x": stream("$p")}),
                Execute("h", {"relay": stream("$q", global_rdptr_autoinc=1, rd_ptr_autoinc=1)}),
                VarInst("$p", "incwrap", [4, 8]),
                VarInst("$q", "incwrap", [4, 8]),
                EndLoop(),
            ],
        )
    ]
    feeds = {"x": entries(*range(8))}
    agree(tmp_path, n, feeds, {"out": entries(*(2.0 * k * k for k in range(8)))}, exact=True)


def test_three_epochs_of_several_inputs_with_a_ram_between(tmp_path: Path) -> None:
    graphs = {
        "g": [b.op("a", "nop", ["x"], ONE)],
        "h": [b.op("c", "add", ["e", "w"], ONE)],
        "k": [b.op("o", "multiply", ["f", "e2"], ONE)],
    }
    queues = [b.queue("x", ONE, entries=6), b.queue("w", ONE, kind="ram", entries=1)]
    queues += [
        b.queue("e", ONE, source="a", entries=6),
        b.queue("e2", ONE, source="a", entries=6),
        b.queue("f", ONE, source="c", entries=6),
        b.queue("out", ONE, source="o", entries=6),
    ]
    n = b.build(graphs, None, queues, input_count=3, program=False)
    ram = QueueSetting(
        {"prologue": True, "epilogue": False, "zero": False, "rd_ptr_global": "$c_zero", "wr_ptr_global": "$c_zero"}
    )
    n.programs = [
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_three": 3}),
                Var(True, {"$p": 0, "$e": 0, "$f": 0}),
                Loop(2),
                Execute("g", {"x": stream("$p")}),
                VarInst("$p", "incwrap", ["$c_three", 12]),
                Execute("h", {"e": stream("$e"), "w": ram}),
                Execute("k", {"f": stream("$f"), "e2": stream("$e")}),
                VarInst("$e", "incwrap", ["$c_three", 12]),
                VarInst("$f", "incwrap", ["$c_three", 12]),
                EndLoop(),
            ],
        )
    ]
    feeds = {"x": entries(*range(6)), "w": entries(10)}
    agree(tmp_path, n, feeds, {"out": entries(*(k * (k + 10.0) for k in range(6)))}, exact=True)


@pytest.mark.parametrize("host", ["0x40", "[0x40]", "[[0, 0x40]]"])
def test_host_queues_in_all_spellings(host: str, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["x"], (1, 2, 2), untilize_output=True)],
        {"x": (1, 2, 2)},
        [b.queue("out", (1, 2, 2), source="o", loc="host")],
    )
    text = netlist.dumps(n)
    start = text.index("host: [", text.index("out:"))
    file = tmp_path / "n.yaml"
    file.write_text(text[:start] + f"host: {host}" + text[text.index("}", start) :])
    assert command("netlist", "check", file) == 0
    read = netlist.load(file)
    assert [(q.channel, q.address) for q in read.queues["out"].buffers] == [(0, 0x40)]
    agree(tmp_path, read, {"x": values(1, 2, 2)}, {"out": values(1, 2, 2)}, exact=True)
    assert yaml.safe_load(netlist.dumps(read))["queues"]["out"]["host"] == yaml.safe_load(host)


def with_settings(n: Netlist, **settings: Setting) -> Netlist:
    for item in n.programs[0].instructions:
        if isinstance(item, Execute) and item.settings:
            for name, fields in settings.items():
                item.settings[name].fields.update(fields)
    return n


@pytest.mark.parametrize(
    "fields,expected",
    [
        ({"rd_ptr_autoinc": 2}, [0, 2, 4]),
        ({"rd_ptr_autoinc": 0}, [0, 0, 0]),
        ({"rd_ptr_autoinc": 1}, [0, 1, 2]),
        ({"prologue": True}, [0, 0, 0]),
        ({"global_rdptr_autoinc": 1}, [0, 1, 2]),
        ({"rd_ptr_local": 3}, [3, 4, 5]),
    ],
)
def test_read_pointers(fields: Setting, expected: list[int], tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["x"], ONE)],
        None,
        [b.queue("x", ONE, entries=6), b.queue("out", ONE, source="o", entries=3)],
        input_count=3,
    )
    with_settings(n, x=fields)
    agree(tmp_path, n, {"x": entries(*range(6))}, {"out": entries(*expected)}, exact=True)
