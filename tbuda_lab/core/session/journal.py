"""`*.buda.json`: the edits of a session as a file that merges, one command a line.

The file is plain JSON: a header, then `commands` in the order they were made; replaying them makes the same states. It
is written to a temporary name and renamed. A file from elsewhere is data: commands are looked up in a table, their
fields are checked, no path in it is opened.

Commands are only ever added at the end, so two branches merge by keeping the lines of both (git: `*.buda.json
merge=union` in `.gitattributes`); where both fix the same thing, the later line holds.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tbuda_lab.core.device import ARCHS, BOARDS
from tbuda_lab.core.errors import Diagnostic, InputError, TbudaError
from tbuda_lab.core.files import atomic_text, bounded_text, parse_json, unique_names
from tbuda_lab.core.files.codec import fields_of
from tbuda_lab.core.options import CompileOptions, options_from_json, options_to_json, plain_value
from tbuda_lab.core.overrides import Override, Resolve, from_json, to_json
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import COMMANDS, SetOptions, SetOverride
from tbuda_lab.core.session.history import NOTE_KINDS, EditStep, Entry, History, PlacementFacts, PlacementNote

FORMAT = "tbuda-session 1"
MAX_BYTES = 16 << 20
MAX_COMMANDS = 100_000
MAX_HELD = 50_000_000
"""Overrides in the states of all steps of one file together. Each step keeps the state before and after it, so that
steps on ever more ops take memory that grows with their square: 400 MB at this limit, which 10,000 steps on as many
ops reach, and 100,000 steps on 500 ops."""
OVERRIDES_FORMAT = "tbuda-overrides 1"
MAX_OVERRIDES_BYTES = 4 << 20
MAX_OVERRIDES = 20_000
_SPACE = re.compile(r"[ \t\r\n]*")
_FACTS = ("at", "epochs", "chips", "l1", "cycles", "pcc")
_OTHERS = {
    "undo": (),
    "redo": (),
    "return": ("name",),
    "checkpoint": ("name",),
    "placement": ("name", "kind", *_FACTS),
    "begin": ("label", "by"),
    "end": (),
}
"""Records that are no commands, with their fields."""
_HEAD = ("format", "device", "harvested_rows", "name", "options", "overrides")


@dataclasses.dataclass(frozen=True)
class Header:
    """What a session was opened with."""

    name: str
    device: str
    harvested_rows: tuple[int, ...] | None  # None: those of the board
    options: CompileOptions
    overrides: tuple[Override, ...]


@dataclasses.dataclass(frozen=True)
class JournalFile:
    """A journal read. `actions`: ("do", commands, label, source), ("undo",), ("redo",), ("checkpoint", name),
    ("return", name) or ("placement", name, kind, facts)."""

    header: Header
    actions: tuple[tuple[Any, ...], ...]


# -- writing -----------------------------------------------------------------------------------------------------------
class Journal:
    """Writes a history to a file, whole and atomically."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path, self.header = path, header
        self.written = False  # by this session; until then the file is only read

    def write(self, history: History, resolve: Resolve) -> None:
        """Raises `OutputError` when the file cannot be written; an older one then stays as it is."""
        text = journal_text(self.header, history.log, resolve)
        with atomic_text(self.path) as file:
            file.write(text)
        self.written = True


def journal_text(header: Header, log: list[Entry], resolve: Resolve) -> str:
    """The file's text: keys sorted, one line per header field and command."""
    head = {
        "device": header.device,
        "format": FORMAT,
        "harvested_rows": None if header.harvested_rows is None else list(header.harvested_rows),
        "name": header.name,
        "options": options_to_json(header.options),
        "overrides": [to_json(o, resolve) for o in header.overrides],
    }
    lines = [_line(record) for entry in log for record in _records(entry, resolve)]
    fields = [f"{json.dumps(k)}: {_line(v)}" for k, v in head.items()]
    # commas lead, so that a new command changes no other line and two branches merge
    body = "\n".join(f"{', ' if i else '  '}{line}" for i, line in enumerate(lines))
    fields.insert(0, f'"commands": [\n{body}\n]')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _records(entry: Entry, resolve: Resolve) -> Iterator[dict[str, Any]]:
    if entry.note is not None:
        facts = {k: v for k, v in dataclasses.asdict(entry.note.facts).items() if v is not None}
        yield {"do": "placement", "name": entry.note.name, "kind": entry.note.kind, **facts}
        return
    if entry.step is None or entry.what == "return":
        yield {"do": entry.what, **({"name": entry.name} if entry.name else {})}
        return
    step = entry.step
    by = {} if step.source == "code" else {"by": step.source}
    if len(step.commands) == 1 and step.label == step.commands[0].label:
        yield {**command_data(step.commands[0], resolve), **by}
        return
    yield {"do": "begin", "label": step.label, **by}
    for command in step.commands:
        yield command_data(command, resolve)
    yield {"do": "end"}


