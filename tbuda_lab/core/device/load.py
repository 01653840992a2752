"""From a name or a descriptor file to a `DeviceSpec`."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from tbuda_lab.core.device import descriptor
from tbuda_lab.core.device.spec import DeviceSpec
from tbuda_lab.core.errors import InputError, UnknownDevice
from tbuda_lab.core.files import parse_yaml

ARCHS = ("grayskull", "wormhole_b0", "blackhole")
BOARDS: tuple[str, ...] = ("e150", "e300", "n150", "n300")
MOST_CHIPS = descriptor.MOST_CHIPS
_LINKS_PER_HOP = 4


def load_device(
    device: str | Path,
    *,
    harvested_rows: Sequence[int] | int | None = None,
    harvested_by_chip: Sequence[int] | None = None,
    chips: int | Sequence[int] | None = None,
    cluster: str | Path | None = None,
) -> DeviceSpec:
    """The device of that name (an arch, a board, or the path of a device descriptor YAML).

    `harvested_rows`: physical rows to leave out on every chip, as numbers or as a bit mask; replaces the board's
    own. `harvested_by_chip`: a bit mask for each chip instead. `chips`: how many chips, or their numbers; several
    chips of an arch with ethernet are joined as the most square mesh there is, with four links per hop. `cluster`: a
    cluster descriptor YAML that gives chips, links and MMIO chips instead.

    Raises `UnknownDevice` (listing the names) and `InputError` for rows, chips or files that make no device.
    """
    spec = _by_name(device)
    if cluster is not None:
        spec = _with_cluster(spec, descriptor.read_cluster(Path(cluster)))
    if chips is not None:
        spec = _with_chips(spec, chips)
    if harvested_rows is not None:
        spec = _harvest(spec, (_rows(harvested_rows),) * len(spec.chips))
    if harvested_by_chip is not None:
        if len(harvested_by_chip) != len(spec.chips):
            raise InputError(f"{spec.name} has {len(spec.chips)} chips, rows are given for {len(harvested_by_chip)}")
        spec = _harvest(spec, tuple(_rows(mask) for mask in harvested_by_chip))
    return spec


def _by_name(device: str | Path) -> DeviceSpec:
    if not isinstance(device, str | Path):
        raise UnknownDevice(
            f"a device is a name or the path of a descriptor, not {device!r}; names are {', '.join(ARCHS + BOARDS)}"
        )
    name = str(device)
    lower = name.lower()
    if lower in ARCHS:
        return _arch(lower)
    if lower in BOARDS:
        return _board(lower)
    path = Path(device)
    if path.suffix.lower() in (".yaml", ".yml"):
        data, arch = descriptor.read_arch(path)
        if arch not in ARCHS:
            raise UnknownDevice(f"{path}: arch_name {arch!r} is not one of {', '.join(ARCHS)}")
        return descriptor.apply(_arch(arch), data, path)
    raise UnknownDevice(
        f"unknown device {name!r}; one of {', '.join(ARCHS + BOARDS)}, or the path of a device descriptor .yaml"
    )


def _read_packaged(name: str) -> dict[str, Any]:
    """A YAML map of this package's data folder."""
    text = resources.files("tbuda_lab.core.device").joinpath("data", name).read_text(encoding="utf-8")
    packaged: dict[str, Any] = parse_yaml(text, name)
    return packaged


@functools.cache
def _arch(name: str) -> DeviceSpec:
    data = _read_packaged(f"{name}.yaml")
    align = data.pop("address_align")
    return DeviceSpec(
        name=name,
        chips=(0,),
        harvested_by_chip=((),),
        mmio_chips=(0,),
        links=(),
        dram_address_align=align,
        **{key: _frozen(value) for key, value in data.items()},
    )


