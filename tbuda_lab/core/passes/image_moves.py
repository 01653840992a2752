"""What a chain of data moves does to an image: which pixels and which channels it takes, in what order."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.graph import Op, Payload
from tbuda_lab.core.ops import BroadcastTo, GatherRows, Index, Reshape, Transpose
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import Pair
from tbuda_lab.core.ops.tm import pick


@dataclasses.dataclass(frozen=True)
class Moved:
    """A value made of the elements of one image.

    rows: the image as (1, 1, H*W, C). pixels: H*W. source: for every element its position in (C, H*W), flat.
    """

    rows: str
    pixels: int
    source: np.ndarray

    @staticmethod
    def image(rows: str, channels: int, hw: Pair) -> Moved:
        """The image itself."""
        pixels = hw[0] * hw[1]
        return Moved(rows, pixels, np.arange(channels * pixels).reshape(1, channels, *hw))

    def then(self, op: Op) -> Moved | None:
        """After one more move; None for what is none, or brings zeros in."""
        x = self.source
        if isinstance(op, Reshape):
            x = x.reshape(op.shape)
        elif isinstance(op, Transpose):
            x = x.swapaxes(op.dim0, op.dim1)
        elif isinstance(op, BroadcastTo):
            x = np.broadcast_to(x, op.shape)
        elif isinstance(op, Index):
            x = x[(slice(None),) * (op.dim % x.ndim) + (slice(op.start, op.stop, op.stride),)]
        elif isinstance(op, GatherRows) and int(op.index.array.min()) >= 0:
            x = x.take(op.index.array.reshape(-1), axis=-2)
        else:
            return None
        return dataclasses.replace(self, source=x)

    def in_rows(self, b: Builder) -> str | None:
        """The value as an image of some pixels and some channels, in rows; None where one depends on the other."""
        x = self.source
        if x.ndim != 4 or x.shape[0] != 1:
            return None
        channels, places = x[0, :, 0, 0] // self.pixels, x[0, 0] % self.pixels
        if not np.array_equal(x[0], channels[:, None, None] * self.pixels + places):
            return None
        return pick(b, _pixels(b, self.rows, places.reshape(-1)), -1, channels)


def _pixels(b: Builder, rows: str, at: np.ndarray) -> str:
    if np.array_equal(at, np.arange(at[0], at[0] + at.size)):
        return pick(b, rows, -2, at)
    return b.op(GatherRows(Payload(at)), rows)
