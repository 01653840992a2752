"""What tests of editing share: the line that says what came of an edit, and the moment when page and kernel agree."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

from tests.browser.conftest import PATIENCE, Lab, all_ran, centre, expect, in_kernel, open_and_run, playwright_api

GRID = "[data-tb-view=grid]"
PERCEPTRON = """
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron
model, inputs = perceptron()
session = Session(model, inputs, "{device}", name="mlp")
session.compile()
bring_up = BringUp(session, start=False)
bring_up
"""
AGREED = """
from tbuda_lab.widgets.handlers.session_hub import hub_of
hub = hub_of(session)
hub.edit_controller.wait(120)
said = hub.status()
hub.tell_all(said | {{"status": said["status"] | {{"message": "{word}"}}}})
"""
NUMBERS = itertools.count(1)


def opened(watched: Any, lab: Lab, name: str, code: str, tile: str = "") -> Any:
    """The page with a notebook whose cell of `code` shows a workbench, at rest. tile: an op to wait for."""
    page = open_and_run(watched, lab, name, code)
    page.wait_for_selector(f"{GRID} .tb-tile" + (f"[data-tb-op='{tile}']" if tile else ""), timeout=PATIENCE)
    all_ran(page)
    page.locator("[data-tb-view=metrics]").scroll_into_view_if_needed()
    page.wait_for_selector(f"{GRID} [data-tb-action=undo]")
    hear(page)
    caught_up(page)
    return page


def hear(page: Any) -> None:
    """From now on the page keeps what its grid says of edits: the line itself goes after some seconds."""
    page.evaluate(
        """grid => {
          const line = document.querySelector(`${grid} .tb-toast`);
          window.answers = [];
          new MutationObserver(() => window.answers.push(
            { what: line.dataset.tbAnswer, text: line.innerText, seen: line.checkVisibility() }
          )).observe(line, { childList: true });
        }""",
        GRID,
    )


def answer(page: Any, what: str = "done") -> str:
    """The line that says what came of an edit, taken away again once the edit is over. The page `hear`s."""
    page.wait_for_function("what => window.answers.some(a => a.what === what)", arg=what)
    message = page.evaluate(
        "what => window.answers.splice(0, window.answers.findIndex(a => a.what === what) + 1).at(-1)", what
    )
    assert message["seen"], "nobody saw the line"
    close = page.locator(f"{GRID} [data-tb-answer={what}] [data-tb-action=dismiss]")
    if close.is_visible():
        with contextlib.suppress(playwright_api.TimeoutError):  # it went by itself
            close.click(timeout=5000)
    expect(close).to_be_hidden()
    over(page)
    return str(message["text"])


def over(page: Any) -> None:
    """Until what was asked for is made, compiled and shown: only then can the next edit begin."""
    page.wait_for_selector(f"{GRID}:not(:has([data-tb-stale]))")


def caught_up(page: Any) -> None:
    """Until nothing is asked of the kernel, and the page has all that the kernel said: a word that comes behind it."""
    word = f"agreed {next(NUMBERS)}"
    in_kernel(page, AGREED.format(word=word))
    expect(page.locator("[data-tb-view=stages] .tb-message")).to_have_text(word)
    in_kernel(page, "hub.tell_all(hub.status())")  # what stood there before
    over(page)


def undo_all(page: Any) -> None:
    in_kernel(page, "while session.undo(): pass\nsession.compile()")
    caught_up(page)
    expect(page.locator(f"{GRID} [data-tb-action=undo]")).to_be_disabled()


def tile_of(page: Any, op: str) -> Any:
    return page.locator(f"{GRID} .tb-tile[data-tb-op='{op}']")


def hold(page: Any, op: str, handle: str) -> tuple[float, float]:
    """Hover an op and press one of its handles; returns where that is."""
    page.mouse.move(5, 5)  # handles come when the pointer does
    page.mouse.move(*centre(tile_of(page, op)))
    x, y = centre(page.locator(f"{GRID} [data-tb-handles-of='{op}'] [data-tb-handle={handle}]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.wait_for_selector(f"{GRID} .tb-tag:not([hidden]):not([data-tb-verdict=WAITING])")
    return x, y


def nothing_was_asked(page: Any, op: str) -> None:
    """An edit that was asked for would be made and answered by now: what is asked behind it is answered."""
    hold(page, op, "se")
    page.keyboard.press("Escape")
    page.mouse.up()
    caught_up(page)
    assert page.evaluate("() => window.answers") == []


def placed(page: Any, op: str, what: str = "size") -> list[int]:
    """`size` or `start` of an op in the kernel."""
    return list(json.loads(in_kernel(page, f"print(list(session.result.placement.ops['{op}'].{what}))")))
