"""What those who look at a placement read of a compile; a `CompileResult` has it, and so has one in the making."""

from __future__ import annotations

from typing import Protocol

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.overrides import Override


class PlacedGraph(Protocol):
    """A lowered graph and its placement on a device."""

    @property
    def lowered(self) -> Graph: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def device(self) -> DeviceSpec: ...


class SimulatedCompile(PlacedGraph, Protocol):
    """overrides: those asked for, of which input buffer multipliers count. loaded_once: the epochs were loaded before
    and stay, so that a batch takes no time to switch to them."""

    @property
    def overrides(self) -> tuple[Override, ...]: ...
    @property
    def loaded_once(self) -> bool: ...
