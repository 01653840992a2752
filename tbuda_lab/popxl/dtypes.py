"""Data types of tensors, and what they are in NumPy and torch."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import torch

np_dtype_float8_143 = np.dtype([("float8_143", "u1")])
"""How an array holds Graphcore's 8-bit floats with 4 bits of exponent: a byte each."""
np_dtype_float8_152 = np.dtype([("float8_152", "u1")])
"""The same with 5 bits of exponent."""


class dtype:
    """A data type. There is one object for each: `popxl.float32`, `popxl.int8`, ..."""

    _name: str
    _numpy: np.dtype[Any]
    _torch: torch.dtype | None

    def __init__(self) -> None:
        raise TypeError("a dtype cannot be made; take one of popxl's, such as popxl.float32")

    @classmethod
    def _make(cls, name: str, numpy: Any, torch_type: torch.dtype | None) -> dtype:
        self = object.__new__(cls)
        self._name, self._numpy, self._torch = name, np.dtype(numpy), torch_type
        return self

    @property
    def name(self) -> str:
        return self._name

    @property
    def is_complex(self) -> builtins.bool:
        return self._numpy.kind == "c"

    @property
    def is_int(self) -> builtins.bool:
        return self._numpy.kind in "iu"

    @property
    def is_floating_point(self) -> builtins.bool:
        return self._numpy.kind == "f" or self.is_float8

    @property
    def is_float8(self) -> builtins.bool:
        return self._name.startswith("float8")

    @property
    def is_signed(self) -> builtins.bool:
        return self._numpy.kind in "icf" or self.is_float8

    def __repr__(self) -> str:
        return f"popxl.dtypes.{self._name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (dtype.from_name, (self._name,))

    def __deepcopy__(self, memo: Any) -> dtype:
        return self

    @classmethod
    def from_name(cls, name: str) -> dtype:
        """Raises `ValueError` for a name that no type has."""
        if name not in _BY_NAME:
            raise ValueError(f"there is no dtype {name!r}; there are {', '.join(_BY_NAME)}")
        return _BY_NAME[name]

    @classmethod
    def as_dtype(cls, type_value: Any) -> dtype:
        """The dtype of a name, a Python, NumPy or torch type, or of an array. Raises `ValueError` for anything else."""
        if isinstance(type_value, dtype):
            return type_value
        if isinstance(type_value, str) and type_value in _BY_NAME:
            return _BY_NAME[type_value]
        if isinstance(type_value, type) and type_value in (builtins.bool, builtins.int, builtins.float):
            return {builtins.bool: bool, builtins.int: int64, builtins.float: float32}[type_value]
        if isinstance(type_value, torch.Tensor):
            type_value = type_value.dtype
        if isinstance(type_value, torch.dtype):
            if type_value in _PT_TO_POPXL:
                return _PT_TO_POPXL[type_value]
            raise ValueError(f"there is no dtype for {type_value}")
        try:
            numpy = np.dtype(getattr(type_value, "dtype", type_value))
        except TypeError as error:
            raise ValueError(f"there is no dtype for {type_value!r}") from error
        if numpy not in _NP_TO_POPXL:
            raise ValueError(f"there is no dtype for {type_value!r}")
        return _NP_TO_POPXL[numpy]

    def as_numpy(self) -> np.dtype[Any]:
        return self._numpy

    def as_torch(self) -> torch.dtype:
        """Raises `TypeError` where torch has no such type."""
        if self._torch is None:
            raise TypeError(f"torch has no type for {self!r}")
        return self._torch


bool = dtype._make("bool", np.bool_, torch.bool)
int8 = dtype._make("int8", np.int8, torch.int8)
int16 = dtype._make("int16", np.int16, torch.int16)
int32 = dtype._make("int32", np.int32, torch.int32)
int64 = dtype._make("int64", np.int64, torch.int64)
uint8 = dtype._make("uint8", np.uint8, torch.uint8)
uint16 = dtype._make("uint16", np.uint16, None)
uint32 = dtype._make("uint32", np.uint32, None)
uint64 = dtype._make("uint64", np.uint64, None)
float8_143 = dtype._make("float8_143", np_dtype_float8_143, None)
float8_152 = dtype._make("float8_152", np_dtype_float8_152, None)
float16 = dtype._make("float16", np.float16, torch.float16)
float32 = dtype._make("float32", np.float32, torch.float32)
float64 = dtype._make("float64", np.float64, torch.float64)
complex64 = dtype._make("complex64", np.complex64, torch.complex64)
complex128 = dtype._make("complex128", np.complex128, torch.complex128)
half, float, double = float16, float32, float64

_ALL = (
    bool,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    float8_143,
    float8_152,
    float16,
    float32,
    float64,
    complex64,
    complex128,
)
_BY_NAME: dict[str, dtype] = {t.name: t for t in _ALL} | {"half": half, "float": float, "double": double}
_NP_TO_POPXL: dict[Any, dtype] = {t.as_numpy(): t for t in _ALL}
_PT_TO_POPXL: dict[Any, dtype] = {t._torch: t for t in _ALL if t._torch is not None}


def as_array(x: Any) -> np.ndarray:
    """Anything that holds numbers as an array, without a copy where there is no need for one."""
    if isinstance(x, torch.Tensor):
        return x.detach().cpu().numpy()
    return x if isinstance(x, np.ndarray) else np.asarray(x)
