"""Programs: variables, loops, and what queue settings do to pointers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, QueueError
from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Instruction,
    Loop,
    Param,
    Program,
    QueueSetting,
    Value,
    Var,
    VarInst,
)
from tbuda_lab.sim.arrays import misfit
from tbuda_lab.sim.context import truth
from tbuda_lab.sim.io import QueueIo, RamIo

Cancel = Callable[[], bool]
Progress = Callable[[int, str], None]

_MORE = "lower a loop count or raise --max-steps; each instruction, and each input of an execute, is one step"
_FLAGS = ("prologue", "epilogue", "zero", "read_only")
_OPERANDS = {"set": 1, "inc": 1, "add": 2, "mul": 2, "incwrap": 2}
_POINTERS = (
    "rd_ptr_local",
    "rd_ptr_global",
    "wr_ptr_global",
    "rd_ptr_autoinc",
    "global_rdptr_autoinc",
    "global_wrptr_autoinc",
)
_OF_RAM = {
    "rd_ptr_global": "rd",
    "wr_ptr_global": "wr",
    "rd_ptr_autoinc": "rd_autoinc",
    "global_rdptr_autoinc": "global_rd_autoinc",
    "global_wrptr_autoinc": "wr_autoinc",
}
"""What a field sets of a ram; the first setting of a run begins with `_FIRST_OF_RAM`."""
_FIRST_OF_RAM = (("rd_autoinc", 0), ("global_rd_autoinc", 0), ("wr_autoinc", 0))


class Machine(Protocol):
    """What a program drives."""

    @property
    def io(self) -> Mapping[str, QueueIo | RamIo]: ...
    @property
    def written_settings(self) -> dict[int, WrittenSettings]: ...
    def epoch_of(self, graph: str) -> tuple[str, ...] | None: ...
    def input_count(self, graph: str) -> int: ...
    def run_epoch(self, graphs: tuple[str, ...], cancel: Cancel | None, ended: Callable[[], None]) -> None: ...
    def zero(self, queue: str) -> None: ...
    def allocate(self, queue: str) -> None: ...
    def deallocate(self, queue: str) -> None: ...


class IoSetting:
    """A queue setting as written and, at the time of its execute, as numbers. legal: it needs no check any more.
    pointers: the fields that move a queue's pointers, with their numbers; of_ram: what it sets of a ram."""

    def __init__(self, io: QueueIo | RamIo, written: QueueSetting, values: Mapping[str, int]) -> None:
        self.io, self.written, self.values = io, written, values
        self.prologue, self.epilogue, self.zero = (bool(values.get(f, 0)) for f in _FLAGS[:3])
        self.pointers = tuple((f, values[f]) for f in _POINTERS if f in values)
        self.of_ram = tuple(
            (_OF_RAM[f], value)
            for f, value in self.pointers
            if f in _OF_RAM and not (f == "wr_ptr_global" and values.get("read_only", 0))
        )
        self.legal = False

    def agrees(self, other: IoSetting) -> bool:
        """Whether both say the same; what one leaves out it says by its default."""
        one, two = self.values, other.values
        return all(
            one.get(key, 0) == two.get(key, 0)
            for key in {**one, **two}
            if key != "rd_ptr_autoinc" or (key in one and key in two)
        )


_MOST_VALUES = 64
"""Settings of one execute that are kept as numbers."""


class WrittenSettings:
    """The settings of an execute, read once for all its runs: as numbers, once for all values of their variables.
    queues: by a text that may be a variable's name, the queues of which a field is that."""

    def __init__(self, settings: Mapping[str, QueueSetting], io: Mapping[str, QueueIo | RamIo]) -> None:
        self._settings = [(queue, io[queue], written) for queue, written in settings.items()]
        texts = [
            (queue, f in _FLAGS, v.strip())
            for queue, _, written in self._settings
            for f, v in written.fields.items()
            if isinstance(v, str)
        ]
        self._texts = list(dict.fromkeys((text, flag) for _, flag, text in texts))
        self.queues: dict[str, dict[str, None]] = {}
        for queue, _, text in texts:
            self.queues.setdefault(text, {})[queue] = None
        self._by_values: dict[tuple[int, ...], dict[str, IoSetting]] = {}

    def now(
        self, locals: Mapping[str, int], statics: Mapping[str, int], value: Callable[[str, bool], int]
    ) -> dict[str, IoSetting]:
        """As numbers, by queue: the same each time that the variables have the same values. value: of a text that is
        neither a local nor a static variable; the second argument says whether it is that of a flag."""
        key = tuple(
            [
                locals[text] if text in locals else statics[text] if text in statics else value(text, flag)
                for text, flag in self._texts
            ]
        )
        entry = self._by_values.get(key)
        if entry is None:
            if len(self._by_values) >= _MOST_VALUES:
                self._by_values.clear()
            numbers = dict(zip(self._texts, key, strict=True))
            entry = self._by_values[key] = {
                queue: IoSetting(
                    io,
                    written,
                    {
                        f: numbers[v.strip(), f in _FLAGS]
                        if isinstance(v, str)
                        else int(truth(v))
                        if f in _FLAGS
                        else int(v or 0)
                        for f, v in written.fields.items()
                    },
                )
                for queue, io, written in self._settings
            }
        return entry


