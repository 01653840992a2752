"""What overrides come to for a graph: each read once, at the door; whatever form its value has."""

from __future__ import annotations

import functools
import re
import types
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.constraints import Constraints, queue_names, resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_any
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.lowering.hw_ops import HwUnary
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import FIRST, KINDS, Each, Override
from tbuda_lab.core.overrides.places import OpPin, QueuePin
from tbuda_lab.core.placer import place_and_repair
from tests.models import make
from tests.placer.graphs import Sketch, encoder

DEVICE, OPTIONS = load_device("wormhole_b0"), CompileOptions()


def asked(*records: Override, graph: Graph | None = None, device: Any = DEVICE) -> Constraints:
    return resolve(records, encoder(1) if graph is None else graph, device, OPTIONS)


def test_later_records_win_field_by_field_of_candidates_and_whole_for_places() -> None:
    constraints = asked(
        Override("op_size", re.compile(r"l0\.[qk]"), (1, 1)),
        Override("op_size", "l0.q", [1, 2]),
        Override("input_buffer_multiplier", "l0.q", {0: 4}),
        Override("input_buffer_multiplier", ("l0.q", "l0.k"), {1: 2}),
        Override("op_placement", "l0.q", {"start": [2, 1], "transpose": False}),
        Override("op_placement", "l0.q", {"chip": 0}),
        Override("queue_channel", "l0.q.w", {"channel": 1}),
    )
    assert constraints.choices["l0.q"].grid == (1, 2) and constraints.choices["l0.k"].grid == (1, 1)
    assert constraints.input_factors == {"l0.q": {0: 4, 1: 2}, "l0.k": {1: 2}}
    assert constraints.pins == {"l0.q": OpPin(chip=0)} and constraints.faults == ()
    assert constraints.queues == {"l0.q.w": QueuePin(channel=1)}


def test_breaks_and_orders_follow_the_schedule_they_are_asked_about() -> None:
    constraints = asked(
        Override("epoch_break", ("l0.k", "l0.q")),
        Override("epoch_break", re.compile("l0.v"), FIRST),
        Override("chip_break", Each(("l0.up", "nothing"))),
        Override("schedule_constraint", ("l0.v", "l0.k")),
        Override("epoch_break", "l0.down", False),
    )
    assert constraints.epoch_starts(["l0.q", "l0.k", "l0.v", "l0.up", "l0.down"]) == {"l0.q", "l0.v", "l0.up"}
    assert constraints.epoch_starts(["l0.k", "l0.q"]) == {"l0.k"}
    assert constraints.chip_starts(["l0.q", "l0.up"]) == {"l0.up"}
    assert constraints.pairs(["l0.k", "l0.v"]) == [("l0.v", "l0.k")]


def test_all_that_is_wrong_is_told_at_once_and_nothing_of_it_is_taken() -> None:
    constraints = asked(
        Override("op_size", "l0.q", (3, 3)),
        Override("u_kt", "l0.k", "many"),
        Override("nonsense", "l0.q"),
        Override("op_placement", "l0.v", {"start": (99, 0)}),
        Override("queue_channel", "x", {"channel": 99}),
        Override("epoch_break", "l0.v", "soon"),
        Override("schedule_constraint", ("l0.q", "l0.kk")),
    )
    assert [d.rule for d in constraints.faults] == [
        "override-kind",
        "override-epoch_break",
        "override-op_size",
        "override-u_kt",
        "override-op_placement",
        "queue-channel",
        "override-schedule_constraint",
    ]
    assert all(d.fix for d in constraints.faults)
    assert not (constraints.choices or constraints.pins or constraints.breaks or constraints.queues)
    with pytest.raises(OverrideError, match="7 overrides") as caught:
        constraints.checked()
    assert tuple(caught.value.diagnostics) == constraints.faults


@pytest.mark.parametrize("device", ["wormhole_b0", "n300"])
def test_every_queue_of_a_placement_is_one_that_may_be_addressed(device: str) -> None:
    """Also copies of weights on a second chip, and queues that another program reads."""
    spec, graph = load_device(device), encoder(2)
    placement = place_and_repair(graph, op_models(graph, spec, OPTIONS), spec, OPTIONS).placement
    assert set(placement.queues) <= set(queue_names(graph, spec))
    pinned = asked(Override("queue_channel", re.compile(".*"), {"channel": 0}), graph=graph, device=spec)
    assert set(placement.queues) <= set(pinned.queues)


def test_a_nop_that_is_inserted_is_told_from_its_equals_only_where_something_may_address_it() -> None:
    s = Sketch()
    s.output(s.op("a", HwUnary("exp"), (1, 1, 32, 64), s.input("x", 1, 1, 32, 64)))
    named = asked(Override("op_size", "a", (1, 1)), graph=s.graph)
    assert not named.tells_equal_ops_apart
    for record in (
        Override("op_size", re.compile("a"), (1, 1)),
        Override("op_size", "buffer_0_a_b", (1, 1)),
        Override("input_buffer_multiplier", "a", {0: 2}),
    ):
        assert asked(record, graph=s.graph).tells_equal_ops_apart


