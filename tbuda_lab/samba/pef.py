"""PEF files: a device image with `samba.json`, which says what was traced and how the host runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.files import make_folder
from tbuda_lab.core.netlist import dumps
from tbuda_lab.dialects import realisation
from tbuda_lab.dialects.host_program import HostProgram
from tbuda_lab.dialects.program import MEMBER, read_record, sections_of, write_archive
from tbuda_lab.samba.tracing import TracedGraph


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
    op_by_op: bool = False
    early_gradients: bool = False

    def check(self, traced: TracedGraph, path: str) -> None:
        """Raises `InputError` naming the first node that differs between the PEF and what was traced now."""
        if self.fingerprint != traced.fingerprint:
            pairs = zip(self.fingerprint, traced.fingerprint, strict=False)
            there, here = next(((a, b) for a, b in pairs if a != b), ("", ""))
            if not there:
                longer = max(self.fingerprint, traced.fingerprint, key=len)
                there = here = longer[min(len(self.fingerprint), len(traced.fingerprint))]
            raise InputError(
                f"{path} was compiled from a different graph than {traced.name!r}",
                [
                    Diagnostic(
                        "error",
                        here.strip()[:80],
                        "fingerprint",
                        f"the PEF has {there.strip()[:120]!r}",
                        "compile the model again, with the same batch size, optimizer and mapping",
                    )
                ],
            )
        if self.netlist != traced.netlist_digest():
            raise InputError(f"{path} holds another netlist than this version makes of {traced.name!r}: compile again")


@dataclasses.dataclass(frozen=True)
class Pef:
    """A PEF that was read: its graphs by name, and the program's own metadata."""

    graphs: dict[str, GraphRecord]
    metadata: dict[str, Any]


def write_pef(path: Path, graphs: Sequence[TracedGraph], metadata: Mapping[str, Any]) -> None:
    """Write a PEF; it appears whole or not at all."""
    entries: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for traced in graphs:
        compiled, own = traced.program().compiled_form()
        files |= own
        beside = None
        if traced.other_result is not None:
            other = traced.program(traced.other_mapping)
            beside = {"mapping": other.mapping, "program": other.compiled_form()[0], "netlist": other.netlist}
        files[f"{traced.name}.yaml"] = dumps(traced.result.netlist).encode()
        entries.append(
            {
                "name": traced.name,
                "mapping": traced.mapping,
                "spatial_batches": traced.spatial_batches,
                "fingerprint": list(traced.fingerprint),
                "netlist": traced.netlist_digest(),
                "op_by_op": traced.op_by_op,
                "early_gradients": traced.early_gradients,
                "host_program": traced.host_program(scalars=traced.scalars()).to_json(),
                "realisation": realisation.to_json(traced.realisations()),
                "sections": [
                    {"epoch": k, "kind": s.kind, "cycles": s.cycles} for k, s in enumerate(sections_of(traced.result))
                ],
                "mapping_cycles": traced.mapping_cycles(),
                "program": compiled,
                "other_mapping": beside,
                "comparison": traced.comparison(),
                "inputs": [_tensor(s) for s in traced.inputs],
                "outputs": [_tensor(s) for s in traced.outputs],
            }
        )
    plain = {str(k): v for k, v in metadata.items() if isinstance(v, str | int | float | bool | None)}
    make_folder(path.parent)
    write_archive(path, {"version": 1, "metadata": plain, "graphs": entries}, files)


def _tensor(tensor: Any) -> dict[str, Any]:
    return {
        "name": tensor.sn_name,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "batch_dim": tensor.batch_dim,
    }


def read_pef(path: str | Path) -> Pef:
    """Raises `InputError` naming the file for one that is missing, no archive, or not a PEF of ours."""
    data = read_record(path)
    try:
        graphs = {
            g["name"]: GraphRecord(
                str(g["name"]),
                str(g["mapping"]),
                int(g["spatial_batches"]),
                tuple(map(str, g["fingerprint"])),
                str(g["netlist"]),
                HostProgram.from_json(g["host_program"]),
                tuple(g["inputs"]),
                tuple(g["outputs"]),
                g.get("op_by_op") is True,
                g.get("early_gradients") is True,
            )
            for g in data["graphs"]
        }
        return Pef(graphs, dict(data["metadata"]))
    except (InputError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {MEMBER} is not the record of a PEF: {error}") from error
