"""Recording a PyBudaModule.forward as a graph: names and places of its ops, and which trace is active."""

from __future__ import annotations

import contextlib
import contextvars
import traceback
from collections.abc import Iterator
from typing import Any, Protocol

from tbuda_lab.core.frontend.emitter import Emitter
from tbuda_lab.core.frontend.provenance import foreign, short_path
from tbuda_lab.core.graph import Graph, Origin


class Named(Protocol):
    """What ops are traced within: a module."""

    def get_name(self) -> str: ...


class Tracer:
    """The graph of one trace: parameters and constants found on the way, names as PyBuda gives them.

    leaves: by identity of a tensor its node, and the tensor, which must not be collected before the trace ends.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.emit = Emitter(graph)
        self.modules: list[Named] = []
        self.leaves: dict[int, tuple[str, Any]] = {}
        self._counts: dict[str, int] = {}

    def name_for(self, name: str, op_type: str) -> str:
        """The name asked for, or `<op>_<n>` in order of creation within the module; made unique where it is taken."""
        module = self.modules[-1].get_name() if self.modules else ""
        if not name:
            count = self._counts.get(module, 0)
            self._counts[module] = count + 1
            name = f"{op_type}_{count}"
        if name in self.graph and module:
            name = f"{module}.{name}"
        return self.graph.unique(name)

    def origin(self, source_op: str) -> Origin:
        path = ""
        for module in self.modules:
            name = module.get_name()
            path = name if not path or name.startswith(f"{path}.") else f"{path}.{name}"
        return Origin(path, type(self.modules[-1]).__name__ if self.modules else "", source_op, _caller())


_ACTIVE: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar("tracer", default=None)


@contextlib.contextmanager
def tracing(tracer: Tracer) -> Iterator[Tracer]:
    """Ops inside the block are recorded by `tracer`."""
    token = _ACTIVE.set(tracer)
    try:
        yield tracer
    finally:
        _ACTIVE.reset(token)


def active() -> Tracer | None:
    return _ACTIVE.get()


@contextlib.contextmanager
def inside(module: Named) -> Iterator[None]:
    """Ops inside the block belong to `module`."""
    tracer = active()
    if tracer is None:
        yield
        return
    tracer.modules.append(module)
    try:
        yield
    finally:
        tracer.modules.pop()


def _caller() -> str:
    """ "file.py:12" of the line of the user's code that calls the op."""
    for frame, line in traceback.walk_stack(None):
        if foreign(frame.f_code.co_filename):
            return f"{short_path(frame.f_code.co_filename)}:{line}"
    return ""
