"""Slots: the tensors of a host program that several of its steps use, on the device, on the host, or on both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.bindings import decode, encode
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import TILE
from tbuda_lab.sim import Executor

LARGEST_SLICE = 64
"""Tiles of a ram's slice, at most: whoever writes a ram does so from one core, slice by slice (`Slices`)."""


@dataclasses.dataclass(frozen=True)
class Slices:
    """A ram of a tensor that is more than one core can hold: its matrices (rows, cols) are cut into `across` blocks of
    columns, and these into `down` slices of height x width, one after the other, with zeros behind the end."""

    matrices: int
    rows: int
    cols: int
    down: int
    across: int
    height: int
    width: int

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Slices | None:
        """None for a tensor whose matrices are at most `LARGEST_SLICE` tiles each."""
        *lead, rows, cols = (1, 1, *shape)
        high, wide = -(-rows // TILE), -(-cols // TILE)
        if high * wide <= LARGEST_SLICE or 0 in shape:
            return None
        across = -(-wide // LARGEST_SLICE)
        width = -(-wide // across)
        down = -(-high // max(1, LARGEST_SLICE // width))
        height = 1 if rows == 1 else TILE * -(-high // down)
        return cls(math.prod(lead), rows, cols, down, across, height, 1 if cols == 1 else TILE * width)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the ram."""
        return self.matrices * self.across * self.down, self.height, self.width

    @property
    def padding(self) -> tuple[int, int]:
        """Rows and columns of zeros behind each matrix."""
        return self.down * self.height - self.rows, self.across * self.width - self.cols

    def cut(self, value: np.ndarray) -> np.ndarray:
        """The ram's tensor."""
        below, right = self.padding
        whole = np.pad(value.reshape(self.matrices, self.rows, self.cols), ((0, 0), (0, below), (0, right)))
        blocks = whole.reshape(self.matrices, -1, self.across, self.width).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).reshape(self.shape)

    def join(self, parts: np.ndarray) -> np.ndarray:
        """The tensor of a ram's, as (matrices, rows, cols)."""
        blocks = parts.reshape(self.matrices, self.across, -1, self.width).swapaxes(1, 2)
        return blocks.reshape(self.matrices, self.down * self.height, -1)[:, : self.rows, : self.cols]


@dataclasses.dataclass
class Slot:
    """rams: names of its views on the device, the same bytes; host: whether the host has a copy; initial: what is in it
    at first (zeros where None). dtype: NumPy's name, or of a dialect's own type, whose bytes are on the host alone.
    slices: how its rams hold it; None for as it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rams: list[str] = dataclasses.field(default_factory=list)
    host: bool = False
    initial: np.ndarray | None = None
    slices: Slices | None = None


class SlotValues:
    """What lies in the slots of one replica. numpy: the type of a slot's array on the host."""

    def __init__(self, slots: Mapping[str, Slot], executor: Executor | None, numpy: Mapping[str, Any]) -> None:
        self.slots, self.executor, self._numpy = slots, executor, numpy
        self.host: dict[str, np.ndarray] = {}
        there = () if executor is None else executor.io
        self.rams = {n: next((r for r in s.rams if r in there), None) for n, s in slots.items()}
        for name, slot in slots.items():
            if slot.initial is not None:
                self.write(name, slot.initial)
            elif slot.host or not slot.rams:
                self.host[name] = np.zeros(slot.shape, self._type(slot))

    def _type(self, slot: Slot) -> Any:
        return self._numpy.get(slot.dtype, slot.dtype)

    def read(self, name: str) -> np.ndarray:
        """The host's copy, where there is one, else what the device holds."""
        return self.host[name] if name in self.host else self.fetch(name)

    def fetch(self, name: str) -> np.ndarray:
        """What the device holds, in the slot's type."""
        slot, ram = self._slot(name), self.rams[name]
        if ram is None or self.executor is None:
            return self.host[name]
        if slot.slices is None:
            value = decode(self.executor.read(ram), slot.shape).numpy()
        else:
            value = slot.slices.join(decode(self.executor.read(ram), slot.slices.shape).numpy()).reshape(slot.shape)
        target = np.dtype(self._type(slot))
        if target.kind == "b":
            return np.asarray(value != 0)
        rounds = target.kind in "iu" and value.dtype.kind == "f"
        with np.errstate(over="ignore", invalid="ignore"):  # beyond the largest of a shorter type there is infinity
            return np.asarray(np.rint(value) if rounds else value).astype(target)

    def write(self, name: str, value: np.ndarray) -> None:
        """Both copies."""
        slot = self._slot(name)
        if slot.host or self.rams[name] is None:
            self.host[name] = np.array(value, self._type(slot)).reshape(slot.shape)
        ram = self.rams[name]
        if ram is not None and self.executor is not None:
            kind = np.int32 if slot.dtype == "int32" else np.float32
            array, shape = np.array(value, kind).reshape(slot.shape), slot.shape
            if slot.slices is not None:
                array, shape = slot.slices.cut(array), slot.slices.shape
            self.executor.write(ram, encode(torch.from_numpy(array), shape, name))

    def take(self, name: str) -> None:
        """The host's copy becomes what the device holds."""
        self.host[name] = self.fetch(name)

    def _slot(self, name: str) -> Slot:
        if name not in self.slots:
            raise InputError(f"the host program names slot {name!r}, which there is not")
        return self.slots[name]
