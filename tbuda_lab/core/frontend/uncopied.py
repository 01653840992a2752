"""What stands in a copy of a module for things that Python cannot copy: locks, generators, open files, modules."""

from __future__ import annotations

import copy
import io
import threading
from typing import Any

from torch import nn

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.frontend.provenance import calling_line

MOST = 1000
"""Things that cannot be copied, of one module."""
_LOCK, _RLOCK = type(threading.Lock()), type(threading.RLock())


class Touched(BaseException):
    """A forward uses what a copy does not have. No exception that a model handles as one of its own."""

    def __init__(self, error: UnsupportedOp) -> None:
        super().__init__(str(error))
        self.error = error


class Absent:
    """Stands for something that reading uses up, such as a generator: whoever uses it is stopped."""

    def __init__(self, kind: str) -> None:
        self.__dict__["_kind"] = kind

    def _touch(self, *_: Any, **__: Any) -> Any:
        text = f"a {self.__dict__['_kind']} that the module holds is read by the forward: what it gave would stay"
        fix = "read it outside and pass the value as an input, or keep it in a list"
        found = Diagnostic("error", calling_line() or "forward", "state", text, fix)
        raise Touched(UnsupportedOp("the model keeps something from one call to the next", [found]))

    __iter__ = __next__ = __call__ = __len__ = __getitem__ = __enter__ = __exit__ = __bool__ = _touch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._touch()


def copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """`copy.deepcopy` of a module, which need not be one that Python can copy: locks are new ones, what reading uses up
    is `Absent`, and other things that cannot be copied are shared. A module that says how it is copied, and refuses or
    gives itself, is copied as others are. memo: what is there for objects, by id. Raises what the copy of the module
    itself raises."""
    stuck: dict[int, Any] = {}
    own: dict[int, nn.Module] = {}
    while True:
        again = memo | {key: _stand_in(value) for key, value in stuck.items()}
        blanks = [(layer, type(layer).__new__(type(layer))) for layer in own.values()]
        again |= {id(layer): blank for layer, blank in blanks}
        try:
            result = copy.deepcopy(module, again)
            for layer, blank in blanks:
                blank.__dict__.update(copy.deepcopy(vars(layer), again))
        except Exception as error:
            value = _stuck_at(error)
            known = own if isinstance(value, nn.Module) else stuck
            if value is None or id(value) in known or len(stuck) + len(own) >= MOST:
                raise
            known[id(value)] = value
            continue
        layers = {id(layer): layer for layer in module.modules()}
        shared = {id(layer): layer for layer in result.modules() if id(layer) in layers and id(layer) not in own}
        if not shared:
            return result
        own |= shared


def _stuck_at(error: Exception) -> Any:
    """What `copy.deepcopy` was asked to copy when it failed; None for nothing, and for plain containers."""
    value, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is copy.deepcopy.__code__:
            value = trace.tb_frame.f_locals.get("x")
        trace = trace.tb_next
    return value


def _stand_in(value: Any) -> Any:
    if isinstance(value, _LOCK | _RLOCK):
        return type(value)() if isinstance(value, _RLOCK) else threading.Lock()
    if type(value) is threading.local:
        own = threading.local()
        own.__dict__.update(value.__dict__)
        return own
    if isinstance(value, io.IOBase):
        return value if _only_written(value) else Absent(type(value).__name__)
    used_up = any(hasattr(value, name) for name in ("__next__", "recv")) or (
        hasattr(value, "get") and hasattr(value, "put")
    )
    return Absent(type(value).__name__) if used_up else value


def _only_written(file: io.IOBase) -> bool:
    """Whether nothing can be read from a file, as from a log; a closed one gives nothing either."""
    return file.closed or not file.readable()
