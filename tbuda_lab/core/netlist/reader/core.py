"""The reader's tools: typed fields out of composed YAML nodes, a source map on the way, problems collected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar, cast

import yaml

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.schema import Finding, SourceSpan

Node = Any  # a composed yaml node; PyYAML's stubs leave most of its fields untyped
Where = tuple[str, ...]
T = TypeVar("T")
_WHOLE = "write a whole number, such as 4 or 0x10"
_HINTS: dict[Any, str] = {
    scalars.parse_int: _WHOLE,
    scalars.parse_float: "write a number, such as 0.5",
    str: "write a name",
    scalars.parse_bool: "write true or false",
    scalars.parse_value: "write a number, true, false or a $variable",
}
FORMATS = {f.name: f for f in DataFormat if f is not DataFormat.Invalid}


class NetlistReader:
    """Collects the source map and the problems of one file. Getters never raise: a value that cannot be read is
    reported once, under `rule`, and the default takes its place."""

    def __init__(self) -> None:
        self.source: dict[Where, SourceSpan] = {}
        self.problems: list[Finding] = []

    # -- problems ------------------------------------------------------------------------------------------------
    def problem(self, node: Node, where: Where, rule: str, message: str, fix: str = "") -> None:
        mark = node.start_mark
        self.problems.append(Finding("error", rule, where, message, fix, mark.line + 1, mark.column + 1))

    def mark(self, where: Where, node: Node) -> None:
        mark = node.start_mark
        self.source[where] = SourceSpan(mark.line + 1, mark.column + 1)

    # -- maps ----------------------------------------------------------------------------------------------------
    def items(self, node: Node, where: Where, what: str, *, rule: str = "Y3") -> Iterator[tuple[str, Node, Node]]:
        """(key, key node, value node) of a map, duplicates included; reports what is not a map."""
        if not isinstance(node, yaml.MappingNode):
            if not is_null(node):
                self.problem(
                    node, where, rule, f"{what} must be a map, not {kind_of(node)}", "write `{key: value, ...}`"
                )
            return
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key, value
            else:
                self.problem(key, where, rule, f"a key of {what} is {kind_of(key)}", "keys are plain names")

    def named_entries(self, node: Node, where: Where, what: str, rule: str) -> Iterator[tuple[str, Node]]:
        """The entries of a map of named things; every further one of the same name is refused under `rule`."""
        seen: dict[str, int] = {}
        for name, key, value in self.items(node, where, f"the map of {what}s"):
            if name in seen:
                self.problem(
                    key,
                    (*where, name),
                    rule,
                    f"{what} {name!r} is defined twice, first in line {seen[name]}",
                    "give each its own name",
                )
                continue
            seen[name] = key.start_mark.line + 1
            self.mark((*where, name), key)
            yield name, value

    def fields(
        self,
        node: Node,
        where: Where,
        what: str,
        allowed: Collection[str],
        rule: str,
        extra: Callable[[str, Node, Node], bool] | None = None,
    ) -> dict[str, Node]:
        """The known fields of an element; unknown and doubled ones are refused. `extra` may take a key for itself."""
        out: dict[str, Node] = {}
        source = self.source
        for name, key, value in self.items(node, where, what):
            if name in allowed:
                if name in out:
                    self.problem(key, (*where, name), "Y2", f"field {name!r} of {what} is written twice", "keep one")
                    continue
                mark = key.start_mark
                source[(*where, name)] = SourceSpan(mark.line + 1, mark.column + 1)
                out[name] = value
            elif extra is None or not extra(name, key, value):
                self.problem(
                    key,
                    (*where, name),
                    rule,
                    f"unknown field {name!r} of {what}",
                    f"known: {', '.join(sorted(allowed))}",
                )
        return out

    # -- scalars -------------------------------------------------------------------------------------------------
    def scalar(self, node: Node, where: Where, rule: str, parse: Callable[[str], T], default: Any) -> T:
        """The value that `parse` makes of a scalar; `default` where it is another thing, with a problem of that
        rule."""
        if isinstance(node, yaml.ScalarNode):
            try:
                return parse(node.value)
            except ValueError as error:
                self.problem(node, where, rule, str(error), _HINTS.get(parse, _WHOLE))
                return cast(T, default)
        self.problem(node, where, rule, f"expected a single value, not {kind_of(node)}", _HINTS.get(parse, _WHOLE))
        return cast(T, default)

    def text(self, fields: dict[str, Node], key: str, where: Where, rule: str = "Y4") -> str | None:
        node = fields.get(key)
        return None if node is None else self.scalar(node, (*where, key), rule, str, "")

    def whole(self, fields: dict[str, Node], key: str, where: Where, rule: str = "Y4") -> int | None:
        node = fields.get(key)
        return None if node is None else self.scalar(node, (*where, key), rule, scalars.parse_int, -1)

    def truth(self, fields: dict[str, Node], key: str, where: Where, rule: str = "Y4") -> bool | None:
        node = fields.get(key)
        return None if node is None else self.scalar(node, (*where, key), rule, scalars.parse_bool, False)

    def df(self, node: Node, where: Where, rule: str = "Q8") -> DataFormat:
        """A data format; Invalid where the text names none, with a problem."""
        if isinstance(node, yaml.ScalarNode):
            df = FORMATS.get(node.value)
            if df is not None:
                return df
            self.problem(
                node, where, rule, f"{scalars.clip(node.value)} is not a data format", f"known: {', '.join(FORMATS)}"
            )
        else:
            self.problem(
                node, where, rule, f"expected a data format, not {kind_of(node)}", f"known: {', '.join(FORMATS)}"
            )
        return DataFormat.Invalid

    # -- lists ---------------------------------------------------------------------------------------------------
    def sequence(self, node: Node, where: Where, what: str, rule: str = "Y3") -> list[Node]:
        """The items of a list. A scalar iterates as nothing, as the backend's YAML library has it."""
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        if not is_null(node):
            self.problem(node, where, rule, f"{what} must be a list, not {kind_of(node)}", "write `[a, b]`")
        return []

    def ints(self, node: Node, where: Where, what: str, rule: str = "Y4", bits: int = 32) -> list[int]:
        def parse(text: str) -> int:
            return scalars.parse_int(text, bits)

        return [self.scalar(item, where, rule, parse, -1) for item in self.sequence(node, where, what)]

    def texts(self, node: Node, where: Where, what: str, rule: str = "Y4") -> list[str]:
        return [self.scalar(item, where, rule, str, "") for item in self.sequence(node, where, what)]

    def pair(
        self, fields: dict[str, Node], key: str, where: Where, rule: str, default: tuple[int, int]
    ) -> tuple[int, int]:
        """Two whole numbers, such as [rows, columns]; `default` where the field is missing or wrong."""
        node = fields.get(key)
        if node is None:
            return default
        where = (*where, key)
        values = self.ints(node, where, key)
        if len(values) == 2:
            return values[0], values[1]
        if isinstance(node, yaml.SequenceNode) or is_null(node):
            self.problem(node, where, rule, f"{key} has {len(values)} values", "write exactly two: [rows, columns]")
        return default

    def device(self, fields: dict[str, Node], where: Where) -> int | list[int]:
        """`target_device`: a chip, or a list of chips of a multi-instance element; -1 when not written."""
        node = fields.get("target_device")
        if node is None:
            return -1
        if isinstance(node, yaml.SequenceNode):
            return self.ints(node, (*where, "target_device"), "target_device")
        return self.scalar(node, (*where, "target_device"), "Y4", scalars.parse_int, -1)

    # -- sections that only pass through ---------------------------------------------------------------------------
    def plain(self, node: Node) -> Any:
        """Plain data: dict, list, int, float, bool, str, None. Of a doubled key the last counts."""
        if isinstance(node, yaml.ScalarNode):
            return scalars.resolve(node.value) if not node.style else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(item) for item in node.value]
        out = {}
        for key, value in node.value:
            name = self.plain(key) if isinstance(key, yaml.ScalarNode) else flat_text(key)
            out[name] = self.plain(value)
        return out


def is_null(node: Node) -> bool:
    """Nothing written, or a word that stands for nothing."""
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in scalars.NULLS


def kind_of(node: Node) -> str:
    """What a node is, in words, for messages."""
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if is_null(node) else scalars.clip(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a map"


def flat_text(node: Node) -> str:
    """A list or map that stands as a key, as text."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return "[" + ", ".join(map(flat_text, node.value)) + "]"
    return "{" + ", ".join(f"{flat_text(k)}: {flat_text(v)}" for k, v in node.value) + "}"
