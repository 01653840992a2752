"""What goes wrong in an op says which op of which tensors, and the line of the program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from tbuda_lab.popxl.context import get_source_location
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.tensor import Tensor

_TOLD = (popart_exception, ValueError, TypeError, IndexError, NotImplementedError)


def tell_where(names: dict[str, Any]) -> None:
    """Wrap the functions of a package of ops, given all its names."""
    home = names["__name__"]
    for name, value in list(names.items()):
        if inspect.isfunction(value) and f"{value.__module__}.".startswith(f"{home}.") and not name.startswith("_"):
            names[name] = _telling(value, f"{home.removeprefix('tbuda_lab.').removeprefix('popxl.')}.{value.__name__}")


def tell_where_of_methods(methods: dict[str, str]) -> None:
    """Wrap methods of `Tensor`, by name what a message calls them."""
    for name, told in methods.items():
        setattr(Tensor, name, _telling(getattr(Tensor, name), told))


def _telling(function: Callable[..., Any], told: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        outermost = not _inside.get()
        token = _inside.set(True)
        try:
            return function(*args, **kwargs)
        except _TOLD as error:
            if outermost:  # the function that the program calls, and none of those that this one is made of
                _add_place(error, told, (*args, *kwargs.values()))
            raise
        finally:
            _inside.reset(token)

    return call


_inside: ContextVar[bool] = ContextVar("inside", default=False)
"""Whether a function of an op is at work, in this thread."""


def _add_place(error: Exception, op: str, operands: Iterable[Any]) -> None:
    """Behind the message of an error: the op, the tensors that the message does not name, and the line."""
    if len(error.args) != 1 or not isinstance(error.args[0], str):
        return
    text, location = error.args[0], get_source_location()
    found = dict.fromkeys(repr(t.id) for t in _tensors(operands))
    unnamed = ", ".join(name for name in found if name not in text)
    error.args = (f"{text} ({op}{' of ' if unnamed else ''}{unnamed}, {location})",)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found
