"""Streams between host and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbuda_lab.popxl.context import get_current_context
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.utils import checked_shape

if TYPE_CHECKING:
    from tbuda_lab.popxl.ir import Ir
    from tbuda_lab.popxl.tensor import Tensor, TensorSpec


class Stream:
    """A stream has one tensor for each load or store. Made by `h2d_stream` and `d2h_stream`."""

    _tensor: Tensor

    def __init__(self) -> None:
        raise NotImplementedError("a stream cannot be made so; call popxl.h2d_stream or popxl.d2h_stream")

    @classmethod
    def _make(cls, tensor: Tensor) -> Any:
        self = object.__new__(cls)
        self._tensor = tensor
        return self

    @property
    def dtype(self) -> dtype:
        return self._tensor.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def spec(self) -> TensorSpec:
        return self._tensor.spec

    @property
    def tensor_id(self) -> str:
        return self._tensor.id

    @property
    def _ir(self) -> Ir:
        return self._tensor.ir

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self._tensor is other._tensor

    def __hash__(self) -> int:
        return hash(self._tensor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.tensor_id} {self.dtype} {self.shape}]"


class HostToDeviceStream(Stream):
    """What `ops.host_load` reads."""


class DeviceToHostStream(Stream):
    """What `ops.host_store` writes."""


def _stream(kind: type[Stream], shape: Any, data_type: dtype, name: str) -> Any:
    main = get_current_context().main_graph
    form = dtype.as_dtype(data_type)
    return kind._make(main._new_tensor(checked_shape(shape, f"stream {name!r}"), form, name, kind="stream"))


def h2d_stream(shape: Any, dtype: dtype, name: str | None = None) -> HostToDeviceStream:
    """A stream from host to device, in the main graph of the current one."""
    stream: HostToDeviceStream = _stream(HostToDeviceStream, shape, dtype, name or "h2d_stream")
    return stream


def d2h_stream(shape: Any, dtype: dtype, name: str | None = None) -> DeviceToHostStream:
    """A stream from device to host, in the main graph of the current one."""
    stream: DeviceToHostStream = _stream(DeviceToHostStream, shape, dtype, name or "d2h_stream")
    return stream
