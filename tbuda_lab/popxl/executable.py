"""An Ir compiled: a netlist with a program for every part, host programs around them, and replicas that run them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.dialects import host_program as hp
from tbuda_lab.dialects.host_program import HostProgram, Machine
from tbuda_lab.dialects.program import run_schedule
from tbuda_lab.dialects.replicas import Replica, shards
from tbuda_lab.dialects.slots import SlotValues
from tbuda_lab.popxl import dtypes, kinds
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.kinds.picking import loss_rows, mask_words, one_hot_rows
from tbuda_lab.popxl.lowering.ambiguity import refuse_ambiguity
from tbuda_lab.popxl.lowering.flatten import Flattener
from tbuda_lab.popxl.lowering.report import realisations_of
from tbuda_lab.popxl.lowering.segments import Part, Segmenter
from tbuda_lab.popxl.lowering.values import Block
from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream
from tbuda_lab.popxl.tensor import Variable

NUMPY = {t.name: t.as_numpy() for t in dtypes._ALL}
"""The type of a slot's array by the name of its dtype."""


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
    SETTINGS = dataclasses.replace(SETTINGS, **changes)
    return SETTINGS


def _register() -> None:
    for name, kind in kinds.KINDS.items():
        hp.register(name, _host_form(kind))
    hp.register("OneHotRows", lambda attrs, arrays: (one_hot_rows(arrays[0], attrs["size"]),))
    hp.register("LossRows", _loss_rows)
    hp.register("MaskWords", lambda attrs, arrays: mask_words(arrays[0], attrs["shape"]))


def _host_form(kind: kinds.Kind) -> Callable[[Mapping[str, Any], Sequence[np.ndarray]], Sequence[np.ndarray]]:
    return lambda attrs, arrays: kind.run(dict(attrs), arrays)


def _loss_rows(attrs: Mapping[str, Any], arrays: Any) -> tuple[np.ndarray, ...]:
    rows, counts = loss_rows(dict(attrs), arrays[0], attrs["classes"])
    return rows, counts[-1:], counts[:-1, None]


def refuse_larger_than(device: DeviceSpec, ir: Ir) -> None:
    """Raises `popart_exception` naming the first tensor that the DRAM of the device does not hold."""
    most = sum(device.dram_end(c) - device.dram_start(c) for c in range(device.dram_channels))
    for graph in ir._graphs.values():
        for op in graph._ops:
            for t in op.outputs:
                size = t.nelms * np.dtype(t.dtype.as_numpy()).itemsize
                if size > most:
                    raise popart_exception(
                        f"{op.where()}: tensor {t.id!r} of shape {t.shape} takes {size:,} bytes, and {device.name} has "
                        f"{most:,} of DRAM"
                    )


class LoweredForm:
    """An Ir lowered and compiled in one way."""

    def __init__(self, ir: Ir, settings: Settings, selects: bool) -> None:
        self.blocks: dict[str, Block] = Flattener(ir).programs
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
            self.result = compile_graph(segmenter.graph, settings.device, options)

    def cycles(self) -> float:
        """Of a run; of a conditional the longer branch."""
        return 0.0 if self.result is None else run_schedule(self.programs["main"], self.result).cycles


