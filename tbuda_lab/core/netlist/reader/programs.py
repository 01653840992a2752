"""The `programs` section."""

from __future__ import annotations

import yaml

from tbuda_lab.core.netlist.op_spec import SETTING_FIELDS
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null, kind_of
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

_SETTINGS = frozenset(SETTING_FIELDS)
_OPCODES = "param, var, staticvar, varinst, loop, endloop, execute, allocate_queue, deallocate_queue"


def read_programs(r: NetlistReader, node: Node) -> list[Program]:
    """Programs in file order. The path of instruction k of program p is ("programs", p, str(k))."""
    where = ("programs",)
    out: list[Program] = []
    seen: set[str] = set()
    for item in r.sequence(node, where, "programs"):
        if not isinstance(item, yaml.MappingNode) or len(item.value) != 1:
            r.problem(
                item, where, "P1", f"a program is a map of one name, not {kind_of(item)}", "write `- name: [...]`"
            )
        if not isinstance(item, yaml.MappingNode):
            continue
        for name, key, value in r.items(item, where, "a program", rule="P1"):
            if name in seen:
                r.problem(key, (*where, name), "P1", f"program {name!r} is defined twice", "give each its own name")
                continue
            seen.add(name)
            r.mark((*where, name), key)
            out.append(Program(name, _read_instructions(r, value, (*where, name))))
    return out


def _read_instructions(r: NetlistReader, node: Node, where: Where) -> list[Instruction]:
    out: list[Instruction] = []
    for item in r.sequence(node, where, "a program", "P1"):
        place = (*where, str(len(out)))
        r.mark(place, item)
        if isinstance(item, yaml.ScalarNode):
            if item.value == "endloop":
                out.append(EndLoop())
            else:
                r.problem(
                    item,
                    place,
                    "P1",
                    f"{scalars.clip(item.value)} is not an instruction without operands",
                    "only `endloop` does",
                )
            continue
        if not isinstance(item, yaml.MappingNode) or len(item.value) != 1:
            r.problem(
                item, place, "P1", "an instruction is a map of one key", f"write `- opcode: ...` with one of {_OPCODES}"
            )
            if not isinstance(item, yaml.MappingNode):
                continue
        for opcode, key, value in r.items(item, place, "an instruction", rule="P1"):
            instruction = _read_instruction(r, opcode, key, value, place)
            if instruction is not None:
                out.append(instruction)
            place = (*where, str(len(out)))
    return out


def _read_instruction(r: NetlistReader, opcode: str, key: Node, node: Node, where: Where) -> Instruction | None:
    match opcode:
        case "param":
            if not isinstance(node, yaml.SequenceNode):
                r.problem(
                    node, where, "P2", f"param takes a list of names, not {kind_of(node)}", "write `param: [$p_n]`"
                )
                return None
            return Param(r.texts(node, where, "param", "P2"))
        case "var" | "staticvar":
            return _read_var(r, node, where, opcode)
        case "varinst":
            items = _values(r, node, where, "varinst")
            if len(items) < 2:
                out = f" of {items[0]!r}" if items else ""
                r.problem(
                    node, where, "P2", f"varinst{out} has {len(items)} items", "write `[$out, opcode, operands...]`"
                )
                return None
            return VarInst(_name(items[0]), _name(items[1]), items[2:])
        case "loop":
            if is_null(node) or not isinstance(node, yaml.ScalarNode):
                r.problem(node, where, "P2", "loop has no count", "write `loop: $variable` or `loop: 4`")
                return None
            return Loop(r.scalar(node, where, "P2", scalars.parse_value, 1))
        case "endloop":
            return EndLoop(as_map=True)
        case "execute":
            return _read_execute(r, node, where)
        case "allocate_queue" | "deallocate_queue":
            names = r.texts(node, where, opcode, "P2")
            return Allocate(names) if opcode == "allocate_queue" else Deallocate(names)
    r.problem(key, where, "P1", f"unknown instruction {scalars.clip(opcode)}", f"known: {_OPCODES}")
    return None


def _read_var(r: NetlistReader, node: Node, where: Where, opcode: str) -> Var | None:
    values: dict[str, Value | None] = {}
    if isinstance(node, yaml.SequenceNode):
        for name in r.texts(node, where, opcode, "P2"):
            if name in values:
                r.problem(node, where, "P2", f"{opcode} declares {name!r} twice", "declare each once")
            values[name] = None
        return Var(opcode == "staticvar", values, as_list=True)
    if not isinstance(node, yaml.MappingNode):
        r.problem(
            node, where, "P2", f"{opcode} takes a list or a map, not {kind_of(node)}", "write `{$name: 0}` or `[$name]`"
        )
        return None
    for name, key, value in r.items(node, where, opcode):
        if name in values:
            r.problem(key, where, "P2", f"{opcode} declares {name!r} twice", "declare each once")
            continue
        values[name] = None if is_null(value) else r.scalar(value, where, "P2", scalars.parse_value, 0)
    return Var(opcode == "staticvar", values)


def _values(r: NetlistReader, node: Node, where: Where, what: str) -> list[Value]:
    return [r.scalar(item, where, "P2", scalars.parse_value, 0) for item in r.sequence(node, where, what, "P2")]


def _name(value: Value) -> str:
    return value if isinstance(value, str) else str(value)


def _read_execute(r: NetlistReader, node: Node, where: Where) -> Execute | None:
    f = r.fields(node, where, "execute", ("graph_name", "queue_settings"), "P3")
    if "graph_name" not in f:
        r.problem(node, where, "P3", "execute names no graph", "write `{graph_name: ..., queue_settings: {...}}`")
        return None
    graph = r.text(f, "graph_name", where, "P3") or ""
    if "queue_settings" not in f:
        return Execute(graph)
    place = (*where, "queue_settings")
    settings = {}
    for name, value in r.named_entries(f["queue_settings"], place, "queue setting", "P3"):
        at = (*place, name)
        fields = r.fields(value, at, "a queue setting", _SETTINGS, "P3")
        settings[name] = QueueSetting(
            {key: r.scalar(item, (*at, key), "P3", scalars.parse_value, 0) for key, item in fields.items()}
        )
    return Execute(graph, settings)