def command_data(command: Command, resolve: Resolve) -> dict[str, Any]:
    """A command as plain data; fields that have their default are left out."""
    if isinstance(command, SetOverride):
        return {"do": command.name, **to_json(command.override, resolve)}
    if isinstance(command, SetOptions):
        return {"do": command.name, "set": {k: plain_value(v) for k, v in command.changes}}
    fields = {
        f.name: plain_value(getattr(command, f.name))
        for f in dataclasses.fields(command)
        if getattr(command, f.name) != f.default
    }
    return {"do": command.name, **fields}


# -- reading -----------------------------------------------------------------------------------------------------------
def read_journal(path: Path) -> JournalFile:
    """Raises `InputError` with file, line and what is wrong."""
    return parse_journal(bounded_text(path, MAX_BYTES, "is not a session file"), path.name)


def parse_journal(text: str, name: str = "session") -> JournalFile:
    """A journal from its text; `name` stands in errors."""
    reader = _JournalReader(text, name)
    marks = re.search(r"^(<{7} |={7}$|>{7} )", text, re.MULTILINE)
    if marks:
        line = reader.line(marks.start())
        reader.fail(line, "not JSON: unresolved merge conflict", "keep the lines of both sides")
    head, commands = reader.document()
    if head.get("format") != FORMAT:
        reader.fail(1, f"format is {head.get('format')!r}", f"a session file has the format {FORMAT!r}")
    if head.get("device") not in (*ARCHS, *BOARDS):
        reader.fail(1, f"unknown device {head.get('device')!r}", f"known: {', '.join((*ARCHS, *BOARDS))}")
    for name in head:
        if name not in _HEAD:
            reader.fail(1, f"unknown field {name!r}", f"known: {', '.join((*_HEAD, 'commands'))}")
    rows = head.get("harvested_rows")
    if rows is not None and not (isinstance(rows, list) and all(type(r) is int and 0 <= r < 64 for r in rows)):
        reader.fail(1, "harvested_rows is not a list of row numbers", "physical rows, from 0")
    options = reader.guard(1, lambda: CompileOptions(**options_from_json(head.get("options", {}))))
    records = head.get("overrides", [])
    if not isinstance(records, list):
        reader.fail(1, "overrides is not a list", "a list of kind, target and value")
    overrides = tuple(reader.guard(1, partial(from_json, r)) for r in records)
    title = head.get("name", "model")
    if not isinstance(title, str):
        reader.fail(1, "name is not text", "the name of the model")
    header = Header(title, str(head["device"]), None if rows is None else tuple(rows), options, overrides)
    return JournalFile(header, tuple(_actions(reader, commands)))


def _actions(reader: _JournalReader, commands: list[tuple[int, Any]]) -> Iterator[tuple[Any, ...]]:
    group: list[Command] | None = None
    label = source = ""
    for line, record in commands:
        what, by = _record_kind(reader, line, record)
        if what in COMMANDS:
            fields = {k: v for k, v in record.items() if k not in ("do", "by")}
            command = reader.guard(line, partial(command_of, what, fields))
            if group is not None:
                group.append(command)
            else:
                yield "do", (command,), "", by
        elif what == "begin" and group is None:
            group, label, source = [], record.get("label", ""), by
        elif what == "end" and group is not None:
            if group:
                yield "do", tuple(group), label, source
            group = None
        elif what in ("checkpoint", "return") and isinstance(record.get("name"), str):
            yield what, record["name"]
        elif what == "placement" and group is None:
            yield what, *_noted(reader, line, record)
        elif what in ("undo", "redo") and group is None:
            yield (what,)
        else:
            reader.fail(line, f"{what!r} is not allowed here", "begin and end come in pairs; a checkpoint has a name")
    if group is not None:
        reader.fail(commands[-1][0], "a 'begin' without its 'end'", "close the group")


