"""Runs of a netlist: what every op gives, against what its inputs, as they came, should give.

So an op is judged by itself, whatever came before it, with the one run that also gives the accumulated errors. Golden
mode rounds in two places only, what the host writes and results in small block formats. With both foreseen an op of a
run with formats is off by the noise of float32, so no run without rounding is needed to tell a fault from rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import torch

from tbuda_lab.core.bindings import array_type, nearest
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity, cut_blocks, parse_format, quantise, round_to
from tbuda_lab.core.graph import Node, NodeKind
from tbuda_lab.core.lowering.data_formats import legal_formats
from tbuda_lab.core.lowering.evaluate import leaf_value, op_value
from tbuda_lab.core.lowering.hw_ops import HwMatmul, HwOp
from tbuda_lab.core.name_patterns import name_pattern
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.find_error.graphs import TIES, GraphRun, differing_share, first_tile, relative_error
from tbuda_lab.core.session.find_error.report import FormatCost, OpError
from tbuda_lab.core.session.op_checks import whole_output
from tbuda_lab.core.verification import MAX_RELATIVE, TensorError, measure_error
from tbuda_lab.sim.numerics import covered_bits, leading_bits

Tensor = torch.Tensor
SLACK = 3.0
"""How much more than the rounding of its result an op may be off in golden mode: operands are rounded, too."""
_FLOOR = 2e-3
_FAR = 0.05  # of the largest magnitude: a tile that differs by more is pointed at
_ENOUGH = 1 << 15
_JUDGED = 4  # ops whose share of the outputs' error is worked out
TF32_BITS = 11
"""Significand bits of Tf32, the leading one included, which the multiplier takes of Float32."""
LEAVES = (NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT)
_CUT = frozenset((DataFormat.Bfp4, DataFormat.Bfp4_b, DataFormat.Bfp2, DataFormat.Bfp2_b))
_NOISE = 1e-5
"""Of the largest magnitude: how far sums of float32 in another order are apart at most."""
FORMULAS = {"gelu": 5e-4, "gelu_derivative": 2e-4}
"""How far a function of the device is from its definition: it has gelu by tanh, not by erf (tests measure it)."""


class NetlistRun:
    """One input through a netlist. got: by op its first output, (z, R, C) in whole tiles; leaves: what the ops read
    from outside, as the host gave it. runner: of this result and mode, one that keeps nothing from run to run."""

    def __init__(
        self, result: CompileResult, mode: str, feed: dict[str, Tensor], leaves: Mapping[str, Tensor], runner: Runner
    ) -> None:
        self.mode, self.result = mode, result
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
        self.leaves = {**leaves, **_given(result, runner)}
        self.outputs: dict[str, Tensor] = dict(zip(result.output_names, rows[0], strict=False))
        self.got = {n: torch.from_numpy(whole_output(result, n, seen[n])) for n in seen if n in result.placement.ops}
        self._rounded: dict[str, Tensor] = {}
        self._should: dict[str, Tensor | None] = {}
        self._of_written: dict[str, Tensor | None] = {}
        self._written: dict[str, Tensor] = {}
        self._parts: dict[str, object] = {}

    def as_asked(self, leaf: str) -> Tensor:
        """A leaf in the format that was asked for."""
        if leaf not in self._rounded:
            df = asked_format(self.result, self.result.lowered[leaf])
            value = self.leaves[leaf]
            floats = df is not None and df.is_float and value.is_floating_point()
            self._rounded[leaf] = _rounded(value, df) if df is not None and floats else value
        return self._rounded[leaf]

    def parts(self, op: str) -> int:
        """In how many parts a product sums its inner dimension."""
        if not self._parts:
            ops = [op for graph in self.result.netlist.graphs.values() for op in graph.ops.values()]
            self._parts = {op.name: op.attributes.get("m_k") for op in ops}
        written = self._parts.get(op)
        return written if isinstance(written, int) and written > 0 else 1

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

    def foreseen(self, node: Node) -> Tensor | None:
        """`should`, with what golden mode rounds rounded."""
        if self.mode == "exact":
            return self.should(node)
        value = self._unrounded(node)
        return value if value is None or node.df is None or node.df not in _CUT else _cut(value, node.df)

    def _unrounded(self, node: Node) -> Tensor | None:
        """What an op should give of what the host wrote, before it is rounded itself."""
        if not any(s in self.leaves for s in node.sources):
            return self.should(node)
        if node.name not in self._of_written:
            operands = [self.written(s) if s in self.leaves else self.got.get(s) for s in node.sources]
            known = [x for x in operands if x is not None]
            self._of_written[node.name] = op_value(node, known) if len(known) == len(operands) else None
        return self._of_written[node.name]

    def written(self, leaf: str) -> Tensor:
        """What the host writes for a leaf: a parameter is rounded by the compile, an input to the nearest, and anything
        by the conversion."""
        if leaf not in self._written:
            node, value = self.result.lowered[leaf], self.leaves[leaf]
            if node.kind is NodeKind.INPUT and value.is_floating_point():
                value = torch.from_numpy(nearest(value.numpy(), node.df))
            elif leaf in self.result.parameters:
                array = self.result.parameters[leaf]
                value = leaf_value(node, {leaf: torch.from_numpy(np.array(array, array_type(array)))})
            self._written[leaf] = _converted(value, node.df)
        return self._written[leaf]

    def explains(self, leaf: str) -> bool:
        """Whether what the host writes is off by no more than each number's last bit in its format. False also for
        blocks with a common exponent, of which that cannot be said."""
        df = self.result.lowered[leaf].df
        if df is None or not df.is_float or df.is_bfp:
            return df is None or not df.is_bfp
        return relative_error(self.leaves[leaf], self.written(leaf)) <= 2.0 ** (1 - df.mantissa_bits)

    def misfits(self, tolerance: float) -> list[tuple[Node, Tensor, float]]:
        """(op, value foreseen, relative error) of those that are off by more than `tolerance`, in schedule order."""
        found = []
        for name in self.result.placement.schedule:
            node, got = self.result.lowered[name], self.got.get(name)
            value = None if got is None else self.foreseen(node)
            if got is None or value is None:
                continue
            if torch.equal(value, got):
                continue
            if self.mode != "exact" and node.df is not None and node.df in _CUT:
                unrounded = self._unrounded(node)
                if unrounded is not None and unrounded.shape == got.shape:
                    value = _cut_near(unrounded, got, node.df, _formula(node))
            off = np.inf if value.shape != got.shape else relative_error(logical(node, value), logical(node, got))
            if not off <= tolerance:
                found.append((node, value, float(off)))
        return found

    def misfilled(self, tolerance: float) -> tuple[Node, float] | None:
        """The first op that leaves something else than foreseen in what fills its tiles (a mask of -inf beside the
        columns of a softmax), and how far off, relative, an op that reads it is for that; None where there is none."""
        users = self.result.lowered.users()
        for name in self.result.placement.schedule:
            node, got = self.result.lowered[name], self.got.get(name)
            value = None if got is None else self.foreseen(node)
            if got is None or value is None or value.shape != got.shape or torch.equal(value, got):
                continue
            whole = torch.where(self._beside(node, got), value, got)
            if torch.equal(whole, got):
                continue
            readers = {n for n, _ in users[name] if self.result.lowered[n].kind is NodeKind.OP}
            error = max((self._moved_by(self.result.lowered[n], name, whole) for n in sorted(readers)), default=0.0)
            if not error <= tolerance:
                return node, error
        return None

    @staticmethod
    def _beside(node: Node, value: Tensor) -> Tensor:
        """Where a value of whole tiles lies beside the op's own rows and columns."""
        beside = torch.ones_like(value, dtype=torch.bool)
        logical(node, beside)[...] = False
        return beside

    def _moved_by(self, reader: Node, name: str, value: Tensor) -> float:
        """Relative error of what an op gives with `value` in place of what `name` gave."""
        before = self.should(reader)
        operands = [value if s == name else self.value(s) for s in reader.sources]
        after = op_value(reader, [x for x in operands if x is not None]) if before is not None else None
        if before is None or after is None:
            return 0.0
        return relative_error(logical(reader, after), logical(reader, before))

    def lost_outputs(self, tolerance: float) -> list[str]:
        """Outputs that are not what their ops gave, as the host reads it."""
        lost = []
        for binding in self.result.outputs:
            node = self.result.lowered.nodes.get(binding.name)
            stored = None if node is None else self.value(node.sources[0])
            popped = self.outputs.get(binding.name)
            if node is None or stored is None or popped is None:
                continue
            plain_binding = dataclasses.replace(binding, tms=())
            expected = plain_binding.decode((stored if self.mode == "exact" else _converted(stored, node.df)).numpy())
            if not popped.is_floating_point():
                expected = expected.to(popped.dtype)
            if expected.numel() != popped.numel() or not relative_error(expected, popped) <= tolerance:
                lost.append(binding.name)
        return lost

    def output_errors(self, expected: Mapping[str, Tensor], stepped: Collection[str] = ()) -> tuple[TensorError, ...]:
        """What left the device against the reference, where both have it. stepped: outputs behind a threshold, of which
        a few numbers may lie on its other side."""
        errors = []
        for name, got in self.outputs.items():
            if name not in expected or expected[name].numel() != got.numel() or not got.is_floating_point():
                continue
            a, b = expected[name].double().numpy().reshape(-1), got.double().numpy().reshape(-1)
            near = nearly_all(a, b) if name in stepped else None
            errors.append(measure_error(name, a, b) if near is None else measure_error(name, a[near], b[near]))
        return tuple(errors)

    def loses_too_much(self, measured: TensorError, expected: Tensor, min_pcc: float) -> bool:
        """Whether an output, as `output_errors` measured it, is beyond what `TensorError.within` allows. Where a
        function is steep a rounding may move a few numbers far; all of them together no further than noise."""
        if measured.within(min_pcc):
            return False
        got = self.outputs[measured.name]
        few = nearly_all(expected.double().numpy().reshape(-1), got.double().numpy().reshape(-1)) is not None
        return not (few and measured.noise_within(min_pcc))

    def differing(self, expected: Mapping[str, Tensor]) -> float:
        """Of outputs that are whole numbers or truth values the largest share that differs from the reference's."""
        both = [(expected[n], got) for n, got in self.outputs.items() if n in expected]
        whole = [(a, b) for a, b in both if a.numel() == b.numel() and not a.is_floating_point()]
        return max((differing_share(a, b) for a, b in whole), default=0.0)


