"""The profile in a workbench: shares of all time, a roofline, and edits that are made from their row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import report
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import expect
from tests.session.models import perceptron

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(not report.PAGE.is_file(), reason="the front end is not built: make front-end"),
]

OP = "first.matmul"
PROFILE = "[data-tb-view=profile]"


@pytest.fixture(params=["light", "dark"])
def bare(request: pytest.FixtureRequest, browser: Any) -> Iterator[Bare]:
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=8), name="mlp")
    session.apply(ResizeOp(OP, (1, 1)))
    session.compile()
    with bare_page(browser, session, (1500, 1300), request.param) as bare:
        yield bare


def test_where_the_time_goes_and_what_helps(bare: Bare, shots: Path) -> None:
    page, session = bare.page, bare.hub.session
    bare.sees("[data-tb-action=tab-profile]")
    page.locator("[data-tb-action=tab-profile]").click()
    bare.sees(f"{PROFILE}[data-tb-state=ready] [data-tb-op='{OP}']")
    shares = page.locator(f"{PROFILE} [data-tb-share]").evaluate_all("cells => cells.map(c => +c.dataset.tbShare)")
    assert sum(shares) == pytest.approx(1, abs=1e-4), "ops and switches are all of the time"
    expect(page.locator(f"{PROFILE} [data-tb-metric=profile]")).to_contain_text(f"{session.time().per_input:,.0f} ")
    expect(page.locator(f"{PROFILE} tbody tr").first).to_have_attribute("data-tb-op", OP)
    page.locator(f"{PROFILE} circle[data-tb-op='{OP}']").click()
    bare.until(lambda: bare.hub.selection["names"] == [OP])
    expect(page.locator(f"{PROFILE} tr.tb-selected")).to_have_attribute("data-tb-op", OP)
    page.locator(PROFILE).scroll_into_view_if_needed()
    page.screenshot(path=shots / f"profile_{page.theme}.png", full_page=True)
    page.locator("[data-tb-action=profile-module]").click()
    bare.sees(f"{PROFILE} [data-tb-module]")
    page.locator("[data-tb-action=profile-op]").click()
    apply = page.locator(f"{PROFILE} tr[data-tb-op='{OP}'] [data-tb-action=profile-apply]")
    before, gain = session.time().per_input, float(apply.get_attribute("data-tb-gain") or "nan")
    apply.click()
    bare.until(lambda: len(session.history) == 2 and not session.stale)
    assert before - session.time().per_input == pytest.approx(gain, abs=0.1)
    assert page.errors == []
