"""Errors of the tracer that a model handles as its own, and so takes another way without a word: refused by line."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.frontend.eager import call, classes_kept, own_copy, same_seeds
from tbuda_lab.core.frontend.inputs import BoundInputs
from tbuda_lab.core.frontend.provenance import foreign, short_path

_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit)
"""What ends loops."""
_ALGEBRA = {"sympy", "mpmath"}
"""Packages that torch calls while it traces."""
_LOCAL = threading.local()
Place = tuple[str, int, str]
"""A file, a line and the name of an exception."""


class TracerErrors:
    """Sees cheaply that the tracer refused a path that depends on a value, in this thread. seen: whether it did; what
    came of it is for `refuse_handled` to find."""

    def __init__(self) -> None:
        self.seen = False

    def __enter__(self) -> TracerErrors:
        _watch_paths()
        self._before = getattr(_LOCAL, "errors", None)
        _LOCAL.errors = self
        return self

    def __exit__(self, *_: object) -> None:
        _LOCAL.errors = self._before


def _watch_paths() -> None:
    """The error of a path that depends on a value, which Python's own operators raise, says so when it is made."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # loaded when torch traces

    plain = GuardOnDataDependentSymNode.__init__
    if plain.__name__ == "watched":
        return

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        errors = getattr(_LOCAL, "errors", None)
        if errors is not None:
            errors.seen = True
        plain(self, *args, **kwargs)

    GuardOnDataDependentSymNode.__init__ = watched  # type: ignore[method-assign]


class _Handlers:
    """Sees the exceptions that come to functions with handlers, outside torch and in this thread. found: by place what
    the first one says."""

    def __init__(self) -> None:
        self.found: dict[Place, str] = {}
        self._looks: dict[int, Any] = {}
        self._codes: list[CodeType] = []

    def __enter__(self) -> _Handlers:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code  # by identity: its hash goes through all that it holds
        if id(code) not in self._looks:
            self._codes.append(code)
            users = foreign(code.co_filename) and not _ALGEBRA.intersection(code.co_filename.split(os.sep))
            self._looks[id(code)] = self._look if users and code.co_exceptiontable else None
        return self._looks[id(code)]

    def _look(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception" and not issubclass(argument[0], _ENDS):
            place = frame.f_code.co_filename, frame.f_lineno, argument[0].__name__
            self.found.setdefault(place, str(argument[1]).strip().split("\n")[0])
        return self._look


def refuse_handled(
    module: torch.nn.Module,
    bound: BoundInputs,
    mode: Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]],
    trace: Callable[[torch.nn.Module], Any],
) -> None:
    """Trace a copy of a module again, and raise `UnsupportedOp` where it handles exceptions that do not come when the
    module itself is called. mode: a context in which it is called; trace: traces a copy on these inputs."""
    own, other = own_copy(module, shares=True), own_copy(module)
    if own is None or other is None:
        return
    with classes_kept(module), contextlib.suppress(Exception):
        with _Handlers() as traced:
            trace(own)
        with _Handlers() as called, same_seeds(), mode(other), torch.no_grad():
            call(other, bound)
        findings = [
            Diagnostic(
                "error", f"{short_path(file)}:{line}", "trace", f"handled while it is traced: {kind}: {text}", _FIX
            )
            for (file, line, kind), text in traced.found.items()
            if (file, line, kind) not in called.found
        ]
    if findings:
        raise UnsupportedOp("the model handles an error of the tracer as if it were its own", findings)


_FIX = "take what depends on values out of the try, choose with torch.where, or do it outside the model"
