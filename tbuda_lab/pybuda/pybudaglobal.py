"""`pybuda.pybudaglobal`: what one process has set up."""

from tbuda_lab.core.graph import TILE as TILE_DIM
from tbuda_lab.runtime.pipeline import (
    get_devices,
    get_tenstorrent_device,
    is_silicon,
    pybuda_reset,
    set_device_pipeline,
)

__all__ = ["TILE_DIM", "get_devices", "get_tenstorrent_device", "is_silicon", "pybuda_reset", "set_device_pipeline"]
