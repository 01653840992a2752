"""Device and cluster descriptor files, as the machine's own software reads them.

A device descriptor names the NoC grid, the coordinates ("x-y") of every kind of core, L1 and DRAM sizes and
`arch_name`. A cluster descriptor names chips, the ethernet links between them and the chips that the host reaches.
What a descriptor leaves open (reserved memory, bandwidths) comes from the arch's own data.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core.device.spec import Core, DeviceSpec
from tbuda_lab.core.device.yamlfile import read_map
from tbuda_lab.core.errors import InputError

_CORE = re.compile(r"(\d+)-(\d+)")
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
    data = read_map(path, "device descriptor")
    arch = data.get("arch_name")
    if not isinstance(arch, str):
        raise InputError(f"{path}: a device descriptor gives arch_name")
    return data, arch.lower()


def apply(base: DeviceSpec, data: dict[str, Any], path: Path) -> DeviceSpec:
    """`base` with everything the descriptor says; raises `InputError` naming the key at fault."""
    workers = _cores(data, "functional_workers", path)
    if not workers:
        raise InputError(f"{path}: functional_workers is empty")
    xs = sorted({x for x, _ in workers})
    ys = sorted({y for _, y in workers})
    if len(workers) != len(xs) * len(ys):
        missing = next((x, y) for y in ys for x in xs if (x, y) not in set(workers))
        raise InputError(f"{path}: functional_workers are no full grid: {missing[0]}-{missing[1]} is missing")
    dram = tuple(tuple(_core(c, "dram", path) for c in channel) for channel in _list(data, "dram", path))
    if not dram or len({len(channel) for channel in dram}) != 1:
        raise InputError(f"{path}: dram lists the cores of each channel, equally many for all")
    size = data.get("physical", data.get("grid"))
    if not isinstance(size, dict) or not all(isinstance(size.get(k), int) for k in ("x_size", "y_size")):
        raise InputError(f"{path}: grid gives x_size and y_size")
    if xs[0] >= _TRANSLATED <= ys[0]:
        xs = _untranslate(xs, base.worker_cols, path)
        ys = _untranslate(ys, base.worker_rows, path)
    features = data.get("features") or {}
    return dataclasses.replace(
        base,
        name=path.stem,
        rows=len(ys),
        cols=len(xs),
        worker_rows=tuple(ys),
        worker_cols=tuple(xs),
        noc_size=(size["x_size"], size["y_size"]),
        l1_size=_size(data, "worker_l1_size", path),
        dst_bytes=int((features.get("math") or {}).get("dst_size_alignment", base.dst_bytes)),
        dram_cores=dram,
        dram_channel_bytes=_size(data, "dram_bank_size", path),
        dram_reserved=base.dram_reserved if len(dram) == base.dram_channels else (max(base.dram_reserved),) * len(dram),
        eth_links=len(_cores(data, "eth", path)),
        harvested_by_chip=(_harvested_rows(data, set(ys), path),),
    )


def read_cluster(path: Path) -> Cluster:
    """A cluster descriptor; raises `InputError` for links to chips that it does not list."""
    data = read_map(path, "cluster descriptor")
    chips_map = data.get("chips")
    if not isinstance(chips_map, dict) or not chips_map or not all(isinstance(c, int) for c in chips_map):
        raise InputError(f"{path}: a cluster descriptor gives chips as a map from chip number to position")
    chips = tuple(sorted(chips_map))
    counts: dict[tuple[int, int], int] = {}
    for link in _list(data, "ethernet_connections", path):
        entries = link if isinstance(link, list) else []
        ends = [end["chip"] for end in entries if isinstance(end, dict) and end.get("chip") in chips]
        if len(entries) != 2 or len(ends) != 2:
            raise InputError(f"{path}: ethernet_connections: {link!r} does not join two of the chips "
                             f"{', '.join(map(str, chips))}")
        key = (min(ends), max(ends))
        counts[key] = counts.get(key, 0) + 1
    mmio = tuple(_list(data, "chips_with_mmio", path)) or (chips[0],)
    unknown = [chip for chip in mmio if chip not in chips]
    if unknown:
        raise InputError(f"{path}: chips_with_mmio names {unknown[0]!r}, which is no chip of the cluster")
    harvesting = data.get("harvesting") or {}
    harvested = {int(chip): rows_of_mask(int(entry.get("harvest_mask", 0))) for chip, entry in harvesting.items()}
    return Cluster(chips, tuple((a, b, n) for (a, b), n in sorted(counts.items())), mmio, harvested)


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
    found = data.get(key) or []
    if not isinstance(found, list):
        raise InputError(f"{path}: {key} is a list")
    return found


def _cores(data: dict[str, Any], key: str, path: Path) -> list[Core]:
    return [_core(entry, key, path) for entry in _flat(_list(data, key, path))]


def _flat(entries: Iterable[Any]) -> Iterable[Any]:
    for entry in entries:
        if isinstance(entry, list):
            yield from entry
        else:
            yield entry


def _core(entry: Any, key: str, path: Path) -> Core:
    match = _CORE.fullmatch(entry) if isinstance(entry, str) else None
    if match is None:
        raise InputError(f"{path}: {key}: {entry!r} is no core; cores are written x-y")
    return int(match[1]), int(match[2])


def _size(data: dict[str, Any], key: str, path: Path) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InputError(f"{path}: {key} is a positive number of bytes, not {value!r}")
    return value
