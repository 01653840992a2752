"""One truth of time: whatever the screen calls cycles per input is what the simulation says of the model or of an
epoch, or says what else it counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.diff.compare import whole
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tbuda_lab.widgets import report
from tbuda_lab.widgets.pictures import plots
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import errors_of, expect
from tests.session.models import perceptron

OP = "first.matmul"
DIFF, PROFILE, TRACE, PLOTS = (f"[data-tb-view={name}]" for name in ("diff", "profile", "trace", "plots"))
SAID = """() => {
  const texts = [document.querySelector('[data-tb-root]').innerText];
  for (const e of document.querySelectorAll('[data-tb-root] :is([title], [aria-label], svg title)')) {
    if (e.checkVisibility()) texts.push(e.getAttribute('title') ?? '', e.getAttribute('aria-label') ?? '',
                                        e.tagName === 'title' ? e.textContent : '');
  }
  return texts.map(t => t.replace(/\\s+/g, ' '));
}"""
PER_INPUT = re.compile(
    r"(?P<before>.{0,70}?)(?P<number>\d[\d,.]*\s?[kM]?)\s(?:cycles\s?)(?:/|per)\s?input(?P<after>.{0,40})"
)
NAMED = re.compile(r"kernel|transfer|estimate|waits|of the op")
"""What says that a number counts something else than the simulated time of the model or an epoch."""


def short(cycles: float) -> str:
    """As the page writes it."""
    if cycles >= 1e6:
        return f"{cycles / 1e6:.2f}M"
    return f"{cycles / 1e3:.1f}k" if cycles >= 1e4 else whole(cycles)


def wrong(page: Any, times: list[float]) -> list[str]:
    """What is called cycles per input, is none of `times`, and does not say what it counts instead."""
    forms = {form for t in times for form in (short(t), whole(t), f"{t / 1e3:.1f}k", f"{t / 1e3:.0f}k")}
    numbers = 0
    others = []
    for text in page.evaluate(SAID):
        for match in PER_INPUT.finditer(text):
            numbers += 1
            number = match["number"].replace(" ", "")
            if number not in forms and not NAMED.search(match["before"][-40:] + match["after"]):
                others.append(match[0])
    assert numbers, "nothing was found: the words have changed"
    return others


@pytest.fixture(params=["light", "dark"])
def bare(request: pytest.FixtureRequest, browser: Any) -> Iterator[Bare]:
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=8), name="mlp")
    session.compile()
    session.apply(ResizeOp(OP, (1, 1)), EpochBreak("second.matmul"))
    session.compile()
    with bare_page(browser, session, (1600, 1300), request.param) as bare:
        yield bare


def test_every_number_of_cycles_per_input_is_one_or_says_what_it_counts(bare: Bare, shots: Path) -> None:
    page, session = bare.page, bare.hub.session
    time = session.time()
    times = [time.per_input, *(e.cycles / time.batch for e in time.epochs)]
    was = session.diff("start").before.time
    bare.sees("[data-tb-metric=cycles]")
    assert page.locator("[data-tb-metric=cycles]").inner_text().split()[0] == short(time.per_input)
    assert wrong(page, times) == [], "header, film strip, grid, table"
    # a colour is a share of the slowest op; the op that limits the epoch may be another one, which its mark says
    for view in ("graph", "grid"):
        keys = page.locator(f"[data-tb-view={view}] .tb-legend .tb-key").filter(has=page.locator("i[style]"))
        assert keys.all_inner_texts() == ["10 %", "40 %", "70 %", "100 %"]
    # ops of a comparison add up to the change of the model
    page.locator("[data-tb-action=tab-diff]").click()
    bare.sees(f"{DIFF} tr[data-tb-op='{OP}']")
    rows = page.locator(f"{DIFF} .tb-diff-list tbody").first.locator("tr[data-tb-op], tr[data-tb-rest]")
    changes = [r.locator("td").nth(4).inner_text().replace(",", "").replace("−", "-") for r in rows.all()]
    diff = session.diff("start")
    assert sum(map(float, changes)) == pytest.approx(diff.time[1] - diff.time[0], abs=len(changes))
    starts = [e.time for e in diff.before.epochs if e.time is not None]
    assert wrong(page, [*times, was, *starts]) == [], "comparison"
    page.screenshot(path=shots / f"one_time_diff_{page.theme}.png")
    page.locator("[data-tb-action=tab-profile]").click()
    bare.sees(f"{PROFILE}[data-tb-state=ready] [data-tb-op='{OP}']")
    assert wrong(page, times) == [], "profile"
    page.locator("[data-tb-action=tab-trace]").click()
    bare.sees(f"{TRACE}[data-tb-state=ready]")
    expect(page.locator(TRACE)).to_contain_text(f"{short(time.per_input)} cycles / input, batch of 8")
    assert wrong(page, times) == [], "timeline"
    page.locator("[data-tb-action=tab-plots]").click()
    bare.sees(f"{PLOTS}[data-tb-state=ready]")
    bare.until(page.frame_locator(f"{PLOTS} iframe").locator(".bk-Figure").count)
    page.screenshot(path=shots / f"one_time_plots_{page.theme}.png")
    # why an op has its shape: what the model would take with others
    page.locator("[data-tb-action=tab-ops]").click()
    bare.hub.select([OP])
    page.evaluate("s => window.tell('selection', s)", bare.hub.selection)
    page.locator("[data-tb-action=why]").first.click()
    bare.sees("[role=dialog] .tb-chosen")
    shown = page.locator("[role=dialog] .tb-chosen td").nth(4).inner_text()
    assert shown == whole(time.per_input)
    page.screenshot(path=shots / f"one_time_why_{page.theme}.png")
    # kernels alone are a mode that says so, everywhere
    page.keyboard.press("Escape")
    page.evaluate("p => { document.body.dataset.tbPreferences = JSON.stringify(p); }", {"clock": "kernel"})
    expect(page.locator("[data-tb-metric=cycles]")).to_contain_text("kernels only")
    page.locator("[data-tb-action=tab-diff]").click()
    expect(page.locator(f"{DIFF} [data-tb-metric=verdict]")).to_contain_text("Kernels only")
    expect(page.locator(f"{DIFF} figure[data-tb-side=b] figcaption")).to_contain_text("kernels only")
    assert page.errors == []


def test_plots_and_the_curve_of_the_search_say_what_they_count() -> None:
    """Every axis and tip in cycles per input is of simulated times, or names what else it counts."""
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=8, optimise_steps=2), name="mlp")
    time = session.time()
    assert session.compile().placement.report.curve
    session.apply(ResizeOp(OP, (1, 1)))
    now = session.time()
    true = [time.per_input, now.per_input, *(e.cycles / time.batch for e in (*time.epochs, *now.epochs))]
    session.undo()
    figures = plots.all_plots(session)
    assert any(f.title.text == "Search for a better placement" for f in figures)
    tips = 0
    for figure in figures:
        sources = [r.data_source.data for r in figure.renderers]
        for tool in figure.tools:
            for words, field in getattr(tool, "tooltips", None) or ():
                if not re.search(r"cycles (?:/|per) input", words) or NAMED.search(words):
                    continue
                tips += 1
                name = field.removeprefix("@").split("{")[0]
                shown = [v for data in sources if name in data for v in data[name]]
                assert shown, (figure.title.text, words)
                assert all(any(v == pytest.approx(t) for t in true) for v in shown), (figure.title.text, words)
    assert tips >= 2, "nothing was found: the words have changed"


def test_the_report_says_the_same(bare: Bare, browser: Any, tmp_path: Path) -> None:
    session = bare.hub.session
    time = session.time()
    path = report.write_report(session, tmp_path / "report.html", [])
    page = browser.new_page()
    errors = errors_of(page)
    page.goto(path.as_uri())
    page.locator("[data-tb-root]").first.wait_for()
    assert wrong(page, [time.per_input, *(e.cycles / time.batch for e in time.epochs)]) == []
    assert errors == []
    page.close()
