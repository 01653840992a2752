"""Several graphs in one PEF: inference alone, one program each."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.samba.tracing import TracedGraph


class SambaGraph:
    """A graph by name. `trace_multigraph` fills it; calling it runs its module on the host."""

    def __init__(self, name: str, module: Any = None) -> None:
        self.name = name
        self.module = module
        self._traced: TracedGraph | None = None

    @property
    def is_traced(self) -> bool:
        """Whether `trace_multigraph` has seen it."""
        return self._traced is not None

    @property
    def traced(self) -> TracedGraph:
        """What `trace_multigraph` made of it. Raises `RuntimeError` before."""
        if self._traced is None:
            raise RuntimeError(f"graph {self.name!r} is not traced: call samba.utils.trace_multigraph first")
        return self._traced

    @traced.setter
    def traced(self, value: TracedGraph) -> None:
        self._traced = value

    def __call__(self, *inputs: Any) -> Any:
        return self.module(*inputs)


class FwdGraph(SambaGraph):
    """A forward graph of a program: from its input tensors to the output tensors that `trace_multigraph` gave for its
    module. Or of a module that `trace_multigraph` has yet to trace."""

    def __init__(self, start: Any, stop: Any = None, name: str = "") -> None:
        """start: the inputs that were traced, one or several, or a module; stop: all of the outputs, or that module
        again. Raises `ValueError` for tensors that are not the inputs and outputs of one traced module, and where start
        and stop are two modules: give one module that holds both."""
        if isinstance(start, torch.nn.Module):
            if stop is not None and stop is not start:
                raise ValueError("a graph from one module to another: give one torch module that holds both as start")
            super().__init__(name or type(start).__name__.lower(), start)
            return
        traced = _traced_of(stop)
        begin = [start] if isinstance(start, torch.Tensor) else list(start)
        given, own = [getattr(t, "sn_name", None) for t in begin], [t.sn_name for t in traced.inputs]
        if sorted(map(str, given)) != sorted(map(str, own)):
            raise ValueError(
                f"start of a graph is its inputs {', '.join(map(str, own))}, not "
                f"{', '.join(map(str, given)) or 'nothing'}"
            )
        super().__init__(name or traced.name, traced.model)
        traced.name = self.name
        self.traced = traced


def _traced_of(stop: Any) -> TracedGraph:
    """The traced graph whose outputs these are. Raises `ValueError` for any other tensors."""
    outputs: list[Any] = [stop] if isinstance(stop, torch.Tensor) else list(stop or ())
    graphs = {id(g): g for g in (t.__dict__.get("traced_graph") for t in outputs)}
    traced: TracedGraph | None = next(iter(graphs.values()), None)
    if len(graphs) != 1 or traced is None:
        raise ValueError("stop of a graph is the outputs of one call of samba.utils.trace_multigraph")
    missing = [str(t.sn_name) for t in traced.outputs if t.sn_name not in {o.sn_name for o in outputs}]
    if missing:
        raise ValueError(f"stop of a graph is all outputs of its module; {', '.join(missing)} are missing")
    return traced
