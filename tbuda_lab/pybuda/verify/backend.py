"""`verify_module`: random inputs through a device, judged against torch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.pybuda import Module, Parameter, PyBudaModule, PyTorchModule, to_torch
from tbuda_lab.core.runner import Runner
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.context import CONTEXT
from tbuda_lab.pybuda.cpudevice import CPUDevice
from tbuda_lab.pybuda.enums import BackendDevice, BackendType, CompileDepth, DeviceMode, TestKind
from tbuda_lab.pybuda.judging import judge_ops, judge_outputs, judge_passes, warn_fields
from tbuda_lab.pybuda.stage import Stage
from tbuda_lab.pybuda.ttdevice import TTDevice
from tbuda_lab.pybuda.verify.training import place_loss, recomputing, set_optimizers, verify_training


@dataclasses.dataclass
class VerifyConfig:
    """How a run is judged; fields and defaults as PyBuda's. `judging.NO_EFFECT`: those that change nothing here.

    pcc and relative_atol (or rtol, atol: a number or one per dtype): both must hold. golden_ignore_df_precision: False
    gives the machine's rounding. verify_each_buda_pass: the graph after every pass is compared, and with
    `intermediates` every op; verify_all asks for all of it. epoch_breaks: ops that open an epoch.
    dump_tensors_path: a folder for golden and calculated outputs.
    """

    graph_name: str = "graph"
    enabled: bool = True
    intermediates: bool = True
    rtol: float | dict[torch.dtype, float] = dataclasses.field(default_factory=dict)
    atol: float | dict[torch.dtype, float] = dataclasses.field(default_factory=dict)
    relative_atol: float | None = 0.1
    pcc: float | None = None
    dump_tensors_path: str = ""
    run_golden: bool = False
    run_net2pipe: bool = False
    golden_ignore_df_precision: bool = True
    chip_ids: list[int] | None = None
    num_chips: int | None = None
    verify_each_buda_pass: bool = False
    golden_compare_callback: Any = None
    verify_tvm_compile: bool = False
    verify_pipeline_result_vs_framework: bool = False
    verify_pybuda_codegen_vs_framework: bool = False
    verify_all: bool = False
    verify_last: bool = True
    verify_post_autograd_passes: bool = False
    verify_post_placer: bool = False
    waive_gradient_errors: set[str] = dataclasses.field(default_factory=set)
    sequential: bool = True
    test_kind: TestKind = TestKind.INFERENCE
    devtype: BackendType = BackendType.Golden
    devmode: DeviceMode = DeviceMode.CompileAndRun
    arch: BackendDevice = BackendDevice.Grayskull
    scale_loss: float = 50.0
    optimizer: dict[str, Any] | None = dataclasses.field(
        default_factory=lambda: {"type": "sgd", "params": {"learning_rate": 50.0}}
    )
    scheduler: dict[str, Any] | None = None
    epochs: int = 1
    steps: int = 1
    accumulation_steps: int = 1
    microbatch_size: int = 1
    microbatch_count: int = 1
    epoch_breaks: list[str] = dataclasses.field(default_factory=list)
    fp32_fallback: DataFormat = DataFormat.Float16_b
    skip_shutdown: bool = False
    tti_path: str | None = None
    checkpoint_interval: int = 1
    enable_input_gradient_checking: bool = True
    enable_parameter_gradient_checking: bool = True

    def __post_init__(self) -> None:
        if self.pcc is None:
            self.pcc = 0.99
        if "PYBUDA_VERIFY_RESULTS_OFF_BY_DEFAULT" in os.environ:
            self.enabled = False
        if os.environ.get("PYBUDA_FORCE_VERIFY_ALL") == "1":
            self.verify_all = True
        if "TT_BACKEND_GOLDEN_QUANTIZE" in os.environ:
            self.golden_ignore_df_precision = False
        if self.arch is BackendDevice.Grayskull and self.fp32_fallback is DataFormat.Float32:
            raise PipelineError("Grayskull cannot accumulate in Float32; choose another fp32_fallback or arch")

    @classmethod
    def disabled(cls) -> VerifyConfig:
        """A configuration that judges nothing."""
        return cls(enabled=False, intermediates=False, verify_last=False, scale_loss=1.0)

    def total_number_of_inputs(self) -> int:
        return self.epochs * self.steps * self.accumulation_steps * self.microbatch_count


InputShapes = Sequence[Sequence[int]]


class NebulaGalaxy:
    """The chips of a Galaxy of 32 behind a Nebula, by number, as scripts give them to `VerifyConfig(chip_ids=)`."""

    chip_ids: ClassVar[list[int]] = list(range(33))


def verify_module(
    module: Module,
    input_shapes: InputShapes,
    verify_cfg: VerifyConfig,
    input_params: Sequence[Any] = (),
    device_type: str = "TTDevice",
    params_centered_on_zero: bool = False,
    scale_params: float = 1.0,
    inputs: Sequence[Any] | None = None,
    loss_module: Any = None,
    uniform_inputs: bool = False,
    inputs_centered_on_zero: bool = False,
) -> list[Stage]:
    """Run one module on a device and raise `AssertionError` unless every output matches torch (or the graph)."""
    return verify_module_pipeline(
        [module],
        input_shapes,
        verify_cfg,
        input_params,
        [device_type],
        params_centered_on_zero,
        scale_params,
        inputs,
        loss_module,
        uniform_inputs,
        inputs_centered_on_zero,
    )


def verify_module_pipeline(
    modules: Sequence[Module],
    input_shapes: InputShapes,
    verify_cfg: VerifyConfig,
    input_params: Sequence[Any] = (),
    device_types: Sequence[str] = ("TTDevice",),
    params_centered_on_zero: bool = False,
    scale_params: float = 1.0,
    inputs: Sequence[Any] | None = None,
    loss_module: Any = None,
    uniform_inputs: bool = False,
    inputs_centered_on_zero: bool = False,
) -> list[Stage]:
    """Run modules on a pipeline of devices ("TTDevice", "CPUDevice"; "-" is the device before) and judge the outputs.

    Inputs are random: |normal(0.5, 0.1)| + 1e-5, normal(0, 0.1) when centred, or uniform; integers below 25000.
    Parameters without a value are filled alike and divided by `scale_params`. The reference is torch for PyTorch
    modules, and the traced graph evaluated op by op for PyBuda modules. A compile depth below FULL, NoBackend or
    CompileOnly compile and judge nothing. Returns the devices.

    A training test_kind trains (see `verify_training`): losses, gradients by inputs and weights and updated weights are
    judged, each step from the weights that the step before was judged to leave.
    """
    training = verify_cfg.test_kind.is_training()
    warn_fields(verify_cfg)
    for module in modules:
        _fill(module, params_centered_on_zero, scale_params)
    CONTEXT.devices.clear()
    devices = _devices(modules, device_types, verify_cfg)
    if verify_cfg.epoch_breaks:
        config.set_epoch_break(list(verify_cfg.epoch_breaks))
    if not verify_cfg.golden_ignore_df_precision:
        for device in devices:
            if isinstance(device, CompiledDevice):
                device.numerics = "device"
    generator = torch.Generator().manual_seed(0)
    total = len(inputs) if inputs is not None else verify_cfg.total_number_of_inputs()
    samples = [
        _as_tuple(inputs[i])
        if inputs is not None
        else _random(input_shapes, input_params, uniform_inputs, inputs_centered_on_zero, generator)
        for i in range(total)
    ]
    if training:
        recomputing(verify_cfg)
        devices = place_loss(devices, loss_module, verify_cfg)
        set_optimizers(devices, verify_cfg)
        if verify_cfg.tti_path is not None:
            raise not_supported("tti_path with a training test_kind", "compile_to_image(training=True) and load_image")
        if not _only_compiles(verify_cfg):
            verify_training(devices, samples, _compares_gradients(samples[0], input_params), verify_cfg)
            if verify_cfg.enabled and (verify_cfg.verify_all or verify_cfg.verify_each_buda_pass):
                _judge_inside(devices, samples[0], verify_cfg)
            return devices
        config._get_global_compiler_config().enable_training = True
        devices = devices if loss_module is not None else devices[:-1]
    elif loss_module is not None:
        raise not_supported(
            "verify_module with a loss module and an inference test_kind",
            "test_kind=TestKind.TRAINING trains with the loss",
        )
    if _only_compiles(verify_cfg):
        value: Any = samples[0]
        for device in devices:
            value = device.prepare(value)
        return devices
    if verify_cfg.tti_path is not None:
        devices = _by_image(devices, samples[0], verify_cfg.tti_path)
    for number, sample in enumerate(samples):
        value = sample
        for device in devices:
            value = device.run_forward(value)
        if verify_cfg.enabled and (verify_cfg.verify_last or verify_cfg.verify_all):
            judge_outputs(modules, sample, value, number, verify_cfg)
    if verify_cfg.enabled and (verify_cfg.verify_all or verify_cfg.verify_each_buda_pass):
        _judge_inside(devices, samples[0], verify_cfg)
    return devices


def _judge_inside(devices: Sequence[Stage], sample: Any, cfg: VerifyConfig) -> None:
    """Every pass, and with `intermediates` every op, of each TTDevice."""
    value = sample
    for device in devices:
        if isinstance(device, CompiledDevice) and isinstance(device.result, CompileResult):
            judge_passes(device.result.graph, device.result.options, _all_inputs(device.result.graph, value), cfg)
            if device.result.options.training is not None:
                value = tuple(torch.zeros(n.shape) for n in device.result.graph.outputs)
                continue
            if cfg.intermediates or cfg.verify_all:
                judge_ops(Runner(device.result, device.numerics), value, cfg)
        value = device.run_forward(value)


def _all_inputs(graph: Any, value: Any) -> Any:
    """Inputs of a model, and ones for the targets of a loss behind it."""
    goals = tuple(torch.ones(n.shape) for n in graph.inputs if n.attrs.get("target"))
    return (*value, *goals) if goals else value


def _compares_gradients(sample: Any, params: Sequence[Any]) -> list[bool]:
    """By input tensor whether its gradient is judged: floats, unless `input_params` say that it needs none."""
    leaves = [v for v in torch.utils._pytree.tree_leaves(sample) if isinstance(v, torch.Tensor)]
    return [
        v.is_floating_point() and bool(_parameters_of(params, k).get("requires_grad", True))
        for k, v in enumerate(leaves)
    ]


def _by_image(devices: Sequence[Stage], sample: Any, path: str) -> list[Stage]:
    """The devices with the one TTDevice written to an image and loaded from it."""
    if sum(isinstance(d, TTDevice) for d in devices) != 1:
        raise not_supported("tti_path with several TTDevices", "an image holds one device: verify them one by one")
    by_image: list[Stage] = []
    value = sample
    for device in devices:
        if isinstance(device, TTDevice):
            device.compile_to_image(img_path=path, sample_inputs=value)
            by_image.append(TTDevice.load_image(img_path=path))
        else:
            by_image.append(device)
        value = device.prepare(value)
    return by_image


def _only_compiles(cfg: VerifyConfig) -> bool:
    depth = config._get_global_compiler_config().compile_depth
    return depth < CompileDepth.FULL or cfg.devtype is BackendType.NoBackend or cfg.devmode is DeviceMode.CompileOnly


def _devices(modules: Sequence[Module], types: Sequence[str], cfg: VerifyConfig) -> list[Stage]:
    devices: list[Stage] = []
    for module, kind in zip(modules, types, strict=True):
        if kind == "-":
            devices[-1].place_module(module)
        elif kind == "CPUDevice":
            devices.append(CPUDevice(f"cpu{len(devices)}", module=module))
        elif kind == "TTDevice":
            devices.append(
                TTDevice(
                    f"tt{len(devices)}",
                    chip_ids=cfg.chip_ids,
                    num_chips=None if cfg.chip_ids else cfg.num_chips,
                    arch=cfg.arch,
                    devtype=cfg.devtype,
                    device_mode=cfg.devmode,
                    fp32_fallback=cfg.fp32_fallback,
                    module=module,
                )
            )
        else:
            raise not_supported(f"device type {kind!r}", "TTDevice, CPUDevice and - are known")
    return devices


def _as_tuple(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {k: to_torch(v) for k, v in sample.items()}
    return tuple(to_torch(t) for t in (sample if isinstance(sample, tuple | list) else (sample,)))


def _parameters_of(params: Sequence[Any], position: int) -> dict[str, Any]:
    """input_params of one input: a dict, or a dict inside a list, or nothing."""
    flat = [p for entry in params for p in (entry if isinstance(entry, list | tuple) else [entry])]
    return dict(flat[position]) if position < len(flat) else {}


def _random(
    shapes: InputShapes, params: Sequence[Any], uniform: bool, centred: bool, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    random = []
    for position, shape in enumerate(shapes):
        dtype = _parameters_of(params, position).get("data_format", torch.float32)
        size = tuple(int(n) for n in shape)
        if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            random.append(torch.randint(0, 25000, size, generator=generator).to(dtype))
        elif uniform:
            random.append((torch.rand(size, generator=generator) - (0.5 if centred else 0.0)).to(dtype))
        else:
            random.append(_normal(size, centred, generator).to(dtype))
    return tuple(random)


def _normal(size: tuple[int, ...], centred: bool, generator: torch.Generator) -> torch.Tensor:
    noise = torch.randn(size, generator=generator) * 0.1
    return noise if centred else (noise + 0.5).abs() + 1e-5


def _fill(module: Module, centred: bool, scale: float) -> None:
    if isinstance(module, PyTorchModule) or not isinstance(module, PyBudaModule):
        return
    for number, parameter in enumerate(module.get_parameters()):
        if isinstance(parameter, Parameter) and not parameter.has_value():
            generator = torch.Generator().manual_seed(number)
            parameter.set_value(_normal(tuple(parameter.shape), centred, generator) / scale)
