"""Files from outside that are read whole: of a size that is plausible for what they hold, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

from tbuda_lab.core.errors import InputError


def path_inside(folder: Path, given: Any) -> Path:
    """The path below `folder` that a page or a file names, relative to the current folder where `folder` is. Raises
    `InputError` for one that leaves it: absolute, by `..`, or by a symbolic link."""
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise InputError("a file has a name")
    pure = PurePosixPath(given.replace("\\", "/"))
    path = folder.joinpath(*pure.parts)
    inside = Path(os.path.realpath(folder))  # `Path.resolve` raises RuntimeError for links that lead to themselves
    if pure.is_absolute() or ".." in pure.parts or not Path(os.path.realpath(path)).is_relative_to(inside):
        raise InputError(f"{given!r} leaves the folder: give a path below {inside}")
    return path


def bounded_bytes(path: Path, most: int, otherwise: str) -> bytes:
    """The contents of a file of at most `most` bytes, whatever its size is said to be; `otherwise` says what a larger
    one is. Raises `InputError`."""
    try:
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error
    if len(data) > most:
        raise InputError(f"{path.name} has more than {most >> 20} MiB; it {otherwise}")
    return data


def bounded_text(path: Path, most: int, otherwise: str) -> str:
    """The UTF-8 text of such a file. Raises `InputError`."""
    try:
        return bounded_bytes(path, most, otherwise).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
                         ) from error


def parse_json(text: str, name: str) -> Any:
    """The value of a JSON text. Raises `InputError` with `name` and the place."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{name}: not JSON that can be read: nested too deeply") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(f"{name}: not JSON that can be read: {error}") from error


def json_map(path: Path, what: str, most: int = 4 << 20) -> dict[str, Any]:
    """The object in a JSON file of at most `most` bytes. Raises `InputError`; `what` says what the file should be."""
    json_map = parse_json(bounded_text(path, most, f"is no {what}"), str(path))
    if not isinstance(json_map, dict):
        raise InputError(f"{path}: not a {what}: expected an object at the top")
    return json_map
