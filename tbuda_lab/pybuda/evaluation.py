"""What a module gives, in torch and differentiable: the reference that devices of a training are judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tbuda_lab.core import frontend
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule
from tbuda_lab.core.frontend.torch_model.export import evaluation
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.runner import join_elements


def evaluate_module(
    module: Module, value: Any, leaves: Mapping[str, torch.Tensor], statistics: dict[str, torch.Tensor] | None = None
) -> tuple[torch.Tensor, ...]:
    """What a module gives, differentiable by `leaves` and by the inputs; as a device trains it (see `warn_modes`).
    statistics: buffers of the module that change."""
    if isinstance(module, PyTorchModule):
        own = {n: leaves[n] for n, _ in module.module.named_parameters() if n in leaves}
        args, kwargs = ((), dict(value)) if isinstance(value, Mapping) else (tuple(value), {})
        buffers = {n: b.clone() for n, b in module.module.named_buffers()}  # so that the module's own do not change
        if statistics is not None:
            buffers |= {n: b for n, b in statistics.items() if n in buffers}
        norms = [m for m in module.module.modules() if m.training and isinstance(m, nn.modules.batchnorm._BatchNorm)]
        with evaluation(module.module):
            for norm in norms:
                norm.train()
            returned = torch.func.functional_call(module.module, {**own, **buffers}, args, kwargs)
        return tuple(v for v in pytree.tree_leaves(returned) if isinstance(v, torch.Tensor))
    detached = pytree.tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, value)
    graph = frontend.from_pybuda(module, detached, training=True)
    names = [n.name for n in graph.inputs]
    flat = [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]
    frontend.feeds(graph, detached)  # checks that they fit
    if isinstance(value, Mapping):
        feed = {n.name: value[str(n.attrs.get("argument", n.name))] for n in graph.inputs}
    else:
        feed = dict(zip(names, flat, strict=True))
    weights = {n.name: leaves[n.name] for n in graph.of_kind(NodeKind.PARAMETER) if n.name in leaves}
    parts = []
    for element in elements(graph, feed):
        every = evaluate_nodes(graph, {**element, **weights}, differentiable=True)
        parts.append([every[n.name] for n in graph.outputs])
    return tuple(join_elements(list(column)) for column in zip(*parts, strict=True))
