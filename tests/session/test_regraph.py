"""Nops, queues and formats asked for after a compile: epochs that they do not touch stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.lowering.data_formats import legal_formats
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.core.session.commands import FormatOp, InsertNop, InsertQueue
from tests.session.models import encoder
from tests.session.scratch import same_as_from_scratch


def opened() -> Session:
    """Two layers in at least three epochs."""
    model, inputs = encoder()
    traced = Session(model, inputs, "wormhole_b0").trace()
    ops = Session(traced, inputs, "wormhole_b0").compile().placement.schedule
    breaks = tuple(Override("epoch_break", ops[len(ops) * k // 3]) for k in (1, 2))
    return Session(traced, inputs, "wormhole_b0", overrides=breaks)


def edges(session: Session) -> list[tuple[str, str, int]]:
    graph = session.compile().lowered
    ops = {n.name for n in graph.ops}
    return [(s, n.name, p) for n in graph.ops for p, s in enumerate(n.sources) if s in ops]


@pytest.mark.parametrize("seed", range(2))
def test_an_inserted_nop_or_queue_remakes_its_epochs_alone(seed: int) -> None:
    session, rng = opened(), np.random.default_rng(seed)
    plain = session.compile().placement
    touched: set[int] = set()
    for turn in range(4):
        before, runs = session.compile(), session.work
        all_edges = edges(session)
        source, reader, port = all_edges[int(rng.integers(len(all_edges)))]
        session.apply(
            InsertNop(source, (reader,), count=1 + turn % 2)
            if turn % 2 == seed
            else InsertQueue(source, (reader,), port)
        )
        after = session.compile()
        assert session.work["place"] == runs["place"] and session.work["regraph"] > runs.get("regraph", 0)
        was, now = before.placement, after.placement
        touched |= {plain.ops[n].epoch for n in (source, reader) if n in plain.ops}
        for name, spot in plain.ops.items():
            if spot.epoch not in touched and len(plain.epochs) == len(now.epochs):
                there = now.ops[name]
                assert (there.start, there.size, there.row, there.epoch) == (
                    spot.start,
                    spot.size,
                    spot.row,
                    spot.epoch,
                )
        new = set(now.ops) - set(was.ops)
        assert bool(new) == (turn % 2 == seed)
        assert new or port in queued_ports(after.lowered[reader])
        same_as_from_scratch(session)
    assert all(c.pcc is not None and c.pcc > 0.99 for c in session.verify())


def test_the_result_is_a_function_of_the_overrides() -> None:
    """Whatever came before it; and sizes asked for beside them are edits of the placement with the nops."""
    session = opened()
    first = edges(session)
    nop, queue = InsertNop(first[3][0], (first[3][1],)), InsertQueue(first[9][0], (first[9][1],), first[9][2])
    op = first[5][1]
    size = next(s for s in session.legal(op).legal if s != session.legal(op).grid)
    session.apply(nop)
    session.compile()
    session.apply(queue)
    session.compile()
    session.apply(ResizeOp(op, size))
    expected = netlist.dumps(session.compile().netlist)
    assert session.compile().placement.ops[op].size in (size, size[::-1])
    same_as_from_scratch(session)
    again = opened()
    again.apply(nop, queue, ResizeOp(op, size))
    assert netlist.dumps(again.compile().netlist) == expected
    for _ in range(3):
        session.undo()
    assert edges(session) == first


def test_another_format_has_the_bounds_that_its_candidates_give() -> None:
    session = opened()
    graph = session.compile().lowered
    for op in ("0.up.matmul", "1.matmul"):
        formats = [f.name for f in legal_formats(graph, op, session.device) if f.name != str(graph[op].df)]
        session.apply(FormatOp(op, data_format=formats[0]))
        expected, got = same_as_from_scratch(session).report, session.compile().placement.report
        assert expected is not None and got is not None and got.bounds == expected.bounds
        session.undo()


def test_what_an_insertion_would_do_is_what_it_does() -> None:
    session = opened()
    source, reader, _ = edges(session)[7]
    prediction = session.whatif(InsertNop(source, (reader,)))
    session.apply(InsertNop(source, (reader,)))
    report = session.compile().placement.report
    assert report is not None
    assert prediction.total_cycles[1] == sum(e.limiter_cycles for e in report.epochs)
    assert prediction.kernel_cycles[1] == sum(e.kernel_cycles for e in report.epochs)
