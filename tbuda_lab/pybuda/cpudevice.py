"""The host as a device: runs PyTorch modules with torch itself, and trains them with torch's autograd."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule, Tensor, device_names
from tbuda_lab.core.frontend.torch_model.export import evaluation
from tbuda_lab.pybuda.device import Device
from tbuda_lab.pybuda.stage import DeviceTraining, Gradients, Inputs, Outputs


class CPUDevice(Device):
    """The host: runs PyTorch modules with torch itself."""

    def __init__(
        self,
        name: str,
        optimizer_f: Any = None,
        scheduler_f: Any = None,
        mp_context: Any = None,
        retain_backward_graph: bool = False,
        module: Module | Sequence[Module] | None = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
    ) -> None:
        for what, scheduler_of in (("optimizer_f", optimizer_f), ("scheduler_f", scheduler_f)):
            if scheduler_of is not None and not callable(scheduler_of):
                raise PipelineError(f"CPUDevice {name!r}: {what} is a function, not a {type(scheduler_of).__name__}")
        self.optimizer_f, self.scheduler_f = optimizer_f, scheduler_f
        self.retain_backward_graph = bool(retain_backward_graph)
        self.input_dtypes = input_dtypes
        self.gradient_trace: Any = None
        super().__init__(name, mp_context, module)

    def _accepts(self, module: Module) -> None:
        if not isinstance(module, PyTorchModule):
            raise PipelineError(
                f"CPUDevice {self.name!r} runs PyTorch modules; {module.get_name()!r} is a {type(module).__name__}"
            )

    # PyBuda's names of the same for each framework; a TensorFlow module is not a module of a CPUDevice (`_accepts`).
    forward_pt = forward_tf = Device.forward
    compile_for_pt = compile_for_tf = Device.compile_for
    cpueval_forward_pt = cpueval_forward_tf = Device.cpueval_forward

    def set_debug_gradient_trace_queue(self, q: Any) -> None:
        """A queue that gets, at every backward pass, the gradients that come in and then those that go out."""
        self.gradient_trace = q

    def prepare(self, sample: Inputs) -> Outputs:
        return self.run_forward(sample)

    def training(self) -> DeviceTraining:
        return CPUTraining(self)

    def run_forward(self, inputs: Inputs) -> Outputs:
        value: Any = inputs
        if isinstance(value, tuple) and self.input_dtypes:
            value = tuple(v.to(d) for v, d in zip(value, self.input_dtypes, strict=True))
        for module in self.modules:
            assert isinstance(module, PyTorchModule)
            with evaluation(module.module), torch.no_grad():
                answer = module.forward(**value) if isinstance(value, dict) else module.forward(*value)
            value = tuple(leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor))
        return tuple(value.values()) if isinstance(value, dict) else value


class CPUTraining(DeviceTraining):
    """torch's autograd, with the optimizer and scheduler that the script's functions make of the modules."""

    def __init__(self, device: CPUDevice) -> None:
        self.device = device
        self.waiting: deque[tuple[list[torch.Tensor], list[torch.Tensor]]] = deque()
        modules = [m for m in (*device.modules, device.loss_module) if isinstance(m, PyTorchModule)]
        self.names = device_names(modules)
        self.modules = [m.module for m in modules]
        optimizer_of = device.optimizer_f
        self.optimizers = [
            optimizer_of(module)
            for module in self.modules
            if optimizer_of is not None and any(True for _ in module.parameters())
        ]
        factory = device.scheduler_f
        self.schedulers = [factory(optimizer) for optimizer in self.optimizers] if factory is not None else []

    def prepare(self, sample: Inputs, targets: tuple[Any, ...] | None, sends_back: bool, batches: int) -> Outputs:
        with torch.no_grad():
            return tuple(v.detach() for v in self._run(sample, None))

    def _run(self, inputs: Any, targets: tuple[Any, ...] | None) -> list[torch.Tensor]:
        value: Any = inputs
        if isinstance(value, tuple) and self.device.input_dtypes:
            value = tuple(v.to(d) for v, d in zip(value, self.device.input_dtypes, strict=True))
        for module in self.device.modules:
            assert isinstance(module, PyTorchModule)
            answer = module.forward(**value) if isinstance(value, dict) else module.forward(*value)
            value = tuple(leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor))
        outputs = list(value.values()) if isinstance(value, dict) else list(value)
        if targets is None or self.device.loss_module is None:
            return outputs
        assert isinstance(self.device.loss_module, PyTorchModule)
        loss = self.device.loss_module.forward(*outputs, *targets)
        return [leaf for leaf in pytree.tree_leaves(loss) if isinstance(leaf, torch.Tensor)]

    def forward(self, inputs: Inputs, targets: tuple[Any, ...] | None) -> Outputs:
        def leaf(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.detach().requires_grad_(value.is_floating_point())

        fresh_inputs = pytree.tree_map(leaf, inputs)
        with torch.enable_grad():
            outputs = self._run(fresh_inputs, targets)
        leaves = [v for v in pytree.tree_leaves(fresh_inputs) if isinstance(v, torch.Tensor)]
        self.waiting.append((leaves, outputs))
        return tuple(v.detach() for v in outputs)

    def evaluate(self, inputs: Inputs) -> Outputs:
        with torch.no_grad():
            return tuple(self._run(inputs, None))

    def backward(self, gradients: Gradients | None, zero_grad: bool) -> Gradients:
        if not self.waiting:
            raise PipelineError(f"device {self.device.name!r}: no forward pass waits for its backward pass")
        if zero_grad:
            for module in self.modules:
                module.zero_grad(set_to_none=True)
        leaves, outputs = self.waiting.popleft()
        seeds = [torch.ones_like(o) for o in outputs] if gradients is None else list(gradients)
        pairs = [
            (o, g.reshape(o.shape).to(o.dtype))
            for o, g in zip(outputs, seeds, strict=True)
            if o.requires_grad and g is not None
        ]
        if pairs:
            torch.autograd.backward(
                [o for o, _ in pairs], [g for _, g in pairs], retain_graph=self.device.retain_backward_graph
            )
        arrived = tuple(v.grad for v in leaves)
        if self.device.gradient_trace is not None:
            for part in (tuple(seeds), arrived):
                self.device.gradient_trace.put([None if g is None else Tensor.create_from_torch(g) for g in part])
        return arrived

    def optimize(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def schedule(self) -> None:
        for scheduler in self.schedulers:
            scheduler.step()

    def parameters(self) -> dict[str, torch.Tensor]:
        return {n: p.detach().clone() for n, p in self._named_weights()}

    def gradients(self) -> dict[str, torch.Tensor]:
        return {n: p.grad.detach().clone() for n, p in self._named_weights() if p.grad is not None}

    def _named_weights(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The weights of all modules by their names on the device."""
        modules = zip(self.modules, self.names, strict=True)
        return [(names[n], p) for module, names in modules for n, p in module.named_parameters()]

    def set_parameters(self, values: Mapping[str, torch.Tensor]) -> None:
        """The modules have them already: the host trains its modules in place."""
