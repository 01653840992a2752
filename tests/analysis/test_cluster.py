"""Chips and links of placements on 2, 8 and 32 chips, against the placement and by brute force."""

from __future__ import annotations

import itertools

import pytest

from tbuda_lab.core.analysis.cluster import cluster_map, positions, shortest_route
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.analysis_frames import cluster_frame
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import EpochBreak, PlaceOp, Session
from tests.session.models import encoder

CHIPS = (2, 8, 32)


@pytest.fixture(scope="module")
def graph():
    return Session(*encoder(3), "wormhole_b0").trace()


@pytest.fixture(scope="module", params=CHIPS)
def session(request, graph) -> Session:
    device = load_device("wormhole_b0", chips=request.param)
    options = CompileOptions(objective="throughput")  # batches follow each other: stages on all chips
    session = Session(graph, encoder(1)[1], device, options=options, name=f"{request.param} chips")
    ops = [n.name for n in session.graph("lowered").ops]
    heads = [next(o for o in ops if o.startswith(f"{layer}.")) for layer in (1, 2)]
    session.apply(*(EpochBreak(op) for op in heads))
    session.compile()
    return session


def test_every_epoch_stands_on_its_chip(session: Session) -> None:
    result, placement = cluster_map(session.result), session.result.placement
    assert set(result.chips) == set(session.device.chips)
    assert sorted(e for c in result.chips.values() for e in c.epochs) == [e.index for e in placement.epochs]
    assert all(placement.epochs[e].chip == c.chip for c in result.chips.values() for e in c.epochs)
    times = session.time()
    for c in result.chips.values():
        assert c.cycles == pytest.approx(sum(times.epochs[e].cycles for e in c.epochs) / times.batch)
    assert result.slowest == max(c.cycles for c in result.chips.values()) > 0
    assert len({c.position for c in result.chips.values()}) == len(session.device.chips)
    assert sum(bool(c.epochs) for c in result.chips.values()) >= 2


def test_what_crosses_from_chip_to_chip(session: Session) -> None:
    """Every producer counted once per chip that reads it, by brute force over the edges."""
    result = session.result
    chip = {name: spot.chip for name, spot in result.placement.ops.items()}
    expected: dict[tuple[int, int], int] = {}
    seen = set()
    for node in result.lowered.ops:
        for edge in node.inputs:
            key = (edge.source, chip.get(node.name))
            if edge.source in chip and chip[edge.source] != chip[node.name] and key not in seen:
                seen.add(key)
                _, z, r, c = result.lowered[edge.source].shape
                tiles = z * -(-r // 32) * -(-c // 32)
                size = tiles * tile_bytes(result.lowered[edge.source].df, align=session.device.tile_align)
                pair = (chip[edge.source], chip[node.name])
                expected[pair] = expected.get(pair, 0) + size
    matches = cluster_map(result)
    assert matches.moves == expected and expected
    hops = sum(size * session.device.hops(a, b) for (a, b), size in expected.items())
    assert sum(link.bytes for link in matches.links) == hops


def test_the_frame_says_the_same(session: Session) -> None:
    result = cluster_map(session.result)
    c = Frame.unpack(*cluster_frame(session.result).pack()).columns
    assert c["chip_id"].tolist() == list(result.chips) and c["chip_cycles"].max() == result.slowest
    assert c["link_forth"].sum() + c["link_back"].sum() == sum(link.bytes for link in result.links)
    assert {
        (a, b): n
        for a, b, n in zip(c["move_from"].tolist(), c["move_to"].tolist(), c["move_bytes"].tolist(), strict=True)
    } == result.moves


@pytest.mark.parametrize(("chips", "size"), [(2, (2, 1)), (8, (4, 2)), (32, (8, 4))])
def test_a_mesh_is_drawn_as_one(chips: int, size: tuple[int, int]) -> None:
    device = load_device("wormhole_b0", chips=chips)
    where = positions(device.chips, device.links)
    assert (1 + max(x for x, _ in where.values()), 1 + max(y for _, y in where.values())) == size
    assert len(set(where.values())) == chips
    for a, b, _ in device.links:
        assert sum(abs(p - q) for p, q in zip(where[a], where[b], strict=True)) == 1
    assert len(set(positions(device.chips, ()).values())) == chips


def test_routes_are_shortest() -> None:
    device = load_device("wormhole_b0", chips=8)
    for a, b in itertools.product(device.chips, repeat=2):
        route = shortest_route(device, a, b)
        assert (route[0], route[-1], len(route) - 1) == (a, b, device.hops(a, b))
        assert all(y in device.neighbours(x) for x, y in itertools.pairwise(route))


@pytest.mark.slow
def test_an_op_put_on_another_chip_is_there(graph) -> None:
    session = Session(graph, encoder(1)[1], load_device("wormhole_b0", chips=2))
    result = session.compile()
    op = result.placement.epochs[-1].ops[0]
    other = 1 - result.placement.ops[op].chip
    session.apply(PlaceOp(op, chip=other))
    assert session.compile().placement.ops[op].chip == other
    assert f"override_op_placement('{op}', chip_id={other})" in session.to_python()
    assert session.result.placement.epochs[session.result.placement.ops[op].epoch].index in (
        cluster_map(session.result).chips[other].epochs
    )
