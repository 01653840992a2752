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


def test_a_picture_tells_what_belongs_to_it_alone(model: str, tmp_path: Path) -> None:
    from tbuda_lab.cli.target import load_target

    target = load_target(model)
    session = Session(target.module, target.inputs, "n150", name=target.name)
    export = session.export("image", tmp_path / "g.svg", view="graph", epoch=1, stage="passed")
    assert export.cli.endswith("--view graph --stage passed") and "epoch" not in export.python


IDLE = {
    "a stage of a grid": (["export", "image", "MODEL", "--stage", "passed"], "--stage means nothing to --view grid"),
    "an epoch of a graph": (
        ["export", "image", "MODEL", "--view", "graph", "--epoch", "0"],
        "--epoch means nothing to --view graph",
    ),
    "a policy beside edits": (["export", "table", "MODEL", "--edits", "EDITS", "--policy", "Ribbon"], "leave --policy"),
    "a batch beside edits": (["export", "table", "MODEL", "--edits", "EDITS", "--batch", "4"], "leave --batch out"),
    "an option beside edits": (["export", "table", "MODEL", "--edits", "EDITS", "--set", "a=1"], "leave --set out"),
    "chips beside edits": (["export", "table", "MODEL", "--edits", "EDITS", "--chips", "2"], "leave --chips out"),
    "plots of an exploration": (["report", "FOLDER", "--plots", "OUT"], "--plots is of one compile"),
    "a device of an exploration": (["report", "FOLDER", "--device", "n150"], "leave --device out"),
    "an arch beside edits": (
        ["diff", "a", "b", "--session", "EDITS", "--model", "MODEL", "--arch", "n150"],
        "--arch n150: of netlists alone",
    ),
    "no edits to share": (["share", "MODEL", "--edits", "0"], "1 edit or more"),
    "ops to list": (["bisect", "MODEL", "--ops", "-3"], "--ops -3: ops to list are 0 or more"),
    "no time to search": (["share", "MODEL", "--seconds", "0"], "more than 0 seconds"),
}


@pytest.mark.parametrize("case", IDLE)
def test_what_would_be_ignored_is_refused(
    case: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = IDLE[case]
    (tmp_path / "s.buda.json").write_text("{}")
    (tmp_path / "explore.jsonl").write_text("")
    given = {"MODEL": model, "EDITS": str(tmp_path / "s.buda.json"), "FOLDER": str(tmp_path), "OUT": "plots.html"}
    assert main([given.get(word, word) for word in words]) in (1, 2)
    assert message in capsys.readouterr().err


def test_refusals(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "table", model, "--out", str(tmp_path / "no" / "t.csv")]) == 1
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "s.buda.json").write_text("{}")
    assert main(["export", "table", model, "--edits", str(tmp_path / "s.buda.json"), "--device", "n150"]) == 1
    assert "leave --device out" in capsys.readouterr().err
