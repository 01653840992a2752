"""Ops that go to any epoch their operands and readers allow: alone, and the other epochs stay as they are."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.placer.interactive.carry import longest_rising
from tbuda_lab.core.session import EpochBreak, Session
from tbuda_lab.core.session.temporal import epochs_of, into_epoch
from tests.session.test_edits import check_placement


class Branches(nn.Module):
    """Three branches of two ops each, joined at the end: each of them may run early or late."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 128)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.d(self.a(x) * self.b(x) + self.c(x))


@pytest.fixture(params=[1, 2], ids=["an op each", "two ops each"])
def branches(request) -> Session:
    torch.manual_seed(0)
    session = Session(Branches().eval().requires_grad_(False), (torch.randn(1, 64, 128),), "e300", name="branches")
    order = session.placed().problem.order
    session.apply(*(EpochBreak(n) for n in order[request.param :: request.param]))
    session.compile()
    check_placement(session)
    assert len(session.result.placement.epochs) >= 4
    return session


def members(session: Session) -> list[set[str]]:
    return [set(e.ops) for e in session.result.placement.epochs]


def test_every_legal_epoch_is_reached_and_the_rest_stays(branches: Session) -> None:
    placed = branches.placed()
    ways: set[bool] = set()  # later, earlier
    before = members(branches)
    for op in placed.problem.order:
        here = placed.ops()[op].epoch
        for epoch in epochs_of(placed, op):
            if abs(epoch - here) < 2:
                continue
            ways.add(epoch > here)
            branches.apply(*into_epoch(branches.compiles, op, epoch), label=f"{op} to {epoch}")
            branches.compile()
            check_placement(branches)
            after = members(branches)
            assert any(op in ops and before[epoch] <= ops for ops in after)
            selected = [ops for i, ops in enumerate(before) if i not in (here, epoch)]
            assert all(ops in after for ops in selected)
            branches.undo()
            assert members(branches) == before
    assert ways == {True, False}


def test_there_and_back_again(branches: Session) -> None:
    placed = branches.placed()
    op, there = next(
        (op, e) for op in placed.problem.order for e in epochs_of(placed, op) if e > placed.ops()[op].epoch + 1
    )
    branches.apply(*into_epoch(branches.compiles, op, there))
    assert all(c.pcc > 0.99 for c in branches.verify())
    now = branches.placed().ops()[op].epoch
    home = epochs_of(branches.placed(), op)[0]
    branches.apply(*into_epoch(branches.compiles, op, home))
    branches.compile()
    check_placement(branches)
    assert branches.placed().ops()[op].epoch < now
    assert sum(o.kind == "schedule_constraint" for o in branches.overrides) <= 1


def test_an_epoch_that_no_order_allows_is_refused_with_those_that_are(branches: Session) -> None:
    placed = branches.placed()
    last = len(placed.segments) - 1
    first = placed.problem.order[0]
    legal = epochs_of(placed, first)
    assert last not in legal
    with pytest.raises(OverrideError, match="reads it in epoch") as error:
        into_epoch(branches.compiles, first, last)
    fix = error.value.diagnostics[0].fix
    assert all(str(e) in fix for e in legal if e != placed.ops()[first].epoch)
    with pytest.raises(OverrideError, match="it reads"):
        into_epoch(branches.compiles, placed.problem.order[-1], 0)


def test_epochs_of_agrees_with_the_edges(branches: Session) -> None:
    graph, ops = branches.result.lowered, branches.placed().ops()
    users = graph.users()
    for op in ops:
        low = max((ops[s].epoch for s in graph[op].sources if s in ops), default=0)
        high = min((ops[u].epoch for u, _ in users[op] if u in ops), default=len(branches.placed().segments) - 1)
        assert epochs_of(branches.placed(), op) == tuple(range(low, high + 1))


@given(st.lists(st.integers(0, 4), max_size=9))
def test_the_longest_run_that_never_falls(values: list[int]) -> None:
    matches = sorted(longest_rising(values))
    chosen = [values[i] for i in matches]
    assert chosen == sorted(chosen)
    runs = (c for n in range(len(values) + 1) for c in itertools.combinations(values, n))
    assert len(matches) == max(len(c) for c in runs if list(c) == sorted(c))
