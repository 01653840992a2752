"""Full collections wait for a pause, and come then."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from tbuda_lab.widgets.handlers.edit_controller import EditController
from tbuda_lab.widgets.handlers.gc_policy import GC_POLICY, NEVER, GcPolicy
from tbuda_lab.widgets.handlers.session_hub import Hub
from tests.widgets.talk import Page, say

PATIENCE = 60.0
LONG = 3600.0
"""A pause that does not come in a test."""


class Knot:
    """What only a full collection frees, once it is old."""

    def __init__(self) -> None:
        self.me = self


def old_garbage() -> weakref.ref[Knot]:
    knot = Knot()
    gc.collect()  # it is among the oldest objects now
    return weakref.ref(knot)


def make_due() -> None:
    """As many collections of younger objects as make a full one due by its first rule."""
    while gc.get_count()[2] <= gc.get_threshold()[2] and gc.get_count()[2] <= 20:
        gc.collect(1)


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    if GC_POLICY.put_off:  # what other tests asked
        GC_POLICY.wait(PATIENCE)
    before = gc.get_threshold()
    gc.freeze()  # what other tests left is not looked through: a full collection takes milliseconds
    yield before
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(*before)


def test_while_a_page_is_answered_there_is_no_full_collection_and_in_the_pause_there_is_one(
    usual: tuple[int, int, int],
) -> None:
    policy = GcPolicy(pause=0.05)
    garbage = old_garbage()
    with policy.working():
        assert gc.get_threshold() == (usual[0], usual[1], NEVER) and policy.put_off
        make_due()
        time.sleep(0.3)  # the pause counts from the end of the work
        assert garbage() is not None and policy.put_off
    policy.wait(PATIENCE)
    assert garbage() is None
    assert gc.get_threshold() == usual and not policy.put_off


def test_a_pause_in_which_none_is_due_or_somebody_waits_for_other_work_has_none(usual: tuple[int, int, int]) -> None:
    garbage = old_garbage()
    policy = GcPolicy(pause=0.05)
    policy.page_active()
    policy.wait(PATIENCE)  # nothing was made since
    assert garbage() is not None and gc.get_threshold() == usual
    policy = GcPolicy(lambda: True, pause=0.05)
    policy.page_active()
    make_due()
    policy.wait(PATIENCE)
    assert garbage() is not None and gc.get_threshold() == usual  # the interpreter may do it now as it always does
    gc.collect()
    assert garbage() is None


def test_a_collection_in_a_cell_does_what_it_always_does(usual: tuple[int, int, int]) -> None:
    policy = GcPolicy(pause=LONG)
    garbage = old_garbage()
    with policy.working():
        gc.collect()
        assert garbage() is None


def test_who_switched_the_collector_off_or_set_it_is_left_alone(usual: tuple[int, int, int]) -> None:
    policy = GcPolicy(pause=0.05)
    gc.disable()
    policy.page_active()
    assert not policy.put_off and gc.get_threshold() == usual
    gc.enable()
    with policy.working():
        gc.set_threshold(500, 5, 5)
    policy.wait(PATIENCE)
    assert gc.get_threshold() == (500, 5, 5) and not policy.put_off


def test_a_question_during_the_collection_is_followed_by_a_pause_of_its_own(usual: tuple[int, int, int]) -> None:
    policy = GcPolicy(pause=0.05)
    again = threading.Event()

    def ask() -> None:
        again.set()
        policy.page_active()  # a last word that asks for something: nothing is locked

    knot = Knot()
    weakref.finalize(knot, ask)
    gc.collect()
    policy.page_active()
    make_due()
    del knot
    policy.wait(PATIENCE)
    assert again.is_set() and gc.get_threshold() == usual and not policy.put_off


def test_the_desk_works_while_they_are_put_off(hub: Hub, usual: tuple[int, int, int]) -> None:
    seen: list[bool] = []
    assert isinstance(hub.edit_controller, EditController)
    hub.edit_controller.submit(lambda: seen.append(GC_POLICY.put_off))
    hub.edit_controller.wait(PATIENCE)
    assert seen == [True]
    GC_POLICY.wait(PATIENCE)
    assert gc.get_threshold() == usual


def test_a_page_that_comes_has_it_done_once_it_is_drawn(
    hub: Hub, usual: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GC_POLICY, "busy", lambda: hub.busy)  # whatever other tests left at work
    garbage = old_garbage()
    make_due()
    assert isinstance(say(hub, type="hello", have={}), Page)
    assert GC_POLICY.put_off
    GC_POLICY.wait(PATIENCE)
    assert garbage() is None and gc.get_threshold() == usual
