"""Writing a text file so that nobody ever sees half of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tbuda_lab.core.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text stream to a temporary file beside `path`, renamed to it when the block ends without an error.

    Raises `OutputError` if the file cannot be written there.
    """
    path = Path(os.path.abspath(path))
    try:
        with _replacing(path) as stream:
            yield stream
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
