"""Which instructions the grid does, and why the others go to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.kinds import KINDS, Ground, NotOnGrid
from tbuda_lab.popxl.lowering.values import Block, Instr, Val

FLOATS = (dtypes.float32, dtypes.float16, dtypes.bool)
"""Types that the grid holds as Float32."""
_INTEGER_RESULTS = ("ArgMax", "ArgMin")
_PROGRAM = ("HostLoad", "HostStore", "RemoteLoad", "RemoteStore", "Collective", "PrintTensor", "Loop", "If")
_ENCODINGS = ("OneHotRows", "LossRows")


def place_instructions(block: Block) -> None:
    """Fill in `place` ("grid", "host", "program") and `reason` of all instructions."""
    for instr in block.all_instrs():
        if instr.kind in _PROGRAM:
            instr.place = "program"
        elif instr.kind in _ENCODINGS:
            instr.place, instr.reason = "host", "integer encoding"
        else:
            instr.reason = _why_host(instr)
            instr.place = "host" if instr.reason else "grid"


def _why_host(instr: Instr) -> str:
    """Empty for the grid."""
    kind = KINDS[instr.kind]
    forms = {v.dtype for v in (*instr.ins, *instr.outs)}
    results = {v.dtype for v in instr.outs}
    if kind.grid is None:
        return kind.host_reason or "no form on the grid"
    inputs = {v.dtype for v in instr.ins}
    if instr.kind in _INTEGER_RESULTS and all(f in FLOATS for f in inputs):
        forms = inputs
    if any(f.is_int for f in forms):
        casts = instr.kind == "Cast" and not any(f.is_int for f in results)
        return "integer encoding" if casts else "integer arithmetic"
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


def trial_input(graph: Graph, number: int, v: Val) -> str:
    """An input of a graph of its own for one instruction; constants are constants."""
    if v.const is not None:
        node = Node(f"x{number}", NodeKind.CONSTANT, v.shape, value=as_float(v.const))
    else:
        node = Node(f"x{number}", NodeKind.INPUT, v.shape, attrs={"dtype": "float32"})
    return graph.add(node).name


def write_ops(b: Builder, instr: Instr, names: list[str]) -> tuple[str, ...]:
    """The core ops of an instruction; the names of its results. Raises `NotOnGrid`."""
    form = KINDS[instr.kind].grid
    assert form is not None
    made: Any = form(Ground(b), instr.attrs, *names)
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


def as_float(value: np.ndarray) -> np.ndarray:
    """A constant as the grid holds it."""
    return np.asarray(value, np.float32)
