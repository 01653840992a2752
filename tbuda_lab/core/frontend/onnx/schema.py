"""What an ONNX node may look like: its attributes and operands by the standard's schema, and by its weights and rank.

Checked before a node is read, so that no translator has to, and nothing that is malformed is taken for something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue
from tbuda_lab.core.frontend.onnx import read
from tbuda_lab.core.frontend.onnx.node import OnnxNode
from tbuda_lab.core.graph import Shape

AUTO_PADS = ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER")
DIRECTIONS = ("forward", "reverse", "bidirectional")
Check = Callable[[OnnxNode], None]


def check(n: OnnxNode) -> None:
    """Raises `CannotMap` that says what is wrong with a node, and what would be right."""
    _by_standard(n)
    rule = RULES.get(n.op_type)
    if rule is not None and n.proto.domain in ("", "ai.onnx"):
        rule(n)


SAYS_NOTHING = {
    **{op: {"kernel_shape"} for op in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv")},
    "Split": {"num_outputs"},
}
"""By op the attributes that other things say already: the shape of the weights (see `check`), the number of results."""


def refuse_unread(n: OnnxNode) -> None:
    """Raises `CannotMap` for an attribute that the translator has not asked for and that is not the standard's default:
    it would be accepted and ignored."""
    unread = set(n.attributes) - n.attributes.read - SAYS_NOTHING.get(n.op_type, set())
    for name in sorted(unread):
        value, default = dict.get(n.attributes, name), _default(n, name)
        if default is None or value != default:
            raise CannotMap(f"attribute {name}={value!r} of {n.op_type} has no form here; {default!r} has")


def _default(n: OnnxNode, name: str) -> Any:
    """What the standard takes for an attribute that is left out; None where it says nothing."""
    try:
        entry = read.onnx.defs.get_schema(n.op_type, n.opset, "").attributes[name].default_value
    except (read.onnx.defs.SchemaError, KeyError):
        return None
    value = read.onnx.helper.get_attribute_value(entry) if entry.name else None
    return value.decode() if isinstance(value, bytes) else value


def _by_standard(n: OnnxNode) -> None:
    """Names and types of attributes, numbers of operands and results, by the standard's own schema."""
    try:
        schema: Any = read.onnx.defs.get_schema(n.op_type, n.opset, "")
    except Exception:
        return  # an op that the standard does not have at this version
    kinds = read.onnx.AttributeProto.AttributeType
    for attribute in n.proto.attribute:
        known = schema.attributes.get(attribute.name)
        if known is None:
            raise CannotMap(
                f"it has no attribute {attribute.name!r}; there are {', '.join(sorted(schema.attributes)) or 'none'}"
            )
        if attribute.type and not attribute.ref_attr_name and int(known.type.value) != int(attribute.type):
            raise CannotMap(
                f"its attribute {attribute.name!r} is of type {kinds.Name(int(known.type.value))}, not "
                f"{kinds.Name(attribute.type)}"
            )
    given = {attribute.name for attribute in n.proto.attribute}
    missing = [name for name, a in schema.attributes.items() if a.required and name not in given]
    if missing:
        raise CannotMap(f"its attribute {missing[0]!r} is missing")
    for what, count, least, most in (
        ("operands", len(n.proto.input), schema.min_input, schema.max_input),
        ("results", len(n.proto.output), schema.min_output, schema.max_output),
    ):
        if not least <= count <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise CannotMap(f"it has {count} {what}; the standard has {wanted}")


def _numbers(n: OnnxNode, name: str, count: int, least: int) -> list[int] | None:
    """The integers of an attribute, so many and none of them smaller; None where it is left out."""
    value = n.attr(name)
    if value is None:
        return None
    numbers = [int(v) for v in value]
    if len(numbers) != count or any(v < least for v in numbers):
        raise CannotMap(f"its {name} are {numbers}; here they are {count} numbers from {least} on")
    return numbers


def _windows(n: OnnxNode, kernel: Sequence[int], negative: bool = False) -> None:
    """Attributes of what slides over an image, for this kernel. negative: whether pads may cut."""
    rank = len(kernel)
    shape = _numbers(n, "kernel_shape", rank, 1)
    if shape is not None and shape != list(kernel):
        raise CannotMap(f"its kernel_shape is {shape}, its weights are for {list(kernel)}")
    _numbers(n, "strides", rank, 1)
    _numbers(n, "dilations", rank, 1)
    _numbers(n, "pads", 2 * rank, -(1 << 31) if negative else 0)
    if n.attr("auto_pad", "NOTSET") not in AUTO_PADS:
        raise CannotMap(f"its auto_pad is {n.attr('auto_pad')!r}; there are {', '.join(filter(None, AUTO_PADS))}")


