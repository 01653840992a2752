"""Files that appear whole or not at all, and folders of them.

What is under way lies beside its target under a name of `temporary_name`, and its maker holds a lock on it. A lock goes
with its process, so whoever comes next sees what a killed one left, and removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tbuda_lab.core.errors import OutputError

try:
    import fcntl
except ImportError:  # not on Windows: nothing is locked there, and so nothing that was left is removed
    fcntl = None  # type: ignore[assignment]

_TEMPORARY = re.compile(r"\.tbuda-\d+-\d+\..*", re.DOTALL)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """An empty file with the ending of `path`, to be filled; it takes the place of `path` when the block ends without
    an error, and is gone otherwise.

    It lies in the folder of `path`, so that renaming it is one step; a link is followed, and a device or a pipe is
    written into, not replaced. Raises `OutputError`, at once where nothing can be written, and where the
    block cannot write to its file.
    """
    temporary, lock = None, -1
    try:
        target = _resolve(path)
        special = target.exists() and not target.is_file()
        temporary, lock = _fresh(Path(tempfile.gettempdir()) / target.name if special else target)
        yield temporary
        if special:
            with temporary.open("rb") as result, os.fdopen(_open_special(target), "wb", buffering=0) as out:
                shutil.copyfileobj(result, out)
        else:
            os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and error.filename not in (None, str(temporary)):
            raise  # of some other file that the block has to do with
        raise _refusal(path, error.strerror or str(error)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
            os.close(lock)


@contextmanager
def atomic_text(path: str | Path) -> Iterator[TextIO]:
    """As `atomic_file`, a stream of UTF-8 text."""
    try:
        with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise OutputError(f"cannot write {path}: it would hold half a character, {half!r}") from error


def check_writable(path: str | Path) -> None:
    """Raises `OutputError` if no file can be made there; leaves nothing behind."""
    try:
        target = _resolve(path)
        if not target.exists() or target.is_file():
            temporary, lock = _fresh(target)
            temporary.unlink()
            os.close(lock)
    except OSError as error:
        raise _refusal(path, error.strerror or str(error)) from error


def make_folder(path: str | Path) -> Path:
    """The folder at `path`, made with those above it if it is not there. Raises `OutputError`."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else getattr(error, "strerror", None) or error
        raise OutputError(f"cannot make the folder {path}: {reason}; give one that exists or can be made") from error
    return folder


def file_stem(name: str) -> str:
    """A name of anything as part of a file's name: one part of a path, never hidden, of at most 150 characters."""
    return re.sub(r"[^\w.\-]+", "_", name).strip(".")[:150] or "model"


def _resolve(path: str | Path) -> Path:
    try:
        target = Path(os.path.realpath(path))
    except ValueError as error:  # a name with a zero byte
        raise _refusal(path, str(error)) from error
    if target.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; give a file name")
    return target


def _refusal(path: str | Path, reason: str) -> OutputError:
    return OutputError(f"cannot write {path}: {reason}; give a folder that exists and is writable")


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """A new folder beside `target`, gone after the block with all that is in it. Raises `OSError`."""
    remove_abandoned(target.parent)
    name, lock = _fresh_folder(target)
    try:
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def _fresh_folder(target: Path) -> tuple[Path, int]:
    """A new empty folder beside `target`, and the lock on it, -1 where there are none."""
    for number in itertools.count():
        name = temporary_name(target, number)
        try:
            name.mkdir(0o700)
        except FileExistsError:
            continue
        if fcntl is None:
            return name, -1
        with contextlib.suppress(FileNotFoundError):  # it was taken for abandoned before the lock was ours
            lock = os.open(name, os.O_RDONLY)
            _lock(lock)
            if name.exists():
                return name, lock
            os.close(lock)
    raise AssertionError("count ends")


def temporary_name(target: Path, number: int) -> Path:
    """A name beside `target`, with its ending, for what will take its place."""
    return target.with_name(f".tbuda-{os.getpid()}-{number}.{target.stem[:100]}{target.suffix}")


def remove_abandoned(folder: Path) -> None:
    """Remove temporary files and folders that processes left which were killed: nobody holds their locks."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        entries = [entry for entry in os.scandir(folder) if _TEMPORARY.fullmatch(entry.name)]
        for entry in entries:
            with contextlib.suppress(OSError):
                _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    is_folder = entry.is_dir(follow_symlinks=False)
    if not is_folder and not entry.is_file(follow_symlinks=False):
        return
    lock = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        if not _lock(lock):
            return
        if is_folder:
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.unlink(entry.path)
    finally:
        os.close(lock)


def _lock(file: int) -> bool:
    """Whether the lock is ours now."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _open_special(target: Path) -> int:
    """A device or a pipe, open for writing; a pipe that nobody reads is refused, not waited for."""
    try:
        file = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise _refusal(target, error.strerror or str(error)) from error
    os.set_blocking(file, True)
    return file


def _fresh(target: Path) -> tuple[Path, int]:
    """A new empty file beside `target`, of the rights that the user's mask gives, and the lock on it."""
    remove_abandoned(target.parent)
    for number in itertools.count():
        name = temporary_name(target, number)
        try:
            file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            continue
        _lock(file)
        if name.exists():
            return name, file
        os.close(file)  # it was taken for abandoned before the lock was ours
    raise AssertionError("count ends")
