"""Results appear whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
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


def test_two_runs_into_one_folder_never_mix(tmp_path: Path) -> None:
    """What an earlier run wrote and this one does not is gone, and of two at once the last one stays as a whole."""
    out = tmp_path / "out"
    results = ("netlist.yaml", "parameters.npz")
    with output_folder(out, results) as folder:
        for name in results:
            (folder / name).write_text("first")
    (out / "mine.txt").write_text("mine")
    (out / "sub").mkdir()
    (out / "sub/mine.txt").write_text("mine")
    with output_folder(out, results) as one, output_folder(out, results) as two:
        (one / "netlist.yaml").write_text("one")
        (two / "netlist.yaml").write_text("two")
        (two / "parameters.npz").write_text("two")
        (two / "sub").mkdir()
    assert everything(tmp_path) == ["out", "out/mine.txt", "out/netlist.yaml", "out/sub", "out/sub/mine.txt"]
    assert (out / "netlist.yaml").read_text() == "one" and (out / "mine.txt").read_text() == "mine"


def test_a_run_that_was_faster_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename, times = tmp_path / "out", Path.rename, []

    def slow(self: Path, target: Path) -> Path:
        if target == out and not times:  # another run puts its folder here in the meantime
            times.append(1)
            out.mkdir()
            (out / "theirs.txt").write_text("theirs")
        return rename(self, target)

    out.mkdir()
    monkeypatch.setattr(Path, "rename", slow)
    with output_folder(out, ("theirs.txt", "ours.txt")) as folder:
        (folder / "ours.txt").write_text("ours")
    assert everything(tmp_path) == ["out", "out/ours.txt"]


def test_the_folder_that_a_shell_stands_in_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.txt").write_text("old")
    inode = out.stat().st_ino
    monkeypatch.chdir(out)
    with output_folder(Path("."), ("old.txt", "new.txt")) as folder:
        (folder / "new.txt").write_text("new")
    assert everything(tmp_path) == ["out", "out/new.txt"] and out.stat().st_ino == inode


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    """The disk is full after 4 KiB: a limit of the process, which the kernel enforces."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with (
            pytest.raises(OutputError, match=r"cannot write .*out: File too large"),
            output_folder(tmp_path / "out") as folder,
        ):
            (folder / "x.txt").write_text("x" * 10_000)
        with pytest.raises(OutputError, match="cannot write"), atomic_text(tmp_path / "x.txt") as stream:
            stream.write("x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert everything(tmp_path) == []


def test_errors_of_what_the_block_reads_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), output_folder(tmp_path / "out"):
        (tmp_path / "another").read_text()
    assert everything(tmp_path) == []


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
