"""Edits on several chips: the pipeline stays, and only the epochs they touch are made anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core.balancer.types import copied_from, graph_name
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import Execute
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import ChipBreak, Command, EpochBreak, FormatOp, PlaceOp, QueueChannel, ResizeOp, Session
from tbuda_lab.core.session.commands import InsertNop, InsertQueue
from tbuda_lab.core.tti import load_image
from tests.session.scratch import same_as_from_scratch


@pytest.fixture(scope="module")
def session(traced) -> Session:
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "n300", name="two_chips")
    session.compile()
    return session


def _local(session: Session) -> list[Command]:
    """Edits that send nothing to another chip, about an op in the middle of the second stage."""
    placement = session.compile().placement
    stage = placement.epochs[-1].ops
    op = next(n for n in stage[len(stage) // 2 :] if len(session.legal(n).legal) > 1)
    size = next(s for s in session.legal(op).legal if s != session.legal(op).grid)
    source = next(s for s in session.compile().lowered[op].sources if s in placement.ops)
    return [
        ResizeOp(op, size),
        EpochBreak(op),
        PlaceOp(op, chip=placement.ops[op].chip),
        InsertNop(source, (op,)),
        InsertQueue(source, (op,)),
        FormatOp(op, fidelity="LoFi"),
    ]


def test_every_chip_whose_queues_are_touched_has_a_graph(traced) -> None:
    """With an epoch break a temporal epoch leaves a chip without ops; with a queue of it there, which it reads, it gets
    an empty graph."""
    graph, inputs = traced["encoder"]
    split = Session(graph, inputs, "n300", name="two_chips_cut")
    plain = split.compile()
    stage = plain.placement.epochs[-1].ops
    split.apply(EpochBreak(stage[len(stage) // 2]))
    cut = split.compile()
    between = next(
        q
        for q in cut.placement.queues.values()
        if q.kind == "e2e" and cut.placement.ops[q.source].epoch == len(cut.placement.epochs) - 2
    )
    split.apply(QueueChannel(between.name, chip=1 - between.chip))
    result = split.compile()
    net = result.netlist
    order = [i.graph for i in net.programs[0].instructions if isinstance(i, Execute)]
    assert any("_idle_chip_" in name for name in order)
    assert set(order) == {g.name for g in net.graphs.values() if g.ops or "_idle_" in g.name}
    temporal = {graph_name(e): e.temporal for e in result.placement.epochs}
    touched: dict[int, set[int]] = {}
    there: dict[int, set[int]] = {}
    now = -1
    for name in order:
        now = temporal.get(name, now)  # an empty graph follows the epoch that it belongs to
        there.setdefault(now, set()).add(net.graphs[name].target_device)
        for op in net.graphs[name].ops.values():
            names = {i.source for i in op.inputs} | {q.name for q in net.queues.values() if q.input == op.name}
            touched.setdefault(now, set()).update(
                net.queues[n].target_device for n in names if n in net.queues and net.queues[n].loc == "dram"
            )
    assert all(touched[t] <= there[t] for t in touched)
    got = [Runner(r, "golden").run([inputs])[0][0].float() for r in (plain, result)]
    torch.testing.assert_close(got[0], got[1], rtol=0.02, atol=0.02)


class Shared(torch.nn.Module):
    """Layers that add the same bias, and a weight tied between the first and the last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.ends = torch.nn.Linear(64, 64, bias=False)
        self.middle = torch.nn.Linear(64, 64, bias=False)
        self.bias = torch.nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.ends, self.middle, self.middle, self.ends):
            x = torch.tanh(layer(x) + self.bias)
        return x.softmax(-1)


@pytest.mark.parametrize("device", ["n300", "e300"])
def test_what_several_chips_preload_is_a_queue_for_each(device: str, tmp_path) -> None:
    x = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(12))
    model, board = Shared().eval(), device if device == "n300" else load_device("grayskull", chips=2)
    session = Session(model, (x,), board, CompileOptions(microbatch=2), name="shared")
    session.apply(ChipBreak(next(n for n in session.compile().placement.schedule if n.startswith("middle.matmul_1"))))
    result = session.compile()
    net = result.netlist
    chips = {op.name: graph.target_device for graph, op in net.ops()}
    assert len(set(chips.values())) == 2
    read: dict[str, set[int]] = {}
    for _, op in net.ops():
        for i in op.inputs:
            read.setdefault(i.source, set()).add(chips[op.name])
    preloaded = {
        name
        for p in net.programs
        for i in p.instructions
        if isinstance(i, Execute) and i.settings
        for name, setting in i.settings.items()
        if setting.fields["prologue"] is True
    }
    (copy,) = (n for n in preloaded if copied_from(n) == "bias")
    assert {"bias", copy} <= preloaded
    for name in preloaded:
        assert read[name] == {net.queues[name].target_device}
    assert net.queues["bias"].target_device != net.queues[copy].target_device
    assert not [n for n in net.queues if n.rpartition(".")[0] in net.queues]
    assert all(c.pcc is not None and c.pcc > 0.99 for c in session.verify())

    # an image keeps the copies, and new weights reach them
    image = load_image(session.export_tti(tmp_path / "shared.tti"))
    bias = np.random.default_rng(13).normal(size=64).astype(np.float32)
    other = image.with_weights({"bias": bias})
    assert np.array_equal(other.parameters["bias"], other.parameters[copy])
    model.bias.data = torch.from_numpy(bias)
    got = Runner(other, "golden").run([(x,), (x,)])[0][0].float()
    torch.testing.assert_close(got, model(x).detach(), rtol=0.05, atol=0.01)


