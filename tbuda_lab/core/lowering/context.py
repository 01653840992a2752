"""The lowering context: emits hardware nodes, makes constants once, and brings operands into the form an op needs."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TILE, TM, Edge, Graph, Node, NodeKind, Payload, Shape
from tbuda_lab.core.graph.phases import ROLE, TRAINABLE, writes_by_parameter
from tbuda_lab.core.graph.tm import broadcast, transpose, vslice, vstack
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwOp, HwSparseMatmul, HwSplice, HwUnary
from tbuda_lab.core.lowering.padding import Padding
from tbuda_lab.core.lowering.values import TileValue, collapse, simplify, tiles_of
from tbuda_lab.core.lowering.weights import WeightLayout, arrange, arranged_shape
from tbuda_lab.core.ops.base import FILLS_ROWS
from tbuda_lab.sim.arrays import held_too_large

MAX_DENSE_SELECTION_TILES = 4096
"""Above this many constant tiles a column selection runs as transpose + row picker instead of a dense matmul."""

MAX_SPLICE_INPUTS = 8

_BYTES_OF_PLACE = 64
"""What is held at a time for each row or column that moves by itself (measured: 63 for a pad of 2 * 10^7 columns)."""

COLUMNS_OF_CORES, MOST_TURNED = 8, 48
"""Cores in a row of any device, at least, and tiles of a turned tensor's columns that one of them may hold."""

SPREADS = "spreads"
"""Attribute of a one-hot matmul that only fills tiles: "r" with their row 0, "c" with their column 0."""
SHARES = "shares_of_mean"
"""Attribute of a constant whose numbers, zeros apart, are 1 / n for a mean of n."""
SUMS = "sums"
"""Attribute of a matmul with a constant that sums, or takes a mean, along one dimension: "r" or "c"."""


