"""`session.explore` and `Explore`: a model tried on many devices, batches and formats, with sessions behind the
points."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.diff import Diff, compare_sides, side_of_result
from tbuda_lab.core.errors import InputError, not_supported
from tbuda_lab.core.explore import (
    NUMBERS,
    Exploration,
    Plan,
    Progress,
    Space,
    Trial,
    front,
    make_space,
    parse_device,
    parse_objective,
    parse_requirement,
    plan_of,
    read,
    read_placement,
)
from tbuda_lab.core.explore.exploration import BUDGET
from tbuda_lab.core.explore.space import DEVICE, HARVEST, OVERRIDES
from tbuda_lab.core.files import atomic_file, atomic_text, csv_text
from tbuda_lab.core.options import CompileOptions, options_from_json, options_to_json
from tbuda_lab.core.overrides import Override, from_json, to_json
from tbuda_lab.core.session.journal import read_journal, read_overrides, replay

if TYPE_CHECKING:
    from tbuda_lab.core.session.compile_session import CompileSession

DEFAULT_OBJECTIVES = ("samples/s:max", "chips:min")


class Explore:
    """Points of a space, each a compile of one session's model; see `Session.explore`.

    space: axis -> values; an axis is an option of `CompileOptions`, "devices" (expressions, `parse_device`), "harvest"
    (further rows), or "overrides": {name: list of overrides, or a file of them}. engine: None or 0 (this process), a
    number of workers, "auto", the address or file of a Dask scheduler, or a Client. out: the folder, by default a new
    temporary one.
    """

    def __init__(
        self,
        session: CompileSession,
        space: Mapping[str, Any] | Space,
        objectives: Sequence[str] = DEFAULT_OBJECTIVES,
        require: Sequence[str] = (),
        sampler: str = "grid",
        budget: int = BUDGET,
        engine: Any = None,
        seed: int = 0,
        out: str | Path | None = None,
        trial_seconds: float | None = None,
        send_weights: bool = False,
        cache: bool = True,
        on_change: Callable[[Explore], None] | None = None,
    ) -> None:
        """Opens the folder; nothing is compiled. Raises `InputError` for what cannot be explored."""
        if isinstance(objectives, str) or isinstance(require, str):
            raise InputError('objectives and require are lists of texts, such as ["samples/s:max"]')
        asked = space if isinstance(space, Space) else space_of(session, space)
        plan = Plan(
            asked,
            tuple(map(parse_objective, objectives)),
            tuple(map(parse_requirement, require)),
            sampler,
            budget,
            seed,
            _base_options(session, asked),
            session.source,
            trial_seconds,
            session.device.name if DEVICE not in asked.axes else next(iter(asked.axes[DEVICE])),
        )
        self._begin(session, plan, out, engine, send_weights, cache, on_change)

    @classmethod
    def resume(cls, session: CompileSession, folder: str | Path, engine: Any = None, **settings: Any) -> Explore:
        """The exploration of a folder, of the same model. settings: send_weights, cache, on_change. Raises `InputError`
        for a folder of another model."""
        self = cls.__new__(cls)
        plan = plan_of(read(Path(folder)).header, str(folder))
        settings = {"send_weights": False, "cache": True, "on_change": None} | settings
        self._begin(session, plan, folder, engine, **settings)
        return self

    def _begin(
        self,
        session: CompileSession,
        plan: Plan,
        out: str | Path | None,
        engine: Any,
        send_weights: bool,
        cache: bool,
        on_change: Callable[[Explore], None] | None,
    ) -> None:
        workers: int | str = 0
        scheduler = None
        if engine == "auto" or (isinstance(engine, int) and not isinstance(engine, bool)):
            workers = engine
        elif engine is not None:
            scheduler = engine
        self.session, self.plan = session, plan
        self._temporary = tempfile.TemporaryDirectory(prefix="tbuda-explore-") if out is None else None
        self.folder = Path(self._temporary.name if self._temporary is not None else str(out))
        self._listeners = [] if on_change is None else [on_change]
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._running = False
        self._work = Exploration(
            plan,
            session.trace(),
            self.folder,
            session.sample_inputs,
            workers=workers,
            scheduler=scheduler,
            send_weights=send_weights,
            cache=cache,
            on_change=lambda _: self._tell(),
        )

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener(self)

    def on_change(self, listener: Callable[[Explore], None]) -> Callable[[], None]:
        """Call back after every trial, in the thread that works; returns the way to stop it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # -- running -------------------------------------------------------------------------------------------------------
    def run(self) -> list[Trial]:
        """Try what has no row yet, in this thread. Raises `Cancelled` once it was cancelled."""
        return self._work.run()

    def start(self) -> Explore:
        """As `run`, in the background."""
        if self._running:
            return self

        def work() -> None:
            try:
                self._work.run()
            except BaseException as error:
                self._error = error
            finally:
                self._running = False  # before the last picture, which says that it is over
            self._tell()

        self._error, self._running = None, True
        self._thread = threading.Thread(target=work, name="tbuda-explore-client", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout: float | None = None) -> list[Trial]:
        """The rows once it is over. Raises what it raised (`Cancelled` after `cancel`), or `TimeoutError`."""
        if self._thread is None:
            return self.run()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the exploration is not over after {timeout} s")
        if self._error is not None:
            raise self._error
        return self.trials

    @property
    def running(self) -> bool:
        """Whether it is at work in the background."""
        return self._running

    def cancel(self) -> None:
        """Stop; rows that are there stay, trials at work leave none, and the folder can be gone on with."""
        self._work.cancel()

    def close(self) -> None:
        """Stop, and let another process go on with the folder."""
        self.cancel()
        if self._thread is not None:
            self._thread.join(30)
        self._work.close()

    # -- answers -------------------------------------------------------------------------------------------------------
    @property
    def trials(self) -> list[Trial]:
        """All rows by number."""
        return self._work.trials

    @property
    def stale(self) -> tuple[Trial, ...]:
        """Rows that another version of this package made."""
        return self._work.stale

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._work.progress

    def front(self, *objectives: str) -> list[Trial]:
        """Trials that hold what is required and that no other beats in all objectives (by default the plan's)."""
        wanted = tuple(map(parse_objective, objectives)) or self.plan.objectives
        return front(self.trials, wanted, self.plan.requirements)

    def trial(self, key: str | int) -> Trial:
        """A trial by its number, or by the beginning of its key. Raises `InputError`."""
        found = [t for t in self.trials if (t.n == key if isinstance(key, int) else t.key.startswith(key))]
        if len(found) != 1:
            raise InputError(f"{key!r} is {'no' if not found else 'not one'} trial of this exploration")
        return found[0]

    def open(self, key: str | int) -> CompileSession:
        """A session on a trial's device with its options and overrides; nothing is compiled yet, and compiling comes to
        the trial's placement. It answers why a point was refused, too."""
        point = self.trial(key).point
        base = self.plan.space
        options = CompileOptions(**options_from_json(base.options(dict(point), self.plan.options)))
        overrides = [from_json(record) for record in base.override_sets.get(point.get(OVERRIDES, ""), ())]
        device = self.device_of(point)
        own = self.session
        session = type(own)(own.model, own.sample_inputs, device, options, overrides, own.name)
        session.trace_as(own)
        session.source = tuple(self.words(key))
        return session

    def device_of(self, point: Mapping[str, Any]) -> DeviceSpec:
        """The device of a point. Raises `InputError` where no row is left."""
        return parse_device(str(point.get(DEVICE, self.plan.device)), point.get(HARVEST, 0))

    def compare(self, a: str | int, b: str | int) -> Diff:
        """What differs between the placements of two trials. Compiles both."""
        sides = []
        for key in (a, b):
            session = self.open(key)
            result = session.compile()
            sides.append(side_of_result(result, f"trial {self.trial(key).n}", session.time(result)))
        return compare_sides(*sides)

    def export(self, key: str | int, path: str | Path | None = None) -> str:
        """A trial's placement as a file of overrides, epochs and shapes; returns its text, and writes it if there is a
        path."""
        text = overrides_text(self.folder, self.trial(key))
        if path is not None:
            with atomic_text(path) as file:
                file.write(text)
        return text

    def words(self, key: str | int) -> list[str]:
        """The words of `tbuda compile` that make a trial, but for overrides."""
        return command_words(self.plan, self.trial(key).point)

    def to_csv(self, path: str | Path) -> Path:
        """One line a trial: number, key, state, reason, axes, numbers."""
        with atomic_text(path) as file:
            file.write(csv_of(self.plan, self.trials))
        return Path(path)

    def to_parquet(self, path: str | Path) -> Path:
        """As `to_csv`. Raises `NotSupported` where pyarrow is not there."""
        write_parquet(self.plan, self.trials, Path(path))
        return Path(path)


