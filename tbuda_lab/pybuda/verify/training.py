"""Verification of training: gradients, losses and updated weights of devices, judged against torch step by step."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule, device_names
from tbuda_lab.core.graph import Node, NodeKind
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.trainer.split import HostWeight
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.compiler_config import warn_once
from tbuda_lab.pybuda.context import CONTEXT, StepJudge
from tbuda_lab.pybuda.cpudevice import CPUDevice
from tbuda_lab.pybuda.evaluation import evaluate_module
from tbuda_lab.pybuda.judging import Verdict, judge, require
from tbuda_lab.pybuda.optimizers import SGD, Optimizer, get_optimizer_type_from_string
from tbuda_lab.pybuda.stage import ROOM, Stage, device_trainings

Values = dict[str, torch.Tensor]


class SumOfOutputs(nn.Module):
    """All outputs of a model, filled up with zeros to the largest size of each dim, and added."""

    def forward(self, *outputs: torch.Tensor) -> torch.Tensor:
        rank = max(o.dim() for o in outputs)
        full = [o.reshape((1,) * (rank - o.dim()) + tuple(o.shape)) for o in outputs]
        size = [max(int(o.shape[d]) for o in full) for d in range(rank)]
        total = torch.zeros(size)
        for o in full:
            pads = [n for d in reversed(range(rank)) for n in (0, size[d] - int(o.shape[d]))]
            total = total + nn.functional.pad(o, pads)
        return total


class ScaledLoss(nn.Module):
    """A loss times a number."""

    def __init__(self, loss: nn.Module, scale: float) -> None:
        super().__init__()
        self.loss, self.scale = loss, scale

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.loss(*values) * self.scale
        return result


def place_loss(devices: list[Stage], loss: Module | None, cfg: Any) -> list[Stage]:
    """The devices with a loss at the end: the given one, or the mean distance of the sum of all outputs from random
    targets, times `scale_loss`, on a CPUDevice."""
    if loss is None:
        last: Stage = CPUDevice("cpu_loss", module=PyTorchModule("sum_of_outputs", SumOfOutputs()))
        last.place_loss_module(PyTorchModule("l1_loss", ScaledLoss(nn.L1Loss(), cfg.scale_loss)))
        return [*devices, last]
    if isinstance(loss, PyTorchModule):
        loss = PyTorchModule(loss.get_name(), ScaledLoss(loss.module, cfg.scale_loss))
    elif cfg.scale_loss not in (1.0, type(cfg)().scale_loss):
        warn_once("VerifyConfig.scale_loss", "a loss that is a PyBuda module is taken as it is")
    devices[-1].place_loss_module(loss)
    return devices


def set_optimizers(devices: Sequence[Stage], cfg: Any) -> None:
    """The optimizer and scheduler of the configuration, on every device. Raises `PipelineError` for unknown ones."""
    if cfg.optimizer is None:
        return
    kind = get_optimizer_type_from_string(cfg.optimizer["type"])
    numbers = dict(cfg.optimizer.get("params", {}))
    for device in devices:
        try:
            optimizer = kind(device_params=True, **numbers)
        except TypeError as error:
            raise PipelineError(f"VerifyConfig.optimizer: {kind.__name__} takes no such numbers: {error}") from error
        if isinstance(device, CompiledDevice):
            device.optimizer = optimizer
            if cfg.scheduler is not None:
                device.scheduler = cfg.scheduler["type"](optimizer, **cfg.scheduler.get("params", {}))
        elif isinstance(device, CPUDevice):
            device.optimizer_f = _of_torch(optimizer)


def _of_torch(optimizer: Optimizer) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda module: optimizer.get_pytorch_optimizer(dict(module.named_parameters()))


def verify_training(devices: Sequence[Stage], samples: Sequence[Any], enabled: Sequence[bool], cfg: Any) -> None:
    """Train on the samples as the configuration says, and judge every loss, gradient and updated weight.

    enabled: by input of the model whether its gradient is judged. The reference of each step starts from the weights
    that the devices had before it, which the step before has judged. Raises `AssertionError`.
    """
    CONTEXT.training = False
    generator = torch.Generator().manual_seed(1)
    kind = None if cfg.optimizer is None else get_optimizer_type_from_string(cfg.optimizer["type"])
    rules = [
        None if kind is None else kind(device_params=True, **dict(cfg.optimizer.get("params", {}))) for _ in devices
    ]
    reference = Reference(devices, rules, cfg)
    count = cfg.microbatch_count
    value: Any = samples[0]
    targets = reference.targets(samples[0], generator)
    for number, device in enumerate(devices):
        device.trainer = device.training()
        last = number == len(devices) - 1
        back = number > 0 or any(enabled)
        value = device.trainer.prepare(value, targets if last else None, back, max(count, ROOM))
    judge_of_steps = TrainingJudge(reference, enabled if cfg.enable_input_gradient_checking else ())
    steps, waiting = device_trainings(devices), iter(samples)
    for _ in range(cfg.epochs):
        for _ in range(cfg.steps):
            for turn in range(cfg.accumulation_steps):
                for _ in range(count):
                    value = sample = next(waiting)
                    goal = reference.targets(sample, generator)
                    for number, step in enumerate(steps):
                        value = step.forward(value, goal if number == len(steps) - 1 else None)
                    judge_of_steps.ran_forward(sample, goal, value)
                for k in range(count):
                    gradients: Any = None
                    for step in reversed(steps):
                        gradients = step.backward(gradients, turn == 0 and k == 0)
                    judge_of_steps.ran_backward(gradients, turn == 0 and k == 0)
                judge_of_steps.on_backward()
            if cfg.optimizer is not None:
                for step in steps:
                    step.optimize()
                judge_of_steps.on_optimizer_step()
        for step in steps:
            step.schedule()


def judge_of(devices: Sequence[Stage], cfg: Any, stepped: bool) -> TrainingJudge:
    """For training that a script runs itself, on devices that are set up. stepped: whether optimizers made steps
    before; then what one keeps from step to step is unknown, and its updates are not judged, nor are those of a
    CPUDevice, which are torch's own. Raises `NotSupported` for a device made of an image, whose modules are not there.
    """
    rules: list[Optimizer | None] = []
    for device in devices:
        if not device.modules and device.loss_module is None:
            raise not_supported(f"_verify_cfg with device {device.name!r}, which has no modules", "place its modules")
        rule = device.optimizer if isinstance(device, CompiledDevice) else None
        if rule is not None and stepped and (not isinstance(rule, SGD) or rule.momentum):
            warn_once(
                f"_verify_cfg of a training that has begun, {type(rule).__name__}",
                "gradients are judged, updates are not; give it to initialize_pipeline(training=True)",
            )
            rule = None
        rules.append(rule)
    return TrainingJudge(Reference(devices, rules, cfg), ())


class TrainingJudge(StepJudge):
    """Follows a training and judges every loss, gradient, running statistic and updated weight against torch. Is told
    of every part of a step as it ends; each raises `AssertionError` for what differs.

    The reference of each step starts from the weights that the devices had before it, which the step before has judged.
    """

    def __init__(self, reference: Reference, enabled: Sequence[bool]) -> None:
        """enabled: by input of the model whether its gradient is judged. Raises `NotSupported` for random masks."""
        self._reference, self._enabled, self._cfg = reference, enabled, reference.cfg
        self._forward: collections.deque[tuple[Any, Any, Any]] = collections.deque()
        self._inputs = self._turn = 0
        for stage in reference.stages:
            if stage.device.in_training().drops:
                raise not_supported(
                    f"verification of device {stage.device.name!r} with active dropouts, whose masks are random",
                    "leave enable_tvm_dropout off, or call .eval() on the dropouts",
                )
        reference.begin()
        reference.take_statistics()

    def ran_forward(self, sample: Any, targets: Any, losses: Any) -> None:
        self._forward.append((sample, targets, losses))

    def ran_backward(self, gradients: Sequence[Any], first: bool) -> None:
        """Of the oldest input that ran forward. gradients: by the inputs of the model; first: of a step."""
        if first:
            self._reference.begin()
            self._turn = 0
        sample, targets, losses = self._forward.popleft()
        golden_loss, golden_inputs = self._reference.backward(sample, targets)
        label, cfg = f"{self._cfg.graph_name} input {self._inputs}", self._cfg
        self._inputs += 1
        loss = self._reference.stages[-1].device.in_training().total(losses)
        verdicts = [judge(f"{label} loss", golden_loss.sum(), loss, cfg)]
        verdicts += [
            judge(f"{label} gradient by input {n}", want, got, cfg)
            for n, (want, got, on) in enumerate(zip(golden_inputs, gradients, self._enabled, strict=False))
            if on and want is not None and got is not None
        ]
        require(verdicts)

    def on_backward(self) -> None:
        """A round of inputs ran backward."""
        label = f"{self._cfg.graph_name} accumulation {self._turn}"
        self._turn += 1
        if self._cfg.enable_parameter_gradient_checking:
            require(self._reference.judge_gradients(label))
        require(self._reference.judge_statistics(label))

    def on_optimizer_step(self) -> None:
        """The optimizers made their step."""
        require(self._reference.judge_update(self._cfg.graph_name))
        self._reference.take_statistics()


@dataclasses.dataclass
class _Stage:
    """One device in the reference: its modules, a leaf for every weight by name, and the running statistics."""

    device: Stage
    leaves: Values
    statistics: Values = dataclasses.field(default_factory=dict)
    optimizer: Any = None  # of torch, or the rule of each weight
    rule: Optimizer | None = None


class Reference:
    """The same training in torch: PyTorch modules by their own code, PyBuda modules by their traced graphs."""

    def __init__(self, devices: Sequence[Stage], rules: Sequence[Optimizer | None], cfg: Any) -> None:
        """rules: by device its optimizer, None where updated weights are not judged."""
        self.cfg = cfg
        self.stages = [_Stage(device, {}, rule=rule) for device, rule in zip(devices, rules, strict=True)]
        for stage in self.stages:
            for name, (_, parameter) in stage.device.named_parameters().items():
                if parameter.requires_grad and parameter.fill().is_floating_point():
                    stage.leaves[name] = parameter.fill().detach().float().clone().requires_grad_()
            if not stage.leaves:
                stage.rule = None
            if stage.rule is not None:
                stage.optimizer = _updates(stage.rule, {n: v for n, v in stage.leaves.items() if stage.rule.trains(n)})

    # -- forward -------------------------------------------------------------------------------------------------
    def _outputs(self, sample: Any, trained: bool = False) -> Any:
        """trained: running statistics change."""
        value = sample
        for stage in self.stages:
            modules = stage.device.modules
            for module, names in zip(modules, device_names(modules), strict=True):
                leaves = {own: stage.leaves[name] for own, name in names.items() if name in stage.leaves}
                own_statistics = {own: stage.statistics[n] for own, n in names.items() if n in stage.statistics}
                value = evaluate_module(module, value, leaves, own_statistics if trained else None)
        return value

    def targets(self, sample: Any, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Random targets, normal(0, 0.5), of the outputs' shapes."""
        with torch.no_grad():
            outputs = self._outputs(sample)
        return tuple(torch.randn(o.shape, generator=generator) * 0.5 for o in outputs)

    def begin(self) -> None:
        """Start a step from the weights of the devices, without gradients."""
        for stage in self.stages:
            have = stage.device.in_training().parameters()
            with torch.no_grad():
                for name, leaf in stage.leaves.items():
                    if name in have:
                        leaf.copy_(have[name].reshape(leaf.shape))
                    leaf.grad = None

    def take_statistics(self) -> None:
        """Go on from the running statistics of the devices, which forward passes change."""
        for stage in self.stages:
            have = stage.device.in_training().parameters()
            stage.statistics = {
                names[own]: have[names[own]].reshape(buffer.shape).to(buffer.dtype).clone()
                for module, names in zip(stage.device.modules, device_names(stage.device.modules), strict=True)
                if isinstance(module, PyTorchModule)
                for own, buffer in module.module.named_buffers()
                if names[own] in have
            }

    def backward(self, sample: Any, targets: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """The loss of one input, and the gradients by its tensors; gradients of weights add up."""
        fresh_inputs = pytree.tree_map(_leaf, sample)
        loss_module = self.stages[-1].device.loss_module
        assert loss_module is not None
        with torch.enable_grad():
            (loss,) = evaluate_module(loss_module, (*self._outputs(fresh_inputs, trained=True), *targets), {})
            torch.autograd.backward(loss.sum())
        leaves = [v for v in pytree.tree_leaves(fresh_inputs) if isinstance(v, torch.Tensor)]
        return loss.detach(), [v.grad for v in leaves]

    # -- verdicts ------------------------------------------------------------------------------------------------
    def judge_gradients(self, label: str) -> list[Verdict]:
        """Every weight's sum of gradients. Raises `AssertionError` for one that a device does not have."""
        verdicts = []
        for stage in self.stages:
            have = stage.device.in_training().gradients()
            for name, leaf in stage.leaves.items():
                if leaf.grad is None or self._is_waived(name):
                    continue
                if name not in have:
                    if float(leaf.grad.abs().max()) > 0:
                        raise AssertionError(f"{label}: device {stage.device.name!r} has no gradient by {name!r}")
                    continue
                got = have[name].reshape(leaf.shape)
                verdicts.append(judge(f"{label} gradient by {name}", leaf.grad, got, self.cfg))
        return verdicts

    def judge_statistics(self, label: str) -> list[Verdict]:
        """Every running mean, variance and count of batches that the device keeps."""
        verdicts = []
        for stage in self.stages:
            have = stage.device.in_training().parameters() if stage.statistics else {}
            for name, value in stage.statistics.items():
                if not self._is_waived(name):
                    got = have[name].reshape(value.shape)
                    verdicts.append(judge(f"{label} {name}", value.float(), got.float(), self.cfg))
        return verdicts

    def _is_waived(self, name: str) -> bool:
        return any(part in name for part in self.cfg.waive_gradient_errors)

    def judge_update(self, label: str) -> list[Verdict]:
        """Every weight after the optimizer's step."""
        verdicts = []
        for stage in self.stages:
            if stage.rule is None:
                continue
            actual = stage.device.optimizer if isinstance(stage.device, CompiledDevice) else None
            rate = stage.rule.learning_rate if actual is None else actual.learning_rate
            _step(stage.optimizer, stage.leaves, rate)
            have = stage.device.in_training().parameters()
            for name, leaf in stage.leaves.items():
                if name in have and not self._is_waived(name):
                    got = have[name].reshape(leaf.shape)
                    verdicts.append(judge(f"{label} weight {name} after the step", leaf.detach(), got, self.cfg))
        return verdicts


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.is_floating_point())


def _updates(rule: Optimizer, leaves: Values) -> Any:
    """torch's optimizer; where torch has none, the rule's formula for every weight, evaluated op by op."""
    try:
        return rule.get_pytorch_optimizer(leaves)
    except PipelineError:
        options = rule.options()
        return [
            HostWeight(
                Node(n, NodeKind.PARAMETER, tuple(v.shape), value=v.detach().numpy().copy()), options, CompileOptions()
            )
            for n, v in leaves.items()
        ]


def _step(optimizer: Any, leaves: Values, rate: float) -> None:
    if isinstance(optimizer, torch.optim.Optimizer):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return
    for weight in optimizer:
        leaf = leaves[weight.name]
        weight.set(leaf.detach())
        weight.set_state("lr", torch.tensor([rate]))
        if leaf.grad is not None:
            weight.step(leaf.grad)
        with torch.no_grad():
            leaf.copy_(weight.value.detach())


def recomputing(cfg: Any) -> None:
    """Options of the compile that the kind of the test asks for."""
    if cfg.test_kind.is_recompute():
        config.set_configuration_options(enable_recompute=True)
