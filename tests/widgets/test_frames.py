"""Frames against the objects they are made from, and the layered order against its own definition."""

from __future__ import annotations

import itertools
import json
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.frames import Frame, graph_frame, netlist_frame, ops_frame, place, problems_frame, total_cycles
from tbuda_lab.core.frames.frame import COLUMN_DTYPES
from tbuda_lab.core.frames.hierarchy import hierarchy
from tbuda_lab.core.frames.layout import EXIT, GAP_ACROSS, ITEM_GROUP, ITEM_NODE, LANE, Net, arrange, separate
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin
from tests.widgets import synthetic


@pytest.fixture(scope="module")
def compiled() -> Any:
    return synthetic.result(2)


# -- the container -------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.sampled_from(COLUMN_DTYPES), st.lists(st.integers(0, 100), max_size=40)), max_size=6))
def test_pack_and_unpack(columns: list[tuple[str, list[int]]]) -> None:
    frame = Frame("k", {"n": 1}, {f"c{i}": np.array(v, dtype=f"<{d}") for i, (d, v) in enumerate(columns)}, ("", "ä"))
    header, buffer = frame.pack()
    assert all(c["offset"] % 8 == 0 for c in header["columns"])
    again = Frame.unpack(json.loads(json.dumps(header)), buffer)
    assert again.key == "k" and again.meta == {"n": 1} and list(again.strings) == ["", "ä"]
    for name, column in frame.columns.items():
        assert again.columns[name].dtype == column.dtype
        np.testing.assert_array_equal(again.columns[name], column)


def test_columns_a_page_cannot_read_are_refused() -> None:
    for bad in (np.zeros(2, dtype="i8"), np.zeros((2, 2), dtype="u4"), np.zeros(2, dtype="?")):
        with pytest.raises(TypeError, match="column 'x'"):
            Frame("k", {}, {"x": bad}).pack()


# -- the hierarchy -------------------------------------------------------------------------------------------------
def chain(*modules: str, names: list[str] | None = None) -> Graph:
    g = Graph("g")
    g.add(Node("in", NodeKind.INPUT, (1, 1)))
    last = "in"
    for i, module in enumerate(modules):
        name = names[i] if names else f"n{i}"
        g.add(Node(name, NodeKind.OP, (1, 1), None, (Edge(last),), origin=Origin(module)))
        last = name
    return g


def test_groups_that_hold_one_group_are_written_as_one() -> None:
    modules = ("layer.0.att", "layer.0.att", "layer.0.out", "layer.1.att", "layer.1.att")
    tree = hierarchy(chain(*(f"enc.{m}" for m in modules)))
    labels = {g.path: g.label for g in tree.groups}
    assert labels == {
        "": "",
        "enc.layer": "enc.layer",
        "enc.layer.0": "layer.0",
        "enc.layer.0.att": "att",
        "enc.layer.1.att": "layer.1.att",
    }


def test_a_decomposed_op_is_a_group() -> None:
    tree = hierarchy(chain("a", "a", "a", names=["a.x", "a.soft.dc.exp.0", "a.soft.dc.sum.1"]))
    assert [g.path for g in tree.groups] == ["", "a", "a.soft"]
    assert [g.leaves for g in tree.groups] == [4, 3, 2]


def test_a_group_that_values_come_back_to_is_taken_apart() -> None:
    # "down" runs in turns with "pool": as one box it would come before and after the pools.
    modules = ("down.0", "down.0", "pool", "pool", "down.1", "down.1")
    tree = hierarchy(chain(*modules))
    assert [g.label for g in tree.groups] == ["", "down.0", "pool", "down.1"]
    columns = graph_frame(chain(*modules), "traced").columns
    rank = columns["item_rank"]
    assert (rank[columns["seg_target"]] > rank[columns["seg_source"]]).all()


