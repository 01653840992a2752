"""Writing a device image: its files, names and contents, in a plain tar. Equal compiles make equal bytes."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.bindings import InputBinding, OutputBinding
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.host_chain import HostChain
from tbuda_lab.core.device.descriptor import cluster_text, device_text
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import atomic_file, file_stem
from tbuda_lab.core.files.codec import to_plain
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, NodeKind, print_graph
from tbuda_lab.core.graph.text import array_digest, array_table
from tbuda_lab.core.tti.loaded_image import LoadedImage
from tbuda_lab.core.tti.manifest import BUILD, FOLDER, ImageFacts, manifest_of
from tbuda_lab.core.tti.tensors import DUMP_FORMATS, node_of, stored_bytes
from tbuda_lab.core.tti.weights import without_weights

NPY_HEAD = 128  # bytes; NumPy aligns what follows to 64


@dataclasses.dataclass(frozen=True)
class File:
    """name: in the archive; size: bytes, exact but for tensors (about); content: makes them."""

    name: str
    size: int
    content: Callable[[], bytes]


def image_files(
    loaded: LoadedImage, facts: ImageFacts, *, weights: bool = True, dump_format: str = "default"
) -> list[File]:
    """Every file of the image, by name. Raises `InputError` for an unknown dump format, or weights that are asked for
    and not there."""
    if dump_format not in DUMP_FORMATS:
        raise InputError(f"no dump format {dump_format!r}; there are {', '.join(DUMP_FORMATS)}")
    if loaded.options.training is not None and not weights:
        raise InputError(
            f"{loaded.name} was compiled for training: its image keeps weights and the optimizer's state; "
            "write it with weights"
        )
    if loaded.chain is not None and not weights:
        raise InputError(
            f"{loaded.name} has sections that the host runs: its image keeps weights; write it with weights"
        )
    if weights and loaded.missing:
        raise InputError(f"{loaded.name} has no weights to write: set them first, or write it with weights=False")
    store = _Tensors(dump_format)
    hidden = set() if weights else set(loaded.weight_queues)
    tensors = {q: store.add(f"torch.Tensor.{q}", v) for q, v in loaded.parameters.items() if q not in hidden}
    name = file_stem(loaded.name)
    graph_file = f"module_files/{name}.graph"
    texts = {graph_file: store.graph(loaded.graph, weights, "module.")}
    inputs, outputs = _bindings(loaded, store, weights, texts)
    ours = {
        "graph": graph_file,
        "weights": weights,
        "dump_format": dump_format,
        "inputs": inputs,
        "outputs": outputs,
        "training": _training(loaded, store, texts),
        "arrays": store.arrays,
    }
    ours |= {"chain": _chain(loaded.chain, store, texts)} if loaded.chain is not None else {}
    netlist = f"{name}_netlist.yaml"
    manifest = manifest_of(loaded, facts, netlist, tensors, ours)
    texts |= {
        "device.json": _json(manifest),
        netlist: netlists.dumps(loaded.netlist),
        "compile_and_runtime_config.json": _json(dict(facts.environment)),
        f"{BUILD}/device_desc.yaml": device_text(loaded.device),
        f"{BUILD}/cluster_desc.yaml": cluster_text(loaded.device),
    }
    if loaded.cycles:
        texts[f"{name}_netlist.cycles.csv"] = loaded.cycles  # beside the netlist, as everywhere
    files = [_text_file(n, t) for n, t in texts.items()] + store.files
    return sorted((dataclasses.replace(f, name=f"{FOLDER}/{f.name}") for f in files), key=lambda f: f.name)


def _chain(chain: HostChain, store: _Tensors, texts: dict[str, str]) -> dict[str, Any]:
    """The stages of a model of which the host runs a part, as plain data; their graphs become texts of their own."""
    stages = []
    for number, stage in enumerate(chain.stages):
        file = f"module_files/stages/{number}.graph"
        texts[file] = store.graph(stage.graph, True, "stage.")
        names = {"reads": dict(stage.reads), "gives": dict(stage.gives), "keeps": dict(stage.keeps)}
        stages.append({"place": stage.place, "graph": file, "program": stage.program, **names})
    texts["module_files/device.graph"] = store.graph(chain.device, True, "device.")
    given = dict.fromkeys(value for stage in chain.stages for value in stage.gives.values())
    dtypes = {value: str(chain.dtypes[value]).removeprefix("torch.") for value in given}
    return {"device": "module_files/device.graph", "stages": stages, "dtypes": dtypes}


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _text_file(name: str, text: str) -> File:
    data = text.encode("utf-8", "backslashreplace")
    return File(name, len(data), lambda: data)


def _bindings(
    loaded: LoadedImage, store: _Tensors, weights: bool, texts: dict[str, str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Bindings as plain data; their recipes become texts of their own."""

    def recipe(end: str, number: int, binding: InputBinding | OutputBinding) -> str | None:
        if binding.recipe is None:
            return None
        file = f"module_files/{end}/{number}.graph"
        texts[file] = store.graph(binding.recipe, weights, "host.")
        return file

    inputs = [
        {
            "name": b.name,
            "queue": b.queue,
            "shape": list(b.shape),
            "sources": list(b.sources),
            "recipe": recipe("inputs", i, b),
            **({"gradient_of": b.gradient_of} if b.gradient_of else {}),
        }
        for i, b in enumerate(loaded.inputs)
    ]
    outputs = [
        {
            "name": b.name,
            "queue": b.queue,
            "shape": list(b.shape),
            "tms": [[tm.name, list(tm.args)] for tm in b.tms],
            "recipe": recipe("outputs", i, b),
            **({"phase": b.phase} if b.phase != "forward" else {}),
            **({"dtype": b.dtype} if b.dtype != "float32" else {}),
        }
        for i, b in enumerate(loaded.outputs)
    ]
    return inputs, outputs


