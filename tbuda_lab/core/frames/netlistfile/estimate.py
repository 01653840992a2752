"""Cycles of the ops of a netlist, for colouring a grid: the cost model over the fields that the file has."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.cost import cycles, fused_share
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.netlist.schema import FusedOp, Netlist, NetOp, SubOp

_MOST = 1 << 20  # of a count in a file that is shown, not compiled


def op_cycles(n: Netlist, arch: str) -> npt.NDArray[np.float64]:
    """Cycles per input of every op in file order; 0 where there is no estimate.

    The same as the kernel cycles of the compile (`balancer.enumerate`) for what this compiler wrote. A fused op counts
    as its sub-ops, a matmul with an activation as both. A sparse matmul has none: its cycles depend on the encoding,
    which comes at run time. Alike ops are estimated together.
    """
    ops = [op for _, op in n.ops()]
    pieces: dict[tuple[Any, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for index, op in enumerate(ops):
        parts: list[NetOp | SubOp] = [op]
        if op.type == "fused_op":
            parts = _sub_ops(n.fused_ops.get(str(op.attributes.get("fused_op_id"))))
        for part in parts:
            key = _key(op, part)
            if key is not None:
                pieces.setdefault(key, []).append((index, _counts(op, part)))
        if op.type == "matmul" and isinstance(activation := op.attributes.get("sfpu_op"), str):
            key = _key(op, SubOp(op.name, activation, [], "", op.blocking.mblock, op.blocking.ublock))
            if key is not None:  # it runs on the finished block
                counts = (*_counts(op, op)[:5], 1, 1, 1)
                pieces.setdefault((key[0], op.out_df, None, *key[3:]), []).append((index, counts))
    total = np.zeros(len(ops))
    for (kind, df, acc, fidelity, dim, approximate, vector, l1_acc, share), members in pieces.items():
        t, mm, mn, ur, uc, m_k, u_kt, z = np.array([counts for _, counts in members], np.int64).T
        try:
            result = cycles(kind, arch=arch, df=df, acc_df=acc, fidelity=fidelity, t=t, mblock_m=mm, mblock_n=mn,
                           ublock_r=ur, ublock_c=uc, m_k=m_k, u_kt=u_kt, z=z, dim=dim, approximate=approximate,
                           vector=vector, l1_acc=l1_acc)
        except (TbudaError, KeyError, ValueError):
            continue
        np.add.at(total, [index for index, _ in members], result * share)
    return np.rint(total)


def _sub_ops(fused: FusedOp | None) -> list[NetOp | SubOp]:
    return [sub for schedule in fused.schedules for sub in schedule] if fused else []


def _key(op: NetOp, part: NetOp | SubOp) -> tuple[Any, ...] | None:
    a = part.attributes
    if a.get("identity") or not op.inputs:
        return None
    dim, vector = a.get("dim"), a.get("vector", "rc")
    try:
        fidelity = MathFidelity[op.math_fidelity or "HiFi3"]
    except KeyError:
        fidelity = MathFidelity.HiFi3
    supported = dim in (None, "r", "c", "z", "rc") and vector in ("r", "c", "rc")
    if not supported or op.inputs[0].df is DataFormat.Invalid:
        return None
    return (part.type, op.inputs[0].df, op.acc_df, fidelity, dim, bool(a.get("approximate_mode")), vector,
            bool(a.get("l1_acc")), fused_share(part.type, isinstance(part, SubOp) and "dest" in part.inputs))


def _counts(op: NetOp, part: NetOp | SubOp) -> tuple[int, ...]:
    if isinstance(part, NetOp):
        mblock, ublock = part.blocking.mblock, part.blocking.ublock
    else:
        mblock, ublock = part.mblock, part.ublock
    a = part.attributes
    raw = (op.blocking.t, *mblock, *ublock, a.get("m_k", 1), a.get("u_kt", 1), a.get("z", 1))
    return tuple(min(max(v, 1), _MOST) if isinstance(v, int) else 1 for v in raw)