def layers(count: int, wide: int = 0) -> Graph:
    """A stem, `count` layers of three ops, a head; the layer `wide` has another shape, if it is above 0."""
    g = Graph("g")
    g.add(Node("in", NodeKind.INPUT, (1, 1)))
    names = ["in"]
    for k in range(count):
        for op, module in (("a", "mlp"), ("b", "mlp"), ("c", "out")):
            shape = (2, 2) if k == wide > 0 else (1, 1)
            name = f"enc.layer.{k}.{module}.{op}"
            g.add(Node(name, NodeKind.OP, shape, None, (Edge(names[-1]),), origin=Origin(f"enc.layer.{k}.{module}")))
            names.append(name)
    g.add(Node("head", NodeKind.OP, (1, 1), None, (Edge(names[-1]),), origin=Origin("head")))
    return g


def test_layers_that_repeat_fold_behind_the_first() -> None:
    tree = hierarchy(layers(48))
    labels = {g.path: (g.label, g.repeats, g.leaves) for g in tree.groups if g.depth < 3}
    assert labels == {
        "": ("", 0, 146),
        "enc.layer": ("enc.layer × 48", 0, 144),
        "enc.layer.0": ("layer.0", 0, 3),
        "enc.layer.1-47": ("layer.1–47 × 47", 47, 141),
    }
    paths = {g.path: tree.groups[g.parent].path for g in tree.groups[1:]}
    assert paths["enc.layer.7"] == "enc.layer.1-47", "a layer keeps the path of its module"
    assert tree.groups[1 + list(paths).index("enc.layer.1-47")].module_class == "each like layer.0"


@pytest.mark.parametrize(
    "count, wide, folds",
    [
        (2, 0, []),
        (3, 0, ["layer.1–2 × 2"]),
        (8, 4, ["layer.1–3 × 3", "layer.6–7 × 2"]),
        (8, 1, ["layer.3–7 × 5"]),
    ],
)
def test_layers_fold_where_ops_types_and_shapes_are_the_same(count: int, wide: int, folds: list[str]) -> None:
    assert [g.label for g in hierarchy(layers(count, wide)).groups if g.repeats] == folds


def test_a_graph_of_many_layers_opens_at_a_useful_depth() -> None:
    graph = layers(48)
    frame = graph_frame(graph, "traced")
    paths = frame.text("group_path")
    opened = {paths[g] for g in frame.meta["open"]}
    assert {"enc.layer", "enc.layer.0", "enc.layer.0.mlp"} <= opened
    assert "enc.layer.1-47" not in opened, "what repeats stays folded"
    assert frame.columns["group_repeats"].tolist().count(47) == 1
    columns = frame.columns
    assert (columns["item_rank"][columns["seg_target"]] > columns["item_rank"][columns["seg_source"]]).all()


# -- the order -----------------------------------------------------------------------------------------------------
@st.composite
def containers(draw: Any) -> tuple[int, tuple[Net, ...]]:
    n = draw(st.integers(1, 9))
    nets = []
    for source in range(-1, n):
        later = list(range(source + 1, n))
        targets = draw(st.lists(st.sampled_from(later), unique=True, max_size=3)) if later else []
        leaves = draw(st.booleans()) and source >= 0
        if targets or leaves:
            nets.append(Net(source, tuple(targets), leaves))
    return n, tuple(nets)


@given(containers())
def test_every_value_reaches_its_readers_one_rank_at_a_time(container: tuple[int, tuple[Net, ...]]) -> None:
    n, nets = container
    order = arrange(n, nets)
    assert all(order.rank[t] == order.rank[s] + 1 for s, t, _ in order.segments), "a DAG has no edge against its order"
    for number, net in enumerate(nets):
        paths = nx.DiGraph([(s, t) for s, t, k in order.segments if k == number])
        source = net.source
        if source < 0:
            (source,) = [i for i in range(n, len(order.kind)) if order.net[i] == number and order.rank[i] == 0]
        reached = nx.descendants(paths, source)
        assert {t for t in reached if t < n} == set(net.targets)
        assert any(order.kind[t] == EXIT for t in reached) == net.leaves
        assert all(order.kind[i] == LANE for i in paths if i >= n and paths.in_degree(i) and paths.out_degree(i))
    for rank in set(order.rank):
        places = sorted(order.order[i] for i in range(len(order.rank)) if order.rank[i] == rank)
        assert places == list(range(len(places)))


