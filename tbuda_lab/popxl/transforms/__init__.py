"""Transforms of graphs."""

from tbuda_lab.popxl.ops import faults
from tbuda_lab.popxl.transforms.autodiff import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
    autodiff,
)
from tbuda_lab.popxl.transforms.decompose_sum import decompose_sum
from tbuda_lab.popxl.transforms.merge_exchange import io_tile_exchange, merge_exchange

__all__ = [
    "ExpectedConnection",
    "ExpectedConnectionType",
    "GradGraphInfo",
    "autodiff",
    "decompose_sum",
    "io_tile_exchange",
    "merge_exchange",
]

faults.tell_where(globals())
