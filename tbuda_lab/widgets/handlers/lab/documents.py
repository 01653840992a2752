"""Views in tabs of JupyterLab, each on a comm instead of a widget: of a session, and of documents (a netlist, a TTI
image, a PEF, the edits of a session). Paths are those of the server's folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import path_inside
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured import read_profile
from tbuda_lab.core.netlist.image import read_image
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.compile_session import live_sessions
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import JournalFile, read_journal, replay
from tbuda_lab.dialects.program import read_programs
from tbuda_lab.widgets.handlers.lab.kernel_comm import Comm
from tbuda_lab.widgets.handlers.session_hub import Hub, hub_of, hubs
from tbuda_lab.widgets.protocol import dispatch
from tbuda_lab.widgets.views.files import FileHub, image_frames, netlist_hub
from tbuda_lab.widgets.views.program import Programs, move


class CommView:
    """Passes a hub's messages through a comm, and the page's messages to whoever answers them."""

    def __init__(self, comm: Comm, hub: Hub) -> None:
        self.comm, self.hub = comm, hub
        self._seq = 0
        comm.on_msg(self._receive)
        comm.on_close(lambda _: self.hub.detach(self))
        hub.attach(self)
        self.selection_changed(hub.selection)
        comm.send({"type": "ready", "session": hub.id})

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        """One message, numbered, so that the page sees a gap."""
        self._seq += 1
        self.comm.send({**message, "seq": self._seq}, buffers=buffers or None)

    def wants(self, key: str) -> bool:
        return True

    def selection_changed(self, selection: dict[str, Any]) -> None:
        self.comm.send({"type": "set", "name": "selection", "value": selection})

    def _receive(self, message: Mapping[str, Any]) -> None:
        content = message["content"]["data"]
        if not isinstance(content, Mapping):
            return
        what = content.get("type")
        if what == "set" and content.get("name") == "selection":
            value = content.get("value")
            names = value.get("names") if isinstance(value, Mapping) else None
            if value and isinstance(names, list) and all(isinstance(n, str) for n in names):
                self.hub.select(names, str(value.get("source", "page")), str(value.get("kind", "op")))
        else:
            dispatch(self.hub, self, content)


def unseen() -> dict[str, Session]:
    """Sessions that no view has shown yet, by the names that pages use for them, oldest first."""
    shown = {id(hub.session) for hub in hubs()}
    return {f"s{n}": s for n, s in live_sessions().items() if isinstance(s, Session) and id(s) not in shown}


def hub_by_id(name: Any) -> Hub:
    """The hub a page means, made at first use; without a name the latest. Raises `InputError` when there is none."""
    open_hubs, others = hubs(), unseen()
    if not open_hubs and not others:
        raise InputError("this kernel has no session: run a cell with BringUp(...) or Session(...)")
    if not name:
        return open_hubs[-1] if open_hubs else hub_of(list(others.values())[-1])
    result = next((hub for hub in open_hubs if hub.id == name), None)
    if result is None and name in others:
        return hub_of(others[name])
    if result is None:
        raise InputError(f"the session {name!r} is gone")
    return result


def open_view(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "view", session}`: a view of a session of this kernel."""
    CommView(comm, hub_by_id(data.get("session")))


def document_path(data: Mapping[str, Any]) -> Path:
    """The file a page means, below the kernel's folder. Raises `InputError` for a path that leaves it."""
    return path_inside(Path(), data.get("path"))


def open_netlist(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "netlist", path}`: what `tbuda_lab.widgets.open_netlist` shows."""
    path = document_path(data)
    text = netlists.file_text(path)
    CommView(comm, netlist_hub(netlists.loads(text, lenient=True, path=str(path)), text))


def open_image(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "image", path}`: manifest, files and the first netlist of a TTI archive."""
    CommView(comm, FileHub(image_frames(read_image(document_path(data)))))


def open_profile(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "profile", path}`: a measured run, as `tbuda_lab.widgets.open_profile` shows it."""
    CommView(comm, FileHub([measured_frame(read_profile(document_path(data)))]))


class ProgramDocument(CommView):
    """The workbench of a program's graph; the page may choose another graph."""

    def __init__(self, comm: Comm, programs: Programs) -> None:
        self.programs = programs
        session = programs.session()
        super().__init__(comm, hub_of(session))
        if session.result is None:
            self.hub.start(run=False)

    def choose_graph(self, title: str) -> None:
        """Show another graph, by its title. Raises `InputError`."""
        move(self, self.programs.session(title))


def open_program(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "program", path}`: the graphs of a PEF, as `BringUp(path)` shows them."""
    ProgramDocument(comm, Programs(read_programs(document_path(data))))


def open_journal(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "journal", path}`: the edits of a `*.buda.json` file, and where it lies, to find who writes it."""
    path = document_path(data)
    CommView(comm, FileHub([journal_frame(read_journal(path), path)]))


def journal_frame(file: JournalFile, path: Path) -> Frame:
    """A session file in words: device, options, steps, checkpoints, and the overrides at its end as Python."""
    from tbuda_lab.core.overrides import override_python

    head = file.header
    history = History(Request(head.options, head.overrides, head.overrides))
    replay(history, file.actions)
    plain = type(head.options)()
    options = {
        f.name: str(getattr(head.options, f.name))
        for f in dataclasses.fields(head.options)
        if getattr(head.options, f.name) != getattr(plain, f.name)
    }
    return Frame(
        "journal",
        {
            "name": head.name,
            "device": head.device,
            "path": str(path),
            "absolute": str(path.resolve()),
            "options": sorted(options.items()),
            "steps": [[step.label, step.source] for step in history.done],
            "undone": [step.label for step in history.undone],
            "checkpoints": list(history.marked),
            "python": "".join(override_python(o) + "\n" for o in history.state.overrides),
        },
    )
