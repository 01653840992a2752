"""How a TT device trains: with the programs of its netlist."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core import frontend
from tbuda_lab.core.bindings import in_model_dtypes
from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.inputs import draw_masks, elements
from tbuda_lab.core.frontend.pybuda import PyTorchModule, device_names, to_torch, with_loss
from tbuda_lab.core.frontend.torch_model.audit import audit
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.graph.phases import DROPOUT, LOSS
from tbuda_lab.core.ops import BatchnormTraining
from tbuda_lab.core.options import TrainingOptions
from tbuda_lab.core.runner import Runnable
from tbuda_lab.core.trainer import SplitTrainer, Trainer
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile_outputs import write_files
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.compiler_config import warn_once
from tbuda_lab.pybuda.stage import (
    DeviceTraining,
    Gradients,
    Inputs,
    Outputs,
    blank_outputs,
    microbatch_of,
)
from tbuda_lab.pybuda.subgraphs import refuse_training


class InARow(torch.nn.Module):
    """Modules of one device, which feed each other."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(modules)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        value: Any = self.parts[0](*args, **kwargs)
        for part in self.parts[1:]:
            value = part(*(v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)))
        return value


class SeededSum(torch.nn.Module):
    """The sum of outputs times numbers, whose gradients by the outputs are those numbers."""

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        count = len(values) // 2
        pairs = zip(values[:count], values[count:], strict=True)
        return torch.stack([(output * seed).sum() for output, seed in pairs]).sum()