def _training(loaded: LoadedImage, store: _Tensors, texts: dict[str, str]) -> dict[str, Any] | None:
    """What a training image says beside an image for inference: the plan, and the weights with their state."""
    if loaded.options.training is None:
        return None
    weights = []
    for number, binding in enumerate(loaded.weights):
        record = to_plain(dataclasses.replace(binding, recipe=None))
        if binding.recipe is not None:
            record["recipe"] = f"module_files/weights/{number}.graph"
            texts[record["recipe"]] = store.graph(binding.recipe, True, "host.")
        weights.append(record)
    return {"plan": to_plain(loaded.options.training), "weights": weights}


class _Tensors:
    """Tensor files, each array of graphs once."""

    def __init__(self, dump_format: str) -> None:
        self.dump_format = dump_format
        self.files: list[File] = []
        self.arrays: dict[str, Any] = {}
        self._names: set[str] = set()

    def add(self, name: str, value: np.ndarray) -> dict[str, Any]:
        """Store an array under a name like this; its node."""
        stem = stem_of = f"tensors/{file_stem(name)}"
        number = 1
        while stem.lower() in self._names:
            number += 1
            stem = f"{stem_of}.{number}"
        self._names.add(stem.lower())
        node, file, content = node_of(value, stem, self.dump_format)
        head = 0 if self.dump_format == "backend" else NPY_HEAD
        self.files.append(File(file, stored_bytes(value) + head, content))
        return node

    def graph(self, graph: Graph, weights: bool, prefix: str) -> str:
        """The text of a graph; arrays that it names by digest are stored."""
        stored = graph if weights else without_weights(graph)
        text = print_graph(stored)
        titles = _titles(stored)
        for digest, array in array_table(stored).items():
            if f"#{digest}" in text and digest not in self.arrays:
                self.arrays[digest] = self.add(prefix + titles.get(digest, digest), array)
        return text


def _titles(graph: Graph) -> Mapping[str, str]:
    """Names for arrays: of the parameter that holds them."""
    return {array_digest(n.value): n.name for n in graph.of_kind(NodeKind.PARAMETER) if n.value is not None}


BLOCK = 512
OF_A_NODE, OF_THE_REST = 400, 24 << 10  # bytes of text: a node of the graph or a queue, and everything else


def write_image(
    path: str | Path,
    loaded: LoadedImage,
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
