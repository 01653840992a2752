"""Loads and stores that are merged give what they give one by one, whatever stands between them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import ops

Program = Callable[["Sheet"], None]


class Sheet:
    """What a program uses: two streams from the host, one to it, a variable and a remote buffer of two entries."""

    def __init__(self) -> None:
        self.a, self.b = (popxl.h2d_stream((3,), popxl.float32, name=name) for name in "ab")
        self.out = popxl.d2h_stream((3,), popxl.float32, name="out")
        self.v = popxl.variable(np.array([1, -2, 3], np.float32), name="v")
        self.buffer = popxl.remote_buffer((3,), popxl.float32, 2)

    def store(self, t: popxl.Tensor) -> None:
        ops.host_store(self.out, t)


def _in_place_behind_a_store(p: Sheet) -> None:
    p.store(p.v)
    ops.relu_(p.v)
    p.store(p.v)


def _in_place_on_a_view(p: Sheet) -> None:
    part = p.v[1:]
    p.store(p.v)
    ops.var_updates.copy_var_update_(part, ops.host_load(p.a)[:2])
    p.store(p.v)


def _a_call_by_reference(p: Sheet) -> None:
    graph = p.v.ir.create_empty_graph()
    with graph, popxl.in_sequence():
        t = popxl.graph_input((3,), popxl.float32, by_ref=True)
        ops.add_(t, popxl.constant(np.float32(1)))
    p.store(p.v)
    ops.call(graph, p.v)
    p.store(p.v)


def _results_read_between(p: Sheet) -> None:
    x = ops.host_load(p.a)
    y = ops.relu(x)
    z = ops.host_load(p.b)
    p.store(y + z)
    p.store(ops.host_load(p.a))


def _an_entry_stored_and_loaded(p: Sheet) -> None:
    ops.remote_store(p.buffer, 0, p.v)
    x = ops.remote_load(p.buffer, 0)
    ops.add_(p.v, x)
    ops.remote_store(p.buffer, 1, p.v)
    p.store(ops.remote_load(p.buffer, 1))


def _loaded_in_place(p: Sheet) -> None:
    ops.remote_store(p.buffer, 1, p.v + 1.0)
    p.store(p.v)
    ops.remote_load_(p.buffer, 1, p.v)
    p.store(p.v)
    ops.relu_(p.v)
    p.store(p.v)


def _a_stream_moved_in_a_call(p: Sheet) -> None:
    graph = p.v.ir.create_empty_graph()
    with graph, popxl.in_sequence():
        popxl.graph_output(ops.host_load(p.a))
    x = ops.host_load(p.a)
    (y,) = ops.call(graph)
    z = ops.host_load(p.a)
    for t in (x, y, z):
        p.store(t)


PROGRAMS: list[Program] = [
    _in_place_behind_a_store,
    _in_place_on_a_view,
    _a_call_by_reference,
    _results_read_between,
    _an_entry_stored_and_loaded,
    _loaded_in_place,
    _a_stream_moved_in_a_call,
]


def _run(program: Program, merged: bool) -> list[np.ndarray]:
    ir = popxl.Ir()
    ir.num_host_transfers = 4
    context: Any = popxl.transforms.merge_exchange() if merged else contextlib.nullcontext()
    with ir.main_graph, popxl.in_sequence():
        sheet = Sheet()
        with context:
            program(sheet)
    data = np.arange(24, dtype=np.float32).reshape(2, 4, 3) - 5
    session = popxl.Session(ir, "ipu_model")
    with session:
        streams = ir.get_all_h2d_streams()
        got = session.run({s: data["ab".index(s.tensor_id)] for s in streams})
    return [got[sheet.out], session.get_tensor_data(sheet.v)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_merging_is_not_seen(program: Program) -> None:
    for one, other in zip(_run(program, True), _run(program, False), strict=True):
        np.testing.assert_array_equal(one, other)
