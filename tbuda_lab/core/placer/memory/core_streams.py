"""Extra streams and L1 of the cores of placed ops, counted by the functions that judge netlists
(routing.md#extra-streams, routing.md#l1-of-a-core)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.balancer.l1 import late_tiles, preloads
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.balancer.routes import net_steps, reader
from tbuda_lab.core.balancer.streaming import edge_tms
from tbuda_lab.core.balancer.types import OpModels, OpPlacement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import HwFused
from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand
from tbuda_lab.core.netlist.cores.router import router_streams
from tbuda_lab.core.netlist.cores.usage import core_buffers
from tbuda_lab.core.netlist.routing.edge import MOST_TILES
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source


class CoreLoads:
    """Counts the extra streams and the bytes of the fullest core of an op among others that are placed."""

    def __init__(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        placed: Mapping[str, OpPlacement],
        orders: Mapping[str, str],
        users: Mapping[str, Sequence[tuple[str, int]]],
        device: DeviceSpec,
    ) -> None:
        self.graph, self.models, self.placed, self.users = graph, models, placed, users
        self.orders, self.device = orders, device

    def of(
        self, op: str, queues: Mapping[int, QueuePlacement], ahead: frozenset[int], written: int, input_count: int
    ) -> tuple[int, int]:
        """(streams, the greater of what the router and the pipe generator count; bytes without the headers of tiles).

        queues: by operand the queue that it is read from, where it is not made in the same epoch; ahead: the operands
        that are preloaded; written: queues and rams that the op writes in tiles, in its own layout. (0, 0) where
        nothing is known of how it reads."""
        operands = [
            self._operand(op, port, queues.get(port), port in ahead) for port in range(len(self.graph[op].inputs))
        ]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands) or not known:
            return 0, 0
        readers = [
            operand
            for name, port in self.users[op]
            if name in self.placed
            and self.placed[name].epoch == self.placed[op].epoch
            and port not in queued_ports(self.graph[name])
            and (operand := self._operand(name, port, None, False)) is not None
        ]
        core, arch = self._core(op, known), self.device.arch
        operands_of_readers = tuple(readers)
        cores = core_buffers(core, operands_of_readers, input_count, arch)
        most = max(int(router_streams(core, operands_of_readers, input_count, arch).max()), int(cores.streams.max()))
        return most + (written if readers else 0), int(cores.total.max())

    def _row(self, op: str) -> tuple[OpProfile, np.ndarray]:
        table, at = self.models[op], self.placed[op].row
        assert table.profile is not None
        return table.profile, table.rows[at : at + 1]

    def _operand(self, op: str, port: int, queue: QueuePlacement | None, ahead: bool) -> CoreOperand | None:
        """An operand as the netlist will have it; None where its lists are too long to be written down."""
        profile, rows = self._row(op)
        source = self.graph[op].inputs[port].source
        writer = self._row(source) if source in self.placed else None
        layout = _stored(queue) if queue is not None else self._made(source)
        steps = net_steps(edge_tms(writer and writer[0], writer and writer[1][0], profile, port, rows[0]))
        late = bool(profile.uses) and profile.uses[port].late
        operand = CoreOperand(
            layout,
            steps,
            _whole(reader(profile, port, rows, self.orders.get(op, "r"))),
            tile_bytes(profile.operands[port].df, align=self.device.tile_align),
            ahead,
            int(late_tiles(as_read(profile, port, rows))[0]) if late else 0,
        )
        t, r, c = layout.shape
        return operand if t * r * c <= MOST_TILES and operand.fits else None

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
        made, first = self._made(op), operands[0].reader
        align = self.device.tile_align
        return CoreOp(
            "fused" if isinstance(profile.op, HwFused) else first.type,
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
            max(int(rows["m_k"][0]), 1),
            max(int(rows["u_kt"][0]), 1),
            profile.z_group,
            first.dim,
            untilized=profile.feeds_host,
            min_buffer=0 if profile.kind in ("matmul", "depthwise") else -1,
        )


_FIELDS = ("grid_r", "grid_c", "t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "buf_size_mb")


def preloaded_ports(profile: OpProfile, rows: np.ndarray) -> tuple[int, ...]:
    """The operands that a candidate wants preloaded. rows: (1,)."""
    return tuple(port for port in range(len(profile.operands)) if preloads(profile, port, rows)[0])


def _stored(queue: QueuePlacement) -> Source:
    return Source(queue.grid, queue.t, queue.mblock, queue.ublock, queue.ublock_order, 1, "queue")


def _whole(read: EdgeReader) -> EdgeReader:
    """The reader of a single candidate, with numbers in place of arrays."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        return int(value[0]) if isinstance(value, np.ndarray) else value

    return dataclasses.replace(read, **{f.name: plain(getattr(read, f.name)) for f in dataclasses.fields(read)})