def overrides_text(folder: Path, trial: Trial) -> str:
    """A trial's placement as a file of overrides, epochs and shapes. Raises `InputError`."""
    record = read_placement(folder, trial)
    return json.dumps({"format": record["format"], "overrides": record["overrides"]}, sort_keys=True) + "\n"


def space_of(session: CompileSession, space: Mapping[str, Any]) -> Space:
    """A space from what Python has. Raises `InputError`."""
    axes = dict(space)
    sets: dict[str, list[Any]] = {}
    named = axes.get(OVERRIDES)
    if named is not None:
        if not isinstance(named, Mapping):
            raise InputError("overrides is a mapping: {name: list of overrides, or a file of them}")
        for name, value in named.items():
            overrides = file_overrides(Path(value)) if isinstance(value, str | Path) else tuple(value)
            if not all(isinstance(o, Override) for o in overrides):
                raise InputError(f"overrides {name!r}: a list of Override, or the path of a file")
            sets[str(name)] = [to_json(o, session.names_of) for o in overrides]
        axes[OVERRIDES] = list(sets)
    return make_space(axes, sets)


def point_values(name: str, words: Sequence[str]) -> list[Any]:
    """Values of an axis from texts: whole numbers for batches and harvested rows, else as they are. Raises
    `InputError`."""
    if name not in ("batches", "harvest"):
        return list(words)
    wrong = next((word for word in words if not word.isdecimal()), None)
    if wrong is not None:
        raise InputError(f"{name}: {wrong!r} is not a whole number")
    return [int(word) for word in words]


