"""The search: stage after stage until one is wrong; runs of the netlist only where all graphs are right."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.sections import SENT
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.inputs import bind, elements
from tbuda_lab.core.graph import TILE, Graph, Node, NodeKind
from tbuda_lab.core.lowering.evaluate import leaf_value, op_value, packed, plain, times
from tbuda_lab.core.lowering.hw_ops import HwOp
from tbuda_lab.core.lowering.values import collapse
from tbuda_lab.core.measured.match import traced_name
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import ancestors, node_value
from tbuda_lab.core.ops.host import HostCall
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.find_error.eager import Fingerprints, run_eagerly, unseen
from tbuda_lab.core.session.find_error.goldens import of_elements
from tbuda_lab.core.session.find_error.graphs import (
    GraphRun,
    NoValueError,
    StageSearch,
    Values,
    first_tile,
    relative_error,
)
from tbuda_lab.core.session.find_error.report import STAGES, ErrorReport, FormatCost, OpError
from tbuda_lab.core.session.find_error.runs import (
    LEAVES,
    NetlistRun,
    as_asked,
    format_faults,
    op_error,
    op_errors,
    output_costs,
)
from tbuda_lab.core.session.op_checks import lowered_inputs
from tbuda_lab.core.verification import MIN_PCC, TensorError, measure_error

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

Tensor = torch.Tensor
TOLERANCE = {"traced": 1e-3, "passed": 1e-4, "lowered": 2e-3, "netlist": 2e-3}
"""Relative L2 error of the outputs from which a stage is wrong. Each stage is compared with the one before it, and
calculates with at least float32."""


GOLDEN_FLOOR, GOLDEN_SLACK = 0.01, 3.0
"""How far values from outside may be off, relative L2: by so much in any case, and so many times what the formats of
this session make of the op's value, for a card sums and rounds in an order of its own."""
_PLAIN = 0.05
"""Relative error from which an op whose rounding is foreseen is wrong without a run that does not round."""

_STEPS = frozenset(("argmax", "argsort", "ceil", "floor", "floor_divide", "fmod", "frac", "heaviside", "remainder"))
_STEPS |= {"round", "searchsorted", "sign", "sort", "topk", "trunc"}


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
    if not isinstance(min_pcc, int | float) or not 0 < min_pcc <= 1:
        raise InputError(f"min_pcc is a correlation above 0, of 1 at most, not {min_pcc!r}")
    result = compiles.compile()
    if result.options.training is not None:
        raise InputError("a search for the wrong op is for inference; Session.check_gradients judges training")
    runner = _idle_runner(state, result)
    runners = {} if runner is None else {runner.mode: runner}
    search = _Search(
        state.model, result, state.sample_inputs if inputs is None else inputs, goldens or {}, min_pcc, runners
    )
    steps: list[tuple[str, Callable[[], _Found | None]]] = [
        ("traced", search.traced),
        ("passed", search.passed),
        ("lowered", search.lowered),
        ("netlist", search.netlist),
        ("golden", lambda: search.rounded("golden")),
        *([("device", lambda: search.rounded("device"))] if mode == "device" else []),
    ]
    checked: list[str] = []
    try:
        checked.extend(search.right_graphs())
        steps = steps[len(checked) :]
        for stage, step in steps:
            if cancel is not None and cancel.is_set():
                raise Cancelled("the search for the wrong op was cancelled")
            try:
                found = step()
            except NoValueError as error:
                found = _Found(error.op, (error.op,), None, f"it cannot be calculated: {error.reason}")
            checked.append(stage)
            if found is not None:
                return search.report(stage, found, checked)
        return search.report("", _Found(), checked)
    finally:
        if runner is not None and state.result is result and state.runner is None:
            state.runner = runner


