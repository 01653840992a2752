"""Files of compiled PopXL programs: `Session.save` writes one, `open_program` runs it without the script.

A file is an archive of the segments' graph with its constants, the data of variables, and a record in JSON, which
`core.files.codec` reads: what the host reads and writes, slots, and the host programs. The segments are compiled again
when it is opened.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import Budget, parse_json, parse_npy
from tbuda_lab.core.files.codec import of_plain, to_plain
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.netlist.archive import Archive
from tbuda_lab.dialects import host_program as hp
from tbuda_lab.dialects.host_program import HostProgram, steps_of
from tbuda_lab.dialects.program import (
    FOLDER,
    MAX_MADE_UP,
    MOST,
    REREAD,
    GraphProgram,
    netlist_digest,
    reader_of,
    write_archive,
)
from tbuda_lab.dialects.replicas import MOST_REPLICAS
from tbuda_lab.dialects.slots import Slices, Slot
from tbuda_lab.popxl.environment import log
from tbuda_lab.popxl.executable import Executable
from tbuda_lab.popxl.programs import program_of
from tbuda_lab.popxl.runnable import NUMPY, Interface, Runnable
from tbuda_lab.popxl.utils import product

MEMBER = f"{FOLDER}/popxl.json"
VERSION = 1
PROGRAMS = ("weights_in", "main", "weights_out")
MODES = ("exact", "golden", "device")


@dataclasses.dataclass(frozen=True)
class SavedSlot:
    """As `Slot`. initial: the file of what is in it at first, empty for zeros."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    rams: tuple[str, ...]
    host: bool
    initial: str


@dataclasses.dataclass(frozen=True)
class SavedProgram:
    """What a file says beside its graph. mode: of the executor; netlist: SHA-256 of it, empty where nothing runs on the
    grid; data: by variable the file of its data."""

    version: int
    mode: str
    netlist: str
    interface: Interface
    slots: tuple[SavedSlot, ...]
    data: tuple[tuple[str, str], ...]


def save(executable: Executable, data: Mapping[str, np.ndarray], path: str | Path) -> None:
    """Write a program with the data of its variables; the file appears whole or not at all."""
    files: dict[str, bytes] = {}

    def written(array: np.ndarray) -> str:
        plain = np.ascontiguousarray(array)
        stream = io.BytesIO()
        bytes_of = plain.view(np.uint8) if plain.dtype.names else plain  # 8-bit floats
        np.lib.format.write_array(stream, bytes_of, version=(1, 0), allow_pickle=False)
        name = f"array{len(files)}.npy"
        files[name] = stream.getvalue()
        return name

    slots = tuple(
        SavedSlot(
            s.name, s.shape, s.dtype, tuple(s.rams), s.host, "" if s.initial is None else written(np.asarray(s.initial))
        )
        for s in executable.slots.values()
    )
    named = tuple((name, written(value)) for name, value in data.items())
    program, netlist = None, ""
    if executable.result is not None:
        program, own = program_of(executable).compiled_form()
        files |= own
        netlist = netlist_digest(executable.result)
    saved = SavedProgram(VERSION, executable.settings.mode, netlist, executable.interface, slots, named)
    steps = {name: executable.programs[name].to_json() for name in PROGRAMS}
    write_archive(Path(path), {"saved": to_plain(saved), "steps": steps, "program": program}, files, MEMBER)