def file_overrides(path: Path) -> tuple[Override, ...]:
    """The overrides of a file: of a `*.buda.json` session the last ones, else a file of overrides. Raises
    `InputError`."""
    if not path.name.endswith(".buda.json"):
        return read_overrides(path)
    from tbuda_lab.core.compiler import Request
    from tbuda_lab.core.session.history import History

    journal = read_journal(path)
    first = journal.header.overrides
    history = History(Request(journal.header.options, first, first))
    replay(history, journal.actions)
    return history.state.overrides


def _base_options(session: CompileSession, space: Space) -> dict[str, Any]:
    """The session's options that no axis says. Raises `NotSupported` for one that trains."""
    if session.options.training is not None:
        raise not_supported("exploring a session that trains", "explore the inference of the model")
    if session.overrides and OVERRIDES not in space.axes:
        raise InputError('the session has overrides: name them in the space, overrides={"mine": session.overrides}')
    return {k: v for k, v in options_to_json(session.options).items() if k not in space.axes}


def command_words(plan: Plan, point: Mapping[str, Any]) -> list[str]:
    """See `Explore.words`."""
    words = [*(plan.source[:1] or ("MODEL.py:FUNCTION",)), "--device", str(point.get(DEVICE, plan.device))]
    if point.get(HARVEST):
        words[-1] += f"+harvest={point[HARVEST]}"
    for name, value in plan.space.options(dict(point), plan.options).items():
        text = str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)
        words += ["--set", f"{name}={','.join(map(str, value)) if isinstance(value, list) else text}"]
    return words


def table_of(plan: Plan, trials: Sequence[Trial]) -> tuple[list[str], list[list[Any]]]:
    """Names of columns and one row a trial."""
    known = dict.fromkeys(name for t in trials for name in t.numbers)
    numbers = sorted(known, key=lambda name: list(NUMBERS).index(name) if name in NUMBERS else len(NUMBERS))
    axes = list(plan.space.axes)
    rows = [
        [
            t.n,
            t.key,
            t.state,
            "" if t.reason is None else f"{t.reason['type']}: {t.reason['text']}",
            *(_cell(t.point.get(a)) for a in axes),
            *(t.numbers.get(name) for name in numbers),
        ]
        for t in trials
    ]
    return ["n", "key", "state", "reason", *axes, *numbers], rows


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else json.dumps(value)


def csv_of(plan: Plan, trials: Sequence[Trial]) -> str:
    """See `Explore.to_csv`."""
    head, rows = table_of(plan, trials)
    return csv_text([head, *(["" if value is None else value for value in row] for row in rows)])


def write_parquet(plan: Plan, trials: Sequence[Trial], path: Path) -> None:
    """See `Explore.to_parquet`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise not_supported("parquet without pyarrow", "install tbuda-lab[parquet], or write CSV") from None
    head, rows = table_of(plan, trials)
    columns = {}
    for k, name in enumerate(head):
        column = [row[k] for row in rows]
        kinds = {type(v) for v in column if v is not None}
        columns[name] = column if len(kinds) <= 1 else [None if v is None else str(v) for v in column]
    with atomic_file(path) as file:
        pyarrow.parquet.write_table(pyarrow.table(columns), file)
