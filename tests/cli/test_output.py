"""Results appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbuda_lab.cli.output import output_file, output_folder
from tbuda_lab.core.errors import OutputError


def everything(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    with output_folder(tmp_path / "a/b/out") as folder:
        (folder / "x.txt").write_text("x")
        (folder / "deep").mkdir()
        (folder / "deep/y.txt").write_text("y")
        assert not (tmp_path / "a/b/out").exists()
    assert everything(tmp_path / "a/b/out") == ["deep", "deep/y.txt", "x.txt"]
    assert everything(tmp_path / "a/b") == ["out", "out/deep", "out/deep/y.txt", "out/x.txt"]


def test_existing_folder_keeps_what_is_not_ours(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    (out / "x.txt").write_text("old")
    with output_folder(out) as folder:
        (folder / "x.txt").write_text("new")
    assert everything(tmp_path) == ["out", "out/mine.txt", "out/x.txt"]
    assert (out / "x.txt").read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), output_folder(tmp_path / "a/b/out") as folder:
        (folder / "x.txt").write_text("half")
        raise error
    assert everything(tmp_path) == []
    with pytest.raises(error), output_file(tmp_path / "r.html") as file:
        file.write_text("half")
        raise error
    assert everything(tmp_path) == []


def test_failure_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("old")
    with pytest.raises(RuntimeError), output_file(tmp_path / "r.html") as file:
        file.write_text("half")
        raise RuntimeError
    assert (tmp_path / "r.html").read_text() == "old"
    assert everything(tmp_path) == ["r.html"]


def test_refusals_come_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/out", "file/deeper/out"):
        with pytest.raises(OutputError, match="cannot write"), output_folder(tmp_path / place):
            pytest.fail("the work has begun")
    for place in ("file/r.html", "missing/r.html", "."):
        with pytest.raises(OutputError, match="cannot write"), output_file(tmp_path / place):
            pytest.fail("the work has begun")
    assert everything(tmp_path) == ["file"]
