"""What there is to say of one placed op: its card, why it has its shape, and which step gave it shape and place."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import numpy as np

from tbuda_lab.core.analysis.memory import L1Map, l1_map, l1_of_placed
from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import epoch_limits
from tbuda_lab.core.errors import InputError, TbudaError, quantity
from tbuda_lab.core.overrides import Override, target_text
from tbuda_lab.core.placer import why as placer_why
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, refusal_text
from tbuda_lab.core.session.commands import ResizeOp
from tbuda_lab.core.session.compiles import Compiles
from tbuda_lab.core.session.legal import LegalTable
from tbuda_lab.core.session.records import OverrideRecord
from tbuda_lab.core.session.whatif import time_of


@dataclasses.dataclass(frozen=True)
class OpCard:
    """What there is to say of a placed op. facts: (name, text) in the order in which they are shown."""

    op: str
    facts: tuple[tuple[str, str], ...]
    overrides: tuple[OverrideRecord, ...]

    def __getitem__(self, name: str) -> str:
        """One of the facts. Raises `KeyError` naming them."""
        result = dict(self.facts)
        if name not in result:
            raise KeyError(f"{name!r}; there are {', '.join(result)}")
        return result[name]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [self.op, *(f"  {name:<{width}}  {text}" for name, text in self.facts)]
        lines += [f"  {r.python}  # {r.state}" for r in self.overrides]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row' style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self.facts
        )
        calls = "".join(f"<li><code>{escape(r.python)}</code>: {escape(r.state)}</li>" for r in self.overrides)
        return f"<table><caption>{escape(self.op)}</caption>{rows}</table>" + (f"<ul>{calls}</ul>" if calls else "")


def card_of(result: CompileResult, records: Iterable[OverrideRecord], op: str) -> OpCard:
    """The card of an op of a result. records: of the overrides there are. Raises `InputError` with near names."""
    placement = result.placement
    if op not in placement.ops:
        near = difflib.get_close_matches(op, list(placement.ops), n=3, cutoff=0.3)
        raise InputError(f"no op {op!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    node, spot, row = result.lowered[op], placement.ops[op], placement.candidate(op)
    facts: list[tuple[str, Any]] = [
        ("type", getattr(node.op, "netlist_type", type(node.op).__name__)),
        ("module", node.origin.module),
        ("source", node.origin.location),
        ("reads", ", ".join(node.sources)),
        ("epoch", f"{spot.epoch} of {len(placement.epochs)}, chip {spot.chip}"),
        (
            "place",
            f"{spot.size[0]} rows x {spot.size[1]} columns at row {spot.start[0]}, column {spot.start[1]}"
            + (", transposed" if spot.transposed else ""),
        ),
        (
            "block",
            f"t {row['t']}, mblock {row['mblock_m']}x{row['mblock_n']}, ublock {row['ublock_r']}x"
            f"{row['ublock_c']}" + (f", m_k {row['m_k']}, u_kt {row['u_kt']}" if row["u_kt"] else ""),
        ),
        ("L1", _l1_text(l1_map(result, op), result.device)),
    ]
    if placement.report is not None:
        kernel, limiter, what = placement.report.op_limiters[op]
        epoch = placement.report.epochs[spot.epoch]
        facts.append(("kernel cycles", f"{kernel:,} per input; slowest kernel of the epoch {epoch.kernel_cycles:,}"))
        facts.append(("limiter cycles", f"{limiter:,} ({what}); of the epoch {epoch.limiter_cycles:,}"))
    table = placement.models[op]
    facts.append(("candidates", f"{len(table.legal()):,} legal of {len(table.rows):,}"))
    own = tuple(r for r in records if op in r.matched)
    return OpCard(op, tuple((name, str(text)) for name, text in facts if str(text)), own)


def _l1_text(l1: L1Map, device: DeviceSpec) -> str:
    """Bytes of the fullest core, the largest kinds first."""
    kinds = sorted(((size, kind) for kind, size in l1.by_kind().items() if size), key=lambda k: (-k[0], k[1]))
    listed = ", ".join(f"{kind} {size:,}" for size, kind in kinds)
    return f"{l1.used:,} of {device.l1_usable:,} bytes" + (f" ({listed})" if listed else "")


_ALTERNATIVES = 5


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A shape that was not chosen: its best candidate, what stands against it, and the edit that asks for it.

    cycles, limiter_cycles: of the op's kernel, and of its kernel or slowest transfer. time: what the model would take,
    simulated for the batch of the session, in cycles per input; None where no placement has that shape.
    """

    grid: tuple[int, int]
    cores: int
    cycles: int
    limiter_cycles: int
    time: float | None
    l1_bytes: int
    against: str
    command: ResizeOp


