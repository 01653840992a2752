"""A measured run on the screen: colours of graph and grid, columns of the table, totals, roofline, the rows of the
timeline; 5,000 ops of a run alone; and the page that is sent, whose reader drags without a kernel."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.diff import compare_sides, file_sides
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import report
from tbuda_lab.widgets.views.files import FileHub
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import box_of, centre, errors_of, expect, settled
from tests.measured.files import op, perceptron_rows, table
from tests.session.models import perceptron

THEMES = pytest.mark.parametrize("theme", ["light", "dark"])
TILE = "[data-tb-view=grid] .tb-tile[data-tb-op='{}']"
DRAM_SHARDED = "{'program_config': 'MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(in0_block_w=1)'}"
"""A kernel of which the packaged table has no run: what it says of it is an extrapolation."""
FIRST, ACT, SECOND = 9000.0, 1500.0, 7000.0


def run_of(rows: list[dict[str, Any]]) -> Any:
    return read_ops_perf_text(table(rows), "ops_perf_results.csv")


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*perceptron(), "n150", name="mlp")
    rows = perceptron_rows((FIRST, ACT, SECOND))
    rows[-1]["ATTRIBUTES"] = DRAM_SHARDED
    session.load_profile(run_of(rows))
    session.compile()
    return session


@pytest.fixture(scope="module", params=["light", "dark"])
def workbench(request: pytest.FixtureRequest, browser: Any, session: Session) -> Iterator[Bare]:
    with bare_page(browser, session, (1600, 1000), request.param, {"height": 900}) as bare:
        bare.sees(TILE.format("first.matmul"))
        bare.sees("[data-tb-action=tab-measured]:not([hidden])")
        bare.page.locator("[data-tb-action=tab-measured]").click()
        bare.sees("[data-tb-view=measured] tbody tr")
        yield bare
        assert bare.page.errors == []


def cells(page: Any, selector: str) -> list[list[str]]:
    """The rows of a table: names, and the texts of the cells behind them."""
    texts: list[list[str]] = page.locator(f"{selector} tbody tr").evaluate_all(
        "rows => rows.map(r => [r.dataset.tbRow, ...[...r.children].slice(1).map(c => c.textContent.trim())])"
    )
    return texts


def test_rows_sort_by_what_is_lost_and_sum_by_kind(workbench: Bare, shots: Path) -> None:
    page = workbench.page
    lost = "[data-tb-view=measured] th:has([data-tb-action=measured-sort-lost])"
    expect(page.locator(lost)).to_have_attribute("aria-sort", "descending")
    rows = cells(page, "[data-tb-view=measured]")
    assert [float(r[5]) for r in rows] == sorted((float(r[5]) for r in rows), reverse=True)
    times = {r[0]: float(r[2].split()[-1]) for r in rows}
    assert sorted(times.values(), reverse=True) == [FIRST / 1e3, SECOND / 1e3, 2.5, ACT / 1e3]
    page.locator("[data-tb-action=measured-by-kind]").click()
    by_kind = {r[0]: float(r[2].split()[-1]) for r in cells(page, "[data-tb-view=measured]")}
    assert by_kind["matmul"] == (FIRST + SECOND) / 1e3
    page.locator("[data-tb-action=measured-by-op]").click()
    roof = page.locator("[data-tb-view=measured] .tb-roof")
    assert roof.locator("circle").count() == 4
    for part in (roof.locator("figcaption"), roof.locator("svg"), roof.locator(".tb-roof-axis")):
        inner, whole = box_of(part), box_of(roof)
        assert inner["height"] > 8 and inner["y"] + inner["height"] <= whole["y"] + whole["height"] <= 1000
    letters = roof.locator("svg text").first
    assert letters.evaluate("e => e.getBoundingClientRect().height") > 9
    settled(page)
    page.screenshot(path=shots / f"measured_{page.theme}.png")


def test_graph_and_grid_take_the_colours(workbench: Bare, shots: Path) -> None:
    page, tiles = workbench.page, [TILE.format(n) for n in ("first.matmul", "second.matmul")]
    fill = "e => getComputedStyle(e).backgroundColor + e.style.cssText"
    own = [page.locator(t).first.evaluate(fill) for t in tiles]
    page.locator("[data-tb-action=measured-paint-measured]").click()
    workbench.sees("[data-tb-view=graph] [data-tb-overlay='measured µs']")
    settled(page)
    painted = [page.locator(t).first.evaluate(fill) for t in tiles]
    assert painted[0] != painted[1] and painted != own
    page.screenshot(path=shots / f"measured_colours_{page.theme}.png")
    page.locator("[data-tb-action=measured-paint-none]").click()
    settled(page)
    assert [page.locator(t).first.evaluate(fill) for t in tiles] == own


def test_what_is_extrapolated_is_marked_wherever_it_stands(workbench: Bare, shots: Path) -> None:
    """In the rows, in the legend of the colours, in the words on the op that is pointed at, and in the table."""
    page, frame = workbench.page, workbench.hub.frame("measured")
    why = dict(zip(frame.text("op_name"), frame.text("op_extrapolated"), strict=True))
    guessed = [name for name, text in why.items() if text]
    assert guessed == ["second.matmul"]
    page.locator("[data-tb-action=measured-paint-table]").click()
    workbench.sees(f"[data-tb-view=graph] [data-tb-guessed='{len(guessed)}']")
    page.locator("[data-tb-action=measured-paint-measured]").click()
    workbench.sees("[data-tb-view=graph] [data-tb-overlay='measured µs']")
    expect(page.locator("[data-tb-view=graph] [data-tb-guessed]")).to_have_count(0)
    page.locator("[data-tb-action=measured-paint-none]").click()
    for name in ("first.matmul", "second.matmul"):
        page.mouse.move(*centre(page.locator(TILE.format(name)).first))
        card = page.locator(f"[data-tb-card='{name}']")
        expect(card).to_contain_text("µs, by table")
        if why[name]:
            expect(card).to_contain_text("~")
        else:
            expect(card).not_to_contain_text("~")
    page.screenshot(path=shots / f"measured_card_{page.theme}.png")
    page.locator("[data-tb-action=tab-ops]").click()
    for name in guessed:
        row = page.locator(f"[data-tb-view=table] .tb-row[data-tb-op='{name}']").first
        assert row.text_content().count("~ ") == 2
    page.locator("[data-tb-action=tab-trace]").click()
    name = page.locator(f"[data-tb-view=trace] .tb-trace-name[data-tb-op='{guessed[0]}']")
    workbench.sees(f"[data-tb-view=trace] .tb-trace-name[data-tb-op='{guessed[0]}']")
    assert "by table ~" in name.first.get_attribute("title")
    page.locator("[data-tb-action=tab-measured]").click()


def test_a_row_selects_its_op_everywhere(workbench: Bare) -> None:
    page = workbench.page
    page.locator("[data-tb-view=measured] tr[data-tb-op='second.matmul'] button").click()
    workbench.sees(TILE.format("second.matmul") + "[aria-selected=true]")
    expect(page.locator("[data-tb-view=measured] tr.tb-selected")).to_have_count(1)


def test_table_and_timeline_have_the_times(workbench: Bare, shots: Path) -> None:
    """An op takes what its own kernel and those of its activation took: 9.0 and 1.5 us."""
    page = workbench.page
    page.locator("[data-tb-action=tab-ops]").click()
    workbench.sees("[data-tb-view=table] [data-tb-action=sort-lost]")
    page.locator("[data-tb-view=table] [data-tb-action=sort-lost]").click()
    row = page.locator("[data-tb-view=table] .tb-row[data-tb-op]").first
    expect(row).to_have_attribute("data-tb-op", "first.matmul")
    expect(page.locator("[data-tb-view=table] .tb-row[data-tb-op='second.matmul']").first).to_contain_text("7.00")
    page.screenshot(path=shots / f"measured_table_{page.theme}.png")
    page.locator("[data-tb-action=tab-trace]").click()
    workbench.sees("[data-tb-view=trace] [data-tb-took='10500']")
    settled(page)
    page.screenshot(path=shots / f"measured_timeline_{page.theme}.png")
    page.locator("[data-tb-action=tab-measured]").click()


@pytest.mark.parametrize("width", [620, 860])
def test_rows_are_in_sight_in_a_tab_beside_a_notebook(browser: Any, session: Session, shots: Path, width: int) -> None:
    """The words of the bar once took the height of the pane, a word in each line."""
    with bare_page(browser, session, (width, 1100), "light", {"height": 1000}) as bare:
        page = bare.page
        bare.sees("[data-tb-action=tab-measured]:not([hidden])")
        page.locator("[data-tb-action=tab-measured]").click()
        bare.sees("[data-tb-view=measured] tbody tr")
        settled(page)
        page.screenshot(path=shots / f"measured_narrow_{width}.png")
        assert page.locator("[data-tb-view=measured] > .tb-bar").evaluate("e => e.offsetHeight") < 110
        pane = page.locator("[data-tb-view=measured]").bounding_box()
        row = page.locator("[data-tb-view=measured] tbody tr").first.bounding_box()
        assert pane is not None and row is not None
        assert pane["y"] < row["y"] and row["y"] + row["height"] < min(pane["y"] + pane["height"], 1100)


def test_of_five_thousand_ops_some_are_shown_and_all_are_found(browser: Any, shots: Path) -> None:
    rows = [op("Matmul", 1000 + k, [(32, 64), (64, 32)], (32, 32)) for k in range(5000)]
    with browser_page(browser, FileHub([measured_frame(run_of(rows))])) as bare:
        page = bare.page
        expect(page.locator("[data-tb-view=measured] tbody tr")).to_have_count(400)
        expect(page.locator("[data-tb-metric=measured]")).to_contain_text("5,000 ops")
        page.locator("[data-tb-action=measured-filter]").fill("Matmul_4999")
        expect(page.locator("[data-tb-view=measured] tbody tr")).to_have_count(1)
        settled(page)
        page.screenshot(path=shots / "measured_5000.png")


def test_sums_hold_against_the_table_only_what_it_knows(browser: Any) -> None:
    """Of three products one has no count of cores and one is a slip of the clock: neither counts in the ratio."""
    shapes = ([(32, 64), (64, 32)], (32, 32))
    rows = [op("Matmul", 6000, *shapes), op("Matmul", 90_000, *shapes, core_count=0), op("Matmul", 2e12, *shapes)]
    frame = measured_frame(run_of([*rows, op("Zzyzx", 50)]))
    with browser_page(browser, FileHub([frame])) as bare:
        page = bare.page
        ratios = {r[0]: (r[4], r[5]) for r in cells(page, "[data-tb-view=measured]")}
        assert ratios["Matmul_2"][0] == ratios["Matmul_3"][0] == "" and float(ratios["Matmul_1"][0].lstrip("~ ")) > 0
        page.locator("[data-tb-action=measured-by-kind]").click()
        kinds = {r[0]: r for r in cells(page, "[data-tb-view=measured]")}
        assert kinds["matmul"][2].endswith("96")
        assert kinds["matmul"][4] == ratios["Matmul_1"][0] and kinds["other"][4] == kinds["other"][5] == ""


def test_a_run_of_very_many_ops_is_drawn(browser: Any) -> None:
    """As many as are read of a file of a million rows; of its dots those at one place are one."""
    one = run_of([op("Matmul", 6000, [(32, 64), (64, 32)], (32, 32))])
    ops = tuple(dataclasses.replace(one.ops[0], name=f"Matmul_{k}", time=5000.0 + k) for k in range(150_000))
    with browser_page(browser, FileHub([measured_frame(dataclasses.replace(one, ops=ops))])) as bare:
        expect(bare.page.locator("[data-tb-metric=measured]")).to_contain_text("150,000 ops")
        assert 10 < bare.page.locator("[data-tb-view=measured] .tb-roof circle").count() < 2000


@contextlib.contextmanager
def browser_page(browser: Any, hub: FileHub) -> Iterator[Bare]:
    """A page with a measured run alone, without errors to its end."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, offline=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.errors = errors_of(page)
    bare = Bare(page, hub, "measured", {"height": 860})
    bare.sees("[data-tb-view=measured] tbody tr")
    yield bare
    assert page.errors == []
    context.close()


