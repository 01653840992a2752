"""Extra streams and L1 of the cores of placed ops, counted by the functions that judge netlists
(routing.md#extra-streams, routing.md#l1-of-a-core)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tbuda_lab.core.balancer.l1 import late_tiles
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.balancer.routes import net_steps, reader
from tbuda_lab.core.balancer.streaming import edge_tms
from tbuda_lab.core.balancer.types import OpModels, OpPlacement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.fused_steps import intermediate_ublocks
from tbuda_lab.core.lowering.hw_ops import HwFused, HwReduce, HwSparseMatmul
from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand
from tbuda_lab.core.netlist.cores.router import router_streams
from tbuda_lab.core.netlist.cores.usage import CoreLoad, core_buffers
from tbuda_lab.core.netlist.routing.edge import MOST_TILES
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source, Step


class OpQueues(NamedTuple):
    """What an op reads from queues and writes to them.

    read: by operand the queue that it is read from, where it is not made in the same epoch, and of a picker by kind
    those of its tiles and encoding; ahead: which of them are preloaded; written: queues and rams that the op writes.
    """

    read: Mapping[int | str, QueuePlacement]
    ahead: frozenset[int | str]
    written: Sequence[QueuePlacement]


class CoreLoads:
    """Counts the extra streams and the bytes of the cores of an op among others that are placed, from the ops and
    operands that the check of the netlist will see."""

    def __init__(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        placed: Mapping[str, OpPlacement],
        orders: Mapping[str, str],
        users: Mapping[str, Sequence[tuple[str, int]]],
        device: DeviceSpec,
        input_tiles: Mapping[str, Sequence[int]],
        known: dict[tuple[object, ...], CoreLoad] | None = None,
    ) -> None:
        """input_tiles: least tiles of input buffers, by op and operand, where some are asked for (0: as they come);
        known: what was counted before, for ops among equal neighbours; what is found is added."""
        self.known = {} if known is None else known
        self.graph, self.models, self.placed, self.users = graph, models, placed, users
        self.orders, self.device, self.input_tiles = orders, device, input_tiles

    def of(self, op: str, queues: OpQueues, input_count: int) -> CoreLoad:
        """What an op takes. Where the lists are too long to be written down, no streams and the bytes of the
        candidate."""
        key = self._key(op, queues, input_count)
        entry = self.known.get(key)
        if entry is None:
            entry = self.known[key] = self._count(op, queues, input_count)
        return entry

    def _key(self, op: str, queues: OpQueues, input_count: int) -> tuple[object, ...]:
        """All that a count follows from."""
        layouts = [(port, q.grid, q.t, q.mblock, q.ublock, q.ublock_order) for port, q in queues.read.items()]
        taken = [(q.grid, q.t, q.mblock, q.ublock, q.ublock_order) for q in queues.written]
        sources = [self._candidate(edge.source) for edge in self.graph[op].inputs]
        readers = [(self._candidate(name), port) for name, port in self._readers(op)]
        parts = tuple(layouts), tuple(taken), tuple(sources), tuple(readers)
        return self._candidate(op), queues.ahead, input_count, *parts

    def _candidate(self, op: str) -> tuple[object, ...]:
        """What an op is as a neighbour; nothing of what is no op."""
        if op not in self.placed:
            return ()
        asked = tuple(self.input_tiles.get(op, ()))
        return self.models[op].signature, self.placed[op].row, self.orders.get(op, "r"), asked

    def _readers(self, op: str) -> list[tuple[str, int]]:
        """What reads an op's output from its buffer."""
        return [
            (name, port)
            for name, port in self.users[op]
            if name in self.placed
            and self.placed[name].epoch == self.placed[op].epoch
            and port not in queued_ports(self.graph[name])
        ]

    def _count(self, op: str, queues: OpQueues, input_count: int) -> CoreLoad:
        described = self.describe(op, queues)
        if described is None:
            profile, rows = self._row(op)
            return CoreLoad(0, int(rows["l1_total"][0]) - profile.headers)
        core, readers = described
        arch = self.device.arch
        cores = core_buffers(core, readers, input_count, arch)
        most = max(int(router_streams(core, readers, input_count, arch).max()), int(cores.streams.max()))
        at, size = cores.fullest()
        buffers = tuple((kind, tuple(sizes)) for kind, sizes in cores.of_core(at).items())
        return CoreLoad(most, size, buffers, core.tile_sizes, bool(readers))

    def describe(self, op: str, queues: OpQueues) -> tuple[CoreOp, tuple[CoreOperand, ...]] | None:
        """The op, and the operands of what reads it, as `netlist.cores` takes them; see `of`."""
        count = len(self.graph[op].inputs)
        operands = [self._operand(op, port, queues.read.get(port), port in queues.ahead) for port in range(count)]
        if isinstance(self.graph[op].op, HwSparseMatmul):
            operands = self._picker(op, queues, operands[0])
        readers = [self._operand(name, port, None, False) for name, port in self._readers(op)]
        if None in operands or None in readers or not operands:
            return None
        core = self._core(op, [operand for operand in operands if operand is not None])
        if readers and not core.untilized:
            readers += [CoreOperand(self._made(op), (), _writes(queue), 1) for queue in queues.written]
        return core, tuple(reader for reader in readers if reader is not None)

    def _row(self, op: str) -> tuple[OpProfile, np.ndarray]:
        table, at = self.models[op], self.placed[op].row
        assert table.profile is not None
        return table.profile, table.rows[at : at + 1]

    def _operand(self, op: str, port: int, queue: QueuePlacement | None, ahead: bool) -> CoreOperand | None:
        """An operand as the netlist will have it; None where its lists are too long to be written down."""
        profile, rows = self._row(op)
        source = self.graph[op].inputs[port].source
        writer = self._row(source) if source in self.placed else None
        asked = self.input_tiles.get(op, ())
        least = int(asked[port]) if port < len(asked) else 0
        if profile.uses and profile.uses[port].late:
            least = max(least, int(late_tiles(as_read(profile, port, rows))[0]))
        return _known(
            CoreOperand(
                _stored(queue) if queue is not None else self._made(source),
                net_steps(edge_tms(writer and writer[0], writer and writer[1][0], profile, port, rows[0])),
                _whole(reader(profile, port, rows, self.orders.get(op, "r"))),
                tile_bytes(profile.operands[port].df, align=self.device.tile_align),
                ahead,
                least,
            )
        )

    def _picker(self, op: str, queues: OpQueues, activation: CoreOperand | None) -> list[CoreOperand | None]:
        """The operands of a sparse matmul in the netlist's order: sparse tiles, activation, encoding."""
        _, rows = self._row(op)
        plain = _whole(reader(self._row(op)[0], 0, rows, self.orders.get(op, "r")))
        columns = int(rows["grid_c"][0])
        parts: list[CoreOperand | None] = []
        for port, kind in ((0, "sparse_tiles"), (2, "sparse_encoding")):
            source = _stored(queues.read[kind])
            steps: tuple[Step, ...] = (("c", columns),) if columns > 1 or port == 2 else ()
            read = dataclasses.replace(plain, port=port, tiles=source.tiles)
            tile = tile_bytes(queues.read[kind].df, align=self.device.tile_align)
            parts.append(_known(CoreOperand(source, steps, read, tile, kind in queues.ahead)))
        return [parts[0], activation, parts[1]]

    def _made(self, op: str) -> Source:
        """The layout of what an op hands on within its epoch."""
        profile, rows = self._row(op)
        field = {name: int(rows[name][0]) for name in _FIELDS}
        return Source(
            (field["grid_r"], field["grid_c"]),
            field["t"],
            (field["mblock_m"], field["mblock_n"]),
            (field["ublock_r"], field["ublock_c"]),
            self.orders.get(op, "r"),
            field["buf_size_mb"],
            profile.op.netlist_type,
            profile.feeds_host,
        )

    def _core(self, op: str, operands: Sequence[CoreOperand]) -> CoreOp:
        profile, rows = self._row(op)
        made, first, hw = self._made(op), operands[0].reader, profile.op
        align, fused = self.device.tile_align, isinstance(profile.op, HwFused)
        parts: list[int] = []
        if isinstance(hw, HwFused):
            block = (*made.mblock, *made.ublock)
            m_k, u_kt = int(rows["m_k"][0]), int(rows["u_kt"][0])
            parts = intermediate_ublocks(hw, self.device.arch, block, m_k, u_kt)
        sums = profile.kind in ("matmul", "sparse_matmul", "depthwise") or isinstance(hw, HwReduce)
        return CoreOp(
            "fused" if fused else first.type,
            made.grid,
            made.t,
            made.mblock,
            made.ublock,
            made.order,
            made.buf_size_mb,
            tile_bytes(profile.df, align=align),
            tile_bytes(profile.df, align=align, header=False),
            tile_bytes(profile.intermed_df, align=align),
            tuple(operands),
            max(int(first.m_k), 1) if sums else 1,
            max(int(first.u_kt), 1) if sums else 1,
            profile.z_group,
            first.dim if not fused else "",
            bool(getattr(hw, "bias", False)),
            bool(getattr(hw, "accumulate", False)),
            profile.feeds_host,
            0 if profile.kind in ("matmul", "depthwise") else -1,
            len(parts),
            profile.accumulates,
            max(parts, default=0),
        )


SPARSE_KINDS = ("sparse_tiles", "sparse_encoding")
"""Kinds of the queues that a picker has beside its operand."""
_FIELDS = ("grid_r", "grid_c", "t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "buf_size_mb")


def _known(operand: CoreOperand) -> CoreOperand | None:
    """The operand; None where its lists are too long to be written down."""
    t, r, c = operand.source.shape
    return operand if t * r * c <= MOST_TILES and operand.fits else None


def _writes(queue: QueuePlacement) -> EdgeReader:
    """A queue as what an op writes into."""
    return EdgeReader("queue", 0, queue.grid, queue.t, queue.mblock, queue.ublock, queue.ublock_order)


def _stored(queue: QueuePlacement) -> Source:
    return Source(queue.grid, queue.t, queue.mblock, queue.ublock, queue.ublock_order, 1, "queue")


def _whole(read: EdgeReader) -> EdgeReader:
    """The reader of a single candidate, with numbers in place of arrays."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return int(value[0]) if isinstance(value, np.ndarray) else value

    return dataclasses.replace(read, **{f.name: plain(getattr(read, f.name)) for f in dataclasses.fields(read)})
