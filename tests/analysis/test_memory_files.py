"""Memory of netlist files: against the compile that wrote them, against counting by hand, and on broken files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import NetlistMemory
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.analysis_frames import file_memory_frame
from tbuda_lab.core.netlist.schema import Execute, QueueBuffer
from tbuda_lab.core.session import Session
from tests.netlist import builders as b
from tests.session.models import encoder


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(2), "n150", name="encoder")
    session.compile()
    return session


@pytest.fixture(scope="module")
def memory(session: Session) -> NetlistMemory:
    return NetlistMemory(netlists.loads(netlists.dumps(session.compile().netlist)), session.device)


def test_queues_lie_where_the_compile_put_them(session: Session, memory: NetlistMemory) -> None:
    compiled, read = session.dram(), memory.dram()
    assert set(read.queues) == set(compiled.queues)
    same = {"epoch_to_epoch": "e2e"}
    for name, use in compiled.queues.items():
        got = read.queues[name]
        for field in ("buffers", "bytes_per_buffer", "location", "chip", "entries", "df", "prologue"):
            assert getattr(got.queue, field) == getattr(use.queue, field), (name, field)
        assert (got.writer, set(got.readers)) == (use.writer, set(use.readers)), name
        assert (got.first, got.last) == (use.first, use.last), name
        assert same.get(got.queue.kind, got.queue.kind) in (use.queue.kind, "parameter", "constant"), name


def test_the_buffers_of_a_core_are_those_of_the_compile(session: Session, memory: NetlistMemory) -> None:
    for op in session.compile().placement.ops:
        compiled, read = session.l1(op), memory.l1(op)
        assert read == compiled and any(p.kind == "output" and p.bytes for p in read.parts), op
        ends = [p.start + p.bytes for p in read.parts]
        assert [p.start for p in read.parts] == [read.reserved, *ends[:-1]], op


def test_bytes_and_readers_counted_by_hand() -> None:
    n = b.build([b.op("first", "nop", ["x"], grid=(2, 2)), b.op("second", "exp", ["x"], loc=(4, 4))], {"x": (1, 2, 2)})
    device = load_device("wormhole_b0")
    result = NetlistMemory(n, device).dram([100.0])

    def entry(name: str) -> int:
        queue = n.queues[name]
        slots = queue.blocking.t * np.prod(queue.blocking.mblock) * np.prod(queue.blocking.ublock)
        return int(slots) * tile_bytes(queue.df, align=device.tile_align) * len(queue.buffers)

    use = result.queues["x"]
    assert use.readers == ("first", "second") and use.writer == "" and use.reads == {0: 2 * entry("x")}
    written = [q.name for q in n.queues.values() if q.input != "HOST" and q.loc == "dram"]
    assert result.demand.sum() == 2 * entry("x") + sum(map(entry, written)) and written
    assert result.cycles == (100,)


def test_what_overlaps_is_said_to_share() -> None:
    n = b.build(
        [
            b.op("first", "nop", ["x"]),
            b.op("second", "nop", ["y"], loc=(1, 1)),
            b.op("third", "nop", ["z"], loc=(2, 2)),
        ],
        {"x": (1, 1, 1), "y": (1, 1, 1), "z": (1, 1, 1)},
    )
    at = n.queues["x"].buffers[0]
    n.queues["y"].buffers = [QueueBuffer(at.channel, at.address + 32)]
    n.queues["z"].buffers = [QueueBuffer(at.channel + 1, at.address)]
    shares = {name: use.shares for name, use in NetlistMemory(n, load_device("wormhole_b0")).dram().queues.items()}
    assert (shares["x"], shares["y"], shares["z"]) == (True, True, False)


@pytest.mark.parametrize(
    "channel, address, entries, chip",
    list(itertools.product((-1, 99, 0), (-5, 1 << 60, 0), (-1, 1 << 62), (-3, [], [1, 0]))),
)
def test_a_broken_file_gives_a_frame(channel: int, address: int, entries: int, chip: int | list[int]) -> None:
    n = b.build([b.op("first", "nop", ["x"])], {"x": (1, 1, 1)})
    queue = n.queues["x"]
    queue.buffers, queue.entries, queue.target_device = [QueueBuffer(channel, address)], entries, chip
    frame = Frame.unpack(*file_memory_frame(n, load_device("wormhole_b0")).pack())
    assert frame.text("op_name") == ["first"]
    x, w = frame.columns["block_x"], frame.columns["block_w"]
    mine = frame.columns["block_queue"] == frame.text("queue_name").index("x")
    assert mine.sum() == int(channel == 0 and address == 0 and entries < 0)
    assert np.all((x >= 0) & (x + w <= 1 + 1e-9))


def test_a_name_that_is_no_op_is_refused(memory: NetlistMemory) -> None:
    with pytest.raises(InputError, match="not an op of the netlist"):
        memory.l1("nobody")


def test_kinds_of_a_core_are_those_of_the_rules() -> None:
    """A nop of 2 x 2 tiles that reads DRAM: its 16 tiles become 32, and two blocks of output for the queue; a matmul
    whose second operand is preloaded through a TM keeps it as it lies, beside its buffer (routing.md#l1-of-a-core)."""
    tile = 2080
    device = load_device("wormhole_b0")
    plain = NetlistMemory(b.unary("nop"), device).l1("op0")
    assert [(p.kind, p.bytes) for p in plain.parts] == [("output", 8 * tile), ("input", 32 * tile)]
    n = b.build(
        [
            b.op(
                "mm",
                "matmul",
                ["x", "w"],
                (4, 2, 4),
                tms={1: [b.tm("hslice", 4)]},
                attributes={"m_k": 1, "u_kt": 16, "min_buffer_input": 0},
            )
        ],
        {"x": (4, 2, 16), "w": (1, 16, 16)},
    )
    for item in n.programs[0].instructions:
        if isinstance(item, Execute):
            item.settings["w"].fields["prologue"] = True
    parts = [(p.kind, p.operand, p.bytes) for p in NetlistMemory(n, device).l1("mm").parts]
    assert ("parameter", -1, 256 * tile) in parts and ("input", 1, 2 * 4 * 16 * tile) in parts
