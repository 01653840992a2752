"""One trial: a point of the space as plain data that travels, and what compiling it comes to.

A task is JSON: the device, options and overrides, every field checked when it is read; the graph goes beside it as
text without weights. A process keeps the graph and the tables of the last device, so trials of one device share them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import platform
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tbuda_lab._version import __version__
from tbuda_lab.core.compiler import Clock, CompileResult, Pipeline, Request
from tbuda_lab.core.compiler.cache import CompileCache, LruCache
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.explore.numbers import correlation, numbers_of, references, thumbnail
from tbuda_lab.core.files import parse_json
from tbuda_lab.core.files.codec import of_plain
from tbuda_lab.core.graph import Graph, NodeKind, parse_graph, print_graph
from tbuda_lab.core.graph.text import DIGEST, array_table
from tbuda_lab.core.options import CompileOptions, options_from_json
from tbuda_lab.core.overrides import from_json, refuse_malformed
from tbuda_lab.core.run_control import no_collections

DONE, REFUSED, CRASHED, LOST, LATE, CANCELLED = "done", "refused", "crashed", "lost", "late", "cancelled"
STATES = (DONE, REFUSED, CRASHED, LOST, LATE)
"""How a trial may end in the file. cancelled: only of an outcome; such a trial has no row and is run again."""
MOST_FINDINGS = 8
_DECIDING = (
    *("core/balancer", "core/compiler", "core/cost", "core/device", "core/emit", "core/epochsim", "core/explore"),
    *("core/formats", "core/frontend", "core/graph", "core/lowering", "core/netlist", "core/ops", "core/overrides"),
    *("core/passes", "core/placer", "sim"),
)
"""Folders of the package on whose files the numbers of a trial depend, beside the files of core itself."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """A row of the file. reason: type, text and diagnostics of what ended it otherwise than done. placement: name of
    the file that holds it. run: what depends on machine and moment (CPU seconds, worker, attempts)."""

    n: int
    key: str
    point: Mapping[str, Any]
    state: str
    reason: Mapping[str, Any] | None
    numbers: Mapping[str, float]
    placement: str
    version: str
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def line(self) -> str:
        """The row of the file, without its line end."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, ensure_ascii=False, allow_nan=False)


def trial_of(data: Any, where: str) -> Trial:
    """A trial from its row. Raises `InputError`."""
    names = {f.name for f in dataclasses.fields(Trial)}
    if not isinstance(data, dict) or set(data) != names:
        raise InputError(f"{where}: a row has {', '.join(sorted(names))}")
    kinds = {
        "n": int,
        "key": str,
        "point": dict,
        "state": str,
        "numbers": dict,
        "placement": str,
        "version": str,
        "run": dict,
    }
    wrong = [name for name, kind in kinds.items() if type(data[name]) is not kind]
    numbers = data["numbers"]
    if not wrong and not all(type(v) in (int, float) and abs(v) < 1e300 for v in numbers.values()):
        wrong = ["numbers"]
    if not wrong and (data["state"] not in STATES or not isinstance(data["reason"], dict | None)):
        wrong = ["state"]
    if not wrong and data["placement"] and not data["placement"].isalnum():
        wrong = ["placement"]
    if wrong:
        raise InputError(f"{where}: {wrong[0]} has no legal value: {str(data[wrong[0]])[:60]!r}")
    return Trial(**{**data, "numbers": {k: float(v) for k, v in numbers.items()}})


