"""Training in a session: the same compile, placement and views, and runs that change the weights."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import Cancelled, InputError, ModelError, quantity
from tbuda_lab.core.frontend.eager import eager_steps, same, same_seeds
from tbuda_lab.core.frontend.inputs import check_input, cut_inputs, draw_masks, elements, fed_inputs, feeds_of
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule, open_model
from tbuda_lab.core.frontend.torch_model.audit import graph_step
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.graph.phases import LOSS, WRITES
from tbuda_lab.core.session.compiles import Compiles, as_sample
from tbuda_lab.core.trainer import Trainer
from tbuda_lab.core.verification import Comparison, compare_tensors

if TYPE_CHECKING:
    from tbuda_lab.core.session.state import SessionState


ROUNDING = 1e-6
"""Of the largest gradient of all weights: what a smaller one is in float32."""

GRADIENT_SUM = "grad_acc_{}.sum"
"""Name of the output that holds the accumulated gradient of a weight."""


@dataclasses.dataclass(frozen=True)
class TrainingStep:
    """One step of a session's training: its number from 1, the loss of its batch, the learning rate it used."""

    step: int
    loss: float
    learning_rate: float


@dataclasses.dataclass(frozen=True)
class TrainingProgress:
    """Where a call of `train` stands: steps done of `total` (0: nobody knows), the last step, whether it stands before
    the next one, and whether it goes on."""

    done: int
    total: int
    last: TrainingStep | None
    paused: bool
    running: bool


