"""Random sequences of edits of every kind, with undo, redo, transactions and a journal: a session is never left in
between, and its netlist is a function of its state."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.lowering.data_formats import legal_fidelities, legal_formats
from tbuda_lab.core.netlist.check import check
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Each, Override
from tbuda_lab.core.session import (
    ChipBreak,
    ClearOp,
    Command,
    Constrain,
    EpochBreak,
    FormatOp,
    Optimise,
    PlaceOp,
    QueueChannel,
    Reorder,
    ResizeOp,
    Session,
    SetOptions,
    SetOverride,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session.commands import Disable, InsertNop, InsertQueue
from tbuda_lab.core.session.temporal import into_epoch

STEPS = {"mlp": 12, "encoder": 9}


def _about_an_op(session: Session, op: str, rng: random.Random) -> dict[str, tuple[Command, ...]]:
    """One edit of every kind that is about an op; some cannot be honoured."""
    table, placement = session.legal(op), session.compile().placement
    graph = session.compile().lowered
    starts = table.starts(*table.grid) or [(0, 0)]
    size = rng.choice(table.legal) if rng.random() < 0.8 else (rng.randint(1, 9), rng.randint(1, 9))
    formats = [f.name for f in legal_formats(graph, op, session.device)] or ["Bfp8_b"]
    fidelities = [f.name for f in legal_fidelities(graph, op)] or ["LoFi"]
    layer = re.compile(re.escape(op.split(".")[0]) + r"\..*")
    return {
        "size": (ResizeOp(op, size),),
        "sizes": (SetOverride(Override("op_size", layer, (1, 1))),),
        "place": (PlaceOp(op, rng.choice(starts), rng.choice((None, True, False))),),
        "chip": (PlaceOp(op, chip=rng.randint(0, 1)),),
        "break": (EpochBreak(op),),
        "no break": (EpochBreak(op, on=False), ChipBreak(op, on=rng.random() < 0.5)),
        "stream": (StreamOp(op, rng.choice(("n", "r", "c")), rng.choice((None, (2, 1), (1, 2)))),),
        "u_kt": (SetUkt(op, rng.choice((1, 2, 4))),),
        "format": (FormatOp(op, data_format=rng.choice(formats)),),
        "fidelity": (FormatOp(op, fidelity=rng.choice(fidelities)),),
        "input buffer": (SetOverride(Override("input_buffer_multiplier", op, {0: rng.choice((1, 3))})),),
        "output buffer": (SetOverride(Override("output_buffer_multiplier", op, rng.choice((1, 2)))),),
        "parameters": (SetOverride(Override("dram_parameters", op, rng.random() < 0.5)),),
        "nop": (InsertNop(op, count=rng.randint(1, 2), daisy_chain=rng.random() < 0.5),),
        "queue": (InsertQueue(op),),
        "epoch": into_epoch(session.compiles, op, rng.randrange(len(placement.epochs))),
    }


def _of_the_model(session: Session, rng: random.Random) -> dict[str, tuple[Command, ...]]:
    placement, mine = session.compile().placement, [o for o in session.overrides if isinstance(o.target, str)]
    some = rng.choice(mine) if mine else Override("op_size", placement.schedule[0], (1, 1))
    places = [rng.randrange(max(1, len(session.overrides))) for _ in range(2)]
    options = (
        {"balancer_policy": rng.choice(("Ribbon", "MinimizeGrid"))},
        {"enable_auto_fusing": rng.random() < 0.5},
        {"microbatch": rng.choice((1, 16))},
        {"dram_placement_algorithm": "GREATEST_CAPACITY"},
    )
    return {
        "channel": (QueueChannel(rng.choice(list(placement.queues)), channel=rng.randint(0, 7)),),
        "order": (Constrain(tuple(rng.sample(list(placement.schedule), 2))),),
        "clear": (ClearOp(str(some.target)),),
        "switch off": (Disable(str(some.target), (some.kind,)),),
        "reorder": (Reorder(*places),),
        "optimise": (Optimise(),),
        "options": (SetOptions(**rng.choice(options)),),
    }


def random_edit(session: Session, rng: random.Random) -> tuple[Command, ...]:
    op = rng.choice(session.compile().placement.schedule)
    matches = {**_about_an_op(session, op, rng), **_of_the_model(session, rng)}
    return matches[rng.choice(sorted(matches))]


class Follower:
    """A session and what is known of it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.texts: dict[object, str] = {}
        self.first = self.look()

    def look(self) -> str:
        """The netlist: without an error of the strict check, and the same for the same state."""
        result = self.session.compile()
        assert [f for f in check(result.netlist, profile="strict") if f.severity == "error"] == []
        text = netlist.dumps(result.netlist)
        assert self.texts.setdefault(self.session.request.key, text) == text
        return text

    def edit(self, rng: random.Random) -> bool:
        """An edit that is made, or refused by a typed error and leaves nothing behind."""
        session = self.session
        was = session.request, session.history, session.future, session.result
        try:
            session.attempt(*random_edit(session, rng))
        except TbudaError:
            assert (session.request, session.history, session.future) == was[:3]
            assert session.result is was[3] and not session.stale
            return False
        return True

    def both_or_none(self, rng: random.Random) -> None:
        was = self.session.request
        try:
            with self.session.transaction("two edits"):
                for _ in range(2):
                    self.session.attempt(*random_edit(self.session, rng))
        except TbudaError:
            assert self.session.request == was


