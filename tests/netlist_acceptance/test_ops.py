"""One small netlist for each op of a file, judged by float64 NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit

from tbuda_lab.core.formats import DataFormat as F
from tbuda_lab.core.netlist.schema import Netlist, SubOp
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import agree, noise, run

X = (2, 64, 64)  # (t, R, C) of a (2, 2, 2) queue


def tiles(*shape: int) -> tuple[int, int, int]:
    return shape[0], shape[1] * 32, shape[2] * 32


def single(
    kind: str, sources: dict[str, b.Shape], out: b.Shape, *, queues: list[Any] | None = None, **fields: Any
) -> Netlist:
    """One op "o" of the queues `sources`; its output is "o.out"."""
    names = [*sources, *(q.name for q in queues or [])]
    return b.build([b.op("o", kind, names, out, **fields)], sources, queues or [])


def feeds_of(n: Netlist, **limits: float) -> dict[str, np.ndarray]:
    return {
        q.name: noise((q.entries if q.type == "ram" else 1, *tiles(*q.blocking.tiles(q.grid_size))), k, **limits)
        for k, q in enumerate(n.queues.values())
        if q.input == "HOST"
    }


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + erf(x / np.sqrt(2))) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


UNARY = {
    "nop": lambda x: x,
    "datacopy": lambda x: x,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "gelu": gelu,
    "reciprocal": lambda x: 1 / x,
    "sigmoid": expit,
    "tanh": np.tanh,
    "square": np.square,
    "sine": np.sin,
    "cosine": np.cos,
    "abs": np.abs,
    "lrelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "power": lambda x: x**3,
}


@pytest.mark.parametrize("kind", UNARY)
@pytest.mark.parametrize("grid", [(1, 1), (2, 1)])
def test_unary(kind: str, grid: tuple[int, int], tmp_path: Path) -> None:
    extra = {"lrelu": {"slope": 0.25}, "power": {"exp": 3}}.get(kind, {})
    n = single(kind, {"x": (2, 2, 2)}, (2, 2, 2), grid=grid, attributes=extra)
    low = 0.1 if kind in ("log", "sqrt", "reciprocal") else -2
    feeds = feeds_of(n, low=low, high=2)
    agree(tmp_path, n, feeds, {"o.out": UNARY[kind](feeds["x"].astype(float))})


def test_gelu_derivative(tmp_path: Path) -> None:
    n = single("gelu_derivative", {"x": (1, 1, 1)}, (1, 1, 1))
    feeds = feeds_of(n, low=-2, high=2)
    got = run(tmp_path, n, feeds)["o.out"]
    np.testing.assert_allclose(got, gelu_slope(feeds["x"].astype(float)), atol=1e-2)


@pytest.mark.parametrize(
    "kind,f", [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("maximum", np.maximum)]
)
def test_binary_with_a_broadcast_and_relu(kind: str, f: Any, tmp_path: Path) -> None:
    n = single(
        kind,
        {"x": (2, 2, 2), "y": (1, 1, 2)},
        (2, 2, 2),
        grid=(1, 2),
        tms={1: [b.tm("broadcast", r=2), b.tm("broadcast", z=2)]},
        attributes={"relu_en": True, "relu_threshold": 0.25, "relu_mode": "min"},
    )
    feeds = feeds_of(n)
    y = f(feeds["x"].astype(float), np.tile(feeds["y"], (1, 2, 2, 1)))
    agree(tmp_path, n, feeds, {"o.out": np.where(y >= 0.25, y, 0)})


def test_relu_that_caps(tmp_path: Path) -> None:
    n = single(
        "nop", {"x": (1, 1, 1)}, (1, 1, 1), attributes={"relu_en": True, "relu_threshold": 0.5, "relu_mode": "max"}
    )
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": np.clip(feeds["x"], 0, 0.5)})


# -- matmul ----------------------------------------------------------------------------------------------------------
def product(n: Netlist, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return feeds["x"].astype(float) @ feeds["w"].astype(float)


@pytest.mark.parametrize("extra", [{}, {"min_buffer_input": 1}, {"l1_acc": True}])
def test_matmul(extra: dict[str, Any], tmp_path: Path) -> None:
    n = single(
        "matmul",
        {"x": (2, 2, 6), "w": (2, 6, 4)},
        (2, 2, 4),
        grid=(2, 2),
        ublock=(1, 2),
        attributes={"m_k": 3, "u_kt": 2, **extra},
    )
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": product(n, feeds)})


def test_matmul_bias_gelu_relu(tmp_path: Path) -> None:
    n = single(
        "matmul",
        {"x": (2, 2, 4), "w": (2, 4, 2), "bias": (1, 1, 2)},
        (2, 2, 2),
        tms={2: [b.tm("broadcast", r=2), b.tm("broadcast", z=2)]},
        attributes={
            "m_k": 2,
            "u_kt": 2,
            "bias": True,
            "sfpu_op": "gelu",
            "relu_en": True,
            "relu_mode": "min",
            "relu_threshold": 0.0,
        },
    )
    feeds = feeds_of(n)
    bias = feeds["bias"][:, :, :1]  # the first row of the tile counts
    agree(tmp_path, n, feeds, {"o.out": np.maximum(gelu(product(n, feeds) + bias), 0)})


def test_matmul_accumulates_z(tmp_path: Path) -> None:
    n = single(
        "matmul",
        {"x": (6, 1, 2), "w": (6, 2, 1)},
        (2, 1, 1),
        attributes={"m_k": 1, "u_kt": 2, "accumulate": True, "z": 3},
    )
    feeds = feeds_of(n)
    expected = product(n, feeds).reshape(1, 2, 3, 32, 32).sum(2)
    agree(tmp_path, n, feeds, {"o.out": expected})


def test_matmul_of_a_transposed_input_and_a_longer_second(tmp_path: Path) -> None:
    n = single(
        "matmul",
        {"x": (2, 2, 2), "w": (2, 4, 2)},
        (2, 2, 4),
        tms={1: [b.tm("transpose")]},
        attributes={"m_k": 1, "u_kt": 2},
    )
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": feeds["x"].astype(float) @ feeds["w"].astype(float).swapaxes(2, 3)})


I8 = {"fidelity": "HiFi4", "acc_df": F.Int32, "intermed_df": F.Int32}


def integers(shape: tuple[int, ...], seed: int, low: int = -20, high: int = 21) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int32)


@pytest.mark.parametrize("bias", [False, True])
def test_integer_matmul(bias: bool, tmp_path: Path) -> None:
    queues = [b.queue("x", (1, 1, 4), df=F.Int8), b.queue("w", (1, 4, 2), df=F.Int8)]
    queues += [b.queue("bias", (1, 1, 2), df=F.Int32)] * bias
    n = single(
        "matmul",
        {},
        (1, 1, 2),
        queues=queues,
        in_df=[q.df for q in queues],
        out_df=F.Int32,
        attributes={"m_k": 2, "u_kt": 2, **({"bias": True} if bias else {})},
        **I8,
    )
    feeds = {"x": integers((1, 1, 32, 128), 0), "w": integers((1, 1, 128, 64), 1)}
    expected = feeds["x"].astype(np.int64) @ feeds["w"]
    if bias:
        feeds["bias"] = integers((1, 1, 32, 64), 2, -(2**24), 2**24)
        expected = expected + feeds["bias"]
    agree(tmp_path, n, feeds, {"o.out": expected.astype(np.int32)}, device=0.999)


@pytest.mark.parametrize("kind", ["requant", "dequant"])
def test_integer_matmul_with_scales(kind: str, tmp_path: Path) -> None:
    queues = [
        b.queue("x", (1, 1, 2), df=F.Int8),
        b.queue("w", (1, 2, 1), df=F.Int8),
        b.queue("s", (1, 1, 1), df=F.Float32),
    ]
    n = single(
        "matmul",
        {},
        (1, 1, 1),
        queues=queues,
        in_df=[q.df for q in queues],
        out_df=F.Int8 if kind == "requant" else F.Float32,
        attributes={"m_k": 1, "u_kt": 2, kind: True, "zero_point": 3.0},
        **I8,
    )
    feeds = {
        "x": integers((1, 1, 32, 64), 0),
        "w": integers((1, 1, 64, 32), 1),
        "s": np.full((1, 1, 32, 32), 1 / 64, np.float32),
    }
    total = (feeds["x"].astype(np.int64) @ feeds["w"]).astype(float)
    if kind == "requant":
        y = total / 64 + 3
        expected = np.clip(np.sign(y) * np.floor(np.abs(y) + 0.5), -127, 127).astype(np.int32)
    else:
        expected = (total - 3) / 64
    agree(tmp_path, n, feeds, {"o.out": expected})


@pytest.mark.parametrize(
    "kind,source,output",
    [("quantization", F.Float32, F.Int8), ("requantization", F.Int32, F.Int8), ("dequantization", F.Int32, F.Float32)],
)
def test_quantisation(kind: str, source: F, output: F, tmp_path: Path) -> None:
    queues = [b.queue("x", (1, 2, 2), df=source), b.queue("s", (1, 2, 2), df=F.Float32)]
    n = single(
        kind,
        {},
        (1, 2, 2),
        queues=queues,
        in_df=[source, F.Float32],
        out_df=output,
        attributes={"zero_point": 5.0},
        fidelity="HiFi4",
        acc_df=F.Int32,
        intermed_df=F.Int32 if output is F.Float32 else output,
    )
    x = integers((1, 1, 64, 64), 0, -90, 91)
    feeds = {"x": x if source is F.Int32 else (x / 8).astype(np.float32), "s": np.full(x.shape, 0.5, np.float32)}
    value = feeds["x"].astype(float)
    if kind == "dequantization":
        expected: np.ndarray = (value - 5) * 0.5
    else:
        y = value * 0.5 + 5
        expected = np.clip(np.sign(y) * np.floor(np.abs(y) + 0.5), -127, 127).astype(np.int32)
    agree(tmp_path, n, feeds, {"o.out": expected})


@pytest.mark.parametrize("fracture", [1, 2])
def test_sparse_matmul(fracture: int, tmp_path: Path) -> None:
    from tbuda_lab.core.netlist.sparse import encode_picker

    rng = np.random.default_rng(3)
    t, grid_r, mblock_m, ublock_r, u_kt, act_rt = 2, 2, 2, 2, 2, 4
    rows, inner = grid_r * mblock_m * ublock_r * 32, act_rt * 32
    coo = np.unique(
        np.stack([rng.integers(0, t * fracture, 400), rng.integers(0, rows, 400), rng.integers(0, inner, 400)], 1),
        axis=0,
    )
    e = encode_picker(
        coo,
        grid_r=grid_r,
        t=t,
        mblock_m=mblock_m,
        ublock_r=ublock_r,
        u_kt=u_kt,
        act_rt=act_rt,
        act_z=1,
        fracture=fracture,
    )
    wide = 2 * fracture
    ram = {"kind": "ram", "entries": 1, "grid": (grid_r, 1)}
    queues = [
        b.queue("s", (1, grid_r, fracture * e.num_sparse_tiles), df=F.Bfp2_b, **ram),
        b.queue("x", (1, act_rt, wide)),
        b.queue("e", (1, grid_r, fracture * e.num_index_tiles), df=F.RawUInt32, **ram),
    ]
    n = single(
        "matmul",
        {},
        (t, rows // 32, wide),
        queues=queues,
        in_df=[F.Bfp2_b, F.Float16_b, F.RawUInt32],
        grid=(grid_r, fracture),
        ublock=(ublock_r, 1),
        tms={2: [b.tm("broadcast", z=t)]},
        attributes={
            "m_k": act_rt // u_kt,
            "u_kt": u_kt,
            "identity": True,
            "num_sparse_tiles": e.num_sparse_tiles,
            "num_index_tiles": e.num_index_tiles,
            "sparse_tile_ptr_bits": e.sparse_tile_ptr_bits,
            "sparse_ublock_idx_bits": e.sparse_ublock_idx_bits,
            "fracture_factor": fracture,
            "act_t": 1,
            "num_nz_strips": [act_rt // u_kt] * (grid_r * fracture),
        },
    )
    feeds = {"s": e.sparse_tensor()[None], "e": e.index_tensor()[None], "x": noise((1, 1, inner, wide * 32))}
    picker = np.zeros((fracture, t, rows, inner))
    picker[coo[:, 0] // t, coo[:, 0] % t, coo[:, 1], coo[:, 2]] = 1
    columns = np.split(feeds["x"][0, 0].astype(float), fracture, axis=1)
    expected = np.concatenate([p @ c for p, c in zip(picker, columns, strict=True)], axis=2)[None]
    agree(tmp_path, n, feeds, {"o.out": expected})


@pytest.mark.parametrize("bias", [False, True])
def test_depthwise(bias: bool, tmp_path: Path) -> None:
    sources = {"x": (1, 2, 6), "w": (1, 3, 2), **({"bias": (1, 1, 2)} if bias else {})}
    n = single(
        "depthwise",
        sources,
        (1, 2, 2),
        attributes={"m_k": 3, "u_kt": 1, **({"bias": True} if bias else {})},
        tms={2: [b.tm("broadcast", r=2)]} if bias else {},
    )
    feeds = feeds_of(n)
    x, w = feeds["x"][0, 0].astype(float).reshape(2, 32, 3, 2, 32), feeds["w"][0, 0].astype(float).reshape(3, 32, 2, 32)
    expected = np.einsum("rhbck,bkcj->rhcj", x, w).reshape(1, 1, 64, 64)
    if bias:
        expected = expected + feeds["bias"][:, :, :1]
    agree(tmp_path, n, feeds, {"o.out": expected})


# -- reduce, splice, topk ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dim", ["r", "c", "z"])
def test_reduce_max(dim: str, tmp_path: Path) -> None:
    shape = {"r": (2, 1, 2), "c": (2, 4, 1), "z": (1, 4, 2)}[dim]
    extra = {"r": {"m_k": 2, "u_kt": 2}, "c": {"m_k": 1, "u_kt": 2}, "z": {"z": 2}}[dim]
    n = single("reduce", {"x": (2, 4, 2)}, shape, attributes={"dim": dim, "type": "max", **extra})
    feeds = feeds_of(n, low=-2, high=-1)
    axis = {"r": 2, "c": 3, "z": 1}[dim]
    expected = np.zeros((1, *tiles(*shape)))
    best = feeds["x"].max(axis=axis, keepdims=True)
    if dim == "z":
        expected = best
    elif dim == "r":
        expected[:, :, :1] = best
    else:
        expected[:, :, :, :1] = best
    agree(tmp_path, n, feeds, {"o.out": expected}, exact=True)


def blocks(x: np.ndarray, order: str) -> list[np.ndarray]:
    """The 1x1 tiles of a slice, along rows ("r") or down columns ("c")."""
    rows, cols = x.shape[0] // 32, x.shape[1] // 32
    places = (
        [(r, c) for r in range(rows) for c in range(cols)]
        if order == "r"
        else [(r, c) for c in range(cols) for r in range(rows)]
    )
    return [x[r * 32 : r * 32 + 32, c * 32 : c * 32 + 32] for r, c in places]


@pytest.mark.parametrize("order", ["r", "c"])
def test_splice_of_ublocks(order: str, tmp_path: Path) -> None:
    n = single(
        "splice",
        {"x": (2, 2, 2), "y": (2, 2, 2)},
        (2, 2, 3),
        order=order,
        attributes={"input0": [0, 2, 2], "input1": [1, 1, 1]},
    )
    feeds = feeds_of(n)
    expected = np.zeros((1, 2, 64, 96))
    for z in range(2):
        x, y = blocks(feeds["x"][0, z], order), blocks(feeds["y"][0, z], order)
        stream = [x[0], x[1], y[1], x[2], x[3], y[3]]
        at = [(k // 3, k % 3) if order == "r" else (k % 2, k // 2) for k in range(6)]
        for (r, c), tile in zip(at, stream, strict=True):
            expected[0, z, r * 32 : r * 32 + 32, c * 32 : c * 32 + 32] = tile
    agree(tmp_path, n, feeds, {"o.out": expected}, exact=True)


def test_splice_of_slices(tmp_path: Path) -> None:
    n = single(
        "splice",
        {"x": (4, 1, 2), "y": (2, 1, 2)},
        (4, 1, 2),
        attributes={"granularity": "t", "input0": [1, 1, 1], "input1": [0, 1, 1]},
    )
    feeds = feeds_of(n)
    expected = np.stack([feeds["x"][0, 1], feeds["y"][0, 0], feeds["x"][0, 3], feeds["y"][0, 1]])[None]
    agree(tmp_path, n, feeds, {"o.out": expected}, exact=True)


# -- layouts -------------------------------------------------------------------------------------------------------
def test_tilizer_reads_rows(tmp_path: Path) -> None:
    n = single("tilizer", {}, (1, 2, 2), queues=[b.queue("x", (1, 2, 2), layout="flat")])
    feeds = {"x": noise((1, 1, 64, 64))}
    agree(tmp_path, n, feeds, {"o.out": feeds["x"]}, exact=True)


def test_untilized_output(tmp_path: Path) -> None:
    n = single("nop", {"x": (2, 2, 2)}, (2, 2, 2), untilize_output=True, grid=(2, 2))
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": feeds["x"]}, exact=True)


def test_embedding(tmp_path: Path) -> None:
    queues = [
        b.queue("table", (1, 4, 2), kind="ram", entries=1, layout="flat"),
        b.queue("index", (1, 1, 2), df=F.RawUInt32),
    ]
    n = single(
        "embedding", {}, (1, 2, 2), queues=queues, in_df=[F.Float16_b, F.RawUInt32], attributes={"num_indices": 64}
    )
    table = noise((1, 1, 128, 64))
    chosen = np.random.default_rng(1).integers(0, 128, 64)
    words = np.zeros((1, 1, 32, 64), np.int32)
    words.reshape(-1)[:64] = chosen
    agree(tmp_path, n, {"table": table, "index": words}, {"o.out": table[0, 0][chosen][None, None]}, exact=True)


# -- shapes ----------------------------------------------------------------------------------------------------------
def test_slices_and_stacks(tmp_path: Path) -> None:
    n = single("nop", {"x": (2, 2, 4)}, (2, 1, 8), tms={0: [b.tm("hslice", 2), b.tm("vslice", 2), b.tm("hstack", 4)]})
    x = noise((1, *tiles(2, 2, 4)))
    cut = x[0].reshape(2, 64, 2, 64).transpose(0, 2, 1, 3).reshape(4, 2, 32, 64).reshape(8, 32, 64)
    expected = cut.reshape(2, 4, 32, 64).transpose(0, 2, 1, 3).reshape(2, 32, 256)
    agree(tmp_path, n, {"x": x}, {"o.out": expected[None]}, exact=True)


def test_vstack_of_all(tmp_path: Path) -> None:
    n = single("nop", {"x": (4, 1, 2)}, (1, 4, 2), tms={0: [b.tm("vstack", 0)]})
    x = noise((1, *tiles(4, 1, 2)))
    agree(tmp_path, n, {"x": x}, {"o.out": x.reshape(1, 1, 128, 64)}, exact=True)


def test_transpose_then_broadcast(tmp_path: Path) -> None:
    n = single("nop", {"x": (1, 2, 1)}, (1, 3, 2), tms={0: [b.tm("transpose"), b.tm("broadcast", r=3)]})
    x = noise((1, *tiles(1, 2, 1)))
    agree(tmp_path, n, {"x": x}, {"o.out": np.tile(x.swapaxes(2, 3), (1, 1, 3, 1))}, exact=True)


def test_pad_and_unpad(tmp_path: Path) -> None:
    n = single("nop", {"x": (1, 2, 2)}, (1, 3, 2))
    n.graphs["g"].ops["o"].inputs[0].unpad = {"rt": 1, "ct": 0}
    n.graphs["g"].ops["o"].inputs[0].pad = {"rt": 2, "ct": 0, "pad_value": -2.5}
    x = noise((1, *tiles(1, 2, 2)))
    expected = np.concatenate([x[:, :, :32], np.full((1, 1, 64, 64), -2.5)], axis=2)
    agree(tmp_path, n, {"x": x}, {"o.out": expected}, exact=True)


def test_transposed_grid_and_column_order(tmp_path: Path) -> None:
    n = single("add", {"x": (1, 4, 2), "y": (1, 4, 2)}, (1, 4, 2), grid=(4, 1), grid_transpose=True, order="c")
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": feeds["x"].astype(float) + feeds["y"]})


@pytest.mark.parametrize("tile", [(16, 32), (8, 32), (1, 32), (32, 16)])
def test_tiny_tiles(tile: tuple[int, int], tmp_path: Path) -> None:
    queues = [b.queue(name, (1, 2, 2), tile_dim=tile) for name in "xy"]
    n = single("add", {}, (1, 2, 2), queues=queues, tile_dim=tile)
    shape = (1, 1, 2 * tile[0], 2 * tile[1])
    feeds = {"x": noise(shape, 0), "y": noise(shape, 1)}
    agree(tmp_path, n, feeds, {"o.out": feeds["x"].astype(float) + feeds["y"]})


def test_kernel_broadcast(tmp_path: Path) -> None:
    n = single(
        "add",
        {"x": (1, 2, 2), "y": (1, 1, 2)},
        (1, 2, 2),
        tms={1: [b.tm("broadcast", r=2)]},
        attributes={"kernel_broadcast": {"input_1": 2}},
    )
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": feeds["x"].astype(float) + np.tile(feeds["y"], (1, 1, 2, 1))})


@pytest.mark.parametrize("df", [F.Int32, F.RawUInt32, F.RawUInt16, F.RawUInt8, F.UInt8, F.Int8])
def test_integers_and_words_pass(df: F, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["x"], (1, 2, 2), df=df, fidelity="HiFi4", acc_df=F.Int32 if df.is_integer else df)],
        None,
        [b.queue("x", (1, 2, 2), df=df)],
    )
    low, high = {
        "Int32": (-(2**31) + 1, 2**31 - 1),
        "RawUInt32": (-(2**31), 2**31 - 1),
        "UInt8": (0, 256),
        "Int8": (-127, 128),
        "RawUInt16": (0, 65536),
        "RawUInt8": (0, 256),
    }[df.name]
    x = np.random.default_rng(0).integers(low, high, (1, 1, 64, 64)).astype(np.int32)
    agree(tmp_path, n, {"x": x}, {"o.out": x}, exact=True)


# -- fused -----------------------------------------------------------------------------------------------------------
def fused(subs: list[SubOp], shapes: dict[str, b.Shape], out: b.Shape, intermediates: int, **fields: Any) -> Netlist:
    return b.build(
        [b.op("o", "fused_op", list(shapes), out, attributes={"fused_op_id": "0"}, **fields)],
        shapes,
        fused_ops=[b.fused("0", len(shapes), [subs], intermediates)],
    )


def test_fused_chain_with_tile_broadcast(tmp_path: Path) -> None:
    m = (2, 2)
    n = fused(
        [
            b.sub("a", "add", ["input0", "input1"], "dest", mblock=m),
            b.sub("e", "exp", ["dest"], "intermed0", mblock=m),
            b.sub(
                "m",
                "multiply",
                ["intermed0", "input2"],
                "output",
                mblock=m,
                pop=["intermed0"],
                tms={1: [b.tm("tile_broadcast", "c")]},
            ),
        ],
        {"x": (1, 2, 2), "y": (1, 2, 2), "z": (1, 2, 2)},
        (1, 2, 2),
        1,
    )
    feeds = feeds_of(n)
    z = feeds["z"].astype(float).reshape(1, 1, 64, 2, 32)[..., :1].repeat(32, -1).reshape(1, 1, 64, 64)
    agree(tmp_path, n, feeds, {"o.out": np.exp(feeds["x"].astype(float) + feeds["y"]) * z})


def test_fused_reduce_and_broadcast(tmp_path: Path) -> None:
    """x minus the maximum of its row: reduce to an intermediate in one schedule, broadcast it in the next."""
    one = [
        b.sub(
            "r",
            "reduce",
            ["input0"],
            "intermed0",
            mblock=(2, 1),
            attributes={"type": "max", "dim": "c", "m_k": 2, "u_kt": 1},
        )
    ]
    two = [
        b.sub(
            "s",
            "subtract",
            ["input0", "intermed0"],
            "output",
            mblock=(2, 2),
            pop=["intermed0"],
            tms={1: [b.tm("broadcast", c=2), b.tm("tile_broadcast", "c")]},
        )
    ]
    n = b.build(
        [b.op("o", "fused_op", ["x"], (1, 2, 2), attributes={"fused_op_id": "0"})],
        {"x": (1, 2, 2)},
        fused_ops=[b.fused("0", 1, [one, two], 1)],
    )
    feeds = feeds_of(n)
    x = feeds["x"].astype(float)
    agree(tmp_path, n, feeds, {"o.out": x - x.max(3, keepdims=True)})


def test_fused_matmul(tmp_path: Path) -> None:
    subs = [b.sub("m", "matmul", ["input0", "input1"], "intermed0", mblock=(2, 2), attributes={"m_k": 2, "u_kt": 1})]
    more = [
        b.sub("g", "gelu", ["intermed0"], "dest", mblock=(2, 2), pop=["intermed0"]),
        b.sub("a", "add", ["dest", "input2"], "output", mblock=(2, 2)),
    ]
    n = b.build(
        [b.op("o", "fused_op", ["x", "w", "y"], (1, 2, 2), attributes={"fused_op_id": "0"})],
        {"x": (1, 2, 2), "w": (1, 2, 2), "y": (1, 2, 2)},
        fused_ops=[b.fused("0", 3, [subs, more], 1)],
    )
    feeds = feeds_of(n)
    agree(tmp_path, n, feeds, {"o.out": gelu(product(n, feeds)) + feeds["y"]})


@pytest.mark.parametrize("sort", ["max", "argmax"])
def test_topk(sort: str, tmp_path: Path) -> None:
    queues = [b.queue("x", (1, 1, 2)), b.queue("i", (1, 1, 2), df=F.UInt16)]
    out = F.Float16_b if sort == "max" else F.UInt16
    n = single(
        "topk",
        {},
        (1, 1, 1),
        queues=queues,
        in_df=[F.Float16_b, F.UInt16],
        out_df=out,
        attributes={"m_k": 2, "u_kt": 1, "k": 32, "sort": sort, "kreduce": 64},
    )
    rng = np.random.default_rng(5)
    x = np.stack([rng.permutation(64) for _ in range(32)])[None, None].astype(np.float32)
    index = np.tile(np.arange(64, dtype=np.int32), (32, 1))[None, None]
    order = np.argsort(-x, axis=-1)[..., :32]
    expected = np.take_along_axis(x if sort == "max" else index, order, -1)
    agree(tmp_path, n, {"x": x, "i": index}, {"o.out": expected}, exact=True)


def test_dropout_keeps_the_mean(tmp_path: Path) -> None:
    n = single("dropout", {"x": (4, 4, 4)}, (4, 4, 4), attributes={"p": 0.25, "seed": 7})
    x = np.ones((1, *tiles(4, 4, 4)), np.float32)
    y = run(tmp_path, n, {"x": x})["o.out"]
    assert abs((y == 0).mean() - 0.25) < 0.02 and np.allclose(y[y != 0], 4 / 3, rtol=2**-7)
    np.testing.assert_array_equal(run(tmp_path, n, {"x": x})["o.out"], y)


@pytest.mark.parametrize("df", [F.Float16, F.Bfp8_b, F.Bfp8, F.Float32])
def test_formats(df: F, tmp_path: Path) -> None:
    acc = F.Float16 if df in (F.Float16, F.Bfp8) else F.Float16_b
    n = b.build(
        [b.op("o", "add", ["x", "y"], (1, 2, 2), df=df, acc_df=acc)],
        None,
        [b.queue(name, (1, 2, 2), df=df) for name in "xy"],
    )
    x, y = noise((1, 1, 64, 64), 0), noise((1, 1, 64, 64), 1)
    agree(tmp_path, n, {"x": x, "y": y}, {"o.out": x.astype(float) + y}, device=0.98)
