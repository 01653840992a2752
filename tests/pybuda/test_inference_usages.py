"""Ways of running inference that scripts rely on, beside the plain ones: intermediates, queues between devices, device
files, images in `verify_module`."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError
from tbuda_lab.pybuda.ttdevice import get_device_config
from tbuda_lab.pybuda.verify import VerifyConfig, verify_module, verify_module_pipeline
from tests.e2e.references import pcc


class Chain(pybuda.PyBudaModule):
    """A matmul, and element-wise ops that would be fused."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        generator = torch.Generator().manual_seed(len(name))
        self.weights = pybuda.Parameter(torch.randn(64, 64, generator=generator) / 8)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        product = pybuda.op.Matmul(f"{self.get_name()}_mm", x, self.weights)
        return pybuda.op.Sqrt(f"{self.get_name()}_sqrt", pybuda.op.Abs(f"{self.get_name()}_abs", product))


X = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(3))


def test_intermediates_are_those_of_torch_one_list_per_input() -> None:
    pybuda.set_configuration_options(op_intermediates_to_save=["a_abs", "a_mm"])
    module = Chain("a")
    tt0 = pybuda.TTDevice("tt0", module=module)
    for scale in (1.0, -2.0):
        tt0.push_to_inputs(scale * X)
    out = pybuda.run_inference(input_count=2)
    retained = pybuda.get_intermediates_queue()
    for scale in (1.0, -2.0):
        product = scale * X @ module.weights.value()
        absolute, matmul = (t.value() for t in retained.get_nowait())
        assert absolute.shape == matmul.shape == (2, 1, 40, 64)
        assert pcc(product, matmul[:, 0]) > 0.999 and pcc(product.abs(), absolute[:, 0]) > 0.999
        assert pcc(product.abs().sqrt(), out.get()[0].value()) > 0.999
    assert retained.empty()


def test_an_intermediate_that_is_none_is_named() -> None:
    pybuda.set_configuration_options(op_intermediates_to_save=["a_ms"])
    pybuda.TTDevice("tt0", module=Chain("a")).push_to_inputs(X)
    with pytest.raises(RuntimeError, match=r"no op 'a_ms'.*a_mm"):
        pybuda.run_inference()


def test_queues_between_devices_get_what_goes_through_the_host() -> None:
    first, second, third = Chain("a"), Chain("bb"), Chain("ccc")
    tt0 = pybuda.TTDevice("tt0", module=first)
    pybuda.TTDevice("tt1", module=second)
    pybuda.TTDevice("tt2", module=third)
    between = [queue.Queue(), queue.Queue()]
    out = pybuda.initialize_pipeline(training=False, sample_inputs=(X,), d2d_fwd_queues=between)
    tt0.push_to_inputs(X)
    pybuda.run_forward()
    value = X
    for module, got in zip((first, second, third), (*between, out), strict=True):
        value = (value @ module.weights.value()).abs().sqrt()
        assert pcc(value, got.get_nowait()[0].value()) > 0.99


def test_rows_of_each_chip() -> None:
    pybuda.set_configuration_options(harvested_rows=[[1], [2, 3]])
    config = get_device_config(pybuda.BackendDevice.Wormhole_B0, [0, 1])
    assert config.get_harvested_cfg() == [2, 12] and config.grid_size.r == 8
    pybuda.set_configuration_options(harvested_rows=[[4]])
    assert get_device_config(pybuda.BackendDevice.Wormhole_B0, [0, 1]).get_harvested_cfg() == [16, 16]
    pybuda.set_configuration_options(harvested_rows=[[1], [2], [3]])
    with pytest.raises(InputError, match="3 chips, the device has 2"):
        get_device_config(pybuda.BackendDevice.Wormhole_B0, [0, 1])


def test_runtime_parameters_and_a_cluster_from_files(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(
        "system-device0-harvesting_mask: 2048\nsystem-device1-harvesting_mask: 4\nsystem-number_of_devices: 2\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        "chips: {0: [0, 0, 0, 0], 1: [1, 0, 0, 0]}\nchips_with_mmio: [1]\n"
        "ethernet_connections:\n  - [{chip: 0, chan: 8}, {chip: 1, chan: 0}]\n"
    )
    config = get_device_config(
        pybuda.BackendDevice.Wormhole_B0,
        [0, 1],
        str(tmp_path / "cluster.yaml"),
        str(tmp_path / "params.yaml"),
        False,
        pybuda.BackendType.Silicon,
    )
    assert config.get_harvested_cfg() == [2048, 4] and config.grid_size == (9, 8)
    assert config.spec.links == ((0, 1, 1),) and config.spec.mmio_chips == (1,)
    pybuda.set_configuration_options(
        backend_cluster_descriptor_path=str(tmp_path / "cluster.yaml"),
        backend_runtime_params_path=str(tmp_path / "params.yaml"),
    )
    module = Chain("a")
    tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, chip_ids=[0, 1], module=module)
    assert tt0.get_device_config().get_harvested_cfg() == [2048, 4]
    tt0.push_to_inputs(X)
    assert pcc((X @ module.weights.value()).abs().sqrt(), pybuda.run_inference().get()[0].value()) > 0.999
    (tmp_path / "params.yaml").write_text("system-device0-harvesting_mask: many\n")
    with pytest.raises(InputError, match="mask of rows"):
        get_device_config(pybuda.BackendDevice.Wormhole_B0, [0], "", str(tmp_path / "params.yaml"))


def test_verify_through_an_image(tmp_path: Path) -> None:
    path = tmp_path / "images" / "v.tti"
    (device,) = verify_module(Chain("a"), [(1, 32, 64)], VerifyConfig(tti_path=str(path)))
    assert path.exists() and type(device).__name__ == "LoadedDevice"
    pybuda.pybuda_reset()
    with pytest.raises(NotImplementedError, match="one device"):
        verify_module_pipeline(
            [Chain("a"), Chain("b")],
            [(1, 32, 64)],
            VerifyConfig(tti_path=str(path)),
            device_types=["TTDevice", "TTDevice"],
        )


def test_what_a_compile_says_of_itself() -> None:
    module = Chain("a")
    result = pybuda.pybuda_compile(pybuda.TTDevice("tt0", module=module), "g", X)
    assert set(result.pass_specific_output_kwargs) == {"placer_solution", "consteval_trace", "output_host_tms"}
    product = X[:1] @ module.weights.value()
    assert torch.allclose(result.golden_intermediates["a_mm"].value(), product, atol=1e-6)
    assert torch.allclose(result.golden_intermediates["a_abs"].value(), product.abs(), atol=1e-6)


def test_a_compile_for_training_has_a_backward_program_and_the_same_outputs() -> None:
    module = Chain("a")
    result = pybuda.pybuda_compile(
        pybuda.TTDevice("tt", module=module), "g", X, compiler_cfg=pybuda.CompilerConfig(enable_training=True)
    )
    assert [p.name for p in result.result.netlist.programs] == ["run_fwd_0", "run_bwd_0"]
    assert pcc((X @ module.weights.value()).abs().sqrt(), result.outputs[0].value()) > 0.999


def test_queues_of_gradients_are_refused_without_training() -> None:
    pybuda.TTDevice("tt", module=Chain("a"))
    with pytest.raises(RuntimeError, match="d2d_bwd_queues belong to training=True"):
        pybuda.initialize_pipeline(training=False, sample_inputs=(X,), d2d_bwd_queues=[queue.Queue()])
