"""Tensors with SambaFlow's names: `SambaTensor` and `SambaParameter`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_FACTS = ("sn_name", "batch_dim", "named_dims", "region_name", "host_memory", "mem_type")


_WRITES = ("copy_", "fill_", "normal_", "uniform_", "__setitem__")


class SambaTensor(torch.Tensor):
    """A torch tensor with a name on the device.

    It shares memory with the tensor that it is made of. What a torch function makes of one is a `SambaTensor`, too; a
    result of the same shape keeps the name. `sn_grad` is the gradient of the device: read after a run, or set before a
    run, which then begins its backward pass with it. batch_dim: which dimension counts samples.
    """

    sn_name: str | None
    batch_dim: int | None
    named_dims: Any
    region_name: str | None
    host_memory: bool
    mem_type: Any
    sn_data: torch.Tensor | None

    @staticmethod
    def __new__(
        cls: type[SambaTensor],
        torch_tensor: torch.Tensor | None = None,
        shape: Iterable[int] | None = None,
        dtype: torch.dtype | None = None,
        name: str | None = None,
        batch_dim: int | None = None,
        named_dims: Any = None,
        sized_dims: Any = None,
        materializer: Callable[[SambaTensor, torch.Generator], None] | None = None,
        is_complex: bool | None = None,
        region_name: str | None = None,
    ) -> SambaTensor:
        """Raises `ValueError` without a tensor and without a shape, and for complex numbers."""
        if is_complex or (torch_tensor is not None and torch_tensor.is_complex()):
            raise ValueError(
                "complex tensors are not supported on the device; pass real and imaginary parts as two tensors"
            )
        if torch_tensor is None:
            if shape is None:
                raise ValueError("a SambaTensor needs a torch_tensor, or a shape")
            torch_tensor = torch.zeros(tuple(shape), dtype=dtype or torch.float32)
        elif dtype is not None:
            torch_tensor = torch_tensor.to(dtype)
        tensor: SambaTensor = torch_tensor.detach().as_subclass(cls)
        tensor.sn_name, tensor.batch_dim, tensor.named_dims = name, batch_dim, named_dims or sized_dims
        tensor.region_name, tensor.host_memory, tensor.mem_type = region_name, False, None
        tensor.sn_data = None
        if materializer is not None:
            materializer(tensor, torch.Generator().manual_seed(torch.initial_seed()))
        return tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(func, types, args, dict(kwargs or {}))  # type: ignore[no-untyped-call]
        first = next((a for a in args if isinstance(a, SambaTensor)), None)
        if first is not None and isinstance(result, SambaTensor) and "sn_name" not in result.__dict__:
            same = result.shape == first.shape
            for fact in _FACTS:
                result.__dict__[fact] = first.__dict__.get(fact) if same else None
        if first is not None and first.__dict__.get("_cleared") and getattr(func, "__name__", "") in _WRITES:
            first.__dict__["_cleared"] = False
        if first is not None and isinstance(result, SambaTensor):
            result.__dict__.setdefault("sn_data", None)
        return result

    @property
    def sn_grad(self) -> torch.Tensor | None:
        """The gradient of the device; that of an output is one for all runs."""
        shared: list[torch.Tensor | None] = self.__dict__.get("_gradient", [None])
        return shared[0]

    @sn_grad.setter
    def sn_grad(self, value: torch.Tensor | None) -> None:
        self.__dict__.setdefault("_gradient", [None])[0] = value

    def share_gradient(self, other: SambaTensor) -> None:
        """From now on `sn_grad` is that of `other`: what is set at one is set at both."""
        self.__dict__["_gradient"] = other.__dict__.setdefault("_gradient", [None])

    @property
    def samba_name(self) -> str | None:
        """The same as `sn_name`."""
        return self.sn_name

    def torch_tensor(self) -> torch.Tensor:
        """The same values as a plain tensor, in the same memory."""
        return self.as_subclass(torch.Tensor)

    @property
    def has_data(self) -> bool:
        """Whether values are there: not after `clear_data`, until they are written again."""
        return not self.__dict__.get("_cleared", False)

    def clear_data(self) -> None:
        """Let the values go: all become zero."""
        with torch.no_grad():
            self.zero_()
        self.__dict__["_cleared"] = True

    def cpu_(self) -> SambaTensor:
        """The tensor itself: host and device share their memory here."""
        return self

    def rdu(self) -> SambaTensor:
        """The tensor itself: host and device share their memory here."""
        return self


class _IsSambaParameter(type(torch.nn.Parameter)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.nn.Parameter) and "sn_name" in instance.__dict__


class SambaParameter(torch.nn.Parameter, metaclass=_IsSambaParameter):
    """A parameter of a model that `from_torch_model_` named: an ordinary `torch.nn.Parameter` with `sn_name` and
    `sn_grad`. Ask with `isinstance`; models keep their parameters, none is made of this class."""


def name_parameters(model: torch.nn.Module, prefix: str | None = None) -> None:
    """Give every parameter and submodule its SambaFlow name: `<model>__<path>__<parameter>`."""
    root = prefix or type(model).__name__.lower()
    for path, module in model.named_modules():
        module.__dict__["sn_name"] = "__".join([root, *path.split(".")]) if path else root
        if not hasattr(module, "name"):
            module.__dict__["name"] = module.__dict__["sn_name"]
    for path, parameter in model.named_parameters():
        parameter.__dict__["sn_name"] = "__".join([root, *path.split(".")])
        parameter.__dict__.setdefault("sn_grad", None)


def plain(value: Any) -> Any:
    """A SambaTensor as a plain tensor; everything else as it is."""
    return value.torch_tensor() if isinstance(value, SambaTensor) else value