class Training:
    """What a session does for training. See `Session`."""

    def __init__(self, state: SessionState, compiles: Compiles) -> None:
        self._state, self._compiles = state, compiles
        self._trainer: Trainer | None = None
        self._rate = 0.0
        self._steps = 0
        self.steps: list[TrainingStep] = []

    def trains(self, model: Module, loss: Module, inputs: Any = ()) -> None:
        """The modules that the graph of a session that trains was made of, and the model's sample inputs: what its runs
        are judged by."""
        self._state.modules = model, loss, inputs

    @property
    def trainer(self) -> Trainer:
        """The current compile with its weights on the device; another compile takes weights and state over.

        Raises `InputError` for a session that was not made by `for_training`.
        """
        if self._state.request.options.training is None:
            raise InputError("this session is for inference; Session.for_training makes one that trains")
        state = self._state
        result = state.result if state.result is not None and not state.stale else self._compiles.compile()
        before = self._trainer
        if before is None or before.result is not result:
            self._trainer = Trainer(result)
            if before is not None:
                self._trainer.set_parameters(before.parameters())
                self._trainer.set_states(before.states())
        assert self._trainer is not None
        return self._trainer

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return self._rate

    def set_learning_rate(self, value: float) -> None:
        """The rate from the next step on; 0.0 is one. May be called while the session trains."""
        if not value >= 0:
            raise InputError(f"a learning rate is a number from 0, not {value!r}")
        self._rate = float(value)

    def train(self, batches: Iterable[tuple[Any, Any]]) -> list[TrainingStep]:
        """One step for each batch: forward, backward, optimizer. Emits "trained"(TrainingStep) after each.

        batches: (inputs, targets) as `for_training` was given. `control` pauses between steps, and `control.step_input`
        goes one on; `cancel` ends it with `Cancelled` between ops. Raises `InputError` for a batch that does not fit.
        """
        pairs = list(batches) if isinstance(batches, Sequence) else batches
        with self._state.work_lock:
            trainer = self.trainer
            cancel = self._cancel_event()
            used: float | None = None

            def step(inputs: Any, targets: Any) -> tuple[float, float]:
                nonlocal used
                rate = self._rate
                if used != rate:
                    used = rate
                    trainer.set_learning_rate(rate)
                outputs = trainer.forward(self._feed(trainer, inputs, targets), cancel)
                trainer.backward(cancel=cancel)
                trainer.optimize()
                return loss_of(trainer.result.graph, outputs), rate

            def steps() -> Iterator[Callable[[], tuple[float, float]]]:
                for inputs, targets in pairs:
                    yield functools.partial(step, inputs, targets)

            return self.repeat(steps(), len(pairs) if isinstance(pairs, list) else 0)

    def repeat(self, steps: Iterable[Callable[[], tuple[float, float]]], total: int = 0) -> list[TrainingStep]:
        """Steps that somebody else calculates, as `train` goes about its own: counted, told, paused, cancelled between
        two. Each returns the loss of its batch and the learning rate that it used. total: how many there are, 0 where
        nobody knows."""
        done: list[TrainingStep] = []
        with self._state.work_lock:
            cancel = self._cancel_event()
            try:
                for step in steps:
                    if self._state.control.gate(cancel.is_set, lambda: self._tell(done, total, paused=True)):
                        raise Cancelled("training was cancelled between steps")
                    loss, rate = step()
                    self._steps += 1
                    trained = TrainingStep(self._steps, loss, rate)
                    done.append(trained)
                    self.steps.append(trained)
                    self._state.events.emit("trained", trained)
                    self._tell(done, total)
                    self._state.control.on_end("input")
            finally:
                self._tell(done, total, running=False)
                self._state.control.reset()
        return done

    def _cancel_event(self) -> threading.Event:
        """What cancels the training that begins; a cancel of the work before was not meant for it."""
        if self._state.cancel.is_set():
            self._state.cancel = threading.Event()
        return self._state.cancel

    def _tell(self, done: list[TrainingStep], total: int, *, paused: bool = False, running: bool = True) -> None:
        last = self.steps[-1] if self.steps else None
        self._state.events.emit("training", TrainingProgress(len(done), total, last, paused, running))

    def check_gradients(self, inputs: Any, targets: Any) -> list[Comparison]:
        """See `Session.check_gradients`."""
        with self._state.work_lock:
            trainer = self.trainer
            weights = trainer.parameters()
            expected = self._expected(trainer, inputs, targets, weights)
            verdicts: list[Comparison] = []
            for number, wanted in enumerate(expected):
                if number and _equal(expected[0], wanted):
                    continue
                with same_seeds():
                    feed = self._feed(trainer, inputs, targets)
                trainer.forward(feed)
                trainer.backward()
                verdicts += _judge_gradients(wanted, trainer.gradients(), "{}, second pass" if number else "{}")
        return verdicts

    def _expected(
        self, trainer: Trainer, inputs: Any, targets: Any, weights: Mapping[str, torch.Tensor]
    ) -> list[dict[str, torch.Tensor]]:
        """The gradients of two passes of the modules themselves, eagerly. A model without code in torch has its graph
        differentiated by torch, once."""
        model, loss, _ = self._state.modules or (None, None, ())
        if isinstance(model, PyTorchModule) and isinstance(loss, PyTorchModule):
            goal = tuple(as_sample(targets))
            steps = eager_steps(model.module, loss.module, as_sample(inputs), goal, weights)
            if steps:
                return [step.gradients for step in steps]
        result = self._state.result
        assert isinstance(result, CompileResult)
        feed = self._feed(trainer, inputs, targets)
        return [graph_step(result.graph, feed, weights, torch.float64).gradients]

    def judge(self, sample: Any, got: Sequence[torch.Tensor]) -> Comparison:
        """The loss of a run against that of the modules themselves. sample: what the graph reads, targets last."""
        graph = self._compiles.trace()
        feed = feeds_of(fed_inputs(graph), sample)
        goals = [n.name for n in graph.inputs if n.attrs.get("target")]
        model, loss, like = self._state.modules or (None, None, ())
        if isinstance(model, PyTorchModule) and isinstance(loss, PyTorchModule):
            values = iter(feed[n.name] for n in fed_inputs(graph) if n.name not in goals)
            inputs = pytree.tree_map_only(torch.Tensor, lambda _: next(values), like)
            steps = eager_steps(model.module, loss.module, inputs, [feed[name] for name in goals], {}, 1)
        else:
            steps = []
        wanted = steps[0].loss if steps else graph_step(graph, feed).loss
        return compare_tensors("loss", torch.tensor([wanted]), torch.tensor([loss_of(graph, got)]))

    def gradients_by_op(self, comparisons: Iterable[Comparison]) -> dict[str, float]:
        """See `Session.gradients_by_op`."""
        result = self._compiles.compile()
        lowered, forward = result.lowered, {op for e in result.placement.epochs if e.direction == "fwd" for op in e.ops}
        worst: dict[str, float] = {}
        for one in comparisons:
            ops = [n.name for n in lowered.ops if one.name in n.sources and n.name in forward]
            sums = GRADIENT_SUM.format(one.name)
            ends = lowered[sums].sources if sums in lowered.nodes else ()
            ops += [*ends, *(s for e in ends for s in lowered[e].sources if lowered[s].op is not None)]
            for op in ops:
                worst[op] = min(worst.get(op, 1.0), one.pcc)
        return worst

    def _feed(self, trainer: Trainer, inputs: Any, targets: Any) -> dict[str, torch.Tensor]:
        """A batch by the names of the graph's inputs, with a mask for every dropout."""
        graph = trainer.result.graph
        nodes = [n for n in fed_inputs(graph) if not n.attrs.get("target")]
        goals = [n for n in graph.inputs if n.attrs.get("target")]
        goal = tuple(as_sample(targets))
        if len(goal) != len(goals):
            names = ", ".join(n.name for n in nodes)
            raise InputError(f"a batch is inputs for {names} and {quantity(len(goals), 'target')}, not {len(goal)}")
        feed = feeds_of(nodes, as_sample(inputs))
        for node, target in zip(goals, goal, strict=True):
            check_input(node, target)
            feed[node.name] = target
        self._refuse_ignored(graph, feed, goals)
        return feed | draw_masks(graph, sum(1 for _ in elements(graph, feed)))

    def _refuse_ignored(self, graph: Graph, feed: Mapping[str, torch.Tensor], goals: Sequence[Node]) -> None:
        """A loss that leaves targets out is a mean over the others, whom an element that runs by itself does not
        know."""
        cut = cut_inputs(graph, feed)
        _, loss, _ = self._state.modules or (None, None, ())
        layers = loss.module.modules() if isinstance(loss, PyTorchModule) else ()
        every = [getattr(m, "ignore_index", None) for m in layers]
        ignored = [value for value in every if isinstance(value, int)]
        for node in goals:
            target = feed[node.name]
            if node.name not in cut or target.is_floating_point() or target.dtype == torch.bool:
                continue
            if any(bool(torch.eq(target, value).any()) for value in ignored) or bool(torch.lt(target, 0).any()):
                raise InputError(
                    "the batch has targets that the loss leaves out, and the sample of for_training had none, so that "
                    "elements run one by one; give for_training sample targets of which one is left out"
                )