@given(containers())
def test_sweeps_never_add_crossings(container: tuple[int, tuple[Net, ...]]) -> None:
    n, nets = container
    order = arrange(n, nets)

    def crossings(position: Any) -> int:
        pairs = [(order.rank[s], position[s], position[t]) for s, t, _ in order.segments]
        return sum(a[0] == b[0] and (a[1] - b[1]) * (a[2] - b[2]) < 0 for i, a in enumerate(pairs) for b in pairs[:i])

    seen: dict[int, int] = {}
    first = []
    for rank in order.rank:
        first.append(seen.get(rank, 0))
        seen[rank] = first[-1] + 1
    assert crossings(order.order) <= crossings(first)


def test_a_cycle_between_groups_is_drawn_against_the_order() -> None:
    order = arrange(2, (Net(0, (1,), False), Net(1, (0,), False)))
    assert order.rank == (1, 2)
    assert set(order.segments) == {(0, 1, 0), (1, 0, 1)}


# -- positions -----------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.floats(-500, 500), st.floats(0.1, 10), st.floats(1, 200)), min_size=1, max_size=12))
def test_separate_is_isotonic_regression(boxes: list[tuple[float, float, float]]) -> None:
    wish, weight, width = (list(c) for c in zip(*boxes, strict=True))
    steps = [(a + b) / 2 + GAP_ACROSS for a, b in itertools.pairwise(width)]
    offsets = np.concatenate([[0.0], np.cumsum(steps)])
    expected = isotonic_regression(np.array(wish) - offsets, weights=np.array(weight)).x + offsets
    np.testing.assert_allclose(separate(wish, weight, width), expected, atol=1e-6)


def test_every_drawn_node_has_one_item_and_every_edge_a_path(compiled: Any) -> None:
    frame = graph_frame(compiled.lowered, "lowered")
    kind, ref, home = (frame.columns[f"item_{k}"].tolist() for k in ("kind", "ref", "group"))
    names = frame.text("node_name")
    item = {names[ref[i]]: i for i in range(len(kind)) if kind[i] == ITEM_NODE}
    drawn = [n.name for n in compiled.lowered if n.kind not in (NodeKind.PARAMETER, NodeKind.CONSTANT)]
    assert sorted(item) == sorted(drawn) and sum(k == ITEM_NODE for k in kind) == len(drawn)
    # Join segments through group boxes: what enters or leaves a group goes on at its port of the same net.
    flow = nx.DiGraph()
    ports = {(kind[i], home[i], ref[i]): i for i in range(len(kind)) if kind[i] > ITEM_GROUP}
    for s, t, net in zip(*(frame.columns[f"seg_{k}"].tolist() for k in ("source", "target", "net")), strict=True):
        tail = ports[4, ref[s], net] if kind[s] == ITEM_GROUP else s
        head = ports[3, ref[t], net] if kind[t] == ITEM_GROUP else t
        flow.add_edge((tail, net), (head, net))
    for node in compiled.lowered:
        for edge in node.inputs:
            if edge.source in item:
                net = names.index(edge.source)
                assert nx.has_path(flow, (item[edge.source], net), (item[node.name], net))


def test_open_boxes_lie_inside_their_group(compiled: Any) -> None:
    frame = graph_frame(compiled.lowered, "lowered")
    layout = place(frame, set(range(frame.columns["group_parent"].size)))
    kind, ref, home = (frame.columns[f"item_{k}"] for k in ("kind", "ref", "group"))
    box_of = {int(ref[i]): layout.boxes[i] for i in np.flatnonzero(kind == ITEM_GROUP)}
    assert layout.visible.all()
    for i in np.flatnonzero(kind <= ITEM_GROUP):
        x, y, w, h = layout.boxes[i]
        gx, gy, gw, gh = box_of.get(int(home[i]), (0.0, 0.0, *layout.size))
        assert gx <= x and gy <= y and x + w <= gx + gw + 1e-9 and y + h <= gy + gh + 1e-9


