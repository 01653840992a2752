"""Trains a model in sections: those of the host with torch's autograd, those of the device with their netlists."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence

import torch

from tbuda_lab.core.compiler.fallback import SplitResult
from tbuda_lab.core.compiler.sections import SENT, Section, gradients_into
from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.frontend.inputs import cut_inputs, elements
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import LOSS, TRAINABLE, WRITES
from tbuda_lab.core.ops.evaluate import evaluate, evaluate_nodes
from tbuda_lab.core.options import CompileOptions, OptimizerOptions
from tbuda_lab.core.passes.autograd.optimizers import LEARNING_RATE, BiasCorrections, write_update
from tbuda_lab.core.runner import join_elements
from tbuda_lab.core.trainer.device import Feed, Trainer

Values = dict[str, torch.Tensor]


class HostWeight:
    """A parameter that the host trains. Its update is the optimizer's graph, evaluated in torch."""

    def __init__(self, node: Node, optimizer: OptimizerOptions | None, options: CompileOptions) -> None:
        assert node.value is not None
        self.name = node.name
        self.value = torch.from_numpy(node.value.copy()).requires_grad_()
        self.update: Graph | None = None
        self.state: Values = {}
        if optimizer is not None:
            self.update = Graph(f"{node.name}.update")
            self.update.add(Node(node.name, NodeKind.PARAMETER, node.shape, value=node.value))
            gradient = f"grad_acc_{node.name}"
            self.update.add(Node(gradient, NodeKind.PARAMETER, node.shape, value=node.value * 0))
            corrections = BiasCorrections(self.update, options)
            write_update(self.update, node.name, gradient, optimizer, options, corrections)
            for other in self.update.of_kind(NodeKind.PARAMETER):
                if other.name not in (node.name, gradient):
                    assert other.value is not None
                    self.state[other.name] = torch.from_numpy(other.value.copy())

    def step(self, gradient: torch.Tensor) -> None:
        """One step of the optimizer."""
        if self.update is None:
            return
        feeds = {self.name: self.value.detach(), f"grad_acc_{self.name}": gradient, **self.state}
        written = evaluate(self.update, feeds)
        for node in self.update.outputs:
            target = str(node.attrs[WRITES])
            if target == self.name:
                self.set(written[node.name])
            else:
                self.state[target] = written[node.name].clone()

    def set(self, value: torch.Tensor) -> None:
        if tuple(value.shape) != tuple(self.value.shape):
            raise InputError(f"weight {self.name!r} has shape {tuple(self.value.shape)}; got {tuple(value.shape)}")
        with torch.no_grad():
            self.value.copy_(value)

    @property
    def states(self) -> Values:
        """State by suffix."""
        return {name.rpartition(".")[2]: value.clone() for name, value in self.state.items()}

    def set_state(self, suffix: str, value: torch.Tensor) -> None:
        name = next((n for n in self.state if n.rpartition(".")[2] == suffix), None)
        if name is None:
            raise InputError(f"weight {self.name!r} has no state {suffix!r}; it has {', '.join(self.states) or 'none'}")
        self.state[name] = value.detach().reshape(self.state[name].shape).float().clone()


