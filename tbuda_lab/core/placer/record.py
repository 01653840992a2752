"""The decisions of a placement as plain data, and the placement made of them again.

Written is what a search decided: what it inserted, the order of the ops, rows and spots of every epoch, what it has to
say. Queues, addresses and the report follow from that by the same code as in the compile that decided. A record may
come from a file: everything in it is checked before it is used, and what does not fit the graph is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.types import Bounds, Objective, OpModels
from tbuda_lab.core.constraints import FREE, Constraints, resolve
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, from_json, to_json
from tbuda_lab.core.overrides.places import OpPin
from tbuda_lab.core.placer.model.batch_bound import time_bound
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem, structure_digest
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.place import assemble_placement
from tbuda_lab.core.placer.state import Decisions, Outcome

_EDITING = ("together", "in turn")
"""How the inserted nops and queues come to the same graph: by one edit of the graph, or one after the other."""

_BOUNDS = len(dataclasses.fields(Bounds))
_OBJECTIVE = [f.name for f in dataclasses.fields(Objective) if f.name != "least"]  # the bound follows from the graph


def to_record(outcome: Outcome, graph: Graph, options: CompileOptions) -> dict[str, Any] | None:
    """The decisions behind a placement of `graph` as JSON holds them. None for the rare one that does not follow from
    its decisions: its graph is not `graph` with the edits made again."""
    problem, chosen = outcome.problem, outcome.decisions
    digest = structure_digest(outcome.graph)
    for editing in _EDITING:
        if structure_digest(_apply_edits(graph, outcome.edits, editing, problem.device, options)) == digest:
            break
    else:
        return None
    return {
        "graph": digest,
        "tables": _tables_digest(problem.models),
        "editing": editing,
        "edits": [to_json(o, _names_without_match) for o in outcome.edits],
        "overrides": [to_json(o, _names_without_match) for o in problem.constraints.records if o.source == "placer"],
        "order": list(problem.order),
        "pins": {n: [None if p.start is None else list(p.start), p.transpose, p.chip] for n, p in problem.pins.items()},
        "breaks": sorted(problem.breaks),
        "chip_breaks": sorted(problem.chip_breaks),
        "on_one_chip": problem.on_one_chip,
        "refusals": [[first, last, reason] for (first, last), reason in sorted(problem.refusals.items())],
        "epochs": [
            [list(s.rows), [list(spot) for spot in s.spots], s.kernel_cycles, s.limiter_cycles, s.stall_cycles]
            for s in chosen.segments
        ],
        "policy": chosen.policy,
        "notes": [dataclasses.astuple(note) for note in chosen.notes],
        "objective": None if chosen.objective is None else [getattr(chosen.objective, n) for n in _OBJECTIVE],
        "needed": chosen.needed,
        "curve": chosen.curve,
        "bounds": None if chosen.bounds is None else dataclasses.astuple(chosen.bounds),
    }


def from_record(
    record: Any,
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    constraints: Constraints = FREE,
    costs: CostCache | None = None,
) -> Outcome:
    """The placement of `graph` whose decisions a record holds.

    models: of `op_models` for this graph and these constraints. costs: see `place_and_repair`. Raises `InputError` for
    a record that is damaged, or of another graph, device or options; `PlacementError` and `OverrideError` where queues
    find no place.
    """
    read = RecordReader(record)
    before, models_before = graph, models
    edits = tuple(_insertion(o) for o in read.list("edits"))
    if edits:
        graph = _apply_edits(graph, edits, read.text("editing"), device, options)
        constraints = resolve(constraints.records, graph, device, options)
        models = op_models(graph, device, options, constraints.checked().choices)
    if structure_digest(graph) != read.text("graph") or _tables_digest(models) != read.text("tables"):
        raise InputError("a record of another graph")
    order = read.texts("order")
    if len(set(order)) != len(order) or set(order) != {n.name for n in graph.ops}:
        raise InputError("a record whose order is not that of the graph's ops")
    names = set(order)
    pins = {name: _pin(value) for name, value in read.map("pins").items() if name in names}
    breaks, chip_breaks = (frozenset(read.texts(key)) & names for key in ("breaks", "chip_breaks"))
    asked = resolve((*constraints.records, *(_insertion(o) for o in read.list("overrides"))), graph, device, options)
    if not isinstance(read["on_one_chip"], bool):
        raise InputError("a record that does not say whether one chip takes all ops")
    problem = dataclasses.replace(
        Problem.of(graph, models, device, options, order, asked, costs, read["on_one_chip"]),
        pins=pins,
        breaks=breaks,
        chip_breaks=chip_breaks,
    )
    for first, last, reason in rows_of(read.list("refusals"), 3):
        problem.refusals[whole(first), whole(last)] = text_of(reason)
    needed = whole(read["needed"])
    if not 0 <= needed <= len(edits):
        raise InputError("a record in which more is needed than was inserted")

    def least() -> float:
        """The bound of the graph without what was inserted to make it faster."""
        if needed == len(edits):
            return time_bound(problem)
        plain, tables = before, models_before
        if needed:
            plain = _apply_edits(before, edits[:needed], read.text("editing"), device, options)
            asked_of_plain = resolve(constraints.records, plain, device, options)
            tables = op_models(plain, device, options, asked_of_plain.checked().choices)
        return time_bound(problem.regraph(plain, tables, [name for name in order if name in plain]))

    value = None if read["objective"] is None else _objective(read.list("objective"))
    if value is not None and value.inputs != options.inputs_counted:
        raise InputError("a record of another number of inputs")
    bounds = None if read["bounds"] is None else Bounds(*map(whole, rows_of([read["bounds"]], _BOUNDS)[0]))
    notes = tuple(Diagnostic(*map(text_of, parts)) for parts in rows_of(read.list("notes"), 5))
    curve = tuple((whole(step), number(cycles)) for step, cycles in rows_of(read.list("curve"), 2))
    if value is not None:
        value = dataclasses.replace(value, least=least)
    segments = _segments(read.list("epochs"), problem)
    chosen = Decisions(segments, read.text("policy"), notes, value, curve, bounds, needed)
    return assemble_placement(problem, chosen, edits)


def _names_without_match(override: Override) -> tuple[str, ...]:
    raise TypeError(f"the placer names what it inserts: {override}")


def _insertion(value: Any) -> Override:
    return dataclasses.replace(from_json(value), source="placer")


def _apply_edits(
    graph: Graph, edits: tuple[Override, ...], how: str, device: DeviceSpec, options: CompileOptions
) -> Graph:
    if how == "in turn":
        for one in edits:
            graph = edit(graph, device, options, (one,)).graph
        return graph
    return edit(graph, device, options, edits).graph if edits else graph


def _tables_digest(models: Mapping[str, OpModels]) -> str:
    """Of the signature and the length of every op's table of candidates: rows are told by their number."""
    about = [(name, table.signature, len(table.rows)) for name, table in sorted(models.items())]
    return hashlib.sha256(repr(about).encode()).hexdigest()


