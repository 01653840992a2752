"""An exploration at work: asks for points, has them tried, keeps the rows, and knows the front."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.explore import store
from tbuda_lab.core.explore.devices import parse_device
from tbuda_lab.core.explore.engine import Engine, open_engine
from tbuda_lab.core.explore.samplers import BATCH, SAMPLERS, Learner, plain_order
from tbuda_lab.core.explore.space import (
    DEVICE,
    HARVEST,
    OVERRIDES,
    Objective,
    Point,
    Requirement,
    Space,
    check_options,
    digest,
    front_of,
    parse_objective,
    parse_requirement,
    space_from_json,
)
from tbuda_lab.core.explore.trial import (
    CANCELLED,
    CRASHED,
    DONE,
    Task,
    Trial,
    TrialRunner,
    graph_text,
    pack_weights,
    refusal,
    version,
)
from tbuda_lab.core.files.codec import to_plain
from tbuda_lab.core.graph import Graph, parse_graph, print_graph

DEFAULT_DEVICE = "wormhole_b0"
AUTO_SECONDS = 60.0
"""CPU seconds of expected work from which `workers="auto"` starts two."""
BUDGET = 200


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is explored. options: those that no axis says, as plain data; source: words of a command line that load the
    model; trial_seconds: after which a trial is late."""

    space: Space
    objectives: tuple[Objective, ...]
    requirements: tuple[Requirement, ...] = ()
    sampler: str = "grid"
    budget: int = BUDGET
    seed: int = 0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: tuple[str, ...] = ()
    trial_seconds: float | None = None
    device: str = DEFAULT_DEVICE

    def __post_init__(self) -> None:
        """Raises `InputError`."""
        if self.sampler not in SAMPLERS:
            raise InputError(f"sampler {self.sampler!r}: there are {', '.join(SAMPLERS)}")
        if type(self.budget) is not int or self.budget < 1:
            raise InputError(f"a budget is 1 trial or more, not {self.budget!r}")
        if self.trial_seconds is not None and not 0 < self.trial_seconds < 1e9:
            raise InputError(f"a trial takes more than 0 seconds, not {self.trial_seconds!r}")
        if not self.objectives:
            raise InputError("give an objective, such as samples/s:max")
        if len({o.number for o in self.objectives}) < len(self.objectives):
            raise InputError("an objective is given twice")
        named = {o.number for o in self.objectives} | {r.number for r in self.requirements}
        if "compile_s" in named and self.sampler in ("nsga2", "tpe"):
            raise InputError(
                "compile_s is a time of this machine: a search by it finds something else every time; "
                "take the sampler grid or random"
            )
        check_options(self.options)
        parse_device(self.device)

    @property
    def pcc(self) -> bool:
        """Whether trials are run, too."""
        return "pcc" in self.wanted

    @property
    def wanted(self) -> frozenset[str]:
        """Numbers that objectives and requirements name."""
        return frozenset((*(o.number for o in self.objectives), *(r.number for r in self.requirements)))

    def header(self, model: str, graph: str) -> dict[str, Any]:
        """As a file begins; `graph`: its digest."""
        return {
            "model": model,
            "graph": graph,
            "options": dict(self.options),
            "space": {**self.space.to_json(), "device": self.device},
            "objectives": list(map(str, self.objectives)),
            "requirements": list(map(str, self.requirements)),
            "sampler": self.sampler,
            "seed": self.seed,
            "budget": self.budget,
            "source": list(self.source),
            "trial_seconds": self.trial_seconds,
        }


