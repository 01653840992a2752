"""Views of netlist files: comparison and memory, without a session behind them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import InputError, NetlistError
from tbuda_lab.core.frames.netlist_grid import op_cycles
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import DiffView, MemoryView, diff, open_netlist
from tbuda_lab.widgets.handlers import frames
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tests.netlist import builders as b
from tests.session.models import encoder, perceptron
from tests.widgets.talk import answers, say

OP = "first.matmul"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Session]:
    """Two netlists of one model: as placed, and with an op on other cores."""
    folder = tmp_path_factory.mktemp("netlists")
    session = Session(*perceptron(), "n150", name="mlp")
    session.export_netlist(folder / "a.yaml")
    session.apply(ResizeOp(OP, (1, 1) if session.result.placement.ops[OP].size != (1, 1) else (1, 2)))
    session.export_netlist(folder / "b.yaml")
    return folder / "a.yaml", folder / "b.yaml", session


def test_two_files_show_what_the_session_shows(files: tuple[Path, Path, Session]) -> None:
    a, c, session = files
    view, expected = DiffView(str(a), c), session.diff("start")
    classes = {change.op: change.classes for change in view.diff.changes}
    assert classes == {change.op: change.classes for change in expected.changes} and "resized" in classes[OP]
    assert view.diff.limiter_cycles == expected.limiter_cycles, "cycles.csv lie beside both files"
    assert view.to_markdown().startswith("### a.yaml → b.yaml") and OP in view.to_markdown()
    html = view.static().html
    assert len(html) < LIMIT and OP in html and "<svg" in html
    assert repr(view) == "DiffView('a.yaml', 'b.yaml')" and repr(diff(a, c)) == repr(view)
    assert say(view.hub, type="hello").frames()["diff"].meta["a"] == "a.yaml"


def test_two_sessions(files: tuple[Path, Path, Session]) -> None:
    session = files[2]
    other = Session(*perceptron(), "n150", name="other")
    assert OP in {change.op for change in diff(other, session).diff.resized}
    with pytest.raises(InputError, match="with a session"):
        diff(other, files[0])


def test_what_a_file_cannot_do_is_said(files: tuple[Path, Path, Session], tmp_path: Path) -> None:
    a, c, _ = files
    with pytest.raises(InputError, match="second netlist"):
        DiffView(a)
    with pytest.raises(InputError, match="does not exist"):
        DiffView(a, tmp_path / "none.yaml")
    with pytest.raises(InputError, match="checkpoints"):
        DiffView(a, c).compare("start")
    view = MemoryView(a)
    with pytest.raises(InputError, match="is a file"):
        view.put("x", 1)
    with pytest.raises(InputError, match="no session"):
        _ = view.session
    with pytest.raises(NetlistError, match="cannot be read"):
        MemoryView(tmp_path / "none.yaml")


def test_memory_of_a_file(files: tuple[Path, Path, Session]) -> None:
    a, _, _ = files
    session = Session(*perceptron(), "n150", name="mlp")
    view = MemoryView(a)
    for name, use in session.dram().queues.items():
        assert view.dram().queues[name].queue.buffers == use.queue.buffers
    assert view.l1(OP).parts[0].bytes == session.l1(OP).parts[0].bytes
    frames = say(view.hub, type="hello").frames()
    assert {"memory", "ops"} <= set(frames)
    assert frames["memory"].meta["cycles"] == frames["ops"].columns["epoch_cycles"].astype(int).tolist()
    np.testing.assert_array_equal(frames["memory"].columns["op_used"], frames["ops"].columns["op_l1_total"])
    assert len(view.static().html) < LIMIT and OP in view.static().html


def test_the_page_of_a_file_gets_its_memory_when_it_asks(tmp_path: Path) -> None:
    assert frames.MAKERS
    path = tmp_path / "x.netlist.yaml"
    netlists.dump(b.build([b.op("first", "nop", ["x"])], {"x": (1, 1, 1)}), path)
    view = open_netlist(path)
    assert "memory" not in say(view.hub, type="hello").frames(), "nobody has looked"
    page = say(view.hub, type="want", key="memory")
    assert page.frames()["memory"].text("op_name") == ["first"] and not answers(page, "refused")
    assert answers(say(view.hub, type="want", key="passes"), "refused")[0]["text"] == "there is no passes"
    assert view.memory.l1("first").parts and '"key": "memory"' in view.html()
    assert [f.rule for f in view.validate()] == [f.rule for f in view.findings]


def test_a_file_without_ops(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    netlists.dump(b.build([], {"x": (1, 1, 1)}), path)
    with pytest.raises(InputError, match="no ops"):
        MemoryView(path)


@pytest.mark.parametrize("device", ["n150", "grayskull"])
def test_kernels_of_a_file_take_what_they_take_in_the_session(device: str) -> None:
    """Fused ops as well: a file has their sub-ops, and which of them read dest."""
    session = Session(*encoder(1), device, name="layer")
    result = session.compile()
    n = netlists.loads(netlists.dumps(result.netlist))
    ops = [op for _, op in n.ops()]
    kernels = [int(result.placement.candidate(op.name)["cycles"]) for op in ops]
    assert op_cycles(n, result.device.arch).tolist() == kernels
    dest = {i for fused in n.fused_ops.values() for schedule in fused.schedules for sub in schedule for i in sub.inputs}
    assert "dest" in dest, "nothing waits in dest: the test shows nothing"
