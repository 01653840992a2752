"""Frames of what `tbuda_lab.core.analysis` works out.

Memory: L1 buffers of every op; queues as blocks by channel and address; what is asked of channels. Cluster: chips with
their places, links with what crosses them. NoC: the links of an epoch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.analysis.cluster import cluster_map
from tbuda_lab.core.analysis.memory import KINDS, DramMap, L1Map, NetlistMemory, dram_map, l1_maps
from tbuda_lab.core.analysis.noc import LinkMap
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.netlist.schema import Netlist

LOCATIONS = ("dram", "host")
GAP = 0.03
"""Width of a gap that nobody uses, as a share of the lane."""


def memory_frame(result: Any, rev: int = 0) -> Frame:
    """Columns of the memory of a compile result.

    `op_*`: name, bytes of buffers used and free per core; `part_*`: its buffers (op, kind in meta `kinds`, operand,
    source, bytes, start address). `queue_*`: name, kind, writer, readers, chip, location (meta `locations`), entries,
    bytes of one buffer, buffers, first and last epoch, shares, movable, data format. `block_*`: a buffer of a queue:
    channel, address, x and w on the lane (0..1). `gap_*`: what the lanes of a chip leave out: x, w, bytes.
    `use_*`: bytes per input that a queue is read and written in an epoch. `load_*`: epoch, channel, bytes per input.
    """
    placement, device = result.placement, result.device
    maps = {m.op: m for m in l1_maps(result)}
    names = [n for n in placement.schedule if n in placement.ops]
    return frame_of_maps([maps[n] for n in names], dram_map(result), device, device.chips, rev)


def frame_of_maps(
    maps: Sequence[L1Map],
    dram: DramMap,
    device: DeviceSpec,
    chips: Sequence[int],
    rev: int = 0,
) -> Frame:
    """The same columns of memory that was worked out already: of each op, and of the queues."""
    strings = Strings()
    columns: dict[str, np.ndarray] = {
        "op_name": strings.column(m.op for m in maps),
        "op_used": np.array([m.used for m in maps], dtype="<f8"),
        "op_free": np.array([max(0, m.free) for m in maps], dtype="<f8"),
        "op_hole": np.array([max(0, m.largest_hole) for m in maps], dtype="<f8"),
        **_parts(maps, strings),
        **_queues(dram, strings),
        **_blocks(dram, device, chips),
        **_loads(dram),
    }
    meta: dict[str, Any] = {
        "rev": rev,
        "l1_size": device.l1_size,
        "l1_reserved": device.l1_reserved,
        "kinds": list(KINDS),
        "locations": list(LOCATIONS),
        "capacity": dram.capacity,
        "cycles": list(dram.cycles),
        "chips": [int(c) for c in chips],
        "channels": [[c.location, c.channel, c.start, c.end] for c in dram.channels],
    }
    return Frame("memory", meta, columns, strings.table)


def _parts(maps: Sequence[L1Map], strings: Strings) -> dict[str, np.ndarray]:
    rows = [(k, p) for k, m in enumerate(maps) for p in m.parts]
    return {
        "part_op": np.array([k for k, _ in rows], dtype="<u4"),
        "part_kind": np.array([KINDS.index(p.kind) for _, p in rows], dtype="u1"),
        "part_operand": np.array([p.operand for _, p in rows], dtype="<i2"),
        "part_source": strings.column(p.source for _, p in rows),
        "part_bytes": np.array([p.bytes for _, p in rows], dtype="<f8"),
        "part_start": np.array([p.start for _, p in rows], dtype="<f8"),
    }


def _queues(dram: DramMap, strings: Strings) -> dict[str, np.ndarray]:
    uses = list(dram.queues.values())
    return {
        "queue_name": strings.column(u.name for u in uses),
        "queue_kind": strings.column(u.queue.kind.replace("_", " ") for u in uses),
        "queue_writer": strings.column(u.writer for u in uses),
        "queue_readers": strings.column(", ".join(u.readers) for u in uses),
        "queue_df": strings.column(u.queue.df.name for u in uses),
        "queue_chip": np.array([u.queue.chip for u in uses], dtype="<u2"),
        "queue_location": np.array([LOCATIONS.index(u.queue.location) for u in uses], dtype="u1"),
        "queue_entries": np.array([u.queue.entries for u in uses], dtype="<u4"),
        "queue_bytes": np.array([u.queue.bytes_per_buffer for u in uses], dtype="<f8"),
        "queue_buffers": np.array([min(len(u.queue.buffers), 0xFFFF) for u in uses], dtype="<u2"),
        "queue_first": np.array([u.first for u in uses], dtype="<i4"),
        "queue_last": np.array([u.last for u in uses], dtype="<i4"),
        "queue_shares": np.array([u.shares for u in uses], dtype="u1"),
        "queue_prologue": np.array([u.queue.prologue for u in uses], dtype="u1"),
    }


def _blocks(dram: DramMap, device: DeviceSpec, chips: Sequence[int]) -> dict[str, np.ndarray]:
    uses = list(dram.queues.values())
    rows = [(k, channel, address) for k, u in enumerate(uses) for channel, address in u.queue.buffers]
    queue = np.array([r[0] for r in rows], dtype=np.int64)
    address = np.array([r[2] for r in rows], dtype=np.int64)
    size = np.array([u.queue.bytes_per_buffer for u in uses], dtype=np.int64)[queue] if rows else address
    lane = np.array([(u.queue.chip, LOCATIONS.index(u.queue.location)) for u in uses], dtype=np.int64).reshape(-1, 2)
    lane = lane[queue] if rows else lane
    x, w = np.zeros(len(rows)), np.zeros(len(rows))
    gaps: list[tuple[int, int, float, float, float]] = []
    ends = {
        location: max((c.end for c in dram.channels if c.location == location), default=0) for location in LOCATIONS
    }
    starts = {
        location: min((c.start for c in dram.channels if c.location == location), default=0) for location in LOCATIONS
    }
    for chip in chips:
        for at, location in enumerate(LOCATIONS):
            mine = (lane[:, 0] == chip) & (lane[:, 1] == at)
            if not mine.any():
                continue
            knots, places, empty = bent_axis(address[mine], size[mine], starts[location], ends[location])
            x[mine] = np.interp(address[mine], knots, places)
            w[mine] = np.interp(address[mine] + size[mine], knots, places) - x[mine]
            gaps += [(int(chip), at, *gap) for gap in empty]
    return {
        "block_queue": queue.astype("<u4"),
        "block_channel": np.array([r[1] for r in rows], dtype="<u2"),
        "block_address": address.astype("<f8"),
        "block_x": x.astype("<f8"),
        "block_w": w.astype("<f8"),
        "gap_chip": np.array([g[0] for g in gaps], dtype="<u2"),
        "gap_location": np.array([g[1] for g in gaps], dtype="u1"),
        "gap_x": np.array([g[2] for g in gaps], dtype="<f8"),
        "gap_w": np.array([g[3] for g in gaps], dtype="<f8"),
        "gap_bytes": np.array([g[4] for g in gaps], dtype="<f8"),
    }


def bent_axis(
    address: np.ndarray, size: np.ndarray, start: int, end: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[float, float, float]]]:
    """(knots, places, gaps): a piecewise linear map of [start, end) onto [0, 1], in which what some block uses is in
    proportion and every unused stretch longer than a hundredth of that takes `GAP`. gaps: (x, w, bytes)."""
    order = np.argsort(address, kind="stable")
    lows, highs = address[order], (address + size)[order]
    reach = np.maximum.accumulate(highs)
    first = np.concatenate([[True], lows[1:] > reach[:-1]])
    heads = lows[first]
    tails = np.concatenate([reach[np.flatnonzero(first)[1:] - 1], reach[-1:]])
    used = int((tails - heads).sum())
    edges = [min(start, int(heads[0])), *np.column_stack([heads, tails]).ravel().tolist(), max(end, int(tails[-1]))]
    stretches = list(itertools.pairwise(edges))  # unused, used, unused, ..., unused
    collapsed = [k for k, (a, b) in enumerate(stretches) if k % 2 == 0 and b - a > used / 100]
    drawn = sum(b - a for k, (a, b) in enumerate(stretches) if k not in collapsed)
    scale = max(0.1, 1 - GAP * len(collapsed)) / max(1, drawn)
    gap = (1 - scale * drawn) / max(1, len(collapsed))
    knots, places, gaps = [float(edges[0])], [0.0], []
    for k, (a, b) in enumerate(stretches):
        if a == b:
            continue
        width = gap if k in collapsed else (b - a) * scale
        if k in collapsed:
            gaps.append((places[-1], width, float(b - a)))
        knots.append(float(b))
        places.append(places[-1] + width)
    return np.array(knots), np.array(places), gaps


def _loads(dram: DramMap) -> dict[str, np.ndarray]:
    rows = [
        (k, epoch, use.reads.get(epoch, 0), use.writes.get(epoch, 0))
        for k, use in enumerate(dram.queues.values())
        for epoch in sorted({*use.reads, *use.writes})
    ]
    epochs, channels = np.nonzero(dram.demand)
    return {
        "use_queue": np.array([r[0] for r in rows], dtype="<u4"),
        "use_epoch": np.array([r[1] for r in rows], dtype="<u4"),
        "use_read": np.array([r[2] for r in rows], dtype="<f8"),
        "use_written": np.array([r[3] for r in rows], dtype="<f8"),
        "load_epoch": epochs.astype("<u4"),
        "load_channel": channels.astype("<u2"),
        "load_bytes": dram.demand[epochs, channels].astype("<f8"),
    }


def file_memory_frame(n: Netlist, device: DeviceSpec, cycles: Sequence[float] = ()) -> Frame:
    """The columns of `memory_frame`, from a netlist file alone; see `core.analysis.memory.files`.

    n: expanded, as the grids show it. cycles: per input of each graph, as `ops_frame` estimates them (`epoch_cycles`);
    of a graph without an estimate (0) the load of channels is not known.
    """
    memory = NetlistMemory(n, device)
    frame = frame_of_maps(memory.all_l1(), memory.dram(cycles), device, memory.chips)
    sizes = "those of its fullest core, as the check counts them"
    return dataclasses.replace(frame, meta={**frame.meta, "sizes": sizes})


def cluster_frame(result: Any, rev: int = 0) -> Frame:
    """Columns of the chips of a compile result.

    `chip_*`: number, stage of the pipeline, reached by the host, column and row of the card, epochs, cycles per input.
    `link_*`: the two chips, links between them, bytes per input forth and back, share of the bandwidth asked.
    `move_*`: bytes per input from a chip to another, however many links apart.
    """
    cluster = cluster_map(result)
    chips, links, moves = list(cluster.chips.values()), cluster.links, list(cluster.moves.items())
    columns = {
        "chip_id": np.array([c.chip for c in chips], dtype="<u2"),
        "chip_stage": np.array([c.stage for c in chips], dtype="<u2"),
        "chip_mmio": np.array([c.mmio for c in chips], dtype="u1"),
        "chip_x": np.array([c.position[0] for c in chips], dtype="<u2"),
        "chip_y": np.array([c.position[1] for c in chips], dtype="<u2"),
        "chip_epochs": np.array([len(c.epochs) for c in chips], dtype="<u4"),
        "chip_cycles": np.array([c.cycles for c in chips], dtype="<f8"),
        "link_a": np.array([k.a for k in links], dtype="<u2"),
        "link_b": np.array([k.b for k in links], dtype="<u2"),
        "link_count": np.array([k.links for k in links], dtype="<u2"),
        "link_forth": np.array([k.forth for k in links], dtype="<f8"),
        "link_back": np.array([k.back for k in links], dtype="<f8"),
        "link_load": np.array([cluster.load(k) for k in links], dtype="<f4"),
        "move_from": np.array([k[0] for k, _ in moves], dtype="<u2"),
        "move_to": np.array([k[1] for k, _ in moves], dtype="<u2"),
        "move_bytes": np.array([v for _, v in moves], dtype="<f8"),
    }
    return Frame("cluster", {"rev": rev, "slowest": cluster.slowest, "capacity": cluster.capacity}, columns)


USERS = 4
"""Flows that are named per link."""


def links_frame(links: LinkMap, device: DeviceSpec) -> Frame:
    """Columns of the links of a chip in an epoch, busiest first.

    `link_*`: noc, axis (0 x, 1 y), x and y of the node it leaves, bytes per input, load (share of its bandwidth),
    flows (how many use it). `use_*`: `USERS` rows per link, the largest flows: flow (index of `flow_*`, -1 for none)
    and its bytes per input. `flow_*`: producer, consumer, bytes per input. meta: `size` of the NoC, NoC `columns` and
    `rows` of the logical ones, `harvested` rows.
    """
    strings, total = Strings(), links.bytes
    order = np.argsort(-total, axis=None, kind="stable")[: int(np.count_nonzero(total))]
    noc, axis, y, x = np.unravel_index(order, total.shape)
    size = total.reshape(-1)[order]
    by_link = links.by_flow.reshape(len(links.flows), total.size)[:, order].T  # (links, flows)
    users = np.argsort(-by_link, axis=1, kind="stable")[:, :USERS]
    shares = np.take_along_axis(by_link, users, axis=1)
    users = np.where(shares > 0, users, -1)
    missing = USERS - users.shape[1]
    users = np.pad(users, ((0, 0), (0, missing)), constant_values=-1)
    shares = np.pad(shares, ((0, 0), (0, missing)))
    at = device.chips.index(links.chip)
    columns = {
        "link_noc": noc.astype("u1"),
        "link_axis": axis.astype("u1"),
        "link_x": x.astype("<u2"),
        "link_y": y.astype("<u2"),
        "link_bytes": size.astype("<f8"),
        "link_load": (size / max(1, links.cycles) / links.capacity).astype("<f4"),
        "link_flows": np.count_nonzero(by_link, axis=1).astype("<u2"),
        "use_flow": users.reshape(-1).astype("<i2"),
        "use_bytes": shares.reshape(-1).astype("<f4"),
        "flow_producer": strings.column(p for p, _ in links.flows),
        "flow_consumer": strings.column(c for _, c in links.flows),
        "flow_bytes": links.moved.astype("<f8"),
    }
    meta = {
        "epoch": links.epoch,
        "chip": links.chip,
        "noc": links.noc,
        "cycles": links.cycles,
        "capacity": links.capacity,
        "left_out": links.left_out,
        "size": list(device.noc_size),
        "columns": list(device.worker_cols),
        "rows": [int(device.physical_row(r, at)) for r in range(device.rows)],
        "harvested": sorted(int(r) for r in device.harvested_by_chip[at]),
        "users": USERS,
    }
    return Frame(f"links:{links.epoch}:{links.noc}", meta, columns, strings.table)
