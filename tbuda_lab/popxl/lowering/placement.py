"""Which instructions the grid does, and why the others go to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core import passes
from tbuda_lab.core.compiler.integer_outputs import INTEGER_ARITHMETIC, with_grid_integers
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import CACHE, PHASE, RAM, ROLE, WRITES, forward_part
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.evaluate import GRID_WHOLE, WHOLE_TYPE
from tbuda_lab.core.ops.unary import Buffer, Nop
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.dialects.slots import Slices
from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.kinds import KINDS, Ground, NotOnGrid
from tbuda_lab.popxl.lowering.values import Block, Instr, Val

FLOATS = (dtypes.float32, dtypes.float16, dtypes.bool)
"""Types that the grid holds as Float32."""
_INTEGER_RESULTS = ("ArgMax", "ArgMin")
_PROGRAM = ("HostLoad", "HostStore", "RemoteLoad", "RemoteStore", "Collective", "PrintTensor", "Loop", "If")
_ENCODINGS = ("OneHotRows", "LossRows", "MaskWords")


def place_instructions(block: Block, device: DeviceSpec) -> None:
    """Fill in `place` ("grid", "host", "program") and `reason` of all instructions. Whole numbers that the grid finds
    among floats (the place of a maximum) are floats there; the host makes integers of them."""
    for instr in block.all_instrs():
        place_one(instr, device)
    _round_results(block)


def place_one(instr: Instr, device: DeviceSpec) -> None:
    """Fill in `place` and `reason` of an instruction."""
    if instr.kind in _PROGRAM:
        instr.place = "program"
    elif instr.kind in _ENCODINGS:
        instr.place, instr.reason = "host", "integer encoding"
    else:
        instr.reason = _why_host(instr, device)
        instr.place = "host" if instr.reason else "grid"


def _round_results(block: Block) -> None:
    made: list[Instr] = []
    for instr in block.instrs:
        for inner in instr.blocks:
            _round_results(inner)
        made.append(instr)
        if instr.kind in _INTEGER_RESULTS and instr.place == "grid":
            (whole,) = instr.outs
            result = Val(whole.shape, dtypes.float32, label=whole.label)
            instr.outs = [result]
            attrs = {"from": "float32", "to": whole.dtype.name}
            cast = Instr("Cast", attrs, [result], [whole], instr.op, place="host", reason="integer encoding")
            made.append(cast)
    block.instrs = made


def _why_host(instr: Instr, device: DeviceSpec) -> str:
    """Empty for the grid."""
    kind = KINDS[instr.kind]
    forms = {v.dtype for v in (*instr.ins, *instr.outs)}
    results = {v.dtype for v in instr.outs}
    if kind.grid is None:
        return kind.host_reason or "no form on the grid"
    inputs = {v.dtype for v in instr.ins}
    if instr.kind in _INTEGER_RESULTS and all(f in FLOATS for f in inputs):
        forms = inputs
    if forms == {dtypes.int32} and all(v.size for v in (*instr.ins, *instr.outs)):
        return _trial_of_words(instr, device)
    if any(f.is_int for f in forms):
        casts = instr.kind == "Cast" and not any(f.is_int for f in results)
        return "integer encoding" if casts else INTEGER_ARITHMETIC
    if any(f not in FLOATS for f in forms):
        return "8-bit floats" if any(f.is_float8 for f in forms) else "double precision"
    if any(v.size == 0 for v in (*instr.ins, *instr.outs)):
        return "no elements"
    return _trial(instr)


def _trial(instr: Instr) -> str:
    """Why the kind's form on the grid does not take these shapes; empty where it does."""
    graph = Graph("trial")
    names = [trial_input(graph, k, v) for k, v in enumerate(instr.ins)]
    try:
        write_ops(Builder(graph), instr, names)
    except NotOnGrid as error:
        return str(error)
    except (TbudaError, ValueError) as error:
        return str(error).split("\n")[0]
    return ""


def _trial_of_words(instr: Instr, device: DeviceSpec) -> str:
    """Why the grid does not do an instruction on 32-bit integers; empty where it does. It is lowered alone, between
    rams."""
    constants = tuple(None if v.const is None else v.const.tobytes() for v in instr.ins)
    key = (
        device.name,
        instr.kind,
        repr(sorted(instr.attrs.items(), key=repr)),
        tuple(v.shape for v in instr.ins),
        constants,
    )
    if key not in _WORDS:
        if len(_WORDS) >= LARGEST_MEMORY:
            _WORDS.clear()
        _WORDS[key] = _lowered_alone(instr, device)
    return _WORDS[key]


