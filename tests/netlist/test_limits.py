"""The last value that a rule lets pass, and the first that it refuses.

The limits are those of docs/design/placement.md. Sizes follow from the layout of a queue: a tile of Float16_b has 32 x
32 numbers of 2 bytes and a header of 16, in units of 32 bytes; a buffer has 32 bytes of its own before the first.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.device import load_device
from tbuda_lab.core.netlist.schema import Execute, NetGraph, Netlist, NetOp, QueueBuffer
from tests.netlist import builders as b
from tests.netlist.rules.common import Change, fused_of, on_op, on_queue, q

TILE = 2080  # of 2064 bytes
BUFFER = 2 * 4 * TILE + 32  # two entries of 2 x 2 tiles
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
OWN_L1 = 32 * TILE + 2 * 4 * TILE  # of the op: twice the least buffer, for its reads from DRAM; two mblocks of output
L1 = {arch: load_device(arch).l1_usable for arch in ("wormhole_b0", "grayskull")}


def at(*places: tuple[int, int], **fields: object) -> Change:
    """Give the queue x these buffers: (channel, address)."""
    return on_queue(buffers=[QueueBuffer(*place) for place in places], **fields)


def output_at(address: int) -> Change:
    """Let the op of chip 0 write a queue of chip 1 in channel 0."""
    return on_queue("op0.out", target_device=1, buffers=[QueueBuffer(0, address)])


def one_sub_op(rows: int, columns: int) -> Netlist:
    """A fused op with one ublock of rows x columns tiles."""
    step = b.sub("s", "exp", ["input0"], "output", ublock=(rows, columns))
    return fused_of([[step]], 0, shape=(1, rows, columns), ublock=(rows, columns))()


def nothing(n: Netlist) -> None:
    pass


LIMITS: list[tuple[str, str, Callable[[], Netlist], Change, Callable[[], Netlist], Change]] = [
    (rule, arch, b.unary, legal, b.unary, refused)
    for rule, arch, legal, refused in (
        ("R4", "wormhole_b0", on_op(grid_loc=(9, 7)), on_op(grid_loc=(10, 7))),
        ("R4", "wormhole_b0", on_op(grid_loc=(9, 7)), on_op(grid_loc=(9, 8))),
        ("R4", "grayskull", on_op(grid_loc=(9, 11)), on_op(grid_loc=(9, 12))),
        ("R3.channel", "wormhole_b0", at((5, GIB)), at((6, GIB))),
        ("R3.channel", "grayskull", at((7, GIB // 2)), at((8, GIB // 2))),
        ("R3.capacity", "wormhole_b0", at((1, 2 * GIB - BUFFER)), at((1, 2 * GIB - BUFFER + 32))),
        ("R3.capacity", "grayskull", at((1, GIB - BUFFER)), at((1, GIB - BUFFER + 32))),
        ("R3.aligned", "wormhole_b0", at((1, GIB + 32)), at((1, GIB + 31))),
        ("R2", "wormhole_b0", at((3, 0), loc="host"), at((4, 0), loc="host")),
        ("R2", "wormhole_b0", at((0, GIB - BUFFER), loc="host"), at((0, GIB), loc="host")),
        ("R1.output", "grayskull", output_at(0x30000000), output_at(0x30000000 - 32)),
        (
            "R6",
            "wormhole_b0",
            on_op(overlay_size=64 * KIB + L1["wormhole_b0"] - OWN_L1),
            on_op(overlay_size=64 * KIB + L1["wormhole_b0"] - OWN_L1 + 32),
        ),
        (
            "R6",
            "grayskull",
            on_op(overlay_size=64 * KIB + L1["grayskull"] - OWN_L1),
            on_op(overlay_size=64 * KIB + L1["grayskull"] - OWN_L1 + 32),
        ),
    )
]
LIMITS.append(
    (
        "S6",
        "wormhole_b0",
        b.splice,
        on_op(attributes={"input0": [0, 2, 2], "input1": [0, 2, 2]}),
        b.splice,
        on_op(attributes={"input0": [0, 3, 2], "input1": [0, 2, 2]}),
    )
)
LIMITS.append(("F13", "wormhole_b0", lambda: one_sub_op(2, 4), nothing, lambda: one_sub_op(3, 3), nothing))


def broken(base: Callable[[], Netlist], change: Change, arch: str) -> set[str]:
    n = base()
    change(n)
    return {f.rule for f in netlist.check(n, arch, "strict")}


@pytest.mark.parametrize(
    ("rule", "arch", "base", "legal", "other", "refused"),
    LIMITS,
    ids=[f"{rule}-{arch}-{k}" for k, (rule, arch, *_) in enumerate(LIMITS)],
)
def test_a_rule_ends_where_the_device_does(
    rule: str, arch: str, base: Callable[[], Netlist], legal: Change, other: Callable[[], Netlist], refused: Change
) -> None:
    assert rule not in broken(base, legal, arch)
    assert rule in broken(other, refused, arch)


def test_buffers_may_touch() -> None:
    """One that begins where another ends shares no byte with it, whatever else overlaps."""
    n = b.binary()
    for first, second, overlapping in (
        (BUFFER, 2 * BUFFER, set()),
        (BUFFER - 32, 2 * BUFFER, {("x", "y")}),
        (BUFFER, 2 * BUFFER - 32, {("y", "op0.out")}),
    ):
        for name, offset in (("x", 0), ("y", first), ("op0.out", second)):
            q(n, name).buffers[:] = [QueueBuffer(1, GIB + offset)]
        messages = [f.message for f in netlist.check(n, "wormhole_b0", "strict") if f.rule == "R5"]
        pairs = {
            (a, c)
            for a in ("x", "y")
            for c in ("y", "op0.out")
            for text in messages
            if f"queue {c!r} overlaps queue {a!r}" in text
        }
        assert pairs == overlapping and len(messages) == len(overlapping)


def test_the_reserved_part_ends_below_the_first_address() -> None:
    """Every architecture keeps the bottom of its channels; the compiler's own first address is legal."""
    for arch in ("grayskull", "wormhole_b0", "blackhole"):
        start = load_device(arch).dram_start(1)
        assert start % 64 == 0 and 0 < start < GIB
        assert "R3.reserved" not in broken(b.unary, at((1, start)), arch)
        assert "R3.reserved" in broken(b.unary, at((1, start - 64)), arch)


