"""What the rules ask of a device."""

from __future__ import annotations

import dataclasses
import functools

from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import Netlist

ARCHS = ("grayskull", "wormhole", "wormhole_b0", "blackhole")
_PIPEGEN_BYTES = 256 * 1024 + 64  # of L1, kept by compilers for routing tables; buffers may grow into it by hand
_A0_DST = 4                  # wormhole A0 took ublocks four times as large


@dataclasses.dataclass(frozen=True)
class NetlistFacts:
    """A device under the name that a netlist gives its arch: `wormhole` is the A0 stepping of wormhole_b0."""

    arch: str
    device: DeviceSpec

    @property
    def grayskull(self) -> bool:
        return self.arch == "grayskull"

    @property
    def align(self) -> int:
        """Bytes to which tiles, queue headers and addresses are aligned."""
        return self.device.tile_align

    @property
    def l1_limit(self) -> int:
        """Bytes of L1 that buffers can have at most; `device.l1_usable` is what compilers allow themselves."""
        return self.device.l1_usable + _PIPEGEN_BYTES

    def dst_limit(self, acc_df: DataFormat | None) -> int:
        """Tiles of one ublock at most."""
        return self.device.dst_tiles(acc_df) * (_A0_DST if self.arch == "wormhole" else 1)


def leading_arch(n: Netlist) -> str:
    """The arch that decides where none is asked for: the first that the netlist names, wormhole_b0 before `wormhole`
    (no machine of that early stepping is left); wormhole_b0 if it names none that exists."""
    archs = [a for a in n.archs if a in ARCHS]
    if not archs or (archs[0] == "wormhole" and "wormhole_b0" in archs):
        return "wormhole_b0"
    return archs[0]


@functools.cache
def facts_of(name: str) -> NetlistFacts:
    """The facts of an arch (one of `ARCHS`, every row working), a board or a descriptor file.

    Raises UnknownDevice."""
    if name.lower() == "wormhole":
        return NetlistFacts("wormhole", load_device("wormhole_b0"))
    device = load_device(name)
    return NetlistFacts(device.arch, device)
