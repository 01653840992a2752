"""SambaFlow programs as their users start them, and networks of their tutorials, against torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tbuda_lab import samba
from tbuda_lab.cli import main
from tbuda_lab.samba import utils
from tests.dialects.digits import write_digits

HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "digits_classifier.py"
BATCH, EPOCHS, LR, MOMENTUM = 32, 1, 0.005, 0.9


def script(folder: Path, *arguments: str) -> str:
    """Standard output and errors of `tbuda script`, which has to end well."""
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE / "standin")])
    ended = subprocess.run(
        [sys.executable, "-m", "tbuda_lab", "script", str(PROGRAM), *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the digits and the compiled PEF."""
    folder = tmp_path_factory.mktemp("program")
    write_digits(folder / "mnist_data", train=640, test=288)
    script(folder, "compile", "-b", str(BATCH), "--pef-name", "digits", "--strict")
    return folder


PEF = ("-b", str(BATCH), "-p", "out/digits/digits.pef")


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That of this folder, and nothing of it afterwards: transformers imports what it takes for the real one."""

    def taken_out() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "torchvision"}

    before = taken_out()
    monkeypatch.syspath_prepend(str(HERE / "standin"))
    yield
    taken_out()
    sys.modules.update(before)


def torch_accuracy(folder: Path) -> float:
    """Per cent of the test digits after the same training in torch alone."""
    from torchvision import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]

    def tensors(train: bool) -> tuple[torch.Tensor, torch.Tensor]:
        data = datasets.MNIST(folder / "mnist_data", train)
        pixels = torch.from_numpy(data.images.reshape(len(data), -1).copy()).float() / 255
        return (pixels - 0.1307) / 0.3081, torch.from_numpy(data.labels.copy()).long()

    torch.manual_seed(3)
    layer = torch.nn.Linear(784, 10)
    optimizer = torch.optim.SGD(layer.parameters(), lr=LR, momentum=MOMENTUM)
    pixels, digits = tensors(True)
    for _ in range(EPOCHS):
        for part, digit in zip(pixels.split(BATCH), digits.split(BATCH), strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(part), digit).backward()
            optimizer.step()
    pixels, digits = tensors(False)
    return 100 * float((layer(pixels).argmax(1) == digits).float().mean())


@pytest.mark.usefixtures("torchvision")
def test_run_trains_as_torch_does(folder: Path) -> None:
    printed = script(folder, "run", *PEF, "--num-epochs", str(EPOCHS))
    match = re.search(r"accuracy ([\d.]+)", printed)
    assert match is not None, printed
    expected = torch_accuracy(folder)
    assert expected > 80  # a training that learned something
    assert abs(float(match[1]) - expected) <= 1


@pytest.fixture
def here(folder: Path, torchvision: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a script in this process: its folder, its torchvision, a session of its own."""
    monkeypatch.chdir(folder)
    samba.session.reset()


@pytest.mark.usefixtures("here")
def test_test_compares_with_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", str(PROGRAM), "test", *PEF]) == 0
    assert "test passed" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_measure_performance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", str(PROGRAM), "measure-performance", *PEF, "--num-iterations", "1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"latency: [\d.]+ us \([\d,]+ cycles\), samples_per_sec: [\d.]+ on the device", printed)


class SmallLeNet(torch.nn.Module):
    """LeNet in small: convolution, pooling, two linear layers; (loss, logits)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.hidden = torch.nn.Linear(4 * 4 * 4, 16)
        self.last = torch.nn.Linear(16, 10)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.pool(torch.relu(self.conv(image)))
        logits = self.last(torch.relu(self.hidden(torch.reshape(features, [features.shape[0], -1]))))
        return self.criterion(logits, label), logits


def test_a_step_of_lenet_is_torchs() -> None:
    samba.session.reset()
    torch.manual_seed(0)
    model, reference = SmallLeNet(), SmallLeNet()
    reference.load_state_dict(model.state_dict())
    samba.from_torch_model_(model)
    image, label = torch.randn(2, 1, 8, 8), torch.randint(0, 10, (2,))
    inputs = [
        samba.from_torch_tensor(image, name="image", batch_dim=0),
        samba.from_torch_tensor(label, name="label", batch_dim=0),
    ]
    outputs = utils.trace_graph(model, inputs, samba.optim.SGD(model.parameters(), lr=0.1))
    loss, logits = samba.session.run(inputs, outputs)
    golden = torch.optim.SGD(reference.parameters(), lr=0.1)
    expected = reference(image, label)
    expected[0].backward()
    torch.testing.assert_close(samba.to_torch(loss), expected[0].detach(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(samba.to_torch(logits), expected[1].detach(), rtol=1e-4, atol=1e-5)
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.sn_grad, other.grad, rtol=1e-4, atol=1e-6)
    golden.step()
    samba.session.to_cpu(model)
    for parameter, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=1e-4, atol=1e-6)
