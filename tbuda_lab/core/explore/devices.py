"""Devices by expression: a board or file, so many chips, harvested rows, and what is changed of it.

`NAME[:CHIPS][+CHANGE=VALUE]...`: `n300`, `wormhole_b0:8`, `n150+harvest=2`, `wormhole_b0+grid=6x8+l1=1M`,
`grayskull+clock=0.9G+dram=x2`. Such a device need not exist.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import InputError

MOST_SIDE = 64
"""Rows or columns of cores of an invented grid."""
_NUMBER = re.compile(r"(x?)(\d+(?:\.\d+)?)([kMG]?)\Z")
_UNITS = {"": 0, "k": 1, "M": 2, "G": 3}


def parse_device(text: str, harvest: int = 0) -> DeviceSpec:
    """The device of an expression. harvest: how many more rows are harvested on every chip, from the last one up.

    Changes: harvest=N (rows), grid=RxC (cores, before harvesting), l1=SIZE (bytes of a core, k and M are 1024 and
    1024^2), clock=HZ (k, M, G are 1000 and its powers), dram=, noc=, pcie=, eth= (bytes per cycle); a number after x
    multiplies. Raises `UnknownDevice`, and `InputError` for what is no expression or leaves no core.
    """
    name, *changes = (part.strip() for part in text.split("+"))
    base, colon, chips = name.rpartition(":")
    if colon and not chips.isdecimal():
        raise InputError(f"device {text!r}: {chips!r} is not a number of chips; write for example n150:4")
    spec = load_device(base if colon else name, chips=int(chips) if colon else None)
    if spec.name != text:
        spec = dataclasses.replace(spec, name=_name(text))
    for change in changes:
        key, equals, value = (part.strip() for part in change.partition("="))
        if not equals or key not in CHANGES:
            raise InputError(f"device {text!r}: {change!r} is no change; there are {', '.join(CHANGES)}, each =VALUE")
        spec = CHANGES[key](spec, value)
    return _harvest(spec, harvest)


def _name(text: str) -> str:
    """The name that a netlist and the views show; of a file its stem."""
    return re.sub(r"\.ya?ml", "", text.rpartition("/")[2])


def _harvest(spec: DeviceSpec, count: int) -> DeviceSpec:
    if not 0 <= count < spec.rows:
        raise InputError(f"{spec.name} has {spec.rows} rows: 0 to {spec.rows - 1} more can be harvested, not {count}")
    if not count:
        return spec
    by_chip = []
    for rows in spec.harvested_by_chip:
        left = [row for row in spec.worker_rows if row not in rows]
        by_chip.append(tuple(sorted((*rows, *left[len(left) - count :]))))
    return dataclasses.replace(spec, rows=spec.rows - count, harvested_by_chip=tuple(by_chip))


def _harvest_change(spec: DeviceSpec, value: str) -> DeviceSpec:
    if not value.isdecimal():
        raise InputError(f"harvest={value}: give how many rows are left out")
    return _harvest(spec, int(value))


def _grid(spec: DeviceSpec, value: str) -> DeviceSpec:
    """Another grid: cores go from the end, or come behind the last ones, and the NoC grows with them."""
    match = re.fullmatch(r"(\d+)x(\d+)", value)
    if match is None or not all(1 <= int(side) <= MOST_SIDE for side in match.groups()):
        raise InputError(f"grid={value}: write ROWSxCOLUMNS, each from 1 to {MOST_SIDE}, e.g. 8x8")
    rows, cols = int(match[1]), int(match[2])
    width, height = spec.noc_size
    all_cols = (*spec.worker_cols, *range(width, width + cols))[:cols]
    all_rows = (*spec.worker_rows, *range(height, height + rows))[:rows]
    size = max(width, all_cols[-1] + 1), max(height, all_rows[-1] + 1)
    return dataclasses.replace(
        spec,
        rows=rows,
        cols=cols,
        worker_rows=all_rows,
        worker_cols=all_cols,
        noc_size=size,
        harvested_by_chip=((),) * len(spec.chips),
    )


def _scale(field: str, base: int, whole: bool) -> Callable[[DeviceSpec, str], DeviceSpec]:
    def change(spec: DeviceSpec, value: str) -> DeviceSpec:
        match = _NUMBER.match(value)
        now = getattr(spec, field)
        number = 0.0 if match is None else float(match[2]) * float(base) ** _UNITS[match[3]]
        number = now * number if match is not None and match[1] else number
        if not 0 < number < 1e15 or not math.isfinite(number) or (whole and number < 1):
            raise InputError(f"{field}: {value!r} is not a positive number, with k, M or G behind it or x before it")
        fields: dict[str, Any] = {field: int(number) if whole else number}
        return dataclasses.replace(spec, **fields)

    return change


def _l1(spec: DeviceSpec, value: str) -> DeviceSpec:
    changed = _scale("l1_size", 1024, True)(spec, value)
    if changed.l1_size <= spec.l1_reserved:
        raise InputError(f"l1={value}: {spec.l1_reserved} bytes of a core are reserved, so nothing is left")
    return dataclasses.replace(changed, l1_size=changed.l1_size // 32 * 32)


CHANGES: dict[str, Callable[[DeviceSpec, str], DeviceSpec]] = {
    "harvest": _harvest_change,
    "grid": _grid,
    "l1": _l1,
    "clock": _scale("clock_hz", 1000, True),
    "dram": _scale("dram_bytes_per_cycle", 1000, False),
    "noc": _scale("noc_bytes_per_cycle", 1000, False),
    "pcie": _scale("pcie_bytes_per_cycle", 1000, False),
    "eth": _scale("eth_bytes_per_cycle", 1000, False),
}
"""What an expression can change of a device."""