def nearly_all(expected: np.ndarray, got: np.ndarray) -> np.ndarray | None:
    """Where two arrays are near each other, if that is all but `TIES` of them; None where it is all, or fewer. NaN and
    infinities are left out nowhere."""
    scale = np.abs(expected).max(initial=0.0, where=np.isfinite(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        near = (np.abs(expected - got) <= MAX_RELATIVE * scale) | ~np.isfinite(got)
    return near if 1 - TIES <= near.mean() < 1 else None


def _given(result: CompileResult, runner: Runner) -> dict[str, Tensor]:
    """Leaves that a part of the host made in this run, of what the device had given it."""
    bindings = [b for b in result.inputs if runner.given and all(s in runner.given for s in b.sources)]
    return {
        b.name: leaf_value(result.lowered[b.name], {b.name: torch.from_numpy(np.array(b.encode(runner.given)))})
        for b in bindings
        if b.name in result.lowered.nodes
    }


def op_errors(
    result: CompileResult, run: NetlistRun, reference: GraphRun, wanted: Iterable[str] | None = None
) -> tuple[OpError, ...]:
    """Every placed op that there is a reference for, or those `wanted` of them, in schedule order."""
    names = result.placement.schedule if wanted is None else wanted
    every = (op_error(result, run, reference, result.lowered[name]) for name in names)
    return tuple(error for error in every if error is not None)


def op_error(
    result: CompileResult, run: NetlistRun, reference: GraphRun, node: Node, value: Tensor | None = None
) -> OpError | None:
    """Of one op, None where there is nothing to compare. value: what it should have given, its own `should` without.

    What the asked formats make of it is foreseen to the last bit in golden mode; "device" is held to an estimate.
    """
    wanted, got = reference.values.get(node.name), run.got.get(node.name)
    should = run.should(node) if value is None else value
    if got is None or wanted is None or should is None or should.shape != got.shape:
        return None
    own, arrived = logical(node, should), logical(node, got)
    isolated = measure_error(node.name, own.numpy(), arrived.numpy())
    if run.mode == "exact" or value is not None:
        expected = 0.0
    elif run.mode == "golden" and as_asked(run, node):
        expected = isolated.relative_l2
    else:
        expected = SLACK * _rounding(result, node, run, should) + _FLOOR
    near = isolated.max_abs <= _FAR * isolated.scale
    return OpError(
        node.name,
        isolated,
        measure_error(node.name, logical(node, wanted).numpy(), arrived.numpy()),
        expected,
        None if near else first_tile(own.numpy(), arrived.numpy(), _FAR),
    )


def as_asked(run: NetlistRun, node: Node) -> bool:
    """Whether an op and the leaves that it reads are in the formats that were asked for, and the leaves hold what those
    make of them: then golden mode does to it what was asked for."""
    leaves = [s for s in node.sources if s in run.leaves]
    read = (node, *(run.result.lowered[s] for s in leaves))
    return all(n.df is asked_format(run.result, n) for n in read) and all(map(run.explains, leaves))


def logical(node: Node, value: Tensor) -> Tensor:
    """A value without what fills its tiles."""
    _, z, rows, cols = node.shape
    return value[:z, :rows, :cols]


def _rounding(result: CompileResult, node: Node, run: NetlistRun, should: Tensor) -> float:
    """Relative error that the formats and the fidelity that were asked for make: of the result, and of parameters."""
    df = asked_format(result, node)
    total = _lost(should, df, node) ** 2
    if run.mode == "golden" and df in _CUT:  # a number just below a power of two loses more than a rounding
        total = max(total, relative_error(logical(node, should), logical(node, _cut(should, df))) ** 2)
    total += _lost_in_product(result, node, run, should) ** 2
    total += _lost_in_leaves(result, node, run, should) ** 2
    return float(np.sqrt(total))


def _lost_in_leaves(result: CompileResult, node: Node, run: NetlistRun, should: Tensor) -> float:
    """Relative error that rounding what an op reads from outside makes of its result: a difference of near numbers, or
    an exponential, is off by far more than they are."""
    if not any(source in run.leaves for source in node.sources):
        return 0.0
    operands = [run.as_asked(s) if s in run.leaves else run.value(s) for s in node.sources]
    known = [x for x in operands if x is not None]
    again = op_value(node, known) if len(known) == len(operands) else None
    return 0.0 if again is None else relative_error(logical(node, should), logical(node, again))


def _lost_in_product(result: CompileResult, node: Node, run: NetlistRun, should: Tensor) -> float:
    """Relative error that a device makes of a product: of its operands the asked fidelity multiplies the leading bits
    alone, and of Float32 those of Tf32; and its running sum is rounded between its parts. Where the terms of a sum
    cancel, its rounding is by far more than that of what is left."""
    if run.mode != "device" or not isinstance(node.op, HwOp):
        return 0.0
    operands = _multiplied(result, node, run, node.attrs.get("fidelity"))
    if operands is None:
        return 0.0
    lost = _lost_by_operands(node, run, should, operands)
    return math.hypot(lost, _lost_in_sum(node, operands, run.parts(node.name), should))


def _multiplied(
    result: CompileResult, node: Node, run: NetlistRun, fidelity: MathFidelity | None
) -> list[Tensor] | None:
    """The operands of an op as the multiplier takes them at a fidelity; None where one is not known."""
    assert isinstance(node.op, HwOp)
    operands: list[Tensor] = []
    for index, source in enumerate(node.sources):
        value, df = run.value(source), result.lowered[source].df
        if value is None:
            return None
        bits = 0 if fidelity is None else covered_bits(node.op.netlist_type, fidelity.name, index)
        if df is DataFormat.Float32:
            bits = min(bits or TF32_BITS, TF32_BITS)
        if bits and df is not None and df.is_float and bits < df.mantissa_bits:
            value = torch.from_numpy(leading_bits(np.ascontiguousarray(value.numpy(), np.float32), bits))
        operands.append(value)
    return operands


def _lost_by_operands(node: Node, run: NetlistRun, should: Tensor, operands: Sequence[Tensor] | None) -> float:
    """Relative error of an op for the bits that its operands have lost (`_multiplied`)."""
    if operands is None or all(value is run.value(s) for value, s in zip(operands, node.sources, strict=True)):
        return 0.0
    product = op_value(node, operands)
    return 0.0 if product is None else relative_error(logical(node, should), logical(node, product))


def _cure(result: CompileResult, run: NetlistRun, node: Node, should: Tensor) -> tuple[str, str]:
    """(format or fidelity of an op that makes most of its own error, what to give it instead; "" for nothing)."""
    df = node.df.name if node.df else ""
    fidelity = node.attrs.get("fidelity")
    if run.mode == "device" and isinstance(fidelity, MathFidelity) and isinstance(node.op, HwOp):

        def lost_at(fidelity: MathFidelity) -> float:
            return _lost_by_operands(node, run, should, _multiplied(result, node, run, fidelity))

        lost = lost_at(fidelity)
        if lost > _lost(should, node.df, node):
            higher = [f for f in MathFidelity if fidelity.value < f.value and f is not MathFidelity.Invalid]
            better = (f for f in higher if lost_at(f) < lost / 2)
            found = next(better, None)
            if found is not None:
                return fidelity.name, found.name
    # golden mode rounds no other results: what is lost there was lost by the host's conversion of what is read
    rounds = run.mode == "device" or node.df in _CUT
    return df, _wider(result, node) if rounds else ""


def _lost_in_sum(node: Node, operands: Sequence[Tensor], parts: int, should: Tensor) -> float:
    """Relative error of rounding a running sum `parts` times: of terms of random signs it is as long as the root of the
    sum of their squares, which the same op gives of squared operands."""
    df = node.df
    if not isinstance(node.op, HwMatmul) or node.op.sfpu_op or df is None or not df.is_float or not should.any():
        return 0.0
    squares = op_value(node, [x * x for x in operands])
    if squares is None:
        return 0.0
    terms = torch.linalg.vector_norm(logical(node, squares).abs().sqrt().double())
    whole = torch.linalg.vector_norm(logical(node, should).double())
    return float(terms / whole) * math.sqrt(parts) * 2.0 ** -min(df.mantissa_bits, TF32_BITS)


def _converted(value: Tensor, df: DataFormat | None) -> Tensor:
    """As the host converts it when it writes or reads a queue."""
    if df is None or not df.is_float or value.dtype is torch.int32:
        return value
    return torch.from_numpy(np.asarray(quantise(np.ascontiguousarray(value.numpy()), df), np.float32))


def _cut(value: Tensor, df: DataFormat) -> Tensor:
    """As golden mode's packer leaves a small block format."""
    return torch.from_numpy(cut_blocks(np.ascontiguousarray(value.numpy()), df))


def _formula(node: Node) -> float:
    """How far the function of an op may be from what the lowered graph gives, before it is rounded."""
    names = (getattr(node.op, "fn", ""), getattr(node.op, "sfpu_op", ""))
    return max(FORMULAS.get(name, 0.0) for name in names)


def _cut_near(value: Tensor, got: Tensor, df: DataFormat, formula: float) -> Tensor:
    """Of all that a packer may make of `value` what is nearest to `got`: the noise of a sum, or a function computed by
    another `formula`, moves a number over the edge between two steps of a small block, and its largest number over that
    between two exponents."""
    noise = _NOISE * float(value.abs().nan_to_num(0.0, 0.0).max()) + formula
    ends = _cut(value - noise, df), _cut(value + noise, df)
    near = got.clamp(torch.minimum(*ends), torch.maximum(*ends))
    return torch.where(near.isnan(), _cut(value, df), near)


def _rounded(value: Tensor, df: DataFormat) -> Tensor:
    """As a packer rounds it."""
    return torch.from_numpy(np.asarray(round_to(np.ascontiguousarray(value.numpy()), df), np.float32))


def _lost(value: Tensor, df: DataFormat | None, node: Node | None = None) -> float:
    """Relative error of rounding to a format, of whole rows of tiles as far as it takes to know it. node: whose value
    it is, without what fills its tiles, which is rounded with it."""
    if df is None or not df.is_float:
        return 0.0
    _, z, height, cols = (0, *value.shape) if node is None else node.shape
    rows = value[:z, :height].reshape(-1, value.shape[-1])
    some = np.ascontiguousarray(rows[: max(32, _ENOUGH // max(1, rows.shape[1]))].numpy())
    kept = torch.from_numpy(some)
    return relative_error(kept[:, :cols], _rounded(kept, df)[:, :cols])


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
    """(op or leaf, what is off) of those whose format in the netlist is not that of the lowered graph."""
    ops = [(op.name, op.out_df) for graph in result.netlist.graphs.values() for op in graph.ops.values()]
    leaves = {n.name for kind in LEAVES for n in result.lowered.of_kind(kind)}
    queues = [(queue.name, queue.df) for queue in result.netlist.queues.values() if queue.name in leaves]
    faults = []
    for name, df in (*ops, *queues):
        node, stated = result.lowered.nodes.get(name), _parsed(df)
        if node is not None and node.df is not None and stated is not None and stated is not node.df:
            faults.append((name, f"the netlist has {stated.name}, the lowered graph {node.df.name}"))
    return faults


def _parsed(text: object) -> DataFormat | None:
    if isinstance(text, DataFormat):
        return text
    try:
        return parse_format(str(text))
    except (InputError, KeyError, ValueError):
        return None


def output_costs(
    result: CompileResult,
    run: NetlistRun,
    reference: GraphRun,
    ops: tuple[OpError, ...],
    stepped: Collection[str] = (),
) -> tuple[FormatCost, ...]:
    """What the rounding of the ops that are off most makes of the outputs' error, each alone, largest first. stepped:
    see `NetlistRun.output_errors`."""
    popped = {n for n, value in run.outputs.items() if value.is_floating_point()}  # of indices there is no such error
    outputs = [n for n in result.lowered.outputs if n.name in reference.values and n.name in popped]
    costs = []

    def off_by(op: OpError) -> float:  # beside a mask of infinities, too
        node, should = result.lowered[op.op], run.should(result.lowered[op.op])
        return 0.0 if should is None else relative_error(logical(node, should), logical(node, run.got[op.op]))

    for op in sorted(ops, key=off_by, reverse=True)[:_JUDGED]:
        node = result.lowered[op.op]
        should = run.should(node)
        if should is None:
            continue
        same = torch.zeros_like(should)  # infinities less themselves are none
        off = torch.where(run.got[op.op] == should, same, run.got[op.op] - should)
        changed = reference.replaced({op.op: reference.values[op.op] + off})
        reached = [(n, reference.values[n.name], changed[n.name]) for n in outputs if n.name in changed]
        share = max((_moved(logical(n, a), logical(n, b), n.name in stepped) for n, a, b in reached), default=0.0)
        costly, instead = _cure(result, run, node, should)
        costs.append(FormatCost(op.op, costly, share, instead))
    return tuple(sorted(costs, key=lambda c: -c.share))


def _moved(before: Tensor, after: Tensor, stepped: bool) -> float:
    """Relative error of an output; of one behind a threshold of nearly all of it."""
    near = nearly_all(before.reshape(-1).double().numpy(), after.reshape(-1).double().numpy()) if stepped else None
    if near is None:
        return relative_error(before, after)
    kept = torch.from_numpy(near)
    return relative_error(before.reshape(-1)[kept], after.reshape(-1)[kept])


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
