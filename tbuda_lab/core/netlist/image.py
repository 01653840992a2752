"""TTI archives, read only: what the manifest says and the netlists inside. Nothing is extracted, nothing unpickled.

The layout is that of netlist.md 5.1: a tar (older ones: a zip) with one folder, in it `device.json`, the netlist, and
tensors, which are listed by name and size alone.
"""

from __future__ import annotations

import dataclasses
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from tbuda_lab.core.errors import InputError

MAX_TEXT = 64 << 20     # bytes of the manifest or one netlist
MAX_MEMBERS = 200_000
MANIFEST = "device.json"


@dataclasses.dataclass(frozen=True)
class Member:
    """One file of the archive; `size` in bytes."""

    name: str
    size: int


@dataclasses.dataclass(frozen=True)
class Image:
    """An archive in memory. manifest: device.json as it stands. netlists: text by name, the manifest's own first."""

    path: str
    manifest: dict[str, Any]
    netlists: dict[str, str]
    members: tuple[Member, ...]

    @property
    def pickles(self) -> int:
        """Files that only unpickling could read; they stay closed."""
        return sum(m.name.endswith(".pkl") for m in self.members)


def read_image(path: str | Path) -> Image:
    """Reads a `*.tti` file. Raises `InputError` that says what is wrong with it."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _read(file, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _read(file: BinaryIO, path: Path) -> Image:
    magic = file.read(4)
    file.seek(0)
    archive: _Tar | _Zip = _Zip(file) if magic == b"PK\x03\x04" else _Tar(file, path)
    members: list[Member] = []
    texts: dict[str, str] = {}
    for name, size, handle in archive.members():
        plain = _plain(name, path)
        if len(members) >= MAX_MEMBERS:
            raise InputError(f"{path} has more than {MAX_MEMBERS} files")
        members.append(Member(plain, size))
        depth, last = len(PurePosixPath(plain).parts), PurePosixPath(plain).name
        if depth <= 2 and (last == MANIFEST or last.endswith((".yaml", ".yml"))):
            if size > MAX_TEXT:
                raise InputError(f"{plain} in {path} has {size} bytes, more than {MAX_TEXT}")
            try:
                texts[plain] = archive.read(handle).decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise InputError(f"{plain} in {path} is not text: {error}") from error
    manifest = _manifest(texts, path)
    state = manifest.get("compiled_graph_state")
    own = PurePosixPath(str(state.get("netlist_filename", ""))).name if isinstance(state, dict) else ""
    netlists = {n: t for n, t in texts.items() if not n.endswith(".json")}
    first = sorted(netlists, key=lambda n: (PurePosixPath(n).name != own, n))
    return Image(str(path), manifest, {n: netlists[n] for n in first}, tuple(sorted(members, key=lambda m: m.name)))


def _manifest(texts: dict[str, str], path: Path) -> dict[str, Any]:
    name = next((n for n in texts if PurePosixPath(n).name == MANIFEST), None)
    if name is None:
        raise InputError(f"{path} has no {MANIFEST}: it is no TTI archive, or one of an unknown version")
    try:
        manifest = json.loads(texts[name])
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{name} in {path} is not JSON: {error}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{name} in {path} is no object")
    return manifest


def _plain(name: str, path: Path) -> str:
    """A member's name, if it stays inside the archive's folder."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or "\0" in name:
        raise InputError(f"{path} names a file outside itself: {name!r}")
    return str(parts)


class _Tar:
    def __init__(self, file: BinaryIO, path: Path) -> None:
        try:
            self.tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - closed with its file
        except tarfile.ReadError as error:
            raise InputError(f"{path} is neither a tar nor a zip: {error}") from error

    def members(self) -> Iterator[tuple[str, int, tarfile.TarInfo]]:
        for member in self.tar:
            if member.isfile():  # links and devices are no part of an image
                yield member.name, member.size, member

    def read(self, member: Any) -> bytes:
        handle = self.tar.extractfile(member)
        return handle.read() if handle is not None else b""


class _Zip:
    def __init__(self, file: BinaryIO) -> None:
        self.zip = zipfile.ZipFile(file)

    def members(self) -> Iterator[tuple[str, int, zipfile.ZipInfo]]:
        for info in self.zip.infolist():
            if not info.is_dir():
                yield info.filename, info.file_size, info

    def read(self, info: Any) -> bytes:
        with self.zip.open(info) as handle:  # no more than it says, whatever it unpacks to
            return handle.read(int(info.file_size))


def image_facts(image: Image) -> list[tuple[str, str]]:
    """The manifest in words: (what, value), in the order a reader wants."""
    m = image.manifest
    found = m.get("compiled_graph_state")
    state: dict[str, Any] = found if isinstance(found, dict) else {}
    size = sum(member.size for member in image.members)
    facts = [
        ("name", _text(m.get("device_image_name"))), ("version", _text(m.get("version"))),
        ("arch", _enum(m.get("arch"))), ("backend", _enum(m.get("devtype"))), ("chips", _text(m.get("chip_ids"))),
        ("grid", " rows x ".join(map(str, g)) + " columns" if isinstance(g := m.get("grid_size"), list) else ""),
        ("harvested", _text(m.get("harvested_rows"))), ("microbatch", _text(m.get("microbatch_size"))),
        ("training", _text(m.get("training"))), ("inputs", _text(state.get("ordered_input_names"))),
        ("input shapes", _text(state.get("ordered_input_shapes"))),
        ("outputs", _text(state.get("ordered_output_names"))),
        ("made by", _text(m.get("pybuda_pip_version_id"))),
        ("files", f"{len(image.members):,}, {size:,} bytes"
         + (f"; {image.pickles} of them pickles, which are not opened" if image.pickles else "")),
    ]  # fmt: skip
    return [(what, value) for what, value in facts if value]


def _enum(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("__enum__", "")
    return str(value).rpartition(".")[2] if value else ""


def _text(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, list):
        return ", ".join(str(v) for v in value[:12]) + (f" and {len(value) - 12} more" if len(value) > 12 else "")
    return str(value)[:300]