VALUES: dict[str, Any] = {
    "op_placement": {"start": (1, 1)},
    "queue_channel": {"channel": 1},
    "input_buffer_multiplier": {0: 2},
    "prologue": {1: True},
    "insert_nop": {"dest": "2.matmul", "nop_count": 2},
    "insert_queue": {"dest": "2.matmul"},
}


@pytest.fixture(scope="module")
def mlp() -> Graph:
    return from_any(*make("mlp"))


@pytest.mark.parametrize("kind", VALUES)
def test_a_mapping_of_any_class_is_what_a_dict_is(kind: str, mlp: Graph) -> None:
    target = "0.weight" if kind == "queue_channel" else "0.matmul"
    plain = compile_graph(mlp, "n150", overrides=(Override(kind, target, VALUES[kind]),))
    read_only = Override(kind, target, types.MappingProxyType(VALUES[kind]))
    assert dumps(compile_graph(mlp, "n150", overrides=(read_only,)).netlist) == dumps(plain.netlist)


def unhashable() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    arrays = [np.array([1, 2]), [np.array([1])], {"nop_count": np.array([1])}]
    return [*arrays, {1, 2}, {"start": {1, 2}}, bytearray(b"x"), circle]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_no_plain_data_is_refused_at_the_door(kind: str, mlp: Graph) -> None:
    for value in unhashable():
        with pytest.raises(OverrideError) as caught:
            compile_graph(mlp, "n150", overrides=(Override(kind, "0.matmul", value),))
        assert [d.rule for d in caught.value.diagnostics] == [f"override-{kind}"]


# -- names of ops that passes have made others of ----------------------------------------------------------------------
MEANINGS = {
    "op_size": ("all", (1, 1)),
    "t_stream_dir": ("all", "n"),
    "t_stream_shape": ("all", (1, 1)),
    "u_kt": ("all", 1),
    "output_buffer_multiplier": ("all", 2),
    "dram_parameters": ("all", True),
    "prologue": ("all", True),
    "data_format": ("all", "Float16_b"),
    "math_fidelity": ("all", "LoFi"),
    "input_buffer_multiplier": ("refused", {0: 2}),
    "op_placement": ("refused", {"start": (0, 0)}),
    "epoch_break": ("before the first", True),
    "chip_break": ("before the first", True),
    "insert_nop": ("behind the last", {"dest": "2.matmul"}),
    "insert_queue": ("behind the last", {"dest": "2.matmul"}),
    "schedule_constraint": ("in its place", True),
    "queue_channel": ("no queue", {"channel": 1}),
}


@functools.cache
def gelu_in_parts() -> tuple[Graph, tuple[str, ...]]:
    """Two layers with a gelu in Float32 between them, lowered, and the ops that the gelu is."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).eval()
    options = CompileOptions(default_df_override=DataFormat.Float32, enable_auto_fusing=False)
    graph = lower(passes.run(from_any(model, (torch.zeros(1, 64, 64),)), options).graph, DEVICE, options)
    return graph, tuple(node.name for node in graph.ops if node.name.startswith("1.gelu"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_an_op_that_is_several_means_something_for_every_kind(kind: str) -> None:
    graph, parts = gelu_in_parts()
    assert len(parts) > 5 and "1.gelu" not in parts
    meaning, value = MEANINGS[kind]
    target = ("1.gelu", "2.matmul") if kind == "schedule_constraint" else "1.gelu"
    record = Override(kind, target, value)
    constraints = asked(record, graph=graph)
    faults = [fault.where for fault in constraints.faults]
    order = [node.name for node in graph.ops]
    if KINDS[kind].turn:
        edited = edit(graph, DEVICE, OPTIONS, (record,)).graph
        changed = {
            n.name
            for n in edited.ops
            if n.name in graph.nodes
            and (n.df, n.attrs, n.inputs) != (graph[n.name].df, graph[n.name].attrs, graph[n.name].inputs)
        }
        assert changed == ({"2.matmul"} if meaning == "behind the last" else set(parts))
    elif meaning == "all":
        assert {*constraints.choices, *faults} == set(parts)
    elif meaning == "refused":
        assert faults == ["1.gelu"] and all(part in constraints.faults[0].fix for part in parts)
    elif meaning == "before the first":
        assert constraints.epoch_starts(order) == {parts[0]}
    elif meaning == "in its place":
        assert constraints.orders[0].ops == (*parts, "2.matmul")
    assert bool(constraints.unmatched) == (meaning == "no queue")


def test_readers_may_be_named_by_an_op_that_is_several() -> None:
    graph, parts = gelu_in_parts()
    edited = edit(graph, DEVICE, OPTIONS, (Override("insert_nop", "0.matmul", {"dest": "1.gelu"}),)).graph
    nop = next(node.name for node in edited.ops if node.name not in graph.nodes)
    reading = {n for n in parts if "0.matmul" in graph[n].sources}
    assert {node.name for node in edited.ops if nop in node.sources} == reading and edited[nop].sources == ("0.matmul",)
