"""What surrounds the making of an op: the graph, the IPU, name scopes, and whether ops keep their order."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tbuda_lab.popxl.tensorlocation import ExecutionContext

if TYPE_CHECKING:
    from tbuda_lab.popxl.graph import Graph, Op
    from tbuda_lab.popxl.ir import Ir

Mode = Literal[True, False, "pass"]
Function = TypeVar("Function", bound=Callable[..., Any])
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Context:
    """The state of one process. `get_current_context()` gives it."""

    def __init__(self) -> None:
        self._graphs: list[Graph] = []
        self._name_scopes: list[list[str]] = []
        self._ipus: list[int | None] = [0]
        self._io_tiles = 0
        self._sequences: list[_Sequence] = []
        self._hooks: dict[int, Callable[[Op], Any]] = {}
        self._next_hook = 0
        self.execution_context = ExecutionContext.Normal

    @property
    def ipu_id(self) -> int | None:
        """The IPU of new ops: 0 outside `ipu(...)`; None where the program says that it is not known."""
        return self._ipus[-1]

    @property
    def io_tile_set(self) -> bool:
        return self._io_tiles > 0

    def push_name_scope(self, name: str) -> None:
        self._name_scopes[-1].append(name)

    def pop_name_scope(self) -> str:
        return self._name_scopes[-1].pop()

    @property
    def name_scopes(self) -> list[str]:
        return self._name_scopes[-1] if self._name_scopes else []

    def push_graph(self, g: Graph) -> None:
        """Raises `RuntimeError` for a graph of another Ir than the one around it."""
        if self._graphs and self._graphs[-1].ir is not g.ir:
            raise RuntimeError("a graph of another Ir is open: leave its context first")
        self._graphs.append(g)
        self._name_scopes.append([])

    def pop_graph(self) -> Graph:
        self._name_scopes.pop()
        return self._graphs.pop()

    @property
    def graph(self) -> Graph:
        """Raises `RuntimeError` outside of all graphs."""
        if not self._graphs:
            raise RuntimeError("no graph is open: write `with ir.main_graph:` around it")
        return self._graphs[-1]

    @property
    def main_graph(self) -> Graph:
        return self.graph.ir.main_graph

    @property
    def ir(self) -> Ir:
        return self.graph.ir

    def register_op_created_hook(self, fn: Callable[[Op], Any]) -> int:
        """fn is called with every new op of any graph; returns a handle."""
        self._next_hook += 1
        self._hooks[self._next_hook] = fn
        return self._next_hook

    def remove_op_created_hook(self, handle: int) -> None:
        self._hooks.pop(handle, None)

    def op_created(self, op: Op) -> None:
        """Called once for every new op: order, then hooks."""
        for number, sequence in enumerate(self._sequences):
            sequence.add(op, inner=self._sequences[number + 1 :])
            if sequence.mode != True:  # noqa: E712 - a mode, which may be "pass"
                break
        for hook in list(self._hooks.values()):
            hook(op)


class _Sequence:
    """One `in_sequence` scope. True: each op after those before it. False: ops without order among themselves, which an
    outer True scope keeps together. "pass": ops as if there were no scope."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.last: dict[tuple[int, ExecutionContext], list[Op]] = {}
        self.block: tuple[_Sequence, dict[Any, list[Op]], dict[Any, list[Op]]] | None = None

    def add(self, op: Op, inner: list[_Sequence]) -> None:
        key = (id(op.graph), op.context)
        if self.mode == "pass":
            return
        if self.mode is False:
            return
        if any(s.mode == "pass" for s in inner):
            return
        block = next((s for s in inner if s.mode is False), None)
        if block is None:
            op.after.update(self.last.get(key, ()))
            self.last[key] = [op]
            self.block = None
            return
        if self.block is None or self.block[0] is not block:
            self.block = (block, {}, {})
        before, members = self.block[1], self.block[2]
        if key not in before:
            before[key] = list(self.last.get(key, ()))
        op.after.update(before[key])
        members.setdefault(key, []).append(op)
        self.last[key] = members[key]


_CONTEXT = Context()


def get_current_context() -> Context:
    """The state of this process."""
    return _CONTEXT


def get_current_graph() -> Graph:
    """The graph that new ops go to. Raises `RuntimeError` outside of all graphs."""
    return _CONTEXT.graph


def get_main_graph() -> Graph:
    """Its main graph. Raises `RuntimeError` outside of all graphs."""
    return _CONTEXT.main_graph


def get_ir() -> Ir:
    """Its Ir. Raises `RuntimeError` outside of all graphs."""
    return _CONTEXT.ir


gcg, gmg, gir = get_current_graph, get_main_graph, get_ir


@contextlib.contextmanager
def ipu(ipu: int | None) -> Generator[int | None, None, None]:
    """New ops go to IPU number `ipu`. Raises `TypeError` for what is no whole number, `ValueError` for one below 0."""
    if ipu is not None and operator.index(ipu) < 0:
        raise ValueError(f"IPUs are counted from 0, and none is {ipu}")
    _CONTEXT._ipus.append(ipu)
    try:
        yield ipu
    finally:
        _CONTEXT._ipus.pop()


@contextlib.contextmanager
def in_sequence(mode: Mode = True) -> Generator[Mode, None, None]:
    """Whether new ops run in the order of the program. Raises `TypeError` for None."""
    if mode is None:
        raise TypeError("`None` cannot be passed to in_sequence: give True, False or 'pass'")
    if mode not in (True, False, "pass"):
        raise ValueError(f"in_sequence takes True, False or 'pass', not {mode!r}")
    _CONTEXT._sequences.append(_Sequence(mode))
    try:
        yield mode
    finally:
        _CONTEXT._sequences.pop()


@contextlib.contextmanager
def io_tiles() -> Generator[None, None, None]:
    """New ops go to the tiles that are kept for transfers."""
    _CONTEXT._io_tiles += 1
    try:
        yield
    finally:
        _CONTEXT._io_tiles -= 1


@contextlib.contextmanager
def name_scope(name: str) -> Generator[str, None, None]:
    """Names of new tensors begin with `name`/."""
    _CONTEXT.push_name_scope(name)
    depth = len(_CONTEXT._name_scopes)
    try:
        yield name
    finally:
        if len(_CONTEXT._name_scopes) == depth:
            _CONTEXT.pop_name_scope()


@contextlib.contextmanager
def execution_context(context: ExecutionContext) -> Generator[ExecutionContext, None, None]:
    """New ops belong to another program than the main one: weights from the host, weights to the host."""
    before = _CONTEXT.execution_context
    _CONTEXT.execution_context = context
    try:
        yield context
    finally:
        _CONTEXT.execution_context = before


_execution_context = execution_context
_debug_frames = 0


@contextlib.contextmanager
def debug_context_frame_offset(i: int) -> Generator[int, None, None]:
    """Lines of new ops are those of the caller `i` frames further out."""
    global _debug_frames
    _debug_frames += i
    try:
        yield i
    finally:
        _debug_frames -= i


def get_source_location(offset: int = 0) -> str:
    """ "file:line" of the program's line that is being executed; offset: so many frames further out."""
    frame = sys._getframe(1)
    skip = offset + _debug_frames
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN) and not name.endswith("contextlib.py"):
            if skip == 0:
                return f"{name}:{frame.f_lineno}"
            skip -= 1
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


def op_debug_context(name: str | Callable[..., Any]) -> Any:
    """A decorator of functions that make ops: names of their tensors begin with the function's, or with `name`."""
    if callable(name):
        return op_debug_context(name.__name__)(name)

    def decorate(fn: Function) -> Function:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate
