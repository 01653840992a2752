"""Results appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tbuda_lab.cli.output import output_folder
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.files import atomic_file, atomic_text, check_writable


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
    with pytest.raises(error), atomic_file(tmp_path / "r.html") as file:
        file.write_text("half")
        raise error
    assert everything(tmp_path) == []


def test_failure_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text("old")
    with pytest.raises(RuntimeError), atomic_file(tmp_path / "r.html") as file:
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
        with pytest.raises(OutputError, match="cannot write"), atomic_file(tmp_path / place):
            pytest.fail("the work has begun")
    assert everything(tmp_path) == ["file"]


def test_links_are_followed_and_devices_written_into(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there/real.txt")
    for text in ("one", "two"):
        with atomic_text(tmp_path / "link") as stream:
            stream.write(text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "there/real.txt").read_text() == text
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(tmp_path / "pipe")
        with atomic_text(tmp_path / "pipe") as stream:
            stream.write("through")
        assert os.read(reader, 100) == b"through" and (tmp_path / "pipe").is_fifo()
    finally:
        os.close(reader)
    assert everything(tmp_path) == ["link", "pipe", "there", "there/real.txt"]


def test_errors_of_the_block(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "out"):
        (tmp_path / "another").read_text()
    with pytest.raises(OutputError, match=r"cannot write .*out: No space left"), atomic_file(tmp_path / "out"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OutputError, match="half a character"), atomic_text(tmp_path / "out") as stream:
        stream.write("\ud800")
    with pytest.raises(OutputError, match="null"), atomic_file("a\0b"):
        pytest.fail("the work has begun")
    assert everything(tmp_path) == []
