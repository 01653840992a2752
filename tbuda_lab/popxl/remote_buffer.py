"""Buffers outside the chip, of several entries that programs load and store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.utils import checked_shape

if TYPE_CHECKING:
    from tbuda_lab.popxl.tensor import Tensor


class RemoteBuffer:
    """`entries` tensors of one shape and type. Needs a graph around it."""

    def __init__(self, tensor_shape: tuple[int, ...], tensor_dtype: dtype, entries: int) -> None:
        self._current_ir = get_current_context().ir
        self._entries = 0
        self._meta_shape: tuple[int, ...] = ()
        self.set_remote_buffer_info(tensor_dtype, tensor_shape, entries)
        self._remote_buffer_id = self._current_ir._add_buffer(self)

    def set_remote_buffer_info(self, tensor_dtype: dtype, tensor_shape: tuple[int, ...], entries: int) -> None:
        """Shape, type and number of entries anew. Raises `ValueError` for less than one entry."""
        self.entries = entries
        self._tensor_shape = checked_shape(tensor_shape, "remote buffer")
        self._tensor_dtype = dtype.as_dtype(tensor_dtype)

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Raises `ValueError` where the tensor is no entry of this buffer; with shards, where no shard of it is."""
        shape = t.shape if num_shards == 1 else (-(-t.nelms // num_shards),)
        if shape != self._tensor_shape or t.dtype is not self._tensor_dtype:
            raise ValueError(
                f"Tensor {t.id} does not match buffer. An entry is {self._tensor_dtype!r} of shape "
                f"{self._tensor_shape}, the tensor {t.dtype!r} of shape {shape}"
            )

    @property
    def remote_buffer_id(self) -> int:
        """From 1 on in every Ir."""
        return self._remote_buffer_id

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        return self._tensor_shape

    @tensor_shape.setter
    def tensor_shape(self, value: object) -> None:
        raise AttributeError("can't set attribute 'tensor_shape'")

    @property
    def tensor_dtype(self) -> dtype:
        return self._tensor_dtype

    @tensor_dtype.setter
    def tensor_dtype(self, value: object) -> None:
        raise AttributeError("can't set attribute 'tensor_dtype'")

    @property
    def entries(self) -> int:
        return self._entries

    @entries.setter
    def entries(self, _entries: int) -> None:
        if _entries < 1:
            raise ValueError(f"Entries must be a non-zero, positive integer, not {_entries}")
        self._entries = _entries

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Of a buffer of shards the shape of the whole tensor; () before one is stored, and of other buffers."""
        return self._meta_shape

    @meta_shape.setter
    def meta_shape(self, shape: tuple[int, ...]) -> None:
        if self._meta_shape and self._meta_shape != tuple(shape):
            raise ValueError(
                f"remote buffer {self._remote_buffer_id} holds shards of tensors of shape "
                f"{self._meta_shape}, and none of shape {tuple(shape)}"
            )
        self._meta_shape = tuple(shape)


def remote_buffer(tensor_shape: tuple[int, ...], tensor_dtype: dtype, entries: int = 1) -> RemoteBuffer:
    """A buffer of `entries` tensors."""
    return RemoteBuffer(tensor_shape, tensor_dtype, entries)
