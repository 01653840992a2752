"""Zero padding before a convolution becomes the convolution's own."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops import Conv2d, Pad
from tbuda_lab.core.passes.base import Pass, Report, Rewriter


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
