"""Devices as descriptor files: what `descriptor` reads, and the machine's own software with it."""

from __future__ import annotations

from collections.abc import Iterable

from tbuda_lab.core.device.spec import Core, DeviceSpec


def device_text(spec: DeviceSpec) -> str:
    """The device descriptor (YAML): the grid of the die, its cores, memories. Rows and columns are physical; which rows
    of which chip are off stands in the cluster descriptor."""
    working = [(x, y) for y in spec.worker_rows for x in spec.worker_cols]
    dram = ",\n   ".join(_cores(channel) for channel in spec.dram_cores)
    return "\n".join([
        f"arch_name: {spec.arch}",
        "grid:", f"  x_size: {spec.noc_size[0]}", f"  y_size: {spec.noc_size[1]}",
        "dram:", f"  [{dram}]",
        "functional_workers:", f"  {_cores(working)}",
        "harvested_workers: []",
        f"worker_l1_size: {spec.l1_size}",
        f"dram_bank_size: {spec.dram_channel_bytes}",
        "features:", "  math:", f"    dst_size_alignment: {spec.dst_bytes}",
        "",
    ])  # fmt: skip


def cluster_text(spec: DeviceSpec) -> str:
    """The cluster descriptor (YAML): chips, links between them, which the host reaches, their harvested rows."""
    used = dict.fromkeys(spec.chips, 0)
    links = []
    for a, b, count in spec.links:
        for _ in range(count):
            links.append(f"  - [{{chip: {a}, chan: {used[a]}}}, {{chip: {b}, chan: {used[b]}}}]")
            used[a] += 1
            used[b] += 1
    masks = [f"  {chip}: {{noc_translation: false, harvest_mask: {spec.harvesting_mask(i)}}}"
             for i, chip in enumerate(spec.chips)]
    return "\n".join([
        "chips:", *(f"  {chip}: [{i}, 0, 0, 0]" for i, chip in enumerate(spec.chips)),
        *(["ethernet_connections:", *links] if links else ["ethernet_connections: []"]),
        f"chips_with_mmio: [{', '.join(map(str, spec.mmio_chips))}]",
        "harvesting:", *masks, "",
    ])  # fmt: skip


def _cores(cores: Iterable[Core]) -> str:
    return "[" + ", ".join(f"{x}-{y}" for x, y in cores) + "]"
