"""Ops whose inputs and outputs have tiles of different sizes: a small tile is a full one of which the rest is zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.formats import DataFormat as F
from tbuda_lab.core.netlist.sparse import encode_picker
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import agree, noise

Tile = tuple[int, int]


def values(shape: b.Shape, tile: Tile, seed: int) -> np.ndarray:
    return noise((1, shape[0], shape[1] * tile[0], shape[2] * tile[1]), seed)


def full(x: np.ndarray, tile: Tile) -> np.ndarray:
    """(.., rt, ct, 32, 32) float64, what a tile does not have is zero."""
    h, w = tile
    *lead, rows, cols = x.shape
    tiles = x.astype(float).reshape(*lead, rows // h, h, cols // w, w).swapaxes(-3, -2)
    return np.pad(tiles, [(0, 0)] * (tiles.ndim - 2) + [(0, 32 - h), (0, 32 - w)])


def crop(tiles: np.ndarray, tile: Tile) -> np.ndarray:
    """Back to (.., R, C), the top left of each tile."""
    retained = tiles[..., : tile[0], : tile[1]].swapaxes(-3, -2)
    return retained.reshape(*retained.shape[:-4], retained.shape[-4] * tile[0], retained.shape[-2] * tile[1])


@pytest.mark.parametrize(
    "left,right,out",
    [
        ((16, 32), (32, 32), (16, 32)),
        ((1, 32), (32, 32), (1, 32)),
        ((32, 32), (32, 16), (32, 16)),
        ((32, 32), (32, 32), (8, 32)),
        ((4, 32), (32, 32), (32, 32)),
        ((32, 32), (16, 32), (32, 32)),
        ((32, 16), (16, 32), (32, 32)),
        ((2, 32), (32, 16), (2, 16)),
        ((32, 32), (1, 32), (32, 32)),
    ],
)
def test_matmul(left: Tile, right: Tile, out: Tile, tmp_path: Path) -> None:
    if out == (2, 16):
        out = (32, 16)
    queues = [b.queue("x", (2, 2, 4), tile_dim=left), b.queue("w", (2, 4, 2), tile_dim=right)]
    n = b.build(
        [b.op("o", "matmul", ["x", "w"], (2, 2, 2), tile_dim=out, attributes={"m_k": 2, "u_kt": 2})], None, queues
    )
    x, w = values((2, 2, 4), left, 0), values((2, 4, 2), right, 1)
    product = np.einsum("nzrkij,nzkcjl->nzrcil", full(x, left), full(w, right))
    agree(tmp_path, n, {"x": x, "w": w}, {"o.out": crop(product, out)})


def test_matmul_of_a_transposed_small_tile(tmp_path: Path) -> None:
    queues = [b.queue("x", (1, 2, 2)), b.queue("w", (1, 2, 2), tile_dim=(16, 32))]
    n = b.build(
        [
            b.op(
                "o",
                "matmul",
                ["x", "w"],
                (1, 2, 2),
                tile_dim=(32, 16),
                tms={1: [b.tm("transpose")]},
                attributes={"m_k": 1, "u_kt": 2},
            )
        ],
        None,
        queues,
    )
    x, w = values((1, 2, 2), (32, 32), 0), values((1, 2, 2), (16, 32), 1)
    agree(tmp_path, n, {"x": x, "w": w}, {"o.out": x.astype(float) @ w.astype(float).swapaxes(2, 3)})


@pytest.mark.parametrize(
    "source,output",
    [((32, 32), (16, 32)), ((32, 32), (1, 32)), ((8, 32), (32, 32)), ((4, 32), (2, 32)), ((2, 32), (16, 32))],
)
@pytest.mark.parametrize("kind,f", [("nop", lambda x: x), ("tanh", np.tanh), ("add", lambda x: 2 * x)])
def test_eltwise(source: Tile, output: Tile, kind: str, f: Any, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", kind, ["x"] * (2 if kind == "add" else 1), (1, 2, 2), tile_dim=output)],
        None,
        [b.queue("x", (1, 2, 2), tile_dim=source)],
    )
    x = values((1, 2, 2), source, 3)
    agree(tmp_path, n, {"x": x}, {"o.out": crop(f(full(x, source)), output)})


@pytest.mark.parametrize("tile", [(1, 32), (16, 32), (32, 32)])
def test_bias_row(tile: Tile, tmp_path: Path) -> None:
    queues = [b.queue("x", (1, 2, 2)), b.queue("w", (1, 2, 2)), b.queue("bias", (1, 1, 2), tile_dim=(1, 32))]
    n = b.build(
        [
            b.op(
                "o",
                "matmul",
                ["x", "w", "bias"],
                (1, 2, 2),
                tile_dim=tile,
                tms={2: [b.tm("broadcast", r=2)]},
                attributes={"m_k": 1, "u_kt": 2, "bias": True},
            )
        ],
        None,
        queues,
    )
    x, w, bias = values((1, 2, 2), (32, 32), 0), values((1, 2, 2), (32, 32), 1), values((1, 1, 2), (1, 32), 2)
    whole = x.astype(float) @ w.astype(float) + bias
    agree(tmp_path, n, {"x": x, "w": w, "bias": bias}, {"o.out": crop(full(whole, (32, 32)), tile)})


@pytest.mark.parametrize("name,f", [("tanh", np.tanh), ("exp", np.exp), ("square", np.square), ("Invalid", None)])
def test_other_functions_after_a_matmul(name: str, f: Any, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "matmul", ["x", "w"], (1, 2, 2), attributes={"m_k": 1, "u_kt": 2, "sfpu_op": name})],
        {"x": (1, 2, 2), "w": (1, 2, 2)},
    )
    x, w = values((1, 2, 2), (32, 32), 0) / 8, values((1, 2, 2), (32, 32), 1)
    product = x.astype(float) @ w.astype(float)
    agree(tmp_path, n, {"x": x, "w": w}, {"o.out": product if f is None else f(product)})


@pytest.mark.parametrize(
    "source,output", [((16, 32), (32, 32)), ((1, 32), (32, 32)), ((32, 32), (16, 32)), ((32, 16), (32, 16))]
)
def test_sparse_matmul(source: Tile, output: Tile, tmp_path: Path) -> None:
    """The picker counts rows of full tiles, whatever the activation's and the output's are."""
    rng = np.random.default_rng(3)
    rows, act_rt = 2, 4
    coo = np.unique(
        np.stack([np.zeros(90, int), rng.integers(0, rows * 32, 90), rng.integers(0, act_rt * 32, 90)], 1), axis=0
    )
    e = encode_picker(coo, grid_r=1, t=1, mblock_m=rows, ublock_r=1, u_kt=2, act_rt=act_rt, act_z=1)
    queues = [
        b.queue("s", (1, 1, e.num_sparse_tiles), df=F.Bfp2_b, kind="ram", entries=1),
        b.queue("x", (1, act_rt, 2), tile_dim=source),
        b.queue("e", (1, 1, e.num_index_tiles), df=F.RawUInt32, kind="ram", entries=1),
    ]
    n = b.build(
        [
            b.op(
                "o",
                "matmul",
                ["s", "x", "e"],
                (1, rows, 2),
                in_df=[F.Bfp2_b, F.Float16_b, F.RawUInt32],
                tile_dim=output,
                attributes={
                    "m_k": 2,
                    "u_kt": 2,
                    "identity": True,
                    "num_sparse_tiles": e.num_sparse_tiles,
                    "num_index_tiles": e.num_index_tiles,
                    "sparse_tile_ptr_bits": e.sparse_tile_ptr_bits,
                    "sparse_ublock_idx_bits": e.sparse_ublock_idx_bits,
                    "act_t": 1,
                },
            )
        ],
        None,
        queues,
    )
    x = values((1, act_rt, 2), source, 1)
    picker = np.zeros((rows * 32, act_rt * 32))
    picker[coo[:, 1], coo[:, 2]] = 1
    whole = full(x, source)[0, 0].swapaxes(1, 2).reshape(act_rt * 32, 64)
    expected = (picker @ whole).reshape(rows, 32, 2, 32).swapaxes(1, 2)[None, None]
    agree(
        tmp_path,
        n,
        {"s": e.sparse_tensor()[None], "x": x, "e": e.index_tensor()[None]},
        {"o.out": crop(expected, output)},
    )
