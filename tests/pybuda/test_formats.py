"""Formats as PyBuda infers them, formats of single parameters, fallback of Float32, and what rounds by devtype."""

from __future__ import annotations

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.frontend.pybuda import Parameter, Tensor
from tbuda_lab.pybuda import op
from tbuda_lab.pybuda.enums import BackendDevice, BackendType
from tbuda_lab.pybuda.module import PyBudaModule, PyTorchModule
from tbuda_lab.pybuda.ttdevice import TTDevice

GRAYSKULL, WORMHOLE = BackendDevice.Grayskull, BackendDevice.Wormhole_B0
X = torch.randn(1, 32, 64, generator=torch.Generator().manual_seed(3))


class Product(PyBudaModule):
    def __init__(self, df: DataFormat | None = None) -> None:
        super().__init__("m")
        weights = torch.randn(64, 64, generator=torch.Generator().manual_seed(4))
        self.w = Parameter(weights, dev_data_format=df)

    def forward(self, x: Tensor) -> Tensor:
        return op.Matmul("mm", x, self.w)


def formats(device: TTDevice, x: torch.Tensor) -> dict[str, str]:
    netlist = device.compile_for_inputs((x,)).netlist
    matches = {name: queue.df.name for name, queue in netlist.queues.items()}
    return matches | {name: o.out_df.name for graph in netlist.graphs.values() for name, o in graph.ops.items()}


@pytest.mark.parametrize(
    ("dtype", "arch", "want"),
    [
        (torch.float16, GRAYSKULL, "Float16"),
        (torch.float16, WORMHOLE, "Float16"),
        (torch.bfloat16, WORMHOLE, "Float16_b"),
        (torch.float32, GRAYSKULL, "Float16_b"),
        (torch.float32, WORMHOLE, "Float32"),
    ],
)
def test_the_format_is_the_models(dtype: torch.dtype, arch: BackendDevice, want: str) -> None:
    device = TTDevice("t", module=PyTorchModule("m", torch.nn.Linear(64, 32).to(dtype)), arch=arch)
    assert set(formats(device, X.to(dtype)).values()) == {want}


def test_float32_falls_back_where_nothing_accumulates_it() -> None:
    module = Product()
    assert set(formats(TTDevice("t", module=module, fp32_fallback=DataFormat.Float16), X).values()) == {"Float16"}
    pybuda.set_configuration_options(default_df_override=DataFormat.Float32)
    assert set(formats(TTDevice("u", module=module), X).values()) == {"Float16_b"}


@pytest.mark.parametrize(
    ("requested", "arch", "got"),
    [
        ("Bfp8_b", GRAYSKULL, "Bfp8_b"),
        ("Bfp4", GRAYSKULL, "Bfp4_b"),
        ("Float32", GRAYSKULL, "Float16_b"),
        ("Bfp8", WORMHOLE, "Bfp8"),
    ],
)
def test_a_parameter_keeps_its_format(requested: str, arch: BackendDevice, got: str) -> None:
    device = TTDevice("t", module=Product(DataFormat[requested]), arch=arch)
    assert formats(device, X)["m.w"] == got
    (y,) = device.run_forward((X,))
    bound = 5.0 if got.startswith("Bfp4") else 0.7
    error = float((y - X @ device.modules[0].get_parameters()[0].value()).abs().max())
    assert error < bound and (got == "Float16_b" or error > 1e-3)


@pytest.mark.parametrize("df", ["Int8", "Lf8", "RawUInt32", "UInt16", "Invalid"])
def test_formats_that_nothing_is_calculated_in_are_refused_by_name(df: str) -> None:
    pybuda.set_configuration_options(default_df_override=DataFormat[df])
    with pytest.raises(InputError, match=f"default_df_override: {df} .*Float16_b"):
        TTDevice("t", module=Product()).compile_for_inputs((X,))


def test_fidelity_and_formats_change_numbers_by_devtype() -> None:
    module = Product()
    want = X @ module.w.value()
    errors = {}
    for devtype in (BackendType.Golden, BackendType.Model):
        for fidelity in (MathFidelity.LoFi, MathFidelity.HiFi4):
            pybuda.pybudaglobal.pybuda_reset()
            pybuda.set_configuration_options(math_fidelity=fidelity, default_df_override=DataFormat.Float16_b)
            (y,) = TTDevice("t", module=module, devtype=devtype).run_forward((X,))
            errors[devtype, fidelity] = float((y - want).square().mean())
    assert errors[BackendType.Golden, MathFidelity.LoFi] == errors[BackendType.Golden, MathFidelity.HiFi4]
    assert errors[BackendType.Model, MathFidelity.LoFi] > 2 * errors[BackendType.Model, MathFidelity.HiFi4]
    assert errors[BackendType.Model, MathFidelity.HiFi4] != errors[BackendType.Golden, MathFidelity.HiFi4]


def test_weights_stored_as_integers_are_refused_by_the_names_of_op_and_weight() -> None:
    class Product(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.weights = pybuda.Parameter(32, 32, dev_data_format=pybuda.DataFormat.Int8)

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return pybuda.op.Matmul("mm", x, self.weights)

    device = pybuda.TTDevice("t", module=Product("m"))
    with pytest.raises(UnsupportedOp, match=r"mm: it reads m\.weights as Int8.*Quantize"):
        device.compile_for_inputs((torch.rand(1, 32, 32),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_outputs_have_the_dtype_of_the_models(dtype: torch.dtype) -> None:
    """A CPUDevice that goes on from them has weights of that dtype: torch refuses to mix two."""
    torch.manual_seed(5)
    model, rest = (torch.nn.Linear(64, 32).to(dtype), torch.nn.Linear(32, 32).to(dtype))
    TTDevice("t", module=PyTorchModule("m", model)).push_to_inputs(X.to(dtype))
    pybuda.CPUDevice("c", module=PyTorchModule("rest", rest))
    y = pybuda.run_inference().get()[0].value()
    want = rest(model(X.to(dtype)))
    assert y.dtype == want.dtype == dtype
    assert torch.allclose(y.float(), want.float(), atol=0.03)
    (alone,) = TTDevice("u", module=PyTorchModule("n", torch.nn.Linear(64, 32))).run_forward((X,))
    assert alone.dtype == torch.float32


def test_gradients_come_back_to_outputs_of_float16() -> None:
    torch.manual_seed(6)
    model, rest = torch.nn.Linear(64, 32).half(), torch.nn.Linear(32, 32).half()
    target = torch.randn(1, 32, 32).half()
    loss = torch.nn.functional.l1_loss(rest(model(X.half())), target)
    (want,) = torch.autograd.grad(loss, model.weight)
    device = TTDevice("t", module=PyTorchModule("m", model), optimizer=pybuda.optimizers.SGD(0.1, device_params=True))
    host = pybuda.CPUDevice("c", module=PyTorchModule("rest", rest))
    host.place_loss_module(PyTorchModule("loss", torch.nn.L1Loss()))
    pybuda.initialize_pipeline(True, sample_inputs=(X.half(),), sample_targets=(target,))
    device.push_to_inputs(X.half())
    host.push_to_target_inputs(target)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    got = pybuda.get_parameter_gradients(device)[0]["weight"].value().float()
    assert torch.corrcoef(torch.stack((got.flatten(), want.float().flatten())))[0, 1] > 0.999
