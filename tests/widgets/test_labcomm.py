"""The comm target without a kernel: the list of sessions, its commands, views and documents in tabs."""

from __future__ import annotations

import io
import json
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.netlist.image import image_facts, read_image
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets.handlers.lab import on_open
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of
from tests.netlist import builders as b
from tests.session.models import perceptron

OP = "first.matmul"


OPEN: list[Pipe] = []


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().leave()


class Pipe:
    """A comm whose other end is this test."""

    def __init__(self, **data: Any) -> None:
        self.sent: list[tuple[dict[str, Any], Any]] = []
        self._said: Callable[[Any], None] | None = None
        self._gone: Callable[[Any], None] | None = None
        OPEN.append(self)
        on_open(self, {"content": {"data": data}})

    def send(self, data: Any = None, metadata: Any = None, buffers: Any = None) -> None:
        json.dumps(data)
        self.sent.append((data, buffers))

    def on_msg(self, callback: Any) -> None:
        self._said = callback

    def on_close(self, callback: Any) -> None:
        self._gone = callback

    def say(self, **content: Any) -> None:
        assert self._said is not None
        self._said({"content": {"data": content}})

    def leave(self) -> None:
        if self._gone is not None:
            self._gone({})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message, _ in self.sent if message["type"] == kind]

    def until(self, holds: Callable[[], Any], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            until = holds()
            if until:
                return until
            time.sleep(0.01)
        raise AssertionError(f"nothing after {seconds} s; last: {self.sent[-1:]}")

    def frames(self) -> dict[str, Frame]:
        frames = {}
        for message, buffers in self.sent:
            if message["type"] == "frame" and message["chunk"] == [0, 1]:
                frames[message["key"]] = Frame.unpack(message["header"], buffers[0])
        return frames


@pytest.fixture
def hub() -> Hub:
    model, inputs = perceptron()
    session = Session(model, inputs, "e300", name="mlp")
    session.compile()
    return hub_of(session)


def size(hub: Hub) -> tuple[int, int]:
    row = hub.session.result.placement.candidate(OP)
    return int(row["grid_r"]), int(row["grid_c"])


def row(pipe: Pipe, hub: Hub) -> dict[str, Any]:
    """The newest entry of a session."""
    return next((s for s in pipe.of("sessions")[-1]["sessions"] if s["id"] == hub.id), {})


def test_the_list_tells_what_the_session_says(hub: Hub) -> None:
    pipe = Pipe(open="sessions")
    first = row(pipe, hub)
    placement = hub.session.result.placement
    assert (first["name"], first["device"], first["stale"]) == ("mlp", "e300", False)
    assert first["epochs"] == len(placement.epochs)
    hub.session.apply(ResizeOp(OP, (2, 2)))
    assert pipe.until(lambda: row(pipe, hub)["stale"])
    assert row(pipe, hub)["overrides"] == 1
    hub.session.compile()
    pipe.until(lambda: not row(pipe, hub)["stale"])
    assert pipe.until(lambda: row(pipe, hub)["undo"]) == hub.session.history[-1].label


def test_a_new_session_appears_and_a_closed_page_is_told_nothing(hub: Hub) -> None:
    pipe = Pipe(open="sessions")
    model, inputs = perceptron()
    other = Session(model, inputs, "e300", name="other")
    result = hub_of(other)
    pipe.until(lambda: row(pipe, result).get("name") == "other")
    pipe.leave()
    count = len(pipe.sent)
    other.compile()
    time.sleep(0.5)
    assert len(pipe.sent) == count


def test_commands_do_what_the_session_does(hub: Hub) -> None:
    pipe = Pipe(open="sessions")
    hub.session.apply(ResizeOp(OP, (2, 2)))
    pipe.say(type="command", name="compile", session=hub.id, seq=1)
    pipe.until(lambda: not hub.busy)
    assert size(hub) == (2, 2)
    assert hub.board.stages["run"].state == "pending", "compile does not run"
    pipe.say(type="command", name="checkpoint", session=hub.id, label="small", seq=2)
    assert hub.session.checkpoints == ("small",)
    pipe.say(type="command", name="undo", session=hub.id, seq=3)
    answers = pipe.until(lambda: len(pipe.of("answer")) == 3 and pipe.of("answer"))
    assert [(a["seq"], a["ok"]) for a in answers] == [(1, True), (2, True), (3, True)]
    assert hub.session.overrides == ()
    hub.select([OP])
    pipe.say(type="command", name="why", session=hub.id, seq=4)
    message = pipe.until(lambda: pipe.of("answer")[3:])[0]
    assert message["text"] == hub.session.why(OP).text


def test_a_command_that_makes_no_sense_is_refused(hub: Hub) -> None:
    pipe = Pipe(open="sessions")
    for wrong in (
        {"name": "explode"},
        {"name": "undo", "session": "no such"},
        {"name": "checkpoint", "label": ""},
        {"name": "why", "op": "nobody"},
    ):
        pipe.say(type="command", seq=9, **{"session": hub.id, **wrong})
    answers = pipe.until(lambda: len(pipe.of("answer")) == 4 and pipe.of("answer"))
    assert all(not a["ok"] and a["text"] for a in answers)
    assert hub.session.history == ()


def test_a_view_in_a_tab_is_a_view(hub: Hub) -> None:
    pipe = Pipe(open="view", session=hub.id)
    pipe.say(type="hello", have={})
    assert pipe.frames()["ops"].columns["op_name"].size == len(hub.session.result.placement.ops)
    pipe.say(type="set", name="selection", value={"kind": "op", "names": [OP], "source": "grid"})
    assert hub.selection["names"] == [OP]
    hub.select(["second.matmul"])
    assert pipe.of("set")[-1]["value"]["names"] == ["second.matmul"]
    pipe.say(type="edit", do="resize", op=OP, size=[2, 2])
    assert pipe.until(lambda: pipe.of("edited"))[0]["ok"]
    assert size(hub) == (2, 2)
    numbers = [m["seq"] for m, _ in pipe.sent if "seq" in m]
    assert numbers == list(range(1, len(numbers) + 1))
    pipe.say(type="set", name="selection", value="nonsense")
    assert hub.edit_controller is not None
    hub.edit_controller.wait(60)  # it says that it is free again after its answer
    pipe.leave()
    count = len(pipe.sent)
    hub.select([OP])
    assert len(pipe.sent) == count


def test_an_edit_is_echoed_as_python_where_that_is_wanted(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = Pipe(open="view", session=hub.id)
    capsys.readouterr()
    pipe.say(type="edit", do="resize", op=OP, size=[2, 2])
    pipe.until(lambda: pipe.of("edited"))
    assert hub.edit_controller is not None
    hub.edit_controller.wait(60)
    assert capsys.readouterr().out == ""
    pipe.say(type="edit", do="resize", op=OP, size=[2, 4], echo=True)
    hub.edit_controller.wait(60)
    assert capsys.readouterr().out.strip() == f"pybuda.config.override_op_size({OP!r}, (2, 4))"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def small_netlist(path: Path) -> None:
    netlist.dump(b.build([b.op("first", "nop", ["x"], grid=(2, 2))], {"x": (1, 2, 2)}), path)


def test_a_netlist(folder: Path) -> None:
    (folder / "sub").mkdir()
    small_netlist(folder / "sub" / "netlist.yaml")
    pipe = Pipe(open="netlist", path="sub/netlist.yaml")
    pipe.say(type="hello", have={})
    frames = pipe.frames()
    assert frames["ops"].text("op_name") == ["first"]
    assert {"graph:netlist", "queues", "programs", "netlist", "findings"} <= set(frames)


@pytest.mark.parametrize("path", ["../secret.yaml", "/etc/passwd", "a/../../b.yaml", "", 7, "x\0y", "missing.yaml"])
@pytest.mark.parametrize("what", ["netlist", "image", "journal", "program"])
def test_a_path_that_is_none_is_refused(folder: Path, what: str, path: Any) -> None:
    pipe = Pipe(open=what, path=path)
    assert [m["type"] for m, _ in pipe.sent] == ["failed"]


def test_what_nobody_can_open_is_refused(folder: Path) -> None:
    assert Pipe(open="door").of("failed")
    assert Pipe().of("failed")


def test_a_journal_says_what_the_session_had(folder: Path, hub: Hub) -> None:
    hub.session.save(folder / "mlp.buda.json")
    hub.session.apply(ResizeOp(OP, (2, 2)))
    hub.session.checkpoint("small")
    pipe = Pipe(open="journal", path="mlp.buda.json")
    pipe.say(type="hello", have={})
    meta = pipe.frames()["journal"].meta
    assert (meta["name"], meta["device"]) == ("mlp", "e300")
    assert [label for label, _ in meta["steps"]] == [hub.session.history[0].label]
    assert meta["checkpoints"] == ["small"]
    assert meta["python"] == hub.session.to_python()
    listed = Pipe(open="sessions")
    assert row(listed, hub)["journal"] == meta["absolute"] == str((folder / "mlp.buda.json").resolve())


def test_a_broken_journal_names_its_line(folder: Path) -> None:
    (folder / "bad.buda.json").write_text(
        '{\n"commands": [\n  {"do": "explode"}\n],\n"device": "e300", "format": "tbuda-session 1"\n}\n'
    )
    (failed,) = Pipe(open="journal", path="bad.buda.json").of("failed")
    assert "bad.buda.json:3" in failed["text"]


MANIFEST = {
    "version": "1.1.0",
    "device_image_name": "tt_0",
    "arch": {"__enum__": "BackendDevice.Wormhole_B0"},
    "grid_size": [8, 8],
    "harvested_rows": [],
    "chip_ids": [0],
    "compiled_graph_state": {"netlist_filename": "unzipped_tti/own_netlist.yaml", "ordered_input_names": ["x"]},
}


def tar(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return path


def image_files(folder: Path) -> dict[str, bytes]:
    small_netlist(folder / "own_netlist.yaml")
    text = (folder / "own_netlist.yaml").read_bytes()
    return {
        "unzipped_tti/a_other.yaml": b"devices: {}\n",
        "unzipped_tti/device.json": json.dumps(MANIFEST).encode(),
        "unzipped_tti/own_netlist.yaml": text,
        "unzipped_tti/tensors/torch.Tensor.w.pkl": b"cos\nsystem\n(S'true'\ntR.",
    }


def test_an_image_is_its_manifest_and_its_netlist(folder: Path) -> None:
    files = image_files(folder)
    tar(folder / "x.tti", files, {"unzipped_tti/out": "/etc/passwd"})
    before = sorted(p.name for p in folder.rglob("*"))
    image = read_image(folder / "x.tti")
    assert next(iter(image.netlists)) == "unzipped_tti/own_netlist.yaml"
    assert {m.name: m.size for m in image.members} == {n: len(d) for n, d in files.items()}
    facts = dict(image_facts(image))
    assert (facts["arch"], facts["grid"]) == ("Wormhole_B0", "8 rows x 8 columns")
    assert "1 of them pickles, which are not opened" in facts["files"]
    pipe = Pipe(open="image", path="x.tti")
    pipe.say(type="hello", have={})
    assert pipe.frames()["ops"].text("op_name") == ["first"]
    assert dict(pipe.frames()["image"].meta["facts"]) == facts
    assert sorted(p.name for p in folder.rglob("*")) == before, "nothing is extracted"


def test_an_image_in_a_notebook(folder: Path) -> None:
    from tbuda_lab.widgets import open_tti

    view = open_tti(tar(folder / "x.tti", image_files(folder)))
    html = view.static().html
    assert "Wormhole_B0" in html and "<svg" in html and "first" in html
    assert repr(view) == "ImageFile('x.tti': 4 files)"


def test_an_image_of_ours_is_drawn_on_its_board(folder: Path) -> None:
    """Which the netlist does not say: an n150 has nine rows."""
    path = Session(*perceptron(), "n150", name="mlp").export_tti(folder / "mlp.tti")
    pipe = Pipe(open="image", path="mlp.tti")
    pipe.say(type="hello", have={})
    assert pipe.frames()["ops"].meta["rows"] == 9
    facts = dict(pipe.frames()["image"].meta["facts"])
    assert (facts["weights"], facts["training"], facts["chip ids"]) == ("included", "no", "0") and path.exists()


def test_a_zip_is_an_image_too(folder: Path) -> None:
    files = image_files(folder)
    with zipfile.ZipFile(folder / "old.tti", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert read_image(folder / "old.tti").netlists == read_image(tar(folder / "new.tti", files)).netlists


@pytest.mark.parametrize(
    "files",
    [
        {"../device.json": b"{}"},
        {"/device.json": b"{}"},
        {"a/../../device.json": b"{}"},
        {"tensors.bin": b""},
        {"u/device.json": b"[]"},
        {"u/device.json": b"{"},
        {"u/device.json": b"\xff\xfe"},
    ],
)
def test_an_image_that_is_none_is_refused(folder: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(InputError):
        read_image(tar(folder / "bad.tti", files))


@pytest.mark.parametrize("data", [b"", b"not an archive" * 100, b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_refused(folder: Path, data: bytes) -> None:
    (folder / "bad.tti").write_bytes(data)
    with pytest.raises(InputError):
        read_image(folder / "bad.tti")


def test_a_session_that_no_view_shows_is_listed_and_opened() -> None:
    pipe = Pipe(open="sessions")
    session = Session(*perceptron(), "n150", name="nobody looks")

    def mine() -> dict[str, Any]:
        return next((s for s in pipe.of("sessions")[-1]["sessions"] if s["name"] == "nobody looks"), {})

    assert pipe.until(mine)["epochs"] == 0 and mine()["id"].startswith("s")
    session.compile()
    assert pipe.until(lambda: mine()["epochs"]) == len(session.result.placement.epochs)
    cycles = mine()["cycles"]
    session.apply(ResizeOp(OP, (2, 2)))
    assert pipe.until(lambda: mine()["undo"]) == session.history[-1].label
    assert pipe.of("sessions")[-1]["memory"] >= 0
    before = mine()["id"]
    view = Pipe(open="view", session=before)
    assert view.of("ready") and pipe.until(lambda: mine()["id"] != before)
    session.undo()
    assert pipe.until(lambda: not mine()["undo"]) and mine()["cycles"] == cycles


def test_compare_is_shown_in_every_view(hub: Hub) -> None:
    hub.session.checkpoint("A")
    hub.session.apply(ResizeOp(OP, (2, 2)))
    hub.session.compile()
    pipe, view = Pipe(open="sessions"), Pipe(open="view", session=hub.id)
    pipe.say(type="command", name="diff", session=hub.id, checkpoint="A", seq=1)
    answer = pipe.until(lambda: pipe.of("answer"))[0]
    assert answer["ok"] and OP in answer["text"]
    meta = view.until(lambda: view.frames().get("diff")).meta
    assert (meta["a"], meta["b"]) == ("A", "now")
    view.sent.clear()
    view.say(type="want", key="diff")  # a new view says nothing of what it wants
    meta = view.until(lambda: view.frames().get("diff")).meta
    assert (meta["a"], meta["b"]) == ("A", "now")
