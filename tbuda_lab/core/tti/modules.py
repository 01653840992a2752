"""Which nodes of a traced graph hold the parameters of which module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.tti.loaded import ModuleFacts


def module_facts(modules: Sequence[Module], graph: Graph) -> tuple[ModuleFacts, ...]:
    """The modules of a device, in order: each with its parameters and buffers that the graph reads."""
    parameter_names = {node.name for node in graph.of_kind(NodeKind.PARAMETER)}
    taken: set[str] = set()
    module_facts = []
    for module in modules:
        names: dict[str, str] = {}
        for own in _own_names(module):
            # a name that an earlier module has is written with the module before it (see frontend.pybuda.joined)
            node = next((n for n in (own, f"{module.get_name()}.{own}") if n in parameter_names and n not in taken),
                None)
            if node is not None:
                names[own] = node
        taken |= set(names.values())
        kind = type(module.module) if isinstance(module, PyTorchModule) else type(module)
        module_facts.append(ModuleFacts(module.get_name(), kind.__name__, names))
    return tuple(module_facts)


def model_facts(model: Any, name: str, graph: Graph) -> tuple[ModuleFacts, ...]:
    """The same for whatever a session is given: a torch module or a graph is one module of the session's name."""
    if isinstance(model, Module):
        return module_facts([model], graph)
    if isinstance(model, list | tuple):
        return module_facts(model, graph)
    kind = type(model).__name__ if isinstance(model, torch.nn.Module) else "Graph"
    return (ModuleFacts(name, kind, {n.name: n.name for n in graph.of_kind(NodeKind.PARAMETER)}),)


def _own_names(module: Module) -> list[str]:
    names = [p.get_name() for p in module.get_parameters()]
    if isinstance(module, PyTorchModule):
        names += [name for name, _ in module.module.named_buffers()]
    return names
