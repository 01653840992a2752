"""The widgets: thin Python sides of the views. All views of one session share its hub, so selection is linked."""

from __future__ import annotations

import csv
import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import anywidget
import numpy as np
import traitlets

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError, OutputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.netlist.findings import Finding
from tbuda_lab.core.options import CompileOptions, Override
from tbuda_lab.core.session import EpochBreak, PlaceOp, ResizeOp, Session
from tbuda_lab.core.session.exports import overrides_text
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets import asking, exporting, makers, more, timekeeper, twins
from tbuda_lab.widgets.graphlooks import GraphLooks, opened, overlay_frame
from tbuda_lab.widgets.gridlooks import GridLooks
from tbuda_lab.widgets.hub import Hub, hub_of
from tbuda_lab.widgets.messages import HANDLERS
from tbuda_lab.widgets.svg import epoch_svg, graph_svg

ROOMS = (asking, exporting, makers, more, timekeeper)
"""Imported for the messages that they answer."""
BUNDLE = pathlib.Path(__file__).parent / "static" / "widget.js"


class StaticView:
    """A view as plain HTML: the same picture without a script, for converted notebooks."""

    def __init__(self, html: str, text: str) -> None:
        self.html, self.text = html, text

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.text


def _bundle() -> str:
    try:
        return BUNDLE.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None


class View(anywidget.AnyWidget):
    """Base of the views of a session.

    Synced traits are small: which view it is, its height in CSS pixels, and the selection. Frames and status are sent
    as custom messages (see `hub`).
    """

    kind: ClassVar[str] = ""
    frames_shown: ClassVar[tuple[str, ...]] = ()

    view = traitlets.Unicode(read_only=True).tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)
    selection = traitlets.Dict().tag(sync=True, echo_update=False)

    def __init__(self, session: Session, *, height: int = 0) -> None:
        self._open(hub_of(session), height)

    def _open(self, hub: Hub, height: int) -> None:
        self._esm = _bundle()
        self.hub = hub
        self._seq = 0
        self.set_trait("view", self.kind)
        super().__init__(height=height, selection=self.hub.selection)
        self.on_msg(self._receive)
        self.observe(self._selected, "selection")
        self.hub.attach(self)

    @property
    def session(self) -> Session:
        """The session shown. Raises `InputError` for a view of a file."""
        if not hasattr(self.hub, "session"):
            raise InputError(f"{self!r} shows a file: there is no session behind it")
        return self.hub.session

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the selected ops."""
        return tuple(self.hub.selection["names"])

    def select(self, *names: str) -> None:
        """Select ops by name, here and in every other view of the session."""
        self.hub.select(names)

    def static(self) -> StaticView:
        """The static twin; display it where the notebook will be converted or read without a kernel."""
        return StaticView(self._twin(self.hub.frames), repr(self))

    # -- the hub's side ----------------------------------------------------------------------------------------
    def post(self, message: dict[str, Any], buffers: Sequence[bytes]) -> None:
        """Send one custom message, numbered, so that the page sees a gap."""
        self._seq += 1
        self.send({**message, "seq": self._seq}, list(buffers) or None)

    def wants(self, key: str) -> bool:
        return not self.frames_shown or key.split(":")[0] in self.frames_shown

    def selection_changed(self, selection: dict[str, Any]) -> None:
        self.selection = selection

    def _receive(self, _widget: object, content: Mapping[str, Any], _buffers: object) -> None:
        what = content.get("type")
        if isinstance(what, str) and what in HANDLERS:  # others may come from a newer page
            HANDLERS[what](self.hub, self, content)

    def _selected(self, change: Mapping[str, Any]) -> None:
        new = change["new"]
        names = new.get("names") if isinstance(new, Mapping) else None
        if isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names):
            self.hub.select(names, str(new.get("source", "page")), str(new.get("kind", "op")))

    # -- what a notebook stores --------------------------------------------------------------------------------
    def _twin(self, frames: Mapping[str, Frame]) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hub.session.name!r} on {self.hub.session.device.name})"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(self)
            html = self._twin(self.hub.frames)
            if len(html) < twins.LIMIT:
                data["text/html"] = html
        return bundle


class BringUp(GridLooks, View):
    """The workbench: trace, place and run a model, and look at all of it.

    `BringUp(model, sample_inputs, device="n150")` makes a session and starts to compile, run and verify in a thread;
    `BringUp(session)` shows one that exists. `verify=False` runs without comparing with torch; `start=False` waits for
    the Run button or `.start()`.
    """

    kind = "bringup"

    def __init__(
        self,
        model: Any,
        sample_inputs: Any = None,
        device: str | DeviceSpec = "wormhole_b0",
        *,
        options: CompileOptions | None = None,
        overrides: Sequence[Override] = (),
        name: str = "model",
        height: int = 0,
        verify: bool = True,
        start: bool | None = None,
    ) -> None:
        if isinstance(model, Session):
            session = model
        else:
            session = Session(model, sample_inputs, device, options=options, overrides=overrides, name=name)
        super().__init__(session, height=height)
        if start or (start is None and session.result is None):
            self.hub.start(verify)

    def start(self, verify: bool = True) -> None:
        """Compile what is not compiled, run, and compare with torch; returns at once."""
        self.hub.start(verify)

    def wait(self, timeout: float | None = None) -> BringUp:
        """Until the work is over. Raises its error, or `TimeoutError` after `timeout` seconds."""
        self.hub.wait(timeout)
        return self

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """How the outputs of the last verified run compare with torch; empty before there was one."""
        return tuple(self.hub.comparisons)

    def cancel(self) -> None:
        """Stop the work at its next safe point."""
        self.hub.cancel()

    def show(self, epoch: int) -> None:
        """Show an epoch in the grid."""
        self.post({"type": "show", "epoch": epoch}, [])

    def report(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the report page; returns its path. Raises `OutputError` where it cannot be written."""
        from tbuda_lab.widgets.report import write_report

        return write_report(self.session, path, self.hub.comparisons)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.bringup_html(frames)


