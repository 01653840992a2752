"""A run that fails, or that the user stops, changes nothing: the next one is as if it had not been."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.dialects.replicas import Replica
from tbuda_lab.popxl import ops

TURNS = 3


@dataclasses.dataclass(frozen=True)
class Root(popxl.CustomOp):
    """Refuses numbers below zero, on the host."""

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if (x < 0).any():
            raise ValueError("no root of a number below 0")
        return np.asarray(np.sqrt(x))


def _program() -> tuple[popxl.Ir, dict[str, Any]]:
    """Sums of a stream go to a variable and an entry of a buffer; then comes the op that may fail, and a repeat."""
    ir = popxl.Ir()
    ir.num_host_transfers = TURNS
    with ir.main_graph, popxl.in_sequence():
        x, y = (popxl.h2d_stream((4,), popxl.float32, name=name) for name in "xy")
        total = popxl.variable(np.zeros(4, np.float32), name="total")
        buffer = popxl.remote_buffer((4,), popxl.float32, 2)
        kept = popxl.remote_variable(np.zeros(4, np.float32), buffer, 1, name="kept")
        first = ops.host_load(x)
        ops.add_(total, first)
        ops.remote_store(buffer, 1, total)
        root = Root()(first)
        out, roots = popxl.d2h_stream((4,), popxl.float32), popxl.d2h_stream((4,), popxl.float32)

        def turn(a: popxl.TensorByRef) -> None:
            ops.add_(a, ops.host_load(y))
            ops.host_store(out, ops.relu(a))

        ops.repeat(ir.create_graph(turn, total), TURNS, total)
        ops.host_store(roots, root)
    return ir, {"x": x, "y": y, "total": total, "kept": kept, "out": out, "roots": roots}


def _is_as_expected(session: popxl.Session, t: dict[str, Any], x: np.ndarray, y: np.ndarray) -> None:
    got = session.run({t["x"]: x, t["y"]: y})
    wanted = x[0] + np.cumsum(y, 0)
    np.testing.assert_array_equal(got[t["out"]], np.maximum(wanted, 0))
    np.testing.assert_array_equal(session.get_tensor_data(t["total"]), wanted[-1])
    np.testing.assert_array_equal(session.get_tensor_data(t["kept"]), x[0])


def test_an_op_that_fails_leaves_no_trace() -> None:
    ir, t = _program()
    x, y = np.full((TURNS, 4), 4.0, np.float32), np.arange(12, dtype=np.float32).reshape(TURNS, 4) - 4
    with popxl.Session(ir, "ipu_model") as session:
        with pytest.raises(popxl.popart_exception, match="no root of a number below 0"):
            session.run({t["x"]: -x, t["y"]: y})
        assert not session.get_tensor_data(t["total"]).any() and not session.get_tensor_data(t["kept"]).any()
        _is_as_expected(session, t, x, y)


def test_a_run_that_is_stopped_between_queues_leaves_them_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    ir, t = _program()
    x, y = np.full((TURNS, 4), 4.0, np.float32), np.arange(12, dtype=np.float32).reshape(TURNS, 4) - 4
    own = Replica.run

    def stopped(self: Replica, program: str, params: Any) -> None:
        if params.get("p_loop_count") == TURNS:  # its inputs are in the queues
            raise KeyboardInterrupt
        own(self, program, params)

    with popxl.Session(ir, "ipu_model") as session:
        with monkeypatch.context() as changed:
            changed.setattr(Replica, "run", stopped)
            with pytest.raises(KeyboardInterrupt):
                session.run({t["x"]: x, t["y"]: -y})
        _is_as_expected(session, t, x, y)
