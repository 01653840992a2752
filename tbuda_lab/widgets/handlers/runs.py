"""Runs for pages: progress while one goes, pause and steps, and every op against torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.epochsim import EpochTrace
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames.runframes import checks_frame, live_frame, queues_frame, tensor_frame
from tbuda_lab.core.session.opchecks import OpChecks
from tbuda_lab.core.session.runs import LiveStep
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

_TENSOR = 1 << 16  # tiles of a tensor that are sent at most


class RunDesk:
    """Of one hub: publishes the frames of a run, and what is known of the ops from the last check."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.checks: OpChecks | None = None
        self._rev = -1
        self._queues: tuple[str, ...] = ()
        self._timeline: EpochTrace | None = None
        self._number: dict[str, int] = {}
        self._computing: threading.Thread | None = None
        hub.session.on("live", self._live)
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


@answers("pause")
def _pause(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    if hub.busy:
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
    if not hub.busy:
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
    desk = hub.run_desk
    if desk is None or desk.checks is None:
        return
    try:
        check = desk.checks[str(content.get("op"))]
    except KeyError:
        return
    if check.tiles.size <= _TENSOR:
        hub.send_frame(view, tensor_frame(check))
