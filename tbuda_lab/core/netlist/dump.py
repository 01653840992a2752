"""Netlists as text, in the layout that PyBuda writes (section order, key order, line breaks, aligned queue names)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist import writer
from tbuda_lab.core.netlist.schema import (
    Allocate,
    Blocking,
    Deallocate,
    EndLoop,
    Execute,
    FusedOp,
    Instruction,
    Loop,
    NetGraph,
    Netlist,
    NetOp,
    Param,
    Program,
    Queue,
    QueueBuffer,
    SubOp,
    Var,
    VarInst,
)
from tbuda_lab.core.netlist.tables import GROUPS, queue_groups

T = TypeVar("T")

_SECTIONS = ("devices", "queues", "graphs", "programs", "fused_ops")
_LINE = "\n         "  # continuation lines of an op


def dump(n: Netlist, path: str | Path) -> None:
    """Writes the netlist to a file, whole or not at all. Raises OutputError if it cannot be written there."""
    text = dumps(n)
    with atomic_text(path) as file:
        file.write(text)


class Texts:
    """Texts of ops and queues by the very object, for netlists that share objects nobody changes any more."""

    def __init__(self, limit: int = 20_000) -> None:
        self._texts: dict[int, tuple[object, str]] = {}
        self._limit = limit

    def of(self, item: T, make: Callable[[T], str]) -> str:
        """The text of an op or queue, written by `make` where it was not written before."""
        entry = self._texts.get(id(item))
        if entry is None or entry[0] is not item:
            if len(self._texts) >= self._limit:
                self._texts.clear()
            entry = self._texts[id(item)] = (item, make(item))
        return entry[1]


def dumps(n: Netlist, texts: Texts | None = None) -> str:
    """The text of a netlist. Sections come in the order of `Netlist.order`, elements in that of their dicts; the text
    of equal netlists is equal, and reading it gives an equal netlist. texts: of ops and queues written before."""
    order = list(n.order)
    written = (n.arch, n.queues, n.graphs, n.programs, n.fused_ops)
    order += [s for s, content in zip(_SECTIONS, written, strict=True) if content and s not in order]
    order += [s for s in n.extra if s not in order]
    return "\n\n".join("\n".join(_section(n, name, texts)) for name in order) + "\n"


def _section(n: Netlist, name: str, texts: Texts | None) -> Iterator[str]:
    match name:
        case "devices":
            names = [writer.name(arch) for arch in n.arch]
            yield "devices:"
            yield f"  arch: {writer.flow_list(names) if n.arch_as_list else names[0]}" if names else "  {}"
        case "queues":
            yield from _queues(n, texts)
        case "graphs":
            yield "graphs:"
            for i, graph in enumerate(n.graphs.values()):
                yield from ([""] if i else [])
                yield from _graph(graph, texts)
        case "programs":
            yield "programs:"
            for program in n.programs:
                yield from _program(program, texts)
        case "fused_ops":
            yield "fused_ops:"
            for fused in n.fused_ops.values():
                yield from _fused_lines(fused)
        case _:
            data = {name: n.extra.get(name)}
            yield yaml.dump(data, Dumper=yaml.CSafeDumper, sort_keys=False, width=160, allow_unicode=True).rstrip("\n")


# -- queues ------------------------------------------------------------------------------------------------------
def _queues(n: Netlist, texts: Texts | None) -> Iterator[str]:
    yield "queues:"
    groups = queue_groups(n)
    ranks = [GROUPS.index(g) for g in groups.values()]
    grouped = ranks == sorted(ranks)  # else the file has an order of its own, and headings would mislead
    names = {q: writer.name(q) for q in n.queues}
    width = max(map(len, names.values()), default=0) + 2
    last = None
    for queue in n.queues.values():
        group = groups[queue.name]
        if grouped and group != last:
            yield from ("", f"  # {group}")
        last = group
        text = texts.of(queue, _queue_text) if texts else _queue_text(queue)
        name = names.get(queue.name) or writer.name(queue.name)
        yield f"  {name + ':':<{width}} {text}"


def _queue_text(q: Queue) -> str:
    return writer.flow_map(_queue(q))


def _queue(q: Queue) -> Iterator[tuple[str, str]]:
    if q.input:
        yield "input", writer.name(q.input)
    if q.input_tms is not None:
        yield "input_tms", writer.tms(q.input_tms)
    if q.alias is not None:
        yield "alias", writer.name(q.alias)
    if q.type:
        yield "type", writer.name(q.type)
    if q.entries != -1:
        yield "entries", str(q.entries)
    if q.grid_size != (0, 0):
        yield "grid_size", writer.value(q.grid_size)
    yield from _blocking(q.blocking)
    if q.blocking.order is not None:
        yield "ublock_order", writer.name(q.blocking.order)
    if q.tile_dim is not None:
        yield "tile_dim", writer.value(q.tile_dim)
    if q.df is not DataFormat.Invalid:
        yield "df", str(q.df)
    if q.layout is not None:
        yield "layout", writer.name(q.layout)
    if q.target_device != -1:
        yield "target_device", writer.value(q.target_device)
    if q.loc:
        yield "loc", writer.name(q.loc)
        if q.buffers:
            alone = len(q.buffers) == 1 and q.buffers[0].alone
            yield q.loc, _buffer(q.buffers[0]) if alone else writer.flow_list(map(_buffer, q.buffers))
    for key, ports in (("read_ports", q.read_ports), ("write_ports", q.write_ports)):
        if ports is not None:
            yield key, writer.value(ports)
    for key, item in q.other.items():
        yield key, writer.literal(item)


def _blocking(b: Blocking) -> Iterator[tuple[str, str]]:
    if b.t != -1:
        yield "t", str(b.t)
    if b.mblock != (-1, -1):
        yield "mblock", writer.value(b.mblock)
    if b.ublock != (-1, -1):
        yield "ublock", writer.value(b.ublock)


def _buffer(b: QueueBuffer) -> str:
    return f"{b.address:#x}" if b.bare else f"[{b.channel}, {b.address:#x}]"


# -- graphs ------------------------------------------------------------------------------------------------------
def _graph(graph: NetGraph, texts: Texts | None = None) -> Iterator[str]:
    yield (
        f"  {writer.name(graph.name)}:"
        if graph.ops or graph.target_device != -1 or graph.input_count != -1
        else f"  {writer.name(graph.name)}: {{}}"
    )
    if graph.target_device != -1:
        yield f"    target_device: {writer.value(graph.target_device)}"
    if graph.input_count != -1:
        yield f"    input_count: {graph.input_count}"
    for op in graph.ops.values():
        yield texts.of(op, _op_text) if texts else _op_text(op)


def _op_text(op: NetOp) -> str:
    lines = [", ".join(f"{key}: {text}" for key, text in part) for part in _op(op)]
    return f"    {writer.name(op.name)}: {{{(',' + _LINE).join(filter(None, lines))}}}"


def _op(op: NetOp) -> Iterator[list[tuple[str, str]]]:
    """The parts of an op, one line each: where it stands, how it is blocked, its TMs, its attributes."""

    def optional(*keys: str) -> Iterator[tuple[str, str]]:
        for key in keys:
            item = getattr(op, key)
            if item is not None:
                yield key, writer.value(str(item) if isinstance(item, DataFormat) else item)

    head: list[tuple[str, str]] = [("type", writer.name(op.type))] if op.type else []
    head += optional("grid_loc")
    if op.grid_size != (0, 0):
        head.append(("grid_size", writer.value(op.grid_size)))
    head.append(("inputs", writer.flow_list(writer.name(i.source) for i in op.inputs)))
    head += optional("forked_dram_inputs", "gradient_op", "untilize_output", "grid_transpose", "overlay_size")
    yield head
    body = [
        *_blocking(op.blocking),
        *optional("tile_dim", "buf_size_mb", "input_buf_min_size_tiles", "input_dram_io_buf_size_tiles"),
    ]
    if op.blocking.order is not None:
        body.append(("ublock_order", writer.name(op.blocking.order)))
    body.append(("in_df", writer.flow_list(str(i.df) for i in op.inputs)))
    if op.out_df is not DataFormat.Invalid:
        body.append(("out_df", str(op.out_df)))
    body += optional("intermed_df", "acc_df", "math_fidelity")
    yield body
    per_input: list[tuple[str, str]] = []
    for i, source in enumerate(op.inputs):
        if source.unpad is not None:
            per_input.append((f"input_{i}_unpad", writer.value(source.unpad)))
        if source.tms is not None:
            per_input.append((f"input_{i}_tms", writer.tms(source.tms)))
        if source.pad is not None:
            per_input.append((f"input_{i}_pad", writer.value(source.pad)))
    yield per_input
    yield [("attributes", writer.value(op.attributes))] if op.attributes else []


# -- programs ----------------------------------------------------------------------------------------------------
def _program(program: Program, texts: Texts | None = None) -> Iterator[str]:
    yield f"  - {writer.name(program.name)}:" if program.instructions else f"  - {writer.name(program.name)}: []"
    yield from program_lines(program, texts)


def program_lines(program: Program, texts: Texts | None = None) -> Iterator[str]:
    """The instructions of a program, one line each, indented by their loops. texts: of executes written before."""
    depth = 0
    for instruction in program.instructions:
        if isinstance(instruction, EndLoop):
            depth = max(depth - 1, 0)
        if texts is not None and isinstance(instruction, Execute):
            text = texts.of(instruction, _instruction)
        else:
            text = _instruction(instruction)
        yield f"    - {'  ' * depth}{text}"
        depth += isinstance(instruction, Loop)


def _instruction(item: Instruction) -> str:
    match item:
        case Param(names):
            return f"param: {writer.flow_list(map(writer.name, names))}"
        case Var(static, values, as_list):
            opcode = "staticvar" if static else "var"
            if as_list:
                return f"{opcode}: {writer.flow_list(map(writer.name, values))}"
            return f"{opcode}: {writer.flow_map((writer.name(k), writer.value(v)) for k, v in values.items())}"
        case VarInst(out, opcode, args):
            return f"varinst: {writer.flow_list([writer.name(out), writer.name(opcode), *map(writer.value, args)])}"
        case Loop(count):
            return f"loop: {writer.value(count)}"
        case EndLoop(as_map):
            return "endloop:" if as_map else "endloop"
        case Execute():
            return _execute(item)
        case Allocate(queues):
            return f"allocate_queue: {writer.flow_list(map(writer.name, queues))}"
        case Deallocate(queues):
            return f"deallocate_queue: {writer.flow_list(map(writer.name, queues))}"


def _execute(item: Execute) -> str:
    head = f"execute: {{graph_name: {writer.name(item.graph)}"
    if item.settings is None:
        return head + "}"
    settings = [
        f"{writer.name(queue)}: {writer.flow_map((key, writer.value(v)) for key, v in setting.fields.items())}"
        for queue, setting in item.settings.items()
    ]
    if not settings:
        return head + ", queue_settings: {}}"
    separator = ",\n               "
    return f"{head}, queue_settings: {{\n               {separator.join(settings)}}} }}"


# -- fused ops ---------------------------------------------------------------------------------------------------
def _fused_lines(fused: FusedOp) -> Iterator[str]:
    yield f"  {writer.name(fused.id)}:"
    if fused.inputs != -1:
        yield f"    inputs: {fused.inputs}"
    if fused.intermediates != -1:
        yield f"    intermediates: {fused.intermediates}"
    for key, item in fused.other.items():
        yield f"    {writer.literal(key)}: {writer.literal(item)}"
    yield "    schedules:" if fused.schedules else "    schedules: []"
    for schedule in fused.schedules:
        yield "      -" if schedule else "      - []"
        for sub in schedule:
            yield f"        - {writer.name(sub.name)}: {writer.flow_map(_sub_op(sub))}"


def _sub_op(sub: SubOp) -> Iterator[tuple[str, str]]:
    if sub.type:
        yield "type", writer.name(sub.type)
    yield "inputs", writer.flow_list(map(writer.name, sub.inputs))
    for i, items in sub.tms.items():
        yield f"input_{i}_tms", writer.tms(items)
    for key, names in (("pop", sub.pop), ("pop_last", sub.pop_last)):
        if names is not None:
            yield key, writer.flow_list(map(writer.name, names))
    if sub.zero_point is not None:
        yield "zero_point", writer.value(sub.zero_point)
    if sub.attributes:
        yield "attributes", writer.value(sub.attributes)
    yield from _blocking(Blocking(-1, sub.mblock, sub.ublock))
    if sub.output:
        yield "output", writer.name(sub.output)


def layout_of(value: Any) -> str:
    """One element (queue, op, sub-op) as its netlist text, for hover cards and messages."""
    if isinstance(value, Queue):
        return f"{writer.name(value.name)}: {writer.flow_map(_queue(value))}"
    if isinstance(value, NetOp):
        lines = [", ".join(f"{key}: {text}" for key, text in part) for part in _op(value)]
        return f"{writer.name(value.name)}: {{{(',' + _LINE).join(filter(None, lines))}}}"
    if isinstance(value, SubOp):
        return f"{writer.name(value.name)}: {writer.flow_map(_sub_op(value))}"
    raise TypeError(f"no netlist text for {type(value).__name__}")
