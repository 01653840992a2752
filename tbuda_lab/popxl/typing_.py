"""Marks of arguments."""

from __future__ import annotations

from typing import Any


def NewAliasAnnotation(name: str, tp: Any) -> Any:
    """A type of its own that is `tp` to whoever reads values."""
    return type(name, (tp,), {"__doc__": f"{tp.__name__} as {name}"})
