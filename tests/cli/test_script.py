"""Scripts for PyBuda that run unchanged: `tbuda script`, `alias.install`, the pytest plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tbuda_lab import alias
from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError

SCRIPT = """
import sys
import torch
import pybuda
import pybuda.op
import pybuda.op.nn as nn
from pybuda import PyBudaModule, TTDevice, pybuda as again
from pybuda._C.backend_api import BackendType
from pybuda.verify.config import TestKind
import helper

class Sum(PyBudaModule):
    def forward(self, a, b):
        return pybuda.op.Add("sum", a, b)

assert again is pybuda and pybuda.op.nn is nn and BackendType is pybuda.BackendType and helper.HERE
device = TTDevice("tt0", module=Sum("m"))
device.push_to_inputs(torch.ones(1, 32, 32), torch.ones(1, 32, 32) * 2)
print(sys.argv[1:], float(pybuda.run_inference().get()[0].value().sum()))
"""


def python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": root}
    )


def test_a_script_that_imports_pybuda_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("HERE = True\n")
    done = python("-m", "tbuda_lab", "script", str(tmp_path / "model.py"), "--steps", "3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['--steps', '3'] 3072.0\n"), done.stderr


def test_exit_codes_and_tracebacks_are_the_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import sys; sys.exit(7)\n")
    assert main(["script", str(path)]) == 7
    path.write_text("def deep():\n    raise ValueError('no such thing')\ndeep()\n")
    assert main(["script", str(path)]) == 1
    message = capsys.readouterr().err
    assert "ValueError: no such thing" in message and "runpy" not in message and message.count("ends.py") == 2
    assert main(["script", str(tmp_path / "not_there.py")]) == 1
    assert "there is no script" in capsys.readouterr().err


def test_a_script_for_popart_is_told_what_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ir.py").write_text("import popart\n")
    assert main(["script", str(tmp_path / "ir.py")]) == 1
    message = capsys.readouterr().err
    assert "pybuda, sambaflow, popxl programs run as they are, PopART's own API does not" in message
    with pytest.raises(InputError, match="known: pybuda, sambaflow, popxl"):
        alias.install("popart")


def test_a_custom_op_in_cpp_is_told_python_s_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "op.py").write_text("import popxl\nimport cppimport.import_hook\n")
    assert main(["script", str(tmp_path / "op.py")]) == 1
    message = capsys.readouterr().err
    assert "a custom op in C++ has no form here" in message and "popxl.CustomOp" in message and "op.py" in message
    (tmp_path / "op.py").write_text(
        "import popxl\ntry:\n    import cppimport\nexcept ImportError:\n    print('none')\n"
    )
    assert main(["script", str(tmp_path / "op.py")]) == 0
    assert capsys.readouterr().out == "none\n"


def test_replicas_of_all_instances_are_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ir.py").write_text("import popxl\nprint(popxl.Ir(replication='popdist').replication_factor)\n")
    assert main(["script", "--replicas", "16", str(tmp_path / "ir.py")]) == 0
    assert main(["script", str(tmp_path / "ir.py")]) == 0  # the number is that run's alone
    assert capsys.readouterr().out == "16\n1\n"
    assert main(["script", "--replicas", "0", str(tmp_path / "ir.py")]) == 1
    assert "POPDIST_NUM_TOTAL_REPLICAS is a whole number from 1 to" in capsys.readouterr().err


def test_pytest_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import pybuda\n")
    (tmp_path / "test_one.py").write_text("import pybuda.config\ndef test_it(): pybuda.config.CompilerConfig()\n")
    done = python("-m", "pytest", "-q", "-p", "tbuda_lab.alias", "--alias", "pybuda", cwd=tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_install_is_undone_and_names_what_it_knows() -> None:
    with pytest.raises(InputError, match="known: pybuda"):
        alias.install("nosuchpackage")
    package = alias.install("foreign_name", "tbuda_lab.core.graph")
    try:
        import foreign_name.query  # type: ignore[import-not-found]

        import tbuda_lab.core.graph.query as own

        assert foreign_name.query is own and package.__spec__ is not None
        assert (package.__spec__.name, own.__spec__.name) == ("tbuda_lab.core.graph", "tbuda_lab.core.graph.query")
        assert alias.install("foreign_name", "tbuda_lab.core.graph") is package
        with pytest.raises(InputError, match="has been imported already"):
            alias.install("foreign_name", "tbuda_lab.core.ops")
    finally:
        alias.uninstall("foreign_name")
    with pytest.raises(ModuleNotFoundError):
        import foreign_name.text  # type: ignore[import-not-found]
