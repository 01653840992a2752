"""A TFLite flatbuffer read operator by operator into a Graph."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import Cancelled, InputError, ModelError, UnsupportedOp
from tbuda_lab.core.files import bounded_bytes
from tbuda_lab.core.frontend.aten.call import CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import NOT_MAPPED, Calls, NotMapped, Tensor, finish
from tbuda_lab.core.frontend.tflite_model import images  # noqa: F401  it fills the table
from tbuda_lab.core.frontend.tflite_model.operators import KINDS, TABLE, Operator, dtype_of_kind
from tbuda_lab.core.graph import Graph, Origin, ShapeError

MISSING = "reading TFLite models needs the packages tflite and flatbuffers: pip install 'tbuda-lab[tflite]'"
LARGEST = 2**31


def read_model(model: Any) -> bytes:
    """The bytes of a model file, or those given. Raises `ModelError` for what is no TFLite model."""
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        try:
            data = bounded_bytes(path, LARGEST, "is not a TFLite model")
        except InputError as error:
            raise ModelError(str(error)) from None
    elif isinstance(model, bytes | bytearray):
        data = bytes(model)
    else:
        raise ModelError(f"a TFLite model is a path or bytes, not {type(model).__name__}")
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise ModelError("the file is not a TFLite model")
    return data


def from_tflite(
    model: Any, sample_inputs: Any = None, *, name: str = "model", progress: Callable[[str], None] | None = None
) -> Graph:
    """The nD graph of a TFLite model (a path or bytes); its first subgraph.

    Tensors keep TFLite's layout (N, H, W, C). Quantised tensors are the floats that they stand for: inputs and outputs
    too. Stored floats become parameters under their tensors' names.
    progress: as of `Calls`. Raises `ModelError` (no model), `UnsupportedOp`
    (all operators without a form at once).
    """
    try:
        import tflite
    except ImportError:
        raise ModelError(MISSING) from None
    data = read_model(model)
    try:
        return _TfliteReader(tflite, data, Calls(Graph(name), progress)).run()
    except (ModelError, UnsupportedOp, Cancelled):
        raise
    except Exception as error:  # offsets of a damaged flatbuffer lead anywhere
        raise ModelError(f"the TFLite model is damaged: {type(error).__name__}: {error}") from error


class _TfliteReader:
    def __init__(self, schema: Any, data: bytes, calls: Calls) -> None:
        self.schema = schema
        self.model = schema.Model.GetRootAs(data, 0)
        self.calls = calls
        if self.model.SubgraphsLength() < 1:
            raise ModelError("the TFLite model has no subgraph")
        self.graph = self.model.Subgraphs(0)
        kinds = schema.BuiltinOperator
        self.kinds = {v: k for k, v in vars(kinds).items() if isinstance(v, int)}

    def run(self) -> Graph:
        values: dict[int, Any] = {}
        for k in range(self.graph.InputsLength()):
            at = int(self.graph.Inputs(k))
            tensor = self.graph.Tensors(at)
            dtype = torch.float32 if _scale(tensor) is not None else torch.from_numpy(np.zeros(0, _kind(tensor))).dtype
            values[at] = self.calls.input(_name(tensor, at), _shape(tensor), dtype)
        for k in range(self.graph.OperatorsLength()):
            self.calls.at_op(k, self.graph.OperatorsLength())
            self._operator(self.graph.Operators(k), k, values)
        if self.calls.findings:
            count = len(self.calls.findings)
            raise UnsupportedOp(f"{count} operator{'s' * (count > 1)} cannot be mapped", self.calls.findings)
        self.calls.at(Origin())
        for k in range(self.graph.OutputsLength()):
            at = int(self.graph.Outputs(k))
            label = f"{self.calls.graph.name}.output_{k}"
            self.calls.output(self._value(at, values), label, _name(self.graph.Tensors(at), at))
        return finish(self.calls)

    def _value(self, at: int, values: dict[int, Any]) -> Any:
        if at < 0:
            return None
        if at not in values:
            values[at] = self._file_tensor(self.graph.Tensors(at), at)
        return values[at]

    def _file_tensor(self, tensor: Any, at: int) -> Tensor:
        """A tensor of the file; quantised ones as floats."""
        shape, kind = _shape(tensor), np.dtype(_kind(tensor))
        where = int(tensor.Buffer())
        if not 0 <= where < self.model.BuffersLength():
            raise ModelError(f"tensor {_name(tensor, at)!r} names buffer {where}, which the model does not have")
        buffer = self.model.Buffers(where)
        if buffer.DataLength() != math.prod(shape) * kind.itemsize:
            raise ModelError(
                f"tensor {_name(tensor, at)!r} of shape {shape} takes {math.prod(shape) * kind.itemsize} bytes; its "
                f"buffer has {buffer.DataLength()}"
            )
        raw = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
        array = np.frombuffer(raw, kind).reshape(shape).copy()
        scale = _scale(tensor)
        if scale is not None:
            scales, zeros, axis = scale
            along = [1] * len(shape)
            if len(scales) > 1:
                along[axis] = len(scales)
            array = (array.astype(np.float32) - zeros.reshape(along if len(zeros) > 1 else 1)) * scales.reshape(
                along if len(scales) > 1 else 1
            )
            array = array.astype(np.float32).reshape(shape)
        value = torch.from_numpy(array.astype(np.float32) if array.dtype == np.float16 else array)
        if value.is_floating_point() and value.numel() > 1:
            self.calls.at(Origin())
            return self.calls.parameter(_name(tensor, at), value)
        return FoldedValue(value, _name(tensor, at))

    def _operator(self, operator: Any, position: int, values: dict[int, Any]) -> None:
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        number = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
        kind = self.kinds.get(number, f"operator {number}")
        outs = [int(operator.Outputs(k)) for k in range(operator.OutputsLength())]
        label = _name(self.graph.Tensors(outs[0]), outs[0]) if outs else f"operator {position}"
        module = ".".join(p for p in label.split(";")[0].split("/")[:-1] if p)
        origin = Origin(module, "", f"tflite.{kind}", label)
        operands = [self._value(int(operator.Inputs(k)), values) for k in range(operator.InputsLength())]
        shapes = [_shape(self.graph.Tensors(o)) for o in outs]
        self.calls.at(origin)
        results: Any = NOT_MAPPED
        if not any(isinstance(v, NotMapped) for v in operands):
            try:
                if kind not in TABLE:
                    raise CannotMap("unsupported op")
                one = Operator(self.calls, self.schema, kind, operator, operands, shapes)
                results = TABLE[kind](one)
                one.refuse_unread()
            except (CannotMap, ShapeError) as error:
                self.calls.refuse(origin, str(error))
        listed = list(results) if isinstance(results, tuple | list) else [results] * len(outs)
        for at, value in zip(outs, listed, strict=True):
            dtype = dtype_of_kind(self.graph.Tensors(at).Type())
            values[at] = value if dtype is None else self.calls.whole_as(value, dtype)


def _shape(tensor: Any) -> list[int]:
    shape = [int(tensor.Shape(k)) for k in range(tensor.ShapeLength())]
    if any(n < 0 for n in shape) or math.prod(shape) > 2**33:
        raise ModelError(f"a tensor has the impossible shape {shape}")
    return shape


def _kind(tensor: Any) -> Any:
    if tensor.Type() not in KINDS:
        raise ModelError(f"a tensor has element type {tensor.Type()}, which is not supported")
    return KINDS[tensor.Type()]


def _name(tensor: Any, at: int) -> str:
    name = tensor.Name()
    return name.decode("utf-8", "replace") if name else f"tensor_{at}"


def _scale(tensor: Any) -> tuple[np.ndarray, np.ndarray, int] | None:
    """(scales, zero points, axis) of a quantised tensor."""
    facts = tensor.Quantization()
    if facts is None or facts.ScaleLength() == 0 or _kind(tensor) not in (np.int8, np.uint8, np.int16, np.int32):
        return None
    scales = np.array([facts.Scale(k) for k in range(facts.ScaleLength())], np.float32)
    zeros = np.array([facts.ZeroPoint(k) for k in range(facts.ZeroPointLength())] or [0], np.float32)
    return scales, zeros, int(facts.QuantizedDimension())
