"""A model that is placed on several chips, run with each chip on a worker: threads of this process, or workers of Dask.

Netlist, weights and inputs travel as text and arrays; queues between chips are messages (`sim/parts.py`). Every part
runs its own ops and the whole program, so outputs are bit for bit those of one executor.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import Cancelled, InputError, not_supported
from tbuda_lab.core.files import parse_json
from tbuda_lab.core.files.codec import of_plain
from tbuda_lab.core.frontend.inputs import elements, fed_inputs, feeds_of
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.graph.phases import is_cache, keeps_state
from tbuda_lab.core.runner import join_elements, refuse_without_weights
from tbuda_lab.sim.parts import Inbox, Inboxes, Interval, Link, PartExecutor, chips_of, run_part

_ROW, _LEFT, _WIDTH = 26, 70, 760


@dataclasses.dataclass(frozen=True)
class ChipRun:
    """Outputs of every sample in order, and what each chip did when. workers: of every chip the number of its
    worker."""

    outputs: list[list[torch.Tensor]]
    intervals: tuple[Interval, ...]
    workers: Mapping[int, int]

    def waits(self) -> dict[tuple[int, int, str], float]:
        """Seconds that a chip waited for what another one puts into a queue: (chip, other chip, queue) -> s, the
        longest first."""
        found: dict[tuple[int, int, str], float] = {}
        for each in self.intervals:
            if each.source >= 0:
                key = each.chip, each.source, each.what
                found[key] = found.get(key, 0.0) + each.end - each.begin
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def __str__(self) -> str:
        busy = {chip: 0.0 for chip in self.workers}
        for each in self.intervals:
            if each.source < 0:
                busy[each.chip] += each.end - each.begin
        lines = [f"chip {c} on worker {w}: {busy[c]:.3f} s at work" for c, w in sorted(self.workers.items())]
        listed = list(self.waits().items())[:8]
        lines += [f"chip {chip} waited {s:.3f} s for {what} of chip {source}" for (chip, source, what), s in listed]
        return "\n".join(lines)

    def svg(self) -> str:
        """A row a chip over time: what it worked on, and where it waited for another one."""
        chips = sorted(self.workers)
        begin = min((i.begin for i in self.intervals), default=0.0)
        span = max((i.end for i in self.intervals), default=1.0) - begin or 1.0
        bars = []
        for each in self.intervals:
            x, width = _LEFT + (each.begin - begin) / span * _WIDTH, (each.end - each.begin) / span * _WIDTH
            y = 6 + _ROW * chips.index(each.chip)
            words = f"waits for {each.what} of chip {each.source}" if each.source >= 0 else f"works on {each.what}"
            paint = "fill='url(#waits)' stroke='#c2570c'" if each.source >= 0 else "fill='#0b6bcb'"
            bars.append(
                f"<rect x='{x:.1f}' y='{y}' width='{max(width, 0.6):.1f}' height='{_ROW - 8}' {paint}><title>chip "
                f"{each.chip} {html.escape(words)}, {1e3 * (each.end - each.begin):.1f} ms</title></rect>"
            )
        names = "".join(
            f"<text x='{_LEFT - 8}' y='{19 + _ROW * k}' text-anchor='end' fill='currentColor'>chip {chip}</text>"
            for k, chip in enumerate(chips)
        )
        low = 10 + _ROW * len(chips)
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_LEFT + _WIDTH + 10} {low + 34}' font-size='12' "
            f"font-family='sans-serif' role='img' aria-label='what {len(chips)} chips did over {span:.3f} s'>"
            "<defs><pattern id='waits' width='6' height='6' patternUnits='userSpaceOnUse'>"
            "<path d='M0 6L6 0' stroke='#c2570c'/></pattern></defs>"
            f"{names}{''.join(bars)}<text x='{_LEFT}' y='{low + 12}' fill='currentColor'>0 s</text>"
            f"<text x='{_LEFT + _WIDTH}' y='{low + 12}' text-anchor='end' fill='currentColor'>{span:.3f} s</text>"
            f"<text x='{_LEFT}' y='{low + 28}' fill='currentColor'>filled: at work; hatched: waits for another chip"
            "</text></svg>"
        )

    def _repr_html_(self) -> str:
        svg = self.svg().replace("<svg ", '<svg color="#7a8594" ', 1)  # an image has no colour of its page
        image = base64.b64encode(svg.encode()).decode("ascii")
        return (
            f'<pre>{html.escape(str(self))}</pre><img alt="what each chip did" src="data:image/svg+xml;base64,{image}">'
        )


@dataclasses.dataclass(frozen=True)
class PartTask:
    """What a worker is told of its part. parts: of every chip the number of its part; single: one microbatch at a
    time; inputs, outputs: names of queues."""

    part: int
    parts: tuple[int, ...]
    chips: tuple[int, ...]
    mode: str
    arch: str
    microbatch: int
    single: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rams: tuple[str, ...]
    total: int

    def text(self) -> str:
        """The task as it travels."""
        return json.dumps(dataclasses.asdict(self))


def part_task(text: str) -> PartTask:
    """A task from its text. Raises `InputError`."""
    return of_plain(PartTask, parse_json(text, "part of a run"), "part of a run")


def work(task: PartTask, netlist: str, arrays: bytes, link: Link, cancel: Callable[[], bool]) -> tuple[bytes, str]:
    """A part's share of a run: its outputs as an npz file, and its intervals as JSON. Raises what running raises."""
    parts = dict(zip(task.chips, task.parts, strict=True))
    net = netlists.loads(netlist)
    executor = PartExecutor(net, parts, task.part, link, mode=task.mode, arch=task.arch, reread=False)
    with np.load(io.BytesIO(arrays), allow_pickle=False) as file:
        given = {name: file[name] for name in file.files}
    for queue in task.rams:
        if queue not in given:
            if net.queues[queue].type != "ram":
                executor.advance(queue)
        elif net.queues[queue].type == "ram":
            executor.write(queue, given[queue], slot=0)
        else:
            executor.push(queue, given[queue])
    inputs = {name: given[name] if name in given else np.zeros(task.total) for name in task.inputs}
    several = 1 if task.single else executor.at_once(task.inputs, task.outputs)
    found = run_part(executor, inputs, task.outputs, task.microbatch, several, cancel)
    stream = io.BytesIO()
    outputs: dict[str, Any] = {name: np.stack(entries) for name, entries in found.items() if entries}
    np.savez(stream, **outputs)
    return stream.getvalue(), json.dumps([dataclasses.astuple(i) for i in executor.intervals])