class LoweringContext:
    """One lowering. `source` is the nD graph, `out` the lowered one, `node` the nD node at work."""

    def __init__(
        self, source: Graph, df: DataFormat, parts: Mapping[str, int] | None = None, host_fills: bool = True
    ) -> None:
        self.source = source
        self.host_fills = host_fills  # the tiles of parameters and constants with a size of 1 (`fill_tiles_on_host`)
        self.out = Graph(source.name)
        self.padding = Padding(self.out)
        self.df = df
        self.parts = parts or {}  # of convolutions that become several (see `split`)
        self.users = source.users()
        self._writes = writes_by_parameter(source)
        self.values: dict[str, TileValue] = {}
        self.node: Node = next(iter(source))
        self._constants: dict[tuple[object, ...], str] = {}
        self._emitted = 0

    # -- nodes -----------------------------------------------------------------------------------------------
    def begin(self, node: Node, part: int = 0) -> None:
        """part: of an op that becomes several, which one; only the first takes the node's name."""
        self.node = node
        self._emitted = part

    def after(self, node: Node) -> None:
        """What is emitted next comes behind the ops of a node that is lowered already."""
        self.node = node
        self._emitted = 1

    def fail(self, message: str, fix: str) -> UnsupportedOp:
        """The typed error for the nD node at work."""
        where = self.node.where
        kind = self.node.op.type if self.node.op else self.node.kind.value
        return UnsupportedOp(
            f"cannot lower {self.node.name!r} ({kind})",
            [Diagnostic("error", where, "lowering", message, fix)],
            [self.node.name],
        )

    def refuse_long_list(self, entries: int) -> None:
        """Raises `UnsupportedOp` where so many rows or columns, one by one, are more than this machine can list."""
        problem = held_too_large(_BYTES_OF_PLACE * entries)
        if problem:
            raise self.fail(
                f"it moves {entries:,} rows or columns one by one, which are listed: {problem}",
                "fewer of them, or cuts at whole tiles (multiples of 32)",
            )

    def emit(self, op: HwOp, operands: Sequence[TileValue], shape: Shape, **facts: bool) -> TileValue:
        """Add one hardware op of logical nD result `shape`; the first op of an nD node takes its name."""
        stem = self.node.name if self._emitted == 0 else f"{self.node.name}.lc{self._emitted}"
        self._emitted += 1
        edges = tuple(self.edge(v) for v in operands)
        node = Node(self.out.unique(stem), NodeKind.OP, (1, *collapse(shape)), op, edges, origin=self.node.origin)
        if self.node.op is not None:
            node.attrs["source"] = self.node.name
        self.out.add(node)
        self.padding.emitted(node, operands)
        return TileValue(node.name, shape, (), **facts)

    def read_once(self, value: TileValue) -> TileValue:
        """An input of the model through a nop: the parts of an op would each fetch all of it from DRAM."""
        shape = (1, *collapse(value.shape))
        nop = Node(
            self.out.unique(f"{self.node.name}_input_nop_0"),
            NodeKind.OP,
            shape,
            HwUnary("nop"),
            (self.edge(value),),
            origin=self.node.origin,
            attrs={"inserted": True},
        )
        return dataclasses.replace(value, node=self.out.add(nop).name, tms=())

    def edge(self, value: TileValue) -> Edge:
        _, z, rows, cols = self.out[value.node].shape
        return Edge(value.node, simplify(value.tms, (z, tiles_of(rows), tiles_of(cols))))

    def constant(self, array: np.ndarray, shape: Shape | None = None) -> TileValue:
        """A constant tensor; equal contents share one node. Sizes of 1 are replicated through the tile by the host."""
        array = np.ascontiguousarray(array, dtype=np.float32)
        shape = array.shape if shape is None else shape
        zrc = collapse(shape)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        key = (zrc, digest)
        if key not in self._constants:
            name = self.out.unique(f"lc.input_tensor.{self.node.name}.{self._emitted}")
            node = Node(name, NodeKind.CONSTANT, (1, *zrc), origin=self.node.origin, value=array.reshape(1, *zrc))
            self._constants[key] = self.out.add(node).name
        return stored_value(self._constants[key], shape)

    def operand(self, name: str) -> TileValue:
        """The value of an nD node; parameters and constants become lowered nodes when first read."""
        if name not in self.values:
            node = self.source[name]
            zrc = collapse(node.shape)
            kind = np.int32 if node.value is not None and node.value.dtype == np.int32 else np.float32
            value = None if node.value is None else np.asarray(node.value, kind).reshape(1, *zrc)
            self.out.add(
                Node(
                    name,
                    node.kind,
                    (1, *zrc),
                    origin=node.origin,
                    value=value,
                    attrs=dict(node.attrs),
                    recipe=node.recipe,
                    df=node.df,
                )
            )
            self.values[name] = self._stored_value(name, node.shape)
            if node.attrs.get(ROLE) == "accumulator":
                self.values[name] = self._accumulated_value(name, node.shape)
        return self.values[name]

    def _stored_value(self, name: str, shape: Shape) -> TileValue:
        """The value of a parameter or constant."""
        value = stored_value(name, shape)
        return value if self.host_fills else dataclasses.replace(value, fill_r=False, fill_c=False)

    def _accumulated_value(self, name: str, shape: Shape) -> TileValue:
        """A sum of gradients: its padding holds what theirs holds. They are lowered before who reads the sum."""
        write = self._writes.get(name)
        value = None if write is None else self.values.get(write.sources[0])
        if value is None:
            return TileValue(name, shape)
        return TileValue(name, shape, (), value.fill_r, value.fill_c, value.zero_r, value.zero_c)

    def weights(self, name: str, layout: WeightLayout) -> TileValue:
        """A parameter rearranged for the op that reads it; `layout` names the arrangement (see `weights.py`)."""
        node = self.source[name]
        if node.kind not in (NodeKind.PARAMETER, NodeKind.CONSTANT):
            raise self.fail(f"the weights {name!r} are computed at run time", "weights must be parameters or constants")
        own = f"{name}.{layout.suffix(node.shape[2:])}"
        if own not in self.out:
            shape = arranged_shape(layout, node.shape)
            value = None if node.value is None else arrange(layout, node.value).reshape(1, 1, *shape)
            attrs = {**node.attrs, "layout": layout, "layout_of": name}
            self.out.add(
                Node(
                    own,
                    node.kind,
                    (1, 1, *shape),
                    origin=node.origin,
                    value=value,
                    attrs=attrs,
                    recipe=node.recipe,
                    df=node.df,
                )
            )
        return self._stored_value(own, self.out[own].shape[1:])

    # -- operand forms ---------------------------------------------------------------------------------------
    def fill(self, value: TileValue, *, rows: bool = False, cols: bool = False) -> TileValue:
        """Replicate row 0 (column 0) of a one-row (one-column) tensor through its tile, by a one-hot matmul."""
        z, r, c = value.zrc
        rows, cols = rows and r == 1 and not value.fill_r, cols and c == 1 and not value.fill_c
        given, value = value, self.finite_padding(value, rows=rows, cols=cols)
        if rows:
            one_hot = np.zeros((TILE, TILE), np.float32)
            one_hot[:, 0] = 1.0
            pick = self.constant(one_hot)
            value = self.emit(
                HwMatmul(),
                [self._spread_z(pick, z), value],
                value.shape,
                fill_r=True,
                fill_c=value.fill_c,
                zero_c=value.zero_c,
            )
            self.out[value.node].attrs[SPREADS] = "r"
            self.padding.spreads(value, given)
        if cols:
            one_hot = np.zeros((TILE, TILE), np.float32)
            one_hot[0, :] = 1.0
            pick = self.constant(one_hot)
            value = self.emit(
                HwMatmul(),
                [value, self._spread_z(pick, z)],
                value.shape,
                fill_c=True,
                fill_r=value.fill_r,
                zero_r=value.zero_r,
            )
            self.out[value.node].attrs[SPREADS] = "c"
            self.padding.spreads(value, given)
        return value

    def _spread_z(self, value: TileValue, z: int) -> TileValue:
        _, r, c = value.zrc
        return (
            value
            if z == 1
            else value.through(
                broadcast("z", z),
                shape=(z, r, c),
                fill_r=value.fill_r,
                fill_c=value.fill_c,
                zero_r=value.zero_r,
                zero_c=value.zero_c,
            )
        )

    def expand(self, value: TileValue, shape: Shape, *, lead_only: bool = False) -> TileValue:
        """Broadcast to an nD `shape` (numpy's rule) with TMs; with `lead_only` only the leading dims must match."""
        value = self._expand_lead(value, shape)
        if lead_only:
            return value
        _, r, c = value.zrc
        _, rows, cols = collapse(shape)
        grow_r, grow_c = rows > 1 and r == 1, cols > 1 and c == 1
        value = self.fill(value, rows=grow_r, cols=grow_c)
        tms = []
        if grow_r:
            tms.append(broadcast("r", tiles_of(rows)))
        if grow_c:
            tms.append(broadcast("c", tiles_of(cols)))
        return value.through(
            *tms,
            shape=shape,
            fill_r=value.fill_r and rows == 1,
            fill_c=value.fill_c and cols == 1,
            zero_r=value.zero_r and not grow_r,
            zero_c=value.zero_c and not grow_c,
        )

    def _expand_lead(self, value: TileValue, shape: Shape) -> TileValue:
        lead = tuple(shape[:-2])
        own = (1,) * (len(shape) - len(value.shape)) + tuple(value.shape)
        while len(own) < 2:
            own = (1, *own)
        own_lead, tail = own[: len(own) - 2], own[-2:]
        own_lead = (1,) * (len(lead) - len(own_lead)) + own_lead
        facts = {"fill_r": value.fill_r, "fill_c": value.fill_c, "zero_r": value.zero_r, "zero_c": value.zero_c}
        if math.prod(own_lead) == math.prod(lead):
            return TileValue(value.node, (*lead, *tail), value.tms, **facts)
        # One slice is repeated by broadcast z, a whole stack by a copy of its own, for a broadcast along z takes one
        # slice. An inner axis of 1 under a larger outer one repeats each slice: broadcast r followed by vslice.
        tms: list[TM] = []
        inner = 1  # slices below the axis at work, already expanded
        for axis in reversed(range(len(lead))):
            if own_lead[axis] == lead[axis]:
                inner *= lead[axis]
                continue
            outer = math.prod(own_lead[:axis])
            factor = lead[axis]
            if outer == 1 and inner > 1:
                stack = value.through(*tms, shape=(inner, *tail), **facts)
                return self._repeat(stack, math.prod(lead[: axis + 1]), (*lead, *tail), facts)
            if outer == 1:
                tms.append(broadcast("z", factor))
            elif inner == 1:
                tms += [broadcast("r", factor), vslice(factor)]
            else:
                raise self.fail(
                    f"cannot broadcast {value.shape} to {shape}: a middle dim of 1 between larger dims",
                    "move the broadcast dim outermost or innermost of the leading dims",
                )
            inner *= factor
        return value.through(*tms, shape=(*lead, *tail), **facts)

    def _repeat(self, value: TileValue, factor: int, shape: Shape, facts: dict[str, bool]) -> TileValue:
        """A stack of slices `factor` times: what is stored the host writes so, anything else is spliced."""
        node, z = self.out[value.node], value.zrc[0]
        fixed = node.kind in (NodeKind.CONSTANT, NodeKind.PARAMETER) and not {ROLE, TRAINABLE} & node.attrs.keys()
        if fixed and not value.tms and node.name in self.source:
            own = f"{node.name}.times{factor}"
            if own not in self.out:
                whole = (1, z * factor, *node.shape[2:])
                array = None if node.value is None else np.tile(node.value, (1, factor, 1, 1))
                self.out.add(dataclasses.replace(node, name=own, shape=whole, value=array, attrs=dict(node.attrs)))
            return TileValue(own, shape, (), **facts)
        while factor > 1:
            many = next((n for n in range(MAX_SPLICE_INPUTS, 1, -1) if factor % n == 0), 0)
            if not many:  # a prime
                rest = self._repeat(value, factor - 1, (z * (factor - 1), *shape[-2:]), facts)
                splice = HwSplice("z", ((0, z * (factor - 1), z * (factor - 1)), (0, z, z)))
                return self.emit(splice, [rest, value], shape, **facts)
            z, factor = z * many, factor // many
            ranges = ((0, z // many, z // many),) * many
            value = self.emit(HwSplice("z", ranges), [value] * many, (z, *shape[-2:]), **facts)
        return TileValue(value.node, shape, value.tms, **facts)

    def mask_padding(self, value: TileValue, *, rows: bool = False, cols: bool = False) -> TileValue:
        """Make the padding rows or columns zero by multiplying with a 0/1 constant, where they are not known to be."""
        z, r, c = value.zrc
        for needed, is_zero, axis, size in ((rows, value.zero_r, 0, r), (cols, value.zero_c, 1, c)):
            if not needed or is_zero:
                continue
            padded = tiles_of(size) * TILE
            mask = (np.arange(padded) < size).astype(np.float32)
            # Sized to whole tiles, so that the zeros are data and not padding; the other dim is one, hence replicated.
            constant = self.constant(mask.reshape((padded, 1) if axis == 0 else (1, padded)))
            stretched = (padded, c) if axis == 0 else (r, padded)
            operand = self.expand(constant, (*((z,) if z > 1 else ()), *stretched))
            value = self.emit(
                HwBinary("multiply"),
                [value, operand],
                value.shape,
                fill_r=value.fill_r and axis == 1,
                fill_c=value.fill_c and axis == 0,
                zero_r=value.zero_r or axis == 0,
                zero_c=value.zero_c or axis == 1,
            )
        return value

    def finite_padding(self, value: TileValue, *, rows: bool = False, cols: bool = False) -> TileValue:
        """The value, its padding masked where it may hold an infinity: 0 times infinity is no number in a product of
        matrices."""
        rows, cols = rows and self.padding.along(value, 0) > 0, cols and self.padding.along(value, 1) > 0
        return self.mask_padding(value, rows=rows, cols=cols)

    # -- data movement ---------------------------------------------------------------------------------------
    def pick_rows(self, value: TileValue, shape: Shape, entries: np.ndarray) -> TileValue:
        """A row picker. `entries` (n, 3), logical: (slice, row) of the result, flat row z * R + r of the source."""
        _, r, _ = value.zrc
        padded = tiles_of(r) * TILE
        source = entries[:, 2].astype(np.int64)
        if r < padded:
            source = source // r * padded + source % r
        kind = np.int32 if max(source.max(initial=0), entries.max(initial=0)) < 2**31 else np.int64
        coords = np.empty(entries.shape, kind)
        coords[:, :2], coords[:, 2] = entries[:, :2], source
        picker = Payload(_in_order(coords))
        return self.emit(HwSparseMatmul(picker), [value], shape, zero_r=True, zero_c=value.zero_c, fill_c=value.fill_c)

    def pick_columns(self, value: TileValue, shape: Shape, source_of: np.ndarray) -> TileValue:
        """Column j of the result is column source_of[j] of the source, or zero where that is -1: turned, a row picker,
        and back. A product with a 0/1 matrix carries one NaN or infinity into every column of its row: it picks where
        that changes nothing, and is not too large."""
        z, r, c = value.zrc
        width = len(source_of)
        if FILLS_ROWS in self.node.attrs and tiles_of(c) * tiles_of(width) <= MAX_DENSE_SELECTION_TILES:
            value = self.finite_padding(value, cols=True)
            # Whole tiles of rows: a one-row constant would be replicated by the host.
            selection = np.zeros((tiles_of(c) * TILE, width), np.float32)
            used = np.flatnonzero(source_of >= 0)
            selection[source_of[used], used] = 1.0
            chosen = self._spread_z(self.constant(selection), z)
            facts = {"zero_r": value.zero_r, "zero_c": width != 1, "fill_c": width == 1, "fill_r": value.fill_r}
            return self.emit(HwMatmul(), [value, chosen], shape, **facts)
        parts = _parts_of_rows(tiles_of(r))
        if parts > 1:  # turned, they would lie side by side on one row of cores, and a picker streams along rows alone
            value = value.through(vslice(parts), shape=(z * parts, tiles_of(r) // parts * TILE, c), zero_c=value.zero_c)
            z, r, c = value.zrc
        turned = value.through(transpose(), shape=(z, c, r), zero_r=value.zero_c, zero_c=value.zero_r)
        used = np.flatnonzero(source_of >= 0)
        slices = np.repeat(np.arange(z), len(used))
        entries = np.stack([slices, np.tile(used, z), slices * c + np.tile(source_of[used], z)], axis=1)
        picked = self.pick_rows(turned, (z, width, r), entries)
        if parts > 1:
            return picked.through(transpose(), vstack(parts), shape=shape, zero_c=picked.zero_r)
        return picked.through(transpose(), shape=shape, zero_r=picked.zero_c, zero_c=picked.zero_r)


def _in_order(coords: np.ndarray) -> np.ndarray:
    """(n, 3) picker entries by slice, row and source; as they are where that is their order."""
    before, after = coords[:-1], coords[1:]
    later = before[:, 0] < after[:, 0]
    alike = before[:, 0] == after[:, 0]
    later |= alike & (before[:, 1] < after[:, 1])
    later |= alike & (before[:, 1] == after[:, 1]) & (before[:, 2] <= after[:, 2])
    return coords if later.all() else coords[np.lexsort((coords[:, 2], coords[:, 1], coords[:, 0]))]


def _parts_of_rows(count: int) -> int:
    """Into how many slices so many tiles of rows go before they are turned: one where a row of cores shares them out in
    pieces of at most `MOST_TURNED`."""
    if count // max(d for d in range(1, COLUMNS_OF_CORES + 1) if count % d == 0) <= MOST_TURNED:
        return 1
    return min(n for n in range(2, count + 1) if count % n == 0 and count // n <= MOST_TURNED)


def stored_value(name: str, shape: Shape) -> TileValue:
    """The value of a host-fed queue: padding is zero, and the host replicates sizes of 1 through the tile."""
    _, r, c = collapse(shape)
    return TileValue(name, shape, fill_r=r == 1, fill_c=c == 1, zero_r=r != 1, zero_c=c != 1)


Lowerer = Callable[[LoweringContext, Any, list[TileValue], Shape], TileValue]
"""(context, the nD op, its operands, the nD shape of the result) -> the value; the op is of the registered type."""
LOWERERS: dict[str, Lowerer] = {}


def lowers(*types: str) -> Callable[[Lowerer], Lowerer]:
    """Register the lowering of canonical nD ops by type name."""

    def register(function: Lowerer) -> Lowerer:
        for name in types:
            if name in LOWERERS:
                raise ValueError(f"{name!r} has two lowerings")
            LOWERERS[name] = function
        return function

    return register
