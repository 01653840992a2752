"""How far DRAM channels are from the cores that use a queue, in hops of the NoC (placement.md#noc-distances)."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.device.noc import fewest_hops


def hops(device: DeviceSpec, chip: int, cores: np.ndarray) -> np.ndarray:
    """(cores, channels) hops between logical cores (n, 2) of a chip and each channel's nearest DRAM core, by the
    shorter way of the two NoCs."""
    at = device.chips.index(chip)
    rows = np.array([device.physical_row(r, at) for r in range(device.rows)])
    columns = np.array(device.worker_cols)
    dram = np.array(device.dram_cores)  # (channels, subchannels, 2)
    nodes = np.stack([columns[cores[:, 1]], rows[cores[:, 0]]], axis=1)
    nearest: np.ndarray = fewest_hops(nodes[:, None, None], dram, device.noc_size).min(axis=2)
    return nearest


def sharing(cores: tuple[int, int], buffers: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """For a grid of cores that share a grid of buffers evenly: (core row, core column) of every core, and the number of
    the buffer it uses, row by row."""
    r, c = (a.reshape(-1) for a in np.indices(cores))
    return np.stack([r, c], axis=1), r * buffers[0] // cores[0] * buffers[1] + c * buffers[1] // cores[1]
