"""A float64 interpreter of lowered graphs, written from the meaning of each hardware op on padded tensors.

It shares no code with the executor. Padding is filled as the host fills it, and results keep whatever the ops leave
in their padding, so a lowering that reads padding it must not read gives a wrong answer here.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

T = 32


def up(n: int) -> int:
    return -(-n // T) * T


def host_tensor(value: np.ndarray) -> np.ndarray:
    """(z, R, C) padded to tiles with zeros; a size of 1 is replicated through its tile."""
    z, r, c = value.shape
    out = np.zeros((z, up(r), up(c)))
    out[:, :r, :c] = value
    if r == 1:
        out[:, :, :c] = value
    if c == 1:
        out[:, :, :] = out[:, :, :1]
    return out


def apply_tm(x: np.ndarray, tm) -> np.ndarray:
    z, r, c = x.shape
    if tm.name == "transpose":
        return x.transpose(0, 2, 1)
    if tm.name == "broadcast":
        dim, n = tm.args
        return np.tile(x, {"z": (n, 1, 1), "r": (1, n, 1), "c": (1, 1, n)}[dim])
    n = tm.args[0]
    if tm.name == "hslice":
        return x.reshape(z, r, n, c // n).transpose(0, 2, 1, 3).reshape(z * n, r, c // n)
    if tm.name == "vslice":
        return x.reshape(z * n, r // n, c)
    if tm.name == "hstack":
        return x.reshape(z // n, n, r, c).transpose(0, 2, 1, 3).reshape(z // n, r, n * c)
    if tm.name == "vstack":
        return x.reshape(z // n, n * r, c)
    raise AssertionError(tm)


def gelu(x):
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


UNARY = {
    "nop": lambda x, op: x,
    "exp": lambda x, op: np.exp(x),
    "log": lambda x, op: np.log(np.where(x > 0, x, 1.0)),
    "sqrt": lambda x, op: np.sqrt(np.maximum(x, 0)),
    "reciprocal": lambda x, op: 1 / np.where(x == 0, 1e-7, x),
    "sigmoid": lambda x, op: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, op: np.tanh(x),
    "gelu": lambda x, op: gelu(x),
    "lrelu": lambda x, op: np.where(x > 0, x, op.slope * x),
    "abs": lambda x, op: np.abs(x),
    "power": lambda x, op: x**op.exp,
    "sine": lambda x, op: np.sin(x),
    "cosine": lambda x, op: np.cos(x),
}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}


def splice(op, parts):
    axis = {"z": 0, "r": 1, "c": 2}[op.axis]
    unit = 1 if op.axis == "z" else T
    cursors = [0] * len(parts)
    chunks = []
    while any(c < p.shape[axis] // unit for c, p in zip(cursors, parts, strict=True)):
        for i, (index, length, stride) in enumerate(op.ranges):
            begin = cursors[i] + index
            chunks.append(np.take(parts[i], range(begin * unit, (begin + length) * unit), axis))
            cursors[i] = begin + stride
    return np.concatenate(chunks, axis)


def run_op(node, args):
    op = node.op
    kind = op.type
    if kind == "hw.unary":
        y = UNARY[op.fn](args[0], op)
    elif kind == "hw.binary":
        assert args[0].shape == args[1].shape, (node.name, args[0].shape, args[1].shape)
        y = BINARY[op.fn](*args)
    elif kind == "hw.fused":
        result = []
        for k, (fn, refs, slope, exp) in enumerate(op.steps):
            taken = [result[-1 - ref] if ref < 0 else args[ref] for ref in refs]
            if k in dict(op.spread):
                first = np.arange(taken[1].shape[1 if dict(op.spread)[k] == "r" else 2]) // T * T
                taken[1] = taken[1][:, first] if dict(op.spread)[k] == "r" else taken[1][:, :, first]
            if k in op.sums:
                result.append(taken[0] @ taken[1])
                continue
            times = (1, op.length, 1) if op.dim == "r" else (1, 1, op.length)
            taken = [
                np.tile(x, times) if ref < 0 and -1 - ref in op.narrow and k not in op.narrow else x
                for x, ref in zip(taken, refs, strict=True)
            ]
            assert len({x.shape for x in taken}) == 1, node.name
            facts = SimpleNamespace(slope=slope, exp=exp)
            result.append(BINARY[fn](*taken) if fn in BINARY else UNARY[fn](*taken, facts))
        y = result[-1]
    elif kind == "hw.matmul":
        assert args[0].shape[0] == args[1].shape[0] and args[0].shape[2] == args[1].shape[1], (
            node.name,
            [a.shape for a in args],
        )
        y = args[0] @ args[1]
        if op.accumulate:
            y = y.reshape(-1, op.z, *y.shape[1:]).sum(1)
        if op.bias:
            rows = args[2].reshape(args[2].shape[0], -1, T, args[2].shape[2])[:, :, :1]
            rows = np.broadcast_to(rows, (args[2].shape[0], rows.shape[1], T, args[2].shape[2]))
            assert args[2].shape == y.shape, (node.name, args[2].shape, y.shape)
            y = y + rows.reshape(y.shape)
    elif kind == "hw.sparse_matmul":
        x = args[0].reshape(-1, args[0].shape[2])
        _, z, r, _ = node.shape
        y = np.zeros((z, up(r), x.shape[1]))
        t, row, src = op.picker.array.T
        np.add.at(y, (t, row), x[src])
    elif kind == "hw.depthwise":
        a, b = args[0][0], args[1][0]
        c = b.shape[1]
        y = np.zeros((1, a.shape[0], c))
        for k in range(op.kernel):
            for tile in range(c // T):
                cols = slice(tile * T, tile * T + T)
                y[0][:, cols] += a[:, k * c + tile * T : k * c + tile * T + T] @ b[k * T : k * T + T, cols]
        if op.bias:
            y = y + args[2]
    elif kind == "hw.reduce":
        x = args[0]
        if op.dim == "z":
            y = x.reshape(-1, op.z, *x.shape[1:]).max(1)
        elif op.dim == "c":
            y = np.zeros((x.shape[0], x.shape[1], T))
            y[:, :, 0] = x.max(2)
        else:
            y = np.zeros((x.shape[0], T, x.shape[2]))
            y[:, 0] = x.max(1)
    elif kind == "hw.splice":
        y = splice(op, args)
    else:
        raise AssertionError(kind)
    if op.relu is not None:
        y = np.where(y >= op.relu.threshold, y, 0) if op.relu.mode == "min" else np.clip(y, 0, op.relu.threshold)
    return y


def run(graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Logical results (z, R, C) of every output; `feeds` are logical nD inputs."""
    values: dict[str, np.ndarray] = {}
    results = {}
    with np.errstate(over="ignore"):
        for node in graph.topological():
            if node.kind.value == "input":
                values[node.name] = host_tensor(np.asarray(feeds[node.name], np.float64).reshape(node.shape[1:]))
            elif node.kind.value in ("parameter", "constant"):
                values[node.name] = host_tensor(np.asarray(node.value, np.float64).reshape(node.shape[1:]))
            else:
                args = []
                for edge in node.inputs:
                    x = values[edge.source]
                    for tm in edge.tms:
                        x = apply_tm(x, tm)
                    args.append(x)
                if node.kind.value == "output":
                    _, z, r, c = node.shape
                    results[node.name] = args[0][:, :r, :c]
                    assert args[0].shape == (z, up(r), up(c)), node.name
                else:
                    y = run_op(node, args)
                    _, z, r, c = node.shape
                    assert y.shape == (z, up(r), up(c)), (node.name, y.shape, node.shape)
                    values[node.name] = y
    return results