def test_an_edit_within_a_stage_leaves_the_pipeline_as_it_is(session: Session) -> None:
    plain = session.compile().placement
    assert len({e.chip for e in plain.epochs}) == 2 and len({e.temporal for e in plain.epochs}) == 1
    for edit in _local(session):
        before = session.work
        now = session.attempt(edit).placement
        done = {name: count - before.get(name, 0) for name, count in session.work.items()}
        assert not done.get("place") and not done.get("lower") and done["epoch"] <= 2, edit.label
        for name, spot in plain.ops.items():
            assert now.ops[name].chip == spot.chip
            if spot.epoch == 0 and not isinstance(edit, (InsertNop, InsertQueue)):
                assert now.ops[name] == spot
        same_as_from_scratch(session, session.placed().chips)
        session.undo()
    assert session.compile().placement is plain


def test_what_crosses_chips_places_the_model_anew(session: Session) -> None:
    first = session.compile().placement.epochs[0]
    other = next(c for c in (0, 1) if c != first.chip)
    last = first.ops[-1]
    for edit in (PlaceOp(last, chip=other), ChipBreak(last)):
        before = session.work["place"]
        assert session.attempt(edit).placement.ops[last].chip == other
        assert session.work["place"] == before + 1
        session.undo()
        session.compile()


def test_edits_of_a_pipeline_run_as_torch_does(session: Session) -> None:
    """A break within a stage: what follows it runs beside the other chip, one step later."""
    resize, cut, _, nop, *_ = _local(session)
    session.attempt(cut)
    assert [e.temporal for e in session.compile().placement.epochs] == [0, 0, 1]
    session.attempt(nop)
    session.attempt(resize)
    same_as_from_scratch(session, session.placed().chips)
    assert all(c.pcc is not None and c.pcc > 0.99 for c in session.verify())
    while session.undo():
        pass
    session.compile()


def test_empty_graphs_of_a_training_on_two_chips() -> None:
    """Microbatch 32: the optimizer's graphs run once, empty ones too; the epochs at both ends of each program cover
    both chips, so none of two programs are merged. The step is torch's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32))
    x, y = torch.randn(32, 32, 32), torch.randn(32, 32, 32)
    options = CompileOptions(microbatch=32, default_df_override=DataFormat.Float32)
    session = Session.for_training(model, x, torch.nn.MSELoss(), y, "adam", 0.01, options=options, device="n300")
    net = session.compile().netlist
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for program in net.programs:
        graphs = [net.graphs[i.graph] for i in program.instructions if isinstance(i, Execute)]
        assert {g.input_count for g in graphs} == {1 if program.name == "run_opt_0" else 32}
        for end in (graphs, graphs[::-1]):
            chips = [g.target_device for g in end]
            assert set(chips[: 1 + chips.index(1 - chips[0])]) == {0, 1}
            assert chips.index(1 - chips[0]) == 1
    assert any(not net.graphs[i.graph].ops for p in net.programs[-1:] for i in p.instructions if isinstance(i, Execute))
    session.train([(x, y)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    trained = session.trainer.parameters()
    for name, p in model.named_parameters():
        torch.testing.assert_close(trained[name] - before[name], p.detach() - before[name], rtol=0.05, atol=1e-3)


def test_a_training_that_sends_more_than_a_link_carries_is_on_one_chip() -> None:
    """Weights and gradients of 1024 columns cross an n300's two ethernet cores in more than 14 pipes."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    x, y = torch.randn(2, 32, 256), torch.randn(2, 32, 256)
    session = Session.for_training(model, x, torch.nn.MSELoss(), y, options=CompileOptions(microbatch=2), device="n300")
    result = session.compile()
    assert len({e.chip for e in result.placement.epochs}) == 1
    assert any("pipes would cross a link" in d.message for d in result.diagnostics)
