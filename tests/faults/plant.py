"""Faults of six kinds, each planted after one stage, so that everything later is made of the faulty graph."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwSparseMatmul
from tbuda_lab.core.netlist.schema import Tm

KINDS = ("wrong TM", "swapped operand", "lost bias", "wrong format", "saturated block", "off-by-one slice")
PIPELINE = "tbuda_lab.core.compiler.pipeline"


@dataclasses.dataclass(frozen=True)
class Fault:
    """What was planted: kind, stage, the op; `change` edits the graph (or netlist) of the stage in place."""

    kind: str
    stage: str
    op: str
    change: Callable[[Graph], None]


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """While it lasts, compiles have the fault."""
    import tbuda_lab.core.compiler.pipeline as pipeline

    passes_run, lower = pipeline.passes.run, pipeline.lower

    def run_passes(*args, **kwargs):
        done = passes_run(*args, **kwargs)
        fault.change(done.graph)
        return done

    def run_lower(*args, **kwargs):
        graph = lower(*args, **kwargs)
        fault.change(graph)
        return graph

    if fault.stage == "passed":
        with mock.patch.object(pipeline.passes, "run", run_passes):
            yield
    elif fault.stage in ("lowered", "golden"):
        with mock.patch.object(pipeline, "lower", run_lower):
            yield
    else:
        yield


def faults(result: CompileResult) -> list[Fault]:
    """Every fault that can be planted in a compile."""
    return [*_nd_faults(result.passed), *_tile_faults(result.lowered), *_netlist_faults(result)]


def _replace(name: str, **fields) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        if name in graph:
            for field, value in fields.items():
                setattr(graph[name], field, value)

    return change


def _swap(name: str) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        if name in graph:
            a, b, *rest = graph[name].inputs
            graph[name].inputs = (b, a, *rest)

    return change


def _roll(parameter: str, axis: int) -> Callable[[Graph], None]:
    """Everything of a parameter is read one further."""

    def change(graph: Graph) -> None:
        if parameter in graph and graph[parameter].value is not None:
            graph[parameter].value = np.roll(graph[parameter].value, 1, axis)

    return change


def _nd_faults(graph: Graph) -> Iterator[Fault]:
    users = graph.users()
    for node in graph.ops:
        shapes = [graph[s].shape for s in node.sources]
        if node.op.type in ("subtract", "divide") and shapes[0] == shapes[1] == node.shape:
            yield Fault("swapped operand", "passed", node.name, _swap(node.name))
        if node.op.type == "matmul" and len(shapes) == 2 and shapes[0] == shapes[1]:
            yield Fault("swapped operand", "passed", node.name, _swap(node.name))
        if node.op.type == "matmul" and len(node.inputs) == 3:
            yield Fault("lost bias", "passed", node.name, _replace(node.name, inputs=node.inputs[:2]))
        if node.op.type == "transpose" and node.shape == shapes[0]:
            yield Fault("wrong TM", "passed", node.name, _identity(node.name))
        if node.op.type == "index" and getattr(node.op, "start", 0) > 0:
            moved = dataclasses.replace(node.op, start=node.op.start - 1, stop=node.op.stop - 1)
            yield Fault("off-by-one slice", "passed", node.name, _replace(node.name, op=moved))
        for source in node.sources[1:2]:
            one_reader = len(users[source]) == 1 and graph[source].kind is NodeKind.PARAMETER
            if one_reader and graph[source].value is not None and graph[source].value.ndim >= 2:
                yield Fault("off-by-one slice", "passed", node.name, _roll(source, -1))


def _identity(name: str) -> Callable[[Graph], None]:
    """Its readers read its operand: the move is lost."""

    def change(graph: Graph) -> None:
        if name not in graph:
            return
        source = graph[name].sources[0]
        for node in graph:
            if name in node.sources:
                node.inputs = tuple(Edge(source) if e.source == name else e for e in node.inputs)

    return change


def _tile_faults(graph: Graph) -> Iterator[Fault]:
    for node in graph.ops:
        shapes = [graph[s].shape for s in node.sources]
        plain = not any(edge.tms for edge in node.inputs)
        if isinstance(node.op, HwBinary) and node.op.fn == "subtract" and plain and shapes[0] == shapes[1]:
            yield Fault("swapped operand", "lowered", node.name, _swap(node.name))
        if isinstance(node.op, HwMatmul) and node.op.bias:
            bare = dataclasses.replace(node.op, bias=False)
            yield Fault("lost bias", "lowered", node.name, _replace(node.name, op=bare, inputs=node.inputs[:2]))
        for port, edge in enumerate(node.inputs):
            for tms in _wrong_tms(edge.tms, shapes[port]):
                inputs = tuple(Edge(e.source, tms) if k == port else e for k, e in enumerate(node.inputs))
                yield Fault("wrong TM", "lowered", node.name, _replace(node.name, inputs=inputs))
        if isinstance(node.op, HwSparseMatmul):
            yield Fault("off-by-one slice", "lowered", node.name, _shift_picker(node.name))
        if isinstance(node.op, HwMatmul) and graph[node.sources[1]].kind is NodeKind.PARAMETER:
            yield Fault("off-by-one slice", "lowered", node.name, _roll(node.sources[1], -1))
            yield Fault("saturated block", "lowered", node.name, _saturate(node.sources[1]))
        if node.df is DataFormat.Float16_b and not isinstance(node.op, HwSparseMatmul):
            yield Fault("wrong format", "golden", node.name, _replace(node.name, df=DataFormat.Bfp2_b))


def _wrong_tms(tms: tuple[TM, ...], shape: tuple[int, ...]) -> Iterator[tuple[TM, ...]]:
    """Other TMs with a result of the same shape."""
    _, z, rows, cols = shape
    if rows == cols and rows > 1 and z == 1 and not tms:
        yield (TM("transpose"),)
    names = [tm.name for tm in tms]
    if rows == cols and "transpose" in names and len(tms) == 1:
        yield ()
    for k, tm in enumerate(tms):
        if tm.name == "hslice" and rows == cols and tms[k + 1 : k + 2] == ():
            yield (TM("transpose"), *tms[:k], TM("hslice", tm.args)) if k == 0 else tms[::-1]


def _shift_picker(name: str) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        if name not in graph:
            return
        picker = graph[name].op.picker
        array = picker.array.copy()
        array[:, -1] = np.roll(array[:, -1], 1)
        graph[name].op = dataclasses.replace(graph[name].op, picker=type(picker)(array))

    return change


def _saturate(parameter: str) -> Callable[[Graph], None]:
    """One value of each block of 16 far beyond the others: they are lost in a format with shared exponents."""

    def change(graph: Graph) -> None:
        node = graph.nodes.get(parameter)
        if node is not None and node.value is not None:
            value = np.array(node.value, order="C")  # so that it is seen flat, not copied
            flat = value.reshape(-1)
            flat[::16] = np.sign(flat[::16]) * np.abs(flat).max() * 8
            node.value = value

    return change


def _netlist_faults(result: CompileResult) -> Iterator[Fault]:
    """`change` takes a copy of the netlist."""
    for epoch, graph in result.netlist.graphs.items():
        for op in graph.ops.values():
            if op.name not in result.lowered.nodes:
                continue
            if op.type in ("subtract",) and op.inputs[0].tms == op.inputs[1].tms:
                yield Fault("swapped operand", "netlist", op.name, _netlist_swap(epoch, op.name))
            if op.attributes.get("bias"):
                yield Fault("lost bias", "netlist", op.name, _netlist_bias(epoch, op.name))
            node = result.lowered[op.name]
            for port, operand in enumerate(op.inputs[: len(node.inputs)]):
                _, z, rows, cols = result.lowered[node.sources[port]].shape
                if rows == cols and rows > 1 and z == 1 and not operand.tms and op.grid_size == (1, 1):
                    yield Fault("wrong TM", "netlist", op.name, _netlist_transpose(epoch, op.name, port))
            if op.out_df is DataFormat.Float16_b:
                yield Fault("wrong format", "netlist", op.name, _netlist_format(epoch, op.name))


def _netlist_swap(epoch: str, name: str):
    def change(netlist) -> None:
        inputs = netlist.graphs[epoch].ops[name].inputs
        inputs[0], inputs[1] = inputs[1], inputs[0]

    return change


def _netlist_bias(epoch: str, name: str):
    def change(netlist) -> None:
        op = netlist.graphs[epoch].ops[name]
        del op.attributes["bias"]
        op.inputs = op.inputs[:2]

    return change


def _netlist_transpose(epoch: str, name: str, port: int):
    def change(netlist) -> None:
        netlist.graphs[epoch].ops[name].inputs[port].tms = [Tm("transpose", [])]

    return change


def _netlist_format(epoch: str, name: str):
    def change(netlist) -> None:
        netlist.graphs[epoch].ops[name].out_df = DataFormat.Bfp2_b

    return change


def with_netlist(result: CompileResult, fault: Fault) -> CompileResult:
    """The result with a faulty netlist."""
    netlist = copy.deepcopy(result.netlist)
    fault.change(netlist)
    return dataclasses.replace(result, netlist=netlist)


__all__ = ["KINDS", "Fault", "Node", "faults", "planted", "with_netlist"]
