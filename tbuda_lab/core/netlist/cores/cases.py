"""Epochs of a few ops, written as JSON objects, one a line, and what parser, router and pipe generator say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

import numpy as np

from tbuda_lab.core.formats import DataFormat, parse_format, tile_bytes
from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand
from tbuda_lab.core.netlist.cores.router import router_streams
from tbuda_lab.core.netlist.cores.usage import OpCores, core_buffers
from tbuda_lab.core.netlist.routing import EdgeReader, Source
from tbuda_lab.core.netlist.routing.cases import (
    ELTWISE,
    MOST_LINE,
    judged_lines,
    order_of,
    pair_of,
    step_of,
    whole_of,
)
from tbuda_lab.core.netlist.routing.edge import MOST_TILES
from tbuda_lab.core.netlist.routing.layout import shape_after
from tbuda_lab.core.netlist.routing.op_rules import transposable

ALIGN = 32
"""Bytes to which tiles are aligned on the archs of `buffers.LIMITS`."""
_MOST_CORES, _MOST_OPS, _MOST_INPUTS = 1 << 10, 64, 64


def judge_file(cases: TextIO) -> Iterator[str]:
    """What `judge_lines` says of an open file, of which no more than a line is held."""
    return judge_lines(iter(lambda: cases.readline(MOST_LINE + 1), ""))


def judge_lines(lines: Iterable[str]) -> Iterator[str]:
    """One JSON object for each case, see `judge_case`. Raises InputError with the number of a line that is no case."""
    return judged_lines(lines, judge_case, "an epoch")


def judge_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict on an epoch: `verdict` "legal" or "illegal", `stage` (who refuses it) and `class` (why), `bytes` of
    the fullest core and the `limit`; `cores`, groups of equal cores of an `op` with their `bytes` by `kinds` and
    `extra_streams` of the pipe generator, and `router`, the most that the router counts on a core. Raises ValueError,
    KeyError or TypeError for what is no case."""
    arch, input_count = case["arch"], whole_of(case.get("input_count", 1))
    if arch not in buffers.LIMITS:
        raise ValueError(f"arch {arch!r} is none of {', '.join(buffers.LIMITS)}")
    ops = ops_of(case)
    refused = next(
        (rule for op, given in zip(ops, case["ops"], strict=True) if (rule := parser_rule(op, given, arch))), ""
    )
    if refused:
        return {"verdict": "illegal", "stage": "parser", "class": refused}
    extra = len(set().union(*(tile_sizes(op) for op in ops))) - 1
    groups: list[dict[str, Any]] = []
    router = 0
    for number, op in enumerate(ops):
        readers = tuple(o for o in ops[number + 1].operands if not o.source.queue) if number + 1 < len(ops) else ()
        groups += _groups(number, core_buffers(op, readers, input_count, arch), extra)
        router = max(router, int(router_streams(op, readers, input_count, arch).max()))
    limit, size = buffers.LIMITS[arch], max(g["bytes"] for g in groups)
    streams = max(g["extra_streams"] for g in groups)
    verdict = "legal"
    if router > buffers.EXTRA_STREAMS or streams > buffers.EXTRA_STREAMS:
        verdict, stage, why = "illegal", "net2pipe" if router > buffers.EXTRA_STREAMS else "pipegen2", "extra_streams"
    elif size > limit:
        wraps = size > buffers.WRAPS[arch]
        verdict, stage, why = "illegal", "arithmetic" if wraps else "pipegen2", "l1_wrap" if wraps else "l1"
    else:
        stage = why = "ok"
    return {
        "verdict": verdict,
        "stage": stage,
        "class": why,
        "bytes": size,
        "limit": limit,
        "extra_streams": streams,
        "cores": groups,
        "router": {"extra_streams": router},
    }


def _groups(number: int, cores: OpCores, extra: int) -> list[dict[str, Any]]:
    """The cores of an op, equal ones together. extra: sizes of tiles on the chip beyond the first."""
    sizes = [(kind, size) for kind, of_kind in cores.kinds.items() for size in of_kind]
    sizes += [("tile_headers", np.full(cores.streams.shape, buffers.HEADERS))] * extra
    stack = np.stack([cores.streams, *(size for _, size in sizes)]).reshape(len(sizes) + 1, -1)
    distinct, where = np.unique(stack, axis=1, return_inverse=True)
    columns = cores.streams.shape[1]
    groups = []
    for k, (streams, *of_group) in enumerate(distinct.T.tolist()):
        kinds: dict[str, list[int]] = {}
        for (kind, _), size in zip(sizes, of_group, strict=True):
            if size:
                kinds.setdefault(kind, []).append(size)
        members = [list(divmod(core, columns)) for core in np.flatnonzero(where.reshape(-1) == k).tolist()]
        groups.append(
            {"op": number, "bytes": sum(of_group), "extra_streams": streams, "kinds": kinds, "cores": members}
        )
    return groups


def tile_sizes(op: CoreOp) -> set[int]:
    """Bytes of the tiles that an op reads, makes and keeps."""
    sizes = {operand.tile for operand in op.operands} | {op.plain_tile if op.untilized else op.output_tile}
    return sizes | ({op.intermediate_tile} if op.adds_up or op.intermediates else set())


