"""PEF files: a device image with `samba.json`, which says what was traced and how the host runs it."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.files import atomic_file
from tbuda_lab.core.netlist import dumps
from tbuda_lab.dialects import realisation
from tbuda_lab.dialects.hostprogram import HostProgram
from tbuda_lab.samba.tracing import Traced

FOLDER = "unzipped_tti"
MEMBER = f"{FOLDER}/samba.json"
MOST = 64 << 20
"""Bytes of `samba.json` that are read."""


@dataclasses.dataclass(frozen=True)
class GraphRecord:
    """What a PEF says of one graph. fingerprint: the traced graph, a line per node; netlist: hash of the netlist."""

    name: str
    mapping: str
    spatial_batches: int
    fingerprint: tuple[str, ...]
    netlist: str
    host_program: HostProgram
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]

    def check(self, traced: Traced, path: str) -> None:
        """Raises `InputError` naming the first node that differs between the PEF and what was traced now."""
        if self.fingerprint != traced.fingerprint:
            pairs = zip(self.fingerprint, traced.fingerprint, strict=False)
            there, here = next(((a, b) for a, b in pairs if a != b), ("", ""))
            if not there:
                longer = max(self.fingerprint, traced.fingerprint, key=len)
                there = here = longer[min(len(self.fingerprint), len(traced.fingerprint))]
            raise InputError(
                f"{path} was compiled from another graph than {traced.name!r}",
                [Diagnostic("error", here.strip()[:80], "fingerprint", f"the PEF has {there.strip()[:120]!r}",
                            "compile the model again, with the same batch size, optimizer and mapping")],
            )  # fmt: skip
        if self.netlist != traced.netlist_digest():
            raise InputError(f"{path} holds another netlist than this version makes of {traced.name!r}: compile again")


@dataclasses.dataclass(frozen=True)
class Pef:
    """A PEF that was read: its graphs by name, and the program's own metadata."""

    graphs: dict[str, GraphRecord]
    metadata: dict[str, Any]


def write_pef(path: Path, graphs: Sequence[Traced], metadata: Mapping[str, Any]) -> None:
    """Write a PEF; it appears whole or not at all."""
    record = {
        "version": 1,
        "metadata": {str(k): v for k, v in metadata.items() if isinstance(v, str | int | float | bool | None)},
        "graphs": [
            {
                "name": t.name, "mapping": t.mapping, "spatial_batches": t.spatial_batches,
                "fingerprint": list(t.fingerprint), "netlist": t.netlist_digest(),
                "host_program": t.host_program(scalars=t.scalars()).to_json(),
                "realisation": realisation.to_json(t.realisations()),
                "sections": [{"epoch": k, "cycles": int(c)} for k, c in enumerate(t.result.placement.epoch_cycles)],
                "inputs": [_tensor(s) for s in t.inputs], "outputs": [_tensor(s) for s in t.outputs],
            }
            for t in graphs
        ],
    }  # fmt: skip
    files = {MEMBER: json.dumps(record, indent=1, sort_keys=True)}
    files |= {f"{FOLDER}/{t.name}.yaml": dumps(t.result.netlist) for t in graphs}
    with atomic_file(path) as temporary, tarfile.open(temporary, "w:", format=tarfile.GNU_FORMAT) as tar:
        for name, text in sorted(files.items()):
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 0
            tar.addfile(entry, io.BytesIO(data))


def _tensor(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.sn_name, "shape": list(tensor.shape), "dtype": str(tensor.dtype),
            "batch_dim": tensor.batch_dim}  # fmt: skip


def read_pef(path: str | Path) -> Pef:
    """Raises `InputError` naming the file for one that is missing, no archive, or not a PEF of ours."""
    try:
        with tarfile.open(path, "r:") as tar:
            member = tar.getmember(MEMBER)
            if not member.isfile() or member.size > MOST:
                raise InputError(f"{path}: {MEMBER} is no file of at most {MOST} bytes")
            stream = tar.extractfile(member)
            assert stream is not None
            data = json.loads(stream.read(MOST))
    except (OSError, tarfile.TarError, KeyError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no PEF: {error}") from error
    try:
        graphs = {
            g["name"]: GraphRecord(
                str(g["name"]), str(g["mapping"]), int(g["spatial_batches"]), tuple(map(str, g["fingerprint"])),
                str(g["netlist"]), HostProgram.from_json(g["host_program"]), tuple(g["inputs"]), tuple(g["outputs"]),
            )
            for g in data["graphs"]
        }  # fmt: skip
        return Pef(graphs, dict(data["metadata"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {MEMBER} has not the form of a PEF: {error}") from error
