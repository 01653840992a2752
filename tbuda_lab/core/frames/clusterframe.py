"""The frame of a cluster: chips with their places, links with what crosses them. Epochs are in the ops frame.

The frame of the links of an epoch: one row per link that carries something, and the flows that use it most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.analysis.cluster import cluster_map
from tbuda_lab.core.analysis.noc import LinkMap
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.frames.frame import Frame, Strings


def cluster_frame(result: Any, rev: int = 0) -> Frame:
    """Columns of the chips of a compile result.

    `chip_*`: number, stage of the pipeline, reached by the host, column and row of the card, epochs, cycles per input.
    `link_*`: the two chips, links between them, bytes per input forth and back, share of the bandwidth asked.
    `move_*`: bytes per input from a chip to another, however many links apart.
    """
    matches = cluster_map(result)
    chips, links, moves = list(matches.chips.values()), matches.links, list(matches.moves.items())
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
        "link_load": np.array([matches.load(k) for k in links], dtype="<f4"),
        "move_from": np.array([k[0] for k, _ in moves], dtype="<u2"),
        "move_to": np.array([k[1] for k, _ in moves], dtype="<u2"),
        "move_bytes": np.array([v for _, v in moves], dtype="<f8"),
    }
    return Frame("cluster", {"rev": rev, "slowest": matches.slowest, "capacity": matches.capacity}, columns)


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
    here = links.by_flow.reshape(len(links.flows), total.size)[:, order].T  # (links, flows)
    users = np.argsort(-here, axis=1, kind="stable")[:, :USERS]
    shares = np.take_along_axis(here, users, axis=1)
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
        "link_flows": np.count_nonzero(here, axis=1).astype("<u2"),
        "use_flow": users.reshape(-1).astype("<i2"),
        "use_bytes": shares.reshape(-1).astype("<f4"),
        "flow_producer": strings.column(p for p, _ in links.flows),
        "flow_consumer": strings.column(c for _, c in links.flows),
        "flow_bytes": links.moved.astype("<f8"),
    }
    meta = {
        "epoch": links.epoch, "chip": links.chip, "noc": links.noc, "cycles": links.cycles, "capacity": links.capacity,
        "left_out": links.left_out, "size": list(device.noc_size), "columns": list(device.worker_cols),
        "rows": [int(device.physical_row(r, at)) for r in range(device.rows)],
        "harvested": sorted(int(r) for r in device.harvested_by_chip[at]), "users": USERS,
    }  # fmt: skip
    return Frame(f"links:{links.epoch}:{links.noc}", meta, columns, strings.table)