@functools.cache
def _board(name: str) -> DeviceSpec:
    data = _read_packaged("boards.yaml")[name]
    harvested = _frozen(data["harvested"])
    spec = dataclasses.replace(
        _arch(data["arch"]),
        name=name,
        chips=tuple(range(len(harvested))),
        links=_frozen(data["links"]),
        harvested_by_chip=((),) * len(harvested),
    )
    return _harvest(spec, harvested)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _harvest(spec: DeviceSpec, by_chip: tuple[tuple[int, ...], ...]) -> DeviceSpec:
    """The device without those rows; all chips get the grid of the one with the fewest rows."""
    for rows in by_chip:
        wrong = [row for row in rows if row not in spec.worker_rows]
        if wrong:
            raise InputError(
                f"{spec.name}: row {wrong[0]} cannot be harvested; physical rows with cores are "
                f"{', '.join(map(str, spec.worker_rows))}"
            )
    harvested = tuple(tuple(sorted(set(rows))) for rows in by_chip)
    left = min(len(spec.worker_rows) - len(rows) for rows in harvested)
    if left < 1:
        raise InputError(f"{spec.name}: no row is left when {len(spec.worker_rows)} are harvested")
    return dataclasses.replace(spec, rows=left, harvested_by_chip=harvested)


def _rows(rows: Sequence[int] | int) -> tuple[int, ...]:
    """Physical rows from their numbers or from a bit mask."""
    if type(rows) is int:
        if not 0 <= rows < 1 << 64:
            raise InputError(f"a mask of rows has 64 bits at most, and {rows:#x} has other ones")
        return descriptor.rows_of_mask(rows)
    if not isinstance(rows, Iterable) or not all(type(row) is int for row in rows):
        raise InputError(f"harvested rows are numbers of physical rows, not {rows!r}")
    return tuple(rows)


def _with_chips(spec: DeviceSpec, chips: int | Sequence[int]) -> DeviceSpec:
    if isinstance(chips, bool | str) or not isinstance(chips, int | Sequence | range | frozenset | set):
        raise InputError(f"chips are a number of chips or their numbers, not {chips!r}")
    count = chips if isinstance(chips, int) else len(chips)
    if not 0 < count <= MOST_CHIPS:
        raise InputError(f"chips are one or more different numbers, {MOST_CHIPS} at most, not {count}")
    numbers = tuple(range(chips)) if isinstance(chips, int) else tuple(chips)
    if any(type(n) is not int or n < 0 for n in numbers) or len(set(numbers)) != len(numbers):
        raise InputError(f"chips are one or more different numbers, not {chips!r}")
    if set(numbers) <= set(spec.chips):  # a part of a board or a cluster
        index = {chip: i for i, chip in enumerate(spec.chips)}
        return dataclasses.replace(
            spec,
            chips=numbers,
            harvested_by_chip=tuple(spec.harvested_by_chip[index[c]] for c in numbers),
            links=tuple(link for link in spec.links if link[0] in numbers and link[1] in numbers),
            mmio_chips=tuple(c for c in spec.mmio_chips if c in numbers) or numbers[:1],
        )
    every = tuple(spec.harvested_by_chip[i % len(spec.chips)] for i in range(len(numbers)))
    links = _mesh(numbers) if spec.eth_links else ()
    return dataclasses.replace(spec, chips=numbers, harvested_by_chip=every, links=links, mmio_chips=numbers[:1])


def _mesh(chips: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Links of the most square mesh, chips numbered row by row."""
    count = len(chips)
    height = next(h for h in range(math.isqrt(count), 0, -1) if count % h == 0)
    width = count // height
    pairs = [(i, i + 1) for i in range(count) if (i + 1) % width]
    pairs += [(i, i + width) for i in range(count - width)]
    return tuple((chips[a], chips[b], _LINKS_PER_HOP) for a, b in sorted(pairs))


def _with_cluster(spec: DeviceSpec, cluster: descriptor.Cluster) -> DeviceSpec:
    own = spec.harvested_by_chip[0]
    spec = dataclasses.replace(
        spec,
        chips=cluster.chips,
        links=cluster.links,
        mmio_chips=cluster.mmio_chips,
        harvested_by_chip=(own,) * len(cluster.chips),
    )
    if cluster.harvested:
        return _harvest(spec, tuple(cluster.harvested.get(chip, ()) for chip in cluster.chips))
    return spec
