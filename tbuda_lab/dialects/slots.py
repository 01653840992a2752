"""Slots: the tensors of a host program that several of its steps use, on the device, on the host, or on both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.bindings import decode, encode
from tbuda_lab.core.errors import InputError
from tbuda_lab.sim import Executor


@dataclasses.dataclass
class Slot:
    """rams: names of its views on the device, the same bytes; host: whether the host has a copy; initial: what is in it
    at first (zeros where None). dtype: NumPy's name, or of a dialect's own type, whose bytes are on the host alone."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rams: list[str] = dataclasses.field(default_factory=list)
    host: bool = False
    initial: np.ndarray | None = None


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
        value = decode(self.executor.read(ram), slot.shape).numpy()
        target = np.dtype(self._type(slot))
        if target.kind == "b":
            return np.asarray(value != 0)
        rounds = target.kind in "iu" and value.dtype.kind == "f"
        return np.asarray(np.rint(value) if rounds else value).astype(target)

    def write(self, name: str, value: np.ndarray) -> None:
        """Both copies."""
        slot = self._slot(name)
        if slot.host or self.rams[name] is None:
            self.host[name] = np.array(value, self._type(slot)).reshape(slot.shape)
        ram = self.rams[name]
        if ram is not None and self.executor is not None:
            kind = np.int32 if slot.dtype == "int32" else np.float32
            tensor = torch.from_numpy(np.array(value, kind).reshape(slot.shape))
            self.executor.write(ram, encode(tensor, slot.shape, name))

    def take(self, name: str) -> None:
        """The host's copy becomes what the device holds."""
        self.host[name] = self.fetch(name)

    def _slot(self, name: str) -> Slot:
        if name not in self.slots:
            raise InputError(f"the host program names slot {name!r}, which there is not")
        return self.slots[name]
