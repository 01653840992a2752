"""One model, one device, one current result: compiled, edited, asked about, run and trained."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, overload

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.analysis.memory import DramMap, L1Map
from tbuda_lab.core.analysis.noc import LinkMap
from tbuda_lab.core.compiler import STAGES, CompileResult, Request
from tbuda_lab.core.compiler.cache import CompileCache
from tbuda_lab.core.compiler.pipeline import Pipeline
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.diff import Diff
from tbuda_lab.core.epochsim import BatchTime, EpochTrace
from tbuda_lab.core.errors import Diagnostic, InputError, TbudaError, not_supported
from tbuda_lab.core.explore.chips import ChipRun
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, refuse_malformed
from tbuda_lab.core.passes.pipeline import PassTrace
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.run_control import RunControl
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.compiles import Compiles, as_sample
from tbuda_lab.core.session.edits import Edits, Found
from tbuda_lab.core.session.explain import OpCard, Reasons
from tbuda_lab.core.session.frames import Frames
from tbuda_lab.core.session.history import EditStep, History
from tbuda_lab.core.session.islands import Islands
from tbuda_lab.core.session.journal import Journal, read_journal, replay
from tbuda_lab.core.session.legal import LegalTable, legal_of
from tbuda_lab.core.session.op_checks import OpChecks
from tbuda_lab.core.session.placements import PlacementRow, Placements
from tbuda_lab.core.session.profile import Profile
from tbuda_lab.core.session.queries import Queries
from tbuda_lab.core.session.records import OverrideRecord
from tbuda_lab.core.session.runs import Runs
from tbuda_lab.core.session.state import SessionState
from tbuda_lab.core.session.suggest import Suggestion, Told
from tbuda_lab.core.session.training import Training, TrainingStep
from tbuda_lab.core.session.whatif import WhatIf
from tbuda_lab.core.trainer import Trainer
from tbuda_lab.core.verification import MIN_PCC, Comparison

if TYPE_CHECKING:
    from tbuda_lab.core.tti import ModuleFacts


class CompileSession:
    """What `Session` does with one model on one device: traces, compiles, edits, answers, runs and trains.

    Its parts (`compiles`, `edits`, `queries`, `runs`, `training`, `frames`) take its state and the calls that they use;
    the calls here lead to them. What is built on a session, such as exports and exploration, takes this class, and
    `Session` adds it.
    """

    def __init__(
        self,
        model: Any,
        sample_inputs: Any = None,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
        overrides: Sequence[Override] = (),
        name: str = "model",
        *,
        keep_epochs: bool = True,
        journal: str | Path | None = None,
        cache: bool = True,
    ) -> None:
        model = frontend.open_model(model, name)
        if sample_inputs is None and hasattr(model, "sample_inputs"):
            sample_inputs = model.sample_inputs()
        spec = device if isinstance(device, DeviceSpec) else load_device(device)
        first = tuple(overrides)
        refuse_malformed(first)
        self._state = state = SessionState(
            model,
            as_sample(sample_inputs),
            spec,
            name,
            History(Request(options or CompileOptions(), first, first)),
            Pipeline(spec, keep_epochs, CompileCache() if cache else None),
        )
        state.journal = None if journal is None else Journal(Path(journal), state.header())
        if journal is not None and Path(journal).exists():  # a cell that is run again goes on where it was
            replay(state.history, read_journal(Path(journal)).actions)
        self.compiles = compiles = Compiles(state)
        self.frames, self.edits = Frames(state, compiles), Edits(state, compiles)
        self.placement_table = Placements(state, compiles)
        self.queries = Queries(state, compiles, self.placement_table)
        self.training = Training(state, compiles)
        self.runs = Runs(state, compiles, self.training)
        _register(self)

    def __copy__(self) -> NoReturn:
        """Refused, as `copy.deepcopy` and pickle are: parts of a session hold it, threads and locks."""
        raise not_supported(
            "a copy of a session",
            "Session(session.model, session.sample_inputs, session.device, session.options, session.overrides) is "
            "another one; a *.buda.json journal and `export_tti` keep one in files",
        )

    def __deepcopy__(self, _: Any) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        self.__copy__()

    # -- facts -------------------------------------------------------------------------------------------------
    @property
    def model(self) -> Any:
        """The model, as it was opened. Another one in its place is what `verify` compares with."""
        return self._state.model

    @model.setter
    def model(self, model: Any) -> None:
        self._state.model = model

    @property
    def sample_inputs(self) -> Any:
        """One sample, as the model's forward takes it."""
        return self._state.sample_inputs

    @property
    def device(self) -> DeviceSpec:
        """The device that is compiled for."""
        return self._state.device

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._state.name

    @property
    def source(self) -> tuple[str, ...]:
        """Words of a command line that open the same session, if there is one."""
        return self._state.source

    @source.setter
    def source(self, words: Sequence[str]) -> None:
        self._state.source = tuple(words)

    @property
    def image_modules(self) -> tuple[ModuleFacts, ...]:
        """Of a session on a device image: the modules that its graph was traced from."""
        return self._state.image_modules

    @property
    def rev(self) -> int:
        """How many results there were."""
        return self._state.rev

    @property
    def result(self) -> CompileResult | None:
        """The last good compile. Another one in its place (with a netlist that was changed by hand, say) is what runs
        and checks take until the next compile."""
        return self._state.result

    @result.setter
    def result(self, result: CompileResult) -> None:
        self._state.result = result

    @property
    def stale(self) -> bool:
        """Whether options or overrides have changed since `result`."""
        return self._state.stale

    @property
    def timings(self) -> dict[str, float]:
        """Seconds that the stages of `result` took, by name."""
        return self._state.timings

    @property
    def problems(self) -> list[Diagnostic]:
        """What the last compile had to say, or why it failed."""
        return self._state.problems

    @property
    def error(self) -> TbudaError | None:
        """Why the last compile or run failed; None where it did not."""
        return self._state.error

    @property
    def control(self) -> RunControl:
        """Pauses and steps runs, from another thread."""
        return self._state.control

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages in the order in which "stage" events report them."""
        return ("trace", *STAGES, "run")

    @property
    def work(self) -> dict[str, int]:
        """How often each kind of work was done so far: "passes", "lower", "table" (candidates of one op), "place" (the
        whole model), "edit" and "regraph" (a placement carried over to edits, to an edited graph), "epoch" (epochs that
        those made anew)."""
        return dict(self._state.pipeline.runs)

    @property
    def request(self) -> Request:
        """What the next compile is asked for: the key of its result."""
        return self._state.history.state

    @property
    def options(self) -> CompileOptions:
        """The options of the next compile."""
        return self.request.options

    @property
    def overrides(self) -> tuple[Override, ...]:
        """The overrides of the next compile, in the order they were made."""
        return self.request.overrides

    def on(self, event: str, listener: Callable[..., None]) -> Callable[[], None]:
        """Add a listener; returns a function that removes it."""
        return self._state.events.on(event, listener)

    def cancel(self) -> None:
        """Stop a running compile or run at the next safe point; it raises `Cancelled`, the last result stays."""
        self._state.stopped = True
        self._state.cancel.set()

    # -- compiling ---------------------------------------------------------------------------------------------
    def trace_as(self, other: CompileSession) -> None:
        """Take the graph that a session of the same model and inputs was traced to. Raises `InputError` for another
        model."""
        if other.model is not self.model:
            raise InputError("the graph of another model is not this one's")
        self._state.traced, self._state.traced_contents = other.trace(), other._state.traced_contents

    def trace(self) -> Graph:
        """The nD graph of the model; traced once."""
        return self.compiles.trace()

    @overload
    def compile(self) -> CompileResult: ...
    @overload
    def compile(self, upto: str) -> CompileResult | None: ...
    def compile(self, upto: str = "netlisted") -> CompileResult | None:
        """Compile with the current options and overrides, unless done already. Raises the stages' typed errors.

        Only what depends on what changed is done again. An edit made meanwhile by another thread stops it with
        `Cancelled`. upto: one of `REACHED` to stop there ("placed": every op has its place, queues have no addresses
        yet); the result is then None unless there is a current one.
        """
        return self.compiles.compile(upto)

    @property
    def stage(self) -> str:
        """How far the current options and overrides have come: one of `REACHED`."""
        return self.compiles.stage

    def preview(self, state: Request, cancel: threading.Event | None = None) -> CompileResult:
        """The result of a state that is not made (see `compiles.state_after`); the current one stays what it is.

        It is kept like any other, so that making those edits afterwards is a lookup. Raises what compiling raises, and
        `Cancelled` once `cancel` is set.
        """
        return self.compiles.preview(state, cancel)

    def first_placement(self) -> PlacedOps | None:
        """Before anything is compiled: a legal placement that is soon there, with the options `FIRST`. Applying
        `SetOptions(**FIRST)` keeps it; a compile without that searches for a better one. None where there is a result,
        where the placement is known from before, for small models, and for training. Raises what tracing and
        placing raise."""
        return self.compiles.first_placement()

    def compile_async(self) -> threading.Thread:
        """Compile in a thread and return it at once. A running one is cancelled; `result` stays until it is done.

        What it raises ends in `error` and `problems`, and is told by "problem" events.
        """
        return self.compiles.compile_async()

    def wait(self, timeout: float | None = None) -> CompileResult:
        """The result of the current options and overrides: joins the background compile, or starts one where none is at
        work. Raises what it raised, `Cancelled` after `cancel`, or `TimeoutError` after `timeout` seconds."""
        return self.compiles.wait(timeout)

    def graph(self, stage: str = "lowered") -> Graph:
        """The graph after a stage: "traced", "passed" or "lowered"."""
        return self.compiles.graph(stage)

    # -- editing -----------------------------------------------------------------------------------------------
    def apply(self, *edits: Command | Override, label: str = "", source: str = "code") -> None:
        """Make edits, all of them one undo step; the next `compile` honours them. A running compile is cancelled.

        An `Override` is taken as it is. Patterns and predicates are resolved to names when they are journaled.
        """
        self.edits.apply(*edits, label=label, source=source)

    def attempt(self, *edits: Command | Override, label: str = "", source: str = "code") -> CompileResult:
        """Make edits and compile. If that fails they are as if they had never been made: neither undo nor redo know
        them, and what could be done again still can. Raises what compiling raises; a newer edit makes it `Cancelled`.
        """
        return self.edits.attempt(*edits, label=label, source=source)

    def configure(self, **changes: Any) -> None:
        """Change options by name (see `CompileOptions`); the next `compile` uses them."""
        self.edits.configure(**changes)

    def optimise(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        found: Found | None = None,
        enough: threading.Event | None = None,
        islands: Islands | None = None,
    ) -> tuple[tuple[int, float], ...]:
        """Look for another lowering that is faster (`core.compiler.lowering_search`), choose all epochs anew and search
        on from there: so many steps, or as many as the seconds allow. Returns the curve: (steps done, cycles per input
        then), at the start, with the other lowering, at every gain and at the end; it never rises.

        It is one edit of options: of those of the lowering that were changed (`op_parts`, `fuse_reduces`,
        `op_rows`) and of `optimise_steps`. The same options find the same placement again, on any machine; so
        does the same number of steps, which no more lowerings than that are tried for. Ops that overrides address stay
        what they are. Edits that come later keep the epochs found. `cancel` stops it and changes nothing.

        With seconds it can be followed: found(steps done, cycles per input, placed) is called at every gain, placed()
        makes its placement; once `enough` is set it ends with what it has found, as the steps that it has done.

        islands: `Islands(4, rounds=10)` searches `steps` steps side by side, in this process or on workers, and goes on
        from the best after every round; the option `optimise_rounds` says which rounds led to it. The number of workers
        makes no difference to what is found.
        Raises `InputError` where neither seconds nor steps are given, and what compiling raises.
        """
        if islands is None:
            return self.edits.optimise(seconds, steps, found, enough)
        if seconds is not None or steps is None or found is not None or enough is not None:
            raise InputError(
                "islands search by steps, so that what they find does not depend on time: give steps alone"
            )
        return self.edits.optimise_by_islands(steps, islands)

    def transaction(self, label: str) -> contextlib.AbstractContextManager[None]:
        """All edits inside are one undo step; an exception takes them back."""
        return self.edits.transaction(label)

    def load_overrides(self, path: str | Path) -> tuple[Override, ...]:
        """Add the overrides of a JSON file (see `export_overrides`) as one undo step; returns them.

        One for the same thing as before takes its place. Raises `InputError` for a file that holds none.
        """
        return self.edits.load_overrides(path)

    def gesture(self, text: str) -> None:
        """Do what a sentence says: "resize matmul_14 to 4x4". Raises `InputError` listing the grammar."""
        self.edits.gesture(text)

    def undo(self) -> str:
        """Take the last step back; returns its label ("" when there is none). Its old result is looked up."""
        return self.edits.undo()

    def redo(self) -> str:
        """Do again what was taken back last; returns its label ("" when there is nothing)."""
        return self.edits.redo()

    def looked_up(self, what: str) -> CompileResult | None:
        """The result that `undo` or `redo` (what: "undo" or "redo") would come to; None where there is no such step, or
        nobody knows its result any more. Nothing is changed."""
        return self.edits.looked_up(what)

    @property
    def history(self) -> tuple[EditStep, ...]:
        """The steps done so far, oldest first."""
        return self.edits.history

    @property
    def future(self) -> tuple[EditStep, ...]:
        """The steps that `redo` would do, next first."""
        return self.edits.future

    @property
    def journal_path(self) -> Path | None:
        """The file that every edit is written to, if there is one."""
        return self.edits.journal_path

    @property
    def unedited(self) -> bool:
        """Options and overrides are those the session was opened with."""
        return self.edits.unedited

    def names_of(self, override: Override) -> tuple[str, ...]:
        """The names an override addresses in this model, in the model's order."""
        return self.edits.names_of(override)

    def save(self, path: str | Path) -> Path:
        """Write the edits as a `*.buda.json` file, and go on writing every edit to it."""
        return self.edits.save(path)

    def to_python(self) -> str:
        """The current overrides, and options that edits changed, as calls of PyBuda's `config` module, one per line.

        A pattern or predicate gives one call for each name that it matches in the last result. Options that PyBuda does
        not have stand in a comment.
        """
        return self.edits.to_python()

    def checkpoint(self, name: str) -> None:
        """Remember the current options and overrides under a name."""
        self.edits.checkpoint(name)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints, in the order they were made."""
        return self.edits.checkpoints

    @property
    def placements(self) -> tuple[PlacementRow, ...]:
        """What this session has come to, oldest first: every state that was compiled, checkpoints, netlist files that
        were opened to compare with. What each takes is kept in the journal; `diff` takes any two names, `go_back`
        those that are no files."""
        return self.placement_table.rows

    def go_back(self, name: str) -> str:
        """Back to a checkpoint or a placement of that name, as one step that undo takes back; returns its label ("" if
        it is the present state). The next `compile` looks its result up, or makes it. Raises `InputError`."""
        return self.edits.go_back(name)

    def open_placement(self, path: str | Path) -> PlacementRow:
        """A netlist file as one more placement to compare with, under its name; nothing of it is taken over, and the
        journal does not keep it. Raises `InputError` or `NetlistError` naming the file."""
        return self.placement_table.open_file(path)

    # -- asking ------------------------------------------------------------------------------------------------
    @property
    def records(self) -> tuple[OverrideRecord, ...]:
        """For every override: what it asked, for how many ops, and what they got; after a failed compile, why not."""
        return self.queries.records

    def placed(self, state: Request | None = None, cancel: threading.Event | None = None) -> PlacedOps:
        """The placement of a state without queues; may place what is not placed yet. `Cancelled` once `cancel` is
        set."""
        return self.compiles.placed(state, cancel)

    def time(self, result: CompileResult | None = None) -> BatchTime:
        """How long a batch takes that the model is compiled for, simulated: the time that every view shows. Compiles
        what is not compiled yet. result: another one of this session, by default the current one."""
        return self.compiles.time(result)

    def legal(self, op: str) -> LegalTable:
        """Every shape an op could have: verdict, cycles, memory, and where it could stand. Raises `InputError`."""
        return legal_of(self.compiles, op)

    def whatif(self, *edits: Command | Override, queues: bool = True, cancel: threading.Event | None = None) -> WhatIf:
        """What edits would do, without doing them. Raises what compiling them would raise.

        queues: place them too and say what they take of DRAM; without them it answers sooner. cancel: once it is set,
        `Cancelled` is raised at the next epoch.
        """
        return self.compiles.whatif(*edits, queues=queues, cancel=cancel)

    def suggest(
        self,
        n: int = 10,
        progress: Told | None = None,
        cancel: threading.Event | None = None,
        seconds: float | None = None,
    ) -> list[Suggestion]:
        """The best single edits there are, by cycles saved over all epochs, each one checked by `whatif`.

        progress: is told the best so far and the fraction of the search that is done. cancel: once it is set,
        `Cancelled` is raised. seconds: after that time the best so far are returned; without it the same placement
        gives the same.
        """
        return self.queries.suggest(n, progress, cancel, seconds)

    def profile(self, edits: Sequence[Suggestion] | int = 0) -> Profile:
        """Where the simulated time of the batch goes, by op and module, and what bounds each; see `Profile`.

        edits: suggestions to assign to the ops, or how many to look for (`suggest`), which takes a while.
        """
        return self.queries.profile(edits)

    def why(self, op: str) -> Reasons:
        """Why an op stands as it does. Raises `InputError` for a name that is not placed."""
        return self.queries.why(op)

    def passes(self) -> PassTrace:
        """Every pass with the graph after it and what it changed; runs them again when the options are new."""
        return self.queries.passes()

    def l1(self, op: str) -> L1Map:
        """The buffers of an op in the L1 of its cores. Raises `InputError` for a name that is not placed."""
        return self.queries.l1(op)

    def dram(self) -> DramMap:
        """Where every queue lies in DRAM or host memory, when it is needed, and what is asked of the channels."""
        return self.queries.dram()

    def links(self, epoch: int, chip: int | None = None, noc: str = "both") -> LinkMap:
        """What the links of the NoCs carry in an epoch, estimated: netlists assign no NoC.

        chip: that chip in the epoch's time, where several run together; noc: "0" or "1" for everything over that one,
        "both" for each transfer over the one with the shorter way. Raises `InputError`.
        """
        return self.queries.links(epoch, chip, noc)

    def diff(self, a: str, b: str = "now") -> Diff:
        """What differs between two checkpoints; compiles what is not compiled yet.

        "now" is the current state, "previous" the one before the last step, "start" the one the session was opened
        with; a checkpoint of that name comes first.
        """
        return self.queries.diff(a, b)

    # -- running -----------------------------------------------------------------------------------------------
    def timeline(self, batch: int = 1, per_run: int | None = None) -> EpochTrace:
        """The current placement in time for `batch` inputs: see `epochsim.simulate`. The last few are kept.

        per_run: inputs that each epoch takes before the next one follows; by default all of them. May be called while
        the session runs. Raises `ValueError` for a batch below 1, and what `compile` raises before there is a result.
        """
        return self.runs.timeline(batch, per_run)

    def verify_ops(
        self, inputs: Any = None, mode: str = "golden", min_pcc: float = MIN_PCC, *, runner: Runner | None = None
    ) -> OpChecks:
        """Run one sample and compare every op's tensor with torch in float32: see `op_checks.check_ops`.

        runner: a runner of the current result, to look at what it holds. Raises what the run raises.
        """
        return self.runs.verify_ops(inputs, mode, min_pcc, runner=runner)

    def run(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[list[torch.Tensor]]:
        """Run samples on the simulated device (default: the sample inputs, repeated until they fill a microbatch);
        outputs per sample, in order.

        `control` pauses and steps it, from another thread; "live" events tell how it goes. break_below: compare every
        op with torch as it comes, for the first sample, and pause behind the first one that correlates less; a
        "checked" event then tells what was compared (and another one at the end), `control.resume()` goes on.
        """
        return self.runs.run(inputs, mode, break_below=break_below)

    def run_on_workers(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, workers: int = 0, scheduler: Any = None
    ) -> ChipRun:
        """As `run`, each chip on a worker, with queues between chips as messages; outputs are bit for bit those of
        `run`. workers: processes of this machine (they need Dask), 0: a thread a chip; scheduler: address, file or
        Client of Dask, to which netlist, weights and inputs go. The answer knows what each chip did when, and who
        waited for whom: it shows itself in a notebook. `cancel` ends it.

        Raises `NotSupported` for a model that trains, keeps state or has a part on the host, and `WorkerLost`."""
        return self.runs.run_on_workers(inputs, mode, workers=workers, scheduler=scheduler)

    def verify(self, inputs: Any = None, mode: str = "golden", *, break_below: float | None = None) -> list[Comparison]:
        """Run one sample on the device (repeated until it fills a microbatch) and compare every output with that of the
        model itself: a copy, run eagerly in the mode that it is in, twice. Where its second answer is another one, the
        device runs again and is compared with that, too. break_below: see `run`.
        """
        return self.runs.verify(inputs, mode, break_below=break_below)

    # -- training ----------------------------------------------------------------------------------------------
    @property
    def trainer(self) -> Trainer:
        """The current compile with its weights on the device; another compile takes weights and state over.

        Raises `InputError` for a session that was not made by `for_training`.
        """
        return self.training.trainer

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return self.training.learning_rate

    def set_learning_rate(self, value: float) -> None:
        """The rate from the next step on; 0.0 is one. May be called while the session trains."""
        self.training.set_learning_rate(value)

    def train(self, batches: Iterable[tuple[Any, Any]]) -> list[TrainingStep]:
        """One step for each batch: forward, backward, optimizer. Emits "trained"(TrainingStep) after each.

        batches: (inputs, targets) as `for_training` was given. `control` pauses between steps, and `control.step_input`
        goes one on; `cancel` ends it with `Cancelled` between ops. Raises `InputError` for a batch that does not fit.
        """
        return self.training.train(batches)

    @property
    def training_steps(self) -> tuple[TrainingStep, ...]:
        """Every step that this session trained, in order."""
        return tuple(self.training.steps)

    def check_gradients(self, inputs: Any, targets: Any) -> list[Comparison]:
        """The gradient of every weight for one batch, from the netlist, against that of the model itself: copies of the
        modules, run eagerly in the mode that they are in, with the weights of the device. A weight that only one side
        has a gradient of is compared with zeros. Modules that keep something from one pass to the next are compared in
        a second pass as well. A PyBuda module, which has no code in torch, has its graph differentiated by torch."""
        return self.training.check_gradients(inputs, targets)

    def gradients_by_op(self, comparisons: Iterable[Comparison]) -> dict[str, float]:
        """What `check_gradients` says, by op: the lowest PCC of the gradients that an op makes or accumulates, and
        for forward ops that of the weights that they read. To be shown with `GraphView.overlay`."""
        return self.training.gradients_by_op(comparisons)

    def __getitem__(self, op: str) -> OpCard:
        """`session["matmul_14"]`: what there is to say of an op. Raises `InputError` with near names."""
        return self.queries.card(op)

    def _ipython_key_completions_(self) -> list[str]:
        return [] if self.result is None else list(self.result.placement.ops)


_NUMBERS = itertools.count(1)
_SESSIONS: weakref.WeakValueDictionary[int, CompileSession] = weakref.WeakValueDictionary()
_LISTENERS: list[Callable[[CompileSession], None]] = []


def _register(session: CompileSession) -> None:
    """Lists a new session."""
    _SESSIONS[next(_NUMBERS)] = session
    for listener in tuple(_LISTENERS):
        listener(session)


def live_sessions() -> dict[int, CompileSession]:
    """Living sessions by a number that no other has in this process, oldest first."""
    return dict(sorted(_SESSIONS.items()))


def on_session(listener: Callable[[CompileSession], None]) -> Callable[[], None]:
    """Call `listener(session)` for every session that is made; returns a function that removes it."""
    _LISTENERS.append(listener)
    return lambda: _LISTENERS.remove(listener)
