"""Runs for pages: progress while one goes, pause and steps, and every op against torch."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.epochsim import EpochTrace
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.runframes import checks_frame, live_frame, queues_frame, tensor_frame
from tbuda_lab.core.session.opchecks import OpChecks
from tbuda_lab.core.session.runs import LiveStep
from tbuda_lab.core.session.training import TrainingProgress, TrainingStep
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

TRAINING_INTERVAL = 0.5
"""Seconds between two reports of training; a step of a small model takes milliseconds."""
_TENSOR = 1 << 16  # tiles of a tensor that are sent at most


class RunController:
    """Of one hub: publishes the frames of a run, and what is known of the ops from the last check."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.checks: OpChecks | None = None
        self._rev = -1
        self._queues: tuple[str, ...] = ()
        self._timeline: EpochTrace | None = None
        self._number: dict[str, int] = {}
        self._computing: threading.Thread | None = None
        self.training = False
        self._training_reported = 0.0
        hub.session.on("live", self._live)
        hub.session.on("training", self._trains)
        hub.session.on("checked", self._checked)
        hub.session.on("compiled", lambda _: self._outdated())

    def _live(self, step: LiveStep) -> None:
        hub, frames = self._hub, []
        if step.queues != self._queues:
            self._queues = step.queues
            frames.append(queues_frame(step))
        if self._timeline is None and self._computing is None and hub.watched:
            self._computing = threading.Thread(target=self._simulate, name="tbuda-live", daemon=True)
            self._computing.start()
        stalled: list[str] = []
        cycle = None
        if self._timeline is not None:
            stalled = [s.fork for s in self._timeline.stalls if s.critical and s.epoch == step.epoch]
            at = self._number.get(step.op)
            cycle = None if at is None else int(self._timeline.end[at, 0])
        hub.publish([*frames, live_frame(step, stalled, cycle)])
        if not step.running:
            hub.run_ended(complete=step.input >= step.total)

    def _trains(self, progress: TrainingProgress) -> None:
        """Tell how training goes: at once where it stands or ends, else at most once in `TRAINING_INTERVAL`."""
        hub = self._hub
        if progress.running and not self.training and not hub.busy:  # a call in a cell
            hub.board.begin("run")
        self.training = progress.running
        now = time.monotonic()
        if progress.running and not progress.paused and now - self._training_reported < TRAINING_INTERVAL:
            return
        self._training_reported = now
        if progress.running:
            hub.board.step("run", min(0.999, progress.done / progress.total) if progress.total else 0.5)
            hub.board.text = training_text(progress)
        elif not hub.busy:
            hub.board.end(cancelled=progress.done < progress.total)
        hub.publish([training_frame(hub.session.training_steps, progress)])
        hub.tell_all(hub.status())

    def _simulate(self) -> None:
        """One input in time, beside the run: whence stalls and the cycle come."""
        session = self._hub.session
        rev = session.rev
        try:
            result = session.timeline(1)
        except TbudaError:  # the run goes on without it
            return
        if session.rev == rev:
            self._number = {name: i for i, name in enumerate(result.levels.names)}
            self._timeline = result

    def _checked(self, checks: OpChecks) -> None:
        self.checks = checks
        self._hub.publish([checks_frame(checks)])

    def _outdated(self) -> None:
        """What was run and compared belongs to another placement."""
        self._timeline = self._computing = None
        if self.checks is not None:
            self.checks = None
            self._hub.publish([checks_frame(OpChecks((), (), {}))])


def training_text(progress: TrainingProgress) -> str:
    """Step, loss and learning rate in a line."""
    of = f" of {progress.total}" if progress.total else ""
    last = progress.last
    values = "" if last is None else f": loss {last.loss:.4g}, learning rate {last.learning_rate:.4g}"
    return f"{'Paused after training step' if progress.paused else 'Training step'} {progress.done}{of}{values}"


def training_frame(steps: Sequence[TrainingStep], progress: TrainingProgress) -> Frame:
    """Columns: step, loss (the mean over the batch), learning_rate. meta: running, paused, done and total of the call
    that trains."""
    columns = {
        "step": np.array([s.step for s in steps], dtype="<u4"),
        "loss": np.array([s.loss for s in steps], dtype="<f8"),
        "learning_rate": np.array([s.learning_rate for s in steps], dtype="<f8"),
    }
    meta = {
        "running": progress.running, "paused": progress.paused, "done": progress.done, "total": progress.total,
    }  # fmt: skip
    return Frame("training", meta, columns)


@answers("pause")
def _pause(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    if hub.busy or (hub.run_controller is not None and hub.run_controller.training):
        hub.session.control.pause()


@answers("resume")
def _resume(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.session.control.resume()


@answers("step")
def _step(hub: Hub, _view: Listener, content: Mapping[str, Any]) -> None:
    """of: "op", "epoch" or "input". Begins a run where there is none."""
    control = hub.session.control
    if content.get("of") == "input":
        control.step_input()
    elif content.get("of") == "op":
        control.step_op()
    elif content.get("of") == "epoch":
        control.step_epoch()
    else:
        return
    if not hub.busy and not (hub.run_controller is not None and hub.run_controller.training):
        hub.start(verify=False)


@answers("break_on_failure")
def _break_on_failure(hub: Hub, _view: Listener, content: Mapping[str, Any]) -> None:
    """on: whether runs compare every op as it comes, and pause behind the first one that differs from torch."""
    hub.break_on_failure = content.get("on") is True
    hub.tell_all(hub.status())


@answers("check_ops")
def _check(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.check()


@answers("need_tensor")
def _need_tensor(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """op: whose tensor is compared tile by tile. No answer where it was not compared."""
    controller = hub.run_controller
    if controller is None or controller.checks is None:
        return
    try:
        check = controller.checks[str(content.get("op"))]
    except KeyError:
        return
    if check.tiles.size <= _TENSOR:
        hub.send_frame(view, tensor_frame(check))
