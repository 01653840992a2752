"""Profiles of runs: the sections on the device by the model of time, the host program's steps by the clock."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from tbuda_lab.core.files import atomic_text
from tbuda_lab.dialects.host_program import Step
from tbuda_lab.dialects.program import schedules, sections_of
from tbuda_lab.samba.tracing import TracedGraph

KINDS = ("runtime", "samba")


class Profiler:
    """Notes what runs while a profile is under way. Times are microseconds, as Chrome traces have them."""

    def __init__(self) -> None:
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._open: dict[str, float] = {}
        self._device_time = 0.0

    def start(self, kind: str) -> None:
        """Begin a profile anew."""
        self._events[kind] = []
        if kind == "runtime":
            self._device_time = 0.0

    def write(self, kind: str, filename: str) -> str:
        """End a profile and write it; returns the path. Raises `RuntimeError` where it was not started."""
        if kind not in self._events:
            raise RuntimeError(f"no {kind} profile was started; call session.start_{kind}_profile() first")
        with atomic_text(filename) as stream:
            json.dump({"traceEvents": self._events[kind], "displayTimeUnit": "ms"}, stream, indent=1)
        del self._events[kind]
        return filename

    def start_event(self, name: str) -> None:
        """An event of the program begins."""
        self._open[name] = time.perf_counter()

    def end_event(self, name: str) -> None:
        """An event of the program ends. Raises `RuntimeError` for one that was not begun."""
        if name not in self._open:
            raise RuntimeError(f"event {name!r} was not begun; call profiler.start_event({name!r}) first")
        begun = self._open.pop(name)
        self._note("samba", name, "event", begun * 1e6, (time.perf_counter() - begun) * 1e6, 0)

    @contextlib.contextmanager
    def run(
        self, traced: TracedGraph, replicas: int, reduce_on_rdu: bool
    ) -> Iterator[Callable[[Step, int], None] | None]:
        """Around one run of a host program; gives what `execute` calls before each step."""
        steps: list[tuple[str, float]] = []

        def record(step: Step, _: int) -> None:
            steps.append((_label(step), time.perf_counter()))

        yield record if "samba" in self._events else None
        ends = [*(begun for _, begun in steps[1:]), time.perf_counter()]
        for (label, begun), end in zip(steps, ends, strict=False):
            self._note("samba", label, "host program", begun * 1e6, (end - begun) * 1e6, 1)
        if "runtime" in self._events:
            self._sections(traced, replicas, reduce_on_rdu)

    def _sections(self, traced: TracedGraph, replicas: int, reduce_on_rdu: bool) -> None:
        plan = schedules(traced.result, replicas, reduce_on_rdu)[traced.data_parallel_mode]
        sections = sections_of(traced.result)
        scale = 1e6 / float(traced.result.device.clock_hz)
        for replica in range(replicas):
            for k, start, end in plan.device:
                self._note(
                    "runtime",
                    f"section {k} ({sections[k].kind})",
                    traced.name,
                    self._device_time + start * scale,
                    (end - start) * scale,
                    replica,
                )
            for weight, start, end in plan.link:
                self._note(
                    "runtime",
                    f"mean of {weight}",
                    "link",
                    self._device_time + start * scale,
                    (end - start) * scale,
                    replica,
                )
        self._device_time += plan.cycles * scale

    def _note(self, kind: str, name: str, category: str, start: float, length: float, thread: int) -> None:
        if kind in self._events:
            self._events[kind].append(
                {"name": name, "cat": category, "ph": "X", "ts": start, "dur": length, "pid": 0, "tid": thread}
            )


def _label(step: Step) -> str:
    name = getattr(step, "tensor", None) or getattr(step, "program", None) or getattr(step, "name", "")
    return f"{type(step).__name__.lower()} {name}".strip()
