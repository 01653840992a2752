"""Buffers never overlap, stay in their channels and where the device allows them."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.memory.addresses import Addresses, hops, sharing
from tbuda_lab.core.placer.memory.dram import ALGORITHMS, BufferRequest, allocate, allocate_host
from tests.placer.graphs import encoder
from tests.placer.test_place import check, placed

DEVICES = ["grayskull", "wormhole_b0", "blackhole", "e300", "n300"]
REQUESTS = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 40_000_000)), max_size=25)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(shapes=REQUESTS)
def test_dram_buffers_are_apart_aligned_and_in_bounds(device: str, algorithm: str, shapes: list) -> None:
    spec = load_device(device)
    requests = [
        BufferRequest(f"q{i}", spec.chips[i % len(spec.chips)], n, size, epoch=i % 5)
        for i, (n, size) in enumerate(shapes)
    ]
    try:
        placed = allocate(requests, spec, algorithm).buffers
    except PlacementError:
        total = sum(r.count * r.size for r in requests)
        assert total > spec.dram_channels * spec.dram_channel_bytes / 8
        return
    spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for request in requests:
        assert len(placed[request.name]) == request.count
        for channel, address in placed[request.name]:
            assert 0 <= channel < spec.dram_channels
            assert address % spec.dram_address_align == 0
            assert spec.dram_start(channel) <= address
            assert address + request.size <= spec.dram_end(channel)
            low, high = spec.p2p_window
            assert channel != 0 or address + request.size <= low or address >= high
            if spec.dram_subchannels > 1:  # a channel is two blocks of memory
                half = spec.dram_channel_bytes // 2
                assert address // half == (address + request.size - 1) // half
            spans.setdefault((request.chip, channel), []).append((address, address + request.size))
    for ranges in spans.values():
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))


def test_round_robin_takes_turns() -> None:
    spec = load_device("grayskull")
    placed = allocate([BufferRequest("q", 0, 16, 1000)], spec).buffers
    assert [c for c, _ in placed["q"]] == [*range(8), *range(8)]


def test_flip_flop_takes_turns_within_the_half_of_the_epoch() -> None:
    """Even epochs write the lower half of the channels, odd ones the upper; what the host writes lies on all."""
    spec = load_device("grayskull")
    requests = [BufferRequest(f"q{e}", 0, 6, 2000, epoch=e) for e in range(4)] + [BufferRequest("host", 0, 8, 1000)]
    placed = allocate(requests, spec, "ROUND_ROBIN_FLIP_FLOP").buffers
    for half in (0, 1):
        channels = [c for e in (half, half + 2) for c, _ in placed[f"q{e}"]]
        assert sorted(channels) == sorted([*range(4 * half, 4 * half + 4)] * 3)
    assert sorted(c for c, _ in placed["host"]) == [*range(8)]


def test_a_chosen_channel_is_kept() -> None:
    placed = allocate(
        [BufferRequest("q", 0, 4, 1000, channel=3), BufferRequest("p", 0, 4, 1000)], load_device("wormhole_b0")
    ).buffers
    assert {c for c, _ in placed["q"]} == {3}


def test_a_full_device_names_the_queue_and_the_bytes() -> None:
    with pytest.raises(PlacementError) as raised:
        allocate([BufferRequest("small", 0, 1, 4096), BufferRequest("huge", 0, 1, 1 << 33)], load_device("wormhole_b0"))
    (finding,) = raised.value.diagnostics
    assert finding.where == "huge" and str(1 << 33) in finding.message


@pytest.mark.parametrize("device", ["grayskull", "wormhole_b0", "blackhole"])
@given(sizes=st.lists(st.integers(1, 3_000_000), max_size=30))
def test_host_buffers_are_apart_and_aligned(device: str, sizes: list[int]) -> None:
    spec = load_device(device)
    placed = allocate_host([BufferRequest(f"q{i}", 0, 1, size) for i, size in enumerate(sizes)], spec)
    end = {}
    for i, size in enumerate(sizes):
        ((channel, address),) = placed[f"q{i}"]
        assert address >= end.get(channel, 0)
        assert address % 64 == (0 if device == "blackhole" else 32)
        end[channel] = address + size
        assert end[channel] <= spec.sysmem_bytes(channel)


def test_full_host_memory_is_an_error() -> None:
    """Grayskull has one channel of 1 GiB, less 128 MiB: two queues of 300 MiB fit, the third does not."""
    with pytest.raises(PlacementError, match="'q2' does not fit host memory"):
        allocate_host([BufferRequest(f"q{i}", 0, 1, 300 << 20) for i in range(5)], load_device("grayskull"))


# -- lifetimes ---------------------------------------------------------------------------------------------------------
SPANS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(1, 6), st.integers(1, 120)), max_size=20)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(spans=SPANS, static=st.integers(0, 3))
def test_queues_that_live_at_one_time_never_share_an_address(algorithm: str, spans: list, static: int) -> None:
    """Sizes in units of 40 MB: 80 of them would fill grayskull's 8 GiB several times."""
    spec = load_device("grayskull")
    requests = [BufferRequest(f"s{i}", 0, 8, 90_000_000) for i in range(static)]
    requests += [
        BufferRequest(f"q{i}", 0, n, 4_000_000 * size, epoch=first, last=first + length)
        for i, (first, length, n, size) in enumerate(spans)
    ]
    try:
        result = allocate(requests, spec, algorithm)
    except PlacementError as error:
        assert error.diagnostics
        return
    cells: dict[int, list[tuple[int, int, int, int]]] = {}
    for request in requests:
        first, last = result.lifetimes.get(request.name, (-1, 99))
        assert request.name in result.lifetimes or not result.lifetimes or request.last < 0
        for channel, address in result.buffers[request.name]:
            cells.setdefault(channel, []).append((address, address + request.size, first, last))
    for buffers in cells.values():
        for a, b in itertools.combinations(buffers, 2):
            apart = a[1] <= b[0] or b[1] <= a[0]
            assert apart or a[3] < b[2] or b[3] < a[2]


