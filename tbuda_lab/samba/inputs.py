"""Input tensors of a program: their names, and which arguments of the model's forward they are."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from tbuda_lab.samba.tensor import SambaTensor, plain


def name_of(tensor: Any, position: int) -> str:
    """The name of an input of a program, `input_<position>` where it has none."""
    return getattr(tensor, "sn_name", None) or f"input_{position}"


def by_keyword(model: torch.nn.Module, given: Mapping[str, SambaTensor]) -> tuple[tuple[SambaTensor, ...], list[Any]]:
    """Samples by argument of the forward, in its order, and the arguments, with the defaults of those that no sample
    has. Raises `ValueError` for a name that is no argument, and without one that has no default."""
    parameters = {
        name: p
        for name, p in inspect.signature(model.forward).parameters.items()
        if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    }
    wrong = [name for name in given if name not in parameters]
    lacking = [name for name, p in parameters.items() if name not in given and p.default is inspect.Parameter.empty]
    if wrong or lacking:
        raise ValueError(
            f"inputs by name are arguments of {type(model).__name__}.forward, which takes "
            f"{', '.join(parameters)}; {', '.join(wrong) or 'none'} are none of them, "
            f"{', '.join(lacking) or 'none'} are missing"
        )
    last = max((k for k, name in enumerate(parameters) if name in given), default=-1)
    names = list(parameters)[: last + 1]
    return (
        tuple(given[name] for name in names if name in given),
        [plain(given[name]) if name in given else parameters[name].default for name in names],
    )


def sample_of(name: str, value: Any) -> SambaTensor:
    """A sample input as a SambaTensor with a name. Raises `TypeError` for what is no tensor."""
    if isinstance(value, SambaTensor):
        if value.sn_name:
            return value
        return SambaTensor(value.torch_tensor(), name=name, batch_dim=value.batch_dim, region_name=value.region_name)
    if isinstance(value, torch.Tensor):
        return SambaTensor(value, name=name)
    raise TypeError(f"input {name!r} is a {type(value).__name__}; give SambaTensors")


def argument_of(value: torch.Tensor) -> torch.Tensor:
    """An input as torch's functions take it: the device has indices and labels of 8 and 16 bits, torch's embedding and
    losses have not."""
    return value.long() if value.dtype in (torch.int8, torch.int16) else value


def warn_of_memory(name: str, value: Any) -> None:
    """Inputs wait in host memory and are pushed to queues in the device's DRAM, whatever a program asks for."""
    for fact in ("host_memory", "mem_type"):
        if getattr(value, fact, None):
            warnings.warn(
                f"{fact} of input {name!r} has no effect: inputs of a run are pushed to queues in the device's DRAM",
                stacklevel=4,
            )