def run_chips(
    result: CompileResult,
    samples: Sequence[Any],
    mode: str = "golden",
    workers: int = 0,
    scheduler: Any = None,
    cancel: threading.Event | None = None,
) -> ChipRun:
    """Run samples, whose number of elements is a multiple of the microbatch. workers: processes of this machine, 0:
    threads of this one; scheduler: of Dask, that the user named; weights go to it. Raises `NotSupported` for a model
    that trains, keeps state or has a part on the host, `InputError`, and what running raises."""
    _refuse(result, workers)
    stop = threading.Event() if cancel is None else cancel
    graph = result.graph
    inputs = fed_inputs(graph)
    feeds = [list(elements(graph, feeds_of(inputs, sample))) for sample in samples]
    flat = [feed for batch in feeds for feed in batch]
    if not flat or len(flat) % result.options.microbatch:
        raise InputError(f"{len(flat)} inputs given, the model runs {result.options.microbatch} at a time")
    arrays = {b.queue: np.stack([b.encode(feed, mode != "exact") for feed in flat]) for b in result.inputs}
    values = result.unrounded_parameters() if mode == "exact" else result.parameters
    weights = {name: value for name, value in values.items() if name in result.netlist.queues}
    chips = sorted(set(chips_of(result.netlist).values()))

    def make(count: int) -> list[tuple[PartTask, bytes]]:
        parts = [k * min(count, len(chips)) // len(chips) for k in range(len(chips))]
        return [_part(result, mode, chips, parts, p, arrays, weights, len(flat)) for p in sorted(set(parts))]

    text = netlists.dumps(result.netlist)
    if not workers and scheduler is None:
        tasks = make(len(chips))
        done = _in_threads([task for task, _ in tasks], text, [data for _, data in tasks], stop)
    else:
        from tbuda_lab.core.explore.engine import load_dask

        tasks, done = load_dask("dask_chips").run_parts(make, text, workers, scheduler, stop)
    return _joined(result, feeds, tasks[0][0], done)


def _refuse(result: CompileResult, workers: int) -> None:
    if type(workers) is not int or not 0 <= workers <= 1024:
        raise InputError(f"workers are a number from 0 to 1024, not {workers!r}")
    refuse_without_weights(result.graph)
    wrong = {
        "a model that trains": result.options.training is not None,
        "a model of which the host runs a part": result.chain is not None,
        "a model that keeps state from run to run": keeps_state(result.graph),
        "a model with dropout in training mode": len(result.graph.inputs) > len(fed_inputs(result.graph)),
    }
    for what, is_so in wrong.items():
        if is_so:
            raise not_supported(f"{what}, its chips on workers", "run it in this process: session.run()")


def _part(
    result: CompileResult,
    mode: str,
    chips: Sequence[int],
    parts: Sequence[int],
    part: int,
    inputs: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray],
    total: int,
) -> tuple[PartTask, bytes]:
    """A part's task and the arrays that its ops read, as an npz file."""
    own = dict(zip(chips, parts, strict=True))
    chip = chips_of(result.netlist)
    read: set[str] = {port.source for _, op in result.netlist.ops() for port in op.inputs if own[chip[op.name]] == part}
    task = PartTask(
        part,
        tuple(parts),
        tuple(chips),
        mode,
        result.device.arch,
        result.options.microbatch,
        any(map(is_cache, result.graph.of_kind(NodeKind.PARAMETER))),
        tuple(inputs),
        tuple(b.queue for b in result.outputs),
        tuple(weights),
        total,
    )
    stream = io.BytesIO()
    given: dict[str, Any] = {k: v for k, v in {**inputs, **weights}.items() if k in read}
    np.savez(stream, **given)
    return task, stream.getvalue()