@dataclasses.dataclass(frozen=True)
class Task:
    """What a worker is told of a trial. seconds: after which it is late, None: never. version: of the process that
    asks; a worker of another one refuses it."""

    n: int
    device: Mapping[str, Any]
    options: Mapping[str, Any]
    overrides: tuple[Any, ...] = ()
    seconds: float | None = None
    pcc: bool = False
    cache: bool = True
    version: str = ""

    def text(self) -> str:
        """The task as it travels."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)


def task_of(text: str) -> Task:
    """A task from its text. Raises `InputError`."""
    data = parse_json(text, "task")
    if not isinstance(data, dict) or set(data) != {f.name for f in dataclasses.fields(Task)}:
        raise InputError("a task has " + ", ".join(f.name for f in dataclasses.fields(Task)))
    return Task(**{**data, "overrides": tuple(data["overrides"])})


def graph_text(graph: Graph) -> str:
    """A graph as trials take it: the values of parameters are left out, so the text says nothing of weights, and all
    weights of a model have the same. Those of constants are there: a mask decides what becomes of a softmax."""
    return print_graph(_without_weights(graph), constants=True)


def _without_weights(graph: Graph) -> Graph:
    """A copy whose parameters have no values, and a digest of their name in their place."""
    copy = graph.clone()
    for node in copy:
        if node.kind is NodeKind.PARAMETER and node.value is not None:
            mark = hashlib.sha256(node.name.encode()).hexdigest()[:16]
            node.attrs = {**node.attrs, DIGEST: f"{node.value.dtype} #{mark}"}
            node.value = None
        if node.recipe is not None:
            node.recipe = _without_weights(node.recipe)
    return copy


class TrialRunner:
    """Compiles points of one graph. sample: of inputs, for the correlation; the graph then has its weights. One thread
    at a time; tables of the last two devices are kept."""

    def __init__(self, graph: Graph, sample: Any = None) -> None:
        self.graph, self.sample = graph, sample
        self._pipelines = LruCache(2)
        self._expected: list[torch.Tensor] | None = None

    def compile(self, task: Task, cancel: threading.Event | None = None) -> CompileResult:
        """The point of a task, compiled. Raises what the stages raise."""
        device = of_plain(DeviceSpec, task.device, "device")
        options = CompileOptions(**options_from_json(dict(task.options)))
        overrides = tuple(from_json(record) for record in task.overrides)
        refuse_malformed(overrides)
        pipeline = self._pipelines.get_or(
            (device, task.cache), lambda: Pipeline(device, False, CompileCache() if task.cache else None)
        )
        with no_collections():
            return pipeline.compile(self.graph, Request(options, overrides, overrides), Clock(None, cancel))

    def _references(self) -> list[torch.Tensor]:
        """What the graph comes to for the sample: the same for all points."""
        if self._expected is None:
            self._expected = references(self.graph, self.sample)
        return self._expected

    def run(self, task: Task, cancel: threading.Event) -> dict[str, Any]:
        """What a trial comes to: state, reason, numbers, placement (as `placement_record`) and run. Raises nothing."""
        began, wall = time.thread_time(), time.perf_counter()
        outcome: dict[str, Any] = {"state": DONE, "reason": None, "numbers": {}, "placement": None}
        stop = threading.Event()
        late = threading.Event()
        with _watch(cancel, stop, late, task.seconds):
            try:
                result = self.compile(task, stop)
                outcome["numbers"] = numbers_of(result)
                outcome["placement"] = placement_record(result)
                if task.pcc:
                    outcome["numbers"]["pcc"] = correlation(result, self.sample, self._references())
            except Cancelled as error:
                outcome["state"] = LATE if late.is_set() and not cancel.is_set() else CANCELLED
                outcome["reason"] = _reason(error, f"took longer than {task.seconds:g} s" if late.is_set() else "")
            except TbudaError as error:
                outcome.update(state=REFUSED, reason=_reason(error), numbers={}, placement=None)
            except Exception as error:
                outcome.update(state=CRASHED, reason=_reason(error), numbers={}, placement=None)
                outcome["traceback"] = traceback.format_exc()[-4000:]
        run = {
            "cpu_s": round(time.thread_time() - began, 4),
            "wall_s": round(time.perf_counter() - wall, 4),
            "worker": f"{platform.node()}:{os.getpid()}",
        }
        if "traceback" in outcome:
            run["traceback"] = outcome.pop("traceback")
        return {**outcome, "run": run}


@contextlib.contextmanager
def _watch(
    cancel: threading.Event, stop: threading.Event, late: threading.Event, seconds: float | None
) -> Iterator[None]:
    """Set `stop` once `cancel` is set or the seconds are over, which sets `late` first."""
    over = threading.Event()
    end = None if seconds is None else time.monotonic() + seconds

    def watch() -> None:
        while not over.wait(0.02):
            if end is not None and time.monotonic() >= end:
                late.set()
            if cancel.is_set() or late.is_set():
                stop.set()
                return

    thread = threading.Thread(target=watch, name="tbuda-trial-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _reason(error: BaseException, text: str = "") -> dict[str, Any]:
    """Type, first line and findings of an error, as a row keeps them."""
    findings = [str(d) for d in error.diagnostics] if isinstance(error, TbudaError) else []
    first = text or (str(error).split("\n") or [""])[0]
    findings = [f[:400] for f in findings[:MOST_FINDINGS]]
    return {"type": type(error).__name__, "text": first[:400], "diagnostics": findings}


def refusal(error: TbudaError) -> dict[str, Any]:
    """The outcome of a point that is refused before it is a task."""
    return {"state": REFUSED, "reason": _reason(error), "numbers": {}, "placement": None, "run": {"cpu_s": 0.0}}


def cancelled() -> dict[str, Any]:
    """The outcome of a trial that did not come to its end: it leaves no row."""
    return {"state": CANCELLED, "reason": None, "numbers": {}, "placement": None, "run": {}}


def loss(attempts: int, text: str) -> dict[str, Any]:
    """The outcome of a trial whose worker died too often."""
    reason = {"type": "WorkerLost", "text": text, "diagnostics": []}
    return {"state": LOST, "reason": reason, "numbers": {}, "placement": None, "run": {"attempts": attempts}}


def placement_record(result: CompileResult) -> dict[str, Any]:
    """A placement as overrides that say its epochs and shapes, in the form of a file of overrides, and small pictures
    of its epochs."""
    placement = result.placement
    records = [
        {"kind": "epoch_break", "target": epoch.ops[0], "value": True} for epoch in placement.epochs[1:] if epoch.ops
    ]
    for name, op in placement.ops.items():
        row = placement.candidate(name)
        records.append({"kind": "op_size", "target": op.op, "value": [int(row["grid_r"]), int(row["grid_c"])]})
    return {"overrides": records, "epochs": thumbnail(result), "grid": [result.device.rows, result.device.cols]}


_LOCAL = threading.local()


def run_text(task: str, graph: str, weights: bytes | None, cancel: threading.Event) -> dict[str, Any]:
    """A task from its text, in a worker: graphs are parsed once per thread. weights: see `pack_weights`; with them the
    text names them. Raises `InputError` where this process has other files than the one that asks: its numbers would be
    others."""
    asked = task_of(task)
    if asked.version != version():
        raise InputError(f"a worker has tbuda_lab {version()}, this process has {asked.version}: give both the same")
    runners: LruCache = getattr(_LOCAL, "runners", None) or LruCache(2)
    _LOCAL.runners = runners
    key = hashlib.sha256(graph.encode()).hexdigest(), weights is not None

    def make() -> TrialRunner:
        if weights is None:
            return TrialRunner(parse_graph(graph))
        arrays, sample = unpack_weights(weights)
        return TrialRunner(parse_graph(graph, arrays), sample)

    return runners.get_or(key, make).run(asked, cancel)


def pack_weights(graph: Graph, sample: Any) -> bytes:
    """The weights of a graph, by digest, and a sample of inputs, by input node, as the bytes of an npz file."""
    import io

    import numpy as np

    from tbuda_lab.core import frontend

    feeds = frontend.feeds(graph, sample)
    inputs: dict[str, Any] = {f"input:{k}": v.detach().cpu().numpy() for k, v in feeds.items()}
    stream = io.BytesIO()
    arrays: dict[str, Any] = {f"array:{k}": v for k, v in array_table(graph).items()}
    np.savez(stream, **arrays, **inputs)
    return stream.getvalue()


def unpack_weights(data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by digest and the sample by name. Objects are refused."""
    import io

    import numpy as np
    import torch

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arrays = {k.partition(":")[2]: file[k] for k in file.files if k.startswith("array:")}
        inputs = {k.partition(":")[2]: torch.from_numpy(file[k]) for k in file.files if k.startswith("input:")}
    return arrays, inputs


@functools.lru_cache(maxsize=1)
def version() -> str:
    """Of this package, and a digest of what its files that compile and run hold: rows of another one are stale. The
    same on every machine that has these files."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    paths = [path for part in _DECIDING for path in (package / part).rglob("*") if path.suffix != ".pyc"]
    for path in sorted((*(package / "core").glob("*.py"), *paths)):
        if path.is_file():
            digest.update(f"{path.relative_to(package).as_posix()}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__}+{digest.hexdigest()[:12]}"
