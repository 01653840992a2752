"""Runs of a netlist: what every op gives, against what its inputs, as they came, should give.

So an op is judged by itself, whatever came before it, with the one run that also gives the accumulated errors.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from tbuda_lab.core.bindings import array_type
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, parse_format, round_to
from tbuda_lab.core.graph import Node, NodeKind
from tbuda_lab.core.lowering.data_formats import legal_formats
from tbuda_lab.core.lowering.evaluate import op_value
from tbuda_lab.core.name_patterns import name_pattern
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.find_error.graphs import GraphRun, first_tile, relative_error
from tbuda_lab.core.session.find_error.report import FormatCost, OpError
from tbuda_lab.core.session.op_checks import whole_output
from tbuda_lab.core.verification import TensorError, measure_error

Tensor = torch.Tensor
SLACK = 3.0
"""How much more than the rounding of its result an op may be off in golden mode: operands are rounded, too."""
_FLOOR = 2e-3
_FAR = 0.05  # of the largest magnitude: a tile that differs by more is pointed at
_ENOUGH = 1 << 15
_JUDGED = 4  # ops whose share of the outputs' error is worked out


class NetlistRun:
    """One input through a netlist. got: by op its first output, (z, R, C) in whole tiles; leaves: what the ops read
    from outside, as the host gave it. runner: of this result and mode, one that keeps nothing from run to run."""

    def __init__(
        self, result: CompileResult, mode: str, feed: dict[str, Tensor], leaves: Mapping[str, Tensor], runner: Runner
    ) -> None:
        self.mode, self.result, self.leaves = mode, result, leaves
        seen: dict[str, np.ndarray] = {}

        def take(name: str, output: np.ndarray) -> None:
            if name not in seen:
                seen[name] = np.array(output[0], array_type(output))

        sample = tuple(feed[n.name] for n in result.graph.inputs if n.name in feed)
        before, runner.executor.on_op = runner.executor.on_op, take
        try:
            rows = runner.run([sample] * result.options.microbatch)
        finally:
            runner.executor.on_op = before
        self.outputs: dict[str, Tensor] = dict(zip(result.output_names, rows[0], strict=False))
        self.got = {n: torch.from_numpy(whole_output(result, n, seen[n])) for n in seen if n in result.placement.ops}
        self.lost: dict[str, float] = {}
        self.ops: tuple[OpError, ...] = ()
        self.errors: tuple[TensorError, ...] = ()
        self._should: dict[str, Tensor | None] = {}

    def value(self, name: str) -> Tensor | None:
        found = self.got.get(name)
        return self.leaves.get(name) if found is None else found

    def should(self, node: Node) -> Tensor | None:
        """What an op should give of what it was given."""
        if node.name not in self._should:
            operands = [self.value(s) for s in node.sources]
            known = [x for x in operands if x is not None]
            self._should[node.name] = op_value(node, known) if len(known) == len(operands) else None
        return self._should[node.name]

    def output_errors(self, expected: Mapping[str, Tensor]) -> tuple[TensorError, ...]:
        """What left the device against the reference, where both have it."""
        return tuple(
            measure_error(n, expected[n].double().numpy(), got.double().numpy())
            for n, got in self.outputs.items()
            if n in expected and expected[n].numel() == got.numel() and got.is_floating_point()
        )


def op_errors(
    result: CompileResult, run: NetlistRun, reference: GraphRun, tolerance: float | None = None
) -> tuple[OpError, ...]:
    """Every placed op that there is a reference for, in schedule order. tolerance: leave out those that agree with the
    reference so far."""
    errors = []
    for name in result.placement.schedule:
        node, wanted = result.lowered[name], reference.values.get(name)
        got = run.got.get(name)
        if got is None or wanted is None:
            continue
        if tolerance is not None and relative_error(_logical(node, wanted), _logical(node, got)) <= tolerance:
            continue
        should = run.should(node)
        if should is None or should.shape != got.shape:
            continue
        own, arrived = _logical(node, should), _logical(node, got)
        expected = 0.0 if run.mode == "exact" else SLACK * _rounding(result, node, run, should) + _FLOOR
        isolated = measure_error(name, own.numpy(), arrived.numpy())
        near = isolated.max_abs <= _FAR * isolated.scale
        errors.append(
            OpError(
                name,
                isolated,
                measure_error(name, _logical(node, wanted).numpy(), arrived.numpy()),
                expected,
                None if near else first_tile(own.numpy(), arrived.numpy(), _FAR),
            )
        )
    return tuple(errors)


def _logical(node: Node, value: Tensor) -> Tensor:
    _, z, rows, cols = node.shape
    return value[:z, :rows, :cols]


def _rounding(result: CompileResult, node: Node, run: NetlistRun, should: Tensor) -> float:
    """Relative error that rounding to the formats that were asked for makes: of the result, and of parameters."""
    total = _lost(should, asked_format(result, node)) ** 2
    for source in node.sources:
        operand = result.lowered[source]
        if operand.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT, NodeKind.INPUT):
            if source not in run.lost:
                run.lost[source] = _lost(run.leaves[source], asked_format(result, operand))
            total += run.lost[source] ** 2
    return float(np.sqrt(total))


def _lost(value: Tensor, df: DataFormat | None) -> float:
    """Relative error of rounding to a format, of whole rows of tiles as far as it takes to know it."""
    if df is None or not df.is_float:
        return 0.0
    rows = value.reshape(-1, value.shape[-1])
    some = np.ascontiguousarray(rows[: max(32, _ENOUGH // max(1, rows.shape[1]))].numpy())
    return relative_error(torch.from_numpy(some), torch.from_numpy(np.asarray(round_to(some, df), np.float32)))


def asked_format(result: CompileResult, node: Node) -> DataFormat | None:
    """The format that options, rules and edits give a node; of one that none of them names the model's own, if its
    format is coarser."""
    named = "precision" in node.attrs or any(o.matches([node.name]) for o in result.overrides)
    named = named or any(r.name and name_pattern(r.name).fullmatch(node.name) for r in result.options.precision)
    own, default = node.df, result.options.data_format
    rules = bool(result.options.precision)
    if own is None or named or rules or not own.is_float or _width(own) >= _width(default):
        return own
    return default


def format_faults(result: CompileResult) -> list[tuple[str, str]]:
    """(op, what is off) of ops whose format in the netlist is not that of the lowered graph."""
    faults = []
    for graph in result.netlist.graphs.values():
        for op in graph.ops.values():
            node = result.lowered.nodes.get(op.name)
            stated = _parsed(op.out_df)
            if node is not None and node.df is not None and stated is not None and stated is not node.df:
                faults.append((op.name, f"the netlist has {stated.name}, the lowered graph {node.df.name}"))
    return faults


def _parsed(text: object) -> DataFormat | None:
    if isinstance(text, DataFormat):
        return text
    try:
        return parse_format(str(text))
    except (InputError, KeyError, ValueError):
        return None


def output_costs(
    result: CompileResult, run: NetlistRun, reference: GraphRun, ops: tuple[OpError, ...]
) -> tuple[FormatCost, ...]:
    """What the rounding of the ops that are off most makes of the outputs' error, each alone, largest first."""
    outputs = [n.name for n in result.lowered.outputs if n.name in reference.values]
    costs = []
    for op in sorted(ops, key=lambda o: -o.isolated.relative_l2)[:_JUDGED]:
        node = result.lowered[op.op]
        should = run.should(node)
        if should is None:
            continue
        changed = reference.replaced({op.op: reference.values[op.op] + (run.got[op.op] - should)})
        share = max((relative_error(reference.values[o], changed[o]) for o in outputs if o in changed), default=0.0)
        costs.append(FormatCost(op.op, node.df.name if node.df else "", share, _wider(result, node)))
    return tuple(sorted(costs, key=lambda c: -c.share))


def _wider(result: CompileResult, node: Node) -> str:
    """The next wider legal format of an op; "" where there is none."""
    own = node.df
    if own is None:
        return ""
    every = legal_formats(result.lowered, node.name, result.device)
    legal = [f for f in every if f.is_float and _width(f) > _width(own)]
    return min(legal, key=_width).name if legal else ""


def _width(df: DataFormat) -> tuple[int, int]:
    """Formats by how much they hold."""
    return df.datum_bits, df.mantissa_bits
