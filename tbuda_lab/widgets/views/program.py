"""`ProgramView`: the host program of a dialect's graph, its sections, its replicas, and the graphs to choose from.

`open_program` makes sessions of a program's file or of a traced model, so that the workbench opens them.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.passes.autograd.optimizers import LEARNING_RATE
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.training import TrainingStep
from tbuda_lab.dialects.program import SUFFIX, GraphProgram, HostProgramRun, drawn_frame, program_frame, read_programs
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.svg import FONT, picture
from tbuda_lab.widgets.protocol import answers
from tbuda_lab.widgets.views.base import View

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

    class ViewOfHub(Listener, Protocol):
        """A view's Python side that knows its hub."""

        hub: Hub


TRACED = "buda_programs"
"""Attribute of a model that a dialect traced: a function that returns its `GraphProgram`s."""


class Programs:
    """The graphs of one program, with a session for each that was looked at."""

    def __init__(self, graphs: Sequence[GraphProgram]) -> None:
        self.graphs = tuple(graphs)
        self._sessions: dict[int, Session] = {}
        self._runs: dict[int, HostProgramRun] = {}

    @property
    def titles(self) -> list[str]:
        """How the graphs are called: by name, with the mapping where a name stands for two placements."""
        names = [g.name for g in self.graphs]
        return [g.name if names.count(g.name) == 1 else f"{g.name} ({g.mapping})" for g in self.graphs]

    def session(self, title: str = "") -> Session:
        """The session of a graph, by its title; the first graph's without one. Raises `InputError`."""
        if title and title not in self.titles:
            raise InputError(f"the program has no graph {title!r}; there are {', '.join(self.titles)}")
        k = self.titles.index(title) if title else 0
        if k not in self._sessions:
            session = self._sessions[k] = self.graphs[k].session()
            _PROGRAMS[session] = self
            session.on("compiled", lambda result: hub_of(session).publish(self.frames(k, result)))
            if self.graphs[k].trains:
                hub_of(session).own_run = lambda: self.train(session)
            elif self.graphs[k].record is not None:
                hub_of(session).own_run, hub_of(session).run_refusal = refuse_parts, PARTS
        return self._sessions[k]

    def frames(self, k: int, result: Any) -> list[Frame]:
        """The frame "program" of a graph that is compiled, and "irgraph" where there is more to draw."""
        drawn = self.graphs[k].drawn
        return [self.frame(k, result), *([] if drawn is None else [drawn_frame(drawn)])]

    def frame(self, k: int, result: Any) -> Frame:
        """The frame "program" of a graph that is compiled."""
        graphs = [
            {"title": t, "name": g.name, "mapping": g.mapping} for t, g in zip(self.titles, self.graphs, strict=True)
        ]
        frame = program_frame(self.graphs[k], result, graphs)
        return Frame(frame.key, {**frame.meta, "title": self.titles[k]})

    def runs_alone(self, session: Session) -> bool:
        """Whether the graph of a session is a model of its own: it does not train, and is not the parts of an Ir."""
        graph = next(self.graphs[k] for k, s in self._sessions.items() if s is session)
        return not graph.trains and graph.record is None

    def train(self, session: Session, steps: int = 1, numbers: Mapping[str, float] | None = None) -> list[TrainingStep]:
        """Run the host program of a session's graph so many times, which trains; the session tells of every step.

        numbers: of the optimizer ("lr", "momentum", ...) from the first of these steps on. Weights and optimizer
        state stay for later calls, and for other placements of the graph. Raises `InputError` for a graph that does not
        train, and for a number that its program does not set.
        """
        if steps < 1:
            raise InputError(f"a program runs at least once, not {steps} times")
        k = next(k for k, s in self._sessions.items() if s is session)
        if not self.graphs[k].trains:
            raise InputError(f"graph {self.titles[k]!r} does not train: Session.run runs it")
        result = session.compile()
        run = self._runs.get(k)
        if run is None or run.result is not result:
            before, run = run, HostProgramRun(self.graphs[k], result)
            if before is not None:
                run.take_over(before)
            self._runs[k] = run
        current = run

        def step() -> tuple[float, float]:
            outputs = current.step(numbers)
            return current.loss(outputs), current.replicas[0].scalar(LEARNING_RATE)

        return session.training.repeat([step] * steps, steps)


PARTS = "the workbench shows the Ir; its Session runs it: with session: session.run({stream: array, ...})"


def refuse_parts() -> None:
    """Raises `InputError`: the parts of an Ir mean something in the order of its host program alone."""
    raise InputError(PARTS)


_PROGRAMS: weakref.WeakKeyDictionary[Session, Programs] = weakref.WeakKeyDictionary()


