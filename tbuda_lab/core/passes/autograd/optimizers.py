"""Optimizers as ops of the graph: what is done to a weight with its accumulated gradient, once a step.

State lives on the device: PARAMETERs named `input_opt_<weight>_<k>.<suffix>` that the update itself writes. The
learning rate is one too, which the host writes when it changes. Formulas: compiler.md 5.3, torch.optim.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Shape
from tbuda_lab.core.graph.phases import OPTIMIZER_OF, PHASE, READ_FROM_QUEUE, ROLE, WRITES
from tbuda_lab.core.ops import Clip, Equal, Maximum, NotEqual, Reciprocal, ReduceSum, Sqrt
from tbuda_lab.core.options import CompileOptions, OptimizerOptions
from tbuda_lab.core.passes.autograd.engine import GradientBuilder

LEARNING_RATE = "lr"
"""Suffix of the state that holds the learning rate."""

RUNTIME = "run_"
"""What the suffix of a number begins with that the host may change between steps."""

DEFAULTS: dict[str, dict[str, float | bool | tuple[float, float]]] = {
    "sgd": {"learning_rate": 0.001, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    "adam": {
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "bias_correction": True,
    },
    "adamw": {
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "bias_correction": True,
    },
    "lamb": {
        "learning_rate": 0.001,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "clip_value": (0.0, 10.0),
        "correction": False,
    },
    "lars": {
        "learning_rate": 0.001,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "lars_coeff": 0.001,
        "epsilon": 1e-8,
    },
}
"""By kind of optimizer its settings and what they are unless told."""

LATER = frozenset({"correction"})
"""Settings that files of earlier versions do not have."""


def optimizer_options(kind: str, **settings: float | bool | tuple[float, float]) -> OptimizerOptions:
    """An optimizer's options with what is not told filled in. Raises `InputError` for an unknown kind or setting."""
    entry = DEFAULTS.get(kind)
    if entry is None:
        text, fix = f"there is no optimizer {kind!r}", f"one of {', '.join(DEFAULTS)}"
        raise InputError("the optimizer cannot be made", [Diagnostic("error", kind, "optimizer", text, fix)])
    wrong = sorted(set(settings) - set(entry))
    if wrong:
        text, fix = f"{kind} has no setting {', '.join(wrong)}", f"it has {', '.join(entry)}"
        raise InputError("the optimizer cannot be made", [Diagnostic("error", kind, "optimizer", text, fix)])
    return OptimizerOptions(kind, tuple(sorted({**entry, **settings}.items())))


def check_optimizer(options: OptimizerOptions) -> None:
    """Raises `InputError` unless the options, which come from a file, are those that `optimizer_options` makes."""
    settings = dict(options.settings)
    required = optimizer_options(options.kind, **settings)
    lacking = sorted(set(dict(required.settings)) - {*settings, *LATER})
    pairs = [name for name, value in required.settings if isinstance(value, tuple) != (name == "clip_value")]
    if lacking or pairs or not set(options.runtime) <= set(settings):
        text = f"{options.kind} has no such form: {', '.join(lacking or pairs or options.runtime)}"
        raise InputError("the optimizer cannot be made", [Diagnostic("error", options.kind, "optimizer", text)])


class BiasCorrections:
    """Adam's factors 1 / (1 - b1^t) and 1 / sqrt(1 - b2^t): calculated once a step for all weights that have the same
    betas. The powers of the betas are state, a ram each that those weights share."""

    def __init__(self, graph: Graph, options: CompileOptions) -> None:
        self._graph = graph
        self._b = GradientBuilder(graph, "opt_in0", None, options)
        self._factors: dict[tuple[str, float], tuple[Node, str]] = {}

    def factor(self, weight: str, name: str, beta: float) -> str:
        """The factor of one beta, (1,). name: "beta1", whose factor is for the mean, or "beta2"."""
        if (name, beta) not in self._factors:
            graph, b = self._graph, self._b
            state = _state(graph, graph.unique(f"input_opt_{len(self._factors)}.{name}_pow"), f"{name}_pow", (1,), 1.0)
            power = b.multiply(state.name, beta)
            _write(graph, state.name, power)
            left = b.subtract(1.0, power)
            factor = b.op(Reciprocal(), left if name == "beta1" else b.op(Sqrt(), left))
            graph[factor].attrs[READ_FROM_QUEUE] = True
            self._factors[name, beta] = state, factor
        state, factor = self._factors[name, beta]
        state.attrs[OPTIMIZER_OF] = (*state.attrs[OPTIMIZER_OF], weight)
        return factor


def _state(graph: Graph, name: str, suffix: str, shape: Shape, value: float, *weights: str) -> Node:
    """A PARAMETER that stays on the device from step to step, `value` everywhere at first."""
    # zeros take no memory until something is written to them
    array = np.full(shape, value, np.float32) if value else np.zeros(shape, np.float32)
    attrs = {ROLE: "state", OPTIMIZER_OF: weights, "state": suffix}
    return graph.add(Node(name, NodeKind.PARAMETER, shape, value=array, attrs=attrs))


