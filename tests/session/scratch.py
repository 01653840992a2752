"""What a session arrived at by reuse, against the same epochs placed from scratch."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core import netlist
from tbuda_lab.core.balancer import Placement, op_models
from tbuda_lab.core.compiler import check_netlist
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.emit import emit
from tbuda_lab.core.netlist.check import check
from tbuda_lab.core.placer import Problem, assemble
from tbuda_lab.core.session import Session


def same_as_from_scratch(session: Session, chips: Sequence[int] | None = None) -> Placement:
    """Ops, queues, addresses, buffers, costs and netlist of the result are those of a fresh problem with the same
    epochs, and the netlist passes the strict check. chips: of the epochs; None: chosen anew, too. Returns the placement
    of the fresh problem."""
    result, placed = session.compile(), session.placed()
    constraints = resolve(result.overrides, result.lowered, result.device, result.options)
    models = op_models(result.lowered, result.device, result.options, constraints.choices)
    order = placed.problem.order
    fresh = Problem.of(result.lowered, models, result.device, result.options, order, constraints)
    expected = assemble(fresh, placed.segments, placed.policy, constraints.unmatched, chips=chips)
    got = result.placement
    assert (got.ops, got.epochs, got.queues, got.schedule) == (
        expected.ops,
        expected.epochs,
        expected.queues,
        expected.schedule,
    )
    assert got.input_buffers == expected.input_buffers and got.ublock_order == expected.ublock_order
    assert got.report is not None and expected.report is not None
    assert got.report.op_limiters == expected.report.op_limiters
    assert got.report.bounds.best <= got.report.bounds.achieved_limiter
    emission = emit(result.lowered, expected, result.device, result.options.microbatch)
    assert netlist.dumps(emission.netlist) == netlist.dumps(result.netlist)
    assert check_netlist(emission.netlist, result.device) == check_netlist(result.netlist, result.device)
    assert [f for f in check(result.netlist, profile="strict") if f.severity == "error"] == []
    return expected