def test_what_is_opened_first_stays_small() -> None:
    frame = graph_frame(synthetic.encoder_graph(12), "lowered")
    layout = place(frame, set(frame.meta["open"]))
    shown = layout.visible & (frame.columns["item_kind"] <= ITEM_GROUP)
    assert 10 < shown.sum() < 50


# -- placement, netlist, problems ----------------------------------------------------------------------------------
def test_ops_frame_says_what_the_placement_says(compiled: Any) -> None:
    placement, device = compiled.placement, compiled.device
    frame = ops_frame(compiled.lowered, placement, device)
    names = frame.text("op_name")
    assert names == list(placement.schedule)
    for i, name in enumerate(names):
        op, row = placement.ops[name], placement.candidate(name)
        at = [int(frame.columns[f"op_{k}"][i]) for k in ("epoch", "chip", "row", "col", "rows", "cols")]
        assert at == [op.epoch, op.chip, *op.start, *op.size]
        assert frame.columns["op_cycles"][i] == row["cycles"] and frame.columns["op_l1_total"][i] == row["l1_total"]
    for epoch in placement.epochs:
        work = sum(int(placement.candidate(n)["cycles"]) * int(placement.candidate(n)["cores"]) for n in epoch.ops)
        busy = work / (placement.epoch_cycles[epoch.index] * device.rows * device.cols)
        assert frame.columns["epoch_busy"][epoch.index] == pytest.approx(busy, rel=1e-6)
    edges = set(zip(frame.columns["edge_source"].tolist(), frame.columns["edge_target"].tolist(), strict=True))
    expected = {
        (names.index(e.source), names.index(n.name))
        for n in compiled.lowered.ops
        for e in n.inputs
        if e.source in names
    }
    assert edges == expected
    assert frame.meta["physical"] == [0, 1, 2, 4, 5, 6, 7, 9] and frame.meta["harvested"] == [3, 8]


def test_chips_of_one_temporal_epoch_run_together() -> None:
    assert total_cycles(np.array([0, 0, 1]), np.array([10.0, 30.0, 5.0])) == 35.0
    assert total_cycles(np.array([], dtype=int), np.array([])) == 0.0


def test_netlist_lines_are_those_of_the_loader(compiled: Any) -> None:
    text = synthetic.text(compiled)
    frame = netlist_frame(text)
    assert frame.columns["text"].tobytes().decode() == text
    source = netlist.loads(text).source
    expected = {path[-1]: span.line - 1 for path, span in source.items() if len(path) == 3 and path[0] == "graphs"}
    result = dict(zip(frame.text("entry_name"), frame.columns["entry_line"].tolist(), strict=True))
    for name in compiled.placement.ops:
        assert result[name] == expected[name]
        lines = text.splitlines()
        last = result[name] + int(frame.columns["entry_lines"][frame.text("entry_name").index(name)])
        assert "}" in lines[last - 1]


def test_errors_come_first() -> None:
    message = [
        Diagnostic("note", "a", "r", "m"),
        Diagnostic("error", "b", "r", "m"),
        Diagnostic("warning", "c", "r", "m"),
    ]
    assert problems_frame(message).text("where") == ["b", "c", "a"]


# -- sizes, repeatability ------------------------------------------------------------------------------------------
def test_frames_are_small_and_the_same_every_time() -> None:
    big = synthetic.result(12)

    def packed() -> list[tuple[str, bytes]]:
        frames = (graph_frame(big.lowered, "lowered"), ops_frame(big.lowered, big.placement, big.device))
        return [(json.dumps(header), buffer) for header, buffer in (f.pack() for f in frames)]

    assert max(len(text) + len(buffer) for text, buffer in packed()) <= 256 * 1024
    assert packed() == packed()


def test_the_fixture_of_the_typescript_tests_is_current() -> None:
    stored = json.loads(synthetic.FIXTURE.read_text(encoding="utf-8"))
    current = json.loads(json.dumps(synthetic.fixture()))
    for one in (stored, current):  # how a netlist is laid out is not the views' business
        one["frames"] = [f for f in one["frames"] if f["header"]["key"] != "netlist"]
    assert stored == current, "run: python -m tests.widgets.synthetic"
