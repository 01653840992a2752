"""Archives from elsewhere (tar or zip), read member by member: nothing is extracted, nothing leaves the archive.

What a member claims is checked before a byte of it is unpacked: names that climb out, names that stand twice, holes
of sparse files, zip members that unpack to far more than they take up. Links and devices are no members at all.
"""

from __future__ import annotations

import dataclasses
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO

from tbuda_lab.core.errors import InputError

MAX_MEMBERS = 200_000
MAX_UNPACKED = 64 << 30
"""Bytes of all members of a zip together."""
MAX_RATIO, PLENTY = 200, 16 << 20
"""A zip member larger than `PLENTY` bytes unpacks to at most `MAX_RATIO` times what it takes up."""


@dataclasses.dataclass(frozen=True)
class Member:
    """One file of the archive; `size` in bytes, unpacked."""

    name: str
    size: int


class Archive:
    """A tar or a zip, by its first bytes; a context manager.

    `members`: plain files by name. Raises `InputError` that says what is wrong with the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._handles: dict[str, Any] = {}
        self.members: dict[str, Member] = {}
        self._closing: list[Any] = []
        try:
            file = self.path.open("rb")
            self._closing.append(file)
            magic = file.read(4)
            file.seek(0)
            self._zip = zipfile.ZipFile(file) if magic == b"PK\x03\x04" else None
            self._tar = None if self._zip is not None else self._opened(file)
            self._list()
        except OSError as error:
            self.close()
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
            self.close()
            raise InputError(f"{self.path} is damaged: {error}") from error
        except InputError:
            self.close()
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._closing:
            self._closing.pop().close()

    def _opened(self, file: BinaryIO) -> tarfile.TarFile:
        try:
            return tarfile.open(fileobj=file, mode="r:")  # closed with its file
        except tarfile.ReadError as error:
            raise InputError(f"{self.path} is neither a tar nor a zip: {error}") from error

    def _list(self) -> None:
        if self._zip is not None:
            for info in self._zip.infolist():
                if not info.is_dir():
                    self._add(info.filename, info.file_size, info)
                    if info.file_size > max(PLENTY, MAX_RATIO * info.compress_size):
                        raise InputError(f"{info.filename} in {self.path} would unpack {info.compress_size} bytes to "
                                         f"{info.file_size}: that is no file of a device image")
            if sum(member.size for member in self.members.values()) > MAX_UNPACKED:
                raise InputError(f"{self.path} would unpack to more than {MAX_UNPACKED >> 30} GiB")
            return
        assert self._tar is not None
        for entry in self._tar:
            if entry.issparse():
                raise InputError(f"{entry.name} in {self.path} is a sparse file; an image has none")
            if entry.isfile():  # links and devices are no part of an image
                self._add(entry.name, entry.size, entry)

    def _add(self, name: str, size: int, handle: Any) -> None:
        plain = self._plain(name)
        if len(self.members) >= MAX_MEMBERS:
            raise InputError(f"{self.path} has more than {MAX_MEMBERS} files")
        if plain in self.members:
            raise InputError(f"{self.path} has two files {plain!r}")
        self.members[plain] = Member(plain, size)
        self._handles[plain] = handle

    def _plain(self, name: str) -> str:
        """A member's name, if it stays inside the archive's folder."""
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or "\0" in name or not parts.parts:
            raise InputError(f"{self.path} names a file outside itself: {name!r}")
        return str(parts)

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a member of at most `most` bytes. Raises `InputError`."""
        if name not in self.members:
            raise InputError(f"{self.path} has no file {name!r}")
        size = self.members[name].size
        if size > most:
            raise InputError(f"{name} in {self.path} has {size} bytes, more than {most}")
        try:
            handle = self._handles[name]
            if self._zip is not None:
                with self._zip.open(handle) as stream:  # no more than it says, whatever it unpacks to
                    data = stream.read(size)
            else:
                assert self._tar is not None
                extracted = self._tar.extractfile(handle)
                data = extracted.read(size) if extracted is not None else b""
        except (OSError, EOFError, RuntimeError, NotImplementedError, tarfile.TarError, zipfile.BadZipFile,
                zlib.error) as error:
            raise InputError(f"{name} in {self.path} is damaged: {error}") from error
        if len(data) != size:
            raise InputError(f"{name} in {self.path} is cut off: {len(data)} of {size} bytes")
        return data

    def text(self, name: str, most: int) -> str:
        """The UTF-8 text of a member. Raises `InputError`."""
        try:
            return self.read(name, most).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} in {self.path} is not text: {error}") from error
