"""What the stage bar shows: every stage with its state, its time and the message of the moment."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

LABELS = {
    "trace": "Trace", "passes": "Passes", "lower": "Lower", "balance": "Balance", "place": "Place", "emit": "Netlist",
    "check": "Check", "run": "Run", "verify": "Verify",
}


@dataclasses.dataclass
class Stage:
    name: str
    state: str = "pending"    # pending, running, done, failed, cancelled
    seconds: float | None = None
    detail: str = ""
    started: float = 0.0
    spent: float = 0.0        # by this work: a model may be placed more than once to decide on fusing
    fraction: float = 0.0


class StatusBoard:
    """Follows the events of a session; `message()` is what the page is told."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.stages = {name: Stage(name) for name in names}
        self.running = False
        self.failed = False
        self.text = ""

    def begin(self, first: str = "") -> None:
        """New work: all stages wait again, or those from `first` on."""
        names = list(self.stages)
        for name in names[names.index(first) if first in names else 0 :]:
            stage = self.stages[name]
            stage.state, stage.seconds, stage.detail, stage.fraction = "pending", None, "", 0.0
            stage.spent = 0.0
        self.running, self.failed, self.text = True, False, ""

    def done(self, name: str, seconds: float | None) -> None:
        """A stage whose result is there already; how long it took, if that is known."""
        stage = self.stages[name]
        stage.state, stage.seconds, stage.fraction = "done", seconds, 1.0

    def step(self, name: str, fraction: float, clock: float | None = None) -> None:
        """A stage reports its fraction done: 0.0 when it starts, 1.0 when it ends."""
        stage = self.stages.setdefault(name, Stage(name))
        now = time.perf_counter() if clock is None else clock
        if fraction >= 1.0 and stage.state == "done":
            return
        if stage.state != "running":
            stage.state, stage.started = "running", now
            self.text = ""
        stage.fraction = fraction
        if fraction >= 1.0:
            stage.spent += now - stage.started
            stage.state, stage.seconds = "done", stage.spent

    def end(self, problem: str = "", cancelled: bool = False) -> None:
        """The work is over; `problem` says why when it failed."""
        for stage in self.stages.values():
            if stage.state == "running":
                stage.state = "cancelled" if cancelled else "failed" if problem else "done"
                stage.detail = problem
        self.running, self.failed = False, bool(problem) and not cancelled
        self.text = "Cancelled" if cancelled else problem.splitlines()[0] if problem else ""

    def message(self) -> dict[str, Any]:
        """JSON for the page; times in seconds. elapsed: of the stage that runs, so far."""
        stages = list(self.stages.values())
        now = time.perf_counter()
        share = sum(1.0 if s.state == "done" else s.fraction if s.state == "running" else 0.0 for s in stages)
        return {
            "running": self.running,
            "failed": self.failed,
            "message": self.text,
            "done": round(share, 3),
            "total": len(stages),
            "cancellable": self.running,
            "stages": [
                {
                    "name": LABELS.get(s.name, s.name), "state": s.state, "seconds": s.seconds, "detail": s.detail,
                    **({"elapsed": round(s.spent + now - s.started, 3)} if s.state == "running" else {}),
                }
                for s in stages
            ],
        }
