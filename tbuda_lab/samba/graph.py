"""Several graphs in one PEF: inference alone, one program each."""

from __future__ import annotations

from typing import Any

from tbuda_lab.samba.tracing import Traced


class SambaGraph:
    """A graph by name. `trace_multigraph` fills it; calling it runs its module on the host."""

    def __init__(self, name: str, module: Any = None) -> None:
        self.name = name
        self.module = module
        self._traced: Traced | None = None

    @property
    def is_traced(self) -> bool:
        """Whether `trace_multigraph` has seen it."""
        return self._traced is not None

    @property
    def traced(self) -> Traced:
        """What `trace_multigraph` made of it. Raises `RuntimeError` before."""
        if self._traced is None:
            raise RuntimeError(f"graph {self.name!r} is not traced: call samba.utils.trace_multigraph first")
        return self._traced

    @traced.setter
    def traced(self, value: Traced) -> None:
        self._traced = value

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)


class FwdGraph(SambaGraph):
    """The forward graph between two modules of a model; where both are one, that module."""

    def __init__(self, start: Any, stop: Any = None, name: str = "") -> None:
        """Raises `ValueError` where start and stop are two modules: give one module that holds both."""
        if stop is not None and stop is not start:
            raise ValueError("a graph from one module to another: give one torch module that holds both as start")
        super().__init__(name or type(start).__name__.lower(), start)
