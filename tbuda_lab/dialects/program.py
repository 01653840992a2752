"""A dialect's program as the workbench opens it: its graphs, how each is compiled, and what the host does; and the file
that holds it, an archive of netlists with a record in JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import ARCHS, BOARDS
from tbuda_lab.core.epochsim import batch_time
from tbuda_lab.core.errors import Diagnostic, InputError, TbudaError
from tbuda_lab.core.files import Budget, atomic_file, parse_json, parse_npy
from tbuda_lab.core.frames import Frame, graph_frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import Graph, GraphError, NodeKind, parse_graph, print_graph
from tbuda_lab.core.graph.phases import direction_of, forward_part, netlist_part
from tbuda_lab.core.graph.text import array_table
from tbuda_lab.core.graph.verify import problems
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.netlist.archive import Archive
from tbuda_lab.core.options import CompileOptions, OptimizerOptions, TrainingOptions, options_from_json, options_to_json
from tbuda_lab.core.overrides import Override, from_json, to_json
from tbuda_lab.core.passes.autograd.optimizers import check_optimizer
from tbuda_lab.core.session import Session
from tbuda_lab.core.tti.weights import sample_of, without_weights
from tbuda_lab.dialects.host_program import (
    Branch,
    Exchange,
    HostLoop,
    HostProgram,
    Run,
    SetScalar,
    Step,
    execute,
    steps_of,
)
from tbuda_lab.dialects.realisation import KINDS
from tbuda_lab.dialects.replicas import (
    MODES,
    Replica,
    RunSchedule,
    SectionTime,
    collective_cycles,
    schedule,
    sync_cycles,
)

SUFFIX = ".pef"
FOLDER = "unzipped_tti"
MEMBER = f"{FOLDER}/samba.json"
MOST = 64 << 20
"""Bytes of the record, and of any one file of a graph, that are read."""
REREAD = 16 << 20
"""Bytes that may be read of any archive beside twice its size: graphs may name the same files."""
MAX_MADE_UP = 1 << 30
"""Bytes of weights that are made up for all graphs of a file together, which leaves them out."""


def write_archive(path: Path, record: Mapping[str, Any], files: Mapping[str, bytes], member: str = MEMBER) -> None:
    """Write the record, as `member`, and files by name; the archive appears whole or not at all. Equal contents make
    equal bytes."""
    contents = {member: json.dumps(record, indent=1, sort_keys=True).encode()}
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


def reader_of(archive: Archive, reading: Budget) -> Callable[[str], bytes]:
    """Bytes of a file of an archive by name, of as many altogether as the budget has left."""

    def read(name: str) -> bytes:
        member = f"{FOLDER}/{name}"
        if member not in archive.members:
            raise InputError(f"the file {name!r} that it names is not there")
        reading.take(archive.members[member].size, f"reading {name!r} once more")
        return archive.read(member, MOST)

    return read


def _programs(archive: Archive, entry: Any, reading: Budget, made_up: Budget) -> list[GraphProgram]:
    """A graph as it was compiled, and its placement in the other mapping beside it where it has one."""
    read = reader_of(archive, reading)
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
    read_forms = [GraphProgram.from_files(name, how, form, steps, digest, read, made_up) for how, form, digest in forms]
    return [dataclasses.replace(program, notes=(*program.notes, *notes)) for program in read_forms]


KIND_OF = {"fwd": "fwd", "bwd": "bckwd", "opt": "opt"}
"""By direction of an epoch the kind of its section."""


@dataclasses.dataclass(frozen=True)
class GraphProgram:
    """One graph of a program. sample: an input of the traced graph by its name; netlist: SHA-256 of the netlist that
    was compiled; losses: positions of the outputs at which the backward pass begins; notes: what there is to say, shown
    in the workbench; record: what a dialect tells of a program of several graphs (`popxl.programs.record_of`); drawn:
    those graphs as one (`popxl.drawing.drawn_graph`)."""

    name: str
    mapping: str
    graph: Graph
    device: str
    options: CompileOptions
    overrides: tuple[Override, ...]
    host_program: HostProgram
    netlist: str
    sample: Mapping[str, torch.Tensor]
    replicas: int = 1
    mode: str = "normal"
    reduce_on_device: bool = False
    notes: tuple[str, ...] = ()
    losses: tuple[int, ...] = ()
    record: Mapping[str, Any] | None = None
    drawn: Graph | None = None

    @property
    def trains(self) -> bool:
        """Whether it has a backward pass."""
        return self.options.training is not None

    def session(self) -> Session:
        """A session on the graph with the program's options and overrides. Nothing is compiled yet; a note is added
        when the compile gives another netlist than the program has."""
        session = Session(self.graph, dict(self.sample), self.device, self.options, self.overrides, self.name)

        def on_compile(result: CompileResult) -> None:
            stop()
            for text in self.notes:
                session.problems.append(Diagnostic("note", self.name, "program", text))
            if session.unedited and netlist_digest(result) != self.netlist:
                text = "this version places the graph differently from the program"
                session.problems.append(Diagnostic("note", self.name, "program", text, "compile the program again"))

        stop = session.on("compiled", on_compile)
        return session

    def compiled_form(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """A record of plain data, and files by name. Weights are left out, as a program's model brings them."""
        bare = without_weights(self.graph, digests=False)
        text = print_graph(bare)
        files = {f"{self.name}.graph": text.encode()}
        for digest, array in array_table(bare).items():
            if f"#{digest}" in text:
                stream = io.BytesIO()
                np.lib.format.write_array(stream, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
                files[f"{digest}.npy"] = stream.getvalue()
        training = self.options.training
        record = {
            "device": self.device,
            "options": options_to_json(dataclasses.replace(self.options, training=None)),
            "overrides": [to_json(o, _names_without_match) for o in self.overrides],
            "losses": list(self.losses),
            "training": None
            if training is None
            else {
                "max_grad_norm": training.max_grad_norm,
                "per_weight": [
                    [name, o.kind, [list(s) for s in o.settings], list(o.runtime)] for name, o in training.per_weight
                ],
            },
        }
        return record, files

    @classmethod
    def from_files(
        cls,
        name: str,
        mapping: str,
        record: Any,
        host_program: HostProgram,
        netlist: str,
        read: Callable[[str], bytes],
        made_up: Budget,
    ) -> GraphProgram:
        """What `compiled_form` wrote. read: bytes of a file by name. Weights and inputs are made up, of as many bytes
        as `made_up` has left, and a note says so. Raises `InputError` for anything else."""
        try:
            device = str(record["device"])
            if device not in (*ARCHS, *BOARDS):
                raise InputError(f"there is no device {device[:40]!r}")
            options = CompileOptions(**options_from_json(record["options"]))
            options = dataclasses.replace(
                options, training=_training(record["training"]), loaded_once=mapping == "spatial"
            )
            overrides = tuple(from_json(o) for o in record["overrides"])
            losses = tuple(int(k) for k in record["losses"])
            text = read(f"{name}.graph").decode()
            arrays = {d: parse_npy(read(f"{d}.npy"), d) for d in _digests(text)}
            graph = parse_graph(text, arrays)
            fault = next(iter(problems(graph)), None)
            if any(not 0 <= k < len(graph.outputs) for k in losses):
                raise InputError(f"it has {len(graph.outputs)} outputs, and no losses {losses}")
        except (GraphError, TbudaError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"graph {name!r} cannot be opened: {error}") from error
        if fault is not None:
            raise InputError(f"graph {name!r} cannot be opened: {fault}")
        _fill(graph, made_up)
        sample = dict(zip((n.name for n in graph.inputs), sample_of(graph, options.microbatch), strict=True))
        notes = ("the file has no weights: weights and inputs are random",)
        return cls(
            name, mapping, graph, device, options, overrides, host_program, netlist, sample, notes=notes, losses=losses
        )


def _names_without_match(override: Override) -> tuple[str, ...]:
    raise InputError(f"a program cannot hold an override by pattern ({override.target}); give the names of the ops")


def _training(data: Any) -> TrainingOptions | None:
    if data is None:
        return None
    per_weight = tuple(
        (
            str(name),
            OptimizerOptions(str(kind), tuple((str(k), _setting(v)) for k, v in settings), tuple(map(str, runtime))),
        )
        for name, kind, settings, runtime in data["per_weight"]
    )
    norm = data["max_grad_norm"]
    if norm is not None and not 0 < float(_setting(norm)) < math.inf:
        raise ValueError(f"max_grad_norm is {norm!r}")
    for _, optimizer in per_weight:
        check_optimizer(optimizer)
    return TrainingOptions(per_weight=per_weight, max_grad_norm=None if norm is None else float(norm))


def _setting(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(float(v) for v in value)
    if not isinstance(value, bool | int | float):
        raise TypeError(f"a setting of an optimizer is a number, not {value!r}")
    return value


def _digests(text: str) -> list[str]:
    """Names of arrays in the text of a graph, without the mark of an absent weight."""
    return sorted(set(re.findall(r"#([0-9a-f]{16})\b", text)))


def _fill(graph: Graph, budget: Budget) -> None:
    """Values for parameters without any: normal numbers, as large as keeps activations in range. Raises `InputError`
    where they would be more than the budget."""
    rng = np.random.default_rng(0)
    for node in graph:
        if node.kind is NodeKind.PARAMETER and node.value is None:
            budget.take_array(node.shape, 8, f"random values of {node.name!r}")  # float64 on the way
            scale = 1 / math.sqrt(max(1, node.shape[-1])) if node.shape else 1.0
            node.value = (rng.standard_normal(node.shape) * scale).astype(np.float32)


class HostProgramRun:
    """The host program of a graph at work on simulated devices, each with the graph's sample as its input.

    Weights are those of the compile at first, and as the program changes them after.
    """

    def __init__(self, program: GraphProgram, result: CompileResult) -> None:
        self.program, self.result = program, result
        self.replicas = [Replica(result) for _ in range(max(1, program.replicas))]
        turns = max((s.count for _, s in program.host_program.steps if isinstance(s, HostLoop)), default=1)
        seeds = output_gradients(result, program.losses)
        batch = [{**one, **seeds} for one in elements(program.graph, dict(program.sample))]
        self._feeds = [[batch] * turns for _ in self.replicas]
        self._regions: dict[str, list[torch.Tensor]] = {}

    def take_over(self, other: HostProgramRun) -> None:
        """Weights and state of another run of the program, before the graph was placed anew."""
        for replica, before in zip(self.replicas, other.replicas, strict=True):
            replica.take_over(before)

    def step(self, numbers: Mapping[str, float] | None = None) -> dict[str, torch.Tensor]:
        """One run: what the first device gave in its last turn, by output. numbers: of the optimizer, by the names of
        the program's `SetScalar` steps, with or without "run_"; those that are not given keep their values. Raises
        `InputError` for an unknown name."""
        scalars = {step.name for step in steps_of(self.program.host_program) if isinstance(step, SetScalar)}
        variables = {name if name in scalars else f"run_{name}": value for name, value in (numbers or {}).items()}
        wrong = sorted(set(variables) - scalars)
        if wrong:
            listed = ", ".join(sorted(name.removeprefix("run_") for name in scalars)) or "nothing"
            raise InputError(f"the program sets no {wrong[0].removeprefix('run_')}; it sets {listed}")
        return execute(self.program.host_program, self.replicas, self._feeds, variables, self._regions)[0][-1]

    def loss(self, outputs: Mapping[str, torch.Tensor]) -> float:
        """The mean of the losses of a run."""
        names = [self.result.graph.outputs[k].name for k in self.program.losses]
        return float(torch.cat([outputs[name].reshape(-1) for name in names]).mean())


def output_gradients(result: CompileResult, losses: Sequence[int]) -> dict[str, torch.Tensor]:
    """By graph input the gradient of an output that the backward pass begins with: ones of a loss, zeros of others."""
    position = {node.name: k for k, node in enumerate(result.graph.outputs)}
    return {
        b.sources[0]: torch.full(result.graph[b.gradient_of].shape, float(position[b.gradient_of] in losses))
        for b in result.inputs
        if b.gradient_of
    }


def netlist_digest(result: CompileResult) -> str:
    """SHA-256 of the netlist's text."""
    return hashlib.sha256(dumps(result.netlist).encode()).hexdigest()


# -- sections and their time -------------------------------------------------------------------------------------------
def sections_of(result: CompileResult) -> tuple[SectionTime, ...]:
    """One section for every epoch, with its simulated cycles of one run.

    A run takes all elements of a microbatch forward and backward, and updates once. An epoch's cycles have the time to
    load it, except where it was loaded before (`CompileOptions.loaded_once`: the spatial mapping).
    """
    batch = max(1, result.options.microbatch)
    times = batch_time(result, batch).epochs
    completes = {result.netlist.queues[w.gradient].input: w.name for w in result.weights if w.gradient}
    updates = {result.netlist.queues[w.queue].input: w.name for w in result.weights}
    sections = []
    for epoch, time in zip(result.placement.epochs, times, strict=True):
        kind = KIND_OF.get(epoch.direction, "fwd")
        if kind == "opt" and all(op.startswith("gradnorm") for op in epoch.ops):
            kind = "gradnorm"
        ends = completes if kind == "bckwd" else updates if kind == "opt" else {}
        weights = tuple(ends[op] for op in epoch.ops if op in ends)
        needs_all = kind == "opt" and any(op.startswith("gradnorm") for op in epoch.ops)
        sections.append(SectionTime(kind, float(time.cycles), weights, needs_all))
    return tuple(sections)


def run_cycles(result: CompileResult) -> float:
    """Simulated cycles of one run on one device: all sections one after the other."""
    return sum(section.cycles for section in sections_of(result))


def schedules(result: CompileResult, replicas: int = 2, reduce_on_device: bool = False) -> dict[str, RunSchedule]:
    """By data-parallel mode when each section and each synchronisation of a gradient runs."""
    sizes = {w.name: 4 * math.prod(w.shape) for w in result.weights if w.gradient}
    sync = sync_cycles(sizes, result.device, replicas, reduce_on_device)
    sections = sections_of(result)
    return {mode: schedule(sections, sync, mode) for mode in MODES}


MOST_SHOWN = 512
"""Entries of the timeline of a run; what comes after is in its cycles alone."""


def run_schedule(program: HostProgram, result: CompileResult) -> RunSchedule:
    """When each epoch and each collective between replicas runs in a program of slots: one after the other, as the
    host's steps have it. Of a branch the longer side counts. Steps of the host take no time of the device."""
    sections = sections_of(result)
    of_part: dict[str, list[int]] = {}
    for epoch in result.placement.epochs:
        of_part.setdefault(f"run_{netlist_part(epoch.direction)}", []).append(epoch.index)
    on_device: list[tuple[int, float, float]] = []
    on_link: list[tuple[str, float, float]] = []

    def note(entries: list[Any], entry: tuple[Any, float, float]) -> float:
        if len(entries) < MOST_SHOWN:
            entries.append(entry)
        return entry[2]

    def follow(steps: Sequence[Step], time: float) -> float:
        for step in steps:
            if isinstance(step, Run):
                turns = dict(step.params).get("p_loop_count", 1)
                for k in of_part.get(step.program, ()):
                    time = note(on_device, (k, time, time + turns * sections[k].cycles))
            elif isinstance(step, Exchange):
                cycles = collective_cycles(step.kind, step.size, step.groups, result.device, json.loads(step.attrs))
                time = note(on_link, (f"{step.kind} of {step.slot}", time, time + cycles))
            elif isinstance(step, HostLoop):
                end = first = follow(step.body, time)
                for _ in range(step.count - 1):
                    if len(on_device) + len(on_link) >= MOST_SHOWN:
                        break
                    end = follow(step.body, end)
                time += step.count * (first - time)
            elif isinstance(step, Branch):
                time = max(follow(step.then, time), follow(step.otherwise, time))
        return time

    cycles = follow([step for _, step in program.steps], 0.0)
    return RunSchedule("normal", cycles, tuple(on_device), tuple(on_link))


# -- the workbench's frame ---------------------------------------------------------------------------------------------
def program_frame(program: GraphProgram, result: CompileResult, graphs: Sequence[Mapping[str, str]] = ()) -> Frame:
    """The frame "program": sections, the host program's steps, the schedule of every replica in every mode, and the
    graphs to choose from (name and mapping of each)."""
    sections = sections_of(result)
    count = max(1, program.replicas)
    timelines = {}
    plans = (
        schedules(result, count, program.reduce_on_device)
        if program.record is None
        else {"normal": run_schedule(program.host_program, result)}
    )
    for mode, plan in plans.items():
        timelines[mode] = {
            "cycles": plan.cycles,
            "device": [[section, start, end] for section, start, end in plan.device],
            "link": [[label, start, end] for label, start, end in plan.link] if count > 1 else [],
        }
    meta = {
        "graph": program.name,
        "mapping": program.mapping,
        "replicas": count,
        "mode": program.mode,
        "graphs": [dict(g) for g in graphs] or [{"name": program.name, "mapping": program.mapping}],
        "sections": [
            {"kind": s.kind, "cycles": s.cycles, "ops": len(e.ops), "weights": list(s.weights)}
            for s, e in zip(sections, result.placement.epochs, strict=True)
        ],
        "steps": program.host_program.to_json(),
        "timelines": timelines if program.trains else {"normal": timelines["normal"]},
        "clock": float(result.device.clock_hz),
    }
    if program.record is not None:
        meta["record"] = {**program.record, "segments": _with_epochs(program.record["segments"], result)}
    return Frame("program", meta)


PLACES = (*KINDS, "called", "left out", "variable")
"""Where an op of a drawn program runs: as its realisation says; a call, what nothing reads, and what is no op."""
VARIABLE = {"runs": "variable", "why": "", "segments": (), "op": "", "graph": "main graph", "calls": ()}


def drawn_frame(graph: Graph) -> Frame:
    """The frame "irgraph": that of a graph, and for every node where its op runs (`node_place`, a number of
    `meta["places"]`), why, its segments, its line, and the op with the graph that has it."""
    frame = graph_frame(graph, "ir", every_group=True)
    names = frame.text("node_name")
    facts = [graph[name].attrs.get("told", VARIABLE) for name in names]
    strings = Strings(frame.strings)
    columns = {
        "node_place": np.array([PLACES.index(f["runs"]) for f in facts], dtype="u1"),
        "node_why": strings.column(f["why"] for f in facts),
        "node_segments": strings.column(" ".join(map(str, f["segments"])) for f in facts),
        "node_op": strings.column(f["op"] for f in facts),
        "node_graph": strings.column(f["graph"] for f in facts),
        "node_calls": strings.column("\n".join(f["calls"]) for f in facts),
    }
    return Frame("irgraph", {**frame.meta, "places": PLACES}, {**frame.columns, **columns}, strings.table)


def _with_epochs(segments: Sequence[Mapping[str, Any]], result: CompileResult) -> list[dict[str, Any]]:
    """Segments with the first epoch of each."""
    first: dict[str, int] = {}
    for epoch in result.placement.epochs:
        first.setdefault(epoch.direction, epoch.index)
    return [{**s, "epoch": first.get(direction_of(forward_part(s["number"])), 0)} for s in segments]
