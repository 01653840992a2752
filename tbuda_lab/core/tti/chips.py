"""An image made for some chips, run on others of the same number: only the numbers of the chips change."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.tti.loaded import Loaded


def on_chips(loaded: Loaded, chips: Sequence[int]) -> Loaded:
    """The image with its chips renamed, in order. Raises `InputError` unless as many different numbers are given."""
    new = tuple(chips)
    old = loaded.device.chips
    if len(new) != len(old) or len(set(new)) != len(new) or any(type(c) is not int or c < 0 for c in new):
        raise InputError(f"{loaded.name} runs on {len(old)} chip(s): give as many different numbers, not {list(new)}")
    if new == old:
        return loaded
    to = dict(zip(old, new, strict=True))
    device = dataclasses.replace(
        loaded.device, chips=new, mmio_chips=tuple(to[c] for c in loaded.device.mmio_chips),
        links=tuple((to[a], to[b], n) for a, b, n in loaded.device.links),
    )
    return dataclasses.replace(
        loaded, device=device, netlist=_renamed(loaded.netlist, to),
        overrides=tuple(_override(o, to) for o in loaded.overrides),
    )


def _renamed(netlist: Netlist, to: dict[int, int]) -> Netlist:
    twin = copy.copy(netlist)
    twin.queues = {n: dataclasses.replace(q, target_device=_target(q.target_device, to))
                   for n, q in netlist.queues.items()}
    twin.graphs = {}
    for name, graph in netlist.graphs.items():
        twin.graphs[name] = copy.copy(graph)
        twin.graphs[name].target_device = _target(graph.target_device, to)
    return twin


def _target(chip: int | list[int], to: dict[int, int]) -> int | list[int]:
    return [to.get(c, c) for c in chip] if isinstance(chip, list) else to.get(chip, chip)


def _override(override: Override, to: dict[int, int]) -> Override:
    value = override.value
    if isinstance(value, dict) and type(value.get("chip")) is int:
        return dataclasses.replace(override, value={**value, "chip": to.get(value["chip"], value["chip"])})
    return override