class OpenedProgram:
    """A program of a file on simulated devices, with the variables that were saved; made by `open_program`."""

    def __init__(self, path: str | Path) -> None:
        try:
            with Archive(path) as archive:
                self._read(archive)
        except InputError as error:
            raise InputError(f"{path} is not a PopXL program: {error}") from error

    def _read(self, archive: Archive) -> None:
        if MEMBER not in archive.members:
            raise InputError(f"there is no {MEMBER} in it")
        record = parse_json(archive.text(MEMBER, MOST), MEMBER)
        if not isinstance(record, dict) or set(record) != {"saved", "steps", "program"}:
            raise InputError(f"{MEMBER} is an object of saved, steps and program")
        saved = of_plain(SavedProgram, record["saved"], "saved")
        budget = Budget("the archive", MAX_MADE_UP)
        _check(saved, budget)
        if not isinstance(record["steps"], dict) or set(record["steps"]) != set(PROGRAMS):
            raise InputError(f"its steps are those of {', '.join(PROGRAMS)}")
        programs = {name: HostProgram.from_json(record["steps"][name], nests=True) for name in PROGRAMS}
        read = reader_of(archive, Budget("the archive", REREAD + 2 * sum(m.size for m in archive.members.values())))
        self.result: CompileResult | None = None
        graph = Graph("popxl")
        if record["program"] is not None:
            program = GraphProgram.from_files(
                "popxl", "segments", record["program"], programs["main"], saved.netlist, read, budget
            )
            graph = program.graph
            _zero_rams(graph, saved)
            self.result = compile_graph(graph, program.device, program.options)
            if netlist_digest(self.result) != saved.netlist:
                log("WARN", "this version places the program differently: sums may round in another order")
        slots = {s.name: _slot(s, graph, read) for s in saved.slots}
        sizes = {s.name: product(s.shape) for s in saved.slots}
        for step in (s for p in programs.values() for s in steps_of(p) if isinstance(s, hp.HostOp)):
            _check_attributes(step, sizes)
        self.interface = saved.interface
        self._runnable = Runnable(self.result, programs, slots, self.interface, saved.mode)
        unknown = {s.kind for p in programs.values() for s in steps_of(p) if isinstance(s, hp.HostOp)} - set(
            hp.HOST_FUNCTIONS
        )
        if unknown:
            raise InputError(f"the host cannot calculate {', '.join(sorted(unknown))}: import the class of such an op")
        self._runnable.load({name: self._data(name, read(file)) for name, file in saved.data})

    def _data(self, name: str, file: bytes) -> np.ndarray:
        v = next((v for v in self.interface.variables if v.name == name), None)
        if v is None:
            raise InputError(f"it has data of {name!r}, which is no variable")
        return _array(file, v.host_shape, v.dtype, name)

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """By stream from the host the shape of what a run takes, and its type."""
        return self._streams(False)

    @property
    def outputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """By stream to the host the shape of what a run gives, and its type."""
        return self._streams(True)

    def _streams(self, to_host: bool) -> dict[str, tuple[tuple[int, ...], str]]:
        lead = tuple(n for n in (self.interface.transfers, self.interface.replicas) if n > 1)
        return {s.name: ((*lead, *s.shape), s.dtype) for s in self.interface.streams if s.to_host == to_host}

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """One run: what comes out of each stream. Raises `InputError` for other streams, shapes and types."""
        if not isinstance(inputs, Mapping | None):
            raise InputError(f"inputs are given by stream, as {{name: array}}, and not as {type(inputs).__name__}")
        given = {name: np.asarray(value) for name, value in (inputs or {}).items()}
        if set(given) != set(self.inputs):
            raise InputError(f"a run takes {', '.join(self.inputs) or 'nothing'}, not {', '.join(given) or 'nothing'}")
        for name, (shape, form) in self.inputs.items():
            if given[name].shape != shape or given[name].dtype != np.dtype(NUMPY[form]):
                raise InputError(f"{name!r} takes {form} of shape {shape}, not {given[name].dtype} {given[name].shape}")
        outputs = {name: np.zeros(shape, NUMPY[form]) for name, (shape, form) in self.outputs.items()}
        try:
            self._runnable.run(given, outputs, (self.interface.transfers, self.interface.replicas))
        except (
            LookupError,
            TypeError,
            ValueError,
            ArithmeticError,
            AssertionError,
            RuntimeError,
            MemoryError,
        ) as error:
            step = self._runnable.machine.current
            raise InputError(f"the file's step {step} cannot be done: {type(error).__name__}: {error}") from error
        return outputs

    def variables(self) -> dict[str, np.ndarray]:
        """The data of all variables, with the groups of replicas as dim 0 where there are several."""
        return self._runnable.store([v.name for v in self.interface.variables])


def open_program(path: str | Path) -> OpenedProgram:
    """The program of a file that `Session.save` wrote. Raises `InputError` naming the file and what is wrong."""
    return OpenedProgram(path)


