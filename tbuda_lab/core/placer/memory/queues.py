"""The queues of a placed graph: which there are and their blocks (placement.md#queue-grids).

What is planned of a node depends on the node and on the ops beside it, so that after an edit only the queues near the
ops it moved are planned again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.edges import MAX_PREFETCH_STREAMS
from tbuda_lab.core.balancer.l1 import preloads, preloads_encoding
from tbuda_lab.core.balancer.pickers import ENCODING_DF, SPARSE_TILE_DF, encode_row
from tbuda_lab.core.balancer.profile import as_read, input_on_host, output_on_host, queue_entries
from tbuda_lab.core.balancer.streaming import stored_shape, unstream_tms
from tbuda_lab.core.balancer.types import OpModels, OpPlacement, QueuePlacement, copy_name
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import (
    ACCUMULATES,
    RAM,
    WRITES,
    direction_of,
    inputs_of_run,
    phases,
    writes_by_parameter,
)
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul, tile_shape
from tbuda_lab.core.netlist.cores.buffers import header_bytes
from tbuda_lab.core.netlist.cores.usage import CoreLoad
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides.places import QueuePin
from tbuda_lab.core.placer.memory.addresses import Addresses
from tbuda_lab.core.placer.memory.core_streams import SPARSE_KINDS, CoreLoads, OpQueues
from tbuda_lab.core.placer.memory.dram import align
from tbuda_lab.core.placer.memory.host_link import Reader, prefetch_grid, reads_few

_SMALL_INPUT_TILES = 64


@dataclasses.dataclass(frozen=True)
class PlannedQueues:
    """What is known of the queues of a placed graph, for placements of the same graph that differ in a few ops.

    plans: the queues of every node before they have addresses; queues: by name such a plan, and the queue with
    addresses that was made of it; users: of the graph; stages: the chips in the order in which they begin."""

    plans: Mapping[str, tuple[QueuePlacement, ...]]
    queues: Mapping[str, tuple[QueuePlacement, QueuePlacement]]
    users: Mapping[str, Sequence[tuple[str, int]]]
    stages: tuple[int, ...]


class QueuePlanner:
    """Plans all queues of a placement, then gives them addresses."""

    def __init__(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        placed: Mapping[str, OpPlacement],
        orders: Mapping[str, str],
        device: DeviceSpec,
        options: CompileOptions,
        pins: Mapping[str, QueuePin],
        preloaded: dict[tuple[str, int, int], bool] | None = None,
        planned: PlannedQueues | None = None,
        input_tiles: Mapping[str, Sequence[int]] = MappingProxyType({}),
        core_loads: dict[tuple[object, ...], CoreLoad] | None = None,
        on_one_chip: bool = False,
    ) -> None:
        """pins: by queue what is fixed of its place. preloaded: whether a candidate preloads an operand, by (table
        signature, row, port), as far as it is known; what is found is added. planned: of another placement of this
        graph. input_tiles: by op and operand the least tiles of input buffers that are asked for. core_loads: what
        cores of ops among such neighbours take, as far as it is known; what is found is added. on_one_chip: whether one
        of several chips has all ops."""
        self._preloaded = {} if preloaded is None else preloaded
        self.graph, self.models, self.placed, self.orders = graph, models, placed, orders
        self.device, self.options, self.pins = device, options, pins
        self.users = graph.users() if planned is None else planned.users
        self._core_loads = CoreLoads(graph, models, placed, orders, self.users, device, input_tiles, core_loads)
        self.first_chip, self.on_one_chip = device.chips[0], on_one_chip
        self.phase = phases(graph)
        self.written = writes_by_parameter(graph)
        by_epoch = sorted({(p.epoch, p.chip) for p in placed.values()})
        self.stage = {chip: i for i, chip in enumerate(dict.fromkeys(chip for _, chip in by_epoch))}
        self.before = planned if planned is not None and planned.stages == tuple(self.stage) else None
        self.plans: dict[str, tuple[QueuePlacement, ...]] = {}
        self._by_name: dict[str, QueuePlacement] = {}
        self._placed: list[QueuePlacement] = []

    def run(self, touched: Collection[str] | None = None) -> dict[str, QueuePlacement]:
        """The queues. touched: the only ops that differ from what is known in their candidate or chip, or in which of
        their neighbours share their epoch (None: any may).

        Raises `PlacementError` when they do not fit DRAM, `OverrideError` for one that cannot go where asked.
        """
        self.plan(touched)
        plans = [queue for node_queues in self.plans.values() for queue in node_queues]
        refused = {queue for _, _, queue in self.refused_preloads()}
        plans = [dataclasses.replace(q, prologue=False) if q.name in refused else q for q in plans]
        queues_before = {} if self.before is None else self.before.queues
        result = Addresses(
            self.graph,
            self.models,
            self.placed,
            self.users,
            self.phase,
            self.device,
            self.options,
            self.pins,
            queues_before,
        )
        return result.of(plans)

    def plan(self, touched: Collection[str] | None = None) -> None:
        """Fills `plans`; see `run`."""
        if self.before is None or touched is None:
            self.plans = {node.name: self._of(node) for node in self.graph}
            self._index()
            return
        graph = self.graph
        near = {name for op in touched for name in (op, *graph[op].sources)}
        near |= {user for op in touched for user, _ in self.users[op] if graph[user].kind is NodeKind.OUTPUT}
        near |= {self.written[name].name for name in near if name in self.written}
        self.plans = dict(self.before.plans)
        self.plans.update((node.name, self._of(node)) for node in map(graph.__getitem__, near))
        self._index()

    def _index(self) -> None:
        self._by_name = {q.name: q for node_queues in self.plans.values() for q in node_queues}

    def refused_preloads(self) -> list[tuple[str, int, str]]:
        """(op, operand, queue) of what candidates want preloaded and cores have no streams or no L1 for: first what is
        read element by element, from the last operand on. Such a queue is streamed to all that read it."""
        refused: list[tuple[str, int, str]] = []
        gone: set[str] = set()
        for op in self.placed:
            profile = self._reader(op, 0)[0]
            queues, ahead = self._queues_of(op, gone)
            free = {port for port in ahead if isinstance(port, int)}
            order = sorted(free, key=lambda port: (profile.operands[port].role == "elt", port))
            while order and self._crowds(op, queues, ahead):
                queue = queues[order.pop()].name
                gone.add(queue)
                lost = {port for port in free if queues[port].name == queue}
                refused += [(op, port, queue) for port in sorted(lost)]
                free, ahead = free - lost, ahead - lost
                order = [port for port in order if port in free]
        return refused

    def core_loads(self) -> dict[str, CoreLoad]:
        """By op what its fullest core takes, as `CoreLoads.of` says."""
        refused = {queue for _, _, queue in self.refused_preloads()}
        return {
            op: self._core_loads.of(op, self._op_queues(op, *self._queues_of(op, refused)), self._inputs(op))
            for op in self.placed
        }

    def fullest_cores(self) -> dict[str, CoreLoad]:
        """The same with the headers of tiles that each epoch has, as the check of the netlist counts them. Ops of
        epochs in which some lists are too long to be written down are left out."""
        loads = self.core_loads()
        sizes: dict[int, set[int]] = {}
        for op, load in loads.items():
            sizes.setdefault(self.placed[op].epoch, set()).update(load.tiles or {-1})
        fullest_cores = {}
        for op, load in loads.items():
            of_epoch = sizes[self.placed[op].epoch]
            if -1 not in of_epoch:
                headers = header_bytes(of_epoch)
                buffers = (*load.buffers, ("tile_headers", (headers,)))
                fullest_cores[op] = load._replace(bytes=load.bytes + headers, buffers=buffers)
        return fullest_cores

    def _inputs(self, op: str) -> int:
        return inputs_of_run(self._direction(op), self.options.microbatch)

    def _op_queues(self, op: str, read: Mapping[int | str, QueuePlacement], ahead: frozenset[int | str]) -> OpQueues:
        return OpQueues(read, ahead, self._written_by(op))

    def _crowds(self, op: str, queues: Mapping[int | str, QueuePlacement], ahead: frozenset[int | str]) -> bool:
        """Whether an op has too few streams, or too little L1, with these operands preloaded."""
        profile, room = self._reader(op, 0)[0], self.device.l1_usable
        load = self._core_loads.of(op, self._op_queues(op, queues, ahead), self._inputs(op))
        return load.streams > MAX_PREFETCH_STREAMS or load.bytes > room - profile.headers

    def _queues_of(
        self, op: str, gone: Collection[str] = ()
    ) -> tuple[dict[int | str, QueuePlacement], frozenset[int | str]]:
        """(the queue from which an op reads an operand, where it is not made beside it, and of a picker by kind those
        of its tiles and encoding; which of them are preloaded). gone: queues that are streamed."""
        spot, direction = self.placed[op], self._direction(op)
        queues: dict[int | str, QueuePlacement] = {}
        for port, edge in enumerate(self.graph[op].inputs):
            source = self.placed.get(edge.source)
            if source is None:
                queue = self._by_name.get(copy_name(edge.source, spot.chip)) or self._by_name[edge.source]
            elif source.epoch != spot.epoch or port in queued_ports(self.graph[op]):
                queue = next(q for q in self.plans[edge.source] if q.kind == "e2e" and q.direction == direction)
            else:
                continue
            queues[port] = queue
        ahead: set[int | str] = {
            port
            for port, queue in queues.items()
            if isinstance(port, int) and queue.name not in gone and self._loads(op, port, queue)
        }
        for queue in self.plans[op]:
            if queue.kind in SPARSE_KINDS:
                queues[queue.kind] = queue
                ahead |= {queue.kind} if queue.prologue else set()
        return queues, frozenset(ahead)

    def _written_by(self, op: str) -> list[QueuePlacement]:
        """Queues between epochs and rams that an op writes in tiles."""
        rams = [user for user, _ in self.users[op] if WRITES in self.graph[user].attrs]
        return [
            *(queue for ram in rams for queue in self.plans[ram] if queue.writer == op),
            *(queue for queue in self.plans[op] if queue.kind == "e2e"),
        ]

    def _loads(self, op: str, port: int, queue: QueuePlacement) -> bool:
        """Whether the epoch of an op preloads a queue: all of its ops that read it want that, and none of its program
        writes it."""
        if not queue.prologue or (queue.writer and self._direction(queue.writer) == self._direction(op)):
            return False
        source, epoch = self.graph[op].inputs[port].source, self.placed[op].epoch
        return all(self._preloads(r, p) for r, p in self._readers(source) if self.placed[r].epoch == epoch)

    def plan_queues(self, queues: Mapping[str, QueuePlacement]) -> PlannedQueues:
        """What is known now. queues: those of `run`."""
        planned = {q.name: (q, queues[q.name]) for plans in self.plans.values() for q in plans}
        return PlannedQueues(self.plans, planned, self.users, tuple(self.stage))

    def _of(self, node: Node) -> tuple[QueuePlacement, ...]:
        """The queues that are there for a node."""
        self._placed = []
        if node.kind is NodeKind.INPUT and self.users[node.name]:
            self._input(node)
        elif node.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) and self.users[node.name]:
            if node.name not in self.written:
                self._parameter(node)
        elif node.kind is NodeKind.OUTPUT and WRITES in node.attrs:
            self._written_ram(node)
        elif node.kind is NodeKind.OUTPUT:
            self._output(node)
        elif node.kind is NodeKind.OP:
            self._op(node)
        return tuple(self._placed)

    def _direction(self, op: str) -> str:
        return direction_of(self.phase[op]) if self.phase else "fwd"

    # -- plans -----------------------------------------------------------------------------------------------
    def _readers(self, name: str) -> list[tuple[str, int]]:
        return [(u, p) for u, p in self.users[name] if u in self.placed]

    def _reader_grid(self, reader: str, port: int, *, matmul_columns: bool) -> tuple[int, int]:
        """Grid on which an op takes an operand, in the operand's own rows and columns (before its TMs)."""
        profile, _, row = self._reader(reader, port)
        role = profile.operands[port].role
        grid = (int(row["grid_r"]), int(row["grid_c"]))
        if role == "in0":
            grid = (grid[0], 1)
        elif role in ("in1", "bias"):
            grid = (1, grid[1] if matmul_columns else 1)
        edge: Edge = self.graph[reader].inputs[port]
        for tm in reversed(edge.tms):
            if tm.name == "transpose":
                grid = (grid[1], grid[0])
        return grid

    def _chip(self, name: str) -> int:
        readers = [r for r, _ in self._readers(name)]
        return self._common_chip(readers) if readers else self.first_chip

    def _common_chip(self, readers: Sequence[str]) -> int:
        """The chip with the most readers, the first of them where several have as many: a queue lies with them, and
        readers elsewhere fetch it over links."""
        chips = [self.placed[r].chip for r in readers]
        return max(chips, key=chips.count)

    def _add(
        self,
        name: str,
        kind: str,
        source: str,
        grid: tuple[int, int],
        shape: tuple[int, int, int],
        ublock: tuple[int, int],
        order: str,
        entries: int,
        df: DataFormat,
        *,
        access: str = "queue",
        location: str = "dram",
        chip: int,
        prologue: bool = False,
        tms: tuple[TM, ...] = (),
        layout: str = "tilized",
        writer: str = "",
        ram: str = "",
        direction: str = "fwd",
    ) -> None:
        t, rt, ct = shape
        mblock = (rt // grid[0] // ublock[0], ct // grid[1] // ublock[1])
        if layout == "untilized":
            entry = t * rt * ct * tile_bytes(df, header=False) // (grid[0] * grid[1])
            entry = align(entry, self.device.dram_address_align)
        else:
            entry = t * (rt // grid[0]) * (ct // grid[1]) * tile_bytes(df, align=self.device.tile_align)
        size = align(entry * entries + self.device.queue_header, self.device.dram_address_align)
        self._placed.append(
            QueuePlacement(
                name,
                kind,
                source,
                grid,
                t,
                mblock,
                ublock,
                order,
                entries,
                df,
                access,
                location,
                chip,
                (),
                size,
                prologue,
                tms,
                layout,
                writer,
                direction,
                ram,
            )
        )

    def _input(self, node: Node) -> None:
        z, rt, ct = tile_shape(node.shape)
        df = node.df or self.options.data_format
        host = input_on_host(node, self.device, self.options, self.on_one_chip)
        grid = (1, 1)
        if not host and rt * ct <= _SMALL_INPUT_TILES:
            grids = [self._reader_grid(r, p, matmul_columns=False) for r, p in self._readers(node.name)]
            if grids:
                grid = (snap(min(g[0] for g in grids), rt), snap(min(g[1] for g in grids), ct))
        entry = z * (rt // grid[0]) * (ct // grid[1]) * tile_bytes(df, align=self.device.tile_align)
        entries = queue_entries(node, self.options)
        while not host and entry * entries > self._largest_channel() and grid[0] * grid[1] < rt * ct:
            grid = _larger(grid, (rt, ct))
            entry = z * (rt // grid[0]) * (ct // grid[1]) * tile_bytes(df, align=self.device.tile_align)
        self._add(
            node.name,
            "input",
            node.name,
            grid,
            (z, rt, ct),
            (1, 1),
            self.orders.get(node.name, "r"),
            entries,
            df,
            location="host" if host else "dram",
            chip=self._chip(node.name),
        )

    def _largest_channel(self) -> int:
        return max(self.device.dram_end(c) - self.device.dram_start(c) for c in range(self.device.dram_channels)) // 2

    def _parameter(self, node: Node) -> None:
        """One queue; where ops of several chips read it and one of them preloads it, one for each chip: a queue with
        prologue lies on the chip of everything that reads it, and a grayskull chip reads its own DRAM only."""
        readers = self._readers(node.name)
        chips = list(dict.fromkeys(self.placed[r].chip for r, _ in readers))
        shared = len(chips) < 2 or self.options.training is not None  # a trainer writes one queue per weight
        if shared or not (self.device.arch == "grayskull" or any(self._preloads(r, p) for r, p in readers)):
            self._parameter_on(node, node.name, readers, self._chip(node.name), len(chips) < 2)
            return
        first = self._chip(node.name)
        for chip in sorted(chips, key=lambda c: (c != first, c)):
            mine = [(r, p) for r, p in readers if self.placed[r].chip == chip]
            self._parameter_on(node, node.name if chip == first else copy_name(node.name, chip), mine, chip, True)

    def _parameter_on(
        self, node: Node, name: str, readers: Sequence[tuple[str, int]], chip: int, preloadable: bool
    ) -> None:
        """Grid: per dimension the least of the readers', as a divisor; ublock: what the first reader's ublock and the
        block have in common. Fewer buffers where a core would need more prefetch streams than it has."""
        z, rt, ct = tile_shape(node.shape)
        grids = [self._reader_grid(r, p, matmul_columns=True) for r, p in readers] or [(1, 1)]
        grid = (snap(min(g[0] for g in grids), rt), snap(min(g[1] for g in grids), ct))
        selected = [self._reader(r, p) for r, p in readers if self._preloads(r, p)]
        prologue = bool(selected) and preloadable
        if prologue:
            grid = prefetch_grid(selected, (z, rt, ct), grid)
        ublock = (1, 1)
        if readers:
            ublock = self._reader_ublock(*readers[0])
            ublock = (math.gcd(ublock[0], rt // grid[0]), math.gcd(ublock[1], ct // grid[1]))
        parameter, ram = node.kind is NodeKind.PARAMETER, str(node.attrs.get(RAM, ""))
        if ram:
            grid, ublock = (1, 1), (1, 1)
        self._add(
            name,
            "parameter" if parameter else "constant",
            node.name,
            grid,
            (z, rt, ct),
            ublock,
            self.orders.get(node.name, "r"),
            1,
            node.df or self.options.data_format,
            access="ram" if parameter else "queue",
            chip=chip,
            prologue=prologue,
            ram=ram,
        )

    def _reader(self, reader: str, port: int) -> Reader:
        table = self.models[reader]
        assert table.profile is not None
        return table.profile, port, table.rows[self.placed[reader].row]

    def _preloads(self, reader: str, port: int) -> bool:
        table, at = self.models[reader], self.placed[reader].row
        assert table.profile is not None
        key = table.signature, at, port
        entry = self._preloaded.get(key)
        if entry is None:
            entry = self._preloaded[key] = bool(preloads(table.profile, port, table.rows[at : at + 1])[0])
        return entry

    def _reader_ublock(self, reader: str, port: int) -> tuple[int, int]:
        profile, _, row = self._reader(reader, port)
        row = as_read(profile, port, row)
        role = profile.operands[port].role
        step = max(1, int(row["u_kt"]))
        shape = (int(row["ublock_r"]), int(row["ublock_c"]))
        if role == "in0":
            shape = (shape[0], step)
        elif role == "in1":
            shape = (step, shape[1])
        if any(tm.name == "transpose" for tm in self.graph[reader].inputs[port].tms):
            shape = (shape[1], shape[0])
        return shape

    def _output(self, node: Node) -> None:
        source = node.inputs[0].source
        if source not in self.placed:
            return
        spot = self.placed[source]
        table = self.models[source]
        row = table.rows[spot.row]
        profile = table.profile
        assert profile is not None
        shape = stored_shape(profile, row)
        df = self.graph[source].df or self.options.data_format
        ublock = (int(row["ublock_r"]), int(row["ublock_c"]))
        entries = queue_entries(node, self.options)
        on_host = output_on_host(node, self.options)
        self._add(
            node.name,
            "output",
            node.name,
            (1, 1),
            shape,
            ublock,
            "r",
            entries,
            df,
            location="host" if on_host else "dram",
            chip=spot.chip,
            tms=unstream_tms(profile, row),
            layout="untilized",
        )

    def _written_ram(self, node: Node) -> None:
        """The ram that an op writes, in the blocks in which that op makes it. It lies on the writer's chip; a grayskull
        chip reads its own DRAM only, so there it lies on the chip of its readers. Readers of other programs may preload
        it."""
        source = node.inputs[0].source
        spot, table = self.placed[source], self.models[source]
        row, profile = table.rows[spot.row], table.profile
        assert profile is not None
        name = str(node.attrs[WRITES])
        target = self.graph.nodes.get(name)
        ports = self._readers(name) if target is not None else []
        readers = [r for r, _ in ports]
        chip = self._common_chip(readers) if readers and self.device.arch == "grayskull" else spot.chip
        grid, stored = (int(row["grid_r"]), int(row["grid_c"])), stored_shape(profile, row)
        others = [(r, p) for r, p in ports if self._direction(r) != self._direction(source)]
        selected = [self._reader(r, p) for r, p in others if self._preloads(r, p)]
        preloadable = bool(selected) and all(self.placed[r].chip == chip for r, _ in others)
        self._add(
            name,
            "accumulator" if node.attrs.get(ACCUMULATES) else "parameter",
            name if target is not None else node.name,
            grid,
            stored,
            (int(row["ublock_r"]), int(row["ublock_c"])),
            self.orders[source],
            1,
            self.graph[source].df or self.options.data_format,
            access="ram",
            chip=chip,
            prologue=preloadable and not node.attrs.get(ACCUMULATES) and reads_few(selected, stored, grid),
            writer=source,
            ram=str(node.attrs.get(RAM, "")),
        )

    def _op(self, node: Node) -> None:
        spot = self.placed[node.name]
        table = self.models[node.name]
        row = table.rows[spot.row]
        profile = table.profile
        assert profile is not None
        grid = (int(row["grid_r"]), int(row["grid_c"]))
        ublock = (int(row["ublock_r"]), int(row["ublock_c"]))
        later: dict[str, list[str]] = {}  # by the program that reads: each pops a queue of its own
        for r, port in self._readers(node.name):
            if self.placed[r].epoch != spot.epoch or port in queued_ports(self.graph[r]):
                later.setdefault(self._direction(r), []).append(r)
        for number, (direction, readers) in enumerate(later.items()):
            # every stage between the writer and its last reader works on a batch of its own
            stages = [self.stage[spot.chip], *(self.stage[self.placed[r].chip] for r in readers)]
            batches = 1 + max(stages) - min(stages)
            if direction != self._direction(node.name) and self.options.training is not None:
                batches = self.options.training.batches
            inputs = inputs_of_run(self._direction(node.name), self.options.microbatch)
            self._add(
                f"e2e_{node.name}_{number}",
                "e2e",
                node.name,
                grid,
                stored_shape(profile, row),
                ublock,
                self.orders[node.name],
                inputs * batches,
                node.df or self.options.data_format,
                chip=self._common_chip(readers),
                tms=unstream_tms(profile, row),
                direction=direction,
            )
        if isinstance(node.op, HwSparseMatmul):
            encoding = encode_row(node.op.picker, profile.out, profile.operands[0].tiles, row)
            preloading = bool(preloads_encoding(table.rows[spot.row : spot.row + 1])[0])
            for kind, count, df, prologue in (
                ("sparse_tiles", encoding.num_sparse_tiles, SPARSE_TILE_DF, True),
                ("sparse_encoding", encoding.num_index_tiles, ENCODING_DF, preloading),
            ):
                self._add(
                    f"lc.{kind}.{node.name}",
                    kind,
                    node.name,
                    (grid[0], 1),
                    (1, grid[0], count),
                    (1, 1),
                    "r",
                    1,
                    df,
                    access="ram",
                    chip=spot.chip,
                    prologue=prologue,
                )


def snap(limit: int, extent: int) -> int:
    """The largest divisor of `extent` that is at most `limit`."""
    return max(d for d in divisors(extent) if d <= max(1, limit))


def _larger(grid: tuple[int, int], extent: tuple[int, int]) -> tuple[int, int]:
    """The next larger grid of divisors, growing the rows first."""
    rows = [d for d in divisors(extent[0]) if d > grid[0]]
    if rows:
        return rows[0], grid[1]
    cols = [d for d in divisors(extent[1]) if d > grid[1]]
    return (grid[0], cols[0]) if cols else grid
