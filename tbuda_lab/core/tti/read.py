"""Reading a device image that this project wrote. The archive is data: nothing is extracted, unpickled or imported."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np
import torch

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.bindings import InputBinding, OutputBinding, WeightBinding
from tbuda_lab.core.compiler.host_chain import HostChain, Stage
from tbuda_lab.core.device import ARCHS, DeviceSpec
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import Budget, shape_text
from tbuda_lab.core.files.codec import of_plain
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TM, Graph, GraphError, NodeKind, parse_graph
from tbuda_lab.core.graph.phases import PHASE, WRITES, direction_of, is_part
from tbuda_lab.core.graph.text import DIGEST
from tbuda_lab.core.graph.tm import TMError, apply_shapes
from tbuda_lab.core.graph.verify import problems
from tbuda_lab.core.lowering.values import collapse
from tbuda_lab.core.netlist.archive import Archive
from tbuda_lab.core.netlist.image import Files, Image, image_of, is_pickle, manifest_name
from tbuda_lab.core.netlist.schema import Netlist, Queue
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.options import CompileOptions, TrainingOptions, options_from_json
from tbuda_lab.core.overrides import from_json
from tbuda_lab.core.runner import program_ends
from tbuda_lab.core.tti.loaded_image import LoadedImage, ModuleFacts, in_order
from tbuda_lab.core.tti.manifest import SECTION, TILE_DIM, VERSION
from tbuda_lab.core.tti.tensors import MAX_TENSOR, file_of, tensor_of

T = TypeVar("T")
MAX_GRAPH = 256 << 20  # bytes of the text of a graph
REREAD = 16 << 20  # bytes that may be read of any archive beside twice its size: files may be named several times
AT_LEAST_ONE = (
    "rows",
    "cols",
    "l1_size",
    "dst_bytes",
    "dram_channel_bytes",
    "dram_address_align",
    "tile_align",
    "clock_hz",
    "noc_bytes_per_cycle",
    "dram_bytes_per_cycle",
    "pcie_bytes_per_cycle",
)
"""Numbers of a device that things are divided by, or that without there is no device."""


def load_image(path: str | Path) -> LoadedImage:
    """A device image, ready to run.

    Raises `InputError`: the file is no archive or damaged; it was written by another program or version (its netlist
    can still be looked at); its manifest, tensors and netlist do not agree.
    """
    with Archive(path) as archive:
        image = image_of(archive)
        reader = _ImageReader(archive, image)
        return reader.with_chain(reader.load())


def ours(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest has what it takes to run the image here."""
    return isinstance(manifest.get(SECTION), dict)


def _shape(queue: Queue) -> tuple[int, int, int]:
    """(t, R, C) of an entry."""
    z, rows, cols = queue.blocking.tiles(queue.grid_size)
    height, width = queue.tile_dim or TILE_DIM
    return z, rows * height, cols * width


def _forward(part: object) -> bool:
    """Whether a part of a graph runs forward, as that of any subgraph does; a graph of one part names none."""
    return part is None or direction_of(str(part)).startswith("fwd")