def _idle_runner(state: SessionState, result: CompileResult) -> Runner | None:
    """The session's runner, taken out of it, if a run of ours leaves it as it is: it keeps nothing from run to run."""
    with state.work_lock:
        runner = state.runner
        if runner is None or runner.result is not result or runner.caches or runner.keeps_state:
            return None
        state.runner = None
        return runner


class _Search:
    def __init__(
        self,
        model: Any,
        result: CompileResult,
        sample: Any,
        goldens: Mapping[str, np.ndarray],
        min_pcc: float,
        runners: dict[str, Runner],
    ) -> None:
        self.model, self.result, self.min_pcc, self.goldens = model, result, min_pcc, goldens
        self.sample, self._runners = sample, runners
        self.graph: Graph = result.graph
        whole = next(iter(elements(result.graph, frontend.feeds(result.graph, sample))))
        self.whole_feed = whole
        self.feed: dict[str, Tensor] = dict(result.device_feeds(whole))
        self.outputs: tuple[TensorError, ...] = ()
        self.ops: tuple[OpError, ...] = ()
        self.costs: tuple[FormatCost, ...] = ()
        self._runs: dict[str, NetlistRun] = {}
        self._differing = 0.0

    @functools.cached_property
    def _traced(self) -> GraphRun:
        """With what the host runs."""
        return self._nd_run(self.graph, self.whole_feed)

    @functools.cached_property
    def _passed(self) -> GraphRun:
        """As a core multiplies: what the passes make of a `where` is zero times infinity where it is not taken."""
        return self._nd_run(self.result.passed, self.feed, cores=True)

    @functools.cached_property
    def _lowered(self) -> GraphRun:
        feeds = lowered_inputs(self.result, self.whole_feed)

        def step(node: Node, values: Values) -> Tensor | None:
            if node.kind is NodeKind.OUTPUT:
                return values[node.sources[0]]
            if node.kind is not NodeKind.OP:
                with torch.no_grad():
                    return leaf_value(node, feeds)
            return op_value(node, [values[s] for s in node.sources])

        return GraphRun(self.result.lowered, step, _in_tiles)

    @staticmethod
    def _nd_run(graph: Graph, feed: Mapping[str, Tensor], cores: bool = False) -> GraphRun:
        """cores: products are those of a core, of which zero times infinity is zero."""

        def step(node: Node, values: Values) -> Tensor:
            with torch.no_grad():
                value = node_value(graph, node, values, feed, torch.float32)  # type: ignore[arg-type]
                if cores and isinstance(node.op, NdOp) and node.op.type == "multiply":
                    return times(*(values[s] for s in node.sources)) if value.isnan().any() else value
                return value

        return GraphRun(graph, step, lambda node: tuple(node.shape))

    # -- graphs --------------------------------------------------------------------------------------------------
    def traced(self) -> _Found | None:
        """The traced graph against the module run eagerly, and against goldens from outside."""
        wrong = self._against_module()
        if wrong is not None:
            return wrong
        return self._against_goldens() if self.goldens else None

    def _against_goldens(self) -> _Found | None:
        """The first op, in the graph's order, whose value from outside is off by more than formats explain."""
        run = self._traced
        goldens = of_elements(self.goldens, run.values)
        lowered = self.result.lowered
        rounding = {
            traced_name(self.graph, str(lowered[o.op].attrs.get("source", o.op))): o.accumulated
            for o in op_errors(self.result, self._run("golden"), self._lowered)
        }
        for node in self.graph.topological():
            name = node.name
            if name not in goldens:
                continue
            error = measure_error(name, run.values[name].double().numpy(), goldens[name].astype(np.float64))
            relative = relative_error(run.values[name], torch.from_numpy(goldens[name]))
            own = rounding[name].relative_l2 if name in rounding else 0.0
            allowed = max(GOLDEN_FLOOR, GOLDEN_SLACK * own)
            if not relative <= allowed:
                text = (
                    f"its value is not the golden's: relative error {relative:.3g}, pcc {error.pcc:.6g}, "
                    f"largest {error.max_abs:.3g} ({error.ulps:.2g} ulps); formats explain {allowed:.2g}. If the model "
                    "is right, what was given is wrong, there first"
                )
                tile = first_tile(goldens[name], run.values[name].double().numpy())
                return _Found(name, (name,), tile, text)
        return None

    def _run_module(self, prints: Fingerprints | None = None) -> dict[str, Tensor]:
        """What the module gives, run eagerly, by the outputs of the traced graph; {} where the two cannot be laid side
        by side, as it is no torch module."""
        module = self.model
        if not isinstance(module, torch.nn.Module):
            return {}
        bound = bind(module.forward, self.sample)
        if bound.microbatch > 1 and all(v.shape[:1] == (1,) for v in self.whole_feed.values() if v.dim() > 1):
            bound = bound.cut()
        given = run_eagerly(module, bound.args, bound.kwargs, prints)
        names = [n.name for n in self.graph.outputs]
        return dict(zip(names, given, strict=True)) if len(names) == len(given) else {}

    @functools.cached_property
    def _eager(self) -> dict[str, Tensor]:
        return self._run_module()

    def right_graphs(self) -> tuple[str, ...]:
        """The stages up to the last that gives what the module gives: then those before it are right, too."""
        if self.goldens:
            return ()
        for count, agrees in ((3, self._graphs_agree), (2, self._passes_agree)):
            with contextlib.suppress(NoValueError):  # it is found in its own stage
                if agrees():
                    return STAGES[:count]
        return ()

    def _graphs_agree(self) -> bool:
        """Whether the lowered graph gives what the module gives: then all graphs between them are right."""
        last = self._lowered.values
        bindings = {b.name: dataclasses.replace(b, tms=()) for b in self.result.outputs}
        if not self._eager or bindings.keys() != self._eager.keys():
            return False
        for name, expected in self._eager.items():
            value = last.get(self.result.lowered[name].sources[0])
            got = None if value is None else bindings[name].decode(value.numpy())
            if got is None or got.numel() != expected.numel():
                return False
            if not relative_error(expected, got.reshape(expected.shape)) <= TOLERANCE["passed"]:
                return False
        return True

    def _passes_agree(self) -> bool:
        """Whether the passed graph gives what the module gives: then the traced one does, too."""
        values = self._passed_outputs()
        return (
            bool(self._eager)
            and self._eager.keys() == values.keys()
            and all(
                e.numel() == values[n].numel() and relative_error(e, values[n].reshape(e.shape)) <= TOLERANCE["passed"]
                for n, e in self._eager.items()
            )
        )

    def _against_module(self) -> _Found | None:
        values = self._traced.values
        self.outputs = tuple(
            measure_error(n, e.double().numpy(), values[n].double().numpy())
            for n, e in self._eager.items()
            if e.numel() == values[n].numel()
        )
        wrong = [
            n
            for n, e in self._eager.items()
            if e.numel() != values[n].numel()
            or relative_error(e.reshape(values[n].shape), values[n]) > self._tolerance_of_trace()
        ]
        if not wrong:
            return None
        prints = Fingerprints()
        self._run_module(prints)
        return self._blame_traced(prints, wrong, self._eager)

    def _tolerance_of_trace(self) -> float:
        """The trace is evaluated in float32; the module rounds to the types of its own weights."""
        stored = (*self.model.parameters(), *self.model.buffers())
        coarsest = max((torch.finfo(t.dtype).eps for t in stored if t.is_floating_point()), default=0.0)
        return max(TOLERANCE["traced"], 4 * coarsest)

    def _blame_traced(self, prints: Fingerprints, wrong: Sequence[str], expected: Values) -> _Found:
        nodes = unseen(self.graph, self._traced.values, prints, wrong) or (wrong[0],)
        first_wrong = wrong[0]
        got = self._traced.values[first_wrong]
        tile = (
            None
            if expected[first_wrong].numel() != got.numel()
            else first_tile(expected[first_wrong].reshape(got.shape).double().numpy(), got.double().numpy())
        )
        return _Found(nodes[0], nodes, tile, "the module, run eagerly, never has its value")

    def passed(self) -> _Found | None:
        """The passed graph against the traced one."""
        run = self._passed
        expected = _common(self._traced, run)
        outputs = [n.name for n in self.result.passed.outputs]
        for name in outputs:  # what a part of the host reads is no output of the traced graph
            value = self._traced.values.get(name.removesuffix(SENT))
            laid = None if value is None or name in expected else _laid_as(value, run.values[name])
            if laid is not None:
                expected[name] = laid
        search = StageSearch(run, expected, [n for n in outputs if n in expected], TOLERANCE["passed"])
        return self._graph_verdict(search, "the passes changed what it gives")

    def lowered(self) -> _Found | None:
        """The lowered graph against the passed one, in tiles."""
        run = self._lowered
        expected, outputs, beyond = _as_tiles(self._passed, run)
        search = StageSearch(run, expected, outputs, TOLERANCE["lowered"], self._logical, self._filled, beyond)
        return self._graph_verdict(search, "its lowering gives something else")

    def _logical(self, name: str, value: Tensor) -> Tensor:
        node = self.result.lowered[name]
        _, z, rows, cols = node.shape
        return value[:z, :rows, :cols]

    def _filled(self, name: str, reference: Tensor) -> Tensor:
        """A reference as the op stores it: its padding as it is, sizes of 1 through their tiles."""
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
        if name in search.beyond and search.errors.get(name, 0.0) <= search.tolerance:
            return _Found(name, nodes, None, f"{reason}: without the activation that it should have taken over")
        if search.run.other_size(name):
            return _Found(name, nodes, None, search.run.other_size(name))
        expected, got = search.known[name], search.run.values[name]
        view = self._logical(name, got) if search.run is self._lowered else got
        tile = first_tile(expected.double().numpy(), view.double().numpy()) if view.shape == expected.shape else None
        return _Found(name, nodes, tile, f"{reason}: relative error {search.errors[name]:.2g}")

    def _measured(self, search: StageSearch, name: str) -> TensorError:
        view = self._logical(name, search.run.values[name]) if search.run is self._lowered else search.run.values[name]
        return measure_error(name, search.known[name].double().numpy(), view.double().numpy())

    # -- netlists ------------------------------------------------------------------------------------------------
    def netlist(self) -> _Found | None:
        """The netlist against the lowered graph. A run with formats shows it where all that it rounds is foreseen. Of
        numbers on the edge between two steps of a small block format, or of integers, that is more than the noise of
        float32; and an op that is off by little may have found another order of its sums: there a run without rounding
        decides."""
        structural = format_faults(self.result)
        if structural:
            op, reason = structural[0]
            return _Found(op, (op,), None, reason)
        run = self._run("golden")
        off, lost = run.misfits(TOLERANCE["netlist"]), run.lost_outputs(TOLERANCE["netlist"])
        plain = [o for o in off if o[2] > _PLAIN and _is_wide(o[0].df)]
        if off and not (plain and plain[0] is off[0]):
            run = self._run("exact")
            off, lost = run.misfits(TOLERANCE["netlist"]), run.lost_outputs(TOLERANCE["netlist"])
            if not lost and all(not e.relative_l2 > TOLERANCE["netlist"] for e in self.outputs):
                off = [o for o in off if o[2] > _PLAIN]
        filled = None if off else run.misfilled(TOLERANCE["netlist"])
        if filled is not None:
            node, error = filled
            text = f"what fills its tiles is not what it should be; what reads it is off by {error:.2g} for that"
            return _Found(node.name, (node.name,), None, text)
        if off:
            errors = [op_error(self.result, run, self._lowered, node, value) for node, value, _ in off]
            self.ops = tuple(e for e in errors if e is not None)
            node, _, error = off[0]
            reason = f"beyond what its formats round, it is off by {error:.2g}"
            return _of(self.ops[0], reason) if self.ops else _Found(node.name, (node.name,), None, reason)
        return _Found("", (), None, f"every op is right, what leaves the device is not: {lost[0]}") if lost else None

    def _run(self, mode: str) -> NetlistRun:
        """An input through the netlist, once for each mode; `outputs` are of it."""
        run = self._runs.get(mode)
        if run is None:
            leaves = {n: v for n, v in self._lowered.values.items() if self.result.lowered[n].kind in LEAVES}
            runner = self._runners.pop(mode, None) or Runner(self.result, mode)
            run = self._runs[mode] = NetlistRun(self.result, mode, self.whole_feed, leaves, runner)
        self.outputs = run.output_errors(self._eager or self._passed_outputs(), self._stepped)
        self._differing = run.differing(self._eager)
        return run

    def rounded(self, mode: str) -> _Found | None:
        """A run with formats ("golden"), or as the machine rounds ("device"). In golden mode an op in the formats that
        were asked for does what they make of it, for the netlist is right: others are looked at first."""
        run = self._run(mode)
        placed = [n for n in self.result.placement.schedule if n in run.got]
        others = [n for n in placed if not as_asked(run, self.result.lowered[n])]
        self.ops = op_errors(self.result, run, self._lowered, others if mode == "golden" else placed)
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
        self.ops = op_errors(self.result, run, self._lowered)
        self.costs = output_costs(self.result, run, self._lowered, self.ops, self._stepped)
        expected = self._eager or self._passed_outputs()
        if self.costs and any(run.loses_too_much(e, expected[e.name], self.min_pcc) for e in self.outputs):
            worst_cost = self.costs[0]
            by_op = next(o for o in self.ops if o.op == worst_cost.op)
            advice = f"give it {worst_cost.instead}" if worst_cost.instead else "no wider format of it is legal"
            text = f"{worst_cost.df} costs {worst_cost.share:.2g} of a relative error of {self.error:.2g}: {advice}"
            return _of(by_op, text)
        return None

    @functools.cached_property
    def _stepped(self) -> frozenset[str]:
        """Outputs that a threshold leads to: a small error before it may move a number behind it by a whole step."""
        return frozenset(
            output.name
            for output in self.graph.outputs
            if any(_steps(self.graph[name].op) for name in ancestors(self.graph, output.name))
        )

    def _passed_outputs(self) -> dict[str, Tensor]:
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
                if node.kind is NodeKind.OP:
                    found = dataclasses.replace(found, op=node.name, nodes=(node.name, *found.nodes[1:]))
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
            self._not_finite(),
            self._differing,
        )

    def _not_finite(self) -> float:
        try:
            given = self._eager or self._passed_outputs()
        except NoValueError:
            return 0.0
        values = [v for v in given.values() if v.is_floating_point()]
        total = sum(v.numel() for v in values)
        return sum(int((~v.isfinite()).sum()) for v in values) / total if total else 0.0


