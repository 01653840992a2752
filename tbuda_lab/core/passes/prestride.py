"""A strided convolution on a graph input reads the phases of the image, which the host sorts, with stride 1."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import ConvRows, Index, Pad, Reshape, Transpose
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.passes.base import Pass, Report, Rewriter
from tbuda_lab.core.passes.host_moves import MOVES


@dataclasses.dataclass(frozen=True)
class Prestride(Pass):
    """A convolution of stride s on an image of c channels becomes one of stride 1 on c*s*s channels.

    With a tap at k = s*a + i, out[o] = sum over a, i of w[s*a + i] x[s*(o + a) + i]: phase i of the padded image is a
    channel of its own, and the kernel shrinks to ceil(k / s). Far fewer pixels are picked, and a patch embedding
    (kernel = stride) needs no picker at all. The host does the sorting when it feeds the input.
    """

    name = "prestride"
    doc = "Sort the pixels of an input image by phase on the host, so that its first convolution has stride 1"

    def apply(self, graph: Graph) -> Report:
        if not self.options.enable_conv_prestride:
            return Report(self.name, 0)

        def visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
            op = node.op
            if not isinstance(op, ConvRows) or not _worthwhile(op, r.new[operands[0]].shape[-1]):
                return None
            if not _fed_by_host(r, node) or r.new[operands[1]].kind not in (NodeKind.PARAMETER, NodeKind.CONSTANT):
                return None
            b = r.builder(node)
            image, weight = _phases(b, operands[0], op), _by_phase(b, operands[1], op)
            oh, ow = op.out_hw
            kernel = _kernel(op)
            conv = ConvRows((oh + kernel[0] - 1, ow + kernel[1] - 1), kernel)
            return b.op(conv, image, weight, *operands[2:])

        return Report(self.name, Rewriter(graph, self.options).run(visit))


def _kernel(op: ConvRows) -> tuple[int, int]:
    return -(-op.kernel[0] // op.stride[0]), -(-op.kernel[1] // op.stride[1])


def _worthwhile(op: ConvRows, channels: int) -> bool:
    """Fewer tiles of columns over all kernel positions than before, and a kernel that the plain form covers."""
    s = op.stride[0]
    if s == 1 or op.stride[1] != s or op.dilation != (1, 1) or op.groups != 1:
        return False
    before = op.kernel[0] * op.kernel[1] * -(-channels // 32)
    kernel = _kernel(op)
    return kernel[0] * kernel[1] * -(-channels * s * s // 32) < before


def _fed_by_host(r: Rewriter, node: Node) -> bool:
    """Whether the image is a graph input behind nothing but data moves that nothing else reads."""
    name = node.sources[0]
    while r.old[name].kind is NodeKind.OP:
        if r.single_user(name) is None or not isinstance(r.old[name].op, MOVES):
            return False
        name = r.old[name].sources[0]
    return r.old[name].kind is NodeKind.INPUT and r.single_user(name) is not None


def _phases(b: Builder, x: str, op: ConvRows) -> str:
    """(1, 1, H*W, C) -> (1, 1, H'*W', s*s*C), H' = OH + ceil(k/s) - 1; channel order (row phase, column phase, C)."""
    (h, w), s, channels = op.in_hw, op.stride[0], b.shape(x)[-1]
    (oh, ow), kernel = op.out_hw, _kernel(op)
    height, width = oh + kernel[0] - 1, ow + kernel[1] - 1
    left, _, top, _ = op.padding
    image = b.op(Reshape((1, h, w, channels)), x)
    pads: tuple[tuple[int, int], ...] = ((0, 0), (top, s * height - h - top), (left, s * width - w - left), (0, 0))
    if min(min(p) for p in pads) < 0:  # rows or columns that no tap reads
        for dim, (size, (_, after)) in enumerate(zip((1, h, w, channels), pads, strict=True)):
            if after < 0:
                image = b.op(Index(dim, 0, size + after), image)
        pads = tuple((before, max(after, 0)) for before, after in pads)
    image = b.op(Pad(pads), image)
    image = b.op(Reshape((1, height, s, width, s * channels)), image)
    image = b.op(Transpose(2, 3), image)
    return b.op(Reshape((1, 1, height * width, s * s * channels)), image)


def _by_phase(b: Builder, weight: str, op: ConvRows) -> str:
    """(O, C, kH, kW) -> (O, s*s*C, ceil(kH/s), ceil(kW/s)), channels in the order of `_phases`."""
    out, channels, kh, kw = b.shape(weight)
    s, (ah, aw) = op.stride[0], _kernel(op)
    w = b.op(Pad(((0, 0), (0, 0), (0, s * ah - kh), (0, s * aw - kw))), weight)
    w = b.op(Reshape((out, channels, ah, s, aw, s)), w)
    for dims in ((1, 3), (2, 5), (4, 5)):  # (O, C, a, i, b, j) -> (O, i, j, C, a, b)
        w = b.op(Transpose(*dims), w)
    return b.op(Reshape((out, s * s * channels, ah, aw)), w)
