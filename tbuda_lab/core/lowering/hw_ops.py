"""The hardware ops: what a lowered graph is made of. Each becomes one op of the netlist.

A lowered tensor is (z, R, C), R and C padded to whole 32x32 tiles; a lowered node's `shape` is its logical 4-D shape
(1, z, R, C), and `tile_shape` gives (z, rt, ct). TMs stand on the edges and are applied first to last before the op.
Relu is not an op: it is `relu` on the op that feeds it (the packer applies it).
"""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import TILE, Node, Op, Payload, Shape, ShapeError, TileShape, op


@dataclasses.dataclass(frozen=True)
class PackerRelu:
    """mode "min": x if x >= threshold else 0; mode "max": clamp to [0, threshold]."""

    threshold: float = 0.0
    mode: str = "min"


@dataclasses.dataclass(frozen=True)
class HwOp(Op):
    """Base of all hardware ops; `netlist_type` is the `type` the netlist writes; `relu` is applied by the packer."""

    relu: PackerRelu | None = dataclasses.field(default=None, kw_only=True)

    @property
    def netlist_type(self) -> str:
        return self.type.removeprefix("hw.")


def tile_shape(shape: Shape) -> TileShape:
    """(z, rt, ct) of a logical 4-D shape (w, z, R, C); w must be 1."""
    if len(shape) != 4 or shape[0] != 1:
        raise ShapeError(f"a lowered tensor is (1, z, R, C), not {tuple(shape)}")
    return shape[1], -(-shape[2] // TILE), -(-shape[3] // TILE)


def output_tiles(node: Node) -> TileShape:
    return tile_shape(node.shape)


@op("hw.matmul")
class HwMatmul(HwOp):
    """out[z] = A[z] @ B[z] (+ bias row); operands A (z,M,K), B (z,K,N), optional bias (z,1 tile row broadcast to M,N).

    accumulate: sum groups of `z` consecutive slices into one. sfpu_op: "gelu" after the bias, or "".
    """

    bias: bool = False
    accumulate: bool = False
    z: int = 1
    sfpu_op: str = ""


@op("hw.sparse_matmul")
class HwSparseMatmul(HwOp):
    """Row picker: out[t] = P[t] @ X, where X is the one operand, its z slices stacked as rows.

    picker: int array (n, 3) of (t, out_row, in_row) in *padded* element coordinates, sorted; in_row counts through
    z (in_z * padded rows + row). At most one entry per (t, out_row); rows without one are zero. The netlist op is
    `matmul` with `identity: true` and three inputs (sparse tiles, X, encodings); the first and third are made at
    emission, because their layout depends on the grid.
    """

    picker: Payload

    @property
    def netlist_type(self) -> str:
        return "matmul"


@op("hw.depthwise")
class HwDepthwise(HwOp):
    """out(r, c) = sum_b A(r, c + ct*b) @ B(b, c) per tile; A (1, R, k*C), B (1, k*32, C) diagonal tiles; bias row."""

    kernel: int
    bias: bool = False


@op("hw.unary")
class HwUnary(HwOp):
    """`fn`: nop exp log sqrt reciprocal sigmoid tanh gelu gelu_derivative lrelu abs power sine cosine."""

    fn: str
    approximate: bool = False
    slope: float = 0.01
    exp: int = 0

    @property
    def netlist_type(self) -> str:
        return self.fn


@op("hw.binary")
class HwBinary(HwOp):
    """`fn`: add subtract multiply maximum; both operands have the output's tile shape after their TMs."""

    fn: str

    @property
    def netlist_type(self) -> str:
        return self.fn


@op("hw.fused")
class HwFused(HwOp):
    """Element-wise ops, and sums between them, run as one; all have the output's tile shape unless there are sums.

    steps: (fn, operands, slope, exp) per op, producers first; the last one gives the result. An operand n >= 0 is the
    n-th of the fused op, one below 0 the result of step ~n. `fn` is that of `HwUnary` or `HwBinary`, or "matmul".
    spread: (step, "r" or "c") of arithmetic whose second operand, one of the fused op's, counts in every tile with its
    row 0 in all rows ("r") or its column 0 in all columns ("c").
    sums: steps that are matmuls with a constant. They sum along `dim`, "r" (x is operand 1) or "c" (operand 0), where x
    has `length` tiles, and the last step is none of them; or `length` is 1 and they fill tiles. narrow: steps whose
    result has one tile along `dim`, sums among them; any other step reads that by a broadcast.
    """

    steps: tuple[tuple[str, tuple[int, ...], float, int], ...]
    spread: tuple[tuple[int, str], ...] = ()
    sums: tuple[int, ...] = ()
    dim: str = ""
    length: int = 0
    narrow: tuple[int, ...] = ()

    @property
    def netlist_type(self) -> str:
        return "fused_op"


@op("hw.reduce")
class HwReduce(HwOp):
    """Maximum over `dim`: "r" -> (z, 1 tile row, C), row 0 of each tile valid; "c" alike; "z": groups of z slices."""

    dim: str
    z: int = 1


@op("hw.splice")
class HwSplice(HwOp):
    """Concatenate or select along `axis`: "z" (slices), "r" or "c" (tiles).

    ranges: per operand (index, length, stride): skip `index`, take `length`, advance `stride` in units of slices
    or tiles of that axis, repeating until every operand is used up.
    """

    axis: str
    ranges: tuple[tuple[int, int, int], ...]


def is_matmul_like(operation: Op | None) -> bool:
    return isinstance(operation, (HwMatmul, HwSparseMatmul, HwDepthwise))
