"""The widgets in a kernel without a page, over a real session."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("anywidget")

import traitlets

from tbuda_lab.core.errors import InputError, OverrideError
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets.handlers import session_hub
from tbuda_lab.widgets.views import base
from tbuda_lab.widgets.views import workbench as views
from tbuda_lab.widgets.views.graph import open_groups
from tbuda_lab.widgets.views.table import OpTable
from tests.session.models import perceptron

pytestmark = pytest.mark.skipif(not views.BUNDLE.is_file(), reason="the front end is not built: make front-end")


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 512), torch.nn.Linear(512, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


@pytest.fixture(scope="module")
def session() -> Session:
    torch.manual_seed(0)
    session = Session(Mlp(), torch.randn(1, 64, 256), "n150", name="mlp")
    session.compile()
    return session


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], list[bytes]]]:
    """Custom messages of all widgets."""
    log: list[tuple[dict[str, Any], list[bytes]]] = []
    monkeypatch.setattr(views.View, "send", lambda self, content, buffers=None: log.append((content, buffers or [])))
    return log


def test_bring_up_traces_places_runs_and_verifies() -> None:
    torch.manual_seed(0)
    widget = views.BringUp(Mlp(), torch.randn(1, 64, 256), device="n150", name="mlp").wait(120)
    assert widget.session.result is not None
    assert [c.passes(0.99) for c in widget.comparisons] == [True]
    assert widget.hub.frames["summary"].meta["device"] == "n150: 9 rows × 8 columns, 1 row harvested"


def test_views_of_two_models_keep_their_selections_in_step(session: Session) -> None:
    """By the names that both have; what one alone has leaves the other as it is."""
    other = Session(*perceptron(), "n150", name="other")
    ours, theirs = (set(s.compile().placement.ops) for s in (session, other))
    own, both = next(iter(ours - theirs)), Session(*perceptron(), "grayskull", name="both")
    both.compile()
    shared = next(iter(theirs))
    first, second, third = views.GraphView(session), views.GraphView(other), views.EpochGrid(both)
    end = base.keep_in_step(first, second, third)
    second.select(shared)
    assert third.selected == (shared,)
    third.select(shared, "nowhere")
    assert second.selected == (shared,)
    first.select(own)
    assert second.selected == (shared,)
    third.select()
    assert second.selected == first.selected == ()
    end()
    second.select(shared)
    assert third.selected == ()


def test_a_view_that_says_hello_gets_status_and_its_frames(session: Session, sent: Any) -> None:
    grid = views.EpochGrid(session)
    grid.receive(grid, {"type": "hello", "have": {}}, [])
    assert next(m["type"] for m, _ in sent) == "status"
    assert {m["key"] for m, _ in sent if m["type"] == "frame"} == {"ops", "netlist", "edits"}
    assert [m["seq"] for m, _ in sent] == list(range(1, len(sent) + 1))
    before = len(sent)
    grid.receive(grid, {"type": "resync", "have": {m["key"]: m["rev"] for m, _ in sent if m["type"] == "frame"}}, [])
    assert [m["type"] for m, _ in sent[before:]] == ["status"]


def test_selection_is_linked_between_widgets_and_code(session: Session) -> None:
    graph, table = views.GraphView(session), views.OpTable(session)
    name = next(iter(session.compile().placement.ops))
    graph.selection = {"kind": "op", "names": [name], "source": "graph"}
    assert table.selection["names"] == [name] and table.selected == (name,)
    table.select()
    assert graph.selection["names"] == []


def test_messages_that_make_no_sense_change_nothing(session: Session, sent: Any) -> None:
    view = views.BringUp(session)
    for content in ({}, {"type": "nonsense"}, {"type": "hello", "have": 3}, {"type": 7}):
        view.receive(view, content, [])
    view.selection = {"names": [1, 2]}
    view.selection = {}
    assert view.selected == ()


def test_nothing_bulky_is_synced(session: Session) -> None:
    for kind in (views.BringUp, views.GraphView, views.EpochGrid, views.OpTable):
        state = {k: v for k, v in kind(session).get_state().items() if k not in ("_esm", "layout")}
        assert len(json.dumps(state, default=str)) < 10_000


def test_every_view_has_a_static_picture(session: Session) -> None:
    op = next(iter(session.compile().placement.ops))
    for kind in (views.BringUp, views.GraphView, views.EpochGrid, views.OpTable, views.NetlistView, views.ProblemsView):
        view = kind(session)
        data = view._repr_mimebundle_()[0]
        assert "application/vnd.jupyter.widget-view+json" in data
        assert len(data["text/html"]) < 200_000 and "<script" not in data["text/html"]
        assert data["text/plain"] == f"{kind.__name__}('mlp' on n150)"
        assert view.static()._repr_html_() == data["text/html"]
    assert op in views.OpTable(session).static().html
    assert "row 11 harvested" in views.EpochGrid(session).svg(0)


def test_the_table_is_data(session: Session) -> None:
    table = views.OpTable(session)
    placement = session.compile().placement
    rows = table.to_rows()
    assert [r["name"] for r in rows] == list(placement.schedule)
    assert [r["cycles"] for r in rows] == [float(placement.candidate(n)["cycles"]) for n in placement.schedule]
    read = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert [r["name"] for r in read] == [r["name"] for r in rows]


def test_the_table_is_an_array_of_records(session: Session) -> None:
    table = views.OpTable(session)
    result, rows = table.to_frame(), table.to_rows()
    assert result.dtype.names == tuple(rows[0])
    assert [dict(zip(result.dtype.names, record.tolist(), strict=True)) for record in result] == rows
    slowest = result[np.argmax(result["cycles"])]["name"]
    assert slowest == max(rows, key=lambda row: row["cycles"])["name"]


def test_before_the_compile_pictures_say_so() -> None:
    session = Session(Mlp(), torch.randn(1, 64, 256), "n150", name="mlp")
    assert "no placement yet" in views.EpochGrid(session).static().html
    with pytest.raises(KeyError):
        views.EpochGrid(session).svg(0)


def test_the_graph_is_told_by_traits_what_it_searches_and_opens(session: Session) -> None:
    graph = views.GraphView(session)
    graph.query, graph.depth, graph.collapsed = "gelu|up", 0, ["up"]
    state = graph.get_state()
    assert [state[k] for k in ("query", "depth", "collapsed")] == ["gelu|up", 0, ["up"]]
    with pytest.raises(traitlets.TraitError):
        graph.depth = -1
    frame = graph.hub.frames["graph:lowered"]
    paths, parents = frame.text("group_path"), frame.columns["group_parent"].tolist()
    groups = range(1, len(paths))
    assert len(groups) >= 1
    assert open_groups(frame, 0, []) == [0]
    assert open_groups(frame, None, []) == sorted({0, *frame.meta["open"]})
    assert open_groups(frame, len(paths), []) == [0, *groups]
    assert open_groups(frame, 1, []) == [0, *(g for g in groups if parents[g] == 0)]
    assert open_groups(frame, len(paths), [paths[1]]) == [0, *(g for g in groups if g != 1)]
    pictures = []
    for depth in (0, len(paths)):
        graph.depth, graph.collapsed = depth, []
        pictures.append(graph.svg())
    assert pictures[0] != pictures[1]


def test_values_of_ones_own_go_to_the_page_and_to_one_that_comes_later(session: Session, sent: Any) -> None:
    graph, other = views.GraphView(session), views.OpTable(session)
    first, second = session.compile().placement.schedule[:2]
    values = {first: 0.25, second: 4}
    graph.overlay(values, name="watts")
    assert [m["key"] for m, _ in sent if m["type"] == "frame"] == ["overlay"]
    read = graph.shown_overlay
    assert read is not None and read.meta == {"name": "watts", "low": 0.25, "high": 4.0}
    assert dict(zip(read.text("overlay_name"), read.columns["overlay_value"].tolist(), strict=True)) == values
    sent.clear()
    other.receive(other, {"type": "hello", "have": {}}, [])
    assert "overlay" not in {m.get("key") for m, _ in sent}
    graph.receive(graph, {"type": "hello", "have": {}}, [])
    assert [m.get("key") for m, _ in sent].count("overlay") == 1
    for wrong in ({first: float("nan")}, {first: "much"}, {first: None}):
        with pytest.raises(InputError, match=first):
            graph.overlay(wrong)
    with pytest.raises(InputError, match="smaller"):
        graph.overlay(values, scale=(2.0, 1.0))
    assert graph.shown_overlay is read
    graph.overlay({})
    assert len(graph.shown_overlay.columns["overlay_value"]) == 0


def test_the_grid_is_told_by_traits_and_edits_by_calls(session: Session) -> None:
    grid = views.EpochGrid(session)
    grid.show_pipes, grid.displacement, grid.link_threshold, grid.edit = "all", "swap", 2.5, False
    state = grid.get_state()
    assert [state[k] for k in ("show_pipes", "displacement", "link_threshold", "edit", "epoch")] == [
        "all",
        "swap",
        2.5,
        False,
        0,
    ]
    for name, value in (("show_pipes", "some"), ("displacement", "shove"), ("link_threshold", -1.0), ("epoch", -1)):
        with pytest.raises(traitlets.TraitError):
            setattr(grid, name, value)
    op = next(iter(session.compile().placement.ops))
    before, steps = session.result, len(session.history)
    size = next(s for s in session.legal(op).legal if s != session.legal(op).grid)
    grid.resize(op, size)
    assert session.result.placement.ops[op].size in (size, size[::-1]) and len(session.history) == steps + 1
    spot = session.result.placement.ops[op]
    grid.move(op, spot.start)
    assert session.records[-1].kind == "op_placement" and session.records[-1].state == "obtained"
    last = session.result.placement.schedule[-1]
    grid.epoch_break(last)
    assert session.result.placement.epochs[-1].ops[0] == last
    with pytest.raises(OverrideError):
        grid.resize(op, (97, 1))
    assert len(session.history) == steps + 3
    for _ in range(3):
        session.undo()
    assert session.compile() is before


def test_tables_and_overrides_are_told_by_traits(session: Session) -> None:
    table, panel = views.OpTable(session), views.OverridesPanel(session)
    table.columns, table.sort, table.filter, panel.show_code = ["name", "cycles"], "-cycles", "mat", "python"
    state = table.get_state()
    assert (state["columns"], state["sort"], state["filter"]) == (["name", "cycles"], "-cycles", "mat")
    assert panel.get_state()["show_code"] == "python"
    with pytest.raises(traitlets.TraitError):
        panel.show_code = "yaml"


def test_focus_selects(session: Session) -> None:
    graph, grid = views.GraphView(session), views.EpochGrid(session)
    op = next(iter(session.compile().placement.ops))
    graph.focus(op)
    assert grid.selected == (op,)


def test_views_of_earlier_cells_keep_the_picture_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell 1 shows a table, cell 2 edits by code and shows another: the first stays what cell 1 came to."""
    cell = 1
    for module in (base, session_hub):
        monkeypatch.setattr(module, "cell_number", lambda: cell)
    session = Session(*perceptron(), "n150", name="mlp")
    session.compile()
    first = OpTable(session)
    first._repr_mimebundle_()
    before = first.stored_html()
    session.apply(ResizeOp("first.matmul", (1, 1)))
    session.compile()
    assert first.stored_html() != before, "its own cell goes on"
    before, cell = first.stored_html(), 2
    session.apply(ResizeOp("first.matmul", (2, 2)))
    session.compile()
    second = OpTable(session)
    second._repr_mimebundle_()
    assert first.stored_html() == before != second.stored_html()
    cell = 3
    session.apply(ResizeOp("first.matmul", (1, 2)), source="page")
    session.compile()
    now = second.stored_html()
    assert first.stored_html() == before != now, "an edit by hand is seen in the views that are live"
    first._repr_mimebundle_()
    assert first.stored_html() == now, "shown again, it is of now"