def plan_of(header: Mapping[str, Any], where: str) -> Plan:
    """The plan of a file. Raises `InputError`."""
    try:
        space = dict(header["space"])
        device = space.pop("device")
        return Plan(
            space_from_json(space, where),
            tuple(map(parse_objective, header["objectives"])),
            tuple(map(parse_requirement, header["requirements"])),
            header["sampler"],
            header["budget"],
            header["seed"],
            header["options"],
            tuple(header["source"]),
            header["trial_seconds"],
            device,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{where}: the header is damaged: {type(error).__name__}: {error}") from None


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far it is. seconds_left: None while nothing is known."""

    done: int
    total: int
    running: int
    seconds_left: float | None


class Exploration:
    """Runs a plan on a traced graph and writes the rows to a folder.

    sample: of inputs, where the correlation is wanted. workers: processes of this machine, 0: none, "auto": two where
    more than `AUTO_SECONDS` are expected and Dask is there. scheduler: of Dask, that the user named. send_weights: the
    correlation is taken by workers, too; otherwise weights never leave this process.
    """

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        folder: str | Path,
        sample: Any = None,
        *,
        workers: int | str = 0,
        scheduler: Any = None,
        send_weights: bool = False,
        cache: bool = True,
        on_change: Callable[[Exploration], None] | None = None,
    ) -> None:
        """Opens the folder. Raises `InputError` for what cannot be explored; nothing is written then."""
        if workers != "auto" and (type(workers) is not int or not 0 <= workers <= 1024):
            raise InputError(f"workers are a number from 0, or auto, not {workers!r}")
        self.plan, self.graph, self.folder, self.cache = plan, graph, Path(folder), cache
        self._text = graph_text(graph)
        self._workers, self._scheduler, self._send_weights = workers, scheduler, send_weights
        # without a run a trial is the text alone, here as on a worker, so that both come to the same
        self._runner = TrialRunner(graph, sample) if plan.pcc else TrialRunner(parse_graph(self._text))
        self._graph_digest = digest(print_graph(self._runner.graph))[:32]
        self._on_change = on_change
        self._stop = threading.Event()
        self._running = 0
        self._began = time.monotonic()
        self._ended_here = 0
        self._file = store.TrialFile(self.folder, plan.header(graph.name, self._graph_digest), self._text)

    @property
    def trials(self) -> list[Trial]:
        """The rows of this version, by number."""
        return [self._file.trials[n] for n in sorted(self._file.trials.copy())]

    @property
    def stale(self) -> tuple[Trial, ...]:
        """Rows of other versions of this package."""
        return self._file.stale

    @property
    def total(self) -> int:
        """Trials that there will be."""
        return min(self.plan.budget, self.plan.space.size)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        done = len(self._file.trials)
        passed = time.monotonic() - self._began
        left = passed / self._ended_here * (self.total - done) if self._ended_here else None
        return Progress(done, self.total, self._running, left)

    def cancel(self) -> None:
        """Stop at the next safe point; rows that are there stay, trials at work leave none."""
        self._stop.set()

    # -- work ----------------------------------------------------------------------------------------------------------
    def run(self) -> list[Trial]:
        """Try what has no row yet, until the budget is used or the space has no more. Raises `Cancelled` once it was
        cancelled."""
        engine: Engine | None = None
        try:
            for batch in self._batches():
                rest = [task for task in batch if task.n not in self._file.trials]
                if rest and engine is None and self._workers == "auto":
                    engine, rest = self._choose_engine(rest)
                if rest and engine is None:
                    assert not isinstance(self._workers, str)
                    engine = self._open(self._workers)
                if rest and engine is not None:
                    self._try(engine, rest)
                self._file.tidy()
        finally:
            if engine is not None:
                engine.close()
            self._file.tidy()
        return self.trials

    def close(self) -> None:
        """Another process may go on with the folder."""
        self._file.close()

    def _open(self, workers: int) -> Engine:
        wants_weights = self._send_weights and self.plan.pcc
        weights = pack_weights(self.graph, self._runner.sample) if wants_weights else None
        text = self._text if weights is None else print_graph(self.graph)
        return open_engine(workers, self._scheduler, self._runner, text, weights)

    def _choose_engine(self, tasks: list[_Pending]) -> tuple[Engine, list[_Pending]]:
        """Try the first point here, and start workers where the rest takes long."""
        here = open_engine(0, None, self._runner, self._text, None)
        self._try(here, tasks[:1])
        cpu = float(self._file.trials[tasks[0].n].run.get("cpu_s", 0.0)) if tasks[0].n in self._file.trials else 0.0
        stays = self.plan.pcc and not self._send_weights  # a run needs the weights, which are here
        if stays or cpu * (self.total - len(self._file.trials)) < AUTO_SECONDS:
            return here, tasks[1:]
        try:
            engine = self._open(2)
        except InputError:  # no Dask
            return here, tasks[1:]
        here.close()
        return engine, tasks[1:]

    def _batches(self) -> Iterator[list[_Pending]]:
        """Points to try together, numbered; those that an earlier one equals by key are left out."""
        if self.plan.sampler in ("grid", "random"):
            yield from self._plain_batches()
            return
        learner = Learner(
            self.plan.space, self.plan.sampler, self.plan.seed, self.plan.objectives, self.plan.requirements
        )
        while len(known := self._in_order(self._batch_start())) < self.total:
            points = learner.batch(known, min(BATCH, self.total - len(known)))
            yield [self._pending(len(known) + k, point) for k, point in enumerate(points)]

    def _batch_start(self) -> int:
        """The first number that no whole batch has."""
        have = next((n for n in range(self.total) if n not in self._file.trials), self.total)
        return have if have == self.total else have // BATCH * BATCH

    def _in_order(self, end: int) -> list[Trial]:
        return [self._file.trials[n] for n in range(end)]

    def _plain_batches(self) -> Iterator[list[_Pending]]:
        pending: list[_Pending] = []
        keys: set[str] = set()
        for point in plain_order(self.plan.space, self.plan.sampler, self.plan.seed):
            if len(pending) == self.total:
                break
            candidate = self._pending(len(pending), point)
            if candidate.key not in keys:
                keys.add(candidate.key)
                pending.append(candidate)
        yield pending

    def _pending(self, n: int, point: Point) -> _Pending:
        plan, base = self.plan, self.plan.space
        options = base.options(point, plan.options)
        overrides = tuple(base.override_sets.get(point.get(OVERRIDES, ""), ()))
        name, harvest = str(point.get(DEVICE, plan.device)), point.get(HARVEST, 0)
        try:
            device, error = to_plain(parse_device(name, harvest)), None
        except TbudaError as refused:
            device, error = {"name": name, "harvest": harvest}, refused
        key = digest(self._graph_digest, device, options, overrides, plan.pcc, version())[:32]
        task = Task(n, device, options, overrides, plan.trial_seconds, self._measures_there, self.cache)
        return _Pending(n, key, point, task, error)

    @property
    def _measures_there(self) -> bool:
        """Whether the trial itself takes the correlation; else this process does after it."""
        remote = self._scheduler is not None or (self._workers not in (0, "auto"))
        return self.plan.pcc and (not remote or self._send_weights)

    def _try(self, engine: Engine, pending: Sequence[_Pending]) -> None:
        """Have trials made and keep their rows. Raises `Cancelled`."""
        by_device = sorted(pending, key=lambda p: (digest(p.task.device), p.n))
        at_work: dict[int, _Pending] = {}
        for one in by_device if self.plan.sampler != "grid" else pending:
            if one.error is not None:
                self._keep(one, refusal(one.error))
            else:
                at_work[one.n] = one
                engine.submit(one.task)
        stopped = False
        while at_work:
            if self._stop.is_set() and not stopped:
                stopped = True
                engine.cancel()
            self._running = engine.running
            for n, outcome in engine.poll(0.1):
                self._keep(at_work.pop(n), outcome)
        self._running = 0
        if stopped:
            raise Cancelled("the exploration was cancelled; `tbuda explore` on its folder goes on")

    def _keep(self, pending: _Pending, outcome: dict[str, Any]) -> None:
        if outcome["state"] == CANCELLED:
            return
        if outcome["state"] == DONE and self.plan.pcc and "pcc" not in outcome["numbers"]:
            again = self._runner.run(dataclasses.replace(pending.task, pcc=True), self._stop)
            if again["state"] == CANCELLED:
                return
            outcome = {**again, "run": outcome["run"]}
        if outcome["state"] == DONE and outcome["run"].get("cpu_s") is not None and self._wants_cpu:
            outcome["numbers"]["compile_s"] = outcome["run"]["cpu_s"]
        row = Trial(
            pending.n,
            pending.key,
            pending.point,
            outcome["state"],
            outcome["reason"],
            outcome["numbers"],
            "",
            version(),
            outcome["run"],
        )
        self._file.add(row, outcome["placement"])
        self._ended_here += 1
        if self._on_change is not None:
            self._on_change(self)

    @property
    def _wants_cpu(self) -> bool:
        return "compile_s" in self.plan.wanted


@dataclasses.dataclass(frozen=True)
class _Pending:
    """A point that has a number, and the refusal that it has before it is tried, if any."""

    n: int
    key: str
    point: Point
    task: Task
    error: TbudaError | None


# -- answers -----------------------------------------------------------------------------------------------------------
def holding(trials: Sequence[Trial], requirements: Sequence[Requirement]) -> list[Trial]:
    """Those that are done and hold all requirements."""
    return [t for t in trials if t.state == DONE and all(r.holds(t.numbers) for r in requirements)]


def front(
    trials: Sequence[Trial], objectives: Sequence[Objective], requirements: Sequence[Requirement] = ()
) -> list[Trial]:
    """Trials that hold what is required and that no other beats in all objectives, best in the first one first."""
    rows = holding(trials, requirements)
    chosen = front_of([[o.sign * t.numbers[o.number] for o in objectives] for t in rows])
    return sorted((rows[k] for k in chosen), key=lambda t: (objectives[0].sign * t.numbers[objectives[0].number], t.n))


def has_crash(trials: Sequence[Trial]) -> bool:
    """Whether one ended by an error that is none of ours."""
    return any(t.state == CRASHED for t in trials)


def effects(trials: Sequence[Trial], space: Space, number: str) -> dict[str, list[tuple[Any, float | None, int]]]:
    """Axis -> for each value the mean of a number over all done trials that have it, None where there is none, and of
    how many."""
    result: dict[str, list[tuple[Any, float | None, int]]] = {}
    for name, values in space.axes.items():
        rows = []
        for value in values:
            found = [
                t.numbers[number]
                for t in trials
                if t.state == DONE and t.point.get(name) == value and number in t.numbers
            ]
            rows.append((value, sum(found) / len(found) if found else None, len(found)))
        result[name] = rows
    return result


@dataclasses.dataclass(frozen=True)
class PointChange:
    """A point that two explorations have. before, after: of the objective, less is better; slower: by what part."""

    point: Mapping[str, Any]
    before: str
    after: str
    slower: float


def check(before: Sequence[Trial], after: Sequence[Trial], objective: Objective) -> list[PointChange]:
    """Point by point, what another exploration came to. A point that was done and is no more counts as infinitely
    slower, one that is done only now as infinitely faster; the worst first. Raises `InputError` where no point is in
    both."""
    then = {digest(dict(t.point)): t for t in before}
    both = [(then[key], t) for t in after if (key := digest(dict(t.point))) in then]
    if not both:
        raise InputError("the two explorations have no point in common")
    changes = []
    for a, b in both:
        values = [t.numbers.get(objective.number) if t.state == DONE else None for t in (a, b)]
        if values == [None, None]:
            continue
        if values[0] is None or values[1] is None:
            slower = -float("inf") if values[0] is None else float("inf")
        else:
            first, second = (values[0], values[1]) if objective.direction == "min" else (values[1], values[0])
            slower = second / first - 1.0 if first else 0.0
        texts = [t.state if v is None else f"{v:,.6g}" for t, v in zip((a, b), values, strict=True)]
        changes.append(PointChange(b.point, texts[0], texts[1], slower))
    return sorted(changes, key=lambda c: -c.slower)
