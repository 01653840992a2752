"""Buffers never overlap, stay in their channels and where the device allows them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.placer.dram import ALGORITHMS, Request, allocate_dram, allocate_host

DEVICES = ["grayskull", "wormhole_b0", "blackhole", "e300", "n300"]
REQUESTS = st.lists(st.tuples(st.integers(1, 80), st.integers(1, 40_000_000)), max_size=25)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(shapes=REQUESTS)
def test_dram_buffers_are_apart_aligned_and_in_bounds(device: str, algorithm: str, shapes: list) -> None:
    spec = load_device(device)
    requests = [
        Request(f"q{i}", spec.chips[i % len(spec.chips)], n, size, epoch=i % 5) for i, (n, size) in enumerate(shapes)
    ]
    try:
        placed = allocate_dram(requests, spec, algorithm)
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
            spans.setdefault((request.chip, channel), []).append((address, address + request.size))
    for ranges in spans.values():
        ranges.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))


def test_round_robin_takes_turns() -> None:
    spec = load_device("grayskull")
    placed = allocate_dram([Request("q", 0, 16, 1000)], spec)
    assert [c for c, _ in placed["q"]] == [*range(8), *range(8)]


def test_a_chosen_channel_is_kept() -> None:
    placed = allocate_dram([Request("q", 0, 4, 1000, channel=3), Request("p", 0, 4, 1000)], load_device("wormhole_b0"))
    assert {c for c, _ in placed["q"]} == {3}


def test_a_full_device_names_the_queue_and_the_bytes() -> None:
    with pytest.raises(PlacementError) as raised:
        allocate_dram([Request("small", 0, 1, 4096), Request("huge", 0, 1, 1 << 33)], load_device("wormhole_b0"))
    (finding,) = raised.value.diagnostics
    assert finding.where == "huge" and str(1 << 33) in finding.message


@pytest.mark.parametrize("device", ["grayskull", "wormhole_b0", "blackhole"])
@given(sizes=st.lists(st.integers(1, 3_000_000), max_size=30))
def test_host_buffers_are_apart_and_aligned(device: str, sizes: list[int]) -> None:
    spec = load_device(device)
    placed = allocate_host([Request(f"q{i}", 0, 1, size) for i, size in enumerate(sizes)], spec)
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
        allocate_host([Request(f"q{i}", 0, 1, 300 << 20) for i in range(5)], load_device("grayskull"))