def parser_rule(op: CoreOp, given: Mapping[str, Any], arch: str) -> str:
    """Which rule of the parser an op breaks; empty for none."""
    over_z = op.kind == "reduce" and op.dim == "z"
    if op.untilized and ((op.kind == "matmul" and op.m_k > 1) or (over_z and op.z > 1)):
        return "untilize_intermediate"
    if over_z and len({given["out_df"], given["intermed_df"], given["inputs"][0]["df"]}) > 1:
        return "reduce_z_formats"
    if given.get("l1_acc") and given["intermed_df"] not in ("Float16_b", "Float32"):
        return "l1_acc_format"
    if op.kind == "splice" and len({i["df"] for i in given["inputs"]}) > 1:
        return "splice_formats"
    for operand in op.operands:
        names = [step[0] for step in operand.steps]
        if operand.reader.kernel_broadcast and not {"r", "c", "z"} & set(names):
            return "kernel_bcast_tm"
        if "transpose" in names and not transposable(operand.reader.op_type, operand.reader.port, arch):
            return "transpose_op"
    return ""


def ops_of(case: Mapping[str, Any]) -> list[CoreOp]:
    """The ops of a case. Raises ValueError, KeyError or TypeError for what is no case."""
    ops: list[CoreOp] = []
    if not 1 <= len(case["ops"]) <= _MOST_OPS:
        raise ValueError(f"{len(case['ops'])} ops, an epoch has 1 to {_MOST_OPS}")
    for given in case["ops"]:
        ops.append(_op(given, ops[-1] if ops else None))
    return ops


def _op(given: Mapping[str, Any], before: CoreOp | None) -> CoreOp:
    name = str(given["type"])
    kind = {"fused_op": "fused"}.get(name, "eltwise" if name in ELTWISE else name)
    if kind not in ("fused", "eltwise", "matmul", "depthwise", "reduce", "splice"):
        raise ValueError(f"{name!r} is no op type whose cores are known")
    grid, mblock, ublock, t = (
        pair_of(given["grid"]),
        pair_of(given["mblock"]),
        pair_of(given["ublock"]),
        whole_of(given["t"]),
    )
    order, inner = order_of(given["order"]), (whole_of(given.get("m_k", 1)), whole_of(given.get("u_kt", 1)))
    depth, z, dim = whole_of(given["buf_size_mb"]), whole_of(given.get("z", 1)), str(given.get("dim", ""))
    if grid[0] * grid[1] > _MOST_CORES or not 1 <= len(given["inputs"]) <= _MOST_INPUTS:
        raise ValueError(f"more than {_MOST_CORES} cores, or not 1 to {_MOST_INPUTS} inputs")
    operands = []
    for port, i in enumerate(given["inputs"]):
        reader = EdgeReader(
            kind,
            port,
            grid,
            t,
            mblock,
            ublock,
            order,
            name,
            depth,
            *inner,
            z,
            dim,
            bool(given.get("bias")),
            kernel_broadcast=whole_of(i.get("kernel_broadcast") or 0, least=0),
        )
        operands.append(_operand(i, reader, before))
    out, between = _format(given["out_df"]), _format(given["intermed_df"])
    return CoreOp(
        kind,
        grid,
        t,
        mblock,
        ublock,
        order,
        depth,
        tile_bytes(out, align=ALIGN),
        tile_bytes(out, header=False),
        tile_bytes(between, align=ALIGN),
        tuple(operands),
        *inner,
        z,
        dim,
        bool(given.get("bias")),
        bool(given.get("accumulate")),
        bool(given.get("untilize")),
        whole_of(given.get("min_buffer", -1), least=-1),
        whole_of(given.get("intermediates", 0), least=0),
        intermediate_ublock=ublock[0] * ublock[1],
    )


def _operand(i: Mapping[str, Any], reader: EdgeReader, before: CoreOp | None) -> CoreOperand:
    if i["from"] == "op":
        if before is None:
            raise ValueError("the first op reads an op")
        source = Source(
            before.grid,
            before.t,
            before.mblock,
            before.ublock,
            before.order,
            before.buf_size_mb,
            before.kind,
            before.untilized,
        )
    else:
        q = i["queue"]
        source = Source(
            pair_of(q["grid"]), whole_of(q["t"]), pair_of(q["mblock"]), pair_of(q["ublock"]), "r", 1, "queue"
        )
    steps = tuple(step_of(step) for step in i["tms"])
    operand = CoreOperand(
        source,
        steps,
        reader,
        tile_bytes(_format(i["df"]), align=ALIGN),
        bool(i.get("prologue")),
        whole_of(i.get("min_tiles", 0), least=0),
    )
    after, seen = shape_after(source.shape, steps), operand.seen
    if not operand.fits:
        raise ValueError(
            f"input {reader.port} has {after} tiles (t, rows, columns) after its TMs, the op reads "
            f"{(seen.t, seen.rows, seen.columns)}"
        )
    if max(int(np.prod(source.shape)), int(np.prod(after))) > MOST_TILES:
        raise ValueError(f"an operand of more than {MOST_TILES} tiles")
    return operand


def _format(name: Any) -> DataFormat:
    return parse_format(str(name))
