"""The widgets of a session: the workbench, and the views that are lists or text. Others have files of their own."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import traitlets

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.netlist.schema import Finding
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.exports import overrides_text
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.views.base import BUNDLE, StaticView, View
from tbuda_lab.widgets.views.graph import GraphTraits, GraphView
from tbuda_lab.widgets.views.grid import EpochGrid, GridTraits
from tbuda_lab.widgets.views.program import move, open_program, program_of
from tbuda_lab.widgets.views.table import OpTable

__all__ = [
    "BUNDLE",
    "BringUp",
    "EpochGrid",
    "GraphView",
    "NetlistView",
    "OpTable",
    "OverridesPanel",
    "ProblemsView",
    "StaticView",
    "View",
]


MODES = ("split", "graph", "grid", "graphs")
TABS = (
    "ops",
    "profile",
    "measured",
    "trace",
    "netlist",
    "overrides",
    "placements",
    "explore",
    "memory",
    "diff",
    "passes",
    "plots",
    "cluster",
    "program",
    "problems",
)


class DockTraits(traitlets.HasTraits):
    """Traits of the workbench, settable from Python and from the page alike.

    mode: above, graph and grid side by side ("split"), or "graph" or "grid" alone, or two stages of the graph
    ("graphs"). docks: the rest of the arrangement,
    `{"tab": one of TABS, "inspector": whether it stands beside the tabs, "tall": whether the tabs have all the room and
    graph and grid are put away}`; what is left out when it is set stays as it is. The name is not `layout`, as every
    widget has a trait of that name already: the CSS of its box.
    """

    mode = traitlets.Enum(MODES, "split").tag(sync=True)
    docks = traitlets.Dict({"tab": TABS[0], "inspector": True, "tall": False}).tag(sync=True)

    @traitlets.validate("docks")
    def _arrangement(self, proposal: Any) -> dict[str, Any]:
        value: dict[str, Any] = {**self.docks, **proposal["value"]}
        unknown = sorted(set(value) - {"tab", "inspector", "tall"})
        if unknown:
            raise traitlets.TraitError(f"there is no dock {unknown[0]!r}; docks are 'tab', 'inspector' and 'tall'")
        if value["tab"] not in TABS:
            raise traitlets.TraitError(f"there is no tab {value['tab']!r}; there are {', '.join(TABS)}")
        for name in ("inspector", "tall"):
            if not isinstance(value[name], bool):
                raise traitlets.TraitError(f"{name!r} is True or False, not {value[name]!r}")
        return {name: value[name] for name in ("tab", "inspector", "tall")}


class BringUp(DockTraits, GridTraits, GraphTraits, View):
    """The workbench: trace, place and run a model, and look at all of it.

    `BringUp(model, sample_inputs, device="n150")` makes a session and starts to compile, run and verify in a thread;
    `BringUp(session)` shows one that exists. `verify=False` runs without comparing with torch; `start=False` waits for
    the Run button or `.start()`. How it is arranged: see `DockTraits`.

    A PEF, or a model that SambaFlow's `trace_graph` has traced, is opened with its host program; `graph` is the title
    of the graph shown first (`choose_graph` shows another). A graph that trains is compiled, and trains a step whenever
    it is started again; `run_program` trains more. An Ir of PopXL is shown; its own Session runs it.
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
        graph: str = "",
    ) -> None:
        programs = None if isinstance(model, Session) else open_program(model)
        if programs is not None:
            session = programs.session(graph)
        elif isinstance(model, Session):
            session = model
        else:
            session = Session(model, sample_inputs, device, options=options, overrides=overrides, name=name)
        super().__init__(session, height=height)
        if start or (start is None and session.result is None):
            self.hub.start(verify, run=programs is None or programs.runs_alone(session))

    def choose_graph(self, title: str) -> None:
        """Show another graph of the program, by its title. Raises `InputError` where there is no such graph, and for a
        session without a program."""
        programs = program_of(self.session)
        if programs is None:
            raise InputError("this session has no host program, and so no other graphs")
        move(self, programs.session(title))

    def start(self, verify: bool = True) -> None:
        """Compile what is not compiled, run, and compare with torch; a program that trains runs once. Returns at
        once."""
        self.hub.start(verify)

    def run_program(self, steps: int = 1, **numbers: float) -> None:
        """Train with the host program of a PEF or a traced model in a thread; returns at once. The page pauses, steps
        and cancels it, and draws the loss (Plots).

        numbers: of the optimizer from the first of these steps on, `lr=0.1, momentum=0.9`.
        Raises `InputError` for a session without a program, and while other work goes on.
        """
        programs = program_of(self.session)
        if programs is None:
            raise InputError("this session has no host program; train() takes batches")
        self.hub.train_by(lambda: programs.train(self.session, steps, numbers))

    def train(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """Train a session of `Session.for_training` in a thread; returns at once. The page pauses, steps and cancels
        it, and draws loss and learning rate (Plots). batches: see `Session.train`. Raises `InputError` while other work
        goes on."""
        self.hub.train(batches)

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

    def show(self, what: int | str) -> None:
        """Show an epoch by its number, one of `MODES` above, or one of `TABS` below. Raises
        `InputError` for another word."""
        if isinstance(what, int):
            self.post({"type": "show", "epoch": what}, [])
        elif what in MODES:
            self.mode = what
        elif what in TABS:
            self.docks = {"tab": what}
        else:
            raise InputError(f"the workbench has no {what!r}; there are {', '.join((*MODES, *TABS))}, and epochs")

    def report(self, path: str | pathlib.Path) -> pathlib.Path:
        """Write the report page; returns its path. Raises `OutputError` where it cannot be written."""
        from tbuda_lab.widgets.report import write_report

        return write_report(self.session, path, self.hub.comparisons)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return fragments.bringup_html(frames)


class NetlistView(View):
    """The netlist text; the entries of the selected ops are marked.

    line: the line that is marked besides and in sight, counted from 1, None for none. A click on a line of the page
    sets it, and selects the op or queue that stands there.
    """

    kind = "netlist"
    frames_shown = ("netlist",)

    line = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)

    @traitlets.validate("line")
    def _in_the_text(self, proposal: Any) -> int | None:
        value: int | None = proposal["value"]
        frame = self.hub.frames.get("netlist")
        if value is not None and frame is not None and value > frame.meta["lines"]:
            raise traitlets.TraitError(f"there is no line {value}; the netlist has {frame.meta['lines']:,}")
        return value

    def validate(self) -> list[Finding]:
        """What the strict check finds in the netlist as it would be written: nothing wrong, or the compile refuses it.

        Compiles what is not compiled. Raises what the compile raises.
        """
        result = self.session.compile()
        return netlists.check(netlists.loads(netlists.dumps(result.netlist)), result.device, "strict")

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return fragments.netlist_html(frames, self.line)


class OverridesPanel(View):
    """Every override: what it asks, what it got and why, the Python line, a way to take it back.

    show_code: "" for the list, "python" or "json" for all of them as code; the page sets it too.
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

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return fragments.overrides_html(frames)


class ProblemsView(View):
    """What the stages had to say, errors first.

    filter: a part of the severity, place, rule, message or fix of those that are shown, "" for all; small and large
    letters are alike. The page sets it when somebody types.
    """

    kind = "problems"
    frames_shown = ("problems",)

    filter = traitlets.Unicode("").tag(sync=True)

    @property
    def problems(self) -> list[Diagnostic]:
        """All of them, whatever `filter` says; the same as `session.problems`."""
        return list(self.session.problems)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return fragments.problems_html(frames, self.filter)
