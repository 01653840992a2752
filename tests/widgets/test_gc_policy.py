"""Full collections wait for a pause, and come then."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from tbuda_lab.widgets.handlers.edit_controller import EditController
from tbuda_lab.widgets.handlers.gc_policy import NEVER, TIDYING, Tidying
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
    if TIDYING.put_off:  # what other tests asked
        TIDYING.wait(PATIENCE)
    before = gc.get_threshold()
    yield before
    gc.enable()
    gc.set_threshold(*before)


def test_while_a_page_is_answered_there_is_no_full_collection_and_in_the_pause_there_is_one(
    usual: tuple[int, int, int],
) -> None:
    tidying = Tidying(pause=0.05)
    garbage = old_garbage()
    with tidying.working():
        assert gc.get_threshold() == (usual[0], usual[1], NEVER) and tidying.put_off
        make_due()
        time.sleep(0.3)  # the pause counts from the end of the work
        assert garbage() is not None and tidying.put_off
    tidying.wait(PATIENCE)
    assert garbage() is None
    assert gc.get_threshold() == usual and not tidying.put_off


def test_a_pause_in_which_none_is_due_or_somebody_waits_for_other_work_has_none(usual: tuple[int, int, int]) -> None:
    garbage = old_garbage()
    tidying = Tidying(pause=0.05)
    tidying.asked()
    tidying.wait(PATIENCE)  # nothing was made since
    assert garbage() is not None and gc.get_threshold() == usual
    tidying = Tidying(lambda: True, pause=0.05)
    tidying.asked()
    make_due()
    tidying.wait(PATIENCE)
    assert garbage() is not None and gc.get_threshold() == usual  # the interpreter may do it now as it always does
    gc.collect()
    assert garbage() is None


def test_a_collection_in_a_cell_does_what_it_always_does(usual: tuple[int, int, int]) -> None:
    tidying = Tidying(pause=LONG)
    garbage = old_garbage()
    with tidying.working():
        gc.collect()
        assert garbage() is None


def test_who_switched_the_collector_off_or_set_it_is_left_alone(usual: tuple[int, int, int]) -> None:
    tidying = Tidying(pause=0.05)
    gc.disable()
    tidying.asked()
    assert not tidying.put_off and gc.get_threshold() == usual
    gc.enable()
    with tidying.working():
        gc.set_threshold(500, 5, 5)
    tidying.wait(PATIENCE)
    assert gc.get_threshold() == (500, 5, 5) and not tidying.put_off


def test_a_question_during_the_collection_is_followed_by_a_pause_of_its_own(usual: tuple[int, int, int]) -> None:
    tidying = Tidying(pause=0.05)
    again = threading.Event()

    def ask() -> None:
        again.set()
        tidying.asked()  # a last word that asks for something: nothing is locked

    knot = Knot()
    weakref.finalize(knot, ask)
    gc.collect()
    tidying.asked()
    make_due()
    del knot
    tidying.wait(PATIENCE)
    assert again.is_set() and gc.get_threshold() == usual and not tidying.put_off


def test_the_desk_works_while_they_are_put_off(hub: Hub, usual: tuple[int, int, int]) -> None:
    seen: list[bool] = []
    assert isinstance(hub.desk, EditController)
    hub.desk.submit(lambda: seen.append(TIDYING.put_off))
    hub.desk.wait(PATIENCE)
    assert seen == [True]
    TIDYING.wait(PATIENCE)
    assert gc.get_threshold() == usual


def test_a_page_that_comes_has_it_done_once_it_is_drawn(
    hub: Hub, usual: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIDYING, "busy", lambda: hub.busy)  # whatever other tests left at work
    garbage = old_garbage()
    make_due()
    assert isinstance(say(hub, type="hello", have={}), Page)
    assert TIDYING.put_off
    TIDYING.wait(PATIENCE)
    assert garbage() is None and gc.get_threshold() == usual
