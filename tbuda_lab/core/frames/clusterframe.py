"""The frame of a cluster: chips with their places, links with what crosses them. Epochs are in the ops frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.analysis.cluster import cluster_map
from tbuda_lab.core.frames.frame import Frame


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
    return Frame("cluster", {"rev": rev, "pace": matches.pace, "capacity": matches.capacity}, columns)
