"""Device and cluster descriptor files, as the machine's own software reads them, in both directions."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from tbuda_lab.core.device.spec import Core, DeviceSpec
from tbuda_lab.core.errors import InputError, UnknownDevice
from tbuda_lab.core.files import yaml_map

_CORE = re.compile(r"([0-9]{1,3})-([0-9]{1,3})")
MOST_CHIPS = 1024
"""Chips of one device or cluster."""
_MOST_CORES, _MOST_COORDINATE = 10_000, 999
_TRANSLATED = 18  # first row and column of workers where the NoC translates coordinates


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Chips, links (chip, chip, count), chips with MMIO, harvested physical rows where the file gives them."""

    chips: tuple[int, ...]
    links: tuple[tuple[int, int, int], ...]
    mmio_chips: tuple[int, ...]
    harvested: Mapping[int, tuple[int, ...]]


def read_arch(path: Path) -> tuple[dict[str, Any], str]:
    """(the descriptor's map, its arch in lower case); raises `InputError` when it names none."""
    data = _descriptor(path, "device descriptor")
    arch = data.get("arch_name")
    if not isinstance(arch, str):
        raise InputError(f"{path}: a device descriptor gives arch_name")
    return data, arch.lower()


def _descriptor(path: Path, what: str) -> dict[str, Any]:
    if not os.path.isfile(path):  # not `Path.is_file`, which raises OSError for a name that no file system takes
        raise UnknownDevice(f"{path}: cannot read the {what}: there is no such file")
    return yaml_map(path, what)


def apply(base: DeviceSpec, data: dict[str, Any], path: Path) -> DeviceSpec:
    """`base` with everything the descriptor says; raises `InputError` naming the key at fault."""
    workers = _cores(data, "functional_workers", path)
    if not workers:
        raise InputError(f"{path}: functional_workers is empty")
    xs = sorted({x for x, _ in workers})
    ys = sorted({y for _, y in workers})
    worker_set = set(workers)
    if len(worker_set) != len(workers):
        raise InputError(f"{path}: functional_workers names a core twice")
    if len(workers) != len(xs) * len(ys):
        missing = next((x, y) for y in ys for x in xs if (x, y) not in worker_set)
        raise InputError(f"{path}: functional_workers are not a full grid: {missing[0]}-{missing[1]} is missing")
    channels = [c if isinstance(c, list) else [c] for c in _list(data, "dram", path)]
    dram = tuple(tuple(_core(c, "dram", path) for c in channel) for channel in channels)
    if not dram or not dram[0] or len({len(channel) for channel in dram}) != 1:
        raise InputError(f"{path}: dram lists the cores of each channel, equally many for all")
    size = data.get("physical", data.get("grid"))
    if not isinstance(size, dict) or not all(_whole(size.get(k), 1, _MOST_COORDINATE) for k in ("x_size", "y_size")):
        raise InputError(f"{path}: grid gives x_size and y_size, whole numbers from 1 to {_MOST_COORDINATE}")
    if xs[0] >= _TRANSLATED <= ys[0]:
        xs = _untranslate(xs, base.worker_cols, path)
        ys = _untranslate(ys, base.worker_rows, path)
    return dataclasses.replace(
        base,
        name=path.stem,
        rows=len(ys),
        cols=len(xs),
        worker_rows=tuple(ys),
        worker_cols=tuple(xs),
        noc_size=(size["x_size"], size["y_size"]),
        l1_size=_size(data, "worker_l1_size", path),
        dst_bytes=_dst_bytes(data, base, path),
        dram_cores=dram,
        dram_channel_bytes=_size(data, "dram_bank_size", path),
        dram_reserved=base.dram_reserved if len(dram) == base.dram_channels else (max(base.dram_reserved),) * len(dram),
        eth_links=len(_cores(data, "eth", path)),
        harvested_by_chip=(_harvested_rows(data, set(ys), path),),
    )


def read_cluster(path: Path) -> Cluster:
    """A cluster descriptor; raises `InputError` for links to chips that it does not list."""
    data = _descriptor(path, "cluster descriptor")
    chips_map = data.get("chips")
    if not isinstance(chips_map, dict) or not chips_map or not all(_whole(c, 0, 1 << 31) for c in chips_map):
        raise InputError(f"{path}: a cluster descriptor gives chips as a map from chip number to position")
    if len(chips_map) > MOST_CHIPS:
        raise InputError(f"{path}: {len(chips_map)} chips; a cluster has {MOST_CHIPS} at most")
    chips = tuple(sorted(chips_map))
    counts: dict[tuple[int, int], int] = {}
    for link in _list(data, "ethernet_connections", path):
        entries = link if isinstance(link, list) else []
        ends = [end["chip"] for end in entries if isinstance(end, dict) and _is_chip(end.get("chip"), chips_map)]
        if len(entries) != 2 or len(ends) != 2:
            raise InputError(
                f"{path}: ethernet_connections: {_short(link)} does not join two of the chips "
                f"{_short(', '.join(map(str, chips)))}"
            )
        key = (min(ends), max(ends))
        counts[key] = counts.get(key, 0) + 1
    mmio = tuple(_list(data, "chips_with_mmio", path)) or (chips[0],)
    unknown = [chip for chip in mmio if not _is_chip(chip, chips_map)]
    if unknown:
        raise InputError(f"{path}: chips_with_mmio names {_short(unknown[0])}, which is not a chip of the cluster")
    return Cluster(chips, tuple((a, b, n) for (a, b), n in sorted(counts.items())), mmio, _harvesting(data, path))


