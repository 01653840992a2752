"""The recurrence against closed forms, and against an event-driven simulation of the same networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.epochsim import FlowEdge, FlowOp, Network, run_network
from tbuda_lab.core.epochsim.event_graph import event_graph, levels
from tbuda_lab.core.epochsim.network import EdgeWaits
from tbuda_lab.core.epochsim.solve import solve
from tests.epochsim.networks import chain, edge, networks, op
from tests.epochsim.oracle import EventDriven, starts


# -- closed forms -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("batch", [1, 2, 50])
def test_a_chain_of_equal_ops_is_full_after_its_length(length: int, batch: int) -> None:
    run = run_network(chain([100] * length), batch)
    number, turn = np.indices((length, batch))
    assert (run.start == 100 * (number + turn)).all()
    assert run.end[-1, -1] == 100 * (length + batch - 1)


@pytest.mark.parametrize("cycles", [[30, 100, 50], [100, 20, 20], [10, 20, 90]])
def test_a_chain_runs_at_the_pace_of_its_slowest_op(cycles: list[int]) -> None:
    run = run_network(chain(cycles), 40)
    assert run.end[-1, -1] == sum(cycles) + 39 * max(cycles)


def test_handing_over_tile_by_tile_fills_sooner() -> None:
    """k ops that hand on each of s tiles: the first input takes k + s - 1 steps and not k * s."""
    run = run_network(chain([80] * 5, steps=8), 3)
    assert run.end[-1, 0] == 10 * (5 + 8 - 1)
    assert run.end[-1, -1] == 10 * (5 + 8 - 1) + 2 * 80


def test_back_pressure_reaches_the_first_op_when_the_buffers_are_full() -> None:
    """A fast op before a slow one with room for two results: it runs ahead twice, then once per slow step."""
    run = run_network(chain([10, 100]), 20)
    # result n + 2 needs the space of result n, free when the slow op is done with it
    expected = [0, 10] + [10 + 100 * (n + 1) for n in range(18)]
    assert run.start[0].tolist() == expected
    assert run.end[1].tolist() == [10 + 100 * (n + 1) for n in range(20)]


def test_with_room_for_one_result_two_ops_take_turns() -> None:
    assert run_network(chain([30, 50], capacity=1), 10).end[-1, -1] == 10 * (30 + 50)
    assert run_network(chain([30, 50], capacity=2), 10).end[-1, -1] == 30 + 10 * 50


def fork_join(long: int, capacity: int, work: int = 10) -> Network:
    """a -> join directly, and a -> `long` ops -> join; the direct edge holds `capacity` results."""
    ops = [op("fork", work), *(op(f"long{i}", work) for i in range(long)), op("join", work)]
    edges = [edge(ops, i, i + 1, 2) for i in range(long + 1)]
    edges.append(edge(ops, 0, long + 1, capacity, port=1))
    return Network(tuple(ops), tuple(edges))


@pytest.mark.parametrize(("long", "capacity"), [(3, 2), (3, 3), (5, 2), (8, 4), (1, 1), (2, 6)])
def test_a_short_branch_that_holds_too_little_slows_the_fork(long: int, capacity: int) -> None:
    """The fork runs `capacity` results ahead of the join, which is `long` + 1 ops behind it: one turn of that loop is
    work * (long + 2) cycles, and lets `capacity` inputs pass."""
    run = run_network(fork_join(long, capacity), 400)
    period = (run.end[-1, -1] - run.end[-1, 199]) / 200
    assert period == pytest.approx(max(10, 10 * (long + 2) / capacity), rel=0.02)
    stalls = [s for s in run.stalls if s.critical]
    if capacity < long + 2:
        (stall,) = stalls
        assert (stall.fork, stall.join) == (0, long + 1)
        assert (stall.short, stall.long) == ((), tuple(range(1, long + 1)))
        assert stall.cycles == run.waits.cycles[0].sum()
    else:
        assert not stalls


def test_the_stalled_branch_is_named_when_it_has_ops_too() -> None:
    names = ["fork", "near", "far1", "far2", "far3", "far4", "join"]
    ops = [op(name, 10) for name in names]
    links = [(0, 1), (1, 6), (0, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    network = Network(tuple(ops), tuple(edge(ops, a, b, 1 if b in (1, 6) and a < 2 else 2) for a, b in links))
    run = run_network(network, 50)
    stall = run.stalls[0]
    assert stall.critical
    assert (stall.fork, stall.short, stall.long, stall.join) == (0, (1,), (2, 3, 4, 5), 6)
    critical = tuple(s for s in run.stalls if s.critical)
    assert run_network(network, 50, only_critical=True).stalls == critical


def test_a_stall_is_found_through_a_full_buffer_on_the_long_branch() -> None:
    """Two ops of the long branch take turns over a buffer for one result; the fork waits for the join all the same."""
    ops = [op(name, 10) for name in ("fork", "a", "b", "c", "join")]
    links = ((0, 1, 2), (1, 2, 1), (2, 3, 2), (3, 4, 2), (0, 4, 1))
    network = Network(tuple(ops), tuple(edge(ops, p, c, room) for p, c, room in links))
    stall = run_network(network, 60).stalls[0]
    assert (stall.fork, stall.short, stall.long, stall.join, stall.critical) == (0, (), (1, 2, 3), 4, True)


def test_a_slow_op_behind_a_fork_is_no_fork_join_stall() -> None:
    ops = [op("fork", 10), op("a", 10), op("slow", 90)]
    network = Network(tuple(ops), (edge(ops, 0, 1, 2), edge(ops, 0, 2, 2)))
    run = run_network(network, 30)
    assert run.waits.cycles[0].sum() > 0
    assert not run.stalls


def test_preloading_delays_the_first_input_only() -> None:
    run = run_network(Network((op("a", 10, ready=500),), ()), 5)
    assert run.start[0].tolist() == [500, 510, 520, 530, 540]


def test_a_queue_that_holds_everything_lets_the_producer_run_on() -> None:
    run = run_network(chain([10, 100], capacity=None), 30)
    assert run.end[0].tolist() == [10 * (n + 1) for n in range(30)]
    assert run.end[1, -1] == 10 + 30 * 100


# -- deadlocks --------------------------------------------------------------------------------------------------------
def test_a_deadlock_names_the_ops_and_the_buffers() -> None:
    """The long branch takes a whole input before it gives anything; the short one holds half an input."""
    fork, long, join = op("fork", 40, 4), FlowOp("sum", 40, np.array([0, 0, 0, 4])), op("join", 40, 4)
    ops = [fork, long, join]
    network = Network(tuple(ops), (edge(ops, 0, 1, 2), edge(ops, 1, 2, 8), edge(ops, 0, 2, 2, port=1)))
    assert not EventDriven(network, 3).finished
    run = run_network(network, 3)
    (result,) = run.diagnostics
    assert (result.severity, result.rule, result.where) == ("error", "epoch-deadlock", "fork")
    for text in ("fork", "sum", "join", "fork -> join holds 2 of 4 tiles"):
        assert text in result.message
    assert "nop" in result.fix
    # the times are those of buffers that hold a whole input
    roomy = dataclasses.replace(
        network,
        edges=tuple(
            e._replace(capacity=max(4, e.capacity or 0)) if e.producer == 0 and e.consumer == 2 else e
            for e in network.edges
        ),
    )
    assert (run.schedule.start == starts(roomy, 3)).all()


def test_one_edge_alone_can_deadlock() -> None:
    ops = [op("a", 10, 2), op("b", 10, 1)]
    network = Network(tuple(ops), (edge(ops, 0, 1, 1),))
    (result,) = run_network(network, 2).diagnostics
    assert "a, b wait for each other" in result.message


def test_a_circle_of_data_is_refused() -> None:
    ops = [op("a", 10), op("b", 10)]
    network = Network(tuple(ops), (edge(ops, 0, 1, 2), edge(ops, 1, 0, 2)))
    with pytest.raises(ValueError, match="circle"):
        run_network(network, 2)


# -- the event-driven oracle ------------------------------------------------------------------------------------------
@settings(max_examples=400)
@given(networks(), st.integers(1, 14))
def test_random_networks_agree_with_events_in_a_heap(network: Network, batch: int) -> None:
    run = run_network(network, batch)
    oracle = EventDriven(network, batch)
    assert oracle.finished == (not run.diagnostics)
    if oracle.finished:
        assert (run.schedule.start == starts(network, batch)).all()


@settings(max_examples=60)
@given(networks())
def test_written_down_periods_are_what_would_have_been_computed(network: Network) -> None:
    graph, _ = event_graph(network)
    long = solve(graph, 300)
    # a short batch is the beginning of a long one, and is computed to the end
    assert (solve(graph, 7).start == long.start[:, :7]).all()
    sure = EventDriven(network, 300)
    if sure.finished:
        assert (long.start == starts(network, 300)).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(networks(), min_size=2, max_size=4), st.integers(1, 40))
def test_networks_side_by_side_run_as_each_alone(several: list[Network], batch: int) -> None:
    graph, deadlocks = event_graph(*several)
    alone = [event_graph(network) for network in several]
    expected = np.concatenate([solve(one, batch).start for one, _ in alone])
    assert (solve(graph, batch).start == expected).all()
    assert len(deadlocks) == sum(len(stuck) for _, stuck in alone)


@settings(max_examples=30, deadline=None)
@given(networks(), st.integers(1, 6))
def test_what_is_known_of_an_edge_serves_any_capacity(network: Network, batch: int) -> None:
    waits = [EdgeWaits(network.ops[e.producer].emit, e.need, e.frees) for e in network.edges]
    for more in (0, 1, 0):
        edges = [e if e.capacity is None else e._replace(capacity=e.capacity + more) for e in network.edges]
        alone = run_network(Network(network.ops, tuple(edges)), batch)
        kept = [e._replace(constraints=w.constraints(e.capacity)) for e, w in zip(edges, waits, strict=True)]
        both = run_network(Network(network.ops, tuple(kept)), batch)
        assert (both.schedule.start == alone.schedule.start).all()


def test_the_periodic_regime_is_found() -> None:
    graph, _ = event_graph(fork_join(5, 3))
    schedule = solve(graph, 5000)
    assert schedule.solved_inputs < 60
    assert (schedule.start == starts(fork_join(5, 3), 5000)).all()


@given(networks())
def test_levels_respect_every_constraint_within_an_input(network: Network) -> None:
    graph, _ = event_graph(network)
    level = levels(graph.nodes, graph.source, graph.target, graph.lag)
    same = (graph.lag == 0) & (graph.source < graph.nodes)
    source, target = graph.source[same], graph.target[same]
    assert (level[source] < level[target]).all()
    longest = np.zeros_like(level)  # each is one more than the highest before it
    np.maximum.at(longest, target, level[source] + 1)
    assert (level == longest).all()
    with pytest.MonkeyPatch.context() as patch:  # as graphs of many constraints are counted
        patch.setattr("tbuda_lab.core.epochsim.event_graph.FEW_CONSTRAINTS", 0)
        assert (levels(graph.nodes, graph.source, graph.target, graph.lag) == level).all()


@settings(max_examples=150)
@given(networks(), st.integers(1, 6))
def test_every_wait_ends_with_what_it_waited_for(network: Network, batch: int) -> None:
    run = run_network(network, batch)
    graph, start = run.graph, run.schedule.start
    for node, turn in zip(*np.nonzero(run.waits.cycles), strict=True):
        cause = run.waits.cause[node, turn]
        assert cause >= 0 and graph.target[cause] == node
        source, back = graph.source[cause], turn - graph.lag[cause]
        begun = 0 if source == graph.nodes else start[source, back]
        assert begun + graph.weight[cause] == start[node, turn]
    assert (run.waits.cycles >= 0).all()


def test_more_room_is_never_slower() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        cycles = rng.integers(1, 50, 6).tolist()
        ends = [int(run_network(chain(cycles, capacity=c), 25).end[-1, -1]) for c in (1, 2, 3, 10)]
        assert ends == sorted(ends, reverse=True)


def test_the_edge_of_an_empty_batch() -> None:
    graph, _ = event_graph(chain([5, 6]))
    assert solve(graph, 0).start.shape == (2, 0)


def test_a_reader_may_keep_what_it_will_read_again() -> None:
    """Three steps that all need the whole operand: nothing is freed before the last."""
    ops = [op("a", 30, 3), op("b", 60, 3)]
    everything = np.array([3, 3, 3])
    retained = FlowEdge(0, 1, 0, everything, np.array([0, 0, 3]), 3)
    run = run_network(Network(tuple(ops), (retained,)), 4)
    assert run.end[1].tolist() == [90, 180, 270, 360]
