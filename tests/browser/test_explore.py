"""Explorations on the screen: asked for in the workbench's tab, followed, cancelled, brushed, compared, exported and
opened; and the page of a folder, which needs no kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.explore import read
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.explore import csv_of
from tbuda_lab.widgets.pictures.explore import write_explore_page
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import PATIENCE, box_of, errors_of, expect, open_and_run, settled
from tests.session.models import perceptron

TAB = "[data-tb-view=explore]"
DEVICES = "n150,n150+dram=x0.25,n150+grid=2x2"
FIELDS = {"devices": DEVICES, "batches": "1,4,16", "formats": "Float16_b,Bfp8_b", "harvest": "0,3"}
COUNT = 36
REFUSED = 6 * 1
"""Points of the smallest grid have two rows: three cannot be left out."""
OPENED = """\
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.explore import csv_of
from tbuda_lab.widgets import BringUp
from tests.session.models import perceptron
session = Session(*perceptron(), "n150", name="mlp")
BringUp(session)"""


def fill(page: Any, **fields: str) -> None:
    for name, value in fields.items():
        page.locator(f"{TAB} [data-tb-field={name}]").fill(value)


def answer(bare: Bare, words: str) -> None:
    """Until the line that says what came of a click has these words."""
    bare.until(lambda: words in " ".join(bare.page.locator("[data-tb-answer]").all_inner_texts()))


def rows(page: Any) -> list[int]:
    numbers = page.locator(f"{TAB} [data-tx-row]").evaluate_all("rows => rows.map(r => r.dataset.txRow)")
    return sorted(map(int, numbers))


@pytest.fixture(scope="module", params=["light", "dark"])
def workbench(request: pytest.FixtureRequest, browser: Any) -> Iterator[Bare]:
    session = Session(*perceptron(), "n150", name="mlp", cache=False)
    session.compile()
    with bare_page(browser, session, (1600, 1100), request.param, {"height": 1060}) as bare:
        bare.sees("[data-tb-view=grid] .tb-tile")
        bare.page.locator("[data-tb-action=tab-explore]").click()
        bare.sees(f"{TAB} [data-tb-action=explore-begin]")
        yield bare
        assert bare.page.errors == []
    assert session.exploration is not None
    session.exploration.close()


def test_what_cannot_be_explored_is_one_line(workbench: Bare) -> None:
    page = workbench.page
    for fields, words in (
        ({"devices": "n151"}, "n151"),
        ({"devices": "n150", "batches": "many"}, "'many' is not a whole number"),
        ({"batches": "1", "objectives": "speed"}, "no number of a trial"),
        ({"objectives": "", "budget": "0"}, "a budget is 1 trial or more"),
    ):
        fill(page, **fields)
        page.locator(f"{TAB} [data-tb-action=explore-begin]").click()
        answer(workbench, words)
    assert page.locator(f"{TAB} .tx-root").is_hidden()


def test_it_is_followed_while_it_runs_and_can_be_cancelled(workbench: Bare) -> None:
    page = workbench.page
    fill(page, **FIELDS, fidelity="LoFi,HiFi2,HiFi3,HiFi4", objectives="samples/s:max,cores:min", budget="200")
    page.locator(f"{TAB} [data-tb-action=explore-begin]").click()
    workbench.sees(f"{TAB} [data-tx-row]")
    expect(page.locator(f"{TAB} .tx-progress")).to_have_text(re.compile(r"\d+ of 144 trials"))
    workbench.until(lambda: "s left" in page.locator(f"{TAB} .tx-progress").inner_text())
    assert page.locator(f"{TAB} [data-tb-action=explore-begin]").is_disabled()
    page.locator(f"{TAB} button[data-tx=cancel]").click()
    workbench.until(lambda: page.locator(f"{TAB} button[data-tx=cancel]").count() == 0)
    assert 0 < len(rows(page)) < 144
    assert not workbench.hub.session.exploration.running


def test_the_front_is_drawn_and_refused_points_say_why(workbench: Bare, shots: Path) -> None:
    page = workbench.page
    if page.locator(f"{TAB} .tb-explore-form:not([open])").count():
        page.locator(f"{TAB} summary").click()
    fill(page, **FIELDS, fidelity="", objectives="samples/s:max,cores:min")
    page.locator(f"{TAB} [data-tb-action=explore-begin]").click()
    workbench.until(
        lambda: (
            f"{COUNT} of {COUNT} trials" in page.locator(f"{TAB} .tx-progress").inner_text()
            and page.locator(f"{TAB} button[data-tx=cancel]").count() == 0
        )
    )
    exploration = workbench.hub.session.exploration
    assert rows(page) == list(range(COUNT))
    drawn = page.locator(f"{TAB} .tx-front .tx-on").evaluate_all("e => e.map(p => Number(p.dataset.txTrial))")
    assert sorted(drawn) == sorted(t.n for t in exploration.front())
    assert len(page.locator(f"{TAB} .tx-frontline").get_attribute("d") or "") > 3
    crosses = page.locator(f"{TAB} .tx-front .tx-cross")
    expect(crosses).to_have_count(REFUSED)
    assert all("n150+grid=2x2 has 2 rows" in str(crosses.nth(k).get_attribute("aria-label")) for k in range(REFUSED))
    means = page.locator(f"{TAB} .tx-charts figure")
    expect(means).to_have_count(4)
    expect(means.first).to_contain_text("n150+grid=2x2"[:6])
    settled(page)
    page.screenshot(path=shots / f"explore_{page.theme}.png")
    page.locator(f"{TAB} .tx-table").scroll_into_view_if_needed()
    page.screenshot(path=shots / f"explore_low_{page.theme}.png")


def test_a_value_brushes_every_part(workbench: Bare) -> None:
    page = workbench.page
    page.locator(f"{TAB} [data-tx-value='microbatch=4']").click()
    trials = {t.n: t for t in workbench.hub.session.exploration.trials}
    assert rows(page) == [n for n, t in trials.items() if t.point["microbatch"] == 4]
    expect(page.locator(f"{TAB} .tx-front .tx-cross")).to_have_count(REFUSED // 3)
    page.locator(f"{TAB} [data-tx-value='harvest=0']").press("Enter")
    assert rows(page) == [n for n, t in trials.items() if t.point["microbatch"] == 4 and t.point["harvest"] == 0]
    page.locator(f"{TAB} button[data-tx=clear]").click()
    assert rows(page) == list(range(COUNT))


def test_hover_shows_numbers_and_epochs(workbench: Bare, shots: Path) -> None:
    page = workbench.page
    point = page.locator(f"{TAB} .tx-front .tx-on").first
    number = point.get_attribute("data-tx-trial")
    point.hover()
    tip = page.locator(f"{TAB} .tx-tip")
    expect(tip).to_be_visible()
    expect(tip).to_contain_text(f"Trial {number}")
    epochs = workbench.hub.session.exploration.trial(int(number)).numbers["epochs"]
    expect(tip.locator("svg > g")).to_have_count(int(min(epochs, 12)))
    small, tab = box_of(tip.locator("svg")), box_of(page.locator(TAB))
    assert tab["y"] <= small["y"] and small["y"] + small["height"] <= tab["y"] + tab["height"]  # within what is seen
    page.screenshot(path=shots / f"explore_hover_{page.theme}.png")
    page.locator(f"{TAB} .tx-progress").hover()
    expect(tip).to_be_hidden()


def test_a_click_tells_and_exports(workbench: Bare) -> None:
    page, exploration = workbench.page, workbench.hub.session.exploration
    best = exploration.front()[0]
    page.locator(f"{TAB} .tx-front [data-tx-trial='{best.n}']").click()
    note = page.locator(f"{TAB} .tx-note")
    expect(note).to_contain_text(f"Trial {best.n}")
    expect(note.locator("code")).to_have_text(re.compile(r"^tbuda compile .*--device n150"))
    page.locator(f"{TAB} button[data-tx=overrides]").click()
    answer(workbench, f"trial-{best.n}.json")
    text = json.loads((exploration.folder / f"trial-{best.n}.json").read_text())
    assert text["format"].startswith("tbuda-overrides") and text["overrides"]
    page.locator(f"{TAB} button[data-tx=csv]").click()
    answer(workbench, "explore.csv")
    assert (exploration.folder / "explore.csv").read_text().count("\n") == COUNT + 1
    page.locator(f"{TAB} button[data-tx=parquet]").click()
    answer(workbench, "parquet")  # written, or told that pyarrow is missing
    page.locator(f"{TAB} button[data-tx=open]").click()
    answer(workbench, f"trial {best.n} is a session of its own")


def test_two_clicks_compare(workbench: Bare) -> None:
    page = workbench.page
    first, second = page.locator(f"{TAB} .tx-front .tx-on").evaluate_all(
        "e => [e[0].dataset.txTrial, e.at(-1).dataset.txTrial]"
    )
    page.locator(f"{TAB} .tx-front [data-tx-trial='{first}']").focus()
    page.keyboard.press("Enter")
    page.locator(f"{TAB} .tx-front [data-tx-trial='{second}']").focus()
    page.keyboard.press("Control+Enter")
    page.locator(f"{TAB} button[data-tx=compare]").click()
    answer(workbench, f"compared trial {first} with trial {second}")
    workbench.sees(f"[data-tb-view=diff]:has-text('trial {second}')")
    page.locator("[data-tb-action=tab-explore]").click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_of_a_folder_draws_brushes_and_asks_for_nothing(
    browser: Any, tmp_path: Path, shots: Path, theme: str
) -> None:
    space = {"devices": DEVICES.split(","), "batch": [1, 16], "harvest": [0, 3]}
    exploration = Session(*perceptron(), name="mlp", cache=False).explore(space, out=tmp_path / "x")
    exploration.run()
    best = [t.n for t in exploration.front()]
    exploration.close()
    page_file = write_explore_page(tmp_path / "x", tmp_path / "x.html")
    context = browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme=theme, offline=True)
    page = context.new_page()
    errors, asked = errors_of(page), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    expect(page.locator(".tx-table tbody tr")).to_have_count(len(read(tmp_path / "x").trials))
    drawn = page.locator(".tx-front .tx-on").evaluate_all("e => e.map(p => Number(p.dataset.txTrial))")
    assert sorted(drawn) == sorted(best)
    expect(page.locator(".tx-front .tx-cross")).to_have_count(2)
    page.locator("[data-tx-value='microbatch=16']").click()
    expect(page.locator(".tx-table tbody tr")).to_have_count(6)
    page.locator(".tx-table tbody tr").first.click()
    expect(page.locator(".tx-note")).to_contain_text("tbuda compile")
    assert page.locator("button[data-tx=open]").count() == 0
    with page.expect_download() as table:
        page.locator("[data-tx=csv]").click()
    assert Path(table.value.path()).read_text() == csv_of(exploration.plan, exploration.trials)
    with page.expect_download() as overrides:
        page.locator("[data-tx=overrides]").click()
    assert overrides.value.suggested_filename == f"trial-{best[0]}.json"
    assert Path(overrides.value.path()).read_text() == exploration.export(best[0])
    page.screenshot(path=shots / f"explore_page_{theme}.png", full_page=True)
    assert errors == [] and [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


def test_a_point_opens_in_a_tab_of_its_own_on_the_grid(watched: Any, lab: Any, shots: Path) -> None:
    page = open_and_run(watched, lab, "explore", OPENED)
    page.locator("[data-tb-view=grid] .tb-tile").first.wait_for(timeout=PATIENCE)
    page.locator("[data-tb-action=tab-explore]").click()
    fill(page, devices="n150,n150+grid=4x4", batches="1,4", formats="Float16_b")
    page.locator(f"{TAB} [data-tb-action=explore-begin]").click()
    expect(page.locator(f"{TAB} .tx-progress")).to_contain_text("4 of 4 trials", timeout=PATIENCE)
    page.locator(f"{TAB} [data-tx-row='3']").click()
    page.locator(f"{TAB} button[data-tx=open]").click()
    opened = page.locator("[data-tb-tab=bringup]")
    opened.locator("[data-tb-view=grid] .tb-tile").first.wait_for(timeout=PATIENCE)
    expect(opened).to_contain_text("n150+grid=4x4: 4 rows × 4 columns")
    page.screenshot(path=shots / "explore_opened.png")
    assert watched.errors == [] and watched.outside == []
