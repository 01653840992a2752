"""Writing results: all of them or none of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tbuda_lab.core.errors import OutputError


def _refusal(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path}: {reason}; give a folder that exists or can be made, and is writable")


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """A fresh temporary folder beside `path`; its files move to `path` when the block ends without an error.

    Entered before the work starts, so that an unwritable place is refused at once. Files of `path` that the block does
    not write stay. Raises `OutputError`.
    """
    path = Path(os.path.abspath(path))
    made: list[Path] = []
    try:
        if path.exists() and not path.is_dir():
            raise OutputError(f"cannot write {path}: it is a file; give a folder")
        parent = path.parent
        missing = [p for p in (parent, *parent.parents) if not p.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        if path.exists() and not os.access(path, os.W_OK):
            raise OutputError(f"cannot write {path}: permission denied; give a folder that is writable")
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=parent))
    except OSError as error:
        _remove_empty(made)
        raise _refusal(path, error) from None
    try:
        yield temporary
        try:
            if not path.exists():
                temporary.chmod(0o777 & ~_umask())
                temporary.rename(path)
            else:
                for file in sorted(temporary.rglob("*")):
                    if file.is_file():
                        target = path / file.relative_to(temporary)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        os.replace(file, target)
        except OSError as error:
            raise _refusal(path, error) from None
        made.clear()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        _remove_empty(made)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
