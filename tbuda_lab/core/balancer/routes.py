"""The router's rules of stacks and slices for every pair of candidates of an edge, as array expressions.

Of a producer only its streaming and its output buffer count, of a reader only its streaming and how it reads the
operand. A table works out one block of verdicts for each pair of streamings that is asked for: all buffers of the
producer against all layouts of the reader at once.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.balancer.blocks import group_numbers
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.balancer.streaming import edge_tms, stored_shape
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.graph import TM
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSplice
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source, Step, shape_after, view
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.netlist.routing.stacks import chain_of, phases, sent_in_phases

Ids = npt.NDArray[np.int64]
_STREAM = ("stream", "stream_r", "stream_c")
_LAYOUT = (*_STREAM, "grid_r", "grid_c", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "m_k", "u_kt")


def net_steps(tms: tuple[TM, ...]) -> tuple[Step, ...]:
    """TMs of a graph in the router's terms."""
    return tuple((str(tm.args[0]), int(tm.args[1])) if tm.name == "broadcast" else (tm.name, *tm.args) for tm in tms)


def net_port(profile: OpProfile, port: int) -> int:
    """The number of an operand in the netlist, where a sparse matmul has its tiles first."""
    return port + 1 if profile.kind == "sparse_matmul" else port


def reader(profile: OpProfile, port: int, rows: np.ndarray, order: str) -> EdgeReader:
    """How candidates of an op read an operand; rows (n,) CANDIDATE, order: of the op's ublocks."""
    rows = as_read(profile, port, rows)
    field = {name: rows[name].astype(np.int64) for name in _LAYOUT[3:]}
    op, role = profile.op, profile.operands[port].role
    kind, dim, by = "eltwise", "", "t"
    if profile.fused_sums and role != "elt":
        kind = "fused"
    elif role == "bias":
        pass
    elif profile.kind in ("matmul", "sparse_matmul", "depthwise"):
        kind = profile.kind
    elif isinstance(op, HwReduce):
        kind, dim = "reduce", op.dim
    elif isinstance(op, HwSplice):
        kind, by = "splice", "t" if op.axis == "z" else "ublock"
    return EdgeReader(
        kind,
        net_port(profile, port),
        (field["grid_r"], field["grid_c"]),
        rows["t"].astype(np.int64),
        (field["mblock_m"], field["mblock_n"]),
        (field["ublock_r"], field["ublock_c"]),
        order,
        op.netlist_type,
        m_k=np.maximum(field["m_k"], 1),
        u_kt=np.maximum(field["u_kt"], 1),
        z=profile.z_group,
        dim=dim,
        use="matmul" if kind == "fused" else "eltwise",
        operand=1 if role == "in1" else 0,
        splice_by=by,
    )


