"""Files that appear whole or not at all."""

from __future__ import annotations

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


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """An empty file with the ending of `path`, to be filled; it takes the place of `path` when the block ends without
    an error, and is gone otherwise.

    It lies in the folder of `path`, so that renaming it is one step; a link is followed, and a device or a pipe is
    written into, not replaced. Raises `OutputError`, at once where nothing can be written, and where the
    block cannot write to its file.
    """
    temporary = None
    try:
        target = _resolve(path)
        special = target.exists() and not target.is_file()
        temporary = _fresh(Path(tempfile.gettempdir()) / target.name if special else target)
        yield temporary
        if special:
            with temporary.open("rb") as result, target.open("wb", buffering=0) as out:
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
            _fresh(target).unlink()
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


def _fresh(target: Path) -> Path:
    """A new empty file beside `target`, of the rights that the user's mask gives."""
    for number in itertools.count():
        name = target.with_name(f".{target.stem[:100]}.{os.getpid()}-{number}{target.suffix}")
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            continue
        return name
    raise AssertionError("count ends")
