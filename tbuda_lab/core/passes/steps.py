"""The passes one by one: the graph after each, what it changed, how long it took. For looking, not for compiling."""

from __future__ import annotations

import dataclasses
import threading
import time

from tbuda_lab.core.errors import Cancelled, TbudaError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.diff import GraphDiff, diff
from tbuda_lab.core.ops.builder import DEFAULTS
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.base import Pass, Report
from tbuda_lab.core.passes.pipeline import run


@dataclasses.dataclass(frozen=True)
class PassStep:
    """One pass of the pipeline. before, after: number of nodes; seconds: of the pass and the check after it; `graph`:
    the graph after it, without the values of parameters and constants."""

    index: int
    name: str
    doc: str
    before: int
    after: int
    rewrites: int
    seconds: float
    changes: GraphDiff
    graph: Graph


@dataclasses.dataclass(frozen=True)
class PassTrace:
    """All passes of a graph, in order. `first`: the graph they began with; `error`: what ended them early, or ""."""

    first: Graph
    steps: tuple[PassStep, ...]
    error: str = ""

    def before(self, index: int) -> Graph:
        """The graph that a step began with."""
        return self.steps[index - 1].graph if index else self.first

    @property
    def labels(self) -> tuple[str, ...]:
        """A name of its own for every step: a pass that runs again is "name#2", "name#3", ..."""
        count: dict[str, int] = {}
        labels = []
        for step in self.steps:
            count[step.name] = count.get(step.name, 0) + 1
            labels.append(step.name if count[step.name] == 1 else f"{step.name}#{count[step.name]}")
        return tuple(labels)

    def find(self, name: str | int) -> int:
        """The number of a step, given by its label or number. Raises `KeyError` naming those there are."""
        labels = self.labels
        if type(name) is int and 0 <= name < len(labels):
            return name
        if name in labels:
            return labels.index(str(name))
        raise KeyError(f"no pass {name!r}; there are {', '.join(labels)}")

    def neighbour(self, name: str | int | None, by: int) -> int:
        """The step that is `by` steps that changed something away from another, as far as there are any; without a name
        counted from before the first (`by` > 0) or after the last. Raises `KeyError`."""
        at = (-1 if by > 0 else len(self.steps)) if name is None else self.find(name)
        indices = [s.index for s in self.steps if s.changes and ((s.index > at) if by > 0 else (s.index < at))]
        if by < 0:
            indices.reverse()
        if not indices or by == 0:
            if 0 <= at < len(self.steps):
                return at
            raise KeyError("no pass changed anything")
        return indices[min(abs(by), len(indices)) - 1]


def trace_passes(graph: Graph, options: CompileOptions = DEFAULTS, cancel: threading.Event | None = None) -> PassTrace:
    """Run the pipeline again and keep every step. A pass that refuses ends it; what was done until then is there.

    Raises `Cancelled` once `cancel` is set.
    """
    steps: list[PassStep] = []
    latest = graph.clone()
    first = light(latest)
    began = time.perf_counter()

    def done(step: Pass, report: Report, work: Graph) -> None:
        nonlocal latest, began
        seconds = time.perf_counter() - began
        if cancel is not None and cancel.is_set():
            raise Cancelled(f"cancelled after pass {step.name!r}")
        now = work.clone()
        changes = diff(latest, now)
        count = len(steps), step.name, step.doc, len(latest), len(now)
        steps.append(PassStep(*count, report.rewrites, seconds, changes, light(now)))
        latest = now
        began = time.perf_counter()

    try:
        run(graph, options, done)
    except Cancelled:
        raise
    except TbudaError as error:
        return PassTrace(first, tuple(steps), str(error))
    return PassTrace(first, tuple(steps))


def light(graph: Graph) -> Graph:
    """A copy without values: thirty graphs would otherwise keep thirty sets of folded parameters alive."""
    copy = graph.clone()
    for name, node in copy.nodes.items():
        if node.value is not None or node.recipe is not None:
            copy.nodes[name] = dataclasses.replace(node, value=None, recipe=None)
    return copy