class GraphView(GraphLooks, View):
    """The graph of any stage of a session: pan, zoom, search, groups by module path.

    See `GraphLooks` for its traits.
    """

    kind = "graph"
    frames_shown = ("graph", "ops", "edits", "checks")
    _overlay: Frame | None = None

    def focus(self, *names: str) -> None:
        """Select nodes, here and in the other views, and bring them into sight."""
        self.select(*names)

    def overlay(
        self, values: Mapping[str, float], *, name: str = "value", scale: tuple[float, float] | None = None
    ) -> None:
        """Paint nodes by values of your own, in this view alone; without values the usual colours come back.

        values: a finite number by node name; nodes that have none are empty, names that are no node are passed over.
        name: for the legend. scale: values of the quietest and the hottest colour (default: the least and the largest).
        Raises `InputError`.
        """
        self._overlay = overlay_frame(values, name, scale)
        self.hub.send_frame(self, self._overlay)

    def _receive(self, widget: object, content: Mapping[str, Any], buffers: object) -> None:
        super()._receive(widget, content, buffers)
        # The hub keeps no frame of one view.
        if content.get("type") in ("hello", "resync") and self._overlay is not None:
            self.hub.send_frame(self, self._overlay)

    def svg(self, stage: str = "lowered") -> str:
        """The graph of a stage as SVG, groups open as the traits say. Raises `KeyError` before the stage is there."""
        frame = self.hub.frames[f"graph:{stage}"]
        return graph_svg(frame, opened(frame, self.depth, self.collapsed))

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.graph_html(frames)


