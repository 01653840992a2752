"""Training images: written by one device, trained on by another that never saw the model, against torch."""

from __future__ import annotations

import copy
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import Session


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 40), nn.Linear(40, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(1, 16, 32, generator=generator), torch.randn(1, 16, 8, generator=generator)) for _ in range(count)
    ]


def device_of(model: nn.Module, optimizer: pybuda.optimizers.Optimizer) -> pybuda.TTDevice:
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice(
        "net", arch=pybuda.BackendDevice.Wormhole_B0, optimizer=optimizer, module=pybuda.PyTorchModule("net", model)
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.L1Loss()))
    return device


def train(device: pybuda.TTDevice, data: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    for x, y in data:
        device.push_to_inputs(x)
        device.push_to_target_inputs(y)
    pybuda.run_training(steps=len(data))
    losses = pybuda.get_loss_queue()
    return [losses.get()[0].value().item() for _ in data]


def test_an_image_is_trained_on_and_saved_again_without_the_model(tmp_path: Path) -> None:
    """Two steps on the device, an image, two on the image's device, an image, one more: as five steps of torch."""
    torch.manual_seed(0)
    model, data = Net(), batches(5)
    theirs = copy.deepcopy(model)
    steps = torch.optim.Adam(theirs.parameters(), 0.01)
    expected = []
    for x, y in data:
        steps.zero_grad()
        loss = nn.functional.l1_loss(theirs(x), y)
        loss.backward()
        steps.step()
        expected.append(float(loss.detach()))
    device = device_of(model, pybuda.Adam(0.01, device_params=True))
    have = train(device, data[:2])
    device.compile_to_image(img_path=tmp_path / "a.tti", training=True)
    pybuda.pybuda_reset()
    second = pybuda.TTDevice.load_image(img_path=tmp_path / "a.tti")
    assert second.image.training and second.image.is_compiled_for_training()
    have += train(second, data[2:4])
    second.compile_to_image(img_path=tmp_path / "b.tti")
    pybuda.pybuda_reset()
    third = pybuda.TTDevice.load_image(img_path=tmp_path / "b.tti")
    have += train(third, data[4:])
    assert have == pytest.approx(expected, rel=1e-4)
    trained = third.get_parameter_checkpoint()
    for name, weight in theirs.named_parameters():
        torch.testing.assert_close(trained[name].value(), weight.detach(), rtol=1e-3, atol=1e-5)
    assert third.optimizer is not None and third.optimizer.learning_rate == 0.01


def test_compiled_to_an_image_and_never_run(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, ((x, y), *_) = Net(), batches(1)
    device = device_of(model, pybuda.SGD(0.1, device_params=True))
    image = device.compile_to_image(img_path=tmp_path / "a.tti", training=True, sample_inputs=(x,), sample_targets=(y,))
    assert isinstance(image.optimizer, pybuda.SGD) and image.optimizer.learning_rate == 0.1
    first = (tmp_path / "a.tti").read_bytes()
    loaded = pybuda.TTDevice.load_image(img_path=tmp_path / "a.tti")
    for _ in range(5):
        loaded.push_to_inputs(x)
        loaded.push_to_target_inputs(y)
    with pytest.raises(RuntimeError, match="keeps 4 inputs"):
        pybuda.run_training(microbatch_count=5)
    loaded.inputs.clear()
    loaded.targets.clear()
    assert train(loaded, [(x, y)]) == pytest.approx([float(nn.functional.l1_loss(model(x), y))], rel=1e-5)
    loaded.compile_to_image(img_path=tmp_path / "b.tti")
    assert (tmp_path / "b.tti").read_bytes() != first
    with pytest.raises(InputError, match="keeps weights"):
        image.save_to_disk(tmp_path / "c.tti", weights=False)


def test_a_session_trains_from_its_image_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Net(), batches(2)
    session = Session.for_training(model, (data[0][0],), nn.L1Loss(), (data[0][1],), "sgd", 0.1, device="wormhole_b0")
    session.train(data[:1])
    session.export_tti(tmp_path / "s.tti")
    image = pybuda.TTDeviceImage.load_from_disk(tmp_path / "s.tti")
    saved = image.loaded.weight_values()
    for name, value in session.trainer.parameters().items():
        torch.testing.assert_close(torch.from_numpy(saved[name]), value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["weights"][0].update(queue="nowhere"), "not a ram"),
        (lambda t: t["weights"][0].update(shape=[4096, 4096]), "no room"),
        (lambda t: t["plan"].update(batches="many"), "batches"),
        (lambda t: t["plan"]["optimizer"].update(kind="__import__"), "no optimizer"),
        (lambda t: t.update(weights={}), "not a list"),
    ],
)
def test_manifests_that_do_not_agree_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    ((x, y),) = batches(1)
    device = device_of(Net(), pybuda.SGD(0.1, device_params=True))
    device.compile_to_image(img_path=tmp_path / "a.tti", training=True, sample_inputs=(x,), sample_targets=(y,))
    with tarfile.open(tmp_path / "a.tti") as old, tarfile.open(tmp_path / "b.tti", "w") as new:
        for member in old.getmembers():
            file = old.extractfile(member)
            data = b"" if file is None else file.read()
            if member.name.endswith("device.json"):
                manifest = json.loads(data)
                change(manifest["tbuda_lab"]["training"])
                data = json.dumps(manifest).encode()
                member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    with pytest.raises((InputError, RuntimeError), match=message):
        pybuda.TTDevice.load_image(img_path=tmp_path / "b.tti")