class Executable:
    """See the module. `programs` by name: "weights_in", "main", "weights_out"."""

    def __init__(self, ir: Ir) -> None:
        _register()
        self.ir = ir
        self.settings = SETTINGS
        refuse_larger_than(load_device(self.settings.device), ir)
        if getattr(ir._options, "enableInplaceAmbiguityChecking", True):
            refuse_ambiguity(ir)
        chosen = self._cheaper_form()
        self.blocks, self.parts, self.slots, self.result = chosen.blocks, chosen.parts, chosen.slots, chosen.result
        self.programs, self.origins = chosen.programs, chosen.origins
        self.report = realisations_of(self.blocks, self.settings.strict)
        self.replicas = [self._replica() for _ in range(ir.replication_factor)]
        executors = [r.executor if r is not None else None for r in self.replicas]
        self.values = [SlotValues(self.slots, e, NUMPY) for e in executors]
        self.buffers = [
            {b.remote_buffer_id: np.zeros((b.entries, *b.tensor_shape), b.tensor_dtype.as_numpy()) for b in ir._buffers}
            for _ in self.values
        ]
        self.machine = Machine([r for r in self.replicas if r is not None], slots=self.values, buffers=self.buffers)

    def _cheaper_form(self) -> LoweredForm:
        """The program with conditionals as selections on the grid, where there are any that it can make and where
        that takes no more cycles than to cut the program at each, by the simulator of epochs."""
        selecting = LoweredForm(self.ir, self.settings, selects=True)
        if not selecting.selected:
            return selecting
        cutting = LoweredForm(self.ir, self.settings, selects=False)
        return min(selecting, cutting, key=LoweredForm.cycles)

    def _replica(self) -> Replica | None:
        return None if self.result is None else Replica(self.result, self.settings.mode)

    # -- weights ---------------------------------------------------------------------------------------------
    def load(self, data: Mapping[Variable, np.ndarray]) -> None:
        """Write variables, each replica's part of them, and run what belongs to it."""
        sharded = False
        for v, value in data.items():
            for k in range(len(self.values)):
                part = value[v._grouping.assignment[k]] if v._grouping.num_groups > 1 else value
                if v._remote is None:
                    self.values[k].write(v.id, part)
                    continue
                sharded = True
                buffer, offset = v._remote
                own = shards(part, v._shards)[self._rank(v, k) % v._shards] if v._shards > 1 else part
                self.buffers[k][buffer.remote_buffer_id][offset] = own.reshape(buffer.tensor_shape)
        if sharded:
            self.machine.run(self.programs["weights_in"])

    @staticmethod
    def _rank(v: Variable, replica: int) -> int:
        """The place of a replica in its group."""
        return v._grouping.groups[v._grouping.assignment[replica]].index(replica)

    def store(self, variables: Iterable[Variable]) -> dict[Variable, np.ndarray]:
        """Read variables, of each group the first replica's."""
        self.machine.run(self.programs["weights_out"])
        result = {}
        for v in variables:
            groups = v._grouping.groups
            parts = [self._read(v, group) for group in groups]
            result[v] = np.stack(parts) if len(groups) > 1 else parts[0]
        return result

    def _read(self, v: Variable, group: list[int]) -> np.ndarray:
        if v._remote is None:
            return self.values[group[0]].fetch(v.id)
        buffer, offset = v._remote
        if v._shards == 1:
            return np.array(self.buffers[group[0]][buffer.remote_buffer_id][offset]).reshape(v.shape)
        parts = [self.buffers[k][buffer.remote_buffer_id][offset].reshape(-1) for k in group[: v._shards]]
        return np.concatenate(parts)[: v.nelms].reshape(v.shape)

    def all_replicas(self, v: Variable) -> np.ndarray:
        """A variable of every replica."""
        return np.stack(
            [
                self._read(v, [k]) if v._shards == 1 else self._read(v, v._grouping.groups[g])
                for k, g in enumerate(v._grouping.assignment)
            ]
        )

    # -- a run -----------------------------------------------------------------------------------------------
    def run(
        self,
        inputs: Mapping[HostToDeviceStream, np.ndarray],
        outputs: Mapping[DeviceToHostStream, np.ndarray],
        frames: tuple[int, int],
    ) -> None:
        """One run of the main program. frames: transfers and replicas."""
        transfers, replicas = frames
        machine = self.machine
        machine.cursors.clear()
        for k in range(replicas):
            machine.streams[k] = {
                s.tensor_id: _slots_of(s.shape, s.dtype.as_numpy(), value, frames, k) for s, value in inputs.items()
            }
            machine.stored[k] = {}
        try:
            machine.run(self.programs["main"])
        except (TbudaError, TypeError, ValueError, ArithmeticError) as error:
            op = None if machine.current is None else self.origins.get(machine.current)
            if isinstance(error, popart_exception) or op is None:
                raise
            raise popart_exception(f"{op.where()}: {error}") from error
        for stream, target in outputs.items():
            whole = np.zeros((transfers, replicas, *stream.shape), stream.dtype.as_numpy())
            for k in range(replicas):
                for at, value in enumerate(machine.stored[k].get(stream.tensor_id, ())):
                    whole[at % transfers, k] = value
            if target.dtype == np.uint8 and stream.dtype.is_float8:
                whole = whole.view(np.uint8)
            own = whole.reshape((*(n for n in frames if n > 1), *stream.shape))
            if target.shape[:1] > own.shape[:1]:  # the caller's array may have room for more
                target[: own.shape[0]] = own
            else:
                target[...] = own.reshape(target.shape)


def _slots_of(
    shape: tuple[int, ...], form: Any, value: np.ndarray, frames: tuple[int, int], k: int
) -> list[np.ndarray]:
    """What a replica loads of a stream, transfer after transfer."""
    transfers, replicas = frames
    array = np.asarray(value)
    if array.dtype == np.uint8 and np.dtype(form).names:
        array = array.view(form)
    if transfers > 1:
        array = array[:transfers] if array.shape[:1] != (1,) or transfers == 1 else array
    elif replicas > 1:
        array = array[:replicas][None]
    else:
        array = array[None]
    if replicas > 1:
        array = array[:, k]
    return [np.asarray(one).reshape(shape) for one in array]


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
