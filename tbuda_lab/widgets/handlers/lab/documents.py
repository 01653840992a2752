"""Documents in tabs: a netlist, a TTI image, a PEF, the edits of a session. Paths are those of the server's folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import Request
from tbuda_lab.core.files import path_inside
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.netlist.image import read_image
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import JournalFile, read_journal, replay
from tbuda_lab.dialects.programfile import read_programs
from tbuda_lab.widgets.handlers.lab.target import Comm
from tbuda_lab.widgets.handlers.lab.view import CommView
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tbuda_lab.widgets.views.image_file import image_frames
from tbuda_lab.widgets.views.netlist_file import FileHub, netlist_hub
from tbuda_lab.widgets.views.program import Programs, move


def document_path(data: Mapping[str, Any]) -> Path:
    """The file a page means, below the kernel's folder. Raises `InputError` for a path that leaves it."""
    return path_inside(Path(), data.get("path"))


def open_netlist(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "netlist", path}`: what `tbuda_lab.widgets.open_netlist` shows."""
    path = document_path(data)
    netlist = netlists.load(path, lenient=True)
    text = path.read_text(encoding="utf-8-sig")
    CommView(comm, netlist_hub(netlist, text))


def open_image(comm: Comm, data: Mapping[str, Any]) -> None:
    """`{open: "image", path}`: manifest, files and the first netlist of a TTI archive."""
    CommView(comm, FileHub(image_frames(read_image(document_path(data)))))


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
    return Frame("journal", {
        "name": head.name, "device": head.device, "path": str(path), "absolute": str(path.resolve()),
        "options": sorted(options.items()),
        "steps": [[step.label, step.source] for step in history.done],
        "undone": [step.label for step in history.undone],
        "checkpoints": list(history.marked),
        "python": "".join(override_python(o) + "\n" for o in history.state.overrides),
    })