def _harvesting(data: dict[str, Any], path: Path) -> dict[int, tuple[int, ...]]:
    rows_of_chip: dict[int, tuple[int, ...]] = {}
    for chip, entry in _map(data, "harvesting", path).items():
        mask = entry.get("harvest_mask", 0) if isinstance(entry, dict) else None
        if not _whole(chip, 0, 1 << 31) or not _whole(mask, 0, 1 << 64):
            raise InputError(f"{path}: harvesting gives each chip a harvest_mask, not {_short(chip)}: {_short(entry)}")
        rows_of_chip[chip] = rows_of_mask(mask)
    return rows_of_chip


def _is_chip(value: Any, chips: Mapping[int, Any]) -> bool:
    return _whole(value, 0, 1 << 31) and value in chips


def _whole(value: Any, least: int, most: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= most


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def rows_of_mask(mask: int) -> tuple[int, ...]:
    """Physical rows whose bits are set."""
    return tuple(row for row in range(mask.bit_length()) if mask >> row & 1)


def _harvested_rows(data: dict[str, Any], working: set[int], path: Path) -> tuple[int, ...]:
    rows = {y for _, y in _cores(data, "harvested_workers", path)}
    return tuple(sorted(rows - working))


def _untranslate(values: list[int], physical: tuple[int, ...], path: Path) -> list[int]:
    """Physical coordinates of translated ones: the k-th working row or column is the k-th of the die."""
    if values[-1] - _TRANSLATED >= len(physical):
        raise InputError(f"{path}: translated coordinate {values[-1]} lies beyond the {len(physical)} of the die")
    return [physical[value - _TRANSLATED] for value in values]


def _list(data: dict[str, Any], key: str, path: Path) -> list[Any]:
    entry = data.get(key) or []
    if not isinstance(entry, list):
        raise InputError(f"{path}: {key} is a list")
    return entry


def _map(data: dict[str, Any], key: str, path: Path) -> dict[Any, Any]:
    entry = data.get(key) or {}
    if not isinstance(entry, dict):
        raise InputError(f"{path}: {key} is a map, not {_short(entry)}")
    return entry


def _dst_bytes(data: dict[str, Any], base: DeviceSpec, path: Path) -> int:
    """Bytes of the destination register; those of the arch where the file does not say."""
    value = _map(_map(data, "features", path), "math", path).get("dst_size_alignment", base.dst_bytes)
    if not _whole(value, 1, 1 << 30):
        raise InputError(
            f"{path}: features: math: dst_size_alignment is a positive number of bytes, not {_short(value)}"
        )
    return int(value)


def _cores(data: dict[str, Any], key: str, path: Path) -> list[Core]:
    cores = [_core(entry, key, path) for entry in _flat(_list(data, key, path))]
    if len(cores) > _MOST_CORES:
        raise InputError(f"{path}: {key} lists {len(cores)} cores; a chip has {_MOST_CORES} at most")
    return cores


def _flat(entries: Iterable[Any]) -> Iterable[Any]:
    for entry in entries:
        if isinstance(entry, list):
            yield from entry
        else:
            yield entry


def _core(entry: Any, key: str, path: Path) -> Core:
    match = _CORE.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        raise InputError(
            f"{path}: {key}: {_short(repr(entry))} is not a core; cores are written x-y, up to {_MOST_COORDINATE}"
        )
    return int(match[1]), int(match[2])


def _size(data: dict[str, Any], key: str, path: Path) -> int:
    value = data.get(key)
    if not _whole(value, 1, 1 << 48):
        raise InputError(f"{path}: {key} is a positive number of bytes, not {_short(value)}")
    return int(value)


def device_text(spec: DeviceSpec) -> str:
    """The device descriptor (YAML): the grid of the die, its cores, memories. Rows and columns are physical; which rows
    of which chip are off stands in the cluster descriptor."""
    working = [(x, y) for y in spec.worker_rows for x in spec.worker_cols]
    dram = ",\n   ".join(_core_names(channel) for channel in spec.dram_cores)
    return "\n".join(
        [
            f"arch_name: {spec.arch}",
            "grid:",
            f"  x_size: {spec.noc_size[0]}",
            f"  y_size: {spec.noc_size[1]}",
            "dram:",
            f"  [{dram}]",
            "functional_workers:",
            f"  {_core_names(working)}",
            "harvested_workers: []",
            f"worker_l1_size: {spec.l1_size}",
            f"dram_bank_size: {spec.dram_channel_bytes}",
            "features:",
            "  math:",
            f"    dst_size_alignment: {spec.dst_bytes}",
            "",
        ]
    )


def cluster_text(spec: DeviceSpec) -> str:
    """The cluster descriptor (YAML): chips, links between them, which the host reaches, their harvested rows."""
    used = dict.fromkeys(spec.chips, 0)
    links = []
    for a, b, count in spec.links:
        for _ in range(count):
            links.append(f"  - [{{chip: {a}, chan: {used[a]}}}, {{chip: {b}, chan: {used[b]}}}]")
            used[a] += 1
            used[b] += 1
    masks = [
        f"  {chip}: {{noc_translation: false, harvest_mask: {spec.harvesting_mask(i)}}}"
        for i, chip in enumerate(spec.chips)
    ]
    return "\n".join(
        [
            "chips:",
            *(f"  {chip}: [{i}, 0, 0, 0]" for i, chip in enumerate(spec.chips)),
            *(["ethernet_connections:", *links] if links else ["ethernet_connections: []"]),
            f"chips_with_mmio: [{', '.join(map(str, spec.mmio_chips))}]",
            "harvesting:",
            *masks,
            "",
        ]
    )


def _core_names(cores: Iterable[Core]) -> str:
    return "[" + ", ".join(f"{x}-{y}" for x, y in cores) + "]"