# -- what a file states is checked before anything is made -------------------------------------------------------------
def _check(saved: SavedProgram, budget: Budget) -> None:
    """Raises `InputError` for types, numbers of replicas and groups that there are not, and for more bytes than the
    budget has."""
    interface = saved.interface
    if saved.version != VERSION or saved.mode not in MODES:
        raise InputError(f"version {saved.version} in mode {saved.mode[:20]!r} cannot be read; this is {VERSION}")
    if not (1 <= interface.replicas <= MOST_REPLICAS and 1 <= interface.transfers <= hp.MAX_TURNS):
        raise InputError(f"{interface.replicas} replicas and {interface.transfers} transfers cannot be run")
    many = interface.replicas
    sizes = [(s.name, s.dtype, s.shape, many) for s in saved.slots]
    sizes += [(v.name, v.dtype, v.shape, many) for v in interface.variables]
    sizes += [(s.name, s.dtype, s.shape, many * interface.transfers) for s in interface.streams]
    sizes += [(f"buffer {b.number}", b.dtype, (b.entries, *b.shape), many) for b in interface.buffers]
    for name, form, shape, times in sizes:
        if form not in NUMPY:
            raise InputError(f"{name[:80]!r} is of type {form[:20]!r}, which there is not")
        budget.take_array((times, *shape), np.dtype(NUMPY[form]).itemsize, name[:80])
    entries = {b.number: b for b in interface.buffers}
    for v in interface.variables:
        groups = [len(g) for g in v.groups]
        in_order = list(dict.fromkeys(v.assignment)) == list(range(len(groups)))
        if len(v.assignment) != many or len(set(groups)) != 1 or not in_order:
            raise InputError(f"the groups of variable {v.name[:80]!r} are none of {many} replicas")
        if v.shards < 1 or groups[0] % v.shards:
            raise InputError(f"variable {v.name[:80]!r} is sharded over {v.shards} of {groups[0]} replicas")
        if v.remote is None:
            continue
        buffer, entry = entries.get(v.remote[0]), v.remote[1]
        wanted = -(-product(v.shape) // v.shards)
        if buffer is None or not 0 <= entry < buffer.entries or product(buffer.shape) != wanted:
            raise InputError(f"variable {v.name[:80]!r} is no entry of a remote buffer")


_SIZES = frozenset(
    ("shape", "size", "sizes", "classes", "axis_size", "output_size", "index_shape", "scales", "sampling", "k")
) | frozenset(
    ("pads", "output_padding", "kernel", "dilations", "strides", "group_size", "groups", "perm", "axis", "axes")
)
"""Attributes of ops that say how much an op makes, or of which dims."""
_FOR_EACH = ("size", "classes")
"""Those that an op makes as many elements of for each element of its first operand."""
_FLOOR = 4096
"""What attributes of an op of the smallest tensors may say, multiplied: a kernel, pads, an order of dims."""


def _check_attributes(step: hp.HostOp, sizes: Mapping[str, int]) -> None:
    """Raises `InputError` where attributes of a step of the host are no map, or would have it make more than its
    operands and results hold together; sizes: elements by slot."""
    attrs = parse_json(step.attrs, f"attributes of {step.kind}")
    if not isinstance(attrs, dict):
        raise InputError(f"attributes of {step.kind} are a map, not {type(attrs).__name__}")
    most = max(_FLOOR, sum(sizes.get(name, 0) for name in (*step.ins, *step.outs)))
    waiting: list[tuple[str, Any]] = list(attrs.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif name in _SIZES:
            numbers = [abs(n) for n in _flat(value) if isinstance(n, int | float)]
            each = sizes.get(step.ins[0], 1) if step.ins and name in _FOR_EACH else 1
            if not each * math.prod(1.0 if n <= 1 else n for n in numbers) <= most:
                raise InputError(f"{step.kind} has {name} {str(value)[:80]}, and at most {most} elements")


def _flat(value: Any) -> list[Any]:
    return [n for one in value for n in _flat(one)] if isinstance(value, list) else [value]


def _zero_rams(graph: Graph, saved: SavedProgram) -> None:
    """What the file leaves out are zeros: rams, of the type of their slot."""
    forms = {ram: s.dtype for s in saved.slots for ram in s.rams}
    for node in graph:
        if node.kind is NodeKind.PARAMETER:
            node.value = np.zeros(node.shape, np.int32 if forms.get(node.name) == "int32" else np.float32)


def _slot(saved: SavedSlot, graph: Graph, read: Any) -> Slot:
    rams = [graph.nodes.get(ram) for ram in saved.rams]
    slices = Slices.of(saved.shape)
    if slices is None or all(ram is not None and ram.shape == saved.shape for ram in rams):
        slices = None
    wanted = saved.shape if slices is None else slices.shape
    for name, ram in zip(saved.rams, rams, strict=True):
        if ram is None or ram.kind is not NodeKind.PARAMETER or ram.shape != wanted:
            raise InputError(f"slot {saved.name[:80]!r} is not as large as ram {name[:80]!r}")
    initial = _array(read(saved.initial), saved.shape, saved.dtype, saved.name) if saved.initial else None
    return Slot(saved.name, saved.shape, saved.dtype, list(saved.rams), saved.host, initial, slices)


def _array(data: bytes, shape: tuple[int, ...], form: str, name: str) -> np.ndarray:
    array, wanted = np.asarray(parse_npy(data, name)), np.dtype(NUMPY[form])
    if wanted.names and array.dtype == np.uint8:
        array = np.ascontiguousarray(array).view(wanted)
    if array.dtype != wanted or array.size != product(shape):
        raise InputError(f"the data of {name[:80]!r} are {array.dtype} {array.shape}, not {form} {shape}")
    return np.array(array.reshape(shape))