_WORDS: dict[tuple[object, ...], str] = {}
LARGEST_MEMORY = 4096


def _lowered_alone(instr: Instr, device: DeviceSpec) -> str:
    graph = Graph("trial")
    b = Builder(graph)
    names = []
    for k, v in enumerate(instr.ins):
        if v.const is not None:
            names.append(b.constant(grid_array(v.const)))
            continue
        read = b.op(Buffer(), _ram_of_words(graph, f"x{k}", v).name)
        slices = Slices.of(v.shape)
        names.append(read if slices is None else Ground(b).join(read, slices, v.shape))
    try:
        results = write_ops(b, instr, names)
        for k, (name, v) in enumerate(zip(results, instr.outs, strict=True)):
            ram, slices = _ram_of_words(graph, f"y{k}", v), Slices.of(v.shape)
            if slices is not None:
                name = Ground(b).cut(name, slices)
            attrs = {PHASE: forward_part(0), WRITES: ram.name, RAM: ram.name}
            graph.add(Node(f"w{k}", NodeKind.OUTPUT, ram.shape, inputs=(Edge(b.op(Nop(), name)),), attrs=attrs))
        marked = with_grid_integers(graph, device)
        if any(GRID_WHOLE not in node.attrs for node in marked.ops):
            return INTEGER_ARITHMETIC
        options = CompileOptions()
        lower(passes.run(marked, options).graph, device, options)
    except (NotOnGrid, TbudaError, ValueError):
        return INTEGER_ARITHMETIC
    return ""


def _ram_of_words(graph: Graph, name: str, v: Val) -> Node:
    slices = Slices.of(v.shape)
    shape = v.shape if slices is None else slices.shape
    attrs = {ROLE: CACHE, RAM: name}
    return graph.add(Node(name, NodeKind.PARAMETER, shape, value=np.zeros(shape, np.int32), attrs=attrs))


def trial_input(graph: Graph, number: int, v: Val) -> str:
    """An input of a graph of its own for one instruction; constants are constants."""
    if v.const is not None:
        node = Node(f"x{number}", NodeKind.CONSTANT, v.shape, value=grid_array(v.const))
    else:
        node = Node(f"x{number}", NodeKind.INPUT, v.shape, attrs={"dtype": "float32"})
    return graph.add(node).name


def write_ops(b: Builder, instr: Instr, names: list[str]) -> tuple[str, ...]:
    """The core ops of an instruction; the names of its results. Raises `NotOnGrid`."""
    form = KINDS[instr.kind].grid
    assert form is not None
    before = len(b.graph.nodes)
    ground, lead = Ground(b), _lead(instr)
    made: Any = form(ground, instr.attrs, *(ground.spread(x, lead) for x in names))
    if all(v.dtype is dtypes.int32 for v in (*instr.ins, *instr.outs)):  # a sum of these is none of 64 bits here
        for node in list(b.graph.nodes.values())[before:]:
            if node.kind is NodeKind.OP:
                node.attrs = {**node.attrs, WHOLE_TYPE: "int32"}
    results = made if isinstance(made, tuple) else (made,)
    fitted = []
    for name, val in zip(results, instr.outs, strict=False):
        shape = tuple(b.shape(name))
        if shape != val.shape:
            if int(np.prod(shape)) != val.size:
                raise NotOnGrid(f"its form on the grid has shape {shape}, the op {val.shape}")
            name = b.reshape(name, val.shape)
        fitted.append(name)
    return tuple(fitted)


def _lead(instr: Instr) -> tuple[int, ...]:
    """The dims before the last two of a result to which the operands broadcast; none where they do not."""
    end = 2 if instr.kind == "MatMul" else 0
    parts = [v.shape[: len(v.shape) - end] for v in instr.ins]
    out = instr.outs[0].shape
    try:
        fits = min(len(v.shape) for v in instr.ins) >= end and np.broadcast_shapes(*parts) == out[: len(out) - end]
    except ValueError:
        fits = False
    return out[:-2] if fits and len(out) > 2 else ()


def grid_array(value: np.ndarray) -> np.ndarray:
    """A constant as the grid holds it: 32-bit integers, or floats of anything else."""
    return np.asarray(value, np.int32 if value.dtype == np.int32 else np.float32)