def _shape(n: OnnxNode, position: int) -> Shape | None:
    value = n.operands[position] if position < len(n.operands) else None
    return n.calls.shape(value) if isinstance(value, AtenValue | FoldedValue) else None


def _conv(at: tuple[int, int, int], transposed: bool = False) -> Check:
    """A convolution whose image, weights and bias are these operands."""

    def rule(n: OnnxNode) -> None:
        x, w, bias = (_shape(n, position) for position in at)
        if x is None or w is None:
            return
        if len(x) != len(w) or len(x) < 3:
            raise CannotMap(f"an image of shape {x} and weights of shape {w} differ in rank")
        _windows(n, w[2:], transposed)
        group = int(n.attr("group", 1))
        inside, out = (w[0], w[1] * group) if transposed else (w[1] * group, w[0])
        if group < 1 or inside != x[1] or (w[0] % group):
            raise CannotMap(f"weights of shape {w} in {group} groups do not fit {x[1]} channels")
        if bias is not None and bias != (out,):
            raise CannotMap(f"its bias has shape {bias}; there are {out} channels")

    return rule


def _pool(n: OnnxNode) -> None:
    x, kernel = n.shape(), [int(k) for k in n.attr("kernel_shape") or ()]
    if len(x) != len(kernel) + 2 or any(k < 1 for k in kernel):
        raise CannotMap(f"its kernel_shape {kernel} does not fit an image of shape {x}")
    _windows(n, kernel)
    pads = [int(p) for p in n.attr("pads") or ()]
    dilations = [int(d) for d in n.attr("dilations") or [1] * len(kernel)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(p >= r for p, r in zip(pads, reach * 2, strict=False)):
        raise CannotMap(f"its pads {pads} are as wide as its kernel {kernel}: a window would see nothing else")


def _axis(n: OnnxNode) -> None:
    rank, axis = n.rank(), n.attr("axis")
    beyond = 1 if n.op_type in ("Flatten", "OneHot") else 0
    if axis is not None and not -rank - beyond <= int(axis) < max(rank, 1) + beyond:
        raise CannotMap(f"its axis is {axis}; a tensor of shape {n.shape()} has {rank}")


def _transpose(n: OnnxNode) -> None:
    perm = n.attr("perm")
    if perm is not None and sorted(perm) != list(range(n.rank())):
        raise CannotMap(f"its perm {list(perm)} is no order of the {n.rank()} axes")


def _channels(*positions: int) -> Check:
    """Vectors with a number for each channel at these operands."""

    def rule(n: OnnxNode) -> None:
        x = n.shape()
        for position in positions:
            shape = _shape(n, position)
            if len(x) > 1 and shape is not None and shape != (x[1],):
                raise CannotMap(f"operand {position} has shape {shape}; there are {x[1]} channels")

    return rule


def _recurrent(gates: int) -> Check:
    def rule(n: OnnxNode) -> None:
        direction = n.attr("direction", "forward")
        if direction not in DIRECTIONS:
            raise CannotMap(f"its direction is {direction!r}; there are {', '.join(DIRECTIONS)}")
        ways = 2 if direction == "bidirectional" else 1
        x, w, r = (_shape(n, position) for position in range(3))
        if x is None or w is None or r is None:
            return
        size = int(n.attr("hidden_size", r[-1]))
        if w != (ways, gates * size, x[-1]) or r != (ways, gates * size, size):
            raise CannotMap(f"weights of shape {w} and {r} do not fit an input of shape {x} and hidden_size {size}")
        if int(n.attr("layout", 0)) not in (0, 1):
            raise CannotMap(f"its layout is {n.attr('layout')}; it is 0 or 1")

    return rule


RULES: dict[str, Check] = {
    "Conv": _conv((0, 1, 2)),
    "ConvTranspose": _conv((0, 1, 2), transposed=True),
    "ConvInteger": _conv((0, 1, 9)),
    "QLinearConv": _conv((0, 3, 8)),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(
        (
            "ArgMax",
            "ArgMin",
            "Concat",
            "Flatten",
            "Gather",
            "GatherElements",
            "Hardmax",
            "LayerNormalization",
            "LogSoftmax",
            "LpNormalization",
            "OneHot",
            "RMSNormalization",
            "ScatterElements",
            "Softmax",
            "Split",
            "TopK",
        ),
        _axis,
    ),
    "Transpose": _transpose,
    "BatchNormalization": _channels(1, 2, 3, 4),
    "InstanceNormalization": _channels(1, 2),
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
}
"""By op type, what its attributes have to do with its operands."""

__all__ = ["RULES", "check"]
