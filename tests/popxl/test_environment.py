"""Variables of the environment: where lines go, what is kept, and what means nothing here."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.core.errors import InputError, NotSupported
from tbuda_lab.popxl import environment


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("POPXL_", "POPART_", "POPDIST_"))]:
        monkeypatch.delenv(name)


def test_lines_go_where_the_variables_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.log("INFO", "hidden")
    environment.log("WARN", "shown")
    assert capsys.readouterr().err == "[popxl] [WARN] shown\n"
    (tmp_path / "levels.json").write_text(json.dumps({"popart": "OFF", "popxl": "INFO"}))
    monkeypatch.setenv("POPART_LOG_CONFIG", str(tmp_path / "levels.json"))
    monkeypatch.setenv("POPART_LOG_DEST", "stdout")
    environment.log("INFO", "of the file")
    assert capsys.readouterr().out == "[popxl] [INFO] of the file\n"
    monkeypatch.setenv("POPXL_LOG_LEVEL", "ERR")  # a variable goes before the file
    monkeypatch.setenv("POPART_LOG_DEST", str(tmp_path / "lines.txt"))
    environment.log("WARN", "hidden")
    environment.log("ERR", "in a file")
    assert (tmp_path / "lines.txt").read_text() == "[popxl] [ERR] in a file\n"


def test_the_cache_is_kept_where_popxl_says_and_others_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(environment.CACHE, "")
    monkeypatch.delenv(environment.CACHE)
    monkeypatch.setenv("POPXL_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("POPART_PRELOAD_POPEF", "full-preload")
    environment.take_environment()
    environment.take_environment()
    assert os.environ[environment.CACHE] == "/somewhere"
    assert capsys.readouterr().err.count("POPART_PRELOAD_POPEF has no meaning") == 1


def test_all_instances_are_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", "4")
    monkeypatch.setenv("POPDIST_NUM_INSTANCES", "1")
    assert popxl.Ir(replication="popdist").replication_factor == 4
    for name, value in (("POPDIST_NUM_INSTANCES", "2"), ("POPDIST_NUM_LOCAL_REPLICAS", "2")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(NotSupported, match="tbuda script --replicas 4"):
                popxl.Ir(replication="popdist")
    for wrong in ("", "0", "-1", "4.0", "9" * 40, "\u0664"):
        monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", wrong)
        with pytest.raises(InputError, match="whole number from 1 to 1024"):
            popxl.Ir(replication="popdist")


def test_old_names_of_numpy_are_answered_where_popxl_is_imported() -> None:
    numpy = types.ModuleType("numpy")
    numpy.prod = np.prod  # type: ignore[attr-defined]
    end = environment.answer_old_numpy_names(numpy)
    program: dict[str, Any] = {"np": numpy, "popxl": popxl}
    part: dict[str, Any] = {"np": numpy, "float8": popxl.float8_143}
    other: dict[str, Any] = {"np": numpy}
    for names in (program, part):
        assert eval("np.str, np.float_, np.product", names) == (str, np.float64, np.prod)
        with pytest.raises(AttributeError):
            eval("np.no_such_name", names)
    assert not eval("hasattr(np, 'str')", other)
    end()
    assert not eval("hasattr(np, 'str')", program)
