"""A whole netlist text: compose, guard against expansion, hand the sections to their readers."""

from __future__ import annotations

from pathlib import Path

import yaml

from tbuda_lab.core.errors import InputError, NetlistError
from tbuda_lab.core.files import Fault, Limits, bounded_text, compose_yaml
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, is_null, kind_of
from tbuda_lab.core.netlist.reader.graphs import read_fused_ops, read_graphs
from tbuda_lab.core.netlist.reader.programs import read_programs
from tbuda_lab.core.netlist.reader.queues import read_queues
from tbuda_lab.core.netlist.schema import Finding, Netlist


def read_text(text: str, path: str | None = None) -> Netlist:
    """The netlist of a text, as far as it can be read; `problems` holds what it refuses. Never raises."""
    out = Netlist([], order=[], path=path)
    try:
        root = _compose(text)
        if isinstance(root, Finding):
            out.problems.append(root)
            return out
        _read_root(root, out)
    except RecursionError:
        out.problems.append(
            Finding("error", "Y1", (), "the text is nested too deeply", "a netlist has ten levels at most")
        )
    return out


_LIMITS = Limits(items=1 << 15)
"""The longest list is the one of a program's instructions; a queue has a buffer for each core of its grid."""


def _compose(text: str) -> Node | Finding:
    """The node graph of the first document; a finding if it is no YAML, or beyond the limits of a file."""
    root = compose_yaml(text, _LIMITS)
    if isinstance(root, Fault):
        return Finding("error", "Y1", (), root.message, root.fix, root.line, root.column)
    if root is None:
        return Finding(
            "error",
            "D2",
            ("devices", "arch"),
            "the file is empty: it names no arch",
            "write devices, queues, graphs and programs",
        )
    return root


def _read_root(root: Node, out: Netlist) -> None:
    r = NetlistReader()
    if not isinstance(root, yaml.MappingNode):
        what = "names no arch" if is_null(root) else f"is {kind_of(root)}, not a map of sections"
        r.problem(root, ("devices", "arch"), "D2", f"the file {what}", "write devices, queues, graphs and programs")
    else:
        for name, node in r.named_entries(root, (), "section", "Y2"):
            out.order.append(name)
            _read_section(r, name, node, out)
    out.source = r.source
    out.problems.extend(r.problems)


def _read_section(r: NetlistReader, name: str, node: Node, out: Netlist) -> None:
    match name:
        case "devices":
            _read_devices(r, node, out)
        case "queues":
            out.queues = read_queues(r, node)
        case "graphs":
            out.graphs = read_graphs(r, node)
        case "programs":
            out.programs = read_programs(r, node)
        case "fused_ops":
            out.fused_ops = read_fused_ops(r, node)
        case _:
            out.extra[name] = r.plain(node)


def _read_devices(r: NetlistReader, node: Node, out: Netlist) -> None:
    f = r.fields(node, ("devices",), "devices", ("arch",), "D1")
    if "arch" not in f:
        return
    arch = f["arch"]
    out.arch_as_list = isinstance(arch, yaml.SequenceNode)
    if out.arch_as_list:
        out.arch = r.texts(arch, ("devices", "arch"), "arch", "D2")
    elif not is_null(arch):
        out.arch = [r.scalar(arch, ("devices", "arch"), "D2", str, "")]


MAX_BYTES = 256 << 20  # of a netlist's text


def load(path: str | Path, *, lenient: bool = False) -> Netlist:
    """Reads a netlist file.

    Raises NetlistError with every problem of the text, each with its line; `lenient=True` returns what could be read
    instead, with the problems in `Netlist.problems`, so that a broken file can be shown. A file that cannot be opened
    or decoded raises NetlistError in both cases.
    """
    return loads(file_text(path), lenient=lenient, path=str(path))


def file_text(path: str | Path) -> str:
    """The text of a netlist file. Raises NetlistError for one that cannot be opened or decoded."""
    try:
        return bounded_text(Path(path), MAX_BYTES, "is not a netlist")
    except InputError as error:
        raise NetlistError(str(error)) from error


def loads(text: str, *, lenient: bool = False, path: str | None = None) -> Netlist:
    """The same for the text of a netlist; `path` only names it in messages."""
    netlist = read_text(text, path)
    if netlist.problems and not lenient:
        count = len(netlist.problems)
        raise NetlistError(
            f"{path or 'the netlist'} has {count} problem{'s' * (count > 1)}",
            [p.diagnostic(path) for p in netlist.problems],
        )
    return netlist