class EpochGrid(GridLooks, View):
    """The core grid of every epoch, with the film strip. `edit=False` only looks.

    See `GridLooks` for its other traits.
    """

    kind = "grid"
    frames_shown = ("ops", "netlist", "edits", "live", "queues", "checks")

    edit = traitlets.Bool(True).tag(sync=True)

    def resize(self, op: str, size: tuple[int, int]) -> None:
        """Give an op a grid of (rows, columns) cores, as a drag would: one undo step. Raises what compiling raises."""
        self.session.attempt(ResizeOp(op, size))

    def move(self, op: str, start: tuple[int, int], transpose: bool | None = None) -> None:
        """Pin an op to a (row, column). Raises what compiling raises."""
        self.session.attempt(PlaceOp(op, start, transpose))

    def epoch_break(self, op: str, on: bool = True) -> None:
        """Start a new epoch at an op, or not any more. Raises what compiling raises."""
        self.session.attempt(EpochBreak(op, on))

    def svg(self, epoch: int = 0) -> str:
        """The grid of an epoch as SVG. Raises `KeyError` before there is a placement."""
        return epoch_svg(self.hub.frames["ops"], epoch)

    def show(self, epoch: int) -> None:
        """Show an epoch."""
        self.epoch = epoch
        self.post({"type": "show", "epoch": epoch}, [])

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.grid_html(frames)


class OpTable(View):
    """One row per op.

    columns: ids of the columns shown, in that order (none: all of them); sort: the id of one, "-cycles" for the largest
    first; filter: a part of the name or type.
    """

    kind = "table"
    frames_shown = ("ops", "checks")

    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    sort = traitlets.Unicode("").tag(sync=True)
    filter = traitlets.Unicode("").tag(sync=True)

    def to_rows(self) -> list[dict[str, Any]]:
        """All columns of the placement, one dict per op in schedule order. Raises `KeyError` before there is one."""
        frame = self.hub.frames["ops"]
        names = [c for c in frame.columns if c.startswith("op_")]
        texts = {"op_name", "op_type", "op_module", "op_location", "op_df", "op_fidelity", "op_stream", "op_limiter"}
        columns = [frame.text(c) if c in texts else frame.columns[c].tolist() for c in names]
        keys = [n.removeprefix("op_") for n in names]
        return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_frame(self) -> np.ndarray:
        """The table as a structured NumPy array, one record per op in schedule order, a field per column.

        `pandas.DataFrame(table.to_frame())` makes a data frame of it; no such library is needed here. Raises `KeyError`
        before there is a placement.
        """
        rows = self.to_rows()
        columns = {key: np.array([row[key] for row in rows]) for key in (rows[0] if rows else ())}
        made = np.empty(len(rows), dtype=[(key, column.dtype) for key, column in columns.items()])
        for key, column in columns.items():
            made[key] = column
        return made

    def to_csv(self) -> str:
        """The table as CSV with a header line."""
        rows = self.to_rows()
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.table_html(frames)


class NetlistView(View):
    """The netlist text; the entries of the selected ops are marked."""

    kind = "netlist"
    frames_shown = ("netlist",)

    def validate(self) -> list[Finding]:
        """What the strict check finds in the netlist as it would be written: nothing wrong, or the compile refuses it.

        Compiles what is not compiled. Raises what the compile raises.
        """
        result = self.session.compile()
        return netlists.check(netlists.loads(netlists.dumps(result.netlist)), result.device.arch, "strict")

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.netlist_html(frames)


class OverridesPanel(View):
    """Every override: what it asks, what it got and why, the Python line, a way to take it back.

    show_code: "" for the list, "python" or "json" for all of them as code.
    """

    kind = "overrides"
    frames_shown = ("edits",)

    show_code = traitlets.Enum(("", "python", "json"), "").tag(sync=True)

    def to_python(self) -> str:
        """All overrides as calls of PyBuda's `config` module."""
        return self.session.to_python()

    def to_json(self) -> str:
        """All overrides as JSON, as `load` reads them."""
        return overrides_text(self.session, "json")

    def load(self, path: str | pathlib.Path) -> tuple[Override, ...]:
        """Add the overrides of a JSON file as one undo step; returns them. Raises `InputError` for another file."""
        return self.session.load_overrides(path)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.overrides_html(frames)


class ProblemsView(View):
    """What the stages had to say, errors first."""

    kind = "problems"
    frames_shown = ("problems",)

    @property
    def problems(self) -> list[Diagnostic]:
        """What is shown; the same as `session.problems`."""
        return list(self.session.problems)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        return twins.problems_html(frames)
