"""Graphs as objects: `build` makes the graph, and fields hold the inputs that calls are given by name."""

from __future__ import annotations

from typing import Any


class Module:
    """`ir.create_graph(module, ...)` calls `build`; tensors of `popxl.graph_input` that it keeps in fields are keys of
    `inputs_dict`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.build(*args, **kwargs)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """What the graph holds; returns its outputs."""
        raise NotImplementedError(f"{type(self).__name__} has no build: define it, and return the outputs of the graph")
