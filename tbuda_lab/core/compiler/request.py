"""What a compile is asked for, and how it reports: options and overrides, stages, progress, cancelling."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.lowering.edits import edit_key, edits_of, is_edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, frozen
from tbuda_lab.core.placer.state import SearchWatch

STAGES = ("passes", "lower", "balance", "place", "emit", "check")
"""What `compile_graph` runs, in order; tracing comes before (see `frontend`)."""

StageHook = Callable[[str, float], None]
"""Called as (stage, fraction of the stage done); 0.0 when it starts, 1.0 when it ends."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Options and overrides: what edits change. Immutable, so that a request is the key of its result.

    base: the overrides with which the epochs were last chosen for the whole model; the difference between `overrides`
    and `base` is placed into those epochs (see `placer.interactive.engine`).
    """

    options: CompileOptions
    overrides: tuple[Override, ...] = ()
    base: tuple[Override, ...] = ()

    @functools.cached_property
    def key(self) -> tuple[Any, ...]:
        """Hashable, and equal for equal requests."""
        return self.options, self.overrides_key, self.of_base.overrides_key

    @functools.cached_property
    def overrides_key(self) -> Any:
        """Hashable, and equal for equal overrides."""
        return frozen(self.overrides)

    @functools.cached_property
    def of_base(self) -> Request:
        """The request of the whole model that this one is an edit of."""
        return self if self.base is self.overrides else dataclasses.replace(self, overrides=self.base)

    @functools.cached_property
    def edits(self) -> tuple[Override, ...]:
        """The overrides that change the lowered graph."""
        return edits_of(self.overrides)

    def find(self, kind: str, target: str) -> Override | None:
        """The override of that kind made for exactly that name, if any."""
        return next((o for o in self.overrides if o.kind == kind and o.target == target), None)

    def put(self, override: Override) -> Request:
        """With `override`, in the place of an earlier one of the same kind and target (for nops and queues: edge)."""
        kind, target, overrides = override.kind, override.target, self.overrides
        if is_edit(override):
            key = edit_key(override)
            same = (i for i, old in enumerate(overrides) if old.kind == kind and edit_key(old) == key)
        else:
            same = (i for i, old in enumerate(overrides) if old.target == target and old.kind == kind)
        at = next(same, len(overrides))
        return dataclasses.replace(self, overrides=(*overrides[:at], override, *overrides[at + 1 :]))

    def drop(self, target: str, kinds: Sequence[str] = ()) -> Request:
        """Without the overrides made for exactly that name (of these kinds, if any are given)."""
        rest = tuple(o for o in self.overrides if o.target != target or (kinds and o.kind not in kinds))
        return dataclasses.replace(self, overrides=rest)


DETAIL_INTERVAL = 0.1
"""Seconds between two words of a stage on what it is doing."""


class Clock:
    """Times stages, reports them, and stops between them when asked to."""

    def __init__(
        self,
        on_stage: StageHook | None,
        cancel: threading.Event | None,
        on_detail: Callable[[str, str], None] | None = None,
        watch: SearchWatch | None = None,
    ) -> None:
        """on_detail: hears (stage, what it is doing now), at most ten times a second. watch: follows searches."""
        self.on_stage, self.on_detail, self.watch = on_stage, on_detail, watch
        self._due = 0.0
        self.cancel = cancel
        self.timings: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage and reports its begin and end. Raises `Cancelled` before it where that was asked for."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"cancelled before stage {name!r}")
        self.report(name, 0.0)
        start = time.perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start
        self.report(name, 1.0)

    def stop_or_tell(self, stage: str, text: str) -> None:
        """Inside of a long stage: say what is being done. Raises `Cancelled` once it is asked for."""
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"cancelled in stage {stage!r}, {text}")
        now = time.monotonic()
        if self.on_detail is not None and now >= self._due:
            self._due = now + DETAIL_INTERVAL
            self.on_detail(stage, text)

    def report(self, name: str, fraction: float) -> None:
        if self.on_stage is not None:
            self.on_stage(name, fraction)
