"""What `pip install` brings: the package, the built front end, the licence, no Node and no leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTENSION = "share/jupyter/labextensions/@tbuda-lab/labextension/"

pytestmark = pytest.mark.skipif(
    not (ROOT / "tbuda_lab/labextension/package.json").is_file(), reason="the front end is not built: make front-end"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    # Building must not need Node where the front end is built already.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (result,) = out.glob("*.whl")
    return result


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        licence = file.read(next(n for n in names if n.endswith("licenses/LICENSE"))).decode()
        metadata = file.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert wheel.name.endswith("-py3-none-any.whl")
    packed = {n for n in names if n.startswith("tbuda_lab/")}
    tracked = subprocess.run(
        ["git", "ls-files", "tbuda_lab"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) <= packed
    assert {f"tbuda_lab/widgets/static/{name}.js" for name in ("widget", "more", "page", "closer")} <= packed

    data = [n.split(".data/data/", 1)[1] for n in names if ".data/data/" in n]
    assert f"{EXTENSION}package.json" in data
    assert f"{EXTENSION}install.json" in data
    assert any(n.startswith(f"{EXTENSION}static/remoteEntry") for n in data)
    # shipped once, and nothing of the workshop with it
    assert not any(n.startswith("tbuda_lab/labextension") for n in packed)
    for unwanted in ("node_modules", "__pycache__", ".pyc", "tests/", ".venv", ".log", ".tsbuildinfo"):
        assert not any(unwanted in n for n in names), unwanted
    assert len(names) == len(set(names))
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Dist: torch>=" in metadata and "torch==" not in metadata


@pytest.mark.slow
def test_installed_without_node(wheel: Path, tmp_path: Path) -> None:
    """Install into a new environment (dependencies borrowed from this one) and compile a model from there."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    # `pip --python` installs into another environment; the borrowed folder is searched after its own.
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (own,) = environment.glob("lib/python*/site-packages")
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert (environment / EXTENSION / "package.json").is_file()

    (tmp_path / "model.py").write_text(
        "import torch\n"
        "def make_model():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval(), (torch.ones(1, 64),)\n"
    )
    clean = {"PATH": str(environment / "bin"), "HOME": str(tmp_path)}
    version = subprocess.run(
        [environment / "bin/tbuda", "--version"], env=clean, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert version.returncode == 0 and version.stdout, version.stderr
    program = (
        "import tbuda_lab\n"
        "from tbuda_lab.cli import main\n"
        "print('FROM', tbuda_lab.__file__)\n"
        "for words in ('doctor', 'compile model.py:make_model --device n150 --out out',\n"
        "              'report model.py:make_model --out report.html'):\n"
        "    assert main(words.split()) == 0, words\n"
    )
    answer = subprocess.run(
        [python, "-c", program], env=clean, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert f"FROM {own / 'tbuda_lab/__init__.py'}" in answer.stdout
    assert (tmp_path / "out/netlist.yaml").is_file()
    assert (tmp_path / "report.html").is_file()
