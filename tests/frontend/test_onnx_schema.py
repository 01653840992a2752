"""Malformed ONNX nodes are refused before they are read, by type and by name; onnxruntime refuses each of them too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frontend.aten.call import CannotMap, ReadArguments
from tbuda_lab.core.frontend.onnx import from_onnx, schema
from tbuda_lab.core.frontend.onnx.node import TABLE as TRANSLATORS

onnx = pytest.importorskip("onnx")

IMAGE, KERNEL = (1, 4, 8, 8), (6, 4, 3, 3)

TABLE: dict[str, tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]] = {
    # name: (op, shapes of operands; those after the first are weights, attributes)
    "kernel_shape of other weights": ("Conv", {"x": IMAGE, "w": KERNEL}, {"kernel_shape": [5, 5]}),
    "strides of one dim": ("Conv", {"x": IMAGE, "w": KERNEL}, {"strides": [1]}),
    "a stride of zero": ("Conv", {"x": IMAGE, "w": KERNEL}, {"strides": [0, 1]}),
    "pads of one side": ("Conv", {"x": IMAGE, "w": KERNEL}, {"pads": [1, 1]}),
    "dilations of three dims": ("Conv", {"x": IMAGE, "w": KERNEL}, {"dilations": [1, 1, 1]}),
    "groups that do not divide": ("Conv", {"x": IMAGE, "w": KERNEL}, {"group": 3}),
    "a group of zero": ("Conv", {"x": IMAGE, "w": KERNEL}, {"group": 0}),
    "channels that do not fit": ("Conv", {"x": IMAGE, "w": (6, 3, 3, 3)}, {}),
    "a bias of other length": ("Conv", {"x": IMAGE, "w": KERNEL, "b": (5,)}, {}),
    "an unknown auto_pad": ("Conv", {"x": IMAGE, "w": KERNEL}, {"auto_pad": "SAME"}),
    "transposed, other channels": ("ConvTranspose", {"x": IMAGE, "w": (3, 4, 3, 3)}, {}),
    "transposed, kernel_shape": ("ConvTranspose", {"x": IMAGE, "w": (4, 4, 3, 3)}, {"kernel_shape": [2, 2]}),
    "a pool without kernel_shape": ("MaxPool", {"x": IMAGE}, {}),
    "a pool of one dim": ("MaxPool", {"x": IMAGE}, {"kernel_shape": [2]}),
    "a pool's pads as wide as it": ("AveragePool", {"x": IMAGE}, {"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]}),
    "a pool's stride of zero": ("AveragePool", {"x": IMAGE}, {"kernel_shape": [2, 2], "strides": [0, 0]}),
    "perm that repeats": ("Transpose", {"x": IMAGE}, {"perm": [0, 1, 1, 2]}),
    "perm of another rank": ("Transpose", {"x": IMAGE}, {"perm": [1, 0]}),
    "an axis that is not there": ("Softmax", {"x": IMAGE}, {"axis": 4}),
    "concat without an axis": ("Concat", {"x": IMAGE, "w": IMAGE}, {}),
    "concat of other sizes": ("Concat", {"x": IMAGE, "w": (1, 4, 7, 8)}, {"axis": 1}),
    "concat along no axis": ("Concat", {"x": IMAGE, "w": IMAGE}, {"axis": 5}),
    "flatten beyond the rank": ("Flatten", {"x": IMAGE}, {"axis": 5}),
    "gather along no axis": ("Gather", {"x": IMAGE, "i": (2,)}, {"axis": 4}),
    "argmax along no axis": ("ArgMax", {"x": IMAGE}, {"axis": 4}),
    "an unknown attribute": ("Relu", {"x": IMAGE}, {"slope": 0.1}),
    "an attribute of another type": ("LeakyRelu", {"x": IMAGE}, {"alpha": 1}),
    "too many operands": ("Relu", {"x": IMAGE, "w": IMAGE}, {}),
    "too few operands": ("Add", {"x": IMAGE}, {}),
    "scale of other channels": ("BatchNormalization", {"x": IMAGE, "s": (3,), "b": (4,), "m": (4,), "v": (4,)}, {}),
    "variance of other channels": ("BatchNormalization", {"x": IMAGE, "s": (4,), "b": (4,), "m": (4,), "v": (5,)}, {}),
    "instance norm of other channels": ("InstanceNormalization", {"x": IMAGE, "s": (3,), "b": (3,)}, {}),
    "groups of a norm that do not divide": (
        "GroupNormalization",
        {"x": IMAGE, "s": (4,), "b": (4,)},
        {"num_groups": 3},
    ),
    "layer norm along no axis": ("LayerNormalization", {"x": IMAGE, "s": (8,)}, {"axis": 4}),
    "blocks that do not divide": ("DepthToSpace", {"x": IMAGE}, {"blocksize": 3}),
    "spaces that do not divide": ("SpaceToDepth", {"x": IMAGE}, {"blocksize": 3}),
    "gemm of other sizes": ("Gemm", {"x": (4, 5), "w": (6, 7)}, {}),
    "gemm with a bias that does not spread": ("Gemm", {"x": (4, 5), "w": (5, 7), "c": (3,)}, {}),
    "hidden_size of other weights": ("LSTM", {"x": (3, 1, 4), "w": (1, 32, 4), "r": (1, 32, 8)}, {"hidden_size": 4}),
    "an unknown direction": (
        "LSTM",
        {"x": (3, 1, 4), "w": (1, 32, 4), "r": (1, 32, 8)},
        {"hidden_size": 8, "direction": "sideways"},
    ),
    "a local norm of no channels": ("LRN", {"x": IMAGE}, {"size": 0}),
    "one hot along no axis": ("EyeLike", {"x": IMAGE}, {}),
}


def model_of(op: str, shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any]) -> Any:
    helper, float_ = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node(op, list(shapes), ["y"], **attributes)
    first, *rest = shapes.items()
    rng = np.random.default_rng(0)
    stored = [
        onnx.numpy_helper.from_array(np.zeros(s, np.int64) if n == "i" else rng.random(s, np.float32), n)
        for n, s in rest
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(first[0], float_, first[1])],
        [helper.make_tensor_value_info("y", float_, None)],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("name", TABLE)
def test_a_malformed_node_is_refused_by_name(name: str) -> None:
    op, shapes, attributes = TABLE[name]
    with pytest.raises(TbudaError, match=rf"onnx\.{op}"):
        from_onnx(model_of(op, shapes, attributes))


@pytest.mark.parametrize("name", TABLE)
def test_onnxruntime_refuses_it_too(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = model_of(*TABLE[name])
    with pytest.raises(Exception):  # noqa: B017 (its errors have no common type)
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        feed = session.get_inputs()[0]
        session.run(None, {feed.name: np.zeros(feed.shape, np.float32)})


@pytest.mark.parametrize("op", ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"))
def test_an_attribute_for_empty_axes_says_nothing_with_axes(op: str) -> None:
    model = model_of(op, {"x": (2, 3, 8), "i": (1,)}, {"keepdims": 0, "noop_with_empty_axes": 1})
    graph = from_onnx(model)  # reduces along dim 0
    assert graph[graph.outputs[0].sources[0]].shape == (3, 8)


def _other(attribute: Any, default: Any) -> Any:
    """A value that is not the default, of the attribute's type; None for graphs, tensors and the like."""
    kinds = onnx.AttributeProto.AttributeType
    values = {kinds.INT: 77, kinds.FLOAT: 0.77, kinds.STRING: "other", kinds.INTS: [7, 7], kinds.FLOATS: [0.7]}
    value = values.get(int(attribute.type.value))
    return None if value == default else value


def test_every_attribute_of_every_op_is_read_or_refused() -> None:
    """What a translator that reads nothing would leave: each attribute alone, with another value than its default."""
    ops = [name for name in TRANSLATORS if onnx.defs.has(name)]
    refused = 0
    for op in ops:
        newest = onnx.defs.get_schema(op)
        for name, attribute in newest.attributes.items():
            given = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
            default = given.decode() if isinstance(given, bytes) else given
            for value in (default, _other(attribute, default)):
                if value is None:
                    continue
                node = SimpleNamespace(op_type=op, opset=newest.since_version, attributes=ReadArguments({name: value}))
                if value == default or name in schema.SAYS_NOTHING.get(op, ()):
                    schema.refuse_unread(node)
                else:
                    refused += 1
                    with pytest.raises(CannotMap, match=name):
                        schema.refuse_unread(node)
                node.attributes.get(name)
                schema.refuse_unread(node)  # whoever has asked for it has read it
    assert len(ops) > 150 and refused > 150
