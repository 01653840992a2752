"""Outputs of ops inside a model, kept while an input runs.

An op of the model becomes an output of the compiled graph, a tap, so that no pass takes it away or folds another op
into it. A name that only the lowered graph has is read where the executor runs that op.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.session.opchecks import whole_output
from tbuda_lab.runtime.errors import PipelineError

TAP = "tap"
"""Attribute of an OUTPUT that is a tap: the op whose value it is."""


def add_taps(graph: Graph, names: Sequence[str]) -> None:
    """Makes the named ops of a traced graph outputs behind its own; names that it does not have stay for the lowered
    graph."""
    for name in dict.fromkeys(names):
        if name in graph and graph[name].kind is NodeKind.OP:
            shape = graph[name].shape
            graph.add(Node(f"{name}_tapout", NodeKind.OUTPUT, shape, inputs=(Edge(name),), attrs={TAP: name}))


def taps(graph: Graph) -> dict[str, Node]:
    """The taps by the names of their ops."""
    return {str(node.attrs[TAP]): node for node in graph.outputs if TAP in node.attrs}


class IntermediateOutputs:
    """What the named ops give for one pushed input; `take` is an executor's `on_op`.

    Raises `PipelineError` for a name that no op of the model, traced or compiled, has.
    """

    def __init__(self, result: CompileResult, names: Sequence[str]) -> None:
        ops, self.taps = result.placement.ops, taps(result.graph)
        for name in names:
            if name not in ops and name not in self.taps:
                known = [*ops, *(node.name for node in result.graph.ops)]
                near = difflib.get_close_matches(name, known, 3)
                raise PipelineError(f"op_intermediates_to_save: there is no op {name!r} in the model"
                                    + (f"; did you mean {', '.join(dict.fromkeys(near))}?" if near else ""))
        self.result, self.names = result, tuple(dict.fromkeys(names))
        self.parts: dict[str, list[torch.Tensor]] = {name: [] for name in self.names if name not in self.taps}

    def take(self, name: str, output: np.ndarray) -> None:
        """An op gave (n, t, R, C): n elements of the microbatch."""
        if name in self.parts:
            _, z, rows, cols = self.result.lowered[name].shape
            for one in output:
                whole = whole_output(self.result, name, np.array(one, np.float32))
                self.parts[name].append(torch.from_numpy(whole[:z, :rows, :cols].copy())[None])

    def tensors(self, tapped: Sequence[torch.Tensor]) -> list[Tensor]:
        """One tensor (microbatch, z, rows, columns) per name, in the order of the names. tapped: values of the taps,
        in the order of the graph's outputs."""
        values = {
            name: value.reshape(self.result.options.microbatch, -1, *(1, 1, *node.shape)[-2:])
            for (name, node), value in zip(self.taps.items(), tapped, strict=True)
        }
        values |= {name: torch.cat(parts) for name, parts in self.parts.items()}
        return [Tensor.create_from_torch(values[name]) for name in self.names]