def _write(graph: Graph, target: str, value: str) -> None:
    """From the next step on `target` is `value`, which has its shape."""
    attrs = {PHASE: "optimizer", WRITES: target}
    name = graph.unique(f"{target}.update")
    graph.add(Node(name, NodeKind.OUTPUT, graph[target].shape, inputs=(Edge(value),), attrs=attrs))


class Update:
    """What the update of one weight is written with: a builder, the weight, its gradient, and state. corrections: what
    it shares with other weights."""

    def __init__(
        self, graph: Graph, weight: str, gradient: str, options: CompileOptions, corrections: BiasCorrections
    ) -> None:
        self.graph, self.weight, self.gradient, self.corrections = graph, weight, gradient, corrections
        self.shape = graph[weight].shape
        self.b = GradientBuilder(graph, f"opt_in0_{weight}", None, options)
        self.states = 0

    def state(self, suffix: str, shape: Shape, value: float) -> str:
        """State of this weight alone, `value` everywhere at first."""
        name = f"input_opt_{self.weight}_{self.states}.{suffix}"
        self.states += 1
        return _state(self.graph, name, suffix, shape, value, self.weight).name

    def number(self, optimizer: OptimizerOptions, name: str) -> float | str:
        """A setting of the optimizer: a constant, or the state that holds it where it may change between steps."""
        value = float(optimizer[name])
        return self.state(f"{RUNTIME}{name}", (1,), value) if name in optimizer.runtime else value

    def write(self, target: str, value: str) -> None:
        """From the next step on `target` is `value`."""
        _write(self.graph, target, self.b.reshape(value, self.graph[target].shape))

    def norm(self, x: str) -> str:
        """The Euclidean norm of all elements, of size 1 in every dim."""
        b = self.b
        total = b.multiply(x, x)
        for axis in range(len(b.shape(x))):
            total = b.op(ReduceSum(axis - len(b.shape(x))), total)
        return b.op(Sqrt(), total)

    def one_where_zero(self, ratio: str, *norms: str) -> str:
        """`ratio`, and 1 where one of the norms is 0."""
        b = self.b
        for norm in norms:
            there = b.op(NotEqual(), norm, b.constant(0.0))
            ratio = b.add(b.multiply(there, ratio), b.op(Equal(), norm, b.constant(0.0)))
        return ratio


def write_update(
    graph: Graph,
    weight: str,
    gradient: str,
    optimizer: OptimizerOptions,
    options: CompileOptions,
    corrections: BiasCorrections,
) -> None:
    """Add the ops that update a weight: they read it, its accumulated gradient and state, and write weight and state.

    weight, gradient: PARAMETER nodes of one shape. corrections: of all updates of the graph.
    """
    update = Update(graph, weight, gradient, options, corrections)
    lr = update.state(LEARNING_RATE, (1,), float(optimizer["learning_rate"]))
    _STEPS[optimizer.kind](update, optimizer, lr)


def clip_gradients(graph: Graph, gradients: dict[str, str], max_norm: float, options: CompileOptions) -> dict[str, str]:
    """Gradients times min(1, max_norm / (norm + 1e-6)), norm over all of them (torch's `clip_grad_norm_`).

    gradients: by weight the node of its gradient. Returns the same with the scaled nodes.
    """
    if not gradients:
        return {}
    b = GradientBuilder(graph, "gradnorm", None, options)
    total = None
    for gradient in gradients.values():
        squares = b.multiply(gradient, gradient)
        for axis in range(len(b.shape(squares))):
            squares = b.op(ReduceSum(axis - len(b.shape(squares))), squares)
        squares = b.reshape(squares, (1,))
        total = squares if total is None else b.add(total, squares)
    assert total is not None
    scale = b.multiply(b.op(Reciprocal(), b.add(b.op(Sqrt(), total), 1e-6)), float(max_norm))
    scale = b.op(Clip(0.0, 1.0), scale)
    return {weight: b.multiply(gradient, scale) for weight, gradient in gradients.items()}


def _add_weight_decay(u: Update, weight_decay: float | str) -> str:
    """The gradient with the weight's share added."""
    if not weight_decay:
        return u.gradient
    return u.b.add(u.gradient, u.b.multiply(u.weight, weight_decay))


def _sgd(u: Update, o: OptimizerOptions, lr: str) -> None:
    """p - lr g; with momentum m = momentum m + g takes the place of g (nesterov: g + momentum m)."""
    b = u.b
    step = _add_weight_decay(u, u.number(o, "weight_decay"))
    momentum = u.number(o, "momentum")
    if momentum:
        velocity = u.state("momentum", u.shape, 0.0)
        moved = b.add(b.multiply(velocity, momentum), step)
        u.write(velocity, moved)
        step = b.add(step, b.multiply(moved, momentum)) if o["nesterov"] else moved
    u.write(u.weight, b.subtract(u.weight, b.multiply(step, lr)))


