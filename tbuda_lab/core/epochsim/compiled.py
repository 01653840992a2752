"""What the simulator reads of a compile; a `CompileResult` has it, and so has a placement in the making."""

from __future__ import annotations

from typing import Protocol

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import Override


class Compiled(Protocol):
    """A lowered graph and its placement. overrides: those asked for, of which input buffer multipliers count."""

    @property
    def lowered(self) -> Graph: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def device(self) -> DeviceSpec: ...
    @property
    def overrides(self) -> tuple[Override, ...]: ...
