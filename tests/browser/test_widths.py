"""Nothing is cut at a right edge or covered: every tab of the workbench at three widths, with all that there can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.widgets import BringUp
from tests.browser.bare import Bare, bare_page
from tests.browser.conftest import settled
from tests.measured.files import op, table
from tests.session.models import encoder
from tests.widgets.test_program_view import write_pef

CUT = """() => {
  const found = new Set();
  const root = document.querySelector('[data-tb-root]');
  const name = e => `${e.tagName} ${e.getAttribute('class') ?? ''} ${e.textContent.slice(0, 40)}`;
  const scrolls = style => ['auto', 'scroll'].includes(style.overflowX);
  for (const e of root.querySelectorAll('*')) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || e.closest('.tb-live, .tb-hooks') || !e.checkVisibility()) continue;
    const [style, drawn] = [getComputedStyle(e), e instanceof SVGElement];
    const short = e.closest('[title]') && style.textOverflow === 'ellipsis'; // the whole is a pointer away
    // columns of the op table are chosen by the user, lines of a netlist are as long as they are, graphs are panned
    if (!drawn && style.overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1 && !short
        && !e.matches('.tb-table, .tb-code, .tb-stage'))
      found.add(`${e.scrollWidth} px in ${e.clientWidth}: ${name(e)}`);
    for (let p = e.parentElement; p && (drawn || !e.children.length); p = p.parentElement) {
      const holds = getComputedStyle(p);
      if (p !== root && holds.overflowX === 'visible' && p.tagName !== 'svg') continue;
      const more = box.right - p.getBoundingClientRect().right;
      const shortened = holds.textOverflow === 'ellipsis' && p.closest('[title]');
      if (more > 1.5 && !scrolls(holds) && !shortened) found.add(`${more.toFixed(0)} px beyond ${name(p)}: ${name(e)}`);
      break;
    }
  }
  return [...found];
}"""
"""What is wider than the room it has, and what stands beyond the right edge of what holds it."""
COVERED = """() => {
  const root = document.querySelector('[data-tb-root]');
  const room = e => {
    let box = e.getBoundingClientRect();
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom];
    for (let p = e.parentElement; p; p = p.parentElement) {
      if (getComputedStyle(p).overflow === 'visible') continue;
      box = p.getBoundingClientRect();
      [left, top] = [Math.max(left, box.left), Math.max(top, box.top)];
      [right, bottom] = [Math.min(right, box.right), Math.min(bottom, box.bottom)];
    }
    return [left, top, Math.min(right, innerWidth), Math.min(bottom, innerHeight)];
  };
  const found = [];
  for (const e of root.querySelectorAll('button, input, select, summary, h3, h4, dt, dd, th, td, figcaption')) {
    if (e.closest('.tb-hooks') || !e.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const [left, top, right, bottom] = room(e);
    if (right - left < 4 || bottom - top < 4) continue; // scrolled out of sight
    const over = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    if (over && !e.contains(over) && !over.contains(e) && getComputedStyle(e).pointerEvents !== 'none'
        && !over.closest('label')?.contains(e)) {
      const name = `${e.tagName} ${e.dataset.tbAction ?? ''} ${e.textContent.slice(0, 30)}`;
      found.push(`${name} below ${over.tagName} ${over.className}`);
    }
  }
  return found;
}"""
"""What stands below something else where its middle in sight is."""
READY = {
    "ops": "[data-tb-view=table] .tb-rows .tb-row",
    "profile": "[data-tb-view=profile][data-tb-state=ready] tbody tr",
    "measured": "[data-tb-view=measured] tbody tr",
    "trace": "[data-tb-view=trace][data-tb-state=ready]",
    "netlist": "[data-tb-view=netlist] .tb-line",
    "overrides": "[data-tb-view=overrides] tr[data-tb-override]",
    "placements": "[data-tb-view=placements] tr[data-tb-placement]",
    "memory": "[data-tb-view=memory] .tb-heat [data-tb-op]",
    "diff": "[data-tb-view=diff] tr[data-tb-op]",
    "passes": "[data-tb-view=passes] [data-tb-action=pass]",
    "plots": "[data-tb-view=plots][data-tb-state=ready]",
    "cluster": "[data-tb-view=cluster] [data-tb-chip]",
}
"""What a tab shows once it has all that it asks for; of others, that its code is there."""


@pytest.fixture(scope="module")
def session() -> Session:
    """Two chips, an edit, a measured run: all tabs but the program's."""
    session = Session(*encoder(5), "n300", name="encoder")
    session.compile()
    op = next(o for o, p in session.result.placement.ops.items() if p.size[0] > 1)
    session.apply(ResizeOp(op, (1, 1)))
    session.compile()
    return session


def cut_in_tabs(bare: Bare, shots: Path, width: int, names: Sequence[str] = ()) -> dict[str, list[str]]:
    """What is cut or covered in each tab. names: of those tabs, by default of all that there are."""
    page = bare.page
    found = {}
    bare.sees(f"[data-tb-action=tab-{names[0]}]:not([hidden])" if names else "[role=tablist]")
    for tab in page.locator("[role=tablist] [role=tab]:visible").all():
        name = str(tab.get_attribute("data-tb-action")).removeprefix("tab-")
        if names and name not in names:
            continue
        tab.click()
        bare.sees(READY.get(name, f"[data-tb-view={name}]:not([data-tb-late])"))
        settled(page)
        page.screenshot(path=shots / f"width_{width}_{name}.png")
        found[name] = page.evaluate(CUT) + page.evaluate(COVERED)
    return found


def products_of(session: Session) -> list[dict[str, Any]]:
    """Rows of a run of the model's own products, with a move that it does not have, and an op without a time."""
    graph = session.trace()
    others = [op("CopyDeviceOperation", 300, [(9, 9)], (9, 9)), op("SoftmaxDeviceOperation", "", [(9, 9)], (9, 9))]
    return others + [
        op("MatmulDeviceOperation", 9000, [graph[s].shape for s in node.sources[:2]], node.shape)
        for node in graph.ops
        if node.op is not None and node.op.type == "matmul"
    ]


@pytest.mark.parametrize("width", [1024, 1440, 1920])
def test_no_tab_is_cut(browser: Any, session: Session, shots: Path, width: int) -> None:
    with bare_page(browser, session, (width, 900), "light", {"height": 840}) as bare:
        bare.sees("[data-tb-view=grid] .tb-tile")
        session.load_profile(read_ops_perf_text(table(products_of(session)), "ops_perf_results.csv"))
        bare.sees("[data-tb-action=tab-measured]:not([hidden])")
        found = cut_in_tabs(bare, shots, width)
        assert len(found) > len(READY) and {n: f for n, f in found.items() if f} == {}
        assert bare.page.errors == []


def test_the_program_of_a_dialect_is_not_cut(browser: Any, shots: Path, tmp_path: Path) -> None:
    work = BringUp(write_pef(tmp_path, "small")).wait(120)
    with bare_page(browser, work.session, (1024, 900), "light", {"height": 840}) as bare:
        for width in (1024, 1440, 1920):
            bare.page.set_viewport_size({"width": width, "height": 900})
            assert {n: f for n, f in cut_in_tabs(bare, shots, width, ["program"]).items() if f} == {}
        assert bare.page.errors == []