def _in_tiles(node: Node) -> tuple[int, ...]:
    """(z, R, C) of a lowered op's value, in whole tiles."""
    _, z, rows, cols = node.shape
    return z, -(-rows // TILE) * TILE, -(-cols // TILE) * TILE


def _steps(op: object) -> bool:
    """Whether an op is constant between steps."""
    if isinstance(op, HostCall):
        return op.call in _STEPS
    return isinstance(op, NdOp) and (op.gives_truth or op.type in _STEPS)


def _is_wide(df: DataFormat | None) -> bool:
    """Whether a result in a format is what it is rounded of, but for what the host rounds later."""
    return df is None or (df.is_float and df.datum_bits >= 8)


def _of(op: OpError, reason: str) -> _Found:
    return _Found(op.op, (op.op,), op.first, reason)


def _common(before: GraphRun, after: GraphRun) -> dict[str, Tensor]:
    """Values of `before` for nodes of `after` of the same name, and for the last op of what a decomposition made of
    one, as they lie there."""
    expected: dict[str, Tensor] = {}
    last: dict[str, str] = {}
    for node in after.order:
        if node.name in before.values and node.kind in (NodeKind.OP, NodeKind.OUTPUT):
            value = _laid_as(before.values[node.name], after.values[node.name])
            if value is not None:
                expected[node.name] = value
        elif ".dc." in node.name:
            last[node.name.split(".dc.")[0]] = node.name
    for stem, name in last.items():
        whole = before.values.get(stem)
        value = None if whole is None or stem in after.values else _laid_as(whole, after.values[name])
        if value is not None:
            expected[name] = value
    return expected


def _laid_as(value: Tensor, other: Tensor) -> Tensor | None:
    """A value as another one of a graph after passes lies: with other sizes of 1, or, of images, their points as rows
    and their channels as columns; None where it is neither. Where it may be both it is what is nearer."""
    found = [value.reshape(other.shape)] if _alike(value, other) else []
    if value.dim() == 4 and other.dim() and other.shape[-1] == value.shape[1] and value.numel() == other.numel():
        found.append(value.permute(0, 2, 3, 1).reshape(other.shape))
    return min(found, key=lambda v: relative_error(v, other), default=None)


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, but for sizes of 1."""
    return [n for n in a.shape if n != 1] == [n for n in b.shape if n != 1]


def _as_packed(passed: GraphRun, source: str, node: Node) -> Tensor | None:
    """What a passed op gives as the lowered one hands it on: past the activation that the latter has taken over."""
    function = getattr(node.op, "sfpu_op", "")
    own = passed.graph.nodes.get(source)
    if function and own is not None and own.op is not None and own.op.type != function:
        after = [n for n, _ in passed.users[source] if getattr(passed.graph[n].op, "type", "") == function]
        if any(getattr(n.op, "type", "") == function for n in passed.order):
            source = after[0] if len(after) == 1 else ""  # else the model has no such activation: the op should not
    value = passed.values.get(source)
    return value if value is None or not isinstance(node.op, HwOp) else packed(node.op, value)


def _as_tiles(passed: GraphRun, lowered: GraphRun) -> tuple[dict[str, Tensor], list[str], dict[str, Tensor]]:
    """Values of passed ops for the last lowered op that each became, as (z, R, C); the producers of the outputs; and
    of ops behind which an activation of the passed graph has become no op of its own, the value after it."""
    last: dict[str, Node] = {}
    for node in lowered.order:
        if node.kind is NodeKind.OP and "source" in node.attrs:
            last[str(node.attrs["source"])] = node
    expected = {}
    for source, node in last.items():
        value = _as_packed(passed, source, node)
        if value is not None and tuple(node.shape[1:]) == collapse(tuple(value.shape)):
            expected[node.name] = plain(value.reshape(node.shape[1:]))
    outputs = []
    for node in lowered.graph.outputs:
        if node.name not in passed.graph.nodes:
            continue
        value = passed.values[passed.graph[node.name].sources[0]]
        producer = lowered.graph[node.sources[0]]
        if tuple(producer.shape[1:]) == collapse(tuple(value.shape)):
            expected[producer.name] = plain(value.reshape(producer.shape[1:]))
            outputs.append(producer.name)
    beyond = {}
    for passed_node in passed.order:
        source = passed_node.sources[0] if len(passed_node.sources) == 1 else ""
        if passed_node.kind is not NodeKind.OP or passed_node.name in last or source not in last:
            continue
        node, value = last[source], passed.values.get(passed_node.name)
        if value is not None and tuple(node.shape[1:]) == collapse(tuple(value.shape)):
            beyond[node.name] = plain(value.reshape(node.shape[1:]))
    return expected, outputs, beyond