def open_program(model: Any) -> Programs | None:
    """The program of a file that ends in `.pef`, or of a model that a dialect traced; None for anything else.

    Raises `InputError` for a file that is not a program.
    """
    if isinstance(model, str | os.PathLike) and Path(model).suffix.lower() == SUFFIX:
        return Programs(read_programs(Path(model)))
    traced: Callable[[], Sequence[GraphProgram]] | None = getattr(model, "__dict__", {}).get(TRACED)
    return Programs(traced()) if traced is not None else None


def program_of(session: Session) -> Programs | None:
    """The program that a session belongs to."""
    return _PROGRAMS.get(session)


@answers("graph")
def _graph(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """A page chose another graph."""
    choose = getattr(view, "choose_graph", None)
    if choose is not None and hub.edit_controller is not None:
        try:
            choose(str(content.get("title")))
        except InputError as error:
            view.post({"type": "refused", "key": "program", "text": str(error)}, [])


class ProgramView(View):
    """The host program as the outer timeline, its sections and replicas, and the graphs to choose from.

    model: a PEF, a model that a dialect traced, or a session of one.
    """

    kind = "program"
    frames_shown: ClassVar[tuple[str, ...]] = ("program", "ops", "irgraph")

    def __init__(self, model: Any, *, graph: str = "", height: int = 0) -> None:
        """Raises `InputError` for what has no program, and for a graph that is not in it."""
        programs = program_of(model) if isinstance(model, Session) else open_program(model)
        if programs is None:
            raise InputError("there is no host program: give a PEF, or a model that samba.utils.trace_graph has traced")
        self.programs = programs
        session = model if isinstance(model, Session) else programs.session(graph)
        super().__init__(session, height=height)
        if session.result is None:
            self.hub.start(run=False)

    def choose_graph(self, title: str) -> None:
        """Show another graph, by its title. Raises `InputError`."""
        move(self, self.programs.session(title))

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return program_html(frames.get("program"), frames.get("irgraph"))


def move(view: ViewOfHub, session: Session) -> None:
    """A view goes over to another session: it gets that one's frames, and hears of its changes alone."""
    hub = hub_of(session)
    if hub is view.hub:
        return
    view.hub.detach(view)
    view.hub = hub
    hub.attach(view)
    view.selection_changed(hub.selection)
    hub.bring_up_to_date(view, {})
    if session.result is None:
        hub.start(run=False)


def program_html(frame: Frame | None, drawn: Frame | None = None) -> str:
    """The replicas in time and the graphs of an Ir as pictures; sections and steps as tables, without a script."""
    if frame is None:
        return "<p>no host program</p>"
    meta = frame.meta
    head = "".join(f"<th>{h}</th>" for h in ("section", "kind", "ops", "cycles"))
    rows = "".join(
        f"<tr><td>{k}</td><td>{escape(s['kind'])}</td><td>{s['ops']}</td><td>{s['cycles']:,.0f}</td></tr>"
        for k, s in enumerate(meta["sections"])
    )
    modes = "".join(f"<li>{mode}: {t['cycles']:,.0f} cycles</li>" for mode, t in meta["timelines"].items())
    steps = "".join(f"<li>{escape(text)}</li>" for text in step_texts(meta["steps"]))
    device = "1 device" if meta["replicas"] == 1 else f"{meta['replicas']} replicas"
    graphs = ", ".join(escape(g["title"]) for g in meta["graphs"] if "title" in g)
    return (
        f"<p><b>{escape(meta['graph'])}</b> · {escape(meta['mapping'])} · {device} · "
        f"graphs: {graphs}</p>{_times_svg(meta)}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<ul>{modes}</ul><ol>{steps}</ol>{'' if drawn is None else graph_svg(drawn)}"
        f"{_record_html(meta.get('record'))}"
    )


def _record_html(record: Mapping[str, Any] | None) -> str:
    """The graphs of an Ir with their ops, its segments, streams, variables and buffers, as tables."""
    if record is None:
        return ""

    def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        if not rows:
            return ""
        cells = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{''.join(f'<th>{h}</th>' for h in head)}</tr></thead><tbody>{cells}</tbody></table>"

    def form(one: Mapping[str, Any]) -> str:
        return f"{one['type']} ({', '.join(map(str, one['shape']))})"

    def place(op: Mapping[str, Any]) -> str:
        return f"{op['runs']}, segment {', '.join(map(str, op['segments']))}" if op["segments"] else str(op["runs"])

    parts = [
        table(
            ("segment", "ops", "cut by"),
            [(s["number"], s["ops"], s["cut"] or "the beginning") for s in record["segments"]],
        ),
        table(("stream", "way", "holds"), [(s["name"], s["way"], form(s)) for s in record["streams"]]),
        table(
            ("variable", "holds", "groups of replicas"),
            [(v["name"], form(v), v["groups"]) for v in record["variables"]],
        ),
        table(
            ("remote buffer", "entries", "each holds"), [(b["id"], b["entries"], form(b)) for b in record["buffers"]]
        ),
    ]
    for graph in record["graphs"]:
        ops = [(o["op"], o["type"], place(o), o["why"], ", ".join(o["calls"]), o["line"]) for o in graph["ops"]]
        parts.append(
            f"<details><summary>{escape(graph['id'])}: {len(ops)} ops</summary>"
            f"{table(('op', 'kind', 'runs on', 'why', 'calls', 'line'), ops)}</details>"
        )
    return "".join(parts)


_WIDTH, _LEFT, _ROW = 900, 84, 29
_REPLICAS = 8  # in the picture; all have the same times
_FILLS = {"fwd": "#5b93d6", "bckwd": "#d69a5b", "opt": "#7fb98f", "gradnorm": "#7fb98f"}


def _times_svg(meta: Mapping[str, Any]) -> str:
    """The sections of every replica in time, and the link between them, as the page draws them."""
    plan = meta["timelines"][meta["mode"] if meta["mode"] in meta["timelines"] else "normal"]
    scale = (_WIDTH - _LEFT) / max(1.0, float(plan["cycles"]))
    shown = min(meta["replicas"], _REPLICAS)
    lanes = [
        (
            f"replica {r}" if meta["replicas"] > 1 else "device",
            [
                (f"{k} {meta['sections'][k]['kind']}", _FILLS.get(meta["sections"][k]["kind"], "#999"), start, end)
                for k, start, end in plan["device"]
            ],
        )
        for r in range(shown)
    ]
    if meta["replicas"] > 1:
        lanes.append(("link", [(str(weight), "#b9a3d9", start, end) for weight, start, end in plan["link"]]))
    parts = []
    for at, (name, bars) in enumerate(lanes):
        top = at * _ROW
        parts += [
            f"<text x='2' y='{top + 17}'>{name}</text>",
            f"<rect x='{_LEFT}' y='{top}' width='{_WIDTH - _LEFT}' height='{_ROW - 5}' fill='#eef1f5'/>",
        ]
        for label, fill, start, end in bars:
            left, wide = _LEFT + start * scale, max(1.0, (end - start) * scale)
            parts.append(
                f"<rect x='{left:.1f}' y='{top}' width='{wide:.1f}' height='{_ROW - 5}' fill='{fill}' stroke='#fff'/>"
            )
            if wide > 8 * len(label):
                parts.append(f"<text x='{left + 6:.1f}' y='{top + 17}'>{escape(label)}</text>")
    words = [f"<g {FONT} font-size='12' fill='#17202e'>", *parts, "</g>"]
    return picture(_WIDTH, len(lanes) * _ROW, words, "Sections of a run in time")


def step_texts(steps: Sequence[Mapping[str, Any]], indent: str = "") -> list[str]:
    """Steps of a host program in words, loops with their bodies."""
    texts = []
    for step in steps:
        section = f"{step['section']}: " if step.get("section") else ""
        what = step.get("tensor") or step.get("program") or step.get("name") or ""
        if step["step"] == "loop":
            texts += [f"{indent}{section}loop {step['count']} times", *step_texts(step["body"], indent + "· ")]
            continue
        if step["step"] == "branch":
            texts.append(f"{indent}{section}branch by {step['condition']}")
            inside = indent + "· "
            texts += [*step_texts(step["then"], inside), f"{indent}else", *step_texts(step["otherwise"], inside)]
            continue
        if "slot" in step:
            beside = [f"{k} {step[k]}" for k in ("stream", "buffer") if k in step]
            what = step["slot"] + (f" ({beside[0]})" if beside else "")
        elif step["step"] == "host_op":
            what = f"{step['kind']}: {', '.join(step['ins'])} to {', '.join(step['outs'])}"
        elif step["step"] == "move":
            what = ", ".join(f"{source} to {target}" for target, source in step["pairs"])
        if step["step"] == "collective":
            what = f"mean of {len(step['tensors'])} gradients"
        region = f" ({step['region']})" if "region" in step else ""
        texts.append(f"{indent}{section}{step['step'].replace('_', ' ')} {what}{region}")
    return texts


__all__ = ["ProgramView", "Programs", "move", "open_program", "program_html", "program_of", "step_texts"]