def _moments(u: Update, o: OptimizerOptions, gradient: str) -> tuple[str, str]:
    """m = b1 m + (1 - b1) g and v = b2 v + (1 - b2) g^2, written back."""
    b, beta1, beta2 = u.b, float(o["beta1"]), float(o["beta2"])
    mean, variance = u.state("mean", u.shape, 0.0), u.state("variance", u.shape, 0.0)
    new_mean = b.add(b.multiply(mean, beta1), b.multiply(gradient, 1.0 - beta1))
    squared = b.multiply(gradient, gradient)
    new_variance = b.add(b.multiply(variance, beta2), b.multiply(squared, 1.0 - beta2))
    u.write(mean, new_mean)
    u.write(variance, new_variance)
    return new_mean, new_variance


def _direction(u: Update, o: OptimizerOptions, gradient: str, corrected: bool) -> str:
    """m' / (sqrt(v') + epsilon), m' = m and v' = v; corrected: m' = m / (1 - b1^t), v' = v / (1 - b2^t)."""
    b = u.b
    mean, variance = _moments(u, o, gradient)
    root = b.op(Sqrt(), variance)
    if corrected:
        mean = b.multiply(mean, u.corrections.factor(u.weight, "beta1", float(o["beta1"])))
        root = b.multiply(root, u.corrections.factor(u.weight, "beta2", float(o["beta2"])))
    return b.multiply(mean, b.op(Reciprocal(), b.add(root, float(o["epsilon"]))))


def _adam(u: Update, o: OptimizerOptions, lr: str) -> None:
    """p - lr m' / (sqrt(v') + epsilon), m' = m / (1 - b1^t), v' = v / (1 - b2^t)."""
    b = u.b
    decoupled = o.kind == "adamw"
    decay = u.number(o, "weight_decay")
    gradient = u.gradient if decoupled else _add_weight_decay(u, decay)
    step = _direction(u, o, gradient, bool(o["bias_correction"]))
    if decoupled and decay:
        step = b.add(step, b.multiply(u.weight, decay))
    u.write(u.weight, b.subtract(u.weight, b.multiply(step, lr)))


def _lamb(u: Update, o: OptimizerOptions, lr: str) -> None:
    """p - lr t r with r = m' / (sqrt(v') + epsilon) + decay p and the trust ratio t = |p| / |r|, cut to `clip_value`;
    t is 1 where a norm is 0. Norms are over all elements; with `correction` m' and v' are Adam's, else m and v."""
    b = u.b
    step = _direction(u, o, u.gradient, bool(dict(o.settings).get("correction", False)))
    if o["weight_decay"]:
        step = b.add(step, b.multiply(u.weight, float(o["weight_decay"])))
    weight_norm, step_norm = u.norm(u.weight), u.norm(step)
    low, high = (float(v) for v in o["clip_value"])
    ratio = b.multiply(weight_norm, b.op(Reciprocal(), b.op(Maximum(), step_norm, b.constant(TINY))))
    trust = u.one_where_zero(b.op(Clip(low, high), ratio), step_norm, weight_norm)
    u.write(u.weight, b.subtract(u.weight, b.multiply(step, b.multiply(trust, lr))))


def _lars(u: Update, o: OptimizerOptions, lr: str) -> None:
    """m = momentum m + lr c (g + decay p), p - m, with c = coeff |p| / (|g| + decay |p| + epsilon), 1 where a norm is
    0. Norms are over all elements."""
    b, decay = u.b, float(o["weight_decay"])
    weight_norm, gradient_norm = u.norm(u.weight), u.norm(u.gradient)
    below = b.add(b.add(gradient_norm, b.multiply(weight_norm, decay)), float(o["epsilon"]))
    ratio = b.multiply(b.multiply(weight_norm, float(o["lars_coeff"])), b.op(Reciprocal(), below))
    local = u.one_where_zero(ratio, gradient_norm, weight_norm)
    step = b.multiply(_add_weight_decay(u, decay), b.multiply(local, lr))
    velocity = u.state("momentum", u.shape, 0.0)
    moved = b.add(b.multiply(velocity, float(o["momentum"])), step)
    u.write(velocity, moved)
    u.write(u.weight, b.subtract(u.weight, moved))


TINY = 2.0**-60
"""Under a norm that is divided by: the masks take the ratio out where the norm is 0."""

_STEPS: dict[str, Callable[[Update, OptimizerOptions, str], None]] = {
    "sgd": _sgd,
    "adam": _adam,
    "adamw": _adam,
    "lamb": _lamb,
    "lars": _lars,
}