def output_buffer_rules(rows: np.ndarray, input_count: int) -> np.ndarray:
    """Which candidates have an output buffer that the router refuses whoever reads it: bool (n,)."""
    size, t = rows["buf_size_mb"].astype(np.int64), rows["t"].astype(np.int64)
    single = np.where(size == 1, 1, np.maximum(size // 2, 1))
    slots = np.minimum(single, input_count * t)
    good = (size == 1) | ((size >= 2) & (size % 2 == 0))
    for buffers in (single, slots):
        good &= (buffers % t == 0) | (t % buffers == 0)
    refused: np.ndarray = ~good
    return refused


class _Rows:
    """The distinct streamings, output buffers and layouts among the rows of a table: each as the number that every row
    has, (n,), and a row of each number."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    @functools.cached_property
    def streams(self) -> tuple[Ids, Ids]:
        return _distinct(self.rows, _STREAM)

    @functools.cached_property
    def buffers(self) -> tuple[Ids, Ids]:
        return _distinct(self.rows, ("buf_size_mb",))

    @functools.cached_property
    def layouts(self) -> tuple[Ids, Ids]:
        return _distinct(self.rows, _LAYOUT)


def _distinct(rows: np.ndarray, names: tuple[str, ...]) -> tuple[Ids, Ids]:
    number = group_numbers(*(rows[name] for name in names))
    first = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    first[number[::-1]] = np.arange(len(rows) - 1, -1, -1)  # of equal numbers the last one written stays
    return number, first


class RouteTable:
    """Verdicts on an edge by row of the producer and row of the reader. order: of the reader's ublocks."""

    def __init__(
        self,
        producer: OpModels,
        p_kinds: _Rows,
        consumer: OpModels,
        c_kinds: _Rows,
        port: int,
        order: str,
        input_count: int,
    ) -> None:
        assert producer.profile is not None and consumer.profile is not None
        self._ends = producer.profile, producer.rows, consumer.profile, consumer.rows
        self._port, self._order, self._count = port, order, input_count
        self._p, self._c = p_kinds, c_kinds
        self._blocks: dict[tuple[int, int], np.ndarray | None] = {}

    def rule(self, p_row: int, c_row: int) -> RouteRule:
        """The rule that a pair of rows breaks."""
        block = self._block(int(self._p.streams[0][p_row]), int(self._c.streams[0][c_row]))
        if block is None:
            return RouteRule.OK
        return RouteRule(int(block[self._p.buffers[0][p_row], self._c.layouts[0][c_row]]))

    def rules(self, p_rows: Ids, c_rows: Ids) -> Ids:
        """The rule of each pair (n,) of rows; arrays that broadcast."""
        p_rows, c_rows = np.broadcast_arrays(p_rows, c_rows)
        rules = np.zeros(p_rows.shape, np.int64)
        count = len(self._c.streams[1])
        pair = self._p.streams[0][p_rows] * count + self._c.streams[0][c_rows]
        for number in np.unique(pair).tolist():
            block = self._block(*divmod(number, count))
            if block is not None:
                mine = pair == number
                rules[mine] = block[self._p.buffers[0][p_rows[mine]], self._c.layouts[0][c_rows[mine]]]
        return rules

    def _block(self, p_stream: int, c_stream: int) -> np.ndarray | None:
        """(buffers of the producer, layouts of the reader) rules; None where no stack is in the way."""
        key = p_stream, c_stream
        if key not in self._blocks:
            self._blocks[key] = self._judge(p_stream, c_stream)
        return self._blocks[key]

    def _judge(self, p_stream: int, c_stream: int) -> np.ndarray | None:
        producer, p_rows, consumer, c_rows = self._ends
        p_row, c_row = p_rows[self._p.streams[1][p_stream]], c_rows[self._c.streams[1][c_stream]]
        steps = net_steps(edge_tms(producer, p_row, consumer, self._port, c_row))
        chain = chain_of(steps)
        if not chain.has_stack:
            return None
        after = shape_after(stored_shape(producer, p_row), steps)
        t = int(p_row["t"])
        sizes = p_rows["buf_size_mb"][self._p.buffers[1]].astype(np.int64)
        slots = Source((1, 1), t, (1, 1), (1, 1), "r", sizes).slots(self._count)
        in_phases = sent_in_phases(chain, t, slots)
        if not in_phases.any():
            return None
        layouts = self._c.layouts[1]
        mine = np.flatnonzero(self._c.streams[0][layouts] == c_stream)
        rows = c_rows[layouts[mine]]
        seen = view(reader(consumer, self._port, rows, self._order), after)
        verdict = phases(chain, slots[:, None], after[1:], (0, 0), seen)
        rule = np.where(verdict.rule == 0, np.where(verdict.uneven, int(RouteRule.UNFED_CORE), 0), verdict.rule)
        block = np.zeros((len(sizes), len(layouts)), np.uint8)
        block[:, mine] = np.where(in_phases[:, None], rule, 0)
        return block


class Routes:
    """The tables of all edges, made when they are first asked for; equal ops share them. input_count: inputs that a
    graph works on at a time."""

    def __init__(self, input_count: int) -> None:
        self._count = input_count
        self._tables: dict[tuple[str, str, int, str], RouteTable] = {}
        self._rows: dict[str, _Rows] = {}

    def table(self, producer: OpModels, consumer: OpModels, port: int, order: str) -> RouteTable:
        """The table of an edge; order: of the reader's ublocks."""
        key = producer.signature, consumer.signature, port, order
        entry = self._tables.get(key)
        if entry is None:
            ends = self._rows_of(producer), self._rows_of(consumer)
            entry = self._tables[key] = RouteTable(producer, ends[0], consumer, ends[1], port, order, self._count)
        return entry

    def _rows_of(self, table: OpModels) -> _Rows:
        entry = self._rows.get(table.signature)
        if entry is None:
            entry = self._rows[table.signature] = _Rows(table.rows)
        return entry
