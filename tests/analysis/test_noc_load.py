"""Loads of NoC links: against walking every route node by node, and against sums that have to hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tbuda_lab.core.analysis.noc import Transfers, producer_shares, transfers_of
from tbuda_lab.core.balancer.bandwidth import traffic
from tbuda_lab.core.device.noc import hops, link_bytes
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import EpochBreak, PlaceOp, ResizeOp, Session
from tests.session.models import encoder, perceptron

SIZES = [(13, 12), (10, 12), (17, 12), (3, 2)]


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(2), "n150", name="encoder")
    session.apply(ResizeOp("0.up.matmul", (2, 4)), PlaceOp("0.up.matmul", transpose=True))
    session.compile()
    return session


Node = tuple[int, int]


def walk(noc: int, source: Node, target: Node, size: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Links (axis, y, x) of a route, a step at a time: NoC 0 x then y upwards, NoC 1 y then x downwards."""
    at, links = list(source), []
    for axis in (0, 1) if noc == 0 else (1, 0):
        while at[axis] != target[axis]:
            links.append((axis, at[1], at[0]))
            at[axis] = (at[axis] + (1 if noc == 0 else -1)) % size[axis]
    return links


@pytest.mark.parametrize("noc", [0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_links_are_those_of_the_walked_routes(noc: int, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    n = 60
    source, target = (rng.integers(0, size, (n, 2)) for _ in range(2))
    weight, group = rng.integers(1, 1000, n).astype(float), rng.integers(0, 3, n)
    expected = np.zeros((3, 2, size[1], size[0]))
    for a, b, w, g in zip(source.tolist(), target.tolist(), weight, group, strict=True):
        route = walk(noc, tuple(a), tuple(b), size)
        assert len(route) == int(hops(noc, np.array(a), np.array(b), size))
        for link in route:
            expected[(g, *link)] += w
    got = link_bytes(noc, source, target, weight, size, group, 3)
    np.testing.assert_array_equal(got, expected)  # whole numbers: sums are exact


def test_nothing_moves_nothing() -> None:
    none = np.zeros((0, 2), dtype=np.int64)
    assert not link_bytes(0, none, none, np.zeros(0), (10, 12)).any()


@pytest.mark.parametrize("noc", ["0", "1", "both"])
def test_bytes_times_hops_are_conserved(session: Session, noc: str) -> None:
    size = session.device.noc_size
    for epoch in range(len(session.compile().placement.epochs)):
        result, links = transfers_of(session.compile(), epoch), session.links(epoch, noc=noc)
        ways = np.array(
            [
                [len(walk(k, tuple(s), tuple(t), size)) for s, t in zip(result.source, result.target[k], strict=True)]
                for k in (0, 1)
            ]
        )
        taken = {"0": ways[0], "1": ways[1], "both": ways.min(axis=0)}[noc]
        assert links.bytes.sum() == pytest.approx((result.bytes * taken).sum(), rel=1e-12)
        if noc != "both":
            assert not links.bytes[1 - int(noc)].any()


def test_every_link_is_that_of_a_brute_walk(session: Session) -> None:
    result, size = transfers_of(session.compile(), 0), session.device.noc_size
    expected = np.zeros((2, 2, size[1], size[0]))
    for i, (start, weight) in enumerate(zip(result.source.tolist(), result.bytes, strict=True)):
        routes = [walk(k, tuple(start), tuple(result.target[k][i].tolist()), size) for k in (0, 1)]
        noc = int(len(routes[1]) < len(routes[0]))
        for link in routes[noc]:
            expected[(noc, *link)] += weight
    links = session.links(0)
    np.testing.assert_allclose(links.bytes, expected, rtol=1e-12, atol=1e-6)
    for use in links.busiest(5):
        assert use.bytes == pytest.approx(sum(f.bytes for f in use.flows))
        assert use.load == pytest.approx(use.bytes / links.cycles / 32)
        (x0, y0), (x1, y1) = use.start, use.end
        step = -1 if use.noc else 1
        assert ((x0 + step) % size[0], y0) == (x1, y1) or (x0, (y0 + step) % size[1]) == (x1, y1)
    top = links.busiest(3)
    assert [u.bytes for u in top] == sorted(expected.reshape(-1), reverse=True)[:3]


def test_an_op_is_given_what_its_operands_take(session: Session) -> None:
    """What arrives over the collecting transfers is bytes x cores of `traffic`, from cores of the producer or DRAM."""
    result = session.compile()
    placement, device = result.placement, session.device
    matches = transfers_of(result, 0)
    dram = {core for channel in device.dram_cores for core in channel}
    cores = {
        name: {
            device.physical_core(spot.start[0] + r, spot.start[1] + c)
            for r in range(spot.size[0])
            for c in range(spot.size[1])
        }
        for name, spot in placement.ops.items()
    }
    assert any(spot.transposed for spot in placement.ops.values())
    arrived: dict[tuple[str, str], float] = {}
    for i, f in enumerate(matches.flow.tolist()):
        producer, consumer = matches.flows[f]
        start, ends = tuple(matches.source[i].tolist()), [tuple(t.tolist()) for t in matches.target[:, i]]
        if start in cores.get(consumer, ()) and all(e in cores[consumer] for e in ends):
            assert start[0] == ends[0][0] or start[1] == ends[0][1], "a multicast keeps to a row or column"
            continue
        assert start in (cores[producer] if producer in placement.ops else dram), (producer, consumer)
        assert ends[0] in (cores[consumer] if consumer in placement.ops else dram) and ends[0] == ends[1]
        arrived[producer, consumer] = arrived.get((producer, consumer), 0.0) + matches.bytes[i]
    checked = 0
    for _, op in result.netlist.ops():
        if placement.ops[op.name].epoch:
            continue
        table, spot = placement.models[op.name], placement.ops[op.name]
        move = traffic(table.profile, table.rows[spot.row : spot.row + 1], device)
        expected: dict[str, float] = {}
        for port, source in enumerate(op.inputs):
            if source.source in placement.ops and not placement.ops[source.source].epoch:
                expected[source.source] = expected.get(source.source, 0) + float(
                    move.operand_bytes[port][0] * move.operand_cores[port][0]
                )
        for source, size in expected.items():
            if spot.size != (1, 1) or placement.ops[source].size != (1, 1):
                assert arrived[source, op.name] == pytest.approx(size), (source, op.name)
                checked += 1
    assert checked >= 6


@pytest.mark.parametrize("role", ["in0", "in1", "bias", "elt"])
@pytest.mark.parametrize("tms", [[], ["transpose"], ["hslice"], ["vstack", "transpose"]])
def test_shares_add_up_and_follow_the_tensor(role: str, tms: list[str]) -> None:
    """Against cutting a tensor of 60 x 60 cells by hand."""
    grid, rows, cols = (3, 4), 2, 5
    taking = {"in0": (rows, 1), "in1": (1, cols), "bias": (1, cols)}.get(role, (rows, cols))
    table = producer_shares(taking, grid, role, tms)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    if any(t != "transpose" for t in tms):
        return
    owner = np.zeros((60, 60), dtype=int)
    for r, c in itertools.product(range(grid[0]), range(grid[1])):
        owner[r * 20 : (r + 1) * 20, c * 15 : (c + 1) * 15] = r * grid[1] + c
    seen = owner.T if tms else owner
    for i, (r, c) in enumerate(itertools.product(range(taking[0]), range(taking[1]))):
        tall, wide = 60 // rows if taking[0] > 1 else 60, 60 // cols if taking[1] > 1 else 60
        part = seen[r * tall : (r + 1) * tall, c * wide : (c + 1) * wide]
        np.testing.assert_allclose(table[i], np.bincount(part.reshape(-1), minlength=12) / part.size)


def test_chips_that_run_together_have_links_of_their_own() -> None:
    session = Session(*perceptron(), "e300", name="mlp")
    session.compile()
    epoch = session.compile().placement.epochs[0]
    assert session.links(0, chip=epoch.chip).epoch == 0
    with pytest.raises(InputError, match="there is no epoch 99"):
        session.links(99)
    with pytest.raises(InputError, match="chip 77 has no ops beside epoch 0"):
        session.links(0, chip=77)
    with pytest.raises(InputError, match="no NoC '2'; there are 0, 1, both"):
        session.links(0, noc="2")


def test_dram_answers_at_the_core_that_is_nearest() -> None:
    """What an epoch writes and the next one reads: of the cores of a channel it is the one nearest to the op's."""
    session = Session(*perceptron(), "n150", name="mlp")
    session.apply(EpochBreak("second.matmul"))
    result, device = session.compile(), session.device
    queue, seen = "e2e_first.matmul_0", {"written": 0, "read": 0}
    for epoch, (what, flow) in enumerate((("written", ("first.matmul", queue)), ("read", (queue, "second.matmul")))):
        matches: Transfers = transfers_of(result, epoch)
        for i in np.flatnonzero(matches.flow == matches.flows.index(flow)).tolist():
            ends = tuple(matches.source[i].tolist()), tuple(matches.target[0][i].tolist())
            here, there = ends if what == "read" else ends[::-1]
            channel = next((cores for cores in device.dram_cores if here in cores), None)
            if channel is None:
                continue  # a multicast begins at a core of the op
            ways = {core: min(len(walk(k, core, there, device.noc_size)) for k in (0, 1)) for core in channel}
            assert ways[here] == min(ways.values()), (what, here, there)
            seen[what] += len(set(ways.values())) > 1
    assert seen["written"] > 10 and seen["read"] > 10, "channels have cores that are farther"
