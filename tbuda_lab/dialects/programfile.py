"""Files that hold a dialect's program: an archive of netlists, with a record in JSON and the graphs behind them.

Nothing in it is believed: sizes are limited, names of files are looked up in the archive's own list, nothing is
unpickled or extracted.
"""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import Budget, atomic_file, parse_json
from tbuda_lab.core.netlist.archive import Archive
from tbuda_lab.dialects.hostprogram import HostProgram
from tbuda_lab.dialects.program import GraphProgram

SUFFIX = ".pef"
FOLDER = "unzipped_tti"
MEMBER = f"{FOLDER}/samba.json"
MOST = 64 << 20
"""Bytes of the record, and of any one file of a graph, that are read."""
REREAD = 16 << 20
"""Bytes that may be read of any archive beside twice its size: graphs may name the same files."""
MAX_MADE_UP = 1 << 30
"""Bytes of weights that are made up for all graphs of a file together, which leaves them out."""


def write_archive(path: Path, record: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write the record and files by name; the archive appears whole or not at all. Equal contents make equal bytes."""
    contents = {MEMBER: json.dumps(record, indent=1, sort_keys=True).encode()}
    contents |= {f"{FOLDER}/{name}": data for name, data in files.items()}
    with atomic_file(path) as temporary, tarfile.open(temporary, "w:", format=tarfile.GNU_FORMAT) as tar:
        for name, data in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 0
            tar.addfile(entry, io.BytesIO(data))


def read_record(path: str | Path) -> dict[str, Any]:
    """The record of an archive. Raises `InputError` naming the file for one that is missing, no archive, or without a
    record."""
    try:
        with Archive(path) as archive:
            return _record(archive)
    except InputError as error:
        raise InputError(f"{path} is not a PEF: {error}") from error


def _record(archive: Archive) -> dict[str, Any]:
    if MEMBER not in archive.members:
        raise InputError(f"there is no {MEMBER} in it")
    data = parse_json(archive.text(MEMBER, MOST), MEMBER)
    if not isinstance(data, dict) or not isinstance(data.get("graphs"), list):
        raise InputError(f"{MEMBER} has no list of graphs")
    return data


def read_programs(path: str | Path) -> tuple[GraphProgram, ...]:
    """The graphs of an archive, ready for sessions. Raises `InputError` naming the file and what is wrong."""
    try:
        with Archive(path) as archive:
            graphs = _record(archive)["graphs"]
            if not graphs:
                raise InputError("it has no graphs")
            reading = Budget("the archive", REREAD + 2 * sum(member.size for member in archive.members.values()))
            made_up = Budget("the archive", MAX_MADE_UP)
            return tuple(p for entry in graphs for p in _programs(archive, entry, reading, made_up))
    except InputError as error:
        raise InputError(f"{path} is not a PEF: {error}") from error


def _programs(archive: Archive, entry: Any, reading: Budget, made_up: Budget) -> list[GraphProgram]:
    """A graph as it was compiled, and its placement in the other mapping beside it where it has one."""

    def read(name: str) -> bytes:
        member = f"{FOLDER}/{name}"
        if member not in archive.members:
            raise InputError(f"the file {name!r} that it names is not there")
        reading.take(archive.members[member].size, f"reading {name!r} once more")
        return archive.read(member, MOST)

    try:
        name, mapping, netlist = str(entry["name"]), str(entry["mapping"]), str(entry["netlist"])
        forms = [(mapping, entry["program"], netlist)]
        other = entry.get("other_mapping")
        if other is not None:
            forms.append((str(other["mapping"]), other["program"], str(other["netlist"])))
        notes = tuple(filter(None, [str(entry.get("comparison", ""))]))
        steps = HostProgram.from_json(entry["host_program"])
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a graph lacks {error}: compile the program again") from error
    read_forms = [
        GraphProgram.from_files(name, how, form, steps, digest, read, made_up) for how, form, digest in forms
    ]
    return [dataclasses.replace(program, notes=(*program.notes, *notes)) for program in read_forms]


__all__ = ["FOLDER", "MEMBER", "SUFFIX", "read_programs", "read_record", "write_archive"]
