"""`open_netlist` and `open_tti`: read-only views of any netlist file, valid or not, and of a TTI image."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import NetlistMemory
from tbuda_lab.core.device import ARCHS, BOARDS, load_device
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.analysis_frames import file_memory_frame
from tbuda_lab.core.frames.netlist_file import netlist_frames
from tbuda_lab.core.netlist.check.registry import facts_of, leading_arch
from tbuda_lab.core.netlist.image import Image, image_facts, read_image
from tbuda_lab.core.netlist.schema import Finding, Netlist
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.fragments import table_html
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.pictures.svg import short
from tbuda_lab.widgets.protocol import HANDLERS, StatusBoard
from tbuda_lab.widgets.views.base import StaticView, View

ROWS = 60  # of a table of the static picture
NO_SESSION = "A file is shown as it is: there is no model to compile, edit or run."
OF_FILES = ("hello", "resync", "want", "need_more", "start", "cancel", "plots", "need_links", "need_pass", "profile")
"""Messages that a file answers; those of them that it has nothing for it refuses in words of their own."""
PICTURES = 24  # grids of the static picture


def open_netlist(
    path: str | pathlib.Path, *, arch: str | None = None, profile: str = "backend", height: int = 0
) -> NetlistFile:
    """A view of a netlist file: op graph, core grids, ops, queues, programs, text, and what `check` finds.

    The file need not be valid; what could be read is shown, and every finding has its line. `arch` and `profile` are
    those of `netlist.check`. Raises `NetlistError` if the file cannot be opened or is not text.
    """
    return NetlistFile(path, arch=arch, profile=profile, height=height)


class FileHub(Hub):
    """The hub of a file: its frames are there from the start, nothing is at work.

    memory: of a netlist; worked out when a page wants it.
    """

    def __init__(self, frames: Sequence[Frame], memory: Callable[[], Frame] | None = None) -> None:
        self._prepare(StatusBoard(()))
        self._memory = memory
        self.publish(list(frames))

    def frames_on_demand(self, key: str) -> list[Frame]:
        if key != "memory" or self._memory is None:
            return []
        return [self.frame(key) or self._memory()]

    @property
    def off(self) -> dict[str, str]:
        """All that would need a model: a file is read, and shown as it is."""
        return {what: NO_SESSION for what in HANDLERS if what not in OF_FILES}

    def start(self, verify: bool = True, *, run: bool = True) -> None:
        """A file has no work to do."""

    def cancel(self) -> None:
        """A file has no work to stop."""


def netlist_hub(
    n: Netlist, text: str, *, arch: str | None = None, profile: str = "backend", also: Sequence[Frame] = ()
) -> FileHub:
    """The hub of a netlist: what `netlist_frames` gives, and its memory for those who want it."""
    frames = netlist_frames(n, text, arch=arch, profile=profile)
    return FileHub([*also, *frames], lambda: memory_of(n, arch, frames)[1])


def memory_of(n: Netlist, arch: str | None = None, frames: Sequence[Frame] = ()) -> tuple[NetlistMemory, Frame]:
    """What lies in the memories of a netlist's chips, as calls and as a frame. frames: with the grids (`ops`), whose
    estimates of cycles the load of channels is against."""
    facts = facts_of(arch if arch is not None else leading_arch(n))
    shown = netlists.expand(n, facts.align)
    ops = next((f for f in frames if f.key == "ops"), None)
    cycles = [] if ops is None else ops.columns["epoch_cycles"].tolist()
    return NetlistMemory(shown, facts.device), file_memory_frame(shown, facts.device, cycles)


class NetlistFile(View):
    """A netlist file on screen; see `open_netlist`."""

    kind = "netlistfile"

    def __init__(
        self, path: str | pathlib.Path, *, arch: str | None = None, profile: str = "backend", height: int = 0
    ) -> None:
        text = netlists.file_text(path)
        self.netlist: Netlist = netlists.loads(text, lenient=True, path=str(path))
        self.path = pathlib.Path(path)
        self.arch, self.profile = arch, profile
        self._open(netlist_hub(self.netlist, text, arch=arch, profile=profile), height)

    @property
    def findings(self) -> list[Finding]:
        """What `netlist.check` finds."""
        return netlists.check(self.netlist, self.arch, self.profile)

    @property
    def memory(self) -> NetlistMemory:
        """`.l1(op)` and `.dram()`: buffers of ops and queues, as far as the file says."""
        return memory_of(self.netlist, self.arch)[0]

    def validate(self) -> list[Finding]:
        """Reads the file again and checks it; what `findings` is for what was read."""
        return netlists.check(netlists.load(self.path, lenient=True), self.arch, self.profile)

    def html(self) -> str:
        """The view as one page that works from a file, without kernel and network.

        Raises `OutputError` if the front end is not built.
        """
        from tbuda_lab.widgets.report import document

        frames = {**self.hub.frames, **{f.key: f for f in self.hub.frames_on_demand("memory")}}
        return document(self.path.name, list(frames.values()), self.hub.board.message(), self._fragment(frames))

    def to_html(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes `html()`, whole or not at all; returns the path. Raises `OutputError`."""
        from tbuda_lab.widgets.report import write_page

        return write_page(self.html(), path)

    def svg(self, epoch: int = 0) -> str:
        """The core grid of a graph of the netlist, counted in file order, as SVG."""
        return epoch_svg(self.hub.frames["ops"], epoch)

    def static(self) -> StaticView:
        return StaticView(self._fragment(self.hub.frames), repr(self))

    def show(self, epoch: int) -> None:
        """Shows a graph of the netlist in the grid, counted in file order."""
        self.post({"type": "show", "epoch": epoch}, [])

    def __repr__(self) -> str:
        meta = self.hub.frames["findings"].meta
        return f"NetlistFile({self.path.name!r}: {meta['errors']} errors, {meta['warnings']} warnings)"

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return file_fragment(frames)


