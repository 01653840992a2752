"""Files from outside that are read whole: of a size that is plausible for what they hold, or not at all.

What a file says of sizes is checked here before anything of that size is made.
"""

from __future__ import annotations

import collections
import json
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from tbuda_lab.core.errors import InputError


def path_inside(folder: Path, name: Any) -> Path:
    """The path below `folder` that a page or a file names, relative to the current folder where `folder` is. Raises
    `InputError` for one that leaves it: absolute, by `..`, or by a symbolic link."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise InputError("the name of the file is missing")
    pure = PurePosixPath(name.replace("\\", "/"))
    path = folder.joinpath(*pure.parts)
    inside = Path(os.path.realpath(folder))  # `Path.resolve` raises RuntimeError for links that lead to themselves
    try:
        real = Path(os.path.realpath(path))
    except UnicodeEncodeError as error:
        raise InputError(f"{name!r} is no name of a file: it holds half a character") from error
    if pure.is_absolute() or ".." in pure.parts or not real.is_relative_to(inside):
        raise InputError(f"{name!r} leaves the folder: give a path below {inside}")
    return path


_OTHERS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_file(path: Path) -> BinaryIO:
    """A file, open for reading bytes. Raises `InputError` where it cannot be read, and for what is no file: a pipe
    waits for a writer that may never come, a device has no end, so neither is opened."""
    try:
        _refuse_others(path, os.stat(path).st_mode)
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            _refuse_others(path, os.fstat(file).st_mode)  # it may have become another since
            return os.fdopen(file, "rb")
        except BaseException:
            os.close(file)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a name with a zero byte
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error


def _refuse_others(path: Path, mode: int) -> None:
    for is_one, name in _OTHERS:
        if is_one(mode):
            raise InputError(f"{path} cannot be read: it is {name}, not a file; write what it gives to a file first")


_PIECE = 1 << 20
"""Bytes of a read where the size of a file is not known."""


def bounded_bytes(path: Path, most: int, otherwise: str) -> bytes:
    """The contents of a file of at most `most` bytes, whatever its size is said to be; `otherwise` says what a larger
    one is. Raises `InputError`."""
    with open_file(path) as stream:
        try:
            data = stream.read(min(most, os.fstat(stream.fileno()).st_size) + 1)
            while len(data) <= most and (more := stream.read(min(most + 1 - len(data), max(len(data), _PIECE)))):
                data += more  # of a file that grows, or that says it is empty
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > most:
        raise InputError(f"{path.name} has more than {most >> 20} MiB; it {otherwise}")
    return data


def bounded_text(path: Path, most: int, otherwise: str) -> str:
    """The UTF-8 text of such a file. Raises `InputError`."""
    try:
        return bounded_bytes(path, most, otherwise).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        ) from error


def parse_json(text: str, name: str) -> Any:
    """The value of a JSON text. Raises `InputError` with `name`, and the place where there is one; a name that an
    object has twice is an error."""
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InputError(f"{name}: not JSON that can be read: nested too deeply") from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError(f"{name}: not JSON that can be read: {error}") from error


def json_map(path: Path, what: str, most: int = 4 << 20) -> dict[str, Any]:
    """The object in a JSON file of at most `most` bytes. Raises `InputError`; `what` says what the file should be."""
    json_map = parse_json(bounded_text(path, most, f"is not a {what}"), str(path))
    if not isinstance(json_map, dict):
        raise InputError(f"{path}: not a {what}: expected an object at the top")
    return json_map


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members, for a JSON decoder. Raises `ValueError` for a name that occurs twice: of two values
    none is known to be meant."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        name = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"{name[:80]!r} occurs twice in an object")
    return members


class Budget:
    """Bytes that everything a file states may take, all together; `name` of the file stands in errors."""

    def __init__(self, name: str, most: int) -> None:
        self.name, self.most, self.left = name, most, most

    def take(self, size: int, what: str) -> None:
        """Raises `InputError` where `size` bytes for `what` are more than is left."""
        if size < 0 or size > self.left:
            raise InputError(
                f"{self.name}: {what} would take {size_text(size)}; {size_text(self.left)} of "
                f"{size_text(self.most)} are left for what is in this file"
            )
        self.left -= size

    def grow(self, size: int) -> None:
        """Allow as many bytes more."""
        self.most, self.left = self.most + size, self.left + size

    def take_array(self, shape: Sequence[int], itemsize: int, what: str) -> None:
        """As `take`, for an array of that shape."""
        if any(n < 0 for n in shape):
            raise InputError(f"{self.name}: {what} has the shape {shape_text(shape)}, with sizes below 0")
        self.take(math.prod(shape) * itemsize, f"{what} of shape {shape_text(shape)}")


def unpacked_most(packed: int, ratio: int, small: int) -> int:
    """Bytes that `packed` bytes may unpack to: `ratio` times as many, but `small` ones always."""
    return max(small, ratio * packed)


def size_text(size: int) -> str:
    """A number of bytes in words."""
    if abs(size) >= 1 << 80:
        return f"2^{size.bit_length() - 1} bytes"
    for bits, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 1 << bits:
            return f"{size / (1 << bits):.1f} {unit}"
    return f"{size} bytes"


def shape_text(shape: Sequence[int]) -> str:
    """A shape, however long, for messages."""
    text = "x".join(size if len(size := hex(n) if n.bit_length() > 64 else str(n)) <= 24 else "..." for n in shape[:8])
    return (text or "()") + (" and so on" if len(shape) > 8 else "")
