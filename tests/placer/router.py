"""What a router would count in a netlist file: streams, phases and DRAM buffers of every core. It reads the YAML text
and nothing of the compiler; tiles are followed forwards, from the producer's layout through the TMs to the reader."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import yaml

FAN_OUT, DRAM_IN, PHASES, READERS = 16, 40, 862, 8

Plain = dict[str, Any]


@dataclasses.dataclass
class Use:
    """The worst core of an op. `back`: output macro blocks that a reader goes back, beyond the one being written."""

    fan_out: int = 0
    producer_phases: int = 0
    consumer_phases: int = 0
    dram_in: int = 0
    readers: int = 0
    back: int = 0
    depth: int = 1

    def faults(self) -> list[str]:
        """What of it no core can do."""
        limits = {
            "fan_out": FAN_OUT,
            "producer_phases": PHASES,
            "consumer_phases": PHASES,
            "dram_in": DRAM_IN,
            "readers": READERS,
        }
        matches = [f"{name} {getattr(self, name)}" for name, most in limits.items() if getattr(self, name) > most]
        return matches + ([f"goes back {self.back} of {self.depth}"] if self.back >= max(1, self.depth) else [])


def _layout(blocks: Plain) -> tuple[np.ndarray, np.ndarray]:
    """(core, place in the core's buffer) of every tile (t, rows, columns)."""
    (gr, gc), (m, n), (ur, uc) = blocks["grid_size"], blocks["mblock"], blocks["ublock"]
    z, r, c = np.indices((blocks["t"], gr * m * ur, gc * n * uc))
    down, along = r // ur % m, c // uc % n
    ublock = down * n + along if blocks.get("ublock_order", "r") == "r" else along * m + down
    return r // (m * ur) * gc + c // (n * uc), (z * m * n + ublock) * ur * uc + r % ur * uc + c % uc


def _moved(x: np.ndarray, name: str, value: Any) -> np.ndarray:
    z, r, c = x.shape
    if name == "transpose":
        return x.transpose(0, 2, 1)
    if name == "broadcast":
        for dim, n in value.items():
            x = np.tile(x, {"z": (n, 1, 1), "r": (1, n, 1), "c": (1, 1, n)}[dim])
        return x
    if name == "hslice":
        return x.reshape(z, r, value, c // value).transpose(0, 2, 1, 3).reshape(z * value, r, c // value)
    if name == "vslice":
        return x.reshape(z * value, r // value, c)
    if name == "hstack":
        return x.reshape(z // value, value, r, c).transpose(0, 2, 1, 3).reshape(z // value, r, value * c)
    if name == "vstack":
        return x.reshape(z // value, value * r, c)
    raise ValueError(name)


def _taken(op: Plain, port: int, tiles: np.ndarray) -> np.ndarray:
    """(cores, t, tiles) in the order in which the reading cores take them."""
    (gr, gc), (ur, uc), kind = op["grid_size"], op["ublock"], op["type"]
    z, r, c = tiles.shape

    def blocks(rows: int, cols: int, high: int, wide: int, order: str) -> np.ndarray:
        x = tiles.reshape(z, rows, r // rows // high, high, cols, c // cols // wide, wide)
        x = x.transpose(1, 4, 0, *((2, 5) if order == "r" else (5, 2)), 3, 6)
        return x.reshape(rows * cols, z, -1)

    if kind in ("matmul", "depthwise"):
        step = op["attributes"]["u_kt"]
        if op["attributes"].get("identity"):
            if port != 1:
                return tiles.reshape(1, 1, -1)
            return blocks(1, gc, math.gcd(step, r), uc, "r").reshape(gc, 1, -1)
        if port == 0 and kind == "depthwise":  # the output block once for every tap
            taps = op["attributes"]["m_k"]
            x = tiles.reshape(z, gr, r // gr // ur, ur, taps, c // taps // uc, uc)
            return x.transpose(1, 0, 4, 2, 5, 3, 6).reshape(gr, z, -1)
        if port == 0:
            return blocks(gr, 1, ur, math.gcd(step, c), "c")
        if port == 1:
            return blocks(1, gc, math.gcd(step, r), uc, "r")
        return tiles[:, :1].reshape(z, gc, -1).swapaxes(0, 1)
    if kind == "reduce" and op["attributes"]["dim"] != "z":
        step = op["attributes"]["u_kt"]
        return blocks(1, gc, step, uc, "c") if op["attributes"]["dim"] == "r" else blocks(gr, 1, ur, step, "r")
    if r % (gr * ur) or c % (gc * uc):
        return blocks(math.gcd(gr, r), math.gcd(gc, c), 1, 1, op["ublock_order"])
    return blocks(gr, gc, ur, uc, op["ublock_order"])


def _read(op: Plain, port: int, blocks: Plain) -> tuple[np.ndarray, np.ndarray]:
    """(core of the source, place in its buffer) of the tiles (cores, t, tiles) that the cores of an op take."""
    core, place = _layout(blocks)
    tiles = np.arange(core.size).reshape(core.shape)
    for tm in op.get(f"input_{port}_tms") or []:
        for key, value in [(tm, None)] if isinstance(tm, str) else tm.items():
            tiles = _moved(tiles, key, value)
    taken = _taken(op, port, tiles)
    return core.reshape(-1)[taken], place.reshape(-1)[taken]


def _ops(netlist: Plain) -> Plain:
    return {n: o for g in netlist["graphs"].values() for n, o in g.items() if isinstance(o, dict)}


def prefetched(text: str) -> dict[str, int]:
    """Buffers of preloaded queues that the busiest core of every op takes from."""
    netlist = yaml.safe_load(text)
    steps = [step for one in netlist["programs"] for program in one.values() for step in program]
    settings = [s["execute"].get("queue_settings", {}) for s in steps if isinstance(s, dict) and "execute" in s]
    selected = {name for one in settings for name, how in one.items() if how.get("prologue") in (True, "true")}
    return {
        name: sum(
            max(len(np.unique(c)) for c in _read(op, port, netlist["queues"][source])[0])
            for port, source in enumerate(op["inputs"])
            if source in selected
        )
        for name, op in _ops(netlist).items()
    }


def uses(text: str) -> dict[str, Use]:
    """What every op of a netlist needs."""
    netlist = yaml.safe_load(text)
    queues: Plain = netlist["queues"]
    ops = _ops(netlist)
    uses = {name: Use(depth=op["buf_size_mb"]) for name, op in ops.items()}
    for queue in queues.values():
        if queue["input"] in uses:
            uses[queue["input"]].readers += 1
            uses[queue["input"]].fan_out += 1
    for name, op in ops.items():
        for port, source in enumerate(op["inputs"]):
            blocks = queues.get(source) or ops[source]
            core, place = _read(op, port, blocks)
            if source in queues:
                uses[name].dram_in += max(len(np.unique(c)) for c in core)
                continue
            giver = uses[source]
            pairs = {(a, b) for b, cores in enumerate(core) for a in np.unique(cores).tolist()}
            giver.readers += 1
            giver.fan_out += int(np.bincount([a for a, _ in pairs]).max())
            slot = (place // math.prod((*blocks["mblock"], *blocks["ublock"]))).reshape(len(core), -1)
            giver.back = max(giver.back, int((np.maximum.accumulate(slot, axis=1) - slot).max()))
            whole = (np.diff(slot, axis=1) < 0).any()
            core, place = (x.reshape(len(x), -1) if whole else x[:, 0] for x in (core, place))
            twice = min(2, blocks["buf_size_mb"])
            moved = core[:, 1:] != core[:, :-1]
            broken = np.pad(moved | (np.diff(place, axis=1) != 1), ((0, 0), (1, 0)), constant_values=True)
            uses[name].consumer_phases += int(moved.sum(axis=1).max() + 1) * twice
            giver.producer_phases += int(np.bincount(core[broken]).max()) * twice
    return uses
