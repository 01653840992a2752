"""NumPy's files from anybody: `.npy` and `.npz` with plain numbers. Nothing is evaluated, no size is believed.

NumPy's own reader evaluates the header as a Python literal, raises whatever that raises, and makes an array of the size
that stands there before it reads. Here the header is matched against its grammar, and its size against the bytes there
are.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files.bounded import Budget, open_file, shape_text, size_text, unpacked_most

Array = np.ndarray[Any, Any]

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
MAX_DIMENSIONS = 32
MAX_MEMBERS = 100_000
MAX_ARRAYS = 64 << 30
"""Bytes of all arrays of an archive together."""
MAX_RATIO, SMALL = 200, 16 << 20
"""An archive, and each array in it, unpacks to at most `MAX_RATIO` times what it takes up, if to more than `SMALL`
bytes."""

_FIELD = re.compile(r"\s*'(descr|fortran_order|shape)'\s*:\s*('[^']{0,20}'|True|False|\([0-9,\sL]*\))\s*(?:,|$)")
_TYPE = re.compile(r"[<>|=]?[fiubc]\d{1,2}")
BROKEN_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
)
"""What the libraries raise about bytes that are no archive: also lengths that no memory and no integer holds, headers
within headers without end (`RecursionError`), members that are encrypted or packed in ways of later versions."""
_DAMAGED = (*BROKEN_ARCHIVE, KeyError, LookupError, AttributeError, TypeError)


def parse_npy(data: bytes, name: str) -> Array:
    """The array of a `.npy` file's bytes, a view of them. Raises `InputError`; `name` stands in it."""
    stream = io.BytesIO(data)
    dtype, shape, fortran = _header(stream, name)
    start = stream.tell()
    _check_size(shape, dtype, len(data) - start, name)
    return _reshape(np.frombuffer(data, dtype, math.prod(shape), start), shape, fortran)


def read_npz(path: str | Path, select: Callable[[str], bool] | None = None) -> dict[str, Array]:
    """The arrays of an `.npz` file by name; those that `select` refuses stay unread.

    Raises `InputError`: it cannot be read, is damaged or of another kind, holds objects, or states sizes beyond what it
    is itself.
    """
    path = Path(path)
    try:
        with open_file(path) as file:
            head = file.read(len(MAGIC))
            file.seek(0)
            if head == MAGIC:
                raise InputError(f"{path} is a single array; give an .npz with one array per queue")
            if head[:2] != b"PK":
                raise InputError(f"{path} is not an .npz archive of plain arrays: it is a file of another kind")
            with zipfile.ZipFile(file) as archive:
                return _members(archive, path, file.seek(0, io.SEEK_END), select)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except _DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path} is not an .npz archive of plain arrays: {reason}") from error


def _members(archive: zipfile.ZipFile, path: Path, size: int, select: Callable[[str], bool] | None) -> dict[str, Array]:
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MAX_MEMBERS:
        raise InputError(f"{path} has more than {MAX_MEMBERS} arrays")
    budget = Budget(str(path), min(MAX_ARRAYS, unpacked_most(size, MAX_RATIO, SMALL)))
    members: dict[str, Array] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise InputError(f"{path} has two arrays {name!r}")
        if select is not None and not select(name):
            continue
        if info.file_size > unpacked_most(info.compress_size, MAX_RATIO, SMALL):
            raise InputError(
                f"{path}: {name!r} would unpack {size_text(info.compress_size)} to "
                f"{size_text(info.file_size)}; write arrays that are mostly equal without compression"
            )
        budget.take(info.file_size, repr(name))
        with archive.open(info) as stream:
            members[name] = _read(stream, info.file_size, f"{path} is not an .npz archive of plain arrays: {name!r}")
    return members


def _read(stream: Any, size: int, name: str) -> Array:
    dtype, shape, fortran = _header(stream, name)
    count = _check_size(shape, dtype, size - stream.tell(), name)
    array = np.empty(math.prod(shape), dtype)
    view, at = array.view(np.uint8).data if count else memoryview(b""), 0
    while at < count:
        piece = stream.read(min(count - at, 1 << 20))
        if not piece:
            raise InputError(f"{name} is cut off: {at} of {count} bytes")
        view[at : at + len(piece)] = piece
        at += len(piece)
    return _reshape(array, shape, fortran)


def _header(stream: BinaryIO, name: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """(type, shape, whether columns come first) that a `.npy` file states."""
    magic = stream.read(8)
    if magic[:6] != MAGIC or len(magic) < 8:
        raise InputError(f"{name} is not an .npy file")
    length = stream.read(2 if magic[6] == 1 else 4)
    if magic[6] not in (1, 2, 3) or len(length) != (2 if magic[6] == 1 else 4):
        raise InputError(f"{name} is a .npy file of an unknown version")
    size = int.from_bytes(length, "little")
    if size > MAX_HEADER:
        raise InputError(f"{name}: its header has {size} bytes, more than {MAX_HEADER}")
    raw = stream.read(size)
    text = raw.decode("latin-1").strip()
    fields: dict[str, str] = {}
    inside = text[1:-1].strip() if text[:1] == "{" and text[-1:] == "}" and len(raw) == size else "none"
    at = 0
    while at < len(inside):
        match = _FIELD.match(inside, at)
        if match is None or match[1] in fields:
            raise InputError(
                f"{name}: its header does not state a type of plain numbers and a shape (arrays of "
                f"objects and records are not read): {text[:80]!r}"
            )
        fields[match[1]] = match[2]
        at = match.end()
    if set(fields) != {"descr", "fortran_order", "shape"}:
        raise InputError(f"{name}: its header lacks type, order or shape: {text[:80]!r}")
    kind, order, shape_of = fields["descr"][1:-1], fields["fortran_order"], fields["shape"]
    if not _TYPE.fullmatch(kind) or order not in ("True", "False") or shape_of[0] != "(":
        raise InputError(f"{name} holds no plain numbers: its type is {kind!r}")
    try:
        dtype = np.dtype(kind)
    except TypeError as error:
        raise InputError(f"{name} holds no plain numbers: its type is {kind!r}") from error
    sizes = [part.strip().removesuffix("L") for part in shape_of[1:-1].split(",")]
    if sizes[-1] == "":
        sizes.pop()
    if len(sizes) > MAX_DIMENSIONS or not all(part.isdecimal() and len(part) <= 30 for part in sizes):
        raise InputError(f"{name}: its header states a shape that no array has: {shape_of[:80]!r}")
    return dtype, tuple(map(int, sizes)), order == "True"


def _check_size(shape: tuple[int, ...], dtype: np.dtype[Any], there: int, name: str) -> int:
    count = math.prod(shape) * dtype.itemsize
    if count > there:
        raise InputError(
            f"{name} has {size_text(max(there, 0))} of numbers; its shape {shape_text(shape)} of {dtype} "
            f"takes {size_text(count)}"
        )
    if math.prod(n for n in shape if n) * dtype.itemsize >= 1 << 62:  # one of its sizes is 0
        raise InputError(f"{name}: no array has the shape {shape_text(shape)}")
    return count


def _reshape(flat: Array, shape: tuple[int, ...], fortran: bool) -> Array:
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