@dataclasses.dataclass(frozen=True)
class Reasons:
    """Cycles are per input. `refused`: (reason, candidates, meaning, remedy), most frequent first. time, epoch_time: of
    the model and of the op's epoch, simulated for the batch of the session; epoch_bound, `limiter_op`, `limiter`,
    `limits`: what bounds the epoch, its slowest op, what bounds that, and all of it in a sentence (see
    `epochsim.EpochLimit`). `fused`: why it is one op with others, or why not; "" for an op that no other could be fused
    with. `routes`: per rule that keeps shapes from a neighbour as it
    stands, that rule and the TM."""

    op: str
    epoch: int
    grid: tuple[int, int]
    cycles: int
    limiter_cycles: int
    limited_by: str
    l1_bytes: int
    cores: int
    legal: int
    total: int
    refused: tuple[tuple[Reason, int, str, str], ...]
    next_best: tuple[Alternative, ...]
    limiter_op: str
    limiter: str
    time: float
    epoch_time: float
    epoch_bound: str
    text: str
    limits: str
    fused: str = ""
    routes: tuple[str, ...] = ()


TimeAfter = Callable[[ResizeOp], float]
"""Cycles per input of the model after an edit, simulated. Raises `TbudaError` where no placement honours it."""


def reasons_of(placed: PlacedOps, op: str, table: LegalTable, time_after: TimeAfter, fused: str = "") -> Reasons:
    """The answer for a placed op; `table` is that of `legal`, `fused` what there is to say about fusing it."""
    placement = placed.placement()
    problem = placed.problem
    why = placer_why(placement, op, problem.cores)
    times = time_of(placed)
    number = placement.ops[op].epoch
    epoch, limit = times.epochs[number], epoch_limits(placement, times)[number]
    spent = epoch.cycles / times.batch
    share = f"Epoch {number} takes {spent:,.0f} cycles per input, simulated for a batch of {times.batch}"
    row, l1 = placement.candidate(op), l1_of_placed(placed)
    routes = _route_texts(table)
    return Reasons(
        op,
        why.epoch,
        why.grid,
        why.kernel_cycles,
        why.limiter_cycles,
        why.limiter,
        sum(l1[op].values()) if op in l1 else int(row["l1_total"]),
        int(row["cores"]),
        why.legal,
        why.total,
        why.refused,
        _next_best(placed, op, table, times.per_input, time_after),
        limit.slowest,
        limit.op_bound.value,
        times.per_input,
        spent,
        limit.bound.value,
        " ".join([why.text, f"{share}; most of it is {limit.bound.words}.", *routes]),
        limit.text,
        fused,
        routes,
    )


def _route_texts(table: LegalTable) -> tuple[str, ...]:
    """What keeps shapes of an op from its neighbours as they stand, and how many shapes each keeps."""
    counts = np.bincount(table.shapes["edge"].reshape(-1), minlength=1 + max(table.edges, default=0))
    return tuple(
        f"{quantity(int(counts[number]), 'shape')} fail at an edge: {text}." for number, text in table.edges.items()
    )


_NO_PLACE = "no free place"


