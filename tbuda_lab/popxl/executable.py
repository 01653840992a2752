"""An Ir compiled: a netlist with a program for every part, host programs around them, and replicas that run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.compiler.sections import originals
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.dialects import host_program as hp
from tbuda_lab.dialects.host_program import HostProgram
from tbuda_lab.dialects.program import run_schedule
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.lowering.ambiguity import refuse_ambiguity
from tbuda_lab.popxl.lowering.flatten import Flattener
from tbuda_lab.popxl.lowering.refusals import refuse_larger_than, refuse_misfits, refuse_parts, refuse_types
from tbuda_lab.popxl.lowering.report import realisations_of
from tbuda_lab.popxl.lowering.segments import Part, Segmenter
from tbuda_lab.popxl.lowering.values import Block
from tbuda_lab.popxl.runnable import BufferForm, Interface, Runnable, StoredVariable, StreamForm
from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream
from tbuda_lab.popxl.tensor import Variable


@dataclasses.dataclass
class Settings:
    """How programs are compiled. device: of the simulated grid; df: the format of activations and weights;
    balancer_policy: as `CompileOptions` has it."""

    device: str = "wormhole_b0"
    df: DataFormat = DataFormat.Float32
    mode: str = "exact"
    strict: bool = False
    balancer_policy: str = "default"


SETTINGS = Settings()


def options(**changes: Any) -> Settings:
    """Change how sessions that are made from now on compile: device=, df=, mode= ("exact", "golden", "device"),
    strict=, balancer_policy=. Returns the settings. Raises `TypeError` for another name."""
    global SETTINGS
    known = [f.name for f in dataclasses.fields(Settings)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        raise TypeError(f"there is no option {', '.join(unknown)}; there are {', '.join(known)}")
    SETTINGS = dataclasses.replace(SETTINGS, **changes)
    return SETTINGS


def interface_of(ir: Ir) -> Interface:
    """What the host reads and writes of a program."""
    variables = tuple(
        StoredVariable(
            v.id,
            v.shape,
            v.dtype.name,
            tuple(v._grouping.assignment),
            v._shards,
            None if v._remote is None else (v._remote[0].remote_buffer_id, v._remote[1]),
        )
        for v in ir.main_graph.variables
    )
    buffers = tuple(
        BufferForm(b.remote_buffer_id, b.entries, tuple(b.tensor_shape), b.tensor_dtype.name) for b in ir._buffers
    )
    both = ((False, ir.get_all_h2d_streams()), (True, ir.get_all_d2h_streams()))
    streams = [StreamForm(s.tensor_id, s.shape, s.dtype.name, to_host) for to_host, some in both for s in some]
    ordered = tuple(sorted(streams, key=lambda s: (s.to_host, s.name)))
    return Interface(ir.replication_factor, ir.num_host_transfers, variables, buffers, ordered)


def _of_program(error: TbudaError, segmenter: Segmenter) -> popart_exception:
    """What the compiler finds wrong, by the ops of the program and their lines."""
    findings = []
    for found in error.diagnostics:
        nodes = originals(segmenter.graph, [found.where])
        ops = [segmenter.ops[name] for name in nodes if name in segmenter.ops]
        findings.append(dataclasses.replace(found, where=ops[0].where()) if ops else found)
    return popart_exception(str(error).partition("\n")[0], findings)


class LoweredForm:
    """An Ir lowered and compiled in one way."""

    def __init__(self, ir: Ir, settings: Settings, selects: bool) -> None:
        flattener = Flattener(ir)
        self.blocks: dict[str, Block] = flattener.programs
        self.folded = tuple(flattener.folded)
        segmenter = Segmenter(self.blocks, load_device(settings.device), selects)
        self.selected = segmenter.selected
        self.origins = segmenter.origins
        self.parts: list[Part] = segmenter.parts
        self.slots = segmenter.slots
        for v in ir.main_graph.variables:
            if v._remote is None and v.id not in self.slots:
                self.slots[v.id] = _unused(v)
        writes = {p.program: p.writes for p in self.parts}
        self.programs = {name: _with_takes(program, writes, self.slots) for name, program in segmenter.programs.items()}
        self.result: CompileResult | None = None
        if self.parts:
            options = CompileOptions(default_df_override=settings.df, balancer_policy=settings.balancer_policy)
            try:
                self.result = compile_graph(segmenter.graph, settings.device, options)
            except TbudaError as error:
                raise _of_program(error, segmenter) from error

    def cycles(self) -> float:
        """Of a run; of a conditional the longer branch."""
        return 0.0 if self.result is None else run_schedule(self.programs["main"], self.result).cycles


class Executable:
    """See the module. `programs` by name: "weights_in", "main", "weights_out"."""

    def __init__(self, ir: Ir) -> None:
        self.ir = ir
        self.settings = SETTINGS
        refuse_larger_than(load_device(self.settings.device), ir)
        refuse_misfits(ir)
        refuse_types(ir)
        refuse_parts(ir)
        if getattr(ir._options, "enableInplaceAmbiguityChecking", True):
            refuse_ambiguity(ir)
        chosen = self._cheaper_form()
        self.blocks, self.parts, self.slots, self.result = chosen.blocks, chosen.parts, chosen.slots, chosen.result
        self.programs, self.origins = chosen.programs, chosen.origins
        self.folded = chosen.folded
        self.report = realisations_of(self.blocks, self.settings.strict, self.folded)
        self.interface = interface_of(ir)
        self.runnable = Runnable(self.result, self.programs, self.slots, self.interface, self.settings.mode)

    def _cheaper_form(self) -> LoweredForm:
        """The program with conditionals as selections on the grid, where there are any that it can make and where
        that takes no more cycles than to cut the program at each, by the simulator of epochs."""
        selecting = LoweredForm(self.ir, self.settings, selects=True)
        if not selecting.selected:
            return selecting
        cutting = LoweredForm(self.ir, self.settings, selects=False)
        return min(selecting, cutting, key=LoweredForm.cycles)

    # -- weights and runs, by what the Ir calls them ---------------------------------------------------------
    def load(self, data: Mapping[Variable, np.ndarray]) -> None:
        """As `Runnable.load`."""
        self.runnable.load({v.id: value for v, value in data.items()})

    def store(self, variables: Iterable[Variable]) -> dict[Variable, np.ndarray]:
        """As `Runnable.store`."""
        wanted = list(variables)
        values = self.runnable.store([v.id for v in wanted])
        return {v: values[v.id] for v in wanted}

    def all_replicas(self, v: Variable) -> np.ndarray:
        """As `Runnable.all_replicas`."""
        return self.runnable.all_replicas(v.id)

    def run(
        self,
        inputs: Mapping[HostToDeviceStream, np.ndarray],
        outputs: Mapping[DeviceToHostStream, np.ndarray],
        frames: tuple[int, int],
    ) -> None:
        """One run of the main program. frames: transfers and replicas. Raises `popart_exception` naming the op where a
        step of the host goes wrong."""
        given = {s.tensor_id: value for s, value in inputs.items()}
        wanted = {s.tensor_id: value for s, value in outputs.items()}
        try:
            self.runnable.run(given, wanted, frames)
        except (TbudaError, TypeError, ValueError, ArithmeticError, LookupError, RuntimeError) as error:
            step = self.runnable.machine.current
            op = None if step is None else self.origins.get(step)
            if isinstance(error, popart_exception) or op is None:
                raise
            raise popart_exception(f"{op.where()}: {error}") from error


def _unused(v: Variable) -> Any:
    from tbuda_lab.dialects.slots import Slot

    return Slot(v.id, v.shape, v.dtype.name, host=True)


def _with_takes(program: HostProgram, writes: Mapping[str, list[str]], slots: Mapping[str, Any]) -> HostProgram:
    """After every run of a part the host takes what it has a copy of."""

    def follow(steps: Iterable[hp.Step]) -> tuple[hp.Step, ...]:
        result: list[hp.Step] = []
        for step in steps:
            if isinstance(step, hp.HostLoop):
                step = hp.HostLoop(step.count, follow(step.body))
            elif isinstance(step, hp.Branch):
                step = hp.Branch(step.condition, follow(step.then), follow(step.otherwise))
            result.append(step)
            if isinstance(step, hp.Run):
                result += [hp.Take(slot) for slot in dict.fromkeys(writes[step.program]) if slots[slot].host]
        return tuple(result)

    return HostProgram(tuple(("main", step) for step in follow(step for _, step in program.steps)))
