"""From a placement to the netlist: queues and the graphs of the epochs; `ProgramWriter` writes what runs them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tbuda_lab.core.balancer.l1 import late_tiles
from tbuda_lab.core.balancer.pickers import encode_row
from tbuda_lab.core.balancer.profile import as_read
from tbuda_lab.core.balancer.streaming import edge_tms
from tbuda_lab.core.balancer.types import Epoch, Placement, QueuePlacement, graph_name
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.emit.program import ProgramWriter, accumulating_ops
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.formats import MathFidelity
from tbuda_lab.core.graph import TILE, TM, Graph, Node, NodeKind, apply_shapes
from tbuda_lab.core.graph.phases import WRITES, inputs_of_run
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.fused_steps import SubStep, intermediates, plan, step_block
from tbuda_lab.core.lowering.hw_ops import (
    HwDepthwise,
    HwFused,
    HwMatmul,
    HwOp,
    HwReduce,
    HwSparseMatmul,
    HwSplice,
    HwUnary,
    PackerRelu,
    tile_shape,
)
from tbuda_lab.core.netlist import schema
from tbuda_lab.core.netlist.sparse import SparseEncoding
from tbuda_lab.core.placer.memory.core_streams import SPARSE_KINDS


@dataclasses.dataclass(frozen=True)
class Emission:
    """The netlist, and the contents of the queues that only emission knows: tiles and encodings of the pickers.

    contents: queue name -> (t, R, C) array, float32 for sparse tiles, int32 words for encodings.
    """

    netlist: schema.Netlist
    contents: dict[str, np.ndarray]


class EmitMemory:
    """What was emitted of a graph, for one device and batch: queues and ops that come out the same again are the very
    objects of before, which nobody may change any more."""

    def __init__(self) -> None:
        self.queues: dict[str, tuple[QueuePlacement, schema.Queue]] = {}
        self.ops: dict[str, tuple[tuple[object, ...], schema.NetOp]] = {}


def emit(
    graph: Graph, placement: Placement, device: DeviceSpec, microbatch: int, memory: EmitMemory | None = None
) -> Emission:
    """The netlist of a placed lowered graph, for `microbatch` inputs per pass of the program's loop. memory: of other
    placements of the same graph, device and batch; the netlist is the same, sooner."""
    emitter = _Emitter(graph, placement, device, microbatch, memory or EmitMemory())
    queues = {q.name: emitter.kept_queue(q) for q in sorted_queues(placement)}
    graphs: dict[str, schema.NetGraph] = {}
    for epoch in placement.epochs:
        net = emitter.epoch_graph(epoch)
        graphs[net.name] = net
    programs = ProgramWriter(graph, placement, device, microbatch, graphs, queues)
    directions = dict.fromkeys(epoch.direction for epoch in placement.epochs) or ("fwd",)
    written = [programs.write(direction) for direction in directions]
    graphs.update((net.name, net) for idle in programs.idle.values() for net in (*idle.before, *idle.after))
    netlist = schema.Netlist([device.arch], queues, graphs, written, emitter.fused_ops)
    return Emission(netlist, emitter.contents)


_KIND_ORDER = ("input", "output", "parameter", "constant", *SPARSE_KINDS, "e2e", "accumulator")


def sorted_queues(placement: Placement) -> list[QueuePlacement]:
    """Queues in the writer's groups: inputs, outputs, parameters, constants, epoch to epoch; stable within each."""
    return sorted(placement.queues.values(), key=lambda q: _KIND_ORDER.index(q.kind))


def net_tms(tms: tuple[TM, ...]) -> list[schema.Tm] | None:
    """TMs in the netlist's form; None (nothing written) for an empty list."""
    if not tms:
        return None
    return [schema.Tm(tm.name, ((tm.args[0], tm.args[1]),) if tm.name == "broadcast" else tm.args) for tm in tms]