def _noted(reader: _JournalReader, line: int, record: dict[str, Any]) -> tuple[str, str, PlacementFacts]:
    """Name, kind and facts of a placement."""
    name, kind, facts = record.get("name"), record.get("kind"), {k: record[k] for k in _FACTS if k in record}
    if not isinstance(name, str) or not name or kind not in NOTE_KINDS:
        reader.fail(line, "a placement without a name, or of no kind", f"a name, and one of {', '.join(NOTE_KINDS)}")
    whole = all(type(facts.get(k, 0)) is int and 0 <= facts.get(k, 0) < 1 << 31 for k in ("epochs", "chips"))
    real = all(type(facts.get(k, 0.0)) in (int, float) and math.isfinite(facts.get(k, 0.0)) for k in _FACTS[3:])
    if not (whole and real and isinstance(facts.get("at", ""), str)):
        reader.fail(line, "the facts of a placement are no numbers", "epochs and chips, l1, cycles and pcc; at is text")
    return name, kind, PlacementFacts(**facts)


def _record_kind(reader: _JournalReader, line: int, record: Any) -> tuple[str, str]:
    """What a record is and who made it. Fails for what is neither a command nor one of `_OTHERS` with its fields."""
    if not isinstance(record, dict) or not isinstance(record.get("do"), str):
        reader.fail(line, "not a command", 'a command is an object with a "do"')
    what = record["do"]
    if what not in COMMANDS and what not in _OTHERS:
        reader.fail(line, f"unknown command {what!r}", f"known: {', '.join((*COMMANDS, *_OTHERS))}")
    for name in record:
        if name not in ("do", *_OTHERS.get(what, record)):
            reader.fail(line, f"{what!r} has no field {name!r}", "leave it out")
        if (name == "by" or what == "begin") and not isinstance(record[name], str):
            reader.fail(line, f"{name} is not text", "who made the edit, or what it is called")
    return what, record.get("by", "code")


def command_of(what: str, fields: dict[str, Any]) -> Command:
    """A command from its name and plain fields. Raises `InputError` or `OverrideError` for what does not fit."""
    kind = COMMANDS[what]
    if kind is SetOverride:
        return SetOverride(from_json(fields))
    if kind is SetOptions:
        if set(fields) != {"set"}:
            raise InputError('options has one field, "set"')
        return SetOptions(**options_from_json(fields["set"]))
    values = fields_of(kind, fields, what)
    for name in ("op", "queue"):
        if values.get(name) == "":
            raise InputError(f"{what}.{name} is a name, not an empty text")
    return kind(**values)


