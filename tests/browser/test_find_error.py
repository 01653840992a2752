"""The button that finds the op that is wrong: it says op, line, tile and stage, and the op's card says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import expect, settled
from tests.faults.judge import clean, session_with


def searched(bare: Bare) -> Any:
    """Press the button, wait for the answer, which is told at once, and select the op it is asked of."""
    bare.sees("[data-tb-view=grid] .tb-tile")
    bare.sees("[data-tb-action=run]")
    bare.page.locator("[data-tb-action=run-more]").click()
    bare.page.locator("[data-tb-action=find-error]").click()
    bare.sees("[data-tb-view=grid] [data-tb-answer]")
    said = bare.page.locator("[data-tb-view=grid] [data-tb-answer]")
    bare.page.locator("[data-tb-view=grid] .tb-tile[data-tb-op='2.matmul']").first.click()
    bare.sees("[data-tb-error='2.matmul'] .tb-error-text")
    settled(bare.page)
    return said


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_button_says_which_op_is_wrong_and_where(browser: Any, shots: Path, theme: str) -> None:
    session, every = clean("mlp")
    fault = next(f for f in every if (f.kind, f.stage, f.op) == ("lost bias", "lowered", "2.matmul"))
    faulty = session_with("mlp", session, fault)
    assert faulty is not None
    with bare_page(browser, faulty, (1600, 1000), theme, {"height": 900}) as bare:
        expect(searched(bare)).to_contain_text("tile (0, 0, 0): first wrong at `lowered`")
        card = bare.page.locator("[data-tb-error='2.matmul'][data-tb-verdict=fail]")
        expect(card).to_contain_text("First wrong at lowered")
        expect(bare.page.locator("[data-tb-action=stages]")).to_contain_text("Wrong")
        bare.page.screenshot(path=shots / f"find_error_{theme}.png")
        assert bare.page.errors == []


def test_of_a_right_model_it_says_so(browser: Any) -> None:
    session, _ = clean("mlp")
    with bare_page(browser, session, (1600, 1000), "light", {"height": 900}) as bare:
        expect(searched(bare)).to_contain_text("right everywhere (traced, passed, lowered, netlist, golden)")
        expect(bare.page.locator("[data-tb-action=stages]")).to_contain_text("Verified")
        assert bare.page.errors == []
