"""What a trace of a torch module comes to, whichever way it was traced."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import ModelError

LOG = logging.getLogger("tbuda_lab.frontend")
_RETURNED = torch.Tensor, int, float, str, type(None)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """What a placeholder stands for: a tensor that the forward is given, one that the module holds under the name
    `target` (a parameter or buffer if `stored`, else a constant), or a value that is no tensor."""

    given: bool = False
    target: str = ""
    tensor: torch.Tensor | None = None
    stored: bool = False
    value: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    """Calls of aten, with fixed shapes: those of `graph`, and those of regions that are submodules of `module`.

    leaves: one of each placeholder, in order. returned: which outputs of the graph the forward returns. out_spec: the
    structure in which it returns them. changed: what the forward writes to of what it holds or is given.
    """

    graph: torch.fx.Graph
    leaves: tuple[Leaf, ...]
    returned: tuple[bool, ...]
    out_spec: pytree.TreeSpec | None
    module: torch.fx.GraphModule | None = None
    changed: tuple[str, ...] = ()

    @classmethod
    def of(cls, program: ExportedProgram) -> Program:
        """What `torch.export` made. Raises `ModelError` for inputs of other kinds."""
        placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
        signature = program.graph_signature
        leaves = tuple(_leaf(n, s, program) for n, s in zip(placeholders, signature.input_specs, strict=True))
        outputs = signature.output_specs
        mutations = OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION
        changed = tuple(str(spec.target) for spec in outputs if spec.kind in mutations)
        returned = tuple(spec.kind is OutputKind.USER_OUTPUT for spec in outputs)
        return cls(program.graph, leaves, returned, program.call_spec.out_spec, program.graph_module, changed)


def _leaf(node: torch.fx.Node, spec: InputSpec, program: ExportedProgram) -> Leaf:
    if spec.kind is InputKind.USER_INPUT:
        if isinstance(spec.arg, ConstantArgument):
            return Leaf(value=spec.arg.value)
        value = node.meta.get("val")
        return Leaf(given=True) if isinstance(value, torch.Tensor) else Leaf(value=value)
    target = str(spec.target)
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
        source = program.constants if spec.persistent is False else program.state_dict
        return Leaf(target=target, tensor=source[target], stored=True)
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return Leaf(target=target, tensor=program.constants[target])
    if spec.kind in (InputKind.CUSTOM_OBJ, InputKind.TOKEN):
        return Leaf()  # a random generator, say; the op that draws from it is refused
    raise ModelError(f"the model needs an input of kind {spec.kind.name}, which is not supported")


def tensors_of(output: Any) -> tuple[Any, list[str]]:
    """What a forward returns, without objects that hold no tensors which can be traced (a key-value cache, say), and
    the types of those."""
    leaves, spec = pytree.tree_flatten(output)
    foreign = [type(v).__name__ for v in leaves if not isinstance(v, _RETURNED)]
    if not foreign:
        return output, []
    return pytree.tree_unflatten([v if isinstance(v, _RETURNED) else None for v in leaves], spec), foreign


def warn_of(foreign: list[str]) -> None:
    """Say which types of results `tensors_of` left out."""
    if foreign:
        names = ", ".join(sorted(set(foreign)))
        LOG.warning("outputs of type %s hold no tensors that can be traced and are left out", names)