def file_fragment(frames: Mapping[str, Frame]) -> str:
    """The file without a script: numbers, findings, grids, graph, queues, programs, as far as there is room."""
    summary = frames["summary"].meta
    counts = " · ".join(f"{count} {what}" for count, what in summary["counts"])
    parts = [
        f"<p><b>{escape(summary['name'])}</b> · {escape(counts)} · {escape(summary['device'])}</p>",
        _findings(frames["findings"]),
    ]
    budget = fragments.LIMIT - sum(map(len, parts))
    ops = frames.get("ops")
    for epoch in range(min(ops.columns["epoch_ops"].size, PICTURES) if ops else 0):
        assert ops is not None
        name, chip = ops.meta["graphs"][epoch], int(ops.columns["epoch_chip"][epoch])
        temporal = int(ops.columns["epoch_temporal"][epoch])
        picture = f"<p>Temporal epoch {temporal}, chip {chip}: {escape(name)}</p>{epoch_svg(ops, epoch)}"
        budget -= len(picture)
        if budget < 0:
            break
        parts.append(picture)
    for title, html in (
        ("Graph", _graph(frames.get("graph:netlist"))),
        ("Queues", _queues(frames["queues"])),
        ("Programs", _text(frames["programs"])),
        ("Ops", table_html(frames, rows=ROWS)),
        ("Text", _text(frames["netlist"])),
    ):
        budget -= len(html)
        if budget > 0:
            parts.append(f"<details><summary>{title}</summary>{html}</details>")
        else:
            budget += len(html)
    return "".join(parts)


def _graph(frame: Frame | None) -> str:
    return graph_svg(frame) if frame is not None else "<p>no ops</p>"


def _findings(frame: Frame) -> str:
    count = frame.columns["line"].size
    if not count:
        return "<p>valid: the check finds nothing</p>"
    texts = [frame.text(c)[:ROWS] for c in ("severity", "where", "message", "rule", "fix")]
    rows = "".join(
        f"<li>{escape(s)}{f', line {line}' if line else ''}: {escape(w)}: {escape(m)} [{escape(r)}] {escape(f)}</li>"
        for line, s, w, m, r, f in zip(frame.columns["line"][:ROWS].tolist(), *texts, strict=True)
    )
    more = f"<p>and {count - ROWS} more</p>" if count > ROWS else ""
    return f"<p>{frame.meta['errors']} errors, {frame.meta['warnings']} warnings</p><ul>{rows}</ul>{more}"


def _queues(frame: Frame) -> str:
    heads = ("name", "type", "group", "producer", "readers", "shape", "grid", "df", "place", "chip")
    columns = [frame.text(f"queue_{c}")[:ROWS] for c in heads]
    numbers = zip(frame.columns["queue_entries"].tolist(), frame.columns["queue_bytes"].tolist(), strict=True)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in (*cells, str(entries), short(size))) + "</tr>"
        for cells, (entries, size) in zip(zip(*columns, strict=True), numbers, strict=False)
    )
    head = "".join(f"<th>{h}</th>" for h in (*heads, "entries", "bytes"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(frame: Frame) -> str:
    text = np.ascontiguousarray(frame.columns["text"]).tobytes().decode()
    return f"<pre>{escape(text)}</pre>"


_FILES_SHOWN = 500


def open_tti(path: str | pathlib.Path, *, height: int = 0) -> ImageFile:
    """A view of a `*.tti` archive: manifest, files, and the netlist in it. Nothing is extracted, nothing unpickled.

    Raises `InputError` that says what is wrong with the file.
    """
    return ImageFile(path, height=height)


def board_of(image: Image) -> str | None:
    """The board or arch that an image of ours was compiled for, if its grid is that one's: what to draw it on."""
    ours = image.manifest.get("tbuda_lab")
    device = ours.get("device") if isinstance(ours, dict) else None
    name = device.get("name") if isinstance(device, dict) else None
    if name not in (*ARCHS, *BOARDS):
        return None
    spec = load_device(str(name))
    return str(name) if image.manifest.get("grid_size") == [spec.rows, spec.cols] else None


def image_frames(image: Image) -> list[Frame]:
    """What a view of an image shows: its facts, and what there is to say about its first netlist."""
    frames = []
    if image.netlists:
        name, text = next(iter(image.netlists.items()))
        netlist = netlists.loads(text, lenient=True, path=PurePosixPath(name).name)
        frames = netlist_frames(netlist, text, arch=board_of(image))
    facts: dict[str, Any] = {
        "facts": image_facts(image),
        "files": [[m.name, m.size] for m in image.members[:_FILES_SHOWN]],
        "more": max(0, len(image.members) - _FILES_SHOWN),
    }
    return [Frame("image", facts), *frames]


class ImageFile(View):
    """A TTI image on screen; see `open_tti`."""

    kind = "imagefile"

    def __init__(self, path: str | pathlib.Path, *, height: int = 0) -> None:
        self.image = read_image(path)
        self._open(FileHub(image_frames(self.image)), height)

    def static(self) -> StaticView:
        return StaticView(self._fragment(self.hub.frames), repr(self))

    def __repr__(self) -> str:
        return f"ImageFile({pathlib.Path(self.image.path).name!r}: {len(self.image.members)} files)"

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        rows = "".join(
            f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in frames["image"].meta["facts"]
        )
        netlist = file_fragment(frames) if "netlist" in frames else "<p>no netlist in this image</p>"
        return f"<table>{rows}</table>{netlist}"
