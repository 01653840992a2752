"""`tbuda export tti`, `tbuda run x.tti`, `tbuda tti`: an image on the command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from tbuda_lab.cli.app import main
from tbuda_lab.core.session import Session
from tests.cli.test_export import MODEL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.tti with weights, bare.tti without."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "m.py").write_text(MODEL)
    model = f"{folder / 'm.py'}:make"
    assert main(["export", "tti", model, "--device", "n150", "--out", str(folder / "m.tti")]) == 0
    assert main(["export", "tti", str(folder / "m.tti"), "--no-weights", "--out", str(folder / "bare.tti")]) == 0
    return folder


def own() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    space: dict = {}
    exec(MODEL, space)
    return space["make"]()


def test_it_runs_on_given_inputs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, (x,) = own()
    np.savez(tmp_path / "in.npz", input=x.numpy())
    assert (
        main(
            ["run", str(folder / "m.tti"), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
        )
        == 0
    )
    assert "pass: lowest PCC" in capsys.readouterr().out
    with np.load(tmp_path / "out.npz") as out:
        (got,) = (out[k] for k in out.files)
    assert np.corrcoef(got.ravel(), model(x).numpy().ravel())[0, 1] > 0.999


def test_weights_from_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(folder / "bare.tti")]) == 1
    assert "written without weights" in capsys.readouterr().err
    model, (x,) = own()
    np.savez(tmp_path / "w.npz", **{n: 2 * p.numpy() for n, p in model.named_parameters()})
    np.savez(tmp_path / "in.npz", input=x.numpy())
    assert (
        main(
            [
                "run",
                str(folder / "bare.tti"),
                "--weights",
                str(tmp_path / "w.npz"),
                "--inputs",
                str(tmp_path / "in.npz"),
                "--outputs",
                str(tmp_path / "out.npz"),
            ]
        )
        == 0
    )
    for p in model.parameters():
        p.mul_(2)
    with np.load(tmp_path / "out.npz") as out:
        (got,) = (out[k] for k in out.files)
    assert np.corrcoef(got.ravel(), model(x).numpy().ravel())[0, 1] > 0.999


def test_inputs_that_are_none_are_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For an image and for a model alike."""
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "words.npz", input=np.array(["a", "b"]))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "words.npz").read_bytes()[:90])
    for target in (str(folder / "m.tti"), f"{folder / 'm.py'}:make"):
        for name, message in (
            ("one.npy", "a single array"),
            ("words.npz", "its type is '<U1'"),
            ("torn.npz", "not an .npz archive"),
        ):
            assert main(["run", target, "--inputs", str(tmp_path / name)]) == 1
            assert message in capsys.readouterr().err


def test_info_and_netlist(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tti", "info", str(folder / "m.tti"), "--files"]) == 0
    text = capsys.readouterr().out
    assert "9 rows x 8 columns" in text and "unzipped_tti/device.json" in text
    assert text.split("runs here")[1].split()[0] == "yes"
    assert main(["tti", "info", str(folder / "bare.tti")]) == 0
    assert "4 are not in it" in capsys.readouterr().out
    assert main(["tti", "netlist", str(folder / "m.tti"), "--out", str(tmp_path / "n.yaml")]) == 0
    assert main(["netlist", "check", str(tmp_path / "n.yaml"), "--profile", "strict"]) == 0
    cycles = (tmp_path / "n.cycles.csv").read_text(encoding="utf-8").splitlines()
    assert cycles[0] == "op,graph,kernel_cycles,limiter_cycles,limiter" and len(cycles) == 4


def test_edits_of_an_image_are_found_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session.open(folder / "m.tti")
    session.gesture(f"break at {session.compile().placement.schedule[1]}")
    session.save("e.buda.json")
    session.export_netlist("ours.yaml")
    assert main(shlex.split(session.export("netlist", "theirs.yaml").cli)[1:]) == 0
    assert Path("theirs.yaml").read_bytes() == Path("ours.yaml").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "m.tti", "--device", "n150"], "leave --device out"),
        (["compile", "m.tti", "--out", "c"], "`tbuda run` runs it"),
        (["run", "none.tti"], "cannot be read"),
        (["run", "m.py:make", "--weights", "w.npz"], "is for a device image"),
        (["export", "table", "m.tti", "--edits", "e.buda.json"], "e.buda.json cannot be read"),
    ],
)
def test_refusals(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    assert main(words) == 1
    assert message in capsys.readouterr().err