@THEMES
def test_two_runs_are_compared_on_a_page(browser: Any, tmp_path: Path, shots: Path, theme: str) -> None:
    """Before and after a change: strips of time and sums by kind where placements have grids."""
    paths = [tmp_path / "before.csv", tmp_path / "after.csv"]
    paths[0].write_text(table(perceptron_rows((FIRST, ACT, SECOND))))
    new = op("CopyDeviceOperation", 300, [(9, 9)], (9, 9))
    paths[1].write_text(table([new, *perceptron_rows((FIRST, ACT, SECOND + 2100))]))
    page_file = tmp_path / "diff.html"
    page_file.write_text(report.diff_html(compare_sides(*file_sides(*paths))), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1500, "height": 900}, color_scheme=theme, offline=True)
    page = context.new_page()
    errors = errors_of(page)
    page.goto(page_file.as_uri())
    page.wait_for_selector("[data-tb-view=diff] .tb-run")
    expect(page.locator("[data-tb-view=diff]")).not_to_contain_text("cycles")
    boxes = [box_of(page.locator(f".tb-run[data-tb-side=b] [data-tb-op='MatmulDeviceOperation_{k}']")) for k in (1, 2)]
    assert boxes[0]["width"] / boxes[1]["width"] == pytest.approx(FIRST / (SECOND + 2100), rel=0.02)
    assert box_of(page.locator(".tb-run[data-tb-side=b] .tb-d-added"))["x"] < boxes[0]["x"] < boxes[1]["x"]
    expect(page.locator("[data-tb-kind=matmul]")).to_contain_text("+13.1 %")
    page.screenshot(path=shots / f"diff_profiles_{theme}.png")
    assert errors == []
    context.close()


