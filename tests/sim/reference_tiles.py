"""Tensors as lists of tiles, for the reference evaluation."""

from __future__ import annotations

import numpy as np


class Tiles:
    """z x r x c tiles, each a 2-D array."""

    def __init__(self, z, r, c, tiles):
        self.z, self.r, self.c, self.tiles = z, r, c, tiles

    def at(self, z, r, c):
        return self.tiles[(z * self.r + r) * self.c + c]

    @staticmethod
    def build(z, r, c, pick):
        return Tiles(z, r, c, [pick(i, j, k) for i in range(z) for j in range(r) for k in range(c)])

    def cut(self, rows, columns):
        return self.build(self.z, self.r - rows, self.c - columns, self.at)


def to_tiles(x, tile_dim) -> Tiles:
    h, w = tile_dim
    z, rows, columns = x.shape
    return Tiles.build(z, rows // h, columns // w, lambda i, r, c: x[i, r * h : (r + 1) * h, c * w : (c + 1) * w])


def from_tiles(t: Tiles):
    return np.stack([np.block([[t.at(i, r, c) for c in range(t.c)] for r in range(t.r)]) for i in range(t.z)])
