"""What convolutions do about their borders and strides: zero padding becomes the convolution's own, and the first one
of an image reads patches that the host cuts, and picks few pixels or none."""

from __future__ import annotations

import dataclasses
import itertools

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import Conv2d, ConvRows, Pad, PatchesRows, Reshape, Transpose
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.passes.base import Pass, Report, Rewriter
from tbuda_lab.core.passes.host import HOST_MOVES, enlarges


@dataclasses.dataclass(frozen=True)
class FusePadConv(Pass):
    """A constant zero pad of height and width whose reader is a conv2d is added to its padding."""

    name = "fuse_pad_conv"
    doc = "Fold zero padding of the image into the convolution that reads it"

    def apply(self, graph: Graph) -> Report:
        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            if not isinstance(node.op, Conv2d):
                return None
            source = r.new[operands[0]]
            pad = source.op
            if not isinstance(pad, Pad) or pad.mode != "constant" or pad.value != 0:
                return None
            image = pad.pads[1:3] if node.op.channel_last else pad.pads[2:4]
            if pad.pads[0] != (0, 0) or pad.pads[3 if node.op.channel_last else 1] != (0, 0):
                return None
            (top, bottom), (left, right) = image
            own = node.op.padding
            sides = (own[0] + left, own[1] + right, own[2] + top, own[3] + bottom)
            return r.keep(node, dataclasses.replace(node.op, padding=sides), (source.sources[0], *operands[1:]))

        return Report(self.name, Rewriter(graph, self.options).run(visit))


WHOLE_FROM = 512
"""Tile rows of output from which on a first convolution gets whole patches, of any width."""


@dataclasses.dataclass(frozen=True)
class _Cut:
    """Patches of `patch` pixels, one per output pixel and few more, of which a window of the kernel is `kernel` that
    lie `apart` patches from each other."""

    patch: tuple[int, int]
    kernel: tuple[int, int]
    apart: tuple[int, int]

    @property
    def positions(self) -> int:
        return self.kernel[0] * self.kernel[1]


@dataclasses.dataclass(frozen=True)
class Prestride(Pass):
    """A convolution of stride s on an image of c channels becomes one of stride 1 on patches of the image.

    With a tap at k = p*a + i and p a multiple of s, out[o] = sum over a, i of w[p*a + i] x[s*o + p*a + i]: the patch of
    p pixels that begins at s*(o + a*p/s) holds all i as channels, and the kernel shrinks to ceil(k / p). Few channels
    leave most of a tile's columns empty, so larger patches cost nothing to send: the patch is the one that leaves the
    fewest tiles over all kernel positions without widening the image. With a single position (a patch embedding, or a
    3x3 kernel on 3 channels) no picker is needed at all. The host does the cutting when it feeds the input.

    Of large images whole patches may be wider than the image, if that leaves fewer tiles: a picker over so many rows
    takes about as many cycles per tile (on wormhole_b0 some 80 at six positions of 800 rows) as the host needs to send
    one more (87 at 24 bytes per cycle), and has more of them. Smaller pickers are several times as fast.
    """

    name = "prestride"
    doc = "Cut an input image into patches on the host, so that its first convolution has stride 1 and few positions"

    def apply(self, graph: Graph) -> Report:
        if not self.options.enable_conv_prestride:
            return Report(self.name, 0)

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            op, image = node.op, r.new[operands[0]]
            if not isinstance(op, ConvRows) or image.shape[0] != 1:
                return None
            cut = patch_cut(op, image.shape[-1])
            if cut is None or not _fed_by_host(r, node):
                return None
            if r.new[operands[1]].kind not in (NodeKind.PARAMETER, NodeKind.CONSTANT):
                return None
            b = r.builder(node)
            grid = tuple(n + d * (k - 1) for n, d, k in zip(op.out_hw, cut.apart, cut.kernel, strict=True))
            left, _, top, _ = op.padding
            patches = b.op(PatchesRows(op.in_hw, (grid[0], grid[1]), cut.patch, op.stride, (top, left)), operands[0])
            conv = ConvRows((grid[0], grid[1]), cut.kernel, dilation=cut.apart)
            return b.op(conv, patches, _by_patch(b, operands[1], cut), *operands[2:])

        return Report(self.name, Rewriter(graph, self.options).run(visit))


def _tiles(size: int) -> int:
    return -(-size // 32)


def _cuts(kernel: int, stride: int) -> list[tuple[int, int, int]]:
    """(patch, kernel positions, patches between them) along one axis, smallest patch first."""
    cuts = []
    for apart in range(1, -(-kernel // stride) + 1):
        positions = -(-kernel // (stride * apart))
        cuts.append((stride * apart if positions > 1 else kernel, positions, apart if positions > 1 else 1))
    return cuts


def patch_cut(op: ConvRows, channels: int) -> _Cut | None:
    """How the host cuts an image of so many channels for a convolution: the cut with the fewest tiles of columns over
    all kernel positions; None where the plain form has no more."""
    if op.stride[0] != op.stride[1] or op.dilation != (1, 1) or op.groups != 1:
        return None
    best: _Cut | None = None
    fewest = op.kernel[0] * op.kernel[1] * _tiles(channels)
    most = _tiles(channels * min(op.stride[0], op.kernel[0]) * min(op.stride[1], op.kernel[1]))
    axes = (_cuts(k, s) for k, s in zip(op.kernel, op.stride, strict=True))
    for (ph, kh, dh), (pw, kw, dw) in itertools.product(*axes):
        columns = _tiles(channels * ph * pw)
        whole = kh * kw == 1 and _tiles(op.out_hw[0] * op.out_hw[1]) >= WHOLE_FROM
        if (columns <= most or whole) and kh * kw * columns < fewest:
            best, fewest = _Cut((ph, pw), (kh, kw), (dh, dw)), kh * kw * columns
    return best


def _fed_by_host(r: Rewriter, node: Node) -> bool:
    """Whether the image is a graph input behind nothing but data moves of the host that nothing else reads."""
    name = node.sources[0]
    while r.old[name].kind is NodeKind.OP:
        at = r.old[name]
        if r.single_user(name) is None or not isinstance(at.op, HOST_MOVES) or enlarges(at, r.old[at.sources[0]]):
            return False
        name = at.sources[0]
    return r.old[name].kind is NodeKind.INPUT and r.single_user(name) is not None


def _by_patch(b: Builder, weight: str, cut: _Cut) -> str:
    """(O, C, kH, kW) -> (O, C*ph*pw, aH, aW), channels in the order of a patch, zeros where a patch holds more than
    the kernel."""
    out, channels, kh, kw = b.shape(weight)
    (ph, pw), (ah, aw) = cut.patch, cut.kernel
    w = weight
    if (ph * ah, pw * aw) != (kh, kw):
        w = b.op(Pad(((0, 0), (0, 0), (0, ph * ah - kh), (0, pw * aw - kw))), w)
    if cut.positions > 1:
        w = b.op(Reshape((out, channels, ah, ph, aw, pw)), w)
        for dims in ((2, 3), (3, 5), (4, 5)):  # (O, C, a, i, b, j) -> (O, C, i, j, a, b)
            w = b.op(Transpose(*dims), w)
    return b.op(Reshape((out, channels * ph * pw, ah, aw)), w)