class _Emitter:
    def __init__(
        self, graph: Graph, placement: Placement, device: DeviceSpec, microbatch: int, memory: EmitMemory
    ) -> None:
        self.memory = memory
        self.graph = graph
        self.placement = placement
        self.device = device
        self.microbatch = microbatch
        self.contents: dict[str, np.ndarray] = {}
        self.fused_ops: dict[str, schema.FusedOp] = {}
        self._fused: dict[tuple[object, ...], str] = {}
        self.encodings = {
            name: self._encode(graph[name]) for name in placement.ops if isinstance(graph[name].op, HwSparseMatmul)
        }
        self.queue_of_source: dict[tuple[str, str, str], str] = {
            (q.kind, q.source, q.direction): q.name for q in placement.queues.values()
        }
        self.chip_queue = {
            (q.source, q.chip): q.name for q in placement.queues.values() if q.kind in ("parameter", "constant")
        }
        self.host_fed = {n.name for n in graph.of_kind(NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT)}
        self.feeds_output = {n.inputs[0].source for n in graph.outputs if WRITES not in n.attrs}
        self.accumulates = accumulating_ops(graph)

    # -- queues ----------------------------------------------------------------------------------------------
    def kept_queue(self, q: QueuePlacement) -> schema.Queue:
        """`queue`, from memory where it was emitted before; those of pickers have contents to fill."""
        entry = self.memory.queues.get(q.name)
        if entry is not None and entry[0] is q and q.kind not in SPARSE_KINDS:
            return entry[1]
        kept_queue = self.queue(q)
        self.memory.queues[q.name] = q, kept_queue
        return kept_queue

    def queue(self, q: QueuePlacement) -> schema.Queue:
        mblock = q.mblock
        if q.kind in SPARSE_KINDS:
            mblock = self._fill_sparse(q)
        producer = q.writer or "HOST"
        if q.kind in ("e2e", "output"):
            producer = q.source if self.graph[q.source].kind is NodeKind.OP else self.graph[q.source].inputs[0].source
        buffers = [schema.QueueBuffer(channel, address) for channel, address in q.buffers]
        order = None if q.kind in SPARSE_KINDS else q.ublock_order
        return schema.Queue(
            q.name,
            q.access,
            producer,
            q.entries,
            q.grid,
            schema.Blocking(q.t, mblock, q.ublock, order),
            q.df,
            q.chip,
            q.location,
            buffers,
            tile_dim=(TILE, TILE),
            alias=q.alias or None,
        )

    def _encode(self, node: Node) -> SparseEncoding:
        """The picker in the layout of the chosen grid and streaming, as the placer sized it."""
        assert isinstance(node.op, HwSparseMatmul)
        edge = node.inputs[0]
        activation = apply_shapes(edge.tms, tile_shape(self.graph[edge.source].shape))
        return encode_row(node.op.picker, tile_shape(node.shape), activation, self.placement.candidate(node.name))

    def _fill_sparse(self, q: QueuePlacement) -> tuple[int, int]:
        """Contents of a picker's queue; returns its macro block, which must fit what was allocated."""
        encoding = self.encodings[q.source]
        tiles = encoding.num_sparse_tiles if q.kind == "sparse_tiles" else encoding.num_index_tiles
        content = encoding.sparse_tensor() if q.kind == "sparse_tiles" else encoding.index_tensor()
        allocated = q.mblock[0] * q.mblock[1] * q.ublock[0] * q.ublock[1]
        if tiles > allocated:
            raise PlacementError(
                f"queue {q.name!r} is too small",
                [
                    Diagnostic(
                        "error",
                        q.name,
                        "sparse-size",
                        f"{tiles} tiles do not fit the {allocated} allocated",
                        "the size comes from the picker's statistics, which must never be below the encoding",
                    )
                ],
            )
        self.contents[q.name] = content
        return (1, tiles)

    # -- ops -------------------------------------------------------------------------------------------------
    def epoch_graph(self, epoch: Epoch) -> schema.NetGraph:
        net = schema.NetGraph(graph_name(epoch), epoch.chip, inputs_of_run(epoch.direction, self.microbatch))
        for name in epoch.ops:
            net.ops[name] = self.kept_op(self.graph[name], epoch)
        return net

    def kept_op(self, node: Node, epoch: Epoch) -> schema.NetOp:
        """`op`, from memory where all that it depends on is as it was; those of pickers are made anew."""
        if isinstance(node.op, HwSparseMatmul):
            return self.op(node, epoch)
        placement = self.placement
        placed = placement.ops[node.name]
        inputs: list[object] = []
        for port, edge in enumerate(node.inputs):
            source = placement.ops.get(edge.source)
            if source is not None:
                queued = self._queue_between(node, port, epoch)
                inputs.append((placement.models[edge.source].signature, source.row, queued))
            else:
                inputs.append(self.chip_queue.get((edge.source, epoch.chip), edge.source))
        fused = ""
        if isinstance(node.op, HwFused):  # its number is that of the first op with such steps
            fused = self._fused_op(node.op, placement.candidate(node.name))
        key = (
            placement.models[node.name].signature,
            placed.row,
            placed.start,
            placed.transposed,
            placement.ublock_order.get(node.name),
            placement.input_buffers.get(node.name),
            fused,
            tuple(inputs),
        )
        entry = self.memory.ops.get(node.name)
        if entry is not None and entry[0] == key:
            return entry[1]
        kept_op = self.op(node, epoch)
        self.memory.ops[node.name] = key, kept_op
        return kept_op

    def op(self, node: Node, epoch: Epoch) -> schema.NetOp:
        placed = self.placement.ops[node.name]
        row = self.placement.candidate(node.name)
        assert isinstance(node.op, HwOp) and node.df is not None
        fidelity = node.attrs["fidelity"]
        assert isinstance(fidelity, MathFidelity)
        blocking = schema.Blocking(
            int(row["t"]),
            (int(row["mblock_m"]), int(row["mblock_n"])),
            (int(row["ublock_r"]), int(row["ublock_c"])),
            self.placement.ublock_order.get(node.name, "r"),
        )
        return schema.NetOp(
            node.name,
            node.op.netlist_type,
            (int(row["grid_r"]), int(row["grid_c"])),
            self._inputs(node, epoch, row),
            blocking,
            node.df,
            grid_loc=placed.start,
            grid_transpose=True if placed.transposed else None,
            intermed_df=node.attrs["intermed_df"],
            acc_df=node.attrs["acc_df"],
            math_fidelity=str(fidelity),
            tile_dim=(TILE, TILE),
            buf_size_mb=int(row["buf_size_mb"]),
            input_buf_min_size_tiles=self._input_buffers(node),
            untilize_output=True if node.name in self.feeds_output else None,
            gradient_op=True if node.name in self.accumulates else None,
            attributes=self._attributes(node, row),
        )

    def _inputs(self, node: Node, epoch: Epoch, row: np.void) -> list[schema.OpInput]:
        consumer = self.placement.models[node.name].profile
        assert consumer is not None
        inputs = []
        for port, edge in enumerate(node.inputs):
            source, producer, producer_row = edge.source, None, None
            df = self.graph[source].df
            assert df is not None
            if source not in self.host_fed:
                producer = self.placement.models[source].profile
                producer_row = self.placement.candidate(source)
                source = self._queue_between(node, port, epoch) or source
            else:
                source = self.chip_queue.get((source, epoch.chip), source)
            tms = edge_tms(producer, producer_row, consumer, port, row)
            inputs.append(schema.OpInput(source, df, net_tms(tms)))
        if isinstance(node.op, HwSparseMatmul):
            spread = net_tms((TM("broadcast", ("c", int(row["grid_c"]))),)) if row["grid_c"] > 1 else None
            tiles, words = (self.placement.queues[self.queue_of_source[k, node.name, "fwd"]] for k in SPARSE_KINDS)
            inputs = [
                schema.OpInput(tiles.name, tiles.df, spread),
                inputs[0],
                schema.OpInput(words.name, words.df, spread or net_tms((TM("broadcast", ("c", 1)),))),
            ]
        return inputs

    def _queue_between(self, node: Node, port: int, epoch: Epoch) -> str:
        """The queue by which an op of this epoch gets what another op makes; "" where it comes from that op itself."""
        source = node.inputs[port].source
        if self.placement.ops[source].epoch == epoch.index and port not in queued_ports(node):
            return ""
        return self.queue_of_source["e2e", source, epoch.direction]

    def _activation_slices(self, node: Node, row: np.void) -> int:
        edge = node.inputs[0]
        slices = apply_shapes(edge.tms, tile_shape(self.graph[edge.source].shape))[0]
        return slices * int(row["stream_c"])

    def _input_buffers(self, node: Node) -> list[int] | None:
        """Tiles of input buffers that a fork asks for, or a fused op for what it reads after a sum, one per operand; 0
        where the backend may choose."""
        tiles = self.placement.input_buffers.get(node.name)
        profile = self.placement.models[node.name].profile
        if profile is not None and any(use.late for use in profile.uses):
            row = self.placement.candidate(node.name)
            least = tuple(
                int(late_tiles(as_read(profile, port, row))) if use.late else 0 for port, use in enumerate(profile.uses)
            )
            tiles = least if tiles is None else tuple(map(max, tiles, least))
        if tiles is None:
            return None
        return [0, *tiles, 0] if isinstance(node.op, HwSparseMatmul) else list(tiles)

    def _attributes(self, node: Node, row: np.void) -> dict[str, Any]:
        op = node.op
        attributes: dict[str, Any] = {}
        if isinstance(op, HwMatmul):
            # The tables keep one ublock row of operand 0 in L1, not the whole macro block.
            attributes = {"m_k": int(row["m_k"]), "u_kt": int(row["u_kt"]), "min_buffer_input": 0}
            if op.bias:
                attributes["bias"] = True
            if op.accumulate:
                attributes |= {"accumulate": True, "z": op.z}
            if op.sfpu_op:
                attributes["sfpu_op"] = op.sfpu_op
        elif isinstance(op, HwSparseMatmul):
            encoding = self.encodings[node.name]
            attributes = {
                "m_k": int(row["m_k"]),
                "u_kt": int(row["u_kt"]),
                "identity": True,
                "num_index_tiles": encoding.num_index_tiles,
                "num_sparse_tiles": encoding.num_sparse_tiles,
                "sparse_tile_ptr_bits": encoding.sparse_tile_ptr_bits,
                "sparse_ublock_idx_bits": encoding.sparse_ublock_idx_bits,
                "act_t": self._activation_slices(node, row),
            }
        elif isinstance(op, HwDepthwise):
            attributes = {"m_k": op.kernel, "u_kt": 1, "min_buffer_input": 0}
            if op.bias:
                attributes["bias"] = True
        elif isinstance(op, HwReduce):
            attributes = {
                "dim": op.dim,
                "type": "max",
                "m_k": max(1, int(row["m_k"])),
                "u_kt": max(1, int(row["u_kt"])),
            }
            if op.dim == "z":
                attributes["z"] = op.z
        elif isinstance(op, HwSplice):
            attributes = _splice_attributes(op, row)
        elif isinstance(op, HwUnary):
            attributes = _unary_attributes(op)
        elif isinstance(op, HwFused):
            return {"fused_op_id": self._fused_op(op, row)}
        if op is not None and isinstance(op, HwOp) and op.relu is not None:
            attributes |= _relu_attributes(op.relu)
        return attributes

    def _fused_op(self, op: HwFused, row: np.void) -> str:
        """The id of the fused op with these steps and this block; equal ones share it."""
        mblock = (int(row["mblock_m"]), int(row["mblock_n"]))
        ublock = (int(row["ublock_r"]), int(row["ublock_c"]))
        key = (op, mblock, ublock, int(row["m_k"]), int(row["u_kt"]))
        if key not in self._fused:
            name = self._fused[key] = f"fused_op_{len(self._fused)}"
            steps = plan(op, self.device.arch)
            schedules: list[list[schema.SubOp]] = [[] for _ in range(steps[-1].schedule + 1)]
            for k, step in enumerate(steps):
                schedules[step.schedule].append(_sub_op(f"{name}_{k}_{step.fn}", op, k, step, (*mblock, *ublock), row))
            if op.relu is not None:
                schedules[-1][-1].attributes |= _relu_attributes(op.relu)
            count = 1 + max(ref for _, refs, _, _ in op.steps for ref in refs)
            self.fused_ops[name] = schema.FusedOp(name, count, intermediates(steps), schedules)
        return self._fused[key]


