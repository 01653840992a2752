"""A netlist file on screen: valid, broken, unreadable, large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.netlist_file import netlist_frames, op_graph
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.widgets import open_netlist, report
from tbuda_lab.widgets.views import files
from tests.netlist import builders as b

built = pytest.mark.skipif(
    not (report.STATIC / "page.js").is_file(), reason="the front end is not built: make front-end"
)


def frames_of(n: Any) -> dict[str, Frame]:
    text = netlist.dumps(n)
    return {f.key: f for f in netlist_frames(netlist.loads(text, lenient=True), text)}


def row(frame: Frame, prefix: str, name: str) -> dict[str, Any]:
    at = frame.text(f"{prefix}_name").index(name)
    return {c.removeprefix(f"{prefix}_"): v[at].item() for c, v in frame.columns.items() if c.startswith(prefix)}


def test_grid_respects_transpose() -> None:
    ops = frames_of(b.unary(grid=(2, 1), loc=(3, 4), grid_transpose=True))["ops"]
    placed = row(ops, "op", "op0")
    assert [placed[k] for k in ("row", "col", "rows", "cols", "cores")] == [3, 4, 1, 2, 2]
    assert placed["cycles"] > 0


def test_shared_cores_are_marked() -> None:
    n = b.build([b.op("a", "nop", ["x"], grid=(2, 2)), b.op("c", "exp", ["a"], loc=(1, 1))], {"x": (1, 2, 2)})
    frames = frames_of(n)
    assert "2 ops" in files.epoch_svg(frames["ops"], 0)
    assert frames["findings"].text("rule") == ["O13"]
    assert frames["findings"].text("target") == ["c"]


def test_ops_outside_extend_the_grid() -> None:
    meta = frames_of(b.unary(loc=(12, 1)))["ops"].meta
    assert (meta["rows"], meta["device_rows"]) == (13, 10)


def test_queue_rows() -> None:
    queues = frames_of(b.chain())["queues"]
    result = row(queues, "queue", "x")
    assert result["entries"] == 2
    assert result["bytes"] == 32 + 2 * 4 * 2080
    at = queues.text("queue_name").index("x")
    assert queues.text("queue_readers")[at] == "a"
    assert queues.text("queue_place")[at].startswith("dram 0, 0x10000000")


def test_accumulators_do_not_make_circles() -> None:
    n = b.build(
        [b.op("sum", "add", ["x", "acc"])],
        {"x": (1, 2, 2)},
        [b.queue("acc", (1, 2, 2), source="sum", kind="ram", entries=1)],
    )
    graph = op_graph(n)
    assert graph["sum"].sources == ("x", "acc")
    assert graph["acc (written)"].sources == ("sum",)
    assert graph["acc (written)"].kind is NodeKind.QUEUE or graph["acc (written)"].kind is NodeKind.OUTPUT


def test_ops_in_a_circle_and_missing_names() -> None:
    n = b.build(
        [
            b.op("p", "add", ["x", "q"]),
            b.op("q", "add", ["p", "nowhere"], loc=(0, 1)),
            b.op("s", "nop", ["s"], loc=(0, 2)),
        ],
        {"x": (1, 2, 2)},
    )
    graph = op_graph(n)
    assert graph["p"].sources == ("x",)
    assert graph["q"].sources == ("p", "nowhere")
    assert graph["s"].sources == ()
    assert [node.name for node in graph.topological()].index("p") < [node.name for node in graph].index("q")


def test_lines_of_entries() -> None:
    text = netlist.dumps(b.two_chips())
    frame = {f.key: f for f in netlist_frames(netlist.loads(text), text)}["netlist"]
    lines = text.splitlines()
    for name, first, count in zip(
        frame.text("entry_name"), frame.columns["entry_line"], frame.columns["entry_lines"], strict=True
    ):
        assert lines[first].strip().startswith(f"{name}:") and count >= 1
        assert not any(line.strip().startswith(("programs:", "graphs:")) for line in lines[first : first + count])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "devices:\n\tarch: x\n",
        "[1, 2]",
        "devices: {arch: grayskull}\nqueues: 3\n",
        "graphs: {g: {op: {type: nop, grid_size: [99999999999, 1], inputs: [op]}}}",
        "graphs: {g: {target_device: [], input_count: x, o: {type: [], grid_loc: [-5, 7]}}}",
    ],
)
def test_files_that_are_no_netlists(text: str, tmp_path: Path) -> None:
    path = tmp_path / "netlist.yaml"
    path.write_text(text)
    n = netlist.load(path, lenient=True)
    frames = {f.key: f for f in netlist_frames(n, text)}
    for frame in frames.values():
        frame.pack()
    assert frames["findings"].meta["errors"] > 0
    assert "errors" in files.file_fragment(frames)


@built
def test_view_and_page(tmp_path: Path) -> None:
    path = tmp_path / "<netlist>.yaml"
    path.write_text(netlist.dumps(b.unary(ublock=(1, 1), acc_df=b.DataFormat.Float32)))
    view = open_netlist(path)
    bundle = view._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert data["text/html"] == view.static()._repr_html_()
    page = view.to_html(tmp_path / "out.html").read_text()
    assert "&lt;netlist&gt;" in page and "<netlist>" not in page
    assert "Temporal epoch 0, chip 0" in page


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(NetlistError):
        open_netlist(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NetlistError):
        open_netlist(tmp_path / "b.yaml")
