"""Sparse (identity) matmul: the tiles and the word stream that a core walks, in both directions.

A picker is a set of (t, out_row, in_row) with the value 1: out[t, out_row] = sum of the picked rows of the
activation, whose slices are stacked as rows. Emission encodes it for a grid and a blocking, the executor decodes it.

The stream of one core is a row of 16-bit words in pages of 4096 bytes. For each slice t come its strips (`u_kt` tile
rows of the activation) in ascending order; a strip never crosses a page:
* a 32-bit word, low half first: strip index in bits 0 to 29, bit 30 on the last strip of the slice, bit 31 on the
  last strip of the page;
* the number of output ublocks that the strip touches, and for each of them
* a header: the ublock's row in its low `sparse_ublock_idx_bits` bits, above them the number of tiles, 0 standing for
  the largest number plus one;
* a word per tile: above, in `sparse_tile_ptr_bits` bits, which sparse tile; below, the tile row in the ublock and
  the tile row in the strip, the latter in ceil(log2 u_kt) bits,
  one if u_kt is 1.
A slice without any tile has one empty strip. See routing.md#sparse-encodings.
"""

from tbuda_lab.core.netlist.sparse.decode import DecodedTiles, decode_stream, decode_to_csr
from tbuda_lab.core.netlist.sparse.encode import SparseEncoding, encode_picker
from tbuda_lab.core.netlist.sparse.layout import PickerProfile, SparseStatistics, fits, statistics

__all__ = [
    "DecodedTiles",
    "PickerProfile",
    "SparseEncoding",
    "SparseStatistics",
    "decode_stream",
    "decode_to_csr",
    "encode_picker",
    "fits",
    "statistics",
]