class _ImageReader:
    def __init__(self, archive: Files, image: Image) -> None:
        self.archive, self.path, self.image, self.manifest = archive, archive.path, image, image.manifest
        self.folder = PurePosixPath(manifest_name(archive)).parent
        self.graphs: dict[str, Graph] = {}
        self.budget = Budget(str(self.path), REREAD + 2 * sum(member.size for member in archive.members.values()))
        self.section = self._section(image)
        self.state = self._dict(self.manifest, "compiled_graph_state")

    def _section(self, image: Image) -> dict[str, Any]:
        if not ours(image.manifest):
            pickles = [m.name for m in image.members if is_pickle(m.name)]
            why = (
                f" and {len(pickles)} of its files, such as {pickles[0]}, are pickles, which are never opened"
                if pickles
                else ""
            )
            raise InputError(
                f"{self.path} was not written by tbuda_lab: it does not contain the model's graph{why}. What works: "
                "tbuda_lab.widgets.open_tti shows its manifest and netlist, `tbuda tti netlist` writes the netlist to "
                "a file, and `tbuda netlist run` runs that on arrays"
            )
        version = image.manifest.get("version")
        if version != VERSION:
            raise InputError(
                f"{self.path} is an image of version {version!r}, this version reads {VERSION!r}; "
                "open_tti shows what is in it"
            )
        return self._dict(image.manifest, SECTION)

    def load(self) -> LoadedImage:
        section = self.section
        device = self._device()
        options, overrides = self._settings()
        arrays = {str(d): self._tensor(n, f"array {d}") for d, n in self._dict(section, "arrays").items()}
        graph = self._graph(self._text_field(section, "graph"), arrays)
        netlist = self._netlist()
        inputs, outputs = self._bindings(arrays, netlist)
        parameters = self._parameters(netlist)
        weighted = self._names(section, "weighted")
        withheld = section.get("weights") is False
        empty = [q for q in weighted if q not in parameters]
        if empty and not withheld:
            raise self._wrong(f"there is no tensor for queue {empty[0]!r}")
        self._complete(graph, withheld)
        if "sections" in section:
            raise self._wrong("it is in sections, as earlier versions wrote them; compile_to_image writes it anew")
        if "chain" not in section:
            self._ends_agree(graph, inputs, outputs)
        plan, trained = self._training(arrays, netlist)
        if plan is not None:
            options = dataclasses.replace(options, training=plan)
        return LoadedImage(
            name=self._text_field(self.manifest, "device_image_name"),
            graph=graph,
            netlist=netlist,
            inputs=inputs,
            outputs=outputs,
            parameters=parameters,
            device=device,
            options=options,
            overrides=overrides,
            modules=self._modules(graph),
            weight_queues=weighted,
            signature=self._text_field(section, "signature"),
            cycles=self.image.cycles.get(self._netlist_name(), ""),
            manifest=self.manifest,
            weights=trained,
        )

    def with_chain(self, loaded: LoadedImage) -> LoadedImage:
        """The image with the stages that it names, each checked against those before it."""
        if "chain" not in self.section:
            return loaded
        chain = self._dict(self.section, "chain")
        arrays = {str(d): self._tensor(n, f"array {d}") for d, n in self._dict(self.section, "arrays").items()}
        device = self._graph(self._text_field(chain, "device"), arrays)
        self._ends_agree(device, loaded.inputs, loaded.outputs)
        stages, available = [], {node.name for node in loaded.graph.inputs}
        for record in self._list(chain, "stages"):
            stage = self._stage(record, arrays, loaded, device)
            missing = [value for value in stage.reads.values() if value not in available]
            if missing:
                raise self._wrong(f"a stage reads {missing[0]!r}, which no stage before it gives")
            available |= set(stage.gives.values())
            stages.append(stage)
        lost = [n.name for n in loaded.graph.outputs if WRITES not in n.attrs and n.name not in available]
        if lost or not stages:
            raise self._wrong(f"no stage gives {lost[0]!r}" if lost else "it has no stages")
        names = self._dict(chain, "dtypes")
        dtypes: dict[str, torch.dtype] = {}
        for value in {value for stage in stages for value in stage.gives.values()}:
            dtype = getattr(torch, str(names.get(value)), None)
            if not isinstance(dtype, torch.dtype):
                raise self._wrong(f"{value!r} is given as {names.get(value)!r}, which is no type of torch")
            dtypes[value] = dtype
        return dataclasses.replace(loaded, chain=HostChain(loaded.graph, tuple(stages), device, (), dtypes))

    def _stage(self, record: Any, arrays: Mapping[str, np.ndarray], loaded: LoadedImage, device: Graph) -> Stage:
        """A stage whose ends are those of its program, or of the host's graph, and of the shapes of the model."""
        if not isinstance(record, dict) or record.get("place") not in ("host", "device"):
            raise self._wrong("a stage is not of the host or the device")
        graph = self._graph(self._text_field(record, "graph"), arrays)
        self._complete(graph, False)
        reads, gives, keeps = (self._texts(record, part) for part in ("reads", "gives", "keeps"))
        program, ends = "", graph
        taken, given = {n.name for n in graph.inputs}, {n.name for n in graph.outputs}
        if record["place"] == "device":
            program, ends = self._text_field(record, "program"), device
            inputs, outputs = program_ends(loaded, program)
            taken, given = {source for b in inputs for source in b.sources}, {b.name for b in outputs}
        if taken != set(reads) or not {*gives, *keeps} <= given or (keeps and record["place"] == "device"):
            raise self._wrong(f"a stage reads {', '.join(reads)} and gives {', '.join(gives)}, which are not its ends")
        model = loaded.graph.nodes
        for end, value in (*reads.items(), *gives.items(), *keeps.items()):
            if value not in model or end not in ends or model[value].shape != ends[end].shape:
                raise self._wrong(f"a stage has {end!r} for {value!r}, which the model does not have in that shape")
        rams = [value for value in keeps.values() if model[value].kind is not NodeKind.PARAMETER]
        if rams:
            raise self._wrong(f"a stage keeps {rams[0]!r}, which is no parameter of the model")
        return Stage(record["place"], graph, program, reads, gives, keeps)

    # -- the parts ---------------------------------------------------------------------------------------------
    def _settings(self) -> tuple[CompileOptions, tuple[Any, ...]]:
        try:
            options = CompileOptions(**options_from_json(self._dict(self.section, "options")))
            overrides = tuple(from_json(record) for record in self._list(self.section, "overrides"))
        except TbudaError as error:
            raise self._wrong(str(error)) from error
        if options.microbatch < 1:
            raise self._wrong(f"microbatch is {options.microbatch}")
        return options, overrides

    def _device(self) -> DeviceSpec:
        device = of_plain(DeviceSpec, self.section.get("device"), "device")
        if device.arch not in ARCHS:
            raise self._wrong(f"device.arch is {device.arch!r}, none of {', '.join(ARCHS)}")
        none = [name for name in AT_LEAST_ONE if getattr(device, name) < 1]
        if none:
            raise self._wrong(f"device.{none[0]} is {getattr(device, none[0])}")
        if device.cols > len(device.worker_cols) or any(
            device.rows > len(set(device.worker_rows) - set(gone)) for gone in device.harvested_by_chip
        ):
            raise self._wrong(f"the device has no {device.rows} x {device.cols} cores")
        if not device.chips or len(device.harvested_by_chip) != len(device.chips) or not all(device.dram_cores or [()]):
            raise self._wrong("the device has no chips, no DRAM, or harvested rows of other chips")
        return device

    def _netlist_name(self) -> str:
        own = PurePosixPath(str(self.state.get("netlist_filename", ""))).name
        name = next((n for n in self.image.netlists if PurePosixPath(n).name == own), None)
        if name is None:
            raise self._wrong(f"the netlist {own!r} that it names is not there")
        return name

    def _netlist(self) -> Netlist:
        name = self._netlist_name()
        return netlists.loads(self.image.netlists[name], path=PurePosixPath(name).name)

    def _graph(self, file: str, arrays: Mapping[str, np.ndarray]) -> Graph:
        """The graph of a file, read once however often it is named."""
        entry = self.graphs.get(file)
        if entry is not None:
            return entry
        text = self._bytes(file, MAX_GRAPH, self.archive.text)
        try:
            graph = parse_graph(text, arrays)
            faults = problems(graph)
        except (GraphError, RecursionError, ValueError, TypeError) as error:
            raise self._wrong(f"{file} is not a graph: {error}") from error
        if faults:
            raise self._wrong(f"{file}: {faults[0]}")
        self.graphs[file] = graph
        return graph

    def _bytes(self, file: str, most: int, read: Callable[[str, int], T]) -> T:
        """The contents of a file that the manifest names; all of them together are not much more than the archive."""
        member = self._member(file)
        self.budget.take(self.archive.members[member].size, f"reading {file!r} once more")
        return read(member, most)

    def _complete(self, graph: Graph, withheld: bool) -> None:
        """Every array is there, but for parameters of an image without weights; inputs are of types that there are."""
        for node in graph:
            dtype = node.attrs.get("dtype", "float32")
            if node.kind is NodeKind.INPUT and not isinstance(getattr(torch, str(dtype), None), torch.dtype):
                raise self._wrong(f"input {node.name!r} has the type {dtype!r}, which torch does not have")
            lacks = node.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) and node.value is None
            if lacks and not (withheld and node.kind is NodeKind.PARAMETER):
                raise self._wrong(f"the values of {node.name!r} ({node.attrs.get(DIGEST, 'no digest')}) are not there")

    def _bindings(
        self, arrays: Mapping[str, np.ndarray], netlist: Netlist
    ) -> tuple[tuple[InputBinding, ...], tuple[OutputBinding, ...]]:
        inputs, outputs = [], []
        for record in self._list(self.section, "inputs"):
            name, queue, shape, recipe = self._end(record, arrays, netlist)
            gradient_of = record.get("gradient_of", "")
            if not isinstance(gradient_of, str):
                raise self._wrong(f"input {name!r} is the gradient of {gradient_of!r}")
            df = netlist.queues[queue].df
            words, sources = df is DataFormat.Int32, self._names(record, "sources")
            inputs.append(InputBinding(name, queue, shape, sources, recipe, gradient_of, words, df))
        for record in self._list(self.section, "outputs"):
            name, queue, shape, recipe = self._end(record, arrays, netlist)
            tms = tuple(self._tm(tm) for tm in self._list(record, "tms"))
            try:
                room = apply_shapes(tms, _shape(netlist.queues[queue]))
            except TMError as error:
                raise self._wrong(f"output {name!r}: {error}") from error
            if any(size > most for size, most in zip(collapse(shape), room, strict=True)):
                raise self._wrong(f"output {name!r} has shape {shape}, of which queue {queue!r} gives {room}")
            phase = record.get("phase", "forward")
            if not is_part(phase):
                raise self._wrong(f"output {name!r} is filled by {phase!r}")
            dtype = record.get("dtype", "float32")
            if not isinstance(dtype, str) or not isinstance(getattr(torch, dtype, None), torch.dtype):
                raise self._wrong(f"output {name!r} is of type {dtype!r}")
            outputs.append(OutputBinding(name, queue, shape, tms, recipe, phase, dtype))
        return tuple(inputs), tuple(outputs)

    def _ends_agree(self, graph: Graph, inputs: tuple[InputBinding, ...], outputs: tuple[OutputBinding, ...]) -> None:
        """What the host pushes and pops is what the graph takes and gives: names, recipes and numbers of elements."""
        taken = {node.name: node.shape for node in graph.inputs}
        given = {n.name: n.shape for n in graph.outputs if WRITES not in n.attrs and _forward(n.attrs.get(PHASE))}
        for binding in inputs:
            ends = given if binding.gradient_of else taken
            sources = (binding.gradient_of,) if binding.gradient_of else binding.sources
            lost = [source for source in sources if source not in ends]
            if lost or not sources:
                raise self._wrong(
                    f"input {binding.name!r} is made of {lost[0] if lost else 'nothing'!r}, which its "
                    f"graph does not have; there are {', '.join(ends)}"
                )
            if binding.recipe is None:
                self._one_end(binding.name, "input", [ends[source] for source in sources], binding.shape)
                continue
            read = {node.name: node.shape for node in binding.recipe.inputs}
            if set(read) != set(binding.sources) or any(read[n] != ends[n] for n in read if not binding.gradient_of):
                raise self._wrong(f"the recipe of input {binding.name!r} does not read {', '.join(binding.sources)}")
            self._one_end(binding.name, "input", [node.shape for node in binding.recipe.outputs], binding.shape)
        forward = [binding for binding in outputs if _forward(binding.phase)]
        if sorted(binding.name for binding in forward) != sorted(given):
            raise self._wrong(f"its outputs are {', '.join(b.name for b in forward)}; the model has {', '.join(given)}")
        for output in outputs:
            shape = output.shape
            if output.recipe is not None:
                self._one_end(output.name, "output", [node.shape for node in output.recipe.inputs], shape)
                if len(output.recipe.outputs) != 1:
                    raise self._wrong(f"the recipe of output {output.name!r} gives no single tensor")
                shape = output.recipe.outputs[0].shape
            if _forward(output.phase):
                self._one_end(output.name, "output", [given[output.name]], shape)

    def _one_end(self, name: str, what: str, shapes: list[tuple[int, ...]], own: tuple[int, ...]) -> None:
        if len(shapes) != 1 or math.prod(shapes[0]) != math.prod(own):
            held = ", ".join(map(shape_text, shapes)) or "none"
            raise self._wrong(f"{what} {name!r} is {shape_text(own)} on the device; the tensors on its way are {held}")

    def _training(
        self, arrays: Mapping[str, np.ndarray], netlist: Netlist
    ) -> tuple[TrainingOptions | None, tuple[WeightBinding, ...]]:
        """What a training image trains, and how; nothing in an image for inference."""
        section = self.section.get("training")
        if section is None:
            return None, ()
        if not isinstance(section, dict):
            raise self._wrong("training is not an object")
        plan = of_plain(TrainingOptions, section.get("plan"), f"{self.path}: training")
        if plan.batches < 1:
            raise self._wrong(f"training keeps {plan.batches} batches")
        return plan, tuple(self._weight(record, arrays, netlist) for record in self._list(section, "weights"))

    def _weight(self, record: Any, arrays: Mapping[str, np.ndarray], netlist: Netlist) -> WeightBinding:
        if not isinstance(record, dict):
            raise self._wrong("a weight is not an object")
        file = record.get("recipe")
        weight = of_plain(WeightBinding, {**record, "recipe": None}, f"{self.path}: weights")
        rams = [(weight.queue, weight.shape), *((s.queue, s.shape) for s in weight.states)]
        rams += [(weight.gradient, weight.shape)] if weight.gradient else []
        for queue, shape in rams:
            entry = netlist.queues.get(queue)
            if entry is None or entry.type != "ram":
                raise self._wrong(f"weight {weight.name!r} is in {queue!r}, which is not a ram of the netlist")
            if min(shape, default=1) < 1 or any(
                size > most for size, most in zip(collapse(shape), _shape(entry), strict=True)
            ):
                raise self._wrong(f"weight {weight.name!r} of shape {shape} has no room in ram {queue!r}")
        if file is None:
            return weight
        recipe = self._graph(str(file), arrays)
        moved = len(recipe.inputs) == len(recipe.outputs) == 1 and (
            math.prod(recipe.inputs[0].shape) == math.prod(recipe.outputs[0].shape) == weight.size
        )
        if not moved or not all(isinstance(node.op, MOVES) for node in recipe.ops):
            raise self._wrong(f"weight {weight.name!r} does not hold the elements of the model's weight")
        return dataclasses.replace(weight, recipe=recipe)

    def _end(
        self, record: Any, arrays: Mapping[str, np.ndarray], netlist: Netlist
    ) -> tuple[str, str, tuple[int, ...], Graph | None]:
        if not isinstance(record, dict):
            raise self._wrong("an input or output is not an object")
        name, queue, file = self._text_field(record, "name"), self._text_field(record, "queue"), record.get("recipe")
        if queue not in netlist.queues:
            raise self._wrong(f"{name!r} is bound to queue {queue!r}, which the netlist does not have")
        shape = of_plain(tuple[int, ...], record.get("shape"), f"{name}: shape")
        if min(shape, default=1) < 1:
            raise self._wrong(f"{name!r} has shape {shape}")
        return name, queue, shape, None if file is None else self._graph(str(file), arrays)

    def _tm(self, data: Any) -> TM:
        if (
            isinstance(data, list)
            and len(data) == 2
            and data[0] in ("vstack", "hstack", "vslice", "hslice")
            and isinstance(data[1], list)
            and len(data[1]) == 1
            and type(data[1][0]) is int
            and data[1][0] > 0
        ):
            return TM(data[0], tuple(data[1]))
        raise self._wrong(f"{data!r} is not a known host operation on an output")

    def _parameters(self, netlist: Netlist) -> dict[str, np.ndarray]:
        parameters = {}
        for part in ("post_const_eval_parameters", "post_const_eval_constants"):
            for queue, node in self._dict(self.state, part).items():
                if queue not in netlist.queues:
                    raise self._wrong(f"a tensor is given for queue {queue!r}, which the netlist does not have")
                value, expected = self._tensor(node, f"queue {queue}"), _shape(netlist.queues[queue])
                if value.shape != expected:
                    raise self._wrong(f"queue {queue!r} takes {expected}, its tensor has shape {value.shape}")
                parameters[queue] = value
        return in_order(netlist, parameters)

    def _tensor(self, node: Any, where: str) -> np.ndarray:
        where = f"{self.path}: {where}"
        file = file_of(node, where)
        return tensor_of(node, self._bytes(file, MAX_TENSOR, self.archive.read), where)

    def _modules(self, graph: Graph) -> tuple[ModuleFacts, ...]:
        modules = []
        for name, record in self._dict(self.manifest, "module_name_to_metadata").items():
            own = record.get("parameters", {}) if isinstance(record, dict) else None
            if not isinstance(own, dict) or any(not isinstance(n, str) or n not in graph for n in own.values()):
                raise self._wrong(f"the parameters of module {name!r} are not those of the graph")
            modules.append(ModuleFacts(str(name), str(record.get("class", "")), {str(k): v for k, v in own.items()}))
        return tuple(modules)

    # -- fields ------------------------------------------------------------------------------------------------
    def _member(self, file: str) -> str:
        """A file that the manifest names, in the archive."""
        pure = PurePosixPath(file.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts:
            raise self._wrong(f"it names a file outside itself: {file!r}")
        for name in (str(self.folder / pure), str(pure)):
            if name in self.archive.members:
                return name
        raise self._wrong(f"the file {file!r} that it names is not there")

    def _dict(self, record: Mapping[str, Any], name: str) -> dict[str, Any]:
        value = record.get(name)
        if not isinstance(value, dict):
            raise self._wrong(f"{name} is not an object")
        return value

    def _texts(self, record: Mapping[str, Any], name: str) -> dict[str, str]:
        value = self._dict(record, name)
        if not all(isinstance(text, str) for text in value.values()):
            raise self._wrong(f"{name} is no object of texts")
        return value

    def _list(self, record: Mapping[str, Any], name: str) -> list[Any]:
        value = record.get(name)
        if not isinstance(value, list):
            raise self._wrong(f"{name} is not a list")
        return value

    def _names(self, record: Mapping[str, Any], name: str) -> tuple[str, ...]:
        return of_plain(tuple[str, ...], record.get(name), f"{self.path}: {name}")

    def _text_field(self, record: Mapping[str, Any], name: str) -> str:
        value = record.get(name)
        if not isinstance(value, str) or not value:
            raise self._wrong(f"{name} is {value!r}, not a name")
        return value

    def _wrong(self, text: str) -> InputError:
        return InputError(f"{self.path}: {text}")
