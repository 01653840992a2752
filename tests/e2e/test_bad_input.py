"""Whatever is wrong, one typed error says what to do, the exit code is not 0 and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli import main

GOOD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(64, 96)
        self.second = torch.nn.Linear(96, 32)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
def make_model():
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(1, 64),)
"""

UNSUPPORTED = """
import torch
class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x)          # line 5
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        y = torch.fft.fft(self.inner(x)).real  # line 11
        return y + x
def make_model():
    return Net().eval(), (torch.eye(32)[None],)
"""

DATA_DEPENDENT = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:                     # line 5
            return x + 1
        return x - 1
def make_model():
    return Net().eval(), (torch.randn(1, 64),)
"""

WRONG_SHAPE = GOOD.replace("torch.randn(1, 64),)", "torch.randn(1, 65),)")
WRONG_DTYPE = GOOD.replace("torch.randn(1, 64),)", "torch.zeros(1, 64, dtype=torch.int64),)")
NOT_A_TENSOR = GOOD.replace("torch.randn(1, 64),)", "'sixty-four',)")

TOO_LARGE = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x.expand(100_000, 100_000))   # 20 GB
def make_model():
    return Net().eval(), (torch.randn(1, 1),)
"""


def refuse(folder: Path, capsys: pytest.CaptureFixture[str], text: str, *flags: str, command: str = "compile") -> str:
    """Run the command on a model of this text; returns stderr after checking that nothing but the model is there."""
    (folder / "model.py").write_text(text)
    out = ["--out", str(folder / "out")] if command == "compile" and "--out" not in flags else []
    before = sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts)
    code = main([command, f"{folder / 'model.py'}:make_model", *out, *flags])
    captured = capsys.readouterr()
    assert code == 1
    assert "Traceback" not in captured.err
    assert sorted(p for p in folder.rglob("*") if "__pycache__" not in p.parts) == before
    return captured.err


def test_unsupported_ops_are_named_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, UNSUPPORTED, "--no-host")
    assert "UnsupportedOp" in error
    assert "model.py:5" in error and "inner" in error and "inv" in error
    assert "model.py:11" in error and "fft" in error


def test_data_dependent_control_flow_names_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, DATA_DEPENDENT)
    assert "ModelError" in error and "model.py:5" in error


@pytest.mark.parametrize("text", [WRONG_SHAPE, WRONG_DTYPE, NOT_A_TENSOR], ids=["shape", "dtype", "not a tensor"])
def test_wrong_sample_input(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, text)
    assert "ModelError" in error or "InputError" in error


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.zeros((1, 65), np.float32)},
        {"x": np.zeros((1, 64), np.int64)},
        {"x": np.zeros(64, np.float32)},
        {"y": np.zeros((1, 64), np.float32)},
        {"x": np.zeros((1, 64), np.float32), "y": np.zeros(1)},
        {},
    ],
    ids=["shape", "dtype", "rank", "name", "surplus", "none"],
)
def test_wrong_run_input(arrays: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    flags = ("--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"))
    error = refuse(tmp_path, capsys, GOOD, *flags, command="run")
    assert "InputError" in error and "x" in error


def test_input_file_with_pickles_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([{"a": 1}], dtype=object))
    error = refuse(tmp_path, capsys, GOOD, "--inputs", str(tmp_path / "in.npz"), command="run")
    assert "InputError" in error


def test_op_too_large_for_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, TOO_LARGE)
    assert "UnsupportedOp" in error and "model.py:5: aten::relu: a value of 10,000,000,000 elements" in error


@pytest.mark.parametrize("flags", [("--op-size", "{op}=40x40"), ("--op-size", "{op}=0x1")], ids=["beyond", "zero"])
def test_illegal_grid_override(flags: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tbuda_lab.core.session import Session

    scope: dict[str, object] = {}
    exec(GOOD, scope)
    session = Session(*scope["make_model"](), device="wormhole_b0")  # type: ignore[operator]
    op = session.compile().placement.schedule[0]
    error = refuse(tmp_path, capsys, GOOD, *(flag.format(op=op) for flag in flags))
    assert ("OverrideError" in error or "PlacementError" in error) and op in error


def test_override_of_an_op_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, GOOD, "--op-size", "no_such_op=1x1")
    assert "OverrideError" in error and "no_such_op" in error


def test_unknown_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refuse(tmp_path, capsys, GOOD, "--device", "n151")
    assert "UnknownDevice" in error and "n150" in error


@pytest.mark.parametrize("flags", [("--df", "Float17"), ("--fidelity", "NoFi"), ("--harvested-rows", "two")])
def test_unknown_names(flags: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert flags[1] in refuse(tmp_path, capsys, GOOD, *flags)


def test_unwritable_output_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/out"):
        error = refuse(tmp_path, capsys, GOOD, "--out", str(tmp_path / place))
        assert "OutputError" in error and "folder" in error


def test_the_process_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(GOOD)
    answer = subprocess.run(
        [
            sys.executable,
            "-m",
            "tbuda_lab",
            "compile",
            f"{tmp_path}/model.py:make_model",
            "--device",
            "n151",
            "--out",
            str(tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("tbuda: UnknownDevice: ")
    assert not (tmp_path / "out").exists()