def _segments(epochs: Sequence[Any], problem: Problem) -> tuple[Segment, ...]:
    """Epochs one after the other, each op on a legal row of its table, inside the grid."""
    segments: list[Segment] = []
    at = 0
    legal = {signature: frozenset(rows.tolist()) for signature, rows in problem.costs.legal.items()}
    for rows, spots, kernel, limiter, stall_cycles in rows_of(epochs, 5):
        if not isinstance(rows, list) or not rows or not isinstance(spots, list) or len(spots) != len(rows):
            raise InputError("a record with an epoch that has no row or spot for each op")
        last = at + len(rows)
        if last > len(problem.order):
            raise InputError("a record with more ops in epochs than there are")
        taken = np.zeros((problem.device.rows, problem.device.cols), np.int16)
        for op, row, (top, left, turned) in zip(range(at, last), rows, rows_of(spots, 3), strict=True):
            table = problem.tables[op]
            if whole(row) not in legal[table.signature] or not isinstance(turned, bool):
                raise InputError(f"a record with a row that {problem.order[op]} cannot have")
            size = int(table.rows[row]["grid_r"]), int(table.rows[row]["grid_c"])
            height, width = size[::-1] if turned else size
            inside = 0 <= whole(top) <= problem.device.rows - height
            if not inside or not 0 <= whole(left) <= problem.device.cols - width:
                raise InputError(f"a record with {problem.order[op]} outside the grid")
            taken[top : top + height, left : left + width] += 1
        if np.any(taken > 1):
            raise InputError("a record with ops of one epoch that share a core")
        places = tuple((top, left, turned) for top, left, turned in spots)
        segments.append(Segment(at, last, tuple(rows), places, whole(kernel), whole(limiter), number(stall_cycles)))
        at = last
    if at != len(problem.order):
        raise InputError("a record with fewer ops in epochs than there are")
    return tuple(segments)


def _objective(values: Sequence[Any]) -> Objective:
    if len(values) != len(_OBJECTIVE):
        raise InputError("a record with another objective")
    numbers = dict(zip(_OBJECTIVE, map(number, values), strict=True))
    return Objective(**{**numbers, "inputs": whole(numbers["inputs"])})


def _pin(value: Any) -> OpPin:
    ((start, transpose, chip),) = rows_of([value], 3)
    if start is not None:
        ((row, column),) = rows_of([start], 2)
        start = whole(row), whole(column)
    if not isinstance(transpose, bool | None):
        raise InputError("a record with a pin that says nothing")
    return OpPin(start, transpose, None if chip is None else whole(chip))


class RecordReader:
    """Fields of a record by name, each of the kind that it is read as. Raises `InputError`."""

    def __init__(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise InputError("a record is an object")
        self._fields: dict[str, Any] = record

    def __getitem__(self, name: str) -> Any:
        if name not in self._fields:
            raise InputError(f"a record without {name!r}")
        return self._fields[name]

    def text(self, name: str) -> str:
        return text_of(self[name])

    def list(self, name: str) -> list[Any]:
        result = self[name]
        if not isinstance(result, list):
            raise InputError(f"a record whose {name!r} is not a list")
        return result

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(text_of, self.list(name)))

    def map(self, name: str) -> dict[str, Any]:
        result = self[name]
        if not isinstance(result, dict):
            raise InputError(f"a record whose {name!r} is not an object")
        return result


def rows_of(values: Sequence[Any], count: int) -> Sequence[Sequence[Any]]:
    """Lists of `count` parts each. Raises `InputError`."""
    if not all(isinstance(v, list | tuple) and len(v) == count for v in values):
        raise InputError(f"a record with a list that has not {count} parts")
    return values


def text_of(value: Any) -> str:
    """A text. Raises `InputError`."""
    if not isinstance(value, str):
        raise InputError(f"a record with {value!r} where a text belongs")
    return value


def whole(value: Any) -> int:
    """A whole number, no truth value. Raises `InputError`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"a record with {value!r} where a whole number belongs")
    return value


def number(value: Any) -> Any:
    """A number, no truth value. Raises `InputError`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"a record with {value!r} where a number belongs")
    return value
