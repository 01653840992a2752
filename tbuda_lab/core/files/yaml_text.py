"""YAML from anybody: looked at event by event before anything is made of it.

libyaml composes by recursion, so a text that is deep enough ends the process; aliases make a short text long; some
tags raise whatever their Python type raises. Here a text has limits, and its values are plain: texts, numbers, truths,
lists and maps. What looks like a date is a text.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files.bounded import bounded_text

MAX_NUMBER = 400
"""Characters of a number."""
_FLAT = "a file of this kind is flat"


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much a text may hold. levels: of lists and maps within each other, aliases followed. nodes: of the text as it
    stands. alias_nodes: nodes that aliases add, all together, beside four for each byte of the text. items: of a
    list."""

    levels: int = 100
    nodes: int = 20_000_000
    alias_nodes: int = 200_000
    items: int = 20_000_000


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with a text: lines and columns count from 1, None where the place is not known."""

    message: str
    fix: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{place}{self.message}; {self.fix}"


def yaml_fault(text: str, limits: Limits = Limits()) -> Fault | None:
    """What is wrong with a YAML text by its syntax and `limits`, None for nothing; costs one pass over the text."""
    try:
        return _survey(text, limits)
    except yaml.YAMLError as error:
        fault = _syntax(error)
        if "nesting depth" in fault.message:  # the limit of libyaml's own scanner, of 1,000 levels
            fault = dataclasses.replace(fault, message=_too_deep(limits), fix=_FLAT)
        return fault
    except (UnicodeError, ValueError) as error:
        return Fault(f"not YAML: {error}", "write UTF-8 text in YAML")


def _too_deep(limits: Limits) -> str:
    return f"nested more than {limits.levels} levels deep"


def compose_yaml(text: str, limits: Limits = Limits()) -> Any:
    """The node of the first document of a text, None where it is empty, or a `Fault`."""
    fault = yaml_fault(text, limits)
    if fault is not None:
        return fault
    loader = yaml.CSafeLoader(text)
    try:
        return loader.get_node() if loader.check_node() else None
    except yaml.YAMLError as error:
        return _syntax(error)
    finally:
        loader.dispose()


def parse_yaml(text: str, name: str, limits: Limits = Limits()) -> Any:
    """The plain value of a text's only document. Raises `InputError`; `name` stands in it."""
    fault = yaml_fault(text, limits)
    if fault is not None:
        raise InputError(f"{name}: {fault}")
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {_syntax(error)}") from error


def yaml_map(path: Path, what: str, most: int = 4 << 20) -> dict[str, Any]:
    """The map in a YAML file of at most `most` bytes. Raises `InputError`, with place where there is one; `what` says
    what the file should be."""
    yaml_map = parse_yaml(bounded_text(path, most, f"is not a {what}"), f"{path}: not a {what}")
    if not isinstance(yaml_map, dict):
        raise InputError(f"{path}: not a {what}: expected a map at the top")
    return yaml_map


class _PlainLoader(yaml.CSafeLoader):
    """Plain values only; whatever cannot be one is an error with its place."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise yaml.constructor.ConstructorError(None, None, f"no value: {error}", node.start_mark) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            names: set[tuple[str, str]] = set()
            for key, _ in node.value:
                name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
                if name in names:
                    text = f"{key.value[:80]!r} occurs twice in a map"
                    raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
                if name is not None:
                    names.add(name)
        return super().construct_mapping(node, deep=deep)

    def number(self, node: Any) -> int | float:
        if isinstance(node, yaml.ScalarNode) and len(node.value) > MAX_NUMBER:
            raise ValueError(f"a number of {len(node.value)} characters, more than {MAX_NUMBER}")
        make = self.construct_yaml_int if node.tag.endswith(":int") else self.construct_yaml_float
        result: int | float = make(node)
        return result

    def text(self, node: Any) -> str:
        return str(self.construct_scalar(node))


for _tag in ("int", "float"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _PlainLoader.number)
for _tag in ("timestamp", "binary"):
    _PlainLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _PlainLoader.text)


def _survey(text: str, limits: Limits) -> Fault | None:
    """Counts what a text holds, from its events: what an anchor names counts again at each alias of it."""
    named: dict[str, tuple[int, int]] = {}  # anchor -> nodes and levels of what it names
    open_: list[tuple[int, int, str | None]] = []  # of every collection begun: nodes, levels below it so far, anchor
    uncounted = -2 * (limits.nodes + limits.items)
    items = [uncounted]  # of every list begun; maps are not counted
    nodes, repeated, most = 0, 0, limits.alias_nodes + 4 * len(text)

    def fault(event: Any, message: str, fix: str) -> Fault:
        mark = event.start_mark
        return Fault(message, fix, *((mark.line + 1, mark.column + 1) if mark else (None, None)))

    event: Any
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        kind = type(event)
        if kind is yaml.ScalarEvent:
            nodes += 1
            items[-1] += 1
            size, levels, anchor = 1, 0, event.anchor
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            items[-1] += 1
            items.append(0 if kind is yaml.SequenceStartEvent else uncounted)
            open_.append((1, 1, event.anchor))
            if len(open_) > limits.levels:
                return fault(event, _too_deep(limits), _FLAT)
            continue
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            size, levels, anchor = open_.pop()
            items.pop()
            nodes += 1
        elif kind is yaml.AliasEvent:
            if any(anchor == event.anchor for _, _, anchor in open_):
                return fault(
                    event, f"*{event.anchor} contains itself: aliases expand without end", "write the values out"
                )
            size, levels = named.get(event.anchor, (1, 0))
            anchor = None
            items[-1] += 1
            repeated += size
            if repeated > most:
                return fault(event, f"aliases (`*name`) expand to more than {most} values", "write the values out")
            if len(open_) + levels > limits.levels:
                return fault(event, f"{_too_deep(limits)} by aliases", _FLAT)
        else:
            if kind is yaml.DocumentStartEvent:
                named.clear()
            continue
        if items[-1] > limits.items:
            return fault(event, f"a list of more than {limits.items} items", "lists of a file of this kind are shorter")
        if nodes > limits.nodes:
            return fault(event, f"more than {limits.nodes} values", "a file of this kind is smaller")
        if anchor is not None:
            named[anchor] = (size, levels)
        if open_:
            before, below, own = open_[-1]
            open_[-1] = (before + size, max(below, levels + 1), own)
    return None


def _syntax(error: yaml.YAMLError) -> Fault:
    if not isinstance(error, yaml.MarkedYAMLError):
        return Fault(f"not YAML: {error}", "write UTF-8 text in YAML")
    mark = error.problem_mark or error.context_mark
    place = (mark.line + 1, mark.column + 1) if mark else (None, None)
    what = ", ".join(filter(None, (error.context, error.problem)))
    return Fault(f"not YAML: {what}", "correct the syntax there or just above", *place)