def _next_best(
    placed: PlacedOps, op: str, table: LegalTable, now: float, time_after: TimeAfter
) -> tuple[Alternative, ...]:
    shapes = table.shapes
    legal = [s for s in table.legal if s != table.grid]
    legal.sort(key=lambda s: (float(shapes[s[0] - 1, s[1] - 1]["limiter_cycles"]), s[0] * s[1], s))
    next_best: list[Alternative] = []
    for r, c in legal[:_ALTERNATIVES]:
        shape, edit = shapes[r - 1, c - 1], ResizeOp(op, (r, c))
        time, refused = None, ""
        try:
            time = time_after(edit)
        except TbudaError as error:
            refused = str(error).splitlines()[0]
        in_the_way = _against(placed, op, table, (r, c))
        if time is None:
            against = in_the_way or refused
        else:  # the edit can be made, whatever stands in its way as the epoch is now
            room = "other ops make room, " if in_the_way.startswith(_NO_PLACE) else ""
            effect = "faster" if time < now else "no faster" if time == now else "slower"
            against = f"legal: {room}the model would be {effect}"
        next_best.append(
            Alternative(
                (r, c),
                int(shape["cores"]),
                int(shape["cycles"]),
                int(shape["limiter_cycles"]),
                time,
                int(shape["l1_bytes"]),
                against,
                edit,
            )
        )
    return tuple(next_best)


def _against(placed: PlacedOps, op: str, table: LegalTable, size: tuple[int, int]) -> str:
    """What stands against a shape that brings no time; "" for nothing in particular."""
    problem = placed.problem
    shape = table.shapes[size[0] - 1, size[1] - 1]
    segment = placed.segments[table.epoch]
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    number = problem.number[op]
    report = placed.placement().report
    assert report is not None
    if float(shape["limiter_cycles"]) >= report.op_limiters[op][1]:
        return "no faster"
    high, wide = table.shapes.shape
    turned = size[::-1] if size[1] <= high and size[0] <= wide else size  # of a tall shape none, on a grid not so wide
    if not (table.starts(*size) or table.starts(*turned)):
        free = problem.cores - sum(int(problem.tables[o].rows["cores"][r]) for o, r in rows.items() if o != number)
        return f"{_NO_PLACE} of that size in the epoch ({quantity(free, 'core')} without this op)"
    if table.candidates.signature == problem.tables[number].signature:
        book = EdgeCompatibility(problem, segment.first, segment.last, {})
        book.rows = {o: r for o, r in rows.items() if o != number}
        if not book.check(number, int(shape["row"])) and book.refusal is not None:
            producer, reader, reason = book.refusal
            return refusal_text(problem, producer, reader, reason)
    return ""


def provenance(compiles: Compiles, op: str) -> str:
    """A sentence or two. Raises `InputError` for a name that is not placed."""
    placed = compiles.placed()
    if op not in placed.problem.number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    state = compiles.request
    current = placed.ops()[op]
    matching = [o for o in state.overrides if o.matches([op])]
    fixed = {o.kind: o for o in matching}
    sentences: list[str] = []
    if "op_size" in fixed:
        sentences.append(f"Its shape is set by an override{_source(fixed['op_size'])}.")
    if "op_placement" in fixed:
        sentences.append(f"Its place is pinned{_source(fixed['op_placement'])}.")
    others = sorted(fixed.keys() - {"op_size", "op_placement"})
    if others:
        sentences.append(f"Also fixed: {', '.join(others)}.")
    policy = placed.policy or state.options.balancer_policy
    base = compiles.placed(dataclasses.replace(state, overrides=state.base)).ops().get(op)
    place = current.size, current.start, current.transposed
    if base is not None and (base.size, base.start, base.transposed) == place:
        sentences.append(f"The policy {policy} chose it for the whole model; later edits did not change it.")
    elif "op_size" in fixed or "op_placement" in fixed:
        sentences.append("An edit placed its epoch again and moved other ops as little as possible.")
    else:
        sentences.append(
            f"The policy {policy} chose another shape or place first; a later edit placed its epoch again and moved it "
            "to make room."
        )
    return " ".join(sentences)


def _source(override: Override) -> str:
    """For how it was asked, unless simply by name."""
    return "" if isinstance(override.target, str) else f", by {target_text(override.target)}"