@THEMES
def test_a_page_that_was_sent_drags_within_its_tables(
    browser: Any, session: Session, tmp_path: Path, shots: Path, theme: str
) -> None:
    path = tmp_path / "share.html"
    tables = report.shared_tables(session, 5, seconds=5)
    path.write_text(report.report_html(session, tables=tables), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1500, "height": 1000}, color_scheme=theme, offline=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    errors, asked = errors_of(page), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("[data-tb-ready=true]")
    expect(page.locator("[data-tb-view=grid] [data-tb-action=suggest]")).to_be_visible()
    expect(page.locator("[data-tb-view=grid] [data-tb-action=optimise]")).to_be_hidden()  # there is nobody to search
    name = "first.matmul"
    tile = page.locator(TILE.format(name)).first
    tile.scroll_into_view_if_needed()
    before = tile.get_attribute("aria-label")
    box = box_of(tile)
    page.mouse.move(*centre(tile))
    x, y = centre(page.locator(f"[data-tb-handles-of='{name}'] [data-tb-handle=se]"))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - box["width"] / 2, y - box["height"] / 2, steps=6)  # half as many rows and columns
    page.wait_for_selector("[data-tb-view=grid] .tb-tag:not([hidden])[data-tb-verdict=LEGAL]")
    page.mouse.up()
    line = page.locator("[data-tb-view=grid] [data-tb-answer=done]")
    expect(line).to_contain_text("by the table that was sent, not compiled")
    assert page.locator(TILE.format(name)).first.get_attribute("aria-label") != before
    page.screenshot(path=shots / f"share_{theme}.png")
    assert errors == [] and all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    context.close()