class SplitTrainer:
    """A `Trainer` for a model in sections.

    A weight that sections of both places read is the host's: it adds the gradients up, makes the step and writes the
    new value to the device. Raises `InputError` for a compile that is not for training.
    """

    def __init__(self, result: SplitResult, mode: str = "golden") -> None:
        plan = result.options.training
        if plan is None:
            raise InputError("the model was compiled for inference; compile with CompileOptions(training=...)")
        if plan.max_grad_norm is not None:
            raise InputError(
                "a common norm of gradients cannot be formed across sections of host and device",
                [
                    Diagnostic(
                        "error",
                        "max_grad_norm",
                        "cpu-fallback",
                        "some ops run on the host",
                        "leave max_grad_norm at None, or keep the whole model on the device",
                    )
                ],
            )
        self.result, self.plan = result, plan
        self.trainers = {s.graph.name: Trainer(s.result, mode) for s in result.sections if s.result is not None}
        self.waiting: list[int] = []
        self._tapes: deque[tuple[dict[str, list[tuple[Values, Values]]], frozenset[str]]] = deque()
        """Per waiting batch: by host section, per element; and the inputs that all elements share."""
        own = dict(plan.per_weight)
        self.host: dict[str, HostWeight] = {}
        for section in result.sections:
            if section.place == "host":
                for node in section.graph.of_kind(NodeKind.PARAMETER):
                    if node.attrs.get(TRAINABLE) and node.name not in self.host:
                        updated = plan.updated is None or node.name in plan.updated
                        chosen = own.get(node.name, plan.optimizer) if updated else None
                        self.host[node.name] = HostWeight(node, chosen, result.options)

    # -- what a device trainer has as well -----------------------------------------------------------------------
    @property
    def room(self) -> int:
        """How many more elements may run forward before some run backward."""
        return min((t.room for t in self.trainers.values() if t.keeps), default=1 << 30)

    @property
    def keeps(self) -> bool:
        return bool(self.host) or any(t.keeps for t in self.trainers.values())

    @property
    def updates(self) -> bool:
        """Whether there is an optimizer."""
        return self.plan.optimizer is not None or bool(self.plan.per_weight)

    @property
    def gradient_outputs(self) -> tuple[str, ...]:
        """Outputs of the model by which `backward` takes gradients."""
        device = {o for t in self.trainers.values() for o in t.gradient_outputs if not o.endswith(SENT)}
        host = {
            o.name
            for s in self.result.sections
            if s.place == "host"
            for o in s.graph.outputs
            if not o.attrs.get(LOSS) and not o.name.endswith(SENT)
        }
        return tuple(o.name for o in self.result.graph.outputs if o.name in device | host)

    def forward(self, feed: Feed, cancel: threading.Event | None = None) -> list[torch.Tensor]:
        """Outputs for a batch, in order of the graph's. Raises as `Trainer.forward` does."""
        flat = [dict(e) for e in elements(self.result.graph, dict(feed))]
        if self.keeps and len(flat) > self.room:
            raise InputError(
                f"{quantity(len(flat), 'input')} given, there is room for {self.room} that wait for their "
                "backward pass; run backward first"
            )
        tape: dict[str, list[tuple[Values, Values]]] = {}
        answers: list[Values] = [{} for _ in flat]
        for section in self.result.sections:
            if section.place == "host":
                tape[section.graph.name] = [
                    self._on_host(section, values, out) for values, out in zip(flat, answers, strict=True)
                ]
                continue
            trainer = self.trainers[section.graph.name]
            section_feed = {n.name: _whole([values[n.name] for values in flat], n) for n in section.graph.inputs}
            outputs = trainer.forward(section_feed, cancel)
            for node, whole in zip(section.graph.outputs, outputs, strict=True):
                for k, (values, out) in enumerate(zip(flat, answers, strict=True)):
                    part = _part(whole, k, len(flat), node)
                    (values if node.name.endswith(SENT) else out)[
                        node.sources[0] if node.name.endswith(SENT) else node.name
                    ] = part
        if self.keeps:
            self.waiting.append(len(flat))
            cut = cut_inputs(self.result.graph, feed) if len(flat) > 1 else list(feed)
            self._tapes.append((tape, frozenset(feed).difference(cut)))
        return [join_elements([out[n.name] for out in answers]) for n in self.result.graph.outputs]

    def _on_host(self, section: Section, values: Values, out: Values) -> tuple[Values, Values]:
        """One element through a host section; leaves and results, with torch's tape between them."""
        differentiable = set(gradients_into(self.result.graph, section, self.plan.input_gradients))
        leaves = {n.name: values[n.name].detach() for n in section.graph.inputs}
        for name in differentiable:
            leaves[name] = leaves[name].clone().requires_grad_()
        parameters = {name: w.value for name, w in self.host.items() if name in section.graph}
        every = evaluate_nodes(section.graph, {**leaves, **parameters}, differentiable=True)
        results = {}
        for node in section.graph.outputs:
            value = every[node.name]
            results[node.name] = value
            if node.name.endswith(SENT):
                values[node.sources[0]] = value.detach()
            else:
                out[node.name] = value.detach()
        return leaves, results

    def backward(
        self,
        gradients: Mapping[str, torch.Tensor] | None = None,
        zero_grad: bool = True,
        cancel: threading.Event | None = None,
    ) -> dict[str, torch.Tensor]:
        """The backward pass of the oldest batch that waits, section by section from the last; as `Trainer.backward`."""
        if not self.waiting:
            raise InputError("no forward pass waits for its backward pass; run forward first")
        count, (tape, shared), seeds = self.waiting.pop(0), self._tapes.popleft(), dict(gradients or {})
        if zero_grad:
            for weight in self.host.values():
                weight.value.grad = None
        arriving: list[Values] = [{} for _ in range(count)]

        def arrive(element: int, name: str, gradient: torch.Tensor) -> None:
            before = arriving[element].get(name)
            arriving[element][name] = gradient if before is None else before + gradient

        for section in reversed(self.result.sections):
            graph = section.graph
            if section.place == "host":
                for k, (leaves, results) in enumerate(tape[graph.name]):
                    _backward(
                        graph,
                        results,
                        arriving[k],
                        {n: _part(g, k, count, self.result.graph[n]) for n, g in seeds.items() if n in results},
                    )
                    for name, leaf in leaves.items():
                        if leaf.grad is not None:
                            arrive(k, name, leaf.grad)
                continue
            trainer = self.trainers[graph.name]
            if not trainer.keeps:
                continue
            by_output: Values = {}
            for name in trainer.gradient_outputs:
                node = graph[name]
                if name.endswith(SENT):
                    zeros = torch.zeros(node.shape)
                    by_output[name] = _whole([a.get(node.sources[0], zeros) for a in arriving], node)
                else:
                    by_output[name] = seeds.get(name, torch.zeros(node.shape))
            for name, whole in trainer.backward(by_output, zero_grad, cancel).items():
                summed = count > 1 and whole.shape == graph[name].shape  # by a value that all elements share
                for k in range(count):
                    arrive(k, name, whole / count if summed else _part(whole, k, count, graph[name]))
        answers = {}
        for name in self.plan.input_gradients:
            if all(name in a for a in arriving):
                parts = [a[name] for a in arriving]
                answers[name] = torch.stack(parts).sum(0) if name in shared else join_elements(parts)
        return answers

    def optimize(self) -> None:
        """One step of the optimizer everywhere. Raises `InputError` where there is none."""
        if not self.updates:
            raise InputError("the model was compiled without an optimizer; update its weights on the host")
        total = self.gradients()
        for trainer in self.trainers.values():
            if "run_opt_0" in trainer.programs:
                trainer.optimize()
        for name, weight in self.host.items():
            if name in total:
                weight.step(total[name])
        self._share(self.host)

    def _share(self, names: Sequence[str] | Mapping[str, object]) -> None:
        """Write weights of the host to the device sections that read them as well."""
        for trainer in self.trainers.values():
            both = {n: self.host[n].value.detach() for n in names if n in self.host and n in trainer.weight_names}
            if both:
                trainer.set_parameters(both)

    # -- weights and state ---------------------------------------------------------------------------------------
    @property
    def weight_names(self) -> frozenset[str]:
        return frozenset(self.host).union(*(t.weight_names for t in self.trainers.values()))

    def parameters(self) -> Values:
        """Weights as they stand, by name, in the model's own shapes."""
        values: Values = {}
        for trainer in self.trainers.values():
            values |= trainer.parameters()
        return values | {name: w.value.detach().clone() for name, w in self.host.items()}

    def gradients(self) -> Values:
        """Sums of gradients as they stand, by the names of the weights."""
        sums = {n: w.value.grad.clone() for n, w in self.host.items() if w.value.grad is not None}
        for trainer in self.trainers.values():
            for name, gradient in trainer.gradients().items():
                sums[name] = sums[name] + gradient if name in sums else gradient
        return sums

    def states(self) -> dict[str, Values]:
        """State of the optimizer by weight and suffix."""
        states: dict[str, Values] = {}
        for trainer in self.trainers.values():
            states |= trainer.states()
        return states | {name: w.states for name, w in self.host.items()}

    def set_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """Give weights new values. Raises `InputError` for an unknown name."""
        unknown = [name for name in values if name not in self.weight_names]
        if unknown:
            raise InputError(f"there is no weight {unknown[0]!r} in training; there are {', '.join(self.parameters())}")
        for trainer in self.trainers.values():
            trainer.set_parameters({n: v for n, v in values.items() if n in trainer.weight_names})
        for name, value in values.items():
            if name in self.host:
                self.host[name].set(value)

    def set_states(self, values: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Give the optimizer's state new values, as `states` returns them."""
        for trainer in self.trainers.values():
            own = {n: v for n, v in values.items() if n in trainer.weight_names and n not in self.host}
            trainer.set_states(own)
        for name, parts in values.items():
            if name in self.host:
                for suffix, value in parts.items():
                    self.host[name].set_state(suffix, value)

    def set_learning_rate(self, value: float, names: Sequence[str] | None = None) -> None:
        """The learning rate from the next step on, of some weights or all."""
        for trainer in self.trainers.values():
            trainer.set_learning_rate(value, None if names is None else [n for n in names if n in trainer.weight_names])
        for name, weight in self.host.items():
            if weight.update is not None and (names is None or name in names):
                weight.set_state(LEARNING_RATE, torch.tensor([float(value)]))


def _whole(parts: list[torch.Tensor], node: Node) -> torch.Tensor:
    """Values of the elements of a batch as one input of a section."""
    if len(parts) == 1:
        return parts[0]
    if node.shape[:1] != (1,):
        if all(torch.equal(p, parts[0]) for p in parts[1:]):
            return parts[0]
        raise InputError(
            f"value {node.name!r} of shape {node.shape} has no dim of the microbatch, and its elements differ",
            [
                Diagnostic(
                    "error",
                    node.name,
                    "cpu-fallback",
                    "it goes from host to device without a batch dim",
                    "run one element at a time",
                )
            ],
        )
    return torch.cat(parts)


def _part(whole: torch.Tensor, k: int, count: int, node: Node) -> torch.Tensor:
    """Element k of a batch."""
    if count == 1:
        return whole.reshape(node.shape) if node.kind is NodeKind.OUTPUT or not node.shape else whole
    if not node.shape:
        return whole[k]
    return whole[k : k + 1] if whole.shape[:1] == (count,) and node.shape[:1] == (1,) else whole


def _backward(graph: Graph, results: Values, arriving: Values, seeds: Values) -> None:
    """Gradients of one element into the leaves of a host section."""
    pairs = []
    for node in graph.outputs:
        result = results[node.name]
        if node.name.endswith(SENT):
            gradient = arriving.get(node.sources[0])
        else:
            gradient = torch.full_like(result, node.attrs[LOSS]) if node.attrs.get(LOSS) else seeds.get(node.name)
        if result.requires_grad and gradient is not None:
            pairs.append((result, gradient.reshape(result.shape).to(result.dtype)))
    if pairs:
        torch.autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
