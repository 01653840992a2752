"""`tbuda export` from a model, a compiled folder, and a model with the edits of a session."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tbuda_lab.cli.app import main
from tbuda_lab.core import netlist
from tbuda_lab.core.session import ResizeOp, Session

MODEL = """
import torch

def make(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    return model.eval().requires_grad_(False), (torch.randn(1, 32, 64),)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "m.py").write_text(MODEL)
    return f"{tmp_path / 'm.py'}:make"


def test_a_model_and_its_folder_give_the_same_netlist(model: str, tmp_path: Path) -> None:
    assert main(["compile", model, "--device", "n150", "--out", str(tmp_path / "c")]) == 0
    assert main(["export", "netlist", str(tmp_path / "c"), "--out", str(tmp_path / "a.yaml")]) == 0
    assert main(["export", "netlist", model, "--device", "n150", "--out", str(tmp_path / "b.yaml")]) == 0
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    assert (tmp_path / "c" / "netlist.yaml").read_bytes() == (tmp_path / "a.yaml").read_bytes()


def test_the_line_a_session_tells_writes_what_the_session_writes(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tbuda_lab.cli.target import load_target

    monkeypatch.chdir(tmp_path)
    target = load_target(model)
    session = Session(target.module, target.inputs, "e300", name=target.name)
    session.source = (model,)
    op = next(n for n in session.compile().placement.ops if len(session.legal(n).legal) > 1)
    size = next(s for s in session.legal(op).legal if s != session.legal(op).grid)
    session.save("s.buda.json")
    session.apply(ResizeOp(op, size))
    session.export_netlist("ours.yaml")
    export = session.export("netlist", "theirs.yaml")
    assert not export.note
    assert main(shlex.split(export.cli)[1:]) == 0
    assert (tmp_path / "theirs.yaml").read_bytes() == (tmp_path / "ours.yaml").read_bytes()
    graphs = netlist.load(tmp_path / "theirs.yaml").graphs.values()
    assert next(g.ops[op] for g in graphs if op in g.ops).grid_size == size


def test_refusals(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "table", model, "--out", str(tmp_path / "no" / "t.csv")]) == 1
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "s.buda.json").write_text("{}")
    assert main(["export", "table", model, "--edits", str(tmp_path / "s.buda.json"), "--device", "n150"]) == 1
    assert "leave --device out" in capsys.readouterr().err
