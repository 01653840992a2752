"""Graph, grid and table as Python tells them: passes, left to right, links, chips, groups; calls and pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import numpy as np
import pytest
import traitlets

from tbuda_lab.core.device import load_device
from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import graph_frame, place
from tbuda_lab.core.frames.analysis_frames import USERS, links_frame
from tbuda_lab.core.frames.ops_frame import epoch_totals, op_columns
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import EpochGrid, GraphView, OpTable, PassStepper
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.views import workbench as widgets
from tests.session.models import encoder
from tests.widgets import synthetic
from tests.widgets.talk import say

pytestmark = pytest.mark.skipif(not widgets.BUNDLE.is_file(), reason="the front end is not built: make front-end")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    session = Session(*encoder(1), load_device("wormhole_b0", chips=2), name="encoder")
    session.compile()
    yield session


# -- passes -----------------------------------------------------------------------------------------------------------
def test_labels_name_every_step_once(session: Session) -> None:
    trace = session.passes()
    assert len(set(trace.labels)) == len(trace.steps)
    assert [label.split("#")[0] for label in trace.labels] == [s.name for s in trace.steps]
    assert [trace.find(label) for label in trace.labels] == list(range(len(trace.steps)))
    with pytest.raises(KeyError, match="no pass 'nonsense'; there are"):
        trace.find("nonsense")


def test_steps_go_to_passes_that_changed_something(session: Session) -> None:
    graph, trace = GraphView(session), session.passes()
    changed = [s.index for s in trace.steps if s.changes]
    assert len(changed) > 3
    assert graph.step_pass() == trace.steps[changed[0]].changes and graph.pass_name == trace.labels[changed[0]]
    graph.step_pass(2)
    assert graph.pass_name == trace.labels[changed[2]]
    graph.step_pass(-1)
    assert graph.pass_name == trace.labels[changed[1]]
    graph.step_pass(1000)
    assert graph.pass_name == trace.labels[changed[-1]]
    graph.pass_name = ""
    graph.step_pass(-1)
    assert graph.pass_name == trace.labels[changed[-1]]
    stepper = PassStepper(session)
    stepper.pass_name = trace.labels[changed[2]]
    assert stepper.diff() == trace.steps[changed[2]].changes


def test_a_page_gets_the_graph_after_a_pass_and_what_it_changed(session: Session) -> None:
    trace = session.passes()
    index = next(s.index for s in trace.steps if s.changes.added)
    got = say(hub_of(session), type="need_pass", **{"pass": trace.labels[index]}, ask=7).frames()
    shown, listed = got["graph:pass"], got["passlist"]
    assert (shown.meta["label"], shown.meta["ask"]) == (trace.labels[index], 7)
    assert tuple(listed.text("step_label")) == trace.labels
    names = shown.text("node_name")
    marked = {names[i] for i in np.flatnonzero(shown.columns["node_change"] == 1)}
    drawn = set(names)
    assert marked == set(trace.steps[index].changes.added) & drawn
    refused = [m for m, _ in say(hub_of(session), type="need_pass", **{"pass": "nonsense"}, ask=8).messages]
    assert refused[-1]["type"] == "refused" and "no pass 'nonsense'" in refused[-1]["text"] and refused[-1]["ask"] == 8


def test_the_workbench_shows_what_it_is_told(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    view = widgets.BringUp(session, start=False)
    messages: list[dict[str, object]] = []
    monkeypatch.setattr(view, "post", lambda message, buffers: messages.append(message))
    view.show("grid")
    view.show("memory")
    view.show(1)
    assert (view.mode, view.docks["tab"]) == ("grid", "memory") and messages == [{"type": "show", "epoch": 1}]
    with pytest.raises(InputError, match="no 'kitchen'; there are split, graph, grid, graphs, ops"):
        view.show("kitchen")


# -- how the graph lies -----------------------------------------------------------------------------------------------
def test_left_to_right_is_no_overlap_and_ranks_go_right() -> None:
    frame = graph_frame(synthetic.encoder_graph(2), "lowered")
    groups = set(range(len(frame.text("group_path"))))
    for words in (False, True):
        layout = place(frame, groups, "LR", words)
        c, box = frame.columns, layout.boxes
        for g in groups:
            inside = [i for i in np.flatnonzero(c["item_group"] == g) if c["item_kind"][i] < 2]
            for k, a in enumerate(inside):
                for b in inside[k + 1 :]:
                    apart = any(
                        box[p][d] + box[p][d + 2] <= box[q][d] + 1e-6 for p, q in ((a, b), (b, a)) for d in (0, 1)
                    )
                    assert apart
                    if c["item_rank"][a] < c["item_rank"][b]:
                        assert box[a][0] + box[a][2] <= box[b][0] + 1e-6
        shown = layout.visible
        assert (box[shown][:, 0] + box[shown][:, 2]).max() <= layout.size[0] + 1e-6
        assert (box[shown][:, 1] + box[shown][:, 3]).max() <= layout.size[1] + 1e-6


def test_edges_carry_their_tms_as_the_graph_has_them() -> None:
    graph = synthetic.encoder_graph(2)
    frame = graph_frame(graph, "lowered")
    names = frame.text("node_name")
    ends = frame.columns["edge_source"], frame.columns["edge_target"]
    texts = {(names[s], names[t]): text for s, t, text in zip(*ends, frame.text("edge_tms"), strict=True)}
    expected: dict[tuple[str, str], list[str]] = {}
    for node in graph:
        for edge in node.inputs:
            if edge.tms and edge.source in names:
                expected.setdefault((edge.source, node.name), []).append(" → ".join(map(str, edge.tms)))
    assert texts == {pair: "\n".join(dict.fromkeys(lines)) for pair, lines in expected.items()} and texts


def test_the_picture_of_the_graph_does_as_the_traits_say(session: Session) -> None:
    graph = GraphView(session)
    plain = graph.svg()
    assert "hslice" not in plain
    graph.show_tms, graph.direction, graph.depth = True, "LR", 9
    told = graph.svg()
    assert "hslice" in told
    size = lambda text: [float(v) for v in ET.fromstring(text).get("viewBox", "").split()[2:]]  # noqa: E731
    assert size(told)[0] > size(told)[1] and size(plain)[0] < size(plain)[1]
    label = next(session.passes().labels[s.index] for s in session.passes().steps if s.changes.added)
    graph.pass_name = label
    html = graph.static().html
    assert f"After pass {label}" in html and "hsl(145 52% 82%)" in html and len(html) < LIMIT
    graph.pass_name = "of another model"
    assert "After pass" not in graph.static().html
    with pytest.raises(KeyError, match="no pass"):
        graph.svg()
    graph.viewport = (10, 20, 0.5)
    for wrong in ((1, 2), (1, 2, 0), (1, 2, float("nan")), ("a", 1, 1)):
        with pytest.raises(traitlets.TraitError, match="a viewport is"):
            graph.viewport = wrong
    with pytest.raises(traitlets.TraitError):
        graph.direction = "RL"


# -- links and chips --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("noc", ["0", "1", "both"])
def test_a_page_gets_the_links_of_an_epoch(session: Session, noc: str) -> None:
    got = say(hub_of(session), type="need_links", epoch=0, noc=noc, ask=3).frames()[f"links:0:{noc}"]
    links = session.links(0, noc=noc)
    c = got.columns
    where = tuple(c[f"link_{k}"].astype(int) for k in ("noc", "axis", "y", "x"))
    assert np.array_equal(links.bytes[where], c["link_bytes"])
    assert c["link_bytes"].sum() == pytest.approx(links.bytes.sum()) and (np.diff(c["link_bytes"]) <= 0).all()
    assert (got.meta["ask"], got.meta["epoch"], got.meta["noc"]) == (3, 0, noc)
    users = c["use_bytes"].reshape(-1, USERS)
    assert (users.sum(axis=1) <= c["link_bytes"] * (1 + 1e-5)).all()
    few = c["link_flows"] <= USERS
    assert users[few].sum(axis=1) == pytest.approx(c["link_bytes"][few], rel=1e-5)
    assert len(got.pack()[1]) < 64 * 1024


def test_links_that_there_are_not(session: Session) -> None:
    for wrong in ({"epoch": 99, "noc": "0"}, {"epoch": 0, "noc": "2"}, {"epoch": None, "noc": "0"}):
        message = [m for m, _ in say(hub_of(session), type="need_links", **wrong, ask=1).messages]
        assert message[-1]["type"] == "refused" and message[-1]["key"] == "links"


def test_the_picture_of_the_grid_has_links_above_the_threshold(session: Session) -> None:
    grid = EpochGrid(session)
    assert "NoC 0 →" not in grid.svg()
    grid.noc = "both"
    links = grid.links()
    lines = lambda: len(re.findall(r"<title>NoC [01], ", grid.svg()))  # noqa: E731
    assert lines() == int((links.bytes > 0).sum())
    limit = float(np.sort((links.bytes / links.cycles).reshape(-1))[-4])
    grid.link_threshold = limit
    assert lines() == int((links.bytes / links.cycles >= limit).sum()) >= 4
    ET.fromstring(grid.svg())
    frame = links_frame(links, session.device)
    top = links.busiest(1)[0]
    assert (int(frame.columns["link_x"][0]), int(frame.columns["link_y"][0])) == top.start


@pytest.mark.parametrize("chips", [2, 8, 32])
def test_all_chips_beside_each_other(chips: int) -> None:
    session = Session(*encoder(1), load_device("wormhole_b0", chips=chips), name="encoder")
    session.compile()
    grid = EpochGrid(session)
    grid.chips_per_row = 4
    root = ET.fromstring(grid.svg())
    text = "".join(root.itertext())
    assert all(re.search(rf"chip {c}\b", text) for c in range(chips))
    busy = {e.chip for e in session.compile().placement.epochs if e.temporal == 0}
    assert text.count("rests") == chips - len(busy)
    tiles = root.findall(".//{http://www.w3.org/2000/svg}title")
    assert len(tiles) == sum(len(e.ops) for e in session.compile().placement.epochs if e.temporal == 0)
    assert len(grid.static().html) < LIMIT
    with pytest.raises(IndexError, match="there is no epoch 99"):
        grid.svg(99)


def test_the_picture_shows_the_epoch_that_is_shown(session: Session) -> None:
    grid = EpochGrid(session)
    grid.epoch = 1
    name = session.compile().placement.epochs[1].ops[0]
    assert f"<title>{name}" in grid.static().html and "Core grid of epoch 1" in grid.static().html


# -- the table --------------------------------------------------------------------------------------------------------
def test_a_row_per_core_covers_every_core_once(session: Session) -> None:
    table, placement = OpTable(session), session.compile().placement
    table.per_core = True
    rows = table.to_rows()
    cores = {(placement.ops[r["name"]].epoch, r["core_row"], r["core_col"]) for r in rows}
    assert len(cores) == len(rows) == sum(p.size[0] * p.size[1] for p in placement.ops.values())
    for row in rows:
        spot = placement.ops[row["name"]]
        assert 0 <= row["core_row"] - spot.start[0] < spot.size[0]
        assert 0 <= row["core_col"] - spot.start[1] < spot.size[1]
    assert len(table.to_frame()) == len(rows) == len(table.to_csv().splitlines()) - 1
    html = table.static().html
    assert html.count("<tr>") == 1 + min(60, len(rows)) and "<th>core</th>" in html


def test_sub_totals_are_those_of_the_epochs(session: Session) -> None:
    table, placement = OpTable(session), session.compile().placement
    device = session.device
    times = simulate(session.compile(), 1)
    for total, epoch in zip(table.totals(), placement.epochs, strict=True):
        cycles = {op: int(placement.candidate(op)["cycles"]) for op in epoch.ops}
        area = {op: placement.ops[op].size[0] * placement.ops[op].size[1] for op in epoch.ops}
        assert (total["ops"], total["chip"], total["cores"]) == (len(epoch.ops), epoch.chip, sum(area.values()))
        assert total["cycles"] == max(cycles.values())
        limits = {op: placement.report.op_limiters[op][1] for op in epoch.ops}
        assert total["limiter_cycles"] == max(limits.values()) == limits[total["slowest"]]
        share = sum(cycles[op] * area[op] for op in epoch.ops) / device.cores / times.epochs[epoch.index].cycles
        assert total["time"] == times.epochs[epoch.index].cycles
        assert total["balance"] == pytest.approx(share, rel=1e-6)
    table.group = "epoch"
    html = table.static().html
    assert [f"Epoch {k}:" in html for k in range(len(placement.epochs))] == [True] * len(placement.epochs)
    frame = hub_of(session).frames["ops"]
    assert len(op_columns(frame)["name"]) == len(placement.ops) and len(epoch_totals(frame)) == len(placement.epochs)
