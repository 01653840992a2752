"""verify_module and pybuda_compile judge against torch; a wrong answer fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.pybuda.judging import compare_tensor_to_golden
from tbuda_lab.pybuda.trainers import TTTraining
from tbuda_lab.pybuda.verify import TestKind, VerifyConfig, verify_module, verify_module_pipeline


class Add(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(1, 1, 64, 64, requires_grad=True)

    def forward(self, a: pybuda.Tensor, b: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("mm", pybuda.op.Add("add", a, b), self.weights)


@pytest.mark.parametrize("arch", list(pybuda.BackendDevice)[:3])
def test_verify_module(arch: pybuda.BackendDevice) -> None:
    devices = verify_module(
        Add("add"),
        [(1, 1, 32, 64), (1, 1, 32, 64)],
        VerifyConfig(test_kind=TestKind.INFERENCE, arch=arch, devtype=pybuda.BackendType.Golden),
        input_params=[[{}]],
        params_centered_on_zero=True,
        inputs_centered_on_zero=True,
        scale_params=2.0,
    )
    assert [d.arch for d in devices] == [arch]


def test_verify_of_a_torch_module_and_given_inputs() -> None:
    module = pybuda.PyTorchModule("net", nn.Sequential(nn.Linear(64, 32), nn.Tanh()))
    verify_module(module, ([1, 32, 64],), verify_cfg=VerifyConfig(), inputs=[(torch.randn(1, 32, 64))])


def test_verify_of_a_pipeline() -> None:
    one = pybuda.PyTorchModule("one", nn.Linear(64, 64))
    two = pybuda.PyTorchModule("two", nn.Linear(64, 64))
    three = pybuda.PyTorchModule("three", nn.Linear(64, 64))
    config = VerifyConfig(microbatch_count=2)
    devices = verify_module_pipeline(
        [one, two, three], [(1, 32, 64)], config, device_types=["CPUDevice", "TTDevice", "-"]
    )
    assert [len(d.modules) for d in devices] == [1, 2]


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tbuda_lab.pybuda.compiled_device.Runner.run",
        lambda self, samples: [[torch.randn(1, 1, 32, 64)] for _ in samples],
    )
    with pytest.raises(AssertionError, match="mismatch"):
        verify_module(Add("add"), [(1, 1, 32, 64), (1, 1, 32, 64)], VerifyConfig())
    verify_module(Add("other"), [(1, 1, 32, 64), (1, 1, 32, 64)], VerifyConfig.disabled())


def test_compile_only() -> None:
    ran = verify_module(
        Add("add"), [(1, 1, 32, 64), (1, 1, 32, 64)], VerifyConfig(devtype=pybuda.BackendType.NoBackend)
    )
    assert ran[0].get_compiled_results().netlist_filename
    with pytest.raises(RuntimeError, match="only compiles"):
        ran[0].run_forward((torch.rand(1, 1, 32, 64),) * 2)


TRAINING = {"test_kind": TestKind.TRAINING, "arch": pybuda.BackendDevice.Wormhole_B0}


def _float32() -> None:
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)


@pytest.mark.parametrize("kind", ["sgd", "adam", "lars"])
def test_training_is_verified_step_by_step(kind: str) -> None:
    """Two steps of two microbatches each: losses, gradients by inputs and weights, updated weights."""
    _float32()
    cfg = VerifyConfig(
        **TRAINING,
        steps=2,
        microbatch_count=2,
        pcc=0.999,
        relative_atol=0.01,
        optimizer={"type": kind, "params": {"learning_rate": 0.05}},
    )
    devices = verify_module(Add("add"), [(1, 1, 32, 64)] * 2, cfg, params_centered_on_zero=True)
    assert [d.name for d in devices] == ["tt0", "cpu_loss"]
    assert devices[0].trainer is not None


def test_training_through_two_devices_a_torch_module_and_a_loss_of_its_own() -> None:
    _float32()
    torch.manual_seed(0)
    modules = [pybuda.PyTorchModule("first", nn.Linear(64, 32)), pybuda.PyTorchModule("second", nn.Linear(32, 32))]
    cfg = VerifyConfig(**TRAINING, accumulation_steps=2, pcc=0.999, relative_atol=0.01, verify_each_buda_pass=True)
    verify_module_pipeline(
        modules,
        [(1, 1, 32, 64)],
        cfg,
        device_types=["TTDevice", "TTDevice"],
        loss_module=pybuda.PyTorchModule("loss", nn.MSELoss()),
    )


def test_wrong_gradients_and_updates_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tbuda_lab.core.trainer import Trainer

    _float32()
    cfg = VerifyConfig(**TRAINING, optimizer={"type": "sgd", "params": {"learning_rate": 0.05}})
    shapes = [(1, 1, 32, 64)] * 2
    real = Trainer.gradients
    monkeypatch.setattr(Trainer, "gradients", lambda self: {n: -g for n, g in real(self).items()})
    with pytest.raises(AssertionError, match=r"gradient by add\.weights"):
        verify_module(Add("add"), shapes, cfg, params_centered_on_zero=True)
    verify_module(
        Add("add"),
        shapes,
        VerifyConfig(**TRAINING, waive_gradient_errors={"weights"}, optimizer=None),
        params_centered_on_zero=True,
    )
    monkeypatch.setattr(Trainer, "gradients", real)
    monkeypatch.setattr(Trainer, "optimize", lambda self: None)
    cfg = VerifyConfig(**TRAINING, pcc=0.9999, relative_atol=1e-4)
    with pytest.raises(AssertionError, match=r"weight add\.weights after the step"):
        verify_module(Add("add"), shapes, cfg, params_centered_on_zero=True)


def test_pybuda_compile() -> None:
    device = pybuda.TTDevice("tt0", module=Add("add"))
    inputs = [pybuda.Tensor.create_from_torch(torch.rand(1, 1, 32, 64)) for _ in range(2)]
    results = pybuda.pybuda_compile(
        device, "add", *inputs, compiler_cfg=pybuda.CompilerConfig(enable_training=False), verify_cfg=VerifyConfig()
    )
    torch.testing.assert_close(results.outputs[0].value(), results.golden_outputs[0], rtol=0.05, atol=0.05)
    assert not torch.equal(results.outputs[0].value(), results.golden_outputs[0])


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        (lambda x: x, True),
        (lambda x: x + 0.01 * x.abs().max(), True),
        (lambda x: x * 3, True),  # correlation alone decides
        (lambda x: x + 10 * torch.randn_like(x), False),
        (lambda x: x[..., :16], False),
        (lambda x: -x, False),
    ],
)
def test_comparison(change, passes: bool) -> None:
    torch.manual_seed(0)
    golden = torch.randn(1, 1, 32, 32)
    assert compare_tensor_to_golden("t", golden, change(golden)) is passes


def test_comparison_of_padding_truth_values_and_callbacks() -> None:
    golden = torch.randn(1, 20, 30)
    padded = torch.nn.functional.pad(golden, (0, 2, 0, 12), value=9.0)
    assert compare_tensor_to_golden("t", golden, padded, is_buda=True)
    assert not compare_tensor_to_golden("t", golden, padded)
    truth = torch.tensor([True, False])
    assert compare_tensor_to_golden("t", truth, truth) and not compare_tensor_to_golden("t", truth, ~truth)
    config = VerifyConfig(golden_compare_callback=lambda a, b: False, pcc=1.1)
    assert not compare_tensor_to_golden("t", golden, golden, verify_cfg=config)


def test_grayskull_cannot_fall_back_to_float32() -> None:
    with pytest.raises(RuntimeError, match="Grayskull"):
        VerifyConfig(fp32_fallback=pybuda.DataFormat.Float32)
    VerifyConfig(fp32_fallback=pybuda.DataFormat.Float32, arch=pybuda.BackendDevice.Wormhole_B0)


def test_batch_norm_in_training_is_judged_by_the_statistics_of_its_input() -> None:
    layer = nn.BatchNorm2d(4)
    verify_module(pybuda.PyTorchModule("m", layer), [(1, 4, 8, 8)], VerifyConfig(test_kind=TestKind.TRAINING))
    assert torch.equal(layer.running_mean, torch.zeros(4))


def test_running_statistics_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    right = TTTraining.parameters

    def wrong(self: TTTraining) -> dict[str, torch.Tensor]:
        return {n: v * (not n.endswith("running_mean")) for n, v in right(self).items()}

    cfg = VerifyConfig(test_kind=TestKind.TRAINING, steps=2)
    module = pybuda.PyTorchModule("m", nn.BatchNorm2d(4))
    verify_module(module, [(1, 4, 8, 8)], cfg)
    pybuda.pybuda_reset()
    monkeypatch.setattr(TTTraining, "parameters", wrong)
    with pytest.raises(AssertionError, match="running_mean"):
        verify_module(pybuda.PyTorchModule("m", nn.BatchNorm2d(4)), [(1, 4, 8, 8)], cfg)


def test_inputs_of_another_float_type_than_the_weights() -> None:
    class Product(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.weights = pybuda.Parameter(32, 32)

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return pybuda.op.Matmul("mm", x, self.weights)

    verify_module(Product("m"), [(1, 32, 32)], VerifyConfig(), input_params=[{"data_format": torch.bfloat16}])


def test_verify_stops_at_the_first_stage() -> None:
    pybuda.config._get_global_compiler_config().compile_depth = pybuda.CompileDepth.INIT_COMPILE
    verify_module(pybuda.PyTorchModule("m", nn.Linear(32, 32)), [(1, 32, 32)], VerifyConfig())


def test_run_only_needs_something_compiled() -> None:
    device = pybuda.TTDevice(
        "t", device_mode=pybuda.DeviceMode.RunOnly, module=pybuda.PyTorchModule("m", nn.Linear(32, 32))
    )
    device.push_to_inputs(torch.rand(1, 32, 32))
    with pytest.raises(RuntimeError, match="RunOnly"):
        pybuda.run_inference()
