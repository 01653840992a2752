"""Which op goes wrong: every op's tensor from the executor against torch, and every stage against the one before."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.balancer.streaming import unstream_tms
from tbuda_lab.core.bindings import array_type
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frontend.inputs import draw_masks, elements
from tbuda_lab.core.graph import TILE, Node
from tbuda_lab.core.lowering.evaluate import apply, evaluate_ops, plain
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.verification import MIN_PCC, Comparison, compare

_FAR = 0.05  # of the largest expected magnitude: a tile that differs by more is pointed at


@dataclasses.dataclass(frozen=True)
class OpCheck:
    """One op against torch. tiles: (z, rows, columns) float32, largest difference within each tile; first: the first
    tile that differs by more than 5 % of the largest expected magnitude, of whole numbers at all, None where none
    does."""

    comparison: Comparison
    tiles: np.ndarray
    first: tuple[int, int, int] | None

    @property
    def op(self) -> str:
        return self.comparison.name


@dataclasses.dataclass(frozen=True)
class OpChecks:
    """ops: in schedule order; unchecked: placed ops that there is no reference for. stages: what each stage after the
    first has in common with the traced graph, compared with it: "passed" nodes of the same name and shape and the
    outputs, "lowered" the outputs."""

    ops: tuple[OpCheck, ...]
    unchecked: tuple[str, ...]
    stages: dict[str, tuple[Comparison, ...]]
    min_pcc: float = MIN_PCC

    @property
    def first_failure(self) -> OpCheck | None:
        """The first op of the schedule whose correlation is below `min_pcc`."""
        return next((c for c in self.ops if not c.comparison.passes(self.min_pcc)), None)

    def __getitem__(self, op: str) -> OpCheck:
        for check in self.ops:
            if check.op == op:
                return check
        raise KeyError(f"{op!r} was not compared")


def check_ops(runner: Runner, sample: Any, min_pcc: float = MIN_PCC, cancel: threading.Event | None = None) -> OpChecks:
    """Run the first element of a sample and compare every op's output with the lowered graph evaluated in float32.

    Raises what the run raises. Works for a microbatch of one and more (the element is repeated).
    """
    result = runner.result
    if not isinstance(result, CompileResult):
        raise InputError("an image holds no lowered graph to compare its ops with; Session.open compiles it again")
    feeds = frontend.feeds(result.graph, sample)
    feed = next(iter(elements(result.graph, feeds))) | draw_masks(result.graph, 1)
    got = _execute(runner, feed, cancel)
    inputs = lowered_inputs(result, feed)
    checks: dict[str, OpCheck] = {}
    leaving = {node.sources[0] for node in result.lowered.outputs}
    unread: dict[str, torch.Tensor] = {}
    for node, reference in evaluate_ops(result.lowered, inputs):
        if node.name in leaving:
            unread[node.name] = reference
        if node.name in got:
            checks[node.name] = compare_op(node, reference.numpy(), whole_output(result, node.name, got.pop(node.name)))
    schedule = [n for n in result.placement.schedule if n in result.placement.ops]
    return OpChecks(
        tuple(checks[n] for n in schedule if n in checks),
        tuple(n for n in schedule if n not in checks),
        _stages(result, feed, unread),
        min_pcc,
    )


class OpWatch:
    """Compares the first output of every op with torch while a run goes (`take` is an executor's `on_op`), and calls
    `stop` once, with the first op that correlates less than `min_pcc`. sample: the first one that runs."""

    def __init__(self, result: CompileResult, sample: Any, min_pcc: float, stop: Callable[[OpCheck], None]) -> None:
        self.result, self.min_pcc, self._stop = result, min_pcc, stop
        feed = next(iter(elements(result.graph, frontend.feeds(result.graph, sample))))
        self._references = evaluate_ops(result.lowered, lowered_inputs(result, feed))
        self._ready: dict[str, tuple[Node, torch.Tensor]] = {}
        self._checks: dict[str, OpCheck | None] = {}
        self.failure: OpCheck | None = None

    def take(self, name: str, output: np.ndarray) -> None:
        """An op gave (n, t, R, C)."""
        if name in self._checks or name not in self.result.placement.ops:
            return
        while name not in self._ready:
            following = next(self._references, None)
            if following is None:
                self._checks[name] = None  # there is no reference for it
                return
            self._ready[following[0].name] = following
        node, reference = self._ready.pop(name)
        got = whole_output(self.result, name, np.array(output[0], array_type(output)))
        check = self._checks[name] = compare_op(node, reference.numpy(), got)
        if self.failure is None and not check.comparison.passes(self.min_pcc):
            self.failure = check
            self._stop(check)

    @property
    def checks(self) -> OpChecks:
        """What was compared so far."""
        schedule = [n for n in self.result.placement.schedule if n in self._checks]
        checked = tuple(c for n in schedule if (c := self._checks[n]) is not None)
        return OpChecks(checked, tuple(n for n in schedule if self._checks[n] is None), {}, self.min_pcc)


def lowered_inputs(result: CompileResult, feed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the lowered graph reads, by name."""
    fed = result.device_feeds(feed)
    inputs = {b.name: torch.from_numpy(np.require(b.encode(fed), requirements="W")) for b in result.inputs}
    return inputs | {
        name: torch.from_numpy(np.asarray(value, array_type(np.asarray(value))))
        for name, value in result.parameters.items()
        if name in result.lowered.nodes and result.lowered[name].value is None
    }


def _execute(runner: Runner, feed: dict[str, torch.Tensor], cancel: threading.Event | None) -> dict[str, np.ndarray]:
    """By op, what it gave for the first input, (t, R, C) as it leaves the cores."""
    seen: dict[str, np.ndarray] = {}

    def take(name: str, output: np.ndarray) -> None:
        if name not in seen:
            seen[name] = np.array(output[0], array_type(output))

    before, runner.executor.on_op = runner.executor.on_op, take
    try:
        batch = runner.result.options.microbatch
        samples = [{n.name: feed[n.name] for n in runner.result.graph.inputs}] * batch
        runner.run(samples, cancel=cancel)
    finally:
        runner.executor.on_op = before
    return seen


def whole_output(result: CompileResult, name: str, stored: np.ndarray) -> np.ndarray:
    """A streamed output put together again, (z, R, C)."""
    table, at = result.placement.models[name], result.placement.ops[name].row
    if table.profile is None:
        return stored
    return apply(unstream_tms(table.profile, table.rows[at]), torch.from_numpy(stored)).numpy()


def compare_op(node: Node, expected: np.ndarray, got: np.ndarray) -> OpCheck:
    """What an op gave, (z, R, C), against what is wanted; rows and columns beyond the node's shape count nothing. Whole
    numbers have to be equal. Raises `ValueError` for another shape."""
    _, _, rows, cols = node.shape
    if got.shape != expected.shape:
        raise ValueError(f"{node.name}: the executor gave {got.shape}, the lowered graph {expected.shape}")
    a, b = expected[:, :rows, :cols], got[:, :rows, :cols]
    whole = a.dtype.kind == "i" and b.dtype.kind == "i"
    comparison = dataclasses.replace(compare(node.name, a, b), exact=whole)
    wide = np.float64 if whole else np.float32  # differences of 32-bit numbers wrap
    tiles = _by_tile(np.abs(a.astype(wide) - b.astype(wide)))
    with np.errstate(invalid="ignore"):
        far = np.argwhere(tiles > 0 if whole else ~(tiles <= _FAR * max(comparison.scale, 1e-6)))
    first = (int(far[0, 0]), int(far[0, 1]), int(far[0, 2])) if len(far) else None
    return OpCheck(comparison, tiles, first)


def _by_tile(values: np.ndarray) -> np.ndarray:
    """(z, rt, ct) largest value within each tile."""
    z, rows, cols = values.shape
    rt, ct = -(-rows // TILE), -(-cols // TILE)
    full = np.zeros((z, rt * TILE, ct * TILE), np.float32)
    full[:, :rows, :cols] = values
    largest: np.ndarray = full.reshape(z, rt, TILE, ct, TILE).max(axis=(2, 4))
    return largest


def _stages(
    result: CompileResult, feed: dict[str, torch.Tensor], left: dict[str, torch.Tensor]
) -> dict[str, tuple[Comparison, ...]]:
    """left: what the lowered graph gives for the producers of its outputs, (z, R, C)."""
    traced, passed = evaluate_nodes(result.graph, feed), evaluate_nodes(result.passed, result.device_feeds(feed))
    shown = {node.name for node in (*result.passed.ops, *result.passed.outputs)}
    lowered = {
        b.name: dataclasses.replace(b, tms=()).decode(left[node.sources[0]].numpy())
        for b, node in ((b, result.lowered[b.name]) for b in result.outputs)
        if node.sources[0] in left
    }
    return {
        "passed": _same(traced, {name: value for name, value in passed.items() if name in shown}),
        "lowered": _same(traced, lowered),
    }


def _same(expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> tuple[Comparison, ...]:
    return tuple(
        compare(name, plain(expected[name]).numpy(), plain(value).numpy())
        for name, value in got.items()
        if name in expected and tuple(expected[name].shape) == tuple(value.shape)
    )
