"""The feed-forward starter, LeNet and the page on several graphs: written from their description, run as scripts, and
step by step against torch."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab import alias, samba
from tbuda_lab.cli import main
from tbuda_lab.samba import utils

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(autouse=True)
def fresh_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    samba.session.reset()
    monkeypatch.chdir(tmp_path)


def script(name: str, *arguments: str) -> None:
    """The program as its user starts it; it has to end well."""
    assert main(["script", str(PROGRAMS / name), *arguments]) == 0


def pcc(a: torch.Tensor, b: torch.Tensor) -> float:
    """Pearson's correlation; of constants, whether they agree."""
    x, y = a.detach().double().reshape(-1), b.detach().double().reshape(-1)
    if x.numel() < 2 or x.std() == 0 or y.std() == 0:
        return float(torch.allclose(x, y, rtol=1e-4, atol=1e-6))
    return float(torch.corrcoef(torch.stack([x, y]))[0, 1])


@pytest.mark.parametrize(("mapping", "batch"), [("section", "1"), ("spatial", "4")])
def test_the_feed_forward_starter(mapping: str, batch: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("-b", batch, "--mapping", mapping, "--strict")
    script("ffn.py", "compile", *common, "--pef-name", "ffn_digits")
    printed = capsys.readouterr().out
    assert re.search(rf"mapping {mapping}: 3 sections \(1 fwd, 1 bckwd, 1 opt\), [\d,]+ cycles", printed)
    assert re.search(r"spatial takes [\d,]+ cycles per run, by sections [\d,]+: (spatial|section) is faster", printed)
    pef = ("-p", "out/ffn_digits/ffn_digits.pef")
    script("ffn.py", "test", *common, *pef)
    assert "test passed" in capsys.readouterr().out
    script("ffn.py", "run", *common, *pef)
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert losses == sorted(losses, reverse=True) and len(losses) == 3 and losses[0] > losses[2]


def test_lenet_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    script("lenet.py", "compile", "--pef-name", "lenet", "--strict")
    script("lenet.py", "run", "-p", "out/lenet/lenet.pef")
    assert "trained, version" in capsys.readouterr().out


def test_two_graphs_as_a_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script("two_graphs.py", str(tmp_path))
    assert "both graphs ran" in capsys.readouterr().out


def model_of(program: str, name: str, **sizes: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A program's model, twice with the same weights."""
    alias.install("sambaflow")
    torch.manual_seed(4)
    kind = runpy.run_path(str(PROGRAMS / program))[name]
    model, reference = kind(**sizes), kind(**sizes)
    reference.load_state_dict(model.state_dict())
    return samba.from_torch_model_(model), reference


@pytest.mark.parametrize(
    ("program", "name", "shape", "steps"), [("ffn.py", "FFN", (4, 64), 3), ("lenet.py", "LeNet", (1, 1, 4, 4), 2)]
)
def test_every_step_correlates_with_torch(program: str, name: str, shape: tuple[int, ...], steps: int) -> None:
    """Outputs, gradients and weights after each step: PCC at least 0.9999."""
    model, reference = model_of(program, name)

    def batch(step: int) -> list[samba.SambaTensor]:
        generator = torch.Generator().manual_seed(step)
        image = torch.randn(shape, generator=generator)
        label = torch.randint(0, 10, shape[:1], generator=generator)
        names = ("inputs", "labels") if name == "FFN" else ("image", "label")
        return [samba.from_torch_tensor(t, name=n, batch_dim=0) for t, n in zip((image, label), names, strict=True)]

    outputs = utils.trace_graph(model, batch(0), samba.optim.SGD(model.parameters(), lr=0.0))
    golden = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    numbers = {"lr": 0.1, "momentum": 0.9}
    for step in range(steps):
        inputs = batch(step)
        results = samba.session.run(inputs, outputs, hyperparam_dict=numbers)
        golden.zero_grad()
        expected = reference(*map(samba.to_torch, inputs))
        expected[0].backward()
        golden.step()
        samba.session.to_cpu(model)
        for result, right in zip(results, expected, strict=True):
            assert pcc(samba.to_torch(result), right) >= 0.9999
        for (key, parameter), other in zip(model.named_parameters(), reference.parameters(), strict=True):
            assert pcc(parameter.sn_grad, other.grad) >= 0.9999, (step, key)
            assert pcc(parameter, other) >= 0.9999, (step, key)
