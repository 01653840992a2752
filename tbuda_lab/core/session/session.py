"""The interactive face of the compiler: a session with what is built on it: files, searches, profiles, exports."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.measured import MeasuredProfile
from tbuda_lab.core.measured.kernels import Estimate
from tbuda_lab.core.measured.overlay import MeasuredOverlay
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.core.session import exports
from tbuda_lab.core.session.compile_session import CompileSession
from tbuda_lab.core.session.compiles import GRAPH_STAGES, as_sample
from tbuda_lab.core.session.explore import Explore
from tbuda_lab.core.session.find_error import ErrorReport, find_error
from tbuda_lab.core.session.find_error.goldens import read_goldens
from tbuda_lab.core.session.measured import Measured
from tbuda_lab.core.session.opening import note_other_placement, read_opening, trace_training
from tbuda_lab.core.session.state import EVENTS
from tbuda_lab.core.session.tune import Target, TunedFormats, parse_target, tune_formats
from tbuda_lab.core.verification import MIN_PCC

__all__ = ["EVENTS", "GRAPH_STAGES", "Session", "as_sample"]


class Session(CompileSession):
    """Traces, compiles, runs, verifies and edits one model on one simulated device.

    model: a torch module (or a PyBuda module, an ONNX model or its file, which need no sample inputs where they declare
    all shapes); sample_inputs: a tensor or a tuple of them, dim 0 the microbatch. keep_epochs: edits are placed into
    the epochs there are (`optimise` chooses all anew); False places the whole model anew after every edit. journal: a
    `*.buda.json` file to which every edit is written; the edits that it holds are taken over, so that a notebook run
    again after a restart goes on where it was. cache: placements are kept on disk and found there again (see
    `compiler.cache`).

    `result` is the last good compile. After an edit it stays until the next one is done; `stale` is True meanwhile.

    Events (`on`): "stage"(name, fraction), "detail"(name, what a long stage is doing: "op 113 of 337"),
    "compiled"(result), "run"(done, total), "ran"(outputs), "problem"(diagnostic), "edited"(label) after every change of
    options or overrides, undo and redo included, "stale"(bool), "live"(LiveStep) at most four times a second while it
    runs, "checked"(OpChecks), "verified"(list of Comparison), "trained"(TrainingStep) after every step of `train`,
    "training"(TrainingProgress) then and when it pauses or ends, "explores"(Explore) when one was made,
    "cancelled"() when a compile or run stopped early,
    "measured"(MeasuredOverlay) when a profile was loaded.
    Listeners run in the thread that works.

    `compiles`, `edits`, `queries`, `runs` and `training` do the work; the calls here lead to them.
    """

    @functools.cached_property
    def _measured(self) -> Measured:
        return Measured(self._state, self.compiles)

    _exploration: Explore | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: Any = None,
        sample_inputs: Any = (),
        *,
        device: str | DeviceSpec | None = None,
        parameters: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Session:
        """A session with the edits of a `*.buda.json` file, which goes on to be its journal. Nothing is compiled.

        A `*.tti` image needs no model: the session works on the graph in it, and its inputs are made up
        (`sample_inputs` instead of them). device: instead of the file's; parameters: of an image that was written
        without weights, by name; settings: `keep_epochs`, `cache`. Raises `InputError` naming file, line and fault. A
        netlist has no model to compile: `widgets.open_netlist` shows one, `tbuda netlist run` runs one. An image of
        another program has none either: `widgets.open_tti` shows it.
        """
        opening = read_opening(Path(path), model, sample_inputs, device, parameters)
        begin = (opening.model, opening.sample_inputs, opening.device, opening.options, opening.overrides, opening.name)
        session = cls(*begin, journal=opening.journal, **settings)
        if opening.image is not None:
            session.source = (str(path),)
            session._state.image_modules = opening.image.modules
            if session.device == opening.image.device:
                note_other_placement(session._state, opening.image)
        return session

    @classmethod
    def for_training(
        cls,
        model: Any,
        sample_inputs: Any,
        loss: Any,
        sample_targets: Any,
        optimizer: str = "sgd",
        learning_rate: float = 0.01,
        *,
        options: CompileOptions | None = None,
        settings: Mapping[str, Any] | None = None,
        recompute: bool = False,
        **session: Any,
    ) -> Session:
        """A session on a model with a loss behind it, compiled for training.

        model, loss: torch modules or PyBuda modules; the loss takes the model's outputs and then the targets. Batches
        of `train` are of the size of the samples (dim 0). optimizer, settings: see `passes.autograd.optimizers`.
        session: what `Session` takes beside. Raises `ModelError`, `InputError` as tracing does.
        """
        chosen = optimizer_options(optimizer, learning_rate=float(learning_rate), **dict(settings or {}))
        training = TrainingOptions(chosen, recompute=recompute)
        opening = trace_training(model, sample_inputs, loss, sample_targets)
        whole = dataclasses.replace(options or CompileOptions(), training=training, microbatch=opening.batch)
        result = cls(opening.graph, opening.sample, options=whole, **session)
        result.training.trains(*opening.modules)
        result.set_learning_rate(learning_rate)
        return result

    # -- measured ----------------------------------------------------------------------------------------------
    def load_profile(self, path: str | Path | MeasuredProfile, kernels: str | Path | None = None) -> MeasuredOverlay:
        """Lay a measured run over the placement: TT-Metal's `ops_perf_results*.csv`, a trace of ours, of Chrome or
        Perfetto (`measured.read_profile`). kernels: a table of `tbuda calibrate --profile` for this profile, in
        place of the packaged one.

        Its ops are matched to those of the model by order, kind and shape. What could not be read stands in
        `match.profile.findings`, what has no partner in `match.unmatched` and `match.missing`. Raises `InputError`
        for a file that is none and for a profile of another model; nothing of the session changes then.
        """
        return self._measured.load(path, kernels)

    @property
    def measured(self) -> MeasuredOverlay | None:
        """The profile that was loaded last, over the present placement; None where none was."""
        return None if self._measured.profile is None else self._measured.overlay()

    def run_by_op(self, arch: str = "blackhole", cores: int = 64) -> Mapping[str, Estimate]:
        """By traced op, ns that it would take where ops run one by one from and to DRAM, as TTNN runs them. It is
        another stack than the pipelined placement of this session, and its times are never mixed with those. The
        table of kernels is that of the profile that is loaded, or the packaged one.

        Raises `UnknownDevice` for an arch that there is no machine of.
        """
        return self._measured.estimates(arch, cores)

    # -- searching ---------------------------------------------------------------------------------------------
    def find_error(
        self,
        inputs: Any = None,
        mode: str = "golden",
        *,
        goldens: str | Path | Mapping[str, Any] | None = None,
        min_pcc: float = MIN_PCC,
        cancel: threading.Event | None = None,
    ) -> ErrorReport:
        """Find the op that is wrong, and where it goes wrong first: the traced graph against the module run eagerly,
        the passed and the lowered graph each against the one before, and runs of the netlist without rounding, with
        formats and, with `mode="device"`, as the machine rounds. It ends with the first stage that is wrong.

        Where all are right it says what rounding costs, by op, and the format that would help. inputs: one sample, by
        default the sample inputs. goldens: values of ops from outside, by their names in the traced graph: a mapping,
        an `.npz`, a `.safetensors`, or JSON lines with names and values; with those of a card its tensors are judged.
        min_pcc: correlation below which an output with its formats is wrong. Nothing of the session is changed. Raises
        `InputError` for a session that trains, and what compiling and running raise.
        """
        return find_error(self._state, self.compiles, inputs, mode, read_goldens(goldens), min_pcc, cancel)

    def tune_formats(
        self,
        min_pcc: float = 0.99,
        inputs: Any = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> TunedFormats:
        """Find the cheapest formats and fidelities whose outputs still correlate with torch by `min_pcc`, and take
        them, as one edit of the option `precision` that `undo` takes back.

        The errors that cheaper forms of each op add are measured on its tensors for one sample (`inputs`, by default
        the sample inputs); candidates are ranked by error per cycle saved, and the longest beginning of that ranking
        that holds is found by compiling and running it, as the machine rounds (`verify(mode="device")`; the default of
        `verify` and `find_error` is golden mode, which rounds less). progress(step, about how many) is called before
        each trial; `cancel` (the event, or `Session.cancel`) ends it with `Cancelled`, and nothing is changed. Raises
        `InputError` where the formats there are do not hold `min_pcc`.
        """
        if not (isinstance(min_pcc, int | float) and 0 < min_pcc <= 1):
            raise InputError(f"min_pcc is a correlation above 0 and at most 1, not {min_pcc!r}")
        return tune_formats(self._state, self.compiles, self.edits, Target("pcc", min_pcc), inputs, progress, cancel)

    def tune(
        self,
        target: str = "pcc>=0.99",
        inputs: Any = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> TunedFormats:
        """As `tune_formats`, for a target of any measure of the outputs: "pcc>=0.999", "relative<=0.01" (L2),
        "max_abs<=0.1" or "ulps<=1e5". The result says which ops decided (`deciding`) and shows time against error
        (`svg`). Raises `InputError` for another target.
        """
        return tune_formats(self._state, self.compiles, self.edits, parse_target(target), inputs, progress, cancel)

    def explore(self, space: Mapping[str, Any], **settings: Any) -> Explore:
        """This model tried at many points: `explore({"devices": ["n150", "n300"], "batch": [1, 64]}).wait()`. Options
        that no axis says are this session's. settings: objectives, require, sampler, budget, engine, seed, out,
        trial_seconds, send_weights (see `Explore`). Nothing is compiled before `start`, `run` or `wait`. Raises
        `InputError` for what cannot be explored."""
        self._exploration = Explore(self, space, **settings)
        self._state.events.emit("explores", self._exploration)
        return self._exploration

    @property
    def exploration(self) -> Explore | None:
        """The last one that `explore` gave; None before."""
        return self._exploration

    # -- exports -----------------------------------------------------------------------------------------------
    def export(self, what: str, path: str | Path | None = None, **settings: Any) -> exports.Export:
        """An export that can be looked at (`cli`, `python`, `note`) before `write()` does it. Kinds: `EXPORTS`.

        Raises `InputError` for an unknown kind or setting.
        """
        return exports.plan(self, what, path, **settings)

    def export_netlist(self, path: str | Path, **settings: Any) -> Path:
        """Write the netlist; see `exports.export_netlist`. Returns the path."""
        return self.export("netlist", path, **settings).write()

    def export_overrides(self, path: str | Path, form: str = "python") -> Path:
        """Write the overrides as "python" or "json", or "both" beside each other. Returns the path."""
        return self.export("overrides", path, form=form).write()

    def export_table(self, path: str | Path) -> Path:
        """Write one line per op as CSV; see `exports.export_table`. Returns the path."""
        return self.export("table", path).write()

    def export_tti(self, path: str | Path, **settings: Any) -> Path:
        """Write a device image (`weights`, `dump_format`, `name`); see `exports.export_tti`. Returns the path."""
        return self.export("tti", path, **settings).write()

    def export_trace(self, path: str | Path, batch: int = 8) -> Path:
        """Write what happens over `batch` inputs as Chrome trace JSON. Returns the path."""
        return self.export("trace", path, batch=batch).write()
