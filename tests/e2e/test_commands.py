"""compile, run and report on a user's own file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tbuda_lab.cli import main
from tbuda_lab.core import netlist
from tests.e2e.references import eager, pcc
from tests.e2e.test_bad_input import GOOD

FILES = [
    "compile.json",
    "graph.lowered.txt",
    "graph.passed.txt",
    "graph.traced.txt",
    "netlist.cycles.csv",
    "netlist.yaml",
]


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(GOOD)
    return f"{tmp_path / 'model.py'}:make_model"


def user_model() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    scope: dict[str, object] = {}
    exec(GOOD, scope)
    return scope["make_model"]()  # type: ignore[operator,no-any-return]


def test_compile_writes_a_valid_netlist(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", target, "--device", "n150", "--out", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == FILES
    written = netlist.load(tmp_path / "out/netlist.yaml")
    assert written.arch == ["wormhole_b0"]
    assert [finding for finding in netlist.check(written) if finding.severity == "error"] == []
    record = json.loads((tmp_path / "out/compile.json").read_text())
    assert record["request"] == {"target": "../model.py:make_model", "device": "n150"}
    assert record["epochs"] == len(written.graphs)
    assert record["ops"] == sum(len(graph.ops) for graph in written.graphs.values())
    assert str(tmp_path) not in (tmp_path / "out/compile.json").read_text()
    assert "slowest op" in capsys.readouterr().out


def test_compiling_again_changes_nothing(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compile", target, "--out", str(out)]) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    assert main(["compile", target, "--out", str(out)]) == 0
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_run_writes_what_torch_says(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, _ = user_model()
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(5))
    np.savez(tmp_path / "in.npz", x=x.numpy())
    assert main(["run", target, "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as file:
        (output,) = (torch.from_numpy(file[name]) for name in file.files)
    assert pcc(output, eager(module, (x,))) > 0.99
    assert "pass: lowest PCC" in capsys.readouterr().out


def test_run_below_the_bar_fails(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", target, "--df", "Bfp8_b", "--pcc", "0.99999999"]) == 1
    assert "FAIL: lowest PCC" in capsys.readouterr().out


def test_run_of_a_compiled_folder(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compile", target, "--df", "Float32", "--out", str(out)]) == 0
    assert main(["run", str(out), "--pcc", "0.9999"]) == 0


OF_A_FOLDER: dict[str, list[str]] = {
    "run": ["run", "DIR"],
    "report": ["report", "DIR", "--out", "OUT"],
    "bisect": ["bisect", "DIR"],
    "share": ["share", "DIR", "--out", "OUT", "--seconds", "1"],
    "tune": ["tune", "DIR", "--out", "OUT", "--steps", "1"],
    "export": ["export", "netlist", "DIR", "--out", "OUT"],
}
"""Commands that compile what a folder was compiled from."""


@pytest.mark.parametrize("changed", ["model", "netlist", "no netlist"])
@pytest.mark.parametrize("words", OF_A_FOLDER.values(), ids=list(OF_A_FOLDER))
def test_a_folder_is_what_was_compiled(
    words: list[str], changed: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, result = tmp_path / "out", tmp_path / "result"
    assert main(["compile", target, "--df", "Float32", "--out", str(out)]) == 0
    netlist = out / "netlist.yaml"
    if changed == "model":
        (tmp_path / "model.py").write_text(GOOD.replace("96", "160"))
    elif changed == "netlist":
        netlist.write_text(netlist.read_text().replace("relu", "gelu"))
    else:
        netlist.unlink()
    capsys.readouterr()
    given = {"DIR": str(out), "OUT": str(result)}
    assert main([given.get(word, word) for word in words]) in (1, 2)
    error = capsys.readouterr().err
    expected = "has changed since it was compiled" if changed == "model" else "is not what `tbuda compile` wrote"
    assert "ModelError" in error and expected in error and not result.exists()


def test_report_is_one_page_that_asks_nobody(target: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", target, "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html>")
    foreign = r"""(?:\bsrc|\bhref)\s*=\s*["']?(?!data:|#|blob:)([^"'\s>]+)|@import|url\((?!["'`]?(?:data:|#))"""
    assert re.findall(foreign, text) == []
    for word in ("traced", "passed", "lowered", "relu", "wormhole_b0"):
        assert word in text
