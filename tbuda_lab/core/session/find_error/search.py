"""The search: stage after stage until one is wrong; runs of the netlist only where all graphs are right."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.frontend.inputs import bind, elements
from tbuda_lab.core.graph import TILE, Graph, Node, NodeKind
from tbuda_lab.core.lowering.evaluate import leaf_value, op_value, plain
from tbuda_lab.core.lowering.values import collapse
from tbuda_lab.core.measured.overlay import traced_name
from tbuda_lab.core.ops.evaluate import node_value
from tbuda_lab.core.session.find_error.eager import Fingerprints, run_eagerly, unseen
from tbuda_lab.core.session.find_error.graphs import GraphRun, StageSearch, Values, first_tile, relative_error
from tbuda_lab.core.session.find_error.report import STAGES, ErrorReport, FormatCost, OpError
from tbuda_lab.core.session.find_error.runs import NetlistRun, format_faults, op_errors, output_costs
from tbuda_lab.core.session.op_checks import lowered_inputs
from tbuda_lab.core.verification import MIN_PCC, TensorError, measure_error

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

Tensor = torch.Tensor
TOLERANCE = {"traced": 1e-3, "passed": 1e-4, "lowered": 2e-3, "netlist": 2e-3}
"""Relative L2 error of the outputs from which a stage is wrong. Each stage is compared with the one before it, and
calculates with at least float32."""


@dataclasses.dataclass
class _Found:
    op: str = ""
    nodes: tuple[str, ...] = ()
    tile: tuple[int, int, int] | None = None
    reason: str = ""


def find_error(
    state: SessionState,
    compiles: Compiles,
    inputs: Any = None,
    mode: str = "golden",
    goldens: Mapping[str, np.ndarray] | None = None,
    min_pcc: float = MIN_PCC,
    cancel: threading.Event | None = None,
) -> ErrorReport:
    """See `Session.find_error`."""
    if mode not in ("golden", "device"):
        raise InputError(f"mode is golden or device, not {mode!r}")
    result = compiles.compile()
    if result.options.training is not None:
        raise InputError("a search for the wrong op is for inference; Session.check_gradients judges training")
    search = _Search(state.model, result, state.sample_inputs if inputs is None else inputs, goldens or {}, min_pcc)
    steps: list[tuple[str, Callable[[], _Found | None]]] = [
        ("traced", search.traced),
        ("passed", search.passed),
        ("lowered", search.lowered),
        ("netlist", lambda: search.netlist("exact")),
        ("golden", lambda: search.netlist("golden")),
        *([("device", lambda: search.netlist("device"))] if mode == "device" else []),
    ]
    checked: list[str] = []
    for stage, step in steps:
        if cancel is not None and cancel.is_set():
            raise Cancelled("the search for the wrong op was cancelled")
        found = step()
        checked.append(stage)
        if found is not None:
            return search.report(stage, found, checked)
    return search.report("", _Found(), checked)


class _Search:
    def __init__(
        self, model: Any, result: CompileResult, sample: Any, goldens: Mapping[str, np.ndarray], min_pcc: float
    ) -> None:
        self.model, self.result, self.min_pcc, self.goldens = model, result, min_pcc, goldens
        self.sample = sample
        self.graph: Graph = result.graph if result.chain is None else result.chain.device
        whole = next(iter(elements(result.graph, frontend.feeds(result.graph, sample))))
        self.whole_feed = whole
        self.feed: dict[str, Tensor] = dict(result.device_feeds(whole))
        self.outputs: tuple[TensorError, ...] = ()
        self.ops: tuple[OpError, ...] = ()
        self.costs: tuple[FormatCost, ...] = ()
        self._traced = self._nd_run(self.graph)
        self._passed: GraphRun | None = None
        self._lowered: GraphRun | None = None
        self._exact: NetlistRun | None = None

    def _nd_run(self, graph: Graph) -> GraphRun:
        def step(node: Node, values: Values) -> Tensor:
            with torch.no_grad():
                return node_value(graph, node, values, self.feed, torch.float32)  # type: ignore[arg-type]

        return GraphRun(graph, step)

    # -- graphs --------------------------------------------------------------------------------------------------
    def traced(self) -> _Found | None:
        """The traced graph against the module run eagerly, and against goldens from outside."""
        run = self._traced
        outputs = [n.name for n in self.graph.outputs]
        module = self.model
        if isinstance(module, torch.nn.Module) and self.result.chain is None:
            wrong = self._against_module(module, outputs)
            if wrong is not None:
                return wrong
        known = {
            n: torch.from_numpy(np.asarray(v, np.float64)).reshape(run.values[n].shape)
            for n, v in self.goldens.items()
            if n in run.values and v.size == run.values[n].numel()
        }
        off = [
            n.name
            for n in self.graph.topological()
            if n.name in known and relative_error(known[n.name], run.values[n.name]) > 0.1
        ]
        if off:
            name = off[0]
            return _Found(
                name,
                (name,),
                first_tile(known[name].numpy(), run.values[name].numpy()),
                "its value is not the golden's",
            )
        return None

    def _against_module(self, module: torch.nn.Module, outputs: Sequence[str]) -> _Found | None:
        bound = bind(module.forward, self.sample)
        if bound.microbatch > 1 and all(v.shape[:1] == (1,) for v in self.whole_feed.values() if v.dim() > 1):
            bound = bound.cut()
        expected, prints = run_eagerly(module, bound.args, bound.kwargs)
        values = self._traced.values
        pairs = list(zip(outputs, expected, strict=False)) if len(outputs) == len(expected) else []
        self.outputs = tuple(
            measure_error(n, e.double().numpy(), values[n].double().numpy())
            for n, e in pairs
            if e.numel() == values[n].numel()
        )
        wrong = [
            n
            for n, e in pairs
            if e.is_floating_point()
            and (
                e.numel() != values[n].numel()
                or relative_error(e.reshape(values[n].shape), values[n]) > TOLERANCE["traced"]
            )
        ]
        if not wrong:
            return None
        return self._blame_traced(prints, wrong, dict(pairs))

    def _blame_traced(self, prints: Fingerprints, wrong: Sequence[str], expected: Values) -> _Found:
        name = unseen(self.graph, self._traced.values, prints, wrong) or wrong[0]
        output = wrong[0]
        got = self._traced.values[output]
        tile = (
            None
            if expected[output].numel() != got.numel()
            else first_tile(expected[output].reshape(got.shape).double().numpy(), got.double().numpy())
        )
        return _Found(name, (name,), tile, "the module, run eagerly, never has its value")

    def passed(self) -> _Found | None:
        """The passed graph against the traced one."""
        self._passed = run = self._nd_run(self.result.passed)
        known = _common(self._traced, run)
        search = StageSearch(
            run, known, [n.name for n in self.result.passed.outputs if n.name in known], TOLERANCE["passed"]
        )
        return self._graph_verdict(search, "the passes changed what it gives")

    def lowered(self) -> _Found | None:
        """The lowered graph against the passed one, in tiles."""
        assert self._passed is not None
        result = self.result
        feeds = lowered_inputs(result, self.whole_feed)

        def step(node: Node, values: Values) -> Tensor | None:
            if node.kind is NodeKind.OUTPUT:
                return values[node.sources[0]]
            if node.kind is not NodeKind.OP:
                with torch.no_grad():
                    return leaf_value(node, feeds)
            return op_value(node, [values[s] for s in node.sources])

        self._lowered = run = GraphRun(result.lowered, step)
        known, outputs = _as_tiles(self._passed, run)
        search = StageSearch(run, known, outputs, TOLERANCE["lowered"], self._logical, self._filled)
        return self._graph_verdict(search, "its lowering gives something else")

    def _logical(self, name: str, value: Tensor) -> Tensor:
        node = self.result.lowered[name]
        _, z, rows, cols = node.shape
        return value[:z, :rows, :cols]

    def _filled(self, name: str, reference: Tensor) -> Tensor:
        """A reference as the op stores it: its padding as it is, sizes of 1 through their tiles."""
        assert self._lowered is not None
        value = self._lowered.values[name].clone()
        z, rows, cols = reference.shape
        part = reference.to(value.dtype)
        value[:z, :rows, :cols] = part
        if rows == 1:
            value[:z, :TILE, :cols] = part.expand(z, min(TILE, value.shape[1]), cols)
        if cols == 1:
            value[:z, :rows, :TILE] = part.expand(z, rows, min(TILE, value.shape[2]))
        return value

    def _graph_verdict(self, search: StageSearch, reason: str) -> _Found | None:
        name, nodes = search.blame()
        self.outputs = tuple(self._measured(search, n) for n in search.outputs)
        if not name:
            return None
        expected, got = search.known[name], search.run.values[name]
        view = self._logical(name, got) if search.run is self._lowered else got
        tile = first_tile(expected.double().numpy(), view.double().numpy()) if view.shape == expected.shape else None
        return _Found(name, nodes, tile, f"{reason}: relative error {search.errors[name]:.2g}")

    def _measured(self, search: StageSearch, name: str) -> TensorError:
        view = self._logical(name, search.run.values[name]) if search.run is self._lowered else search.run.values[name]
        return measure_error(name, search.known[name].double().numpy(), view.double().numpy())

    # -- netlists ------------------------------------------------------------------------------------------------
    def netlist(self, mode: str) -> _Found | None:
        """A run of the netlist: without rounding, with formats, or as the machine rounds."""
        assert self._lowered is not None
        run = NetlistRun(self.result, mode, self.whole_feed)
        self.ops = op_errors(self.result, run, self._lowered)
        self.outputs = run.output_errors(self._passed_outputs())
        if mode == "exact":
            structural = format_faults(self.result)
            off = [o for o in self.ops if not o.isolated.relative_l2 <= TOLERANCE["netlist"]]
            if structural:
                op, reason = structural[0]
                return _Found(op, (op,), None, reason)
            wrong = any(not e.relative_l2 <= TOLERANCE["netlist"] for e in self.outputs)
            if off and (wrong or not all(o.isolated.relative_l2 <= 0.05 for o in off)):
                return _of(off[0], f"run without rounding, it is off by {off[0].isolated.relative_l2:.2g}")
            if wrong:
                return _Found("", (), None, "every op is right, what leaves the device is not")
            return None
        return self._rounded(run)

    def _rounded(self, run: NetlistRun) -> _Found | None:
        off = [o for o in self.ops if not o.isolated.relative_l2 <= o.expected]
        if off:
            worst = max(off, key=lambda o: o.isolated.relative_l2 / max(o.expected, 1e-9))
            node = self.result.lowered[worst.op]
            return _of(
                worst,
                f"rounded as {node.df.name if node.df else '?'}, it is off by "
                f"{worst.isolated.relative_l2:.2g}; formats that were asked for explain "
                f"{worst.expected:.2g}",
            )
        assert self._lowered is not None
        self.costs = output_costs(self.result, run, self._lowered, self.ops)
        failing = [e for e in self.outputs if not e.passes(self.min_pcc) and not e.constant]
        if failing and self.costs:
            worst_cost = self.costs[0]
            by_op = next(o for o in self.ops if o.op == worst_cost.op)
            return _of(
                by_op,
                f"{worst_cost.df} costs {worst_cost.share:.2g} of a relative error of "
                f"{self.error:.2g}: give it {worst_cost.instead or 'a wider format'}",
            )
        return None

    def _passed_outputs(self) -> dict[str, Tensor]:
        assert self._passed is not None
        return {
            n.name: self._passed.values[n.name] for n in self.result.passed.outputs if n.name in self._passed.values
        }

    @property
    def error(self) -> float:
        return max((e.relative_l2 for e in self.outputs), default=0.0)

    def report(self, stage: str, found: _Found, checked: Sequence[str]) -> ErrorReport:
        source, location = "", ""
        if found.op:
            graph = {"traced": self.graph, "passed": self.result.passed}.get(stage, self.result.lowered)
            node = graph.nodes.get(found.op)
            if node is not None and node.kind is NodeKind.OUTPUT:
                node = graph[node.sources[0]]
            if node is not None:
                location = node.origin.location
                source = traced_name(self.graph, str(node.attrs.get("source", node.name))) or ""
        return ErrorReport(
            stage,
            found.op,
            source,
            found.nodes,
            location,
            found.tile,
            self.outputs,
            self.ops,
            self.costs,
            self.error,
            tuple(s for s in STAGES if s in checked),
            found.reason,
        )


def _of(op: OpError, reason: str) -> _Found:
    return _Found(op.op, (op.op,), op.first, reason)


def _common(before: GraphRun, after: GraphRun) -> dict[str, Tensor]:
    """Values of `before` for nodes of `after` that have the same name and shape, but for sizes of 1, and for the last
    op of what a decomposition made of one."""
    known: dict[str, Tensor] = {}
    last: dict[str, str] = {}
    for node in after.order:
        if node.name in before.values and node.kind in (NodeKind.OP, NodeKind.OUTPUT):
            value = before.values[node.name]
            if _alike(value, after.values[node.name]) and value.is_floating_point():
                known[node.name] = value.reshape(after.values[node.name].shape)
        elif ".dc." in node.name:
            last[node.name.split(".dc.")[0]] = node.name
    for stem, name in last.items():
        whole = before.values.get(stem)
        if whole is not None and stem not in after.values and _alike(whole, after.values[name]):
            known[name] = whole.reshape(after.values[name].shape)
    return known


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, but for sizes of 1."""
    return [n for n in a.shape if n != 1] == [n for n in b.shape if n != 1]


def _as_tiles(passed: GraphRun, lowered: GraphRun) -> tuple[dict[str, Tensor], list[str]]:
    """Values of passed ops for the last lowered op that each became, as (z, R, C); and the producers of the outputs."""
    last: dict[str, Node] = {}
    for node in lowered.order:
        if node.kind is NodeKind.OP and "source" in node.attrs:
            last[str(node.attrs["source"])] = node
    known = {}
    for source, node in last.items():
        value = passed.values.get(source)
        if value is not None and tuple(node.shape[1:]) == collapse(tuple(value.shape)):
            known[node.name] = plain(value.reshape(node.shape[1:]))
    outputs = []
    for node in lowered.graph.outputs:
        if node.name not in passed.graph.nodes:
            continue
        value = passed.values[passed.graph[node.name].sources[0]]
        producer = lowered.graph[node.sources[0]]
        if tuple(producer.shape[1:]) == collapse(tuple(value.shape)):
            known[producer.name] = plain(value.reshape(producer.shape[1:]))
            outputs.append(producer.name)
    return known, outputs
