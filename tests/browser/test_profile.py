"""The profile in a workbench: shares of all time, a roofline, and edits that are made from their row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Preload, ResizeOp, Session
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import box_of, expect
from tests.session.models import encoder, perceptron
from tests.widgets.test_plots_view import for_training

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


def test_layers_fold_and_the_next_step_is_in_sight_in_a_narrow_pane(browser: Any, shots: Path) -> None:
    session = Session(*encoder(3), "n150", CompileOptions(microbatch=8), name="layers")
    session.apply(*(ResizeOp(f"{k}.up.matmul", (1, 1)) for k in range(3)))
    session.compile()
    with bare_page(browser, session, (640, 1200), "light") as bare:
        page = bare.page
        bare.sees("[data-tb-action=tab-profile]")
        page.locator("[data-tb-action=tab-profile]").click()
        bare.sees(f"{PROFILE}[data-tb-state=ready] [data-tb-op='1.up.matmul']")
        page.locator("[data-tb-action=profile-fold]").check()
        up = page.locator(f"{PROFILE} tr[data-tb-fold='*.up.matmul']")
        expect(up).to_contain_text("× 3")
        shares = page.locator(f"{PROFILE} [data-tb-share]").evaluate_all("cells => cells.map(c => +c.dataset.tbShare)")
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        plain = page.locator(f"{PROFILE} tr:not(:has([data-tb-gain])) [data-tb-share]")
        times = plain.evaluate_all("cells => cells.slice(0, -1).map(c => +c.dataset.tbShare)")  # the last: switches
        assert len(times) > 5 and times == sorted(times, reverse=True), "folded rows go by what they take together"
        page.locator(PROFILE).scroll_into_view_if_needed()
        for width in (640, 420):
            page.set_viewport_size({"width": width, "height": 1200})
            page.locator(PROFILE).scroll_into_view_if_needed()
            pane, step = box_of(page.locator(f"{PROFILE} .tb-profile-list")), box_of(up.locator(".tb-advice"))
            assert step["x"] + step["width"] <= pane["x"] + pane["width"] + 1, f"nothing is cut at {width} px"
        page.screenshot(path=shots / "profile_narrow.png", full_page=True)
        up.locator(".tb-link").first.click()
        bare.until(lambda: sorted(bare.hub.selection["names"]) == [f"{k}.up.matmul" for k in range(3)])
        assert page.errors == []


def test_a_parameter_is_preloaded_or_streamed_by_a_press(bare: Bare, shots: Path) -> None:
    """On the grid's card, in the table and in the inspector: what it would take is shown before it is made."""
    page, session = bare.page, bare.hub.session

    def preloaded(operand: int) -> bool:
        return bool(session.result.placement.candidate(OP)["prologue"] >> operand & 1)

    bare.sees(f"[data-tb-view=grid] .tb-tile[data-tb-op='{OP}']")
    bare.hub.select([OP])
    page.evaluate("s => window.tell('selection', s)", bare.hub.selection)
    places = {place: page.locator(f"[data-tb-view={place}]") for place in ("grid", "table", "inspector")}
    for turn, (name, place) in enumerate(places.items()):
        row = place.locator(f"[data-tb-op='{OP}']") if name == "table" else place
        button = row.locator("[data-tb-action=preload][data-tb-operand='1']")
        was = preloaded(1)
        expect(button).to_have_attribute("aria-pressed", str(was).lower())
        button.scroll_into_view_if_needed()
        button.hover()
        effect = session.whatif(Preload(OP, 1, not was))
        bare.sees(f"[data-tb-view={name}] [data-tb-whatif=exact]")
        verdict = place.locator("[data-tb-whatif]")
        expect(verdict).to_contain_text(f"{'Stream' if was else 'Preload'} input 1")
        assert ("no gain" in verdict.inner_text()) == (round(effect.gain) == 0)
        assert len(session.history) == 1 + turn, "nothing is made yet"
        if name != "table":
            page.screenshot(path=shots / f"preload_{name}_{page.theme}.png", full_page=True)
        button.click()
        bare.until(lambda: len(session.history) == 2 + turn and not session.stale)  # noqa: B023
        assert preloaded(1) is not was
        assert session.time().per_input == pytest.approx(effect.time[1])
        bare.until(lambda: button.get_attribute("aria-pressed") == str(not was).lower())  # noqa: B023
    assert page.errors == []


