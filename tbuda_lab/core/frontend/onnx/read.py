"""ONNX files as data: sizes are checked before anything is believed, external data stays inside the model's folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.files import bounded_bytes

try:
    import onnx as onnx
    import onnx.version_converter
    from onnx import helper
except ImportError:  # pragma: no cover - the extra is not installed
    onnx = None  # type: ignore[assignment]

MISSING = "reading ONNX models needs the package onnx: pip install 'tbuda-lab[onnx]'"
OLDEST = 7
LARGEST = 2**31
"""Bytes of a model file without its external data: protobuf's own limit."""


def load(model: Any) -> tuple[Any, Path | None]:
    """(ModelProto, its folder) from a path, bytes or a ModelProto. Raises `ModelError` for what is no model."""
    if onnx is None:
        raise ModelError(MISSING)
    if isinstance(model, onnx.ModelProto):
        return model, None
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        try:
            data = bounded_bytes(path, LARGEST, "has to store its weights as external data")
        except InputError as error:
            raise ModelError(str(error)) from None
        return _parse(data, str(path)), path.resolve().parent
    if isinstance(model, bytes):
        return _parse(model, "the model"), None
    raise ModelError(f"an ONNX model is a path, bytes or a ModelProto, not {type(model).__name__}")


def _parse(data: bytes, name: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:
        raise ModelError(f"{name} is not an ONNX model: {type(error).__name__}") from None
    if not proto.graph.node and not proto.graph.output:
        raise ModelError(f"{name} is not an ONNX model: it has no graph")
    return proto


def modern(model: Any) -> Any:
    """The model in opset 7 at least: older ones are converted by onnx itself. Raises `ModelError` where it cannot."""
    if opset_of(model) >= OLDEST:
        return model
    try:
        return onnx.version_converter.convert_version(model, 13)
    except Exception as error:
        raise ModelError(
            f"the model uses opset {opset_of(model)} and onnx cannot convert it: {str(error).splitlines()[0]}"
        ) from None


def opset_of(model: Any) -> int:
    """The version of the default op set. Raises `ModelError` where none is named or it is newer than the package."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            newest = onnx.defs.onnx_opset_version()
            if entry.version > newest:
                raise ModelError(
                    f"the model uses opset {entry.version}; this onnx knows {newest}: pip install --upgrade onnx"
                )
            return int(entry.version)
    if model.opset_import:  # of other domains alone: no op of it is one of the default set
        return int(onnx.defs.onnx_opset_version())
    raise ModelError("the model does not say which opset it uses")


def tensor_of(proto: Any, folder: Path | None) -> torch.Tensor:
    """A TensorProto as a torch tensor. Raises `ModelError` for sizes that do not match and types without a form."""
    dims = [int(n) for n in proto.dims]
    if any(n < 0 for n in dims) or math.prod(dims) > 2**33:
        raise ModelError(f"tensor {proto.name!r} has the impossible shape {dims}")
    try:
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            return torch_of(_external(proto, dims, folder), proto.data_type)
        length = len(proto.raw_data) or max(
            len(getattr(proto, field))
            for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
        )
        if math.prod(dims) > 0 and length == 0:
            raise ModelError(f"tensor {proto.name!r} of shape {dims} has no data")
        return torch_of(onnx.numpy_helper.to_array(proto), proto.data_type)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"tensor {proto.name!r} of shape {dims} cannot be read: {error}") from None


def torch_of(array: np.ndarray, data_type: int) -> torch.Tensor:
    """A NumPy array of an ONNX type in torch: float8 becomes float32, four-bit integers bytes,
    unsigned integers of 16 bits and more signed ones with room for them."""
    kind = np.asarray(array).dtype
    if kind.kind in "US" or kind.kind == "O":
        raise ModelError("strings have no form on the device")
    if kind.name == "bfloat16":
        bits = np.ascontiguousarray(array).reshape(np.shape(array)).view(np.int16)
        return torch.from_numpy(bits if bits.flags.writeable else bits.copy()).view(torch.bfloat16)
    if kind.kind == "V" or kind.name.startswith("float8") or kind.name == "float4_e2m1fn":
        array = np.asarray(array).astype(np.float32)
    elif kind.name in ("int4", "uint4", "int2", "uint2"):
        array = np.asarray(array).astype(np.uint8 if kind.name.startswith("u") else np.int8)
    wider = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}.get(kind.name)
    array = np.asarray(array) if wider is None else np.asarray(array).astype(wider)
    array = np.ascontiguousarray(array).reshape(array.shape)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def dtype_of(data_type: int) -> torch.dtype:
    """The torch dtype of an ONNX element type."""
    try:
        array = np.zeros((), helper.tensor_dtype_to_np_dtype(data_type))
    except Exception:
        raise ModelError(f"element type {data_type} is not supported") from None
    return torch_of(array, data_type).dtype


def element_type(dtype: torch.dtype) -> int:
    """The ONNX element type of a torch dtype."""
    if dtype == torch.bfloat16:
        return int(onnx.TensorProto.BFLOAT16)
    return int(helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype))


def proto_of(tensor: torch.Tensor) -> Any:
    """A torch tensor as a TensorProto."""
    if tensor.dtype == torch.bfloat16:
        return helper.make_tensor("", onnx.TensorProto.BFLOAT16, list(tensor.shape), tensor.float().flatten().tolist())
    return onnx.numpy_helper.from_array(tensor.numpy())


def _external(proto: Any, dims: list[int], folder: Path | None) -> np.ndarray:
    """The bytes that a tensor keeps in another file: a plain file below the model's folder, exactly as long as said."""
    facts = {entry.key: entry.value for entry in proto.external_data}
    location = facts.get("location", "")
    if folder is None:
        raise ModelError(f"tensor {proto.name!r} lies in the file {location!r}; give the model as a path")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder) or not path.is_file():
        raise ModelError(f"tensor {proto.name!r} lies in {location!r}, which is not a file below the model's folder")
    kind = helper.tensor_dtype_to_np_dtype(proto.data_type)
    if kind.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        raise ModelError(f"tensor {proto.name!r}: packed {kind.name} in external data is not supported")
    offset, size = int(facts.get("offset", 0)), math.prod(dims) * kind.itemsize
    length = int(facts.get("length", size))
    if offset < 0 or length != size or offset + size > path.stat().st_size:
        raise ModelError(
            f"tensor {proto.name!r} of shape {dims} takes {size} bytes; {location!r} has {length} at {offset} "
            f"of {path.stat().st_size}"
        )
    return np.fromfile(path, dtype=kind, count=math.prod(dims), offset=offset).reshape(dims)