class TTTraining(DeviceTraining):
    """A TT device: its modules (and the loss) compiled for training; weights stay on the device until they are read."""

    def __init__(self, device: CompiledDevice) -> None:
        self.device = device
        self.trainer: Trainer | SplitTrainer | None = None
        self.model: Graph | None = None  # without the loss
        self.targets: tuple[str, ...] = ()
        self.options = TrainingOptions()
        self.rate = 0.0 if device.optimizer is None else device.optimizer.learning_rate
        self._sample: tuple[Inputs, tuple[Any, ...] | None, bool] | None = None
        self.audited = False
        self._tracked: dict[str, torch.Tensor] = {}  # num_batches_tracked of batch norms, which the host counts

    def prepare(self, sample: Inputs, targets: tuple[Any, ...] | None, sends_back: bool, batches: int) -> Outputs:
        device = self.device
        if device.has_subgraphs:
            refuse_training()
        self._sample = sample, targets, sends_back
        settings = config._get_global_compiler_config()
        if settings.op_intermediates_to_save:
            warn_once(
                "op_intermediates_to_save",
                "a device that trains keeps no intermediates: run_inference of the "
                "placed module gives them, and VerifyConfig(intermediates=True) judges those of a training",
            )
        drops = bool(settings.enable_tvm_dropout)
        self.model = frontend.from_pybuda(device.modules, sample, training=True, drops=drops)
        warn_modes(device, self.model)
        microbatch = sum(1 for _ in elements(self.model, frontend.feeds(self.model, sample)))
        graph = self.model
        if device.loss_module is not None and targets is not None:
            graph, self.targets = with_loss(self.model, device.loss_module, targets)
        self._audit(graph, sample, targets)
        floats = tuple(n.name for n in self.own_inputs if "float" in str(n.attrs.get("dtype", "float32")))
        optimizer = device.optimizer
        updated = None
        if optimizer is not None and optimizer.parameters is not None:
            updated = tuple(sorted(optimizer.parameters))
        self.options = TrainingOptions(
            None if optimizer is None else optimizer.options(),
            floats if sends_back else (),
            bool(settings.enable_recompute),
            max(1, batches),
            updated,
        )
        options = settings.options(microbatch, device.fp32_fallback)
        chosen = device._format(self.model, options)
        options = dataclasses.replace(options, default_df_override=chosen, training=self.options)
        result = device.compile_in_sections(graph, options, settings)
        device._result, device._microbatch, device._runner = result, microbatch, None
        device._batch = microbatch_of(sample)
        write_files(result, device.file_stem, settings)
        self.trainer = None
        return blank_outputs(graph, microbatch)

    def _audit(self, graph: Graph, sample: Inputs, targets: tuple[Any, ...] | None) -> None:
        """Hold one step of the graph against the modules in torch, once; behind no loss with random gradients by the
        outputs. Raises `UnsupportedOp` where they differ."""
        modules, loss = self.device.modules, self.device.loss_module
        torch_modules = [m.module for m in modules if isinstance(m, PyTorchModule)]
        if self.audited or len(torch_modules) != len(modules) or not modules or self.drops:
            return
        assert self.model is not None
        feed = dict(frontend.feeds(self.model, sample))
        if loss is None or targets is None:
            loss = PyTorchModule("seeds", SeededSum())
            batch = sum(1 for _ in elements(self.model, feed))
            generator = torch.Generator().manual_seed(4)
            shapes = [(batch * n.shape[0], *n.shape[1:]) if n.shape else () for n in self.model.outputs]
            targets = tuple(torch.randn(shape, generator=generator) for shape in shapes)
            graph, names = with_loss(self.model, loss, targets)
        else:
            targets, names = tuple(to_torch(t) for t in targets), self.targets
        if not isinstance(loss, PyTorchModule):
            return
        chain = torch_modules[0] if len(modules) == 1 else InARow(torch_modules)
        renamed = {
            f"parts.{k}.{own}" if len(modules) > 1 else own: name
            for k, by_own in enumerate(device_names(modules))
            for own, name in by_own.items()
        }
        feed |= dict(zip(names, targets, strict=True))
        audit(chain, loss.module, graph, feed, sample, targets, drops=False, names=renamed)
        self.audited = True

    def total(self, losses: Outputs) -> torch.Tensor:
        shares = [float(node.attrs.get(LOSS, 1.0)) for node in self.compile_result.graph.outputs]
        return torch.stack([v.sum() * share for v, share in zip(losses, shares, strict=True)]).sum()

    @property
    def own_inputs(self) -> list[Node]:
        """The model's inputs without the masks of dropouts."""
        assert self.model is not None
        return [node for node in self.model.inputs if DROPOUT not in node.attrs]

    @property
    def drops(self) -> bool:
        return self.model is not None and any(DROPOUT in node.attrs for node in self.model.inputs)

    @property
    def compile_result(self) -> Runnable:
        """The compile with the graph of the whole model."""
        assert self.device._result is not None
        return self.device._result

    def _new_trainer(self) -> Trainer | SplitTrainer:
        split, result = self.device._split, self.device._result
        assert result is not None
        numerics = self.device.numerics
        return Trainer(result, numerics) if split is None else SplitTrainer(split, numerics)

    def _ready(self) -> Trainer | SplitTrainer:
        if self.trainer is None:
            self.trainer = self._new_trainer()
        return self.trainer

    def room_for(self, count: int) -> None:
        """More room is another compile; weights and the optimizer's state go over to it."""
        trainer = self._ready()
        microbatch = self.compile_result.options.microbatch
        if trainer.keeps and trainer.room < count * microbatch and not trainer.waiting and self._sample is not None:
            self._again(*self._sample, count)

    def _again(self, sample: Inputs, targets: tuple[Any, ...] | None, sends_back: bool, batches: int) -> None:
        """Compile once more; weights and the optimizer's state go over."""
        before = self._ready()
        self.prepare(sample, targets, sends_back, batches)
        self._ready().set_parameters(before.parameters())
        self._ready().set_states(before.states())

    def _feed(self, inputs: Inputs, targets: tuple[Any, ...] | None, drops: bool = True) -> dict[str, torch.Tensor]:
        assert self.model is not None
        if self._sample is not None and microbatch_of(inputs) != self.device._batch and not self._ready().waiting:
            self._again(inputs, targets, self._sample[2], self.options.batches)
        self.device._check_batch(inputs)
        feed = dict(frontend.feeds(self.model, inputs))
        feed.update(draw_masks(self.model, sum(1 for _ in elements(self.model, feed)), drops))
        if self.targets:
            if targets is None or len(targets) != len(self.targets):
                raise PipelineError(
                    f"device {self.device.name!r}: the loss takes {len(self.targets)} targets, "
                    f"{0 if targets is None else len(targets)} were pushed"
                )
            feed.update(zip(self.targets, targets, strict=True))
        return feed

    def forward(self, inputs: Inputs, targets: tuple[Any, ...] | None) -> Outputs:
        feed = self._feed(inputs, targets)  # which may compile once more
        outputs = self._ready().forward(feed)
        self._count_batch()
        return in_model_dtypes(self.compile_result.graph, outputs)

    def _count_batch(self) -> None:
        """Every use of a batch norm that takes the statistics of its input counts one, as in torch."""
        counts = self._counts()
        for name in self._norms():
            counts[name] = counts[name] + 1
        self._tracked = counts

    def _norms(self) -> list[str]:
        """The name of the count of each op that is a batch norm in training."""
        assert self.model is not None
        names = [n.sources[3] for n in self.model.ops if isinstance(n.op, BatchnormTraining)]
        return [name.removesuffix("running_mean") + "num_batches_tracked" for name in names]

    def _counts(self) -> dict[str, torch.Tensor]:
        """What has been counted so far, from what the modules say on."""
        if not self._norms():
            return dict(self._tracked)
        modules = zip(self.device.modules, device_names(self.device.modules), strict=True)
        buffers = {
            names[name]: buffer
            for module, names in modules
            if isinstance(module, PyTorchModule)
            for name, buffer in module.module.named_buffers()
        }
        return {name: buffers[name].clone() for name in self._norms() if name in buffers} | self._tracked

    def evaluate(self, inputs: Inputs) -> Outputs:
        """A backward pass with gradients of zero follows, which adds nothing to the sums: without one the queues
        between forward and backward would fill. Raises `PipelineError` for a device with a loss."""
        if self.targets:
            raise PipelineError(f"device {self.device.name!r} ends in a loss; remove_loss_module() before inference")
        feed = self._feed(inputs, None, drops=False)
        trainer = self._ready()
        outputs = tuple(trainer.forward(feed))
        self._count_batch()
        if trainer.waiting:
            nodes = self.compile_result.graph.outputs
            zeros = {n.name: torch.zeros(o.shape) for n, o in zip(nodes, outputs, strict=True)}
            trainer.backward(zeros, zero_grad=False)
        return in_model_dtypes(self.compile_result.graph, outputs)

    def backward(self, gradients: Gradients | None, zero_grad: bool) -> Gradients:
        trainer, result = self._ready(), self.compile_result
        assert self.model is not None
        if not trainer.keeps:  # nothing is trained here and nobody asked for gradients
            return tuple(None for _ in self.own_inputs)
        seeds = (
            {}
            if gradients is None
            else {
                node.name: g.float() for node, g in zip(result.graph.outputs, gradients, strict=True) if g is not None
            }
        )
        for name in trainer.gradient_outputs:
            if name not in seeds and gradients is not None:
                seeds[name] = torch.zeros(next(n.shape for n in result.graph.outputs if n.name == name))
        arrived = trainer.backward(seeds, zero_grad)
        return tuple(arrived.get(node.name) for node in self.own_inputs)

    def optimize(self) -> None:
        optimizer, trainer = self.device.optimizer, self._ready()
        if optimizer is None or not trainer.updates:
            return
        if optimizer.learning_rate != self.rate:
            self.rate = optimizer.learning_rate
            trainer.set_learning_rate(self.rate)
        trainer.optimize()

    def schedule(self) -> None:
        if self.device.scheduler is not None:
            self.device.scheduler.step()

    def parameters(self) -> dict[str, torch.Tensor]:
        return self._ready().parameters() | self._counts()

    def gradients(self) -> dict[str, torch.Tensor]:
        return self._ready().gradients()

    def states(self, is_buda: bool) -> dict[str, dict[str, torch.Tensor]]:
        trainer = self._ready()
        states = trainer.states()
        if is_buda or isinstance(trainer, SplitTrainer):
            return states
        weights = {w.name: w for w in trainer.result.weights}
        return {
            name: {
                k: weights[name].to_model_order(v) if v.numel() == weights[name].size else v for k, v in parts.items()
            }
            for name, parts in states.items()
        }

    def contents(self) -> dict[str, np.ndarray]:
        """What the rams of weights and of the optimizer's state hold, by queue. Raises `NotSupported` for a model that
        CPU fallback splits."""
        trainer = self._ready()
        if isinstance(trainer, SplitTrainer):
            raise not_supported(
                "an image of a model that is split by CPU fallback", "place the host's part on a CPUDevice"
            )
        return trainer.contents()

    def set_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        trainer = self._ready()
        trainer.set_parameters({n: v for n, v in values.items() if n in trainer.weight_names})
        self._tracked |= {n: v.detach().clone() for n, v in values.items() if n in self._counts()}


def warn_modes(device: CompiledDevice, model: Graph) -> None:
    """Warn of layers of torch modules that train in another way in torch: the device drops nothing there."""
    active = {node.origin.module for node in model.inputs if DROPOUT in node.attrs}
    names = [
        name or module.get_name()
        for module in device.modules
        if isinstance(module, PyTorchModule)
        for name, layer in module.module.named_modules()
        if layer.training and name not in active and _dropout_of(layer) > 0
    ]
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        message = (
            f"device {device.name!r} trains {shown} as in eval(): they drop nothing; set enable_tvm_dropout "
            "for nn.Dropout and F.dropout, place that part on a CPUDevice, where torch drops values, or call "
            ".eval() on them to say so"
        )
        warnings.warn(message, UserWarning, stacklevel=4)


def _dropout_of(layer: torch.nn.Module) -> float:
    """The probability with which a layer of torch's own drops values in training."""
    if isinstance(layer, torch.nn.RNNBase) and layer.num_layers == 1:
        return 0.0  # it drops between layers
    if isinstance(layer, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return float(layer.dropout)
    return float(layer.p) if isinstance(layer, torch.nn.modules.dropout._DropoutNd) else 0.0
