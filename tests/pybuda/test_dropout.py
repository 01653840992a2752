"""Dropout in training on a device: masks that the host draws, the same in the forward and the backward pass."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import NotSupported


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    pybuda.pybuda_reset()
    yield
    pybuda.pybuda_reset()


class Drops(nn.Module):
    """A dropout module behind an op that writes in place, and a dropout by function."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 64), nn.Linear(64, 32)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.last(self.drop(self.act(self.first(x))))
        return nn.functional.dropout(y, 0.25, training=self.training)


class Around(nn.Module):
    """Reads what a dropout reads, and what it gives. celu is an op that torch takes apart."""

    def __init__(self, drop: nn.Module) -> None:
        super().__init__()
        self.conv, self.drop = nn.Conv1d(3, 4, 3, padding=1), drop

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        dropped = self.drop(y)
        return y + 2 * nn.functional.celu(dropped)


def device_for(model: nn.Module, sample: torch.Tensor, target: torch.Tensor) -> pybuda.TTDevice:
    """In Float32, with the switch on and a loss on the device."""
    pybuda.config._get_global_compiler_config().enable_tvm_dropout = True
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("net", model), optimizer=pybuda.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    pybuda.initialize_pipeline(training=True, sample_inputs=(sample,), sample_targets=(target,))
    return device


def step(device: pybuda.TTDevice, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Gradients by parameter of one input."""
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    return {name: value.value() for name, value in pybuda.get_parameter_gradients(device)[0].items()}


def of_torch(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_near(have: torch.Tensor, want: torch.Tensor) -> None:
    """Within what products in Tf32 round: 2 % of the norm. Another mask is off by more than half of it."""
    assert float((have - want).norm()) < 0.02 * float(want.norm())


@pytest.mark.parametrize(
    ("make", "shape", "answer"),
    [
        (Drops, (4, 32), (4, 32)),
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout2d(0.5)), (2, 3, 10, 10), (2, 8, 8, 8)),
        (
            lambda: nn.Sequential(nn.Flatten(0, 1), nn.Dropout(0.5), nn.Linear(16, 8), nn.Unflatten(0, (-1, 3))),
            (2, 3, 16),
            (2, 3, 8),
        ),
        (lambda: Around(nn.Dropout(0.5)), (2, 3, 16), (2, 4, 16)),
        (lambda: Around(nn.Dropout1d(0.5)), (2, 3, 16), (2, 4, 16)),
        (lambda: Around(nn.Dropout(0.5, inplace=True)), (2, 3, 16), (2, 4, 16)),
        (lambda: Around(nn.Dropout1d(0.5, inplace=True)), (2, 3, 16), (2, 4, 16)),
    ],
    ids=[
        "module and function",
        "whole channels",
        "dim 0 is no microbatch",
        "residual",
        "residual of channels",
        "in place",
        "channels in place",
    ],
)
def test_gradients_are_those_of_torch_with_the_same_seed(
    make: object, shape: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    """Forward and backward see one mask; each element of a microbatch and each step has its own."""
    torch.manual_seed(0)
    model = make().train()  # type: ignore[operator]
    reference = copy.deepcopy(model)
    x, y = torch.randn(shape), torch.randn(answer)
    device = device_for(model, x, y)
    steps = []
    for seed in (7, 8):
        torch.manual_seed(seed)
        have = step(device, x, y)
        torch.manual_seed(seed)
        want = of_torch(reference, x, y)
        assert have.keys() == want.keys()
        for name, value in want.items():
            assert_near(have[name].reshape(value.shape), value)
        steps.append(want)
    assert any(not torch.allclose(steps[0][name], steps[1][name], atol=1e-3) for name in steps[0])


def test_only_layers_in_training_mode_drop_and_inference_never_does() -> None:
    torch.manual_seed(1)
    model = Drops().train()
    model.drop.eval()
    reference = copy.deepcopy(model)
    x, y = torch.randn(1, 32), torch.randn(1, 32)
    device = device_for(model, x, y)
    torch.manual_seed(3)
    have = step(device, x, y)
    torch.manual_seed(3)
    want = of_torch(reference, x, y)
    assert_near(have["first.weight"], want["first.weight"])
    pybuda.pybuda_reset()
    pybuda.config._get_global_compiler_config().enable_tvm_dropout = True
    answer = pybuda.PyTorchModule("net", reference.train()).run(x)[0].value()
    assert_near(answer, reference.eval()(x).detach())


def test_an_image_trains_with_dropouts(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = Drops().train()
    reference = copy.deepcopy(model)
    x, y = torch.randn(2, 32), torch.randn(2, 32)
    device_for(model, x, y).compile_to_image(str(tmp_path / "net.tti"), training=True)
    pybuda.pybuda_reset()
    image = pybuda.TTDeviceImage.load_from_disk(str(tmp_path / "net.tti"))
    device = pybuda.TTDevice.load_image(img=image)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(y,))
    torch.manual_seed(5)
    have = step(device, x, y)
    torch.manual_seed(5)
    want = of_torch(reference, x, y)
    assert_near(have["first.weight"], want["first.weight"])


def test_random_masks_cannot_be_verified() -> None:
    pybuda.config._get_global_compiler_config().enable_tvm_dropout = True
    with pytest.raises(NotSupported, match="masks are random"):
        pybuda.verify.verify_module(
            pybuda.PyTorchModule("net", Drops().train()),
            [(1, 32)],
            pybuda.VerifyConfig(
                test_kind=pybuda.verify.TestKind.TRAINING, optimizer={"type": "sgd", "params": {"learning_rate": 0.1}}
            ),
        )


def test_a_dropout_that_is_no_op_of_its_own_is_named() -> None:
    """That of an attention lies inside one call of torch, and alpha dropout is more than a mask."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 2, dropout=0.1, batch_first=True)
            self.drop, self.alpha = nn.Dropout(0.1), nn.AlphaDropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.alpha(self.drop(self.attention(x, x, x, need_weights=False)[0]))

    x = torch.randn(1, 4, 32)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        device_for(Attends().train(), x, x)
    assert [str(w.message) for w in seen if "trains attention, alpha as in eval()" in str(w.message)]
