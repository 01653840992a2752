"""Text files from outside that are read whole: of a size that is plausible for what they hold, or not at all."""

from __future__ import annotations

from pathlib import Path

from tbuda_lab.core.errors import InputError


def bounded_text(path: Path, most: int, otherwise: str) -> str:
    """The UTF-8 text of a file of at most `most` bytes; `otherwise` says what a larger one is. Raises `InputError`."""
    try:
        if path.stat().st_size > most:
            raise InputError(f"{path.name} has more than {most >> 20} MiB; it {otherwise}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not UTF-8 text") from error
