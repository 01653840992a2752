"""Data formats, math fidelity and tile geometry."""

from tbuda_lab.core.formats.chunks import within
from tbuda_lab.core.formats.convert import INTEGER_RANGE, cut_blocks, quantise, round_to, tf32
from tbuda_lab.core.formats.data_format import FIDELITIES, DataFormat, MathFidelity, parse_fidelity, parse_format
from tbuda_lab.core.formats.tiles import TILE_DIMS, exponent_bytes, pack_tiles, tile_bytes, unpack_tiles

__all__ = [
    "FIDELITIES",
    "INTEGER_RANGE",
    "TILE_DIMS",
    "DataFormat",
    "MathFidelity",
    "cut_blocks",
    "exponent_bytes",
    "pack_tiles",
    "parse_fidelity",
    "parse_format",
    "quantise",
    "round_to",
    "tf32",
    "tile_bytes",
    "unpack_tiles",
    "within",
]
