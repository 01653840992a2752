"""Trains a compiled model on the simulated device: forward, backward and optimizer programs, weights and gradients."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from tbuda_lab.core.bindings import WeightBinding, decode, encode
from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.frontend.inputs import cut_inputs, elements
from tbuda_lab.core.passes.autograd.optimizers import LEARNING_RATE
from tbuda_lab.core.runner import Runnable, Runner, join_elements

Feed = Mapping[str, torch.Tensor]


class Trainable(Runnable, Protocol):
    """What training needs of a compile."""

    @property
    def weights(self) -> tuple[WeightBinding, ...]: ...


class Trainer:
    """One model compiled for training, loaded on one simulated device.

    A batch is a whole number of microbatches. `forward` may run several batches before `backward` works them off, in
    the same order; gradients add up until `backward` is told to begin anew; `optimize` changes the weights once.
    """

    def __init__(self, result: Trainable, mode: str = "golden") -> None:
        """Raises `InputError` for a compile that is not for training."""
        if result.options.training is None:
            raise InputError("the model was compiled for inference; compile with CompileOptions(training=...)")
        self.result = result
        self.runner = Runner(result, mode)
        self.executor = self.runner.executor
        self.programs = {p.name for p in result.netlist.programs}
        self.waiting: list[int] = []  # elements of the batches that have run forward and not backward
        self._shared: list[frozenset[str]] = []  # per waiting batch the inputs that all its elements read
        self._weights = {w.name: w for w in result.weights}

    @property
    def room(self) -> int:
        """How many more elements may run forward before some run backward."""
        training = self.result.options.training
        assert training is not None
        return self.result.options.microbatch * training.batches - sum(self.waiting)

    # -- programs ----------------------------------------------------------------------------------------------------
    def forward(self, feed: Feed, cancel: threading.Event | None = None) -> list[torch.Tensor]:
        """Outputs for a batch, in order of the graph's. feed: the model's inputs by name, elements along dim 0.

        Raises `InputError` for a batch that is not a whole number of microbatches, or for which there is no room.
        """
        flat = list(elements(self.result.graph, dict(feed)))
        microbatch = self.result.options.microbatch
        if not flat or len(flat) % microbatch:
            raise InputError(f"{quantity(len(flat), 'input')} given, the model runs {microbatch} at a time")
        if self.keeps and len(flat) > self.room:
            raise InputError(
                f"{quantity(len(flat), 'input')} given, there is room for {self.room} that wait for their backward "
                "pass",
                [
                    Diagnostic(
                        "error",
                        "forward",
                        "batches",
                        "the queues between the passes are full",
                        "run backward first, or compile with TrainingOptions(batches=...)",
                    )
                ],
            )
        inputs = [b for b in self.result.inputs if not b.gradient_of]
        outputs = [b for b in self.result.outputs if b.phase == "forward"]
        rows: list[tuple[torch.Tensor, ...]] = []
        for start in range(0, len(flat), microbatch):
            for one in flat[start : start + microbatch]:
                for source in inputs:
                    self.executor.push(source.queue, source.encode(one))
            self.executor.run("run_fwd_0", {"p_loop_count": 1}, cancel=cancel)
            rows += zip(
                *[[b.decode(self.executor.pop(b.queue)) for _ in range(microbatch)] for b in outputs], strict=True
            )
        if self.keeps:
            self.waiting.append(len(flat))
            cut = cut_inputs(self.result.graph, feed) if len(flat) > 1 else list(feed)
            self._shared.append(frozenset(feed).difference(cut))
        return [join_elements(column) for column in zip(*rows, strict=True)]

    @property
    def gradient_outputs(self) -> tuple[str, ...]:
        """Outputs of the model by which `backward` takes gradients: those that are no loss and lead to a weight."""
        return tuple(b.gradient_of for b in self.result.inputs if b.gradient_of)

    @property
    def weight_names(self) -> frozenset[str]:
        return frozenset(self._weights)

    @property
    def updates(self) -> bool:
        """Whether there is an optimizer."""
        return "run_opt_0" in self.programs

    @property
    def keeps(self) -> bool:
        """Whether forward keeps values for a backward pass."""
        return "run_bwd_0" in self.programs

    def backward(
        self,
        gradients: Mapping[str, torch.Tensor] | None = None,
        zero_grad: bool = True,
        cancel: threading.Event | None = None,
    ) -> dict[str, torch.Tensor]:
        """The backward pass of the oldest batch that waits for it; returns the gradients by inputs, by input name: one
        per element along dim 0, and the sum over the elements by an input that they share.

        gradients: by output name the gradient by it, for outputs that are no loss. zero_grad: whether the sums of the
        weights' gradients begin anew. Raises `InputError` when no batch waits or a gradient is missing.
        """
        seeds = dict(gradients or {})
        seeded = [b for b in self.result.inputs if b.gradient_of]
        missing = [b.gradient_of for b in seeded if b.gradient_of not in seeds]
        if missing:
            raise InputError(f"backward needs the gradients by {', '.join(missing)}")
        if not self.waiting:
            raise InputError("no forward pass waits for its backward pass; run forward first")
        count, microbatch, shared = self.waiting.pop(0), self.result.options.microbatch, self._shared.pop(0)
        outputs = [b for b in self.result.outputs if b.phase == "backward"]
        rows: list[tuple[torch.Tensor, ...]] = []
        for start in range(0, count, microbatch):
            for at in range(start, start + microbatch):
                for source in seeded:
                    value = seeds[source.gradient_of]
                    one = value[at : at + 1] if count > 1 and value.shape[:1] == (count,) else value
                    self.executor.push(source.queue, source.encode({source.sources[0]: one}))
            params = {"p_loop_count": 1}
            if any(w.gradient for w in self.result.weights):
                params["p_zero_grad"] = int(zero_grad and start == 0)
            self.executor.run("run_bwd_0", params, cancel=cancel)
            rows += zip(
                *[[b.decode(self.executor.pop(b.queue)) for _ in range(microbatch)] for b in outputs], strict=True
            )
        names = [b.name.removeprefix("output_grad_") for b in outputs]
        columns = zip(names, zip(*rows, strict=True), strict=True) if outputs else ()
        return {n: torch.stack(c).sum(0) if n in shared else join_elements(c) for n, c in columns}

    def optimize(self) -> None:
        """One step of the optimizer with the gradients as they stand. Raises `InputError` where there is none."""
        if "run_opt_0" not in self.programs:
            raise InputError("the model was compiled without an optimizer; update its weights on the host")
        self.executor.run("run_opt_0")

    # -- what lies on the device -------------------------------------------------------------------------------------
    def parameters(self) -> dict[str, torch.Tensor]:
        """Weights as they stand, by name, in the model's own shapes."""
        return {w.name: w.decode(self.executor.read(w.queue)) for w in self.result.weights}

    def gradients(self) -> dict[str, torch.Tensor]:
        """Sums of gradients as they stand, by the names of the weights."""
        return {w.name: w.decode(self.executor.read(w.gradient)) for w in self.result.weights if w.gradient}

    def states(self) -> dict[str, dict[str, torch.Tensor]]:
        """State of the optimizer by weight and suffix, in the shapes of the device."""
        return {
            w.name: {s.suffix: decode(self.executor.read(s.queue), s.shape) for s in w.states}
            for w in self.result.weights
        }

    def contents(self) -> dict[str, np.ndarray]:
        """What the rams of weights and of the optimizer's state hold, by queue: (t, R, C) float32."""
        queues = [q for w in self.result.weights for q in (w.queue, *(s.queue for s in w.states))]
        return {queue: np.array(self.executor.read(queue), np.float32) for queue in queues}

    def set_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """Give weights new values. Raises `InputError` for an unknown name or another shape, before any is written."""
        arrays = {}
        for name, value in values.items():
            weight = self._weights.get(name)
            if weight is None:
                raise InputError(f"there is no weight {name!r} in training; there are {', '.join(self._weights)}")
            arrays[weight.queue] = weight.encode(value)
        for queue, array in arrays.items():
            self.executor.write(queue, array)

    def set_states(self, values: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Give the optimizer's state new values, as `states` returns them; one that weights share changes for all of
        them. Raises `InputError` for an unknown state, and where weights that share one are given different values,
        before any is written."""
        arrays: dict[str, np.ndarray] = {}
        for name, parts in values.items():
            states = {s.suffix: s for s in self._weights[name].states} if name in self._weights else {}
            for suffix, value in parts.items():
                if suffix not in states:
                    raise InputError(f"weight {name!r} has no state {suffix!r}; it has {', '.join(states) or 'none'}")
                array = encode(value, states[suffix].shape, f"{name} {suffix}")
                if not np.array_equal(arrays.setdefault(states[suffix].queue, array), array):
                    raise InputError(f"{suffix} of {name!r} is shared with other weights, which get other values")
        for queue, array in arrays.items():
            self.executor.write(queue, array)

    def set_learning_rate(self, value: float, names: Sequence[str] | None = None) -> None:
        """The learning rate from the next step on, of some weights or all."""
        chosen = self.result.weights if names is None else [self._weights[n] for n in names]
        rate = torch.tensor([float(value)])
        for weight in chosen:
            for state in weight.states:
                if state.suffix == LEARNING_RATE:
                    self.executor.write(state.queue, encode(rate, state.shape, state.queue))