TRACE = "[data-tb-view=trace]"


def test_the_timeline_measures_finds_and_follows(bare: Bare, shots: Path) -> None:
    """A stretch between two cursors, an op by its name, the inputs it gets and hands on, and the way to the grid."""
    page, session = bare.page, bare.hub.session
    bare.sees("[data-tb-action=tab-trace]")
    page.locator("[data-tb-action=tab-trace]").click()
    bare.sees(f"{TRACE}[data-tb-state=ready]")
    canvas = page.locator(f"{TRACE} canvas")
    canvas.scroll_into_view_if_needed()
    box = box_of(canvas)
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 100, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    bare.sees(f"{TRACE} [data-tb-slice]")
    start, end = map(int, page.locator("[data-tb-slice]").get_attribute("data-tb-slice").split("-"))
    whole = session.timeline(8)
    assert (end - start) / whole.cycles == pytest.approx(0.5, abs=0.02)
    stats = whole.trace.slice(start, end)
    shown = page.locator(f"[data-tb-slice] tr[data-tb-op='{OP}'] [data-tb-cycles]").evaluate_all(
        "cells => cells.map(c => +c.dataset.tbCycles)"
    )
    assert shown == pytest.approx(stats.cycles[stats.ops.index(OP)].tolist(), abs=0.06)
    page.locator("[data-tb-action=trace-find]").fill("second")
    expect(page.locator("[data-tb-metric=trace-found]")).to_have_text("2 ops")
    page.keyboard.press("Enter")
    expect(page.locator("[data-tb-metric=trace-found]")).to_have_text("1 of 2")
    bare.until(lambda: bare.hub.selection["names"] == ["second.matmul"])
    bare.sees("[data-tb-view=grid] .tb-tile.tb-selected[data-tb-op='second.matmul']")
    bare.sees(f"{TRACE}[data-tb-flows]")
    assert page.locator(TRACE).get_attribute("data-tb-flows") == f"{2 * 8}", "each input comes in once and goes on once"
    page.screenshot(path=shots / f"timeline_{page.theme}.png", full_page=True)
    assert page.errors == []


@pytest.fixture(params=["light", "dark"])
def trains(request: pytest.FixtureRequest, browser: Any) -> Iterator[Bare]:
    session, data = for_training()
    session.control.pause()
    with bare_page(browser, session, (1500, 1300), request.param) as bare:
        bare.hub.train(data)
        yield bare
        session.cancel()


def test_training_is_drawn_stepped_and_resumed(trains: Bare, shots: Path) -> None:
    """Epochs say forward, backward or optimizer; loss and learning rate are drawn while it trains."""
    page, session = trains.page, trains.hub.session
    trains.sees("[data-tb-view=stages][data-tb-state=paused]")
    for phase in ("forward", "backward", "optimizer"):
        trains.sees(f"[data-tb-view=grid] .tb-frame[data-tb-phase={phase}]")
    page.locator("[data-tb-action=run-step-input]").click()
    trains.until(lambda: len(session.training_steps) == 1 and session.control.waiting)
    trains.until(lambda: "training step 1 of 3" in page.locator("[data-tb-view=stages] .tb-message").inner_text())
    page.locator("[data-tb-action=tab-plots]").click()
    trains.sees("[data-tb-view=plots][data-tb-state=ready]")
    frame = page.frame_locator("[data-tb-view=plots] iframe")
    trains.until(lambda: frame.locator(".bk-Figure").count() == 1)
    page.locator("[data-tb-action=run-pause]").click()
    trains.until(lambda: len(session.training_steps) == 3 and not trains.hub.busy)
    trains.sees("[data-tb-view=stages][data-tb-state=idle]")
    trains.until(lambda: frame.locator(".bk-Figure").count() == 6)
    page.screenshot(path=shots / f"training_{page.theme}.png", full_page=True)
    assert page.errors == []