@pytest.mark.parametrize(
    ("device", "there", "back", "legal"),
    [
        ("n300", 14, 0, True),
        ("n300", 7, 7, True),
        ("n300", 8, 7, False),
        ("n300", 10, 5, False),
        ("n300", 15, 0, False),
        ("mesh", 28, 0, True),
        ("mesh", 15, 13, True),
        ("mesh", 28, 1, False),
    ],
)
def test_seven_pipes_cross_an_ethernet_core_both_ways_together(device: str, there: int, back: int, legal: bool) -> None:
    """As the router judged them: two links between the chips of an n300, four in the mesh; ops of so many cores, one
    pipe each."""

    def copy(name: str, cores: int) -> NetOp:
        rows = max(r for r in range(1, 9) if cores % r == 0)
        return b.op(name, "nop", [f"{name}.in"], (1, rows, cores // rows), grid=(rows, cores // rows))

    ops = {"g0": [copy("a", there)], "g1": [copy("c", back)] if back else []}
    n = b.build(ops, {f"{o.name}.in": o.blocking.tiles(o.grid_size) for g in ops.values() for o in g}, chips={"g1": 1})
    n.queues["a.out"].target_device = 1
    if back:
        n.queues["c.in"].target_device, n.queues["c.out"].target_device = 1, 0
    spec = load_device("n300") if device == "n300" else load_device("wormhole_b0", chips=4)
    found = [f for f in netlist.check(n, spec) if f.rule == "N11"]
    assert bool(found) is not legal
    assert all(str(there + back) in f.message and f.fix for f in found)


def test_a_link_that_every_route_takes_carries_what_passes_through() -> None:
    """Chip 0 writes 15 pipes' worth to chip 1 and 15 to chip 3, by way of chip 1, the one between that has a graph."""
    ops = [b.op(name, "nop", [f"{name}.in"], (1, 5, 3), grid=(5, 3), loc=(0, 3 * k)) for k, name in enumerate("ac")]
    n = b.build({"g0": ops, "g1": [], "g3": []}, {"a.in": (1, 5, 3), "c.in": (1, 5, 3)}, chips={"g1": 1, "g3": 3})
    n.queues["a.out"].target_device, n.queues["c.out"].target_device = 1, 3
    mesh = load_device("wormhole_b0", chips=4)
    found = [f for f in netlist.check(n, mesh) if f.rule == "N11"]
    assert len(found) == 1 and "chips 0 and 1" in found[0].message
    n.graphs["g2"] = NetGraph("g2", 2, 1)
    for k, i in enumerate(n.programs[0].instructions):
        if isinstance(i, Execute):
            n.programs[0].instructions.insert(k, Execute("g2"))
            break
    assert not [f for f in netlist.check(n, mesh) if f.rule in ("N11", "N18")]  # by way of chip 2, perhaps
