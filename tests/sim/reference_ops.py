"""The ops of the reference evaluation, in float64 and loop by loop."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from tests.sim.reference_tiles import Tiles, from_tiles, to_tiles

EPS = 1.1920929e-7


def relu(x, a):
    if not a.get("relu_en"):
        return x
    threshold, mode = a.get("relu_threshold", 0.0), a.get("relu_mode", "min")
    if mode == "max":
        return np.where(x >= threshold, threshold, np.where(x > 0, x, 0))
    return np.where(x >= threshold, x, 0)


def gelu(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def unary(kind, x, a, tile):
    f = {
        "exp": lambda v: np.minimum(np.exp(v), np.finfo(np.float32).max),
        "log": lambda v: np.log(np.where(v == 0, EPS, v)),
        "sqrt": np.sqrt,
        "gelu": gelu,
        "gelu_derivative": lambda v: gelu(v) / v + v * norm.pdf(v),
        "reciprocal": lambda v: 1 / np.where(v == 0, EPS, v),
        "sigmoid": expit,
        "tanh": np.tanh,
        "square": lambda v: v**2,
        "sine": np.sin,
        "cosine": np.cos,
        "abs": np.abs,
        "lrelu": lambda v: np.where(v > 0, v, a.get("slope", 0.01) * v),
        "power": lambda v: v ** a["exp"],
    }[kind]
    y = f(x)
    mode = a.get("vector", "rc")
    if mode == "rc":
        return y
    h, w = tile
    out = x.copy()
    for r in range(x.shape[1]):
        for c in range(x.shape[2]):
            if (mode == "r" and r % h < 4) or (mode == "c" and c % w < 16):
                out[:, r, c] = y[:, r, c]
    return out


def binary(kind, x, y, zero_point):
    assert x.shape == y.shape
    return {
        "add": lambda: x + y,
        "subtract": lambda: x - y,
        "maximum": lambda: np.maximum(x, y),
        "multiply": lambda: np.where((x == 0) | (y == 0), 0, x * y),
        "quantization": lambda: x * y + zero_point,
        "requantization": lambda: x * y + zero_point,
        "dequantization": lambda: (x - zero_point) * y,
    }[kind]()


def broadcast_tile(x, dim, tile):
    h, w = tile
    out = x.copy()
    for r in range(x.shape[1]):
        for c in range(x.shape[2]):
            out[:, r, c] = x[:, r // h * h if "r" in dim else r, c // w * w if "c" in dim else c]
    return out


def bias_of(t: Tiles):
    return from_tiles(Tiles(t.z, t.r, t.c, [np.broadcast_to(x[:1], x.shape) for x in t.tiles]))


def epilogue(op, out, ins):
    a = op.attributes
    rest = list(ins[2:])
    if a.get("bias"):
        b = rest.pop(0)
        integer = op.acc_df is not None and op.acc_df.name == "Int32"
        out = out + (from_tiles(b) if integer else bias_of_rows(b, out, op))
    if a.get("sfpu_op") == "gelu":
        out = gelu(out)
    if a.get("requant"):
        out = out * from_tiles(rest[0]) + a.get("zero_point", 0)
    if a.get("dequant"):
        out = (out - a.get("zero_point", 0)) * from_tiles(rest[0])
    return out


def bias_of_rows(t, out, op):
    """Row 0 of each bias tile under every row of the output tile, whose height may be another."""
    h = (op.tile_dim or (32, 32))[0]
    rows = [
        np.concatenate(
            [np.repeat(np.concatenate([t.at(z, r, c)[:1] for c in range(t.c)], 1), h, 0) for r in range(t.r)]
        )
        for z in range(t.z)
    ]
    return np.broadcast_to(np.stack(rows), out.shape)


def matmul(op, ins):
    x, y = ins[0], ins[1]
    assert x.c == y.r == op.attributes["m_k"] * op.attributes["u_kt"]
    groups = op.attributes.get("z", 1) if op.attributes.get("accumulate") else 1
    out = Tiles.build(
        x.z // groups,
        x.r,
        y.c,
        lambda z, r, c: sum(
            x.at(z * groups + g, r, k) @ y.at(z * groups + g, k, c) for g in range(groups) for k in range(x.c)
        ),
    )
    return epilogue(op, from_tiles(out), ins)


def depthwise(op, ins):
    x, y = ins[0], ins[1]
    k = op.attributes["m_k"]
    ct = y.c
    out = Tiles.build(x.z, x.r, ct, lambda z, r, c: sum(x.at(z, r, c + ct * b) @ y.at(z, b, c) for b in range(k)))
    return epilogue(op, from_tiles(out), ins)


def reduce(x, dim, func, tile, z, out_tiles):
    f = max if func == "max" else sum
    h, w = tile
    if dim == "z":
        return np.stack([(np.max if func == "max" else np.sum)(x[i : i + z], axis=0) for i in range(0, len(x), z)])
    oz, ort, oct_ = out_tiles
    out = np.zeros((oz, ort * h, oct_ * w))
    fr, fc = x.shape[1] // ort, x.shape[2] // oct_
    for i in range(oz):
        for r in range(ort * h):
            for c in range(oct_ * w):
                if ("r" in dim and r % h) or ("c" in dim and c % w):
                    continue
                rows = range(r // h * fr, r // h * fr + fr) if "r" in dim else [r]
                columns = range(c // w * fc, c // w * fc + fc) if "c" in dim else [c]
                out[i, r, c] = f(x[i, p, q] for p in rows for q in columns)
    return out


def splice(op, ins):
    """Literally: walk each core's output, taking units from the inputs in turn."""
    a = op.attributes
    triples = [a[f"input{i}"] for i in range(len(ins))]
    z, rt, ct = op.blocking.tiles(op.grid_size)
    h, w = op.tile_dim or (32, 32)
    if a.get("granularity", "ublock") == "t":
        at = [0] * len(ins)
        out = []
        while len(out) < z:
            for i, (index, length, stride) in enumerate(triples):
                at[i] += index
                out.extend(ins[i][at[i] + k] for k in range(length))
                at[i] += stride
        return np.stack(out)
    gr, gc = op.grid_size
    ur, uc = op.blocking.ublock
    height, width = ur * h, uc * w
    out = np.zeros((z, rt * h, ct * w))

    def walk(rows, columns):
        m, n = rows // height, columns // width
        if op.blocking.order == "c":
            return [(i, j) for j in range(n) for i in range(m)]
        return [(i, j) for i in range(m) for j in range(n)]

    for t in range(z):
        for r in range(gr):
            for c in range(gc):
                cores = [
                    x[
                        t,
                        r * x.shape[1] // gr : (r + 1) * x.shape[1] // gr,
                        c * x.shape[2] // gc : (c + 1) * x.shape[2] // gc,
                    ]
                    for x in ins
                ]
                units = [
                    [x[i * height : (i + 1) * height, j * width : (j + 1) * width] for i, j in walk(*x.shape)]
                    for x in cores
                ]
                target = out[t, r * rt * h // gr : (r + 1) * rt * h // gr, c * ct * w // gc : (c + 1) * ct * w // gc]
                places = walk(*target.shape)
                at, done = [0] * len(ins), 0
                while done < len(places):
                    for i, (index, length, stride) in enumerate(triples):
                        at[i] += index
                        for k in range(length):
                            p, q = places[done]
                            target[p * height : (p + 1) * height, q * width : (q + 1) * width] = units[i][at[i] + k]
                            done += 1
                        at[i] += stride
    return out


def embedding(op, table, indices):
    n = op.attributes["num_indices"]
    gr = op.grid_size[0]
    z, rt, ct = op.blocking.tiles(op.grid_size)
    out = np.zeros((z, rt * 32, ct * 32))
    rows = table.reshape(-1, table.shape[-1])
    for t in range(z):
        for g in range(gr):
            per_row = indices.r // gr
            words = [
                int(v) & 0xFFFFFFFF
                for r in range(g * per_row, (g + 1) * per_row)
                for c in range(indices.c)
                for v in indices.at(t, r, c).reshape(-1)
            ]
            for k in range(n):
                if words[k] != 0xFFFFFFFF:
                    out[t, g * n + k] = rows[words[k]]
    return out


def topk(op, values, indices):
    k, gc = op.attributes["k"], op.grid_size[1]
    z, rt, ct = op.blocking.tiles(op.grid_size)
    out = np.zeros((z, rt * 32, ct * 32))
    wide, narrow = values.shape[2] // gc, ct * 32 // gc
    for t in range(z):
        for r in range(rt * 32):
            for c in range(gc):
                part = values[t, r, c * wide : (c + 1) * wide]
                order = sorted(range(wide), key=lambda j: -part[j])[:k]
                source = indices[t, r, c * wide : (c + 1) * wide] if op.attributes["sort"] == "argmax" else part
                for j, place in enumerate(order):
                    out[t, r, c * narrow + j] = source[place]
    return out


def sparse_matmul(op, ins):
    """Each core of each column group reads its own words, one after the other."""
    a = op.attributes
    tiles, act, words = ins[:3]
    gr, gc = op.grid_size
    f = a.get("fracture_factor", 1)
    t, rt, ct = op.blocking.tiles(op.grid_size)
    m, ur = op.blocking.mblock[0], op.blocking.ublock[0]
    pointer_bits, index_bits = a["sparse_tile_ptr_bits"], a.get("sparse_ublock_idx_bits", a["sparse_tile_ptr_bits"])
    depth_bits = max(1, math.ceil(math.log2(a["u_kt"])))  # hardware reads one bit where there is one row, too
    out = np.zeros((t, rt * 32, ct * 32))
    repeat = gc // f  # the broadcast TM repeats all groups for the columns of a group
    for g in range(gr):
        for group in range(f):
            own = tiles.c // (repeat * f) if tiles.c > a["num_sparse_tiles"] * f else tiles.c // f
            sparse = [tiles.at(0, g, group * own + i) for i in range(own)]
            wide = a["num_index_tiles"]
            stream = np.concatenate([words.at(0, g, group * wide + i).reshape(-1) for i in range(wide)])
            data = (stream.astype(np.int64) & 0xFFFFFFFF).astype("<u4").view("<u2").astype(int)
            at = 0
            for slice_ in range(t):
                last = False
                while not last:
                    header = data[at] | data[at + 1] << 16
                    last, page_end, strip = header >> 30 & 1, header >> 31, header & (1 << 30) - 1
                    blocks = data[at + 2]
                    at += 3
                    for _ in range(blocks):
                        ublock, n = data[at] & (1 << index_bits) - 1, data[at] >> index_bits
                        at += 1
                        for _ in range(n or 1 << 16 - index_bits):
                            word = data[at]
                            at += 1
                            pointer, low = word >> 16 - pointer_bits, word & (1 << 16 - pointer_bits) - 1
                            row = (g * m + ublock) * ur + (low >> depth_bits)
                            k = strip * a["u_kt"] + (low & (1 << depth_bits) - 1)
                            for c in range(group * ct // f, (group + 1) * ct // f):
                                out[slice_, row * 32 : row * 32 + 32, c * 32 : c * 32 + 32] += sparse[pointer] @ act.at(
                                    k // act.r, k % act.r, c
                                )
                    if page_end:
                        at = -(-at // 2048) * 2048
    if a.get("bias"):
        out = out + bias_of(ins[3])
    return out


__all__ = [
    "EPS",
    "binary",
    "broadcast_tile",
    "depthwise",
    "embedding",
    "matmul",
    "reduce",
    "relu",
    "sparse_matmul",
    "splice",
    "to_tiles",
    "topk",
    "unary",
]
