"""Archives from elsewhere (tar or zip), read member by member: nothing is extracted, nothing leaves the archive.

What a member claims is checked before a byte of it is unpacked: names that climb out, names that stand twice, sizes
below nothing and headers that lead back, holes of sparse files, zips that unpack to far more than they take up. Links
and devices are no members at all.
"""

from __future__ import annotations

import dataclasses
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO, Self

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import BROKEN_ARCHIVE, open_file, unpacked_most

MAX_MEMBERS = 200_000
MAX_UNPACKED = 64 << 30
"""Bytes of all members of a zip together."""
MAX_RATIO, PLENTY = 100, 4 << 20
"""A zip, and each of its members, unpacks to at most `MAX_RATIO` times what it takes up, if to more than `PLENTY`
bytes."""

MAX_HEADER = 8 << 10
"""Bytes of a tar's header that holds a long name or further fields of the next one."""

_OF_THE_NEXT = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_DAMAGED = (tarfile.TarError, *BROKEN_ARCHIVE)


@dataclasses.dataclass(frozen=True)
class Member:
    """One file of the archive; `size` in bytes, unpacked."""

    name: str
    size: int


class _Entry(tarfile.TarInfo):
    """A header of a tar that claims nothing impossible."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.size < 0 or (entry.type in _OF_THE_NEXT and entry.size > MAX_HEADER):
            raise tarfile.ReadError(f"a header says that {entry.size} bytes follow")
        return entry


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
            file = open_file(self.path)
            self._closing.append(file)
            magic = file.read(4)
            file.seek(0)
            self._zip = zipfile.ZipFile(file) if magic == b"PK\x03\x04" else None
            self._tar = None if self._zip is not None else self._open(file)
            self._list()
        except OSError as error:
            self.close()
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except InputError:
            self.close()
            raise
        except _DAMAGED as error:
            self.close()
            raise InputError(f"{self.path} is damaged: {str(error) or type(error).__name__}") from error

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._closing:
            self._closing.pop().close()

    def _open(self, file: BinaryIO) -> tarfile.TarFile:
        try:
            return tarfile.open(fileobj=file, mode="r:", tarinfo=_Entry)  # closed with its file
        except tarfile.ReadError as error:
            raise InputError(f"{self.path} is neither a tar nor a zip: {error}") from error

    def _list(self) -> None:
        if self._zip is not None:
            self._list_zip(self._zip)
            return
        assert self._tar is not None
        last = -1
        for entry in self._tar:
            if entry.size < 0 or entry.offset <= last:  # further fields may say so too; it leads back, for ever
                raise InputError(f"{self.path} is damaged: {entry.name} has a size of {entry.size}")
            last = entry.offset
            if entry.issparse():
                raise InputError(f"{entry.name} in {self.path} is a sparse file; an image has none")
            if entry.isfile():  # links and devices are no part of an image
                self._add(entry.name, entry.size, entry)

    def _list_zip(self, archive: zipfile.ZipFile) -> None:
        for info in archive.infolist():
            if info.is_dir():
                continue
            self._add(info.filename, info.file_size, info)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(
                    f"{info.filename} in {self.path} is packed by method {info.compress_type}: an image "
                    "is stored or deflated"
                )
            if info.file_size > unpacked_most(info.compress_size, MAX_RATIO, PLENTY):
                raise InputError(
                    f"{info.filename} in {self.path} would unpack {info.compress_size} bytes to "
                    f"{info.file_size}: that is not a file of a device image"
                )
        total, size = sum(member.size for member in self.members.values()), self.path.stat().st_size
        # members may also share what they take up
        if total > min(MAX_UNPACKED, unpacked_most(size, MAX_RATIO, PLENTY)):
            raise InputError(f"{self.path} would unpack {size} bytes to {total}: that is not a device image")

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
        except (OSError, *_DAMAGED) as error:
            raise InputError(f"{name} in {self.path} is damaged: {str(error) or type(error).__name__}") from error
        if len(data) != size:
            raise InputError(f"{name} in {self.path} is cut off: {len(data)} of {size} bytes")
        return data

    def text(self, name: str, most: int) -> str:
        """The UTF-8 text of a member. Raises `InputError`."""
        try:
            return self.read(name, most).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} in {self.path} is not text: {error}") from error