class ProgramRun:
    """One call of a program. `statics` are its static variables, which outlive the call.

    max_steps: how many instructions it may run, an execute counting once for each of its inputs; a loop that must take
    more is refused before its first turn. None: no limit.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        statics: dict[str, int],
        params: Mapping[str, int],
        progress: Progress | None = None,
        cancel: Cancel | None = None,
        max_steps: int | None = None,
    ) -> None:
        self.program = program
        self.machine = machine
        self.statics = statics
        self.locals: dict[str, int] = {}
        self.params: dict[str, int] = {}
        self.arguments = params
        self.progress = progress
        self.cancel = cancel
        self.max_steps = max_steps
        self.steps = 0
        self.executes = 0
        self.pc = 0
        self.loops: list[tuple[int, int]] = []  # (first instruction of the body, turns left)
        self.pending: dict[tuple[str, ...], dict[str, dict[str, IoSetting]]] = {}  # executes that wait for others
        self.applied: dict[str, IoSetting] = {}
        self.bound: dict[str, dict[str, None]] = {}  # variable -> queues that some setting bound to it, in order

    def run(self) -> None:
        """All instructions. Raises `NetlistError` for what a program must not do, `QueueError`, `Cancelled`."""
        steps = self.program.instructions
        while self.pc < len(steps):
            if self.cancel is not None and self.cancel():
                raise Cancelled(f"program {self.program.name!r} was cancelled at instruction {self.pc}")
            instruction = steps[self.pc]
            self.pc += 1
            if self.max_steps is not None:
                self.steps += self._weight(instruction)
                if self.steps > self.max_steps:
                    raise self._error("steps", f"the program reached its limit of {self.max_steps} steps", _MORE)
            _INSTRUCTIONS[type(instruction)](self, instruction)
        for epoch, result in self.pending.items():
            missing = ", ".join(g for g in epoch if g not in result)
            waiting = ", ".join(result)
            raise self._error(
                "P12",
                f"graphs {waiting} wait for {missing} of their temporal epoch at the end",
                "execute all graphs of an epoch before the next one",
            )

    def _allocate(self, instruction: Allocate) -> None:
        for name in instruction.queues:
            self.machine.allocate(name)

    def _deallocate(self, instruction: Deallocate) -> None:
        for name in instruction.queues:
            self.machine.deallocate(name)

    # -- variables ------------------------------------------------------------------------------------------------
    def value(self, operand: Value | None) -> int:
        """An immediate or a variable as a number; true is 1."""
        if isinstance(operand, str):
            text = operand.strip()
            if text.startswith("$"):
                for scope in (self.locals, self.statics, self.params):
                    if text in scope:
                        return scope[text]
                names = ", ".join(sorted({*self.locals, *self.statics, *self.params})) or "none"
                raise self._error("variable", f"variable {text} is used and not declared", f"there are {names}")
            if text.lower() in ("true", "false"):
                return int(text.lower() == "true")
            try:
                return int(text, 0)
            except ValueError:
                raise self._error(
                    "variable", f"{text!r} is neither a number nor a variable", "variables begin with $"
                ) from None
        return int(operand or 0)

    def _take_params(self, instruction: Param) -> None:
        for name in instruction.names:
            self.params[name] = self.arguments.get(name, self.arguments.get(name.removeprefix("$"), 1))

    def _declare(self, instruction: Var) -> None:
        for name, written in instruction.values.items():
            if instruction.static:
                if name not in self.statics:
                    self.statics[name] = self.value(written)
                continue
            if name in self.locals or name in self.statics or name in self.params:
                raise self._error(
                    "variable", f"var {name} hides a variable of the same name", "declare it once, outside of loops"
                )
            self.locals[name] = self.value(written)

    def _assign(self, instruction: VarInst) -> None:
        name = instruction.out.strip()
        if not name.startswith("$"):
            raise self._error("variable", f"varinst writes {name!r}, which is not a variable", "variables begin with $")
        opcode = instruction.opcode.lower()
        if opcode == "set" and not any(name in scope for scope in (self.locals, self.statics, self.params)):
            self.locals[name] = 0  # set declares what is not declared yet
        old = self.value(name)
        args = [self.value(a) for a in instruction.args]
        expected = _OPERANDS.get(opcode)
        if expected is None:
            raise self._error("P1", f"unknown varinst opcode {instruction.opcode!r}", "set, add, mul, inc or incwrap")
        if len(args) < expected:
            raise self._error("P2", f"varinst {opcode} with {len(args)} operands", f"it takes {expected}")
        if opcode == "incwrap" and args[1] <= 0:
            raise self._error("variable", f"incwrap of {name} modulo {args[1]}", "the modulus must be positive")
        if opcode in ("set", "inc"):
            new = args[0] if opcode == "set" else old + args[0]
        elif opcode == "incwrap":
            new = (old + args[0]) % args[1]
        else:
            new = args[0] + args[1] if opcode == "add" else args[0] * args[1]
        scope = next(s for s in (self.locals, self.statics, self.params) if name in s)
        scope[name] = new
        self._follow(name, new)

    def _follow(self, name: str, value: int) -> None:
        """A variable that a setting of this run is bound to moves the queue's pointers at once."""
        for queue in self.bound.get(name, ()):
            setting = self.applied.get(queue)
            if setting is None:
                continue  # its execute waits for others of the epoch
            for field, written in setting.written.fields.items():
                if isinstance(written, str) and written.strip() == name:
                    self._apply_field(setting, field, value, first=False)

    # -- loops ----------------------------------------------------------------------------------------------------
    def _loop(self, instruction: Loop) -> None:
        count = self.value(instruction.count)
        if count < 1:
            raise self._error("loop", f"a loop of {count} turns ({instruction.count})", "at least one turn")
        if self.max_steps is not None:
            least = count * self._body(self.pc)
            if self.steps + least > self.max_steps:
                raise self._error(
                    "steps",
                    f"a loop of {count} turns ({instruction.count}) takes {least} steps or "
                    f"more, {self.max_steps} are allowed",
                    _MORE,
                )
        self.loops.append((self.pc, count - 1))

    def _body(self, start: int) -> int:
        """Steps that one turn of the loop whose body begins at `start` takes at least."""
        total, depth = 0, 1
        for instruction in self.program.instructions[start:]:
            depth += isinstance(instruction, Loop) - isinstance(instruction, EndLoop)
            total += self._weight(instruction)
            if not depth:
                break
        return total

    def _weight(self, instruction: Instruction) -> int:
        if isinstance(instruction, Execute) and self.machine.epoch_of(instruction.graph) is not None:
            return self.machine.input_count(instruction.graph)
        return 1

    def _end_loop(self, _: EndLoop) -> None:
        if not self.loops:
            raise self._error("loop", "endloop without a loop")
        start, left = self.loops[-1]
        if left:
            self.loops[-1] = (start, left - 1)
            self.pc = start
        else:
            self.loops.pop()

    # -- execute --------------------------------------------------------------------------------------------------
    def _execute(self, instruction: Execute) -> None:
        graph = instruction.graph
        epoch = self.machine.epoch_of(graph)
        if epoch is None:
            raise self._error("execute", f"there is no graph {graph!r}")
        written = self.machine.written_settings.get(id(instruction))
        if written is None:
            written = self.machine.written_settings[id(instruction)] = self._read(instruction)
        settings = written.now(self.locals, self.statics, self._field)
        for text, queues in written.queues.items():
            self.bound.setdefault(text, {}).update(queues)
        waiting = self.pending.setdefault(epoch, {})
        if graph in waiting:
            raise self._error(
                "G5",
                f"graph {graph!r} is executed twice before all graphs of its temporal epoch ({', '.join(epoch)}) ran",
                "execute each of them once",
            )
        waiting[graph] = settings
        if len(waiting) < len(epoch):
            return
        del self.pending[epoch]
        merged = settings if len(epoch) == 1 else self._merge_settings(epoch, waiting)
        input_count = self.machine.input_count(graph)
        for queue, setting in merged.items():
            self._apply(queue, setting, input_count)
        try:
            self.machine.run_epoch(epoch, self.cancel, lambda: self._on_end(graph))
        except QueueError as error:
            place = f"program {self.program.name!r}, instruction {self.pc - 1}: execute {graph!r}"
            raise QueueError(f"{place}: {error}", error.diagnostics) from None
        for setting in merged.values():
            io = setting.io
            if isinstance(io, QueueIo):
                io.rd_local = io.rd_base

    def _read(self, instruction: Execute) -> WrittenSettings:
        settings = instruction.settings or {}
        for queue in settings:
            if queue not in self.machine.io:
                raise self._error("P4", f"execute of {instruction.graph!r} sets {queue!r}, which is not a queue")
        return WrittenSettings(settings, self.machine.io)

    def _merge_settings(
        self, epoch: tuple[str, ...], waiting: Mapping[str, Mapping[str, IoSetting]]
    ) -> dict[str, IoSetting]:
        """The settings of all graphs of a temporal epoch."""
        merged: dict[str, IoSetting] = {}
        for settings in waiting.values():
            for queue, setting in settings.items():
                if queue in merged and not merged[queue].agrees(setting):
                    raise self._error(
                        "G5",
                        f"graphs {', '.join(epoch)} run together and set {queue!r} differently",
                        "settings of one queue in one temporal epoch must be the same",
                    )
                merged[queue] = setting
        return merged

    def _on_end(self, graph: str) -> None:
        self.executes += 1
        if self.progress is not None:
            self.progress(self.executes, graph)

    def _field(self, written: str, flag: bool) -> int:
        return int(truth(written)) if flag and not written.startswith("$") else self.value(written)

    def _apply(self, queue: str, setting: IoSetting, input_count: int) -> None:
        io = setting.io
        if not setting.legal:
            self._check(queue, io, setting, input_count)
            setting.legal = not any(isinstance(setting.written.fields.get(f), str) for f in ("prologue", "epilogue"))
        io.prologue, io.epilogue = setting.prologue, setting.epilogue
        if setting.zero:
            io.clear()
            self.machine.zero(queue)
        first = queue not in self.applied
        self.applied[queue] = setting
        if isinstance(io, RamIo):
            for name, value in (*_FIRST_OF_RAM, *setting.of_ram) if first else setting.of_ram:
                setattr(io, name, value)
            return
        if first:
            io.rd_autoinc, io.global_rd_autoinc = 1, 0
        for field, value in setting.pointers:
            self._apply_field(setting, field, value, first=first)

    def _apply_field(self, setting: IoSetting, field: str, value: int, *, first: bool) -> None:
        io = setting.io
        if isinstance(io, RamIo):
            for name, _ in setting.of_ram:
                if name == _OF_RAM.get(field):
                    setattr(io, name, value)
        elif field == "rd_ptr_autoinc":
            io.rd_autoinc = value
        elif field == "global_rdptr_autoinc":
            io.global_rd_autoinc = value
        elif field == "rd_ptr_local":
            io.set_local(value)
        elif field == "rd_ptr_global":
            if first:
                io.set_global(value)
            else:
                io.propagate_global(value)

    def _check(self, queue: str, io: QueueIo | RamIo, setting: IoSetting, input_count: int) -> None:
        values = setting.values
        for field in ("prologue", "epilogue"):
            written = setting.written.fields.get(field)
            if isinstance(written, str) and written.strip() in self.params:
                raise self._error(
                    "G4",
                    f"{field} of {queue!r} is bound to the param {written}",
                    "write true or false, or bind it to a variable",
                )
        prologue, epilogue = setting.prologue, setting.epilogue
        if setting.zero and not prologue:
            raise self._error("G1", f"{io.describe()} is zeroed without prologue", "set prologue: true")
        if isinstance(io, RamIo):
            if values.get("global_wrptr_autoinc", 0) and (prologue or epilogue or setting.zero):
                raise self._error(
                    "G2",
                    f"{io.describe()} has global_wrptr_autoinc beside prologue, epilogue or zero",
                    "leave one of them out",
                )
            return
        streaming = (
            not prologue
            and not epilogue
            and not values.get("global_rdptr_autoinc", 0)
            and values.get("rd_ptr_autoinc", 1)
        )
        if io.readers and streaming and (input_count > io.entries or io.entries % input_count):
            raise self._error(
                "G3",
                f"{io.describe()} has {io.entries} entries for {input_count} inputs at a time",
                f"a multiple of {input_count} entries",
            )

    def _error(self, rule: str, message: str, fix: str = "") -> Exception:
        return misfit(f"program {self.program.name!r}, instruction {max(self.pc - 1, 0)}", rule, message, fix)


_INSTRUCTIONS: dict[type[Instruction], Callable[[ProgramRun, Any], None]] = {
    Execute: ProgramRun._execute,
    VarInst: ProgramRun._assign,
    Var: ProgramRun._declare,
    Loop: ProgramRun._loop,
    EndLoop: ProgramRun._end_loop,
    Param: ProgramRun._take_params,
    Allocate: ProgramRun._allocate,
    Deallocate: ProgramRun._deallocate,
}


def check_params(programs: list[Program], params: Mapping[str, int]) -> None:
    """Raises `InputError` for a param that no program takes. `$` may be left out."""
    taken = {name for p in programs for i in p.instructions if isinstance(i, Param) for name in i.names}
    unknown = [
        name for name in params if f"${name.removeprefix('$')}" not in taken and (name.removeprefix("$") not in taken)
    ]
    if unknown:
        listed = ", ".join(sorted(taken)) or "none"
        raise InputError(
            f"no program takes the param {', '.join(unknown)}",
            [Diagnostic("error", "params", "param", f"the programs take {listed}")],
        )