def _sub_op(
    name: str, op: HwFused, k: int, step: SubStep, block: tuple[int, int, int, int], row: np.void
) -> schema.SubOp:
    """Step k of a fused op. block: of the op's output."""
    inner = {"m_k": int(row["m_k"]), "u_kt": int(row["u_kt"])}
    m, n, ur, uc = (int(size) for size in step_block(op, step.narrow, block, inner["m_k"], inner["u_kt"]))
    tms = {port: [schema.Tm("broadcast", ((op.dim, op.length),))] for port in step.wide_operands}
    if step.spread:
        tms[1] = [*tms.get(1, ()), schema.Tm("tile_broadcast", (step.spread,))]
    return schema.SubOp(
        name,
        step.fn,
        list(step.inputs),
        step.output,
        (m, n),
        (ur, uc),
        tms,
        pop=list(step.pop) or None,
        pop_last=list(step.pop_last) or None,
        attributes=inner if k in op.sums else _unary_attributes(HwUnary(step.fn, slope=step.slope, exp=step.exp)),
    )


def _splice_attributes(op: HwSplice, row: np.void) -> dict[str, Any]:
    """Ranges in the netlist's units: slices for z, output ublocks for rows and columns."""
    if op.axis == "z":
        unit, granularity = 1, "t"
        scale = int(row["stream_r"]) * int(row["stream_c"])
    else:
        unit, granularity, scale = int(row["ublock_r"] if op.axis == "r" else row["ublock_c"]), "ublock", 1
    attributes: dict[str, Any] = {"granularity": granularity}
    for i, triple in enumerate(op.ranges):
        attributes[f"input{i}"] = [n * scale // unit for n in triple]
    return attributes


def _unary_attributes(op: HwUnary) -> dict[str, Any]:
    if op.fn in ("exp", "gelu", "gelu_derivative", "reciprocal", "sqrt", "log", "sigmoid", "tanh"):
        return {"approximate_mode": True} if op.approximate else {}
    if op.fn == "lrelu":
        return {"slope": op.slope}
    if op.fn == "power":
        return {"exp": op.exp}
    return {}


def _relu_attributes(relu: PackerRelu) -> dict[str, Any]:
    return {"relu_en": True, "relu_mode": relu.mode, "relu_threshold": relu.threshold}