class _JournalReader:
    """JSON with the line of every command."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.decoder = json.JSONDecoder(object_pairs_hook=unique_names)
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def fail(self, line: int, message: str, fix: str) -> NoReturn:
        where = f"{self.name}:{line}"
        raise InputError(f"{where}: {message}", [Diagnostic("error", where, "session-file", message, fix)])

    def guard(self, line: int, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except TbudaError as error:
            self.fail(line, str(error).splitlines()[0], "; ".join(d.fix for d in error.diagnostics if d.fix))

    def document(self) -> tuple[dict[str, Any], list[tuple[int, Any]]]:
        head: dict[str, Any] = {}
        commands: list[tuple[int, Any]] = []
        at = self._expect("{", 0)
        while self._peek(at) != "}":
            key, at = self._value(at)
            if not isinstance(key, str):
                self.fail(self.line(at), "keys are strings", "see the format in the documentation")
            if key in head or (key == "commands" and commands):
                self.fail(self.line(at), f"{key!r} occurs twice", "keep one")
            at = self._expect(":", at)
            if key == "commands":
                at = self._commands(self._expect("[", at), commands)
            else:
                head[key], at = self._value(at)
            if self._peek(at) == ",":
                at = self._expect(",", at)
            elif self._peek(at) != "}":
                self.fail(self.line(at), "a comma or the end is missing", "separate fields by commas")
        end = self._skip(self._expect("}", at))
        if end != len(self.text):
            self.fail(self.line(end), "text after the end", "a session file is one JSON object")
        return head, commands

    def _commands(self, at: int, commands: list[tuple[int, Any]]) -> int:
        while self._peek(at) != "]":
            at = self._skip(at)
            line = self.line(at)
            value, at = self._value(at)
            if len(commands) >= MAX_COMMANDS:
                fix = "begin a new file from the overrides of this one"
                self.fail(line, f"more than {MAX_COMMANDS:,} commands", fix)
            commands.append((line, value))
            if self._peek(at) == ",":
                at = self._expect(",", at)
            elif self._peek(at) not in ("]", "{"):  # of two branches that each began the list, both first lines stay
                self.fail(self.line(at), "a comma or the end of the commands is missing", "one command a line")
        return self._expect("]", at)

    def _value(self, at: int) -> tuple[Any, int]:
        at = self._skip(at)
        try:
            return self.decoder.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            self.fail(error.lineno, f"not JSON: {error.msg}", "check for an unresolved merge conflict")
        except RecursionError:
            self.fail(self.line(at), "nested too deeply", "commands are flat")
        except ValueError as error:  # a whole number of thousands of digits
            self.fail(self.line(at), f"not JSON that can be read: {error}", "write short numbers, and each name once")

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at

    def _peek(self, at: int) -> str:
        at = self._skip(at)
        return self.text[at : at + 1]

    def _expect(self, what: str, at: int) -> int:
        at = self._skip(at)
        if self.text[at : at + 1] != what:
            self.fail(self.line(at), f"{what!r} expected", "a session file is one JSON object")
        return at + 1

    def line(self, at: int) -> int:
        return bisect.bisect_left(self.ends, at) + 1


# -- files of overrides alone ------------------------------------------------------------------------------------------
def read_overrides(path: str | Path) -> tuple[Override, ...]:
    """The overrides of a JSON file. Raises `InputError` with the record and what is wrong with it."""
    if not isinstance(path, str | Path):
        raise InputError(f"the path of a file of overrides is a string or a Path, not {type(path).__name__}")
    path = Path(path)
    return parse_overrides(bounded_text(path, MAX_OVERRIDES_BYTES, "holds no overrides"), path.name)


def parse_overrides(text: str, name: str = "overrides") -> tuple[Override, ...]:
    """Overrides from their JSON text; `name` stands in errors. Raises `InputError`."""

    def fail(where: str, message: str, fix: str) -> NoReturn:
        raise InputError(f"{where}: {message}", [Diagnostic("error", where, "overrides-file", message, fix)])

    try:
        data = parse_json(text, name)
    except InputError as error:
        fail(name, str(error).removeprefix(f"{name}: "), "export overrides as JSON")
    if not isinstance(data, dict) or data.get("format") != OVERRIDES_FORMAT:
        entry = data.get("format") if isinstance(data, dict) else type(data).__name__
        fail(name, f"format is {entry!r}", f"a file of overrides has the format {OVERRIDES_FORMAT!r}")
    records = data.get("overrides")
    if not isinstance(records, list) or len(records) > MAX_OVERRIDES:
        fail(name, "overrides is not a list", f"a list of kind, target and value, at most {MAX_OVERRIDES}")
    result = []
    for index, record in enumerate(records):
        try:
            result.append(from_json(record))
        except TbudaError as error:
            fix = "; ".join(d.fix for d in error.diagnostics if d.fix)
            fail(f"{name}, override {index + 1}", str(error).splitlines()[0], fix)
    return tuple(result)


def replay(history: History, actions: tuple[tuple[Any, ...], ...]) -> list[EditStep]:
    """Do to a history what a journal says; returns the steps that are done at the end.

    Raises `InputError` where the states between would hold more than `MAX_HELD` overrides.
    """
    depth = 0
    for number, action in enumerate(actions, 1):
        if action[0] == "do":
            history.do(*action[1:])
            depth += len(history.state.overrides)
            if depth > MAX_HELD:
                where, count = f"step {number:,} of {len(actions):,}", len(history.state.overrides)
                message = f"the states of these steps hold more than {MAX_HELD:,} overrides, {count:,} of them here"
                fix = "begin a new file from the overrides of this one"
                raise InputError(f"{where}: {message}", [Diagnostic("error", where, "session-file", message, fix)])
        elif action[0] == "undo":
            history.undo()
        elif action[0] == "redo":
            history.redo()
        elif action[0] == "return":
            history.go_back(action[1])
        elif action[0] == "placement":
            history.note(PlacementNote(action[1], action[2], history.state, action[3]))
        else:
            history.mark(action[1])
    return list(history.done)
