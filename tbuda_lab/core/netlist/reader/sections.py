"""A whole netlist text: compose, guard against expansion, hand the sections to their readers."""

from __future__ import annotations

import yaml

from tbuda_lab.core.netlist.findings import Finding
from tbuda_lab.core.netlist.reader.core import Node, Reader, is_null, kind_of
from tbuda_lab.core.netlist.reader.fused import read_fused_ops
from tbuda_lab.core.netlist.reader.graphs import read_graphs
from tbuda_lab.core.netlist.reader.programs import read_programs
from tbuda_lab.core.netlist.reader.queues import read_queues
from tbuda_lab.core.netlist.schema import Netlist

_MOST_LEVELS = 100
_MOST_NODES = 20_000_000  # of a text with aliases, after following them


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
        out.problems.append(Finding("error", "Y1", (), "the text is nested too deeply",
                                    "a netlist has ten levels at most"))
    return out


def _compose(text: str) -> Node | Finding:
    """The node graph of the first document, by libyaml; a finding if it is no YAML."""
    try:
        deep = _too_deep(text)
        if deep is not None:
            return deep
        loader = yaml.CSafeLoader(text)
        try:
            root = loader.get_node() if loader.check_node() else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        return Finding("error", "Y1", (), f"not YAML: {what}", "mend the syntax there or just above", *place)
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        return Finding("error", "Y1", (), f"not YAML: {error}", "a netlist is UTF-8 text in YAML")
    if root is None:
        return Finding("error", "D2", ("devices", "arch"), "the file is empty: it names no arch",
                       "write devices, queues, graphs and programs")
    if "&" in text and "*" in text and _expanded(root) > _MOST_NODES:
        return Finding("error", "Y1", (), "aliases (`*name`) expand without end", "write the values out")
    return root


def _too_deep(text: str) -> Finding | None:
    """A finding for a text nested beyond all netlists: libyaml composes by recursion and would crash the process.

    Raises what the YAML parser raises.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST_LEVELS:
                mark = event.start_mark
                place = (mark.line + 1, mark.column + 1) if mark else (None, None)
                return Finding("error", "Y1", (), f"nested more than {_MOST_LEVELS} levels deep",
                               "a netlist has ten levels at most", *place)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return None


def _expanded(root: Node) -> int:
    """Number of nodes after following all aliases; a huge number for one that contains itself."""
    sizes: dict[int, int] = {}
    stack = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, done = stack.pop()
        if isinstance(node, yaml.ScalarNode) or (id(node) in sizes and not done):
            continue
        children = node.value if isinstance(node, yaml.SequenceNode) else [n for pair in node.value for n in pair]
        if done:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in children)
        else:
            if id(node) in open_nodes:
                return _MOST_NODES + 1
            open_nodes.add(id(node))
            stack.append((node, True))
            for child in children:
                if id(child) in open_nodes:
                    return _MOST_NODES + 1
                stack.append((child, False))
    return sizes.get(id(root), 1)


def _read_root(root: Node, out: Netlist) -> None:
    r = Reader()
    if not isinstance(root, yaml.MappingNode):
        what = "names no arch" if is_null(root) else f"is {kind_of(root)}, not a map of sections"
        r.problem(root, ("devices", "arch"), "D2", f"the file {what}", "write devices, queues, graphs and programs")
    else:
        for name, node in r.named(root, (), "section", "Y2"):
            out.order.append(name)
            _read_section(r, name, node, out)
    out.source = r.source
    out.problems.extend(r.problems)


def _read_section(r: Reader, name: str, node: Node, out: Netlist) -> None:
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


def _read_devices(r: Reader, node: Node, out: Netlist) -> None:
    f = r.fields(node, ("devices",), "devices", ("arch",), "D1")
    if "arch" not in f:
        return
    arch = f["arch"]
    out.arch_as_list = isinstance(arch, yaml.SequenceNode)
    if out.arch_as_list:
        out.arch = r.texts(arch, ("devices", "arch"), "arch", "D2")
    elif not is_null(arch):
        out.arch = [r.scalar(arch, ("devices", "arch"), "D2", str, "")]
