"""Names that a placement's parts have in its netlist."""

from __future__ import annotations

from tbuda_lab.core.balancer.types import Epoch
from tbuda_lab.core.device import DeviceSpec


def graph_name(epoch: Epoch, device: DeviceSpec) -> str:
    """The netlist graph of an epoch; on clusters of wormhole and later it tells the temporal epoch as well."""
    name = f"{epoch.direction}_0_{epoch.index}"
    return name if device.arch == "grayskull" else f"{name}_temporal_epoch_{epoch.temporal}"