def test_lifetimes_are_used_only_when_not_everything_fits_at_once() -> None:
    spec = load_device("grayskull")
    few = [BufferRequest(f"q{i}", 0, 8, 300_000_000, epoch=i, last=i + 1) for i in range(2)]
    assert not allocate(few, spec).lifetimes
    many = [BufferRequest(f"q{i}", 0, 8, 300_000_000, epoch=i, last=i + 1) for i in range(12)]
    result = allocate(many, spec)
    assert result.lifetimes["q5"] == (5, 6)
    assert set(result.buffers["q0"]) == set(result.buffers["q2"])
    assert not set(result.buffers["q0"]) & set(result.buffers["q1"])


@pytest.mark.parametrize("last", [-1, 1], ids=["for good", "with lifetimes"])
def test_large_buffers_go_first_where_many_small_ones_would_leave_no_place_for_them(last: int) -> None:
    """The small ones have more bytes together; one after the other they leave every channel half full."""
    spec = load_device("grayskull")
    least = min(spec.dram_channel_bytes - spec.dram_start(c) for c in range(1, 8))
    small = BufferRequest("small", 0, 14, int(0.26 * least), epoch=0, last=last)
    large = BufferRequest("large", 0, 4, int(0.7 * least), epoch=0, last=last)
    buffers = allocate([small, large], spec).buffers
    spans: dict[int, list[tuple[int, int]]] = {}
    for request in (small, large):
        assert len(buffers[request.name]) == request.count
        for channel, address in buffers[request.name]:
            assert spec.dram_start(channel) <= address <= spec.dram_end(channel) - request.size
            spans.setdefault(channel, []).append((address, address + request.size))
    assert all(a[1] <= b[0] for ranges in spans.values() for a, b in itertools.pairwise(sorted(ranges)))


def test_out_of_memory_says_by_how_much() -> None:
    spec = load_device("wormhole_b0")
    room = sum(spec.dram_channel_bytes - spec.dram_start(c) for c in range(6)) - (0x40000000 - 0x30000000)
    with pytest.raises(PlacementError) as raised:
        allocate([BufferRequest("a", 0, 6, 1_050_000_000), BufferRequest("b", 0, 6, 1_000_000_000)], spec)
    text = str(raised.value)
    needed = 6 * (1_050_000_000 + 1_000_000_000)
    short = int(text.split(" too few")[0].split()[-1])
    assert abs(short - (needed - room)) < 4096
    assert "a (6300000000), b (6000000000)" in text and raised.value.diagnostics[0].where == "b"


# -- the closest channel -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", ["grayskull", "wormhole_b0", "n150"])
def test_hops_are_shortest_ways_on_the_two_rings(device: str) -> None:
    spec = load_device(device)
    width, height = spec.noc_size
    ring = nx.DiGraph()
    for x in range(width):
        for y in range(height):
            ring.add_edge((x, y), ((x + 1) % width, y))
            ring.add_edge((x, y), (x, (y + 1) % height))
    back = ring.reverse()
    cores = np.array([(0, 0), (spec.rows - 1, 3), (4, spec.cols - 1)])
    result = hops(spec, spec.chips[0], cores)
    for core, line in zip(cores.tolist(), result, strict=True):
        place = spec.physical_core(*core)
        for channel, value in enumerate(line):
            ways = [nx.shortest_path_length(g, place, d) for g in (ring, back) for d in spec.dram_cores[channel]]
            assert value == min(ways)


def test_cores_share_buffers_evenly() -> None:
    cores, buffer = sharing((4, 6), (2, 3))
    assert np.bincount(buffer).tolist() == [4] * 6
    assert {tuple(c) for c in cores[buffer == 5].tolist()} == {(2, 4), (2, 5), (3, 4), (3, 5)}


def test_closest_takes_the_near_channel_and_spreads_within_an_epoch() -> None:
    spec = load_device("wormhole_b0")
    near = np.full((2, 6), 9)
    near[:, 4] = 1
    result = allocate([BufferRequest("q", 0, 2, 4096, hops=near, epoch=1)], spec, "CLOSEST").buffers
    assert result["q"][0][0] == 4 and result["q"][1][0] != 4
    other = allocate(
        [BufferRequest("a", 0, 1, 4096, hops=near, epoch=1), BufferRequest("b", 0, 1, 4096, hops=near, epoch=2)],
        spec,
        "CLOSEST",
    ).buffers
    assert other["a"][0][0] == other["b"][0][0] == 4


def test_a_model_is_placed_with_near_channels() -> None:
    graph, spec = encoder(2), load_device("wormhole_b0")
    cut = (Override("epoch_break", "l1.q"),)
    near, turns = (placed(graph, spec, cut, dram_placement_algorithm=a) for a in ("CLOSEST", "ROUND_ROBIN"))
    check(graph, spec, near)

    def way(p: Placement) -> int:
        """Hops from the cores that use a buffer to its channel, over all queues in DRAM."""
        addresses = Addresses(graph, p.models, p.ops, graph.users(), {}, spec, CompileOptions(), {}, {})
        queues = [q for q in p.queues.values() if q.location == "dram"]
        tables = [addresses.hops(q, q.chip) for q in queues]
        return sum(int(t[i, c]) for q, t in zip(queues, tables, strict=True) for i, (c, _) in enumerate(q.buffers))

    assert near.ops == turns.ops and 0 < way(near) < way(turns)
