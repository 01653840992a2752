"""SambaFlow's front on this compiler: `from sambaflow import samba` of an unchanged program.

A section is an epoch, a PEF is an image, and one `session.run` is forward, backward and update.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tbuda_lab._version import __version__
from tbuda_lab.samba import directives, functional, graph, nn, optim, sambaloader, utils
from tbuda_lab.samba.session import SESSION as session  # over the module of that name
from tbuda_lab.samba.session import SambaSession
from tbuda_lab.samba.tensor import SambaParameter, SambaTensor, name_parameters


def from_torch_tensor(
    tensor: torch.Tensor, name: str | None = None, batch_dim: int | None = None, **facts: Any
) -> SambaTensor:
    """A SambaTensor in the memory of a torch tensor. facts: named_dims, region_name, as of `SambaTensor`."""
    return SambaTensor(tensor, name=name, batch_dim=batch_dim, **facts)


from_torch = from_torch_tensor


def from_named_dict(tensors: Mapping[str, torch.Tensor]) -> dict[str, SambaTensor]:
    """SambaTensors of tensors by name."""
    return {name: SambaTensor(tensor, name=name) for name, tensor in tensors.items()}


def to_torch(value: Any) -> Any:
    """A plain torch tensor; plain ones stay as they are, and so do tuples and lists of them."""
    if isinstance(value, list | tuple):
        return type(value)(to_torch(v) for v in value)
    return value.torch_tensor() if isinstance(value, SambaTensor) else value


def from_torch_model_(model: torch.nn.Module, parent_module_prefix: str | None = None) -> torch.nn.Module:
    """Give the model's parameters and submodules their SambaFlow names, in place. Raises `TypeError` for no module."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"from_torch_model_ takes a torch.nn.Module, not {type(model).__name__}; "
            "trace_graph takes an ONNX ModelProto as it is"
        )
    name_parameters(model, parent_module_prefix)
    session.buffer_dict |= dict(model.named_buffers())
    return model


from_torch_ = from_torch_model = from_torch_model_


def _shape(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], list | tuple | torch.Size) else sizes


def randn(*shape: Any, name: str | None = None, batch_dim: int | None = None, named_dims: Any = None) -> SambaTensor:
    """Normal random numbers of torch's generator."""
    return SambaTensor(torch.randn(_shape(shape)), name=name, batch_dim=batch_dim, named_dims=named_dims)


def rand(*shape: Any, name: str | None = None, batch_dim: int | None = None, named_dims: Any = None) -> SambaTensor:
    """Random numbers in 0 .. 1 of torch's generator."""
    return SambaTensor(torch.rand(_shape(shape)), name=name, batch_dim=batch_dim, named_dims=named_dims)


def randint(
    high: int, shape: Any, name: str | None = None, batch_dim: int | None = None, named_dims: Any = None, low: int = 0
) -> SambaTensor:
    """Random whole numbers in low .. high - 1 of torch's generator."""
    return SambaTensor(torch.randint(low, high, tuple(shape)), name=name, batch_dim=batch_dim, named_dims=named_dims)


def randn_like(tensor: torch.Tensor, name: str | None = None, batch_dim: int | None = None) -> SambaTensor:
    """Normal random numbers in the shape of `tensor`."""
    return randn(*tensor.shape, name=name, batch_dim=batch_dim)


def addmm(
    input: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, is_transposed: bool = False, **host_only: Any
) -> torch.Tensor:
    """mat1 @ mat2 + input; mat1 may have leading dims. is_transposed: mat2 is stored as (columns, inner), as the weight
    of a linear layer is. Raises `UnsupportedOp` for what only the host has, as `samba.functional` does."""
    if host_only:
        result: torch.Tensor = functional.addmm(input, mat1, mat2, **host_only)
        return result
    if is_transposed:
        return torch.nn.functional.linear(mat1, mat2, input)
    return torch.matmul(mat1, mat2) + input


@contextlib.contextmanager
def patched_torch() -> Iterator[None]:
    """Nothing is patched here: torch functions take SambaTensors as they are."""
    yield


__all__ = [
    "SambaParameter",
    "SambaSession",
    "SambaTensor",
    "__version__",
    "addmm",
    "directives",
    "from_named_dict",
    "from_torch",
    "from_torch_",
    "from_torch_model",
    "from_torch_model_",
    "from_torch_tensor",
    "functional",
    "graph",
    "nn",
    "optim",
    "patched_torch",
    "rand",
    "randint",
    "randn",
    "randn_like",
    "sambaloader",
    "session",
    "to_torch",
    "utils",
]
