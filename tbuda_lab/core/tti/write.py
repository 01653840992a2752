"""Writing a device image: a plain tar whose bytes depend on what is in it and on nothing else."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path, PurePosixPath

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.files import atomic_file
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.tti.files import image_files
from tbuda_lab.core.tti.loaded import Loaded
from tbuda_lab.core.tti.manifest import ImageFacts

BLOCK = 512
OF_A_NODE, OF_THE_REST = 400, 24 << 10  # bytes of text: a node of the graph or a queue, and everything else


def write_image(
    path: str | Path,
    loaded: Loaded,
    facts: ImageFacts | None = None,
    *,
    weights: bool = True,
    dump_format: str = "default",
) -> None:
    """Write `*.tti`; it appears whole or not at all. Raises `InputError` as `image_files` does, `OutputError`."""
    files = image_files(loaded, facts or ImageFacts(), weights=weights, dump_format=dump_format)
    folders = {str(parent) for file in files for parent in PurePosixPath(file.name).parents if str(parent) != "."}
    with atomic_file(path) as temporary, tarfile.open(temporary, "w:", format=tarfile.GNU_FORMAT) as tar:
        for folder in sorted(folders):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
        for file in files:
            data = file.content()
            entry = _entry(file.name, tarfile.REGTYPE, 0o644)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def image_size(result: CompileResult, *, weights: bool = True) -> int:
    """About how many bytes the archive of a compile would have, without making it."""
    queues = result.netlist.queues
    selected = {n.name for n in result.lowered.of_kind(NodeKind.PARAMETER)}
    size = len(netlists.dumps(result.netlist)) + OF_A_NODE * (len(result.graph.nodes) + len(queues))
    for name, value in result.parameters.items():
        if weights or name not in selected:
            size += BLOCK + value.size * (2 if queues[name].df is DataFormat.Float16_b else value.itemsize)
    for node in result.graph:
        if node.value is not None and (weights or node.kind is not NodeKind.PARAMETER):
            size += BLOCK + node.value.nbytes
    return size + OF_THE_REST


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    """A header without owner and time."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, 0
    return entry