@pytest.mark.parametrize(("name", "device"), [("mlp", "e300"), ("encoder", "wormhole_b0"), ("mlp", "n300")])
def test_random_edits_can_be_undone_and_replayed(traced, tmp_path: Path, name: str, device: str) -> None:
    graph, inputs = traced[name]
    rng, path = random.Random(f"{name} {device} 3"), tmp_path / "edits.buda.json"
    options = CompileOptions(schedule_swaps=2)
    session = Session(graph, inputs, device, options, name=name, journal=path)
    follower = Follower(session)
    result = 0
    for step in range(STEPS[name]):
        act = rng.choice(("edit", "edit", "edit", "edit", "undo", "redo", "checkpoint", "transaction"))
        if act == "edit":
            result += follower.edit(rng)
        elif act == "transaction":
            follower.both_or_none(rng)
        elif act == "checkpoint":
            session.checkpoint(f"step {step}")
        else:
            getattr(session, act)()
        follower.look()
    assert result >= 2
    end = follower.look()
    again = Session.open(path, graph, inputs)
    assert netlist.dumps(again.compile().netlist) == end
    assert (len(again.history), len(again.future)) == (len(session.history), len(session.future))
    assert again.checkpoints == session.checkpoints
    while session.undo():
        pass
    assert follower.look() == follower.first
    while session.redo():
        pass
    follower.look()


def test_a_pattern_is_journaled_with_the_ops_inside_fused_ops(traced, tmp_path: Path) -> None:
    """An override that names ops keeps them from being fused into others, and so does its journal."""
    graph, inputs = traced["encoder"]
    path = tmp_path / "edits.buda.json"
    session = Session(graph, inputs, "wormhole_b0", CompileOptions(schedule_swaps=0), journal=path)
    first = netlist.dumps(session.compile().netlist)
    inner = [n for node in session.graph().ops for n in node.attrs.get("fused", ()) if n != node.name]
    assert inner
    session.apply(Override("op_size", re.compile(re.escape(inner[0])), (1, 1)))
    message = netlist.dumps(session.compile().netlist)
    assert inner[0] in session.compile().placement.ops
    again = Session.open(path, graph, inputs)
    assert netlist.dumps(again.compile().netlist) == message != first
    queue = next(q for q in session.compile().placement.queues.values() if q.location == "dram")
    session.apply(Override("queue_channel", re.compile(re.escape(queue.name)), {"channel": 1}))
    assert Session.open(path, graph, inputs).overrides[-1].target == Each((queue.name,))
