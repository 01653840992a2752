"""`samba.directives`: hints of a program on how its graph is mapped. They never change what is calculated."""

from __future__ import annotations

import warnings
from typing import Any

import torch


def op_fusion(module: torch.nn.Module, heuristic: str = "", **settings: Any) -> torch.nn.Module:
    """Ask that a module's ops share a section. The compiler chooses which ops do: it says so, once for a heuristic, and
    gives the module back as it is. Raises `TypeError` for what is no module."""
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"op_fusion takes a torch.nn.Module, not a {type(module).__name__}")
    warnings.warn(
        f"op_fusion({heuristic!r}) has no effect here: the compiler decides which ops share a section", stacklevel=2
    )
    return module