def _in_threads(
    tasks: Sequence[PartTask], netlist: str, arrays: Sequence[bytes], stop: threading.Event
) -> list[tuple[bytes, str]]:
    """Each part in a thread. The first error ends all."""
    boxes = [Inbox() for _ in tasks]
    done: list[tuple[bytes, str]] = [(b"", "")] * len(tasks)
    errors: list[BaseException] = []
    failed = threading.Event()

    def run(k: int) -> None:
        try:
            done[k] = work(tasks[k], netlist, arrays[k], Inboxes(boxes, k), lambda: stop.is_set() or failed.is_set())
        except BaseException as error:
            errors.append(error)
            failed.set()

    threads = [threading.Thread(target=run, args=(k,), name=f"tbuda-part-{k}", daemon=True) for k in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, Cancelled)), errors[0])
    return done


def _joined(
    result: CompileResult, feeds: Sequence[Sequence[Any]], task: PartTask, done: Sequence[tuple[bytes, str]]
) -> ChipRun:
    """The outputs of all parts as the model gives them."""
    entries: dict[str, np.ndarray] = {}
    intervals: list[Interval] = []
    for outputs, told in done:
        with np.load(io.BytesIO(outputs), allow_pickle=False) as file:
            entries.update({name: file[name] for name in file.files})
        intervals += [Interval(*row) for row in json.loads(told)]
    columns = [[b.decode(x) for x in entries[b.queue]] for b in result.outputs]
    rows = list(zip(*columns, strict=True))
    results, begin = [], 0
    for batch in feeds:
        results.append([join_elements(c) for c in zip(*rows[begin : begin + len(batch)], strict=True)])
        begin += len(batch)
    placed = dict(zip(task.chips, task.parts, strict=True))
    return ChipRun(results, tuple(sorted(intervals, key=lambda i: (i.begin, i.chip))), placed)
