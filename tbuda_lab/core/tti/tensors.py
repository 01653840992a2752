"""Tensors of a device image as files: raw numbers or `.npy`, never pickles.

A tensor is named in the manifest by a node `{"bin" | "npy": file, "itemsize", "shape": [4], "strides": [4], "dim",
"format"}` (netlist-format.md#device-images). Shape and strides (bytes) have leading ones up to four dimensions; `dim`
says how many are the tensor's own. Numbers that fit bfloat16 without loss, as parameters in Float16_b do, take two
bytes each.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import parse_npy
from tbuda_lab.core.netlist.image import is_pickle

DUMP_FORMATS = ("default", "backend")
"""default: `.npy`, which NumPy opens by itself; backend: the raw numbers, which the machine's own tools map."""

MAX_TENSOR = 16 << 30
_NAMES = {"f4": "Float32", "f2": "Float16", "i4": "Int32", "i1": "Int8", "u1": "UInt8", "u2": "UInt16"}
_TYPES = {name: f"<{code}" if code[1] != "1" else code for code, name in _NAMES.items()}
_OTHERS = {"int64": "<i8", "bool": "|b1", "float64": "<f8", "int16": "<i2", "uint32": "<u4", "uint64": "<u8"}
BF16 = "Float16_b"


def stored_words(value: np.ndarray) -> tuple[np.ndarray, str]:
    """The array as it is stored, contiguous and little endian, and the name of its format."""
    array = np.ascontiguousarray(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype == np.float32:
        bits = array.view(np.uint32)
        if array.size and not (bits & 0xFFFF).any():
            return (bits >> 16).astype("<u2"), BF16
    code = f"{array.dtype.kind}{array.dtype.itemsize}"
    name = _NAMES.get(code, array.dtype.name)
    if name not in _TYPES and name not in _OTHERS:
        raise InputError(f"a device image cannot hold numbers of type {array.dtype}")
    return array, name


def node_of(value: np.ndarray, stem: str, dump_format: str) -> tuple[dict[str, Any], str, Callable[[], bytes]]:
    """(node of the manifest, file name, its bytes when they are wanted) of an array; `stem`: the file's name without
    its ending."""
    words, name = stored_words(value)
    suffix = "bin" if dump_format == "backend" else "npy"
    file = f"{stem}.{suffix}"
    shape = (1,) * (4 - value.ndim) + value.shape
    strides = [words.itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    node = {
        suffix: file,
        "itemsize": words.itemsize,
        "shape": list(shape),
        "strides": strides,
        "dim": value.ndim,
        "format": name,
    }

    def content() -> bytes:
        if dump_format == "backend":
            return words.tobytes()
        stream = io.BytesIO()
        np.lib.format.write_array(stream, words.reshape(value.shape), version=(1, 0), allow_pickle=False)
        return stream.getvalue()

    return node, file, content


def stored_bytes(value: np.ndarray) -> int:
    """Bytes that an array takes in an image, without its file's head."""
    return int(stored_words(value)[0].nbytes)


def file_of(node: Any, where: str) -> str:
    """The file that a node names. Raises `InputError`; a pickle is refused by name."""
    if isinstance(node, str):
        raise InputError(
            f"{where} is stored as {node!r}: "
            + ("a pickle, and reading a pickle runs code, so it is not read; " if is_pickle(node) else "")
            + "images are read whose tensors are .bin or .npy"
        )
    for key in ("bin", "npy"):
        if isinstance(node, dict) and isinstance(node.get(key), str):
            return str(node[key])
    raise InputError(f"{where} names no file: a tensor is an object with 'bin' or 'npy'")


def tensor_of(node: dict[str, Any], data: bytes, where: str) -> np.ndarray:
    """The array of a node from the bytes of its file. Raises `InputError` where they do not agree."""
    shape, dim, name = node.get("shape"), node.get("dim", 4), node.get("format")
    if not (isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape) and len(shape) <= 12):
        raise InputError(f"{where}: shape is {shape!r}, not a list of sizes")
    if type(dim) is not int or not 0 <= dim <= len(shape) or math.prod(shape[: len(shape) - dim]) != 1:
        raise InputError(f"{where}: dim is {dim!r}, and the shape {shape}")
    code = "<u2" if name == BF16 else _TYPES.get(str(name)) or _OTHERS.get(str(name))
    if code is None:
        raise InputError(f"{where}: format {name!r} is none of {', '.join([BF16, *_TYPES, *_OTHERS])}")
    dtype = np.dtype(code)
    if node.get("itemsize", dtype.itemsize) != dtype.itemsize:
        raise InputError(f"{where}: itemsize is {node.get('itemsize')!r}, {name} takes {dtype.itemsize} bytes")
    words = _numbers(node, data, dtype, math.prod(shape), where)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    entry = node.get("strides")
    if entry is not None and entry != strides and entry != [s * dtype.itemsize for s in strides]:
        raise InputError(f"{where}: strides are {entry!r}; only row after row is read, {strides} numbers")
    if name == BF16:
        words = (words.astype(np.uint32) << 16).view(np.float32)
    return words.reshape(shape[len(shape) - dim :])


def _numbers(node: dict[str, Any], data: bytes, dtype: np.dtype[Any], count: int, where: str) -> np.ndarray:
    if "bin" in node:
        if len(data) != count * dtype.itemsize:
            raise InputError(f"{where} has {len(data)} bytes; its shape and format make {count * dtype.itemsize}")
        return np.frombuffer(data, dtype)
    result = parse_npy(data, where)
    if result.dtype != dtype or result.size != count:
        raise InputError(f"{where} holds {result.size} numbers of {result.dtype}; its node says {count} of {dtype}")
    return np.ascontiguousarray(result).reshape(-1)