def _equal(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and same(list(first.values()), list(second.values()))


def _judge_gradients(
    wanted: Mapping[str, torch.Tensor], got: Mapping[str, torch.Tensor], label: str
) -> list[Comparison]:
    """Every weight that either side has a gradient of; one that a side does not know has zeros there. Gradients that
    are rounding beside the largest of all on both sides, as that of a bias before a batch norm, are equal."""
    verdicts = []
    largest = max((float(g.abs().max()) for g in wanted.values() if g.numel()), default=0.0)
    for name in (*got, *(n for n in wanted if n not in got)):
        gradient = wanted[name] if name in wanted else got[name]
        zeros = torch.zeros_like(gradient)
        there, here = wanted.get(name, zeros), got.get(name, zeros)
        if name not in got and not there.any():
            continue
        verdict = compare_tensors(label.format(name), there, here.reshape(there.shape))
        if max(verdict.scale, verdict.max_abs) <= ROUNDING * largest:
            verdict = dataclasses.replace(verdict, pcc=1.0, scale=largest)
        verdicts.append(verdict)
    return verdicts


def pybuda_module(name: str, model: Any) -> Module:
    """A torch module, an exported program or a model file as a PyBuda module; such a module itself. Raises `ModelError`
    for anything else."""
    model = open_model(model, name)
    if isinstance(model, torch.nn.Module):
        return PyTorchModule(name, model)
    if not isinstance(model, Module):
        raise ModelError(
            f"the {name} is a {type(model).__name__}: give a torch.nn.Module, a program of torch.export, a PyBuda "
            "module or a model file"
        )
    return model


def loss_of(graph: Graph, outputs: Sequence[torch.Tensor]) -> float:
    """The loss of a batch as its module has it, of what the device gives for the graph's outputs: one value for each
    element that runs by itself."""
    shares = [float(node.attrs.get(LOSS, 1.0)) for node in graph.outputs if WRITES not in node.attrs]
    return sum(float(o.double().sum()) * share for o, share in zip(outputs, shares, strict=True))
