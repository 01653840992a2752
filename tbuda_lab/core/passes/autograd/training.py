"""The passes that make a training graph of a model's graph."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ACCUMULATES, LOSS, PHASE, RECOMPUTE, ROLE, STATISTIC, TRAINABLE, WRITES
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.gradients import gradient_sources
from tbuda_lab.core.ops.norm import BatchnormTraining, GroupNorm
from tbuda_lab.core.options import TrainingOptions
from tbuda_lab.core.passes.autograd.engine import differentiate, make_differentiable
from tbuda_lab.core.passes.autograd.optimizers import BiasCorrections, clip_gradients, write_update
from tbuda_lab.core.passes.base import Pass, Report


@dataclasses.dataclass(frozen=True)
class RunningStatistics(Pass):
    """Batch norms of training become group norms, and the forward part writes their running mean and variance."""

    name = "running_statistics"
    doc = "Write the running statistics of batch norms in training"

    def apply(self, graph: Graph) -> Report:
        norms = [node for node in graph.topological() if isinstance(node.op, BatchnormTraining)]
        values: dict[str, str] = {}
        for node in norms:
            assert isinstance(node.op, BatchnormTraining)
            own, sources = node.op, node.sources
            node.op, node.inputs = GroupNorm(node.shape[1], own.epsilon), node.inputs[:3]
            attrs = {"original_op_name": node.name, "original_op_type": "batchnorm_training"}
            b = Builder(graph, node.origin, f"{node.name}.statistics", attrs, self.options)
            mean, var = sources[3:]  # a layer that is used twice goes on from what its first use leaves
            after = own.statistics(b, sources[0], values.get(mean, mean), values.get(var, var))
            values.update(zip((mean, var), after, strict=True))
        for name, value in values.items():
            graph[name].attrs[ROLE] = STATISTIC
            attrs = {PHASE: "forward", WRITES: name}
            update = Node(f"{name}.update", NodeKind.OUTPUT, graph[name].shape, inputs=(Edge(value),), attrs=attrs)
            update.origin = graph[value].origin
            graph.add(update)
        return Report(self.name, len(norms))


@dataclasses.dataclass(frozen=True)
class Differentiable(Pass):
    """Ops without a gradient rule of their own are written in ops that have one."""

    name = "differentiable"
    doc = "Write ops in such as have gradient rules"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, make_differentiable(graph, self.options))


@dataclasses.dataclass(frozen=True)
class Autograd(Pass):
    """Adds the backward part and the optimizer's.

    A loss (an OUTPUT with attrs["loss"]) begins with the gradient that it says; any other output that
    depends on something to train gets an INPUT `loss_<output>` for the gradient by it. The gradient of a weight is
    added up in `grad_acc_<weight>`; that of an input leaves as OUTPUT `output_grad_<input>`.
    """

    name = "autograd"
    doc = "Add the backward graph, the sums of gradients and the optimizer"

    def apply(self, graph: Graph) -> Report:
        plan = self.options.training
        if plan is None:
            return Report(self.name, 0)
        before = len(graph)
        forward = {node.name for node in graph.ops}
        weights = [n.name for n in graph.of_kind(NodeKind.PARAMETER) if n.attrs.get(TRAINABLE)]
        sources = [*weights, *_inputs(graph, plan)]
        gradients = differentiate(graph, _seeds(graph, sources), sources, self.options)
        accumulators: dict[str, str] = {}
        for name in weights:
            node = graph[name]
            node.attrs[ROLE] = "weight"
            if name in gradients:
                accumulators[name] = _accumulate(graph, node, gradients[name])
        for name in sources[len(weights) :]:
            if name in gradients:
                edges, attrs = (Edge(gradients[name]),), {PHASE: "backward", "dtype": "float32"}
                graph.add(Node(f"output_grad_{name}", NodeKind.OUTPUT, graph[name].shape, inputs=edges, attrs=attrs))
        if plan.recompute:
            _recompute(graph, forward)
        own = dict(plan.per_weight)
        if plan.optimizer is not None or own:
            steps = accumulators
            if plan.max_grad_norm is not None:
                steps = clip_gradients(graph, accumulators, plan.max_grad_norm, self.options)
            corrections = BiasCorrections(graph, self.options)
            for name, step in steps.items():
                own_name = _own_name(graph[name])
                optimizer = own.get(own_name, plan.optimizer)
                if optimizer is None or (plan.updated is not None and own_name not in plan.updated):
                    continue
                write_update(graph, name, step, optimizer, self.options, corrections)
        idle = [name for name in sources if name not in gradients]
        notes = (f"nothing flows back to {', '.join(idle)}",) if idle else ()
        return Report(self.name, len(graph) - before, notes)


def _recompute(graph: Graph, forward: set[str]) -> None:
    """Backward ops read clones of forward ops (`<op>_recompute`) that calculate them anew from inputs and weights."""
    copies: dict[str, str] = {}

    def copy_of(name: str) -> str:
        stack = [name]
        while stack:
            at = stack[-1]
            waiting = [s for s in graph[at].sources if s in forward and s not in copies]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if at in copies:
                continue
            node = graph[at]
            edges = tuple(Edge(copies.get(s, s)) for s in node.sources)
            copy = graph.unique(f"{at}_recompute")
            graph.add(dataclasses.replace(node, name=copy, inputs=edges, attrs={**node.attrs, RECOMPUTE: True}))
            copies[at] = copy
        return copies[name]

    for node in list(graph):
        late = node.name not in forward and (node.kind is NodeKind.OP or node.attrs.get(PHASE) == "backward")
        if late and any(s in forward for s in node.sources):
            node.inputs = tuple(Edge(copy_of(s) if s in forward else s) for s in node.sources)
    graph.resort()


def _own_name(node: Node) -> str:
    """The name of a parameter in the model."""
    return node.name if node.recipe is None else node.recipe.inputs[0].name


def _inputs(graph: Graph, plan: TrainingOptions) -> list[str]:
    input_names = {node.name for node in graph.inputs}
    missing = [name for name in plan.input_gradients if name not in input_names]
    if missing:
        text, fix = f"no inputs {', '.join(missing)}", f"the graph has {', '.join(sorted(input_names)) or 'none'}"
        raise InputError(
            "gradients of inputs that the graph does not have", [Diagnostic("error", missing[0], "input", text, fix)]
        )
    return list(plan.input_gradients)


def _seeds(graph: Graph, sources: list[str]) -> dict[str, str]:
    """By value that an OUTPUT delivers the node with the gradient by it."""
    trained: set[str] = set(sources)
    for node in graph.topological():
        if any(source in trained for source in gradient_sources(node)):
            trained.add(node.name)
    seeds: dict[str, str] = {}
    for node in graph.outputs:
        source = node.sources[0]
        if source not in trained or WRITES in node.attrs:
            continue
        if node.attrs.get(LOSS):
            name, value = f"loss_grad_constant_{node.name}", np.full(node.shape, node.attrs[LOSS], np.float32)
            seed = Node(name, NodeKind.CONSTANT, node.shape, value=value, origin=node.origin)
        else:
            attrs = {"dtype": "float32", ROLE: "gradient", "gradient_of": node.name}
            seed = Node(f"loss_{node.name}", NodeKind.INPUT, node.shape, attrs=attrs, origin=node.origin)
        graph.add(seed)
        if source in seeds:  # two outputs of one value
            from tbuda_lab.core.ops import Add

            both = Node(
                graph.unique(f"bw_combine_{source}_outputs"),
                NodeKind.OP,
                node.shape,
                Add(),
                (Edge(seeds[source]), Edge(seed.name)),
                origin=node.origin,
            )
            seeds[source] = graph.add(both).name
        else:
            seeds[source] = seed.name
    return seeds


def _accumulate(graph: Graph, weight: Node, gradient: str) -> str:
    """The PARAMETER that holds the sum of a weight's gradients, written by adding to it."""
    name = f"grad_acc_{weight.name}"
    zeros = np.zeros(weight.shape, np.float32)
    attrs = {ROLE: "accumulator", "gradient_of": weight.name}
    graph.add(Node(name, NodeKind.PARAMETER, weight.shape, value=zeros, attrs=attrs, origin=weight.origin))
    write = {PHASE: "backward", WRITES: name, ACCUMULATES: True, "gradient_of": weight.name}
    graph.add(Node(f"{name}.sum", NodeKind.OUTPUT, weight.shape, inputs=(Edge(gradient),), attrs=write))
    return name
