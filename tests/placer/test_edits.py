"""Nops and queues that the user asks for: names, what they read, what is impossible, and that results stay right."""

from __future__ import annotations

import functools
import re

import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.graph import Graph, apply_shapes
from tbuda_lab.core.graph.tm import transpose
from tbuda_lab.core.lowering.edits import cut_edges, edit, nops_between, queued_ports
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary, tile_shape
from tbuda_lab.core.netlist.schema import Execute
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.runner import Runner
from tests.placer.graphs import Sketch, encoder

DEVICE = load_device("wormhole_b0")


class Block(torch.nn.Module):
    """A feed-forward block with its residual, and a product of heads: forks, slices, a transposition."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(128, 256), torch.nn.Linear(256, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(torch.nn.functional.gelu(self.up(x))) + x
        heads = y.reshape(64, 2, 64).transpose(0, 1)
        return heads @ heads.transpose(1, 2)


@functools.cache
def traced() -> tuple[Block, torch.Tensor, Graph]:
    torch.manual_seed(3)
    model, x = Block().eval(), torch.randn(1, 64, 128)
    return model, x, frontend.from_torch(model, (x,), name="block")


def nop(source: str, dest: object = None, **value: object) -> Override:
    return Override("insert_nop", source, {"dest": dest, **value})


def queue(source: str, dest: object = None, port: int | None = None) -> Override:
    return Override("insert_queue", source, {"dest": dest, "port": port})


def compiled(overrides: tuple[Override, ...] = (), device: str = "wormhole_b0", batch: int = 1) -> CompileResult:
    return compile_graph(traced()[2], device, CompileOptions(microbatch=batch), overrides)


def output_of(result: CompileResult) -> torch.Tensor:
    return Runner(result, "golden").run([(traced()[1],)])[0][0].float()


def edges(graph: Graph) -> list[tuple[str, str]]:
    """(producer, reader) of all edges between ops, in graph order."""
    names = {n.name for n in graph.ops}
    return [(s, n.name) for n in graph.ops for s in n.sources if s in names]


# -- results -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", ["wormhole_b0", "grayskull"])
@pytest.mark.parametrize("kind", ["insert_nop", "insert_queue", "both"])
def test_a_nop_or_a_queue_on_every_edge_changes_no_result(kind: str, device: str) -> None:
    """The executor runs the netlist with all the edits: not one bit may differ, and torch agrees."""
    model, x, _ = traced()
    plain = compiled(device=device)
    pairs = list(dict.fromkeys(edges(plain.lowered)))
    records = [nop(a, b, hoist_tms=i % 2 == 0) for i, (a, b) in enumerate(pairs)] if kind != "insert_queue" else []
    records += [queue(a, b) for a, b in pairs] if kind != "insert_nop" else []
    result = compiled(tuple(records), device)
    added = {n.name for n in result.lowered.ops} - {n.name for n in plain.lowered.ops}
    assert added == ({f"buffer_0_{a}_{b}" for a, b in pairs} if kind != "insert_queue" else set())
    for a, b in pairs if kind != "insert_nop" else ():
        source = f"buffer_0_{a}_{b}" if kind == "both" else a
        graph = next(g for g in result.netlist.graphs.values() if b in g.ops)
        assert f"e2e_{source}_0" in [i.source for i in graph.ops[b].inputs]
    got, want = output_of(result), model(x).detach()
    assert torch.equal(got, output_of(plain))
    assert torch.corrcoef(torch.stack([got.flatten(), want.flatten()]))[0, 1] > 0.999


def test_a_queue_within_an_epoch_holds_a_batch_and_is_set_up_by_the_program() -> None:
    _, x, _ = traced()
    plain = compiled(batch=4)
    a, b = edges(plain.lowered)[0]
    result = compiled((queue(a, b),), batch=4)
    assert result.placement.ops[a].epoch == result.placement.ops[b].epoch
    output = result.netlist.queues[f"e2e_{a}_0"]
    assert output.input == a and output.entries == 4
    runs = [i for i in result.netlist.programs[0].instructions if isinstance(i, Execute)]
    assert any(f"e2e_{a}_0" in (i.settings or {}) for i in runs)
    samples = [(x * k,) for k in (1.0, -0.5, 0.25, 2.0)]
    got = [o[0].float() for o in Runner(result, "golden").run(samples)]
    want = [o[0].float() for o in Runner(plain, "golden").run(samples)]
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


def test_an_edge_through_a_queue_costs_dram_traffic_and_frees_its_ends() -> None:
    """The reader of a cut edge streams from DRAM, so no pipe rule binds the two shapes."""
    plain = compiled()
    a, b = edges(plain.lowered)[0]
    result = compiled((queue(a, b),))
    assert plain.placement.report is not None and result.placement.report is not None
    epoch = result.placement.report.epochs[result.placement.ops[a].epoch]
    assert epoch.dram_cores > plain.placement.report.epochs[plain.placement.ops[a].epoch].dram_cores


# -- the graph ---------------------------------------------------------------------------------------------------------
def lowered() -> Graph:
    return encoder(1)


def test_hoisted_tms_stand_before_the_nops_and_others_behind() -> None:
    graph = lowered()
    before = graph["l0.score"].inputs[1]
    for hoist in (True, False):
        result = edit(graph, DEVICE, CompileOptions(), [nop("l0.k", "l0.score", nop_count=3, hoist_tms=hoist)]).graph
        chain = [f"buffer_{i}_l0.k_l0.score" for i in range(3)]
        assert nops_between(result, "l0.k") == tuple(chain)
        assert [result[n].sources for n in chain] == [("l0.k",), (chain[0],), (chain[1],)]
        assert result["l0.score"].inputs[1].source == chain[2]
        assert result[chain[0]].inputs[0].tms == (before.tms if hoist else ())
        assert result["l0.score"].inputs[1].tms == (() if hoist else before.tms)
        # what the reader sees has the shape it had
        seen = apply_shapes(result["l0.score"].inputs[1].tms, tile_shape(result[chain[2]].shape))
        assert seen == apply_shapes(before.tms, tile_shape(graph["l0.k"].shape))
        assert all(isinstance(result[n].op, HwUnary) and result[n].attrs["fidelity"] for n in chain)
    assert graph["l0.score"].inputs[1] == before, "the graph given is left as it was"


def test_several_readers_share_nops_or_follow_each_other_along_them() -> None:
    graph = lowered()
    readers = ("l0.sub", "l0.max")
    shared = edit(graph, DEVICE, CompileOptions(), [nop("l0.score", readers)]).graph
    assert {shared[r].sources[0] for r in readers} == {"buffer_0_l0.score_l0.sub"}
    chain = edit(graph, DEVICE, CompileOptions(), [nop("l0.score", readers, daisy_chain=True, nop_count=2)]).graph
    names = [f"buffer_{i}_l0.score_{r}" for r in readers for i in range(2)]
    assert [chain[n].sources[0] for n in names] == ["l0.score", *names[:-1]]
    assert [chain[r].sources[0] for r in readers] == [names[1], names[3]]


def test_readers_with_different_tms_keep_them_and_that_is_said() -> None:
    s = Sketch()
    x = s.op("fork", HwUnary("exp"), (1, 1, 64, 64), s.input("x", 1, 1, 64, 64))
    turned = s.op("turned", HwUnary("gelu"), (1, 1, 64, 64), (x, (transpose(),)))
    graph = s.output(s.op("sum", HwBinary("add"), (1, 1, 64, 64), turned, x))
    result = edit(graph, DEVICE, CompileOptions(), [nop("fork", ("turned", "sum"))])
    assert result.graph["turned"].inputs[0].tms == (transpose(),) and result.graph["sum"].inputs[1].tms == ()
    assert {result.graph["turned"].sources[0], result.graph["sum"].sources[1]} == {"buffer_0_fork_turned"}
    (note,) = result.notes
    assert note.where == "fork" and "differ" in note.message
    alone = edit(graph, DEVICE, CompileOptions(), [nop("fork", "turned")])
    assert not alone.notes and alone.graph["buffer_0_fork_turned"].inputs[0].tms == (transpose(),)


def test_by_list_pattern_and_predicate() -> None:
    graph = lowered()
    for target in (("l0.q", "l0.k"), re.compile(r"l0\.[qk]"), lambda name: name in ("l0.q", "l0.k")):
        result = edit(graph, DEVICE, CompileOptions(), [Override("insert_nop", target, {"dest": None})]).graph
        output = {n.name for n in result.ops} - {n.name for n in graph.ops}
        assert output == {"buffer_0_l0.q_l0.score", "buffer_0_l0.k_l0.score"}


def test_a_queue_is_marked_on_its_reader_and_the_last_request_for_an_edge_counts() -> None:
    graph = lowered()
    result = edit(graph, DEVICE, CompileOptions(), [queue("l0.k", "l0.score"), nop("l0.k", "l0.score")]).graph
    assert queued_ports(result["l0.score"]) == (1,)
    assert cut_edges(result, "l0.k") == (("l0.score", 1),)
    again = [nop("l0.k", "l0.score", nop_count=4), nop("l0.k", "l0.score", nop_count=2)]
    assert len(nops_between(edit(graph, DEVICE, CompileOptions(), again).graph, "l0.k")) == 2


def test_edges_before_and_behind_an_inserted_nop_can_be_cut() -> None:
    graph = lowered()
    name = "buffer_0_l0.k_l0.score"
    before = edit(graph, DEVICE, CompileOptions(), [nop("l0.k", "l0.score"), queue("l0.k", name, 0)]).graph
    assert queued_ports(before[name]) == (0,) and queued_ports(before["l0.score"]) == ()
    behind = edit(graph, DEVICE, CompileOptions(), [nop("l0.k", "l0.score"), queue(name, "l0.score")]).graph
    assert queued_ports(behind[name]) == () and queued_ports(behind["l0.score"]) == (1,)


def test_without_edits_the_graph_is_the_same_object() -> None:
    graph = lowered()
    assert edit(graph, DEVICE, CompileOptions(), [Override("op_size", "l0.q", (1, 1))]).graph is graph


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (nop("l0.q", "l0.exp"), "its readers: l0.score"),
        (nop("l0.q", "l0.scor"), "did you mean 'l0.score'?"),
        (nop("l0.q", "l0.score", nop_count=0), "nop_count"),
        (nop("l0.q", "l0.score", nop_count=10**9), "from 1 to 256"),
        (nop("out"), "nothing reads it"),
        (queue("x", "l0.q"), "queue already"),
        (queue("l0.k", "l0.score", 0), "operands that do: 1"),
        (queue("l0.add2_output_nop", "out"), "host output"),
    ],
)
def test_what_is_impossible_is_an_error_that_says_what_would_work(record: Override, message: str) -> None:
    with pytest.raises(OverrideError) as caught:
        edit(lowered(), DEVICE, CompileOptions(), [record])
    (result,) = caught.value.diagnostics
    assert result.where == record.target and result.rule == f"override-{record.kind}"
    assert message in f"{result.message}; {result.fix}"


def test_all_impossible_requests_are_told_at_once_and_before_balancing() -> None:
    stages: list[str] = []
    a, b = edges(compiled().lowered)[0]
    with pytest.raises(OverrideError) as caught:
        compile_graph(
            traced()[2], DEVICE, CompileOptions(), [nop(b, a), queue(b, a)], on_stage=lambda s, _: stages.append(s)
        )
    assert len(caught.value.diagnostics) == 2
    assert "balance" not in stages


def test_an_input_buffer_multiplier_stands_in_the_netlist_and_takes_its_l1() -> None:
    """Twice the blocks of an operand are twice the usual tiles; other operands are left to the backend."""
    plain = compiled()
    wide = compiled((Override("op_size", "gelu", (1, 1)), Override("input_buffer_multiplier", "gelu", {0: 4})))
    op = next(o for g in wide.netlist.graphs.values() for o in g.ops.values() if o.name == "gelu")
    block = op.blocking.ublock[0] * op.blocking.ublock[1]
    assert op.input_buf_min_size_tiles == [4 * block]
    row = wide.placement.candidate("gelu")
    assert int(row["l1_input"]) >= 4 * block * 2080  # Float16_b tiles with their header
    usual = next(o for g in plain.netlist.graphs.values() for o in g.ops.values() if o.name == "gelu")
    assert usual.input_buf_min_size_tiles is None
    assert (output_of(wide) - output_of(plain)).abs().max() < 1e-2
