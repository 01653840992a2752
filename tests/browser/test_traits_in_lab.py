"""Traits of two views in JupyterLab, both ways: the line of a netlist, the filter of problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.browser.conftest import PATIENCE, Lab, box_of, command, expect, in_kernel, open_and_run, settled, until

CODE = """
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.session import Session
from tbuda_lab.widgets import NetlistView, ProblemsView
from tests.session.models import perceptron
session = Session(*perceptron(), "n300", name="mlp")
text = netlists.dumps(session.compile().netlist).splitlines()
problems, netlist = ProblemsView(session), NetlistView(session, height=330)
display(problems, netlist)
"""
NETLIST, PROBLEMS = ("[data-tb-root=netlist] [data-tb-view=netlist]", "[data-tb-root=problems] [data-tb-view=problems]")
OP = "second.matmul"


def asked(page: Any, code: str) -> Any:
    return json.loads(in_kernel(page, f"import json; print(json.dumps({code}))"))


def test_a_line_and_a_filter_go_both_ways(watched: Any, lab: Lab, shots: Path) -> None:
    page = open_and_run(watched, lab, "told", CODE)
    line = page.locator(f"{NETLIST} [data-tb-line]")
    line.first.wait_for(timeout=PATIENCE)
    text = asked(page, "text")
    current = page.locator(f"{NETLIST} [aria-current=true]")
    expect(current).to_have_count(0)

    # Python asks for a line far down: it comes into sight
    last = len(text) - 1
    in_kernel(page, f"netlist.line = {last}")
    expect(current).to_have_attribute("data-tb-line", str(last))
    expect(current).to_have_count(1)
    expect(current).to_contain_text(text[last - 1].split()[0])
    assert box_of(current)["height"] > 0

    # a click marks the line of an op, selects it everywhere, and Python knows both
    expected = next(k for k, words in enumerate(text, 1) if words.startswith(f"    {OP}:"))
    in_kernel(page, "netlist.line = 1")
    expect(current).to_have_attribute("data-tb-line", "1")
    page.locator(f"{NETLIST} .tb-code").evaluate("(e, top) => { e.scrollTop = top; }", max(0, (expected - 4) * 18))
    there = page.locator(f"{NETLIST} [data-tb-line='{expected}']")
    box_of(there)  # the lines in sight are drawn anew when they are scrolled
    there.click()
    until(page, lambda: asked(page, "[netlist.line, list(problems.selected)]") == [expected, [OP]])
    expect(current).to_have_attribute("data-tb-line", str(expected))
    page.keyboard.press("ArrowDown")
    until(page, lambda: asked(page, "netlist.line") == expected + 1)

    # the filter: from Python, then typed
    rows = page.locator(f"{PROBLEMS} li")
    existing = asked(page, "[[p.severity, p.where, p.rule, p.message, p.fix] for p in problems.problems]")
    until(page, lambda: rows.count() == len(existing) > 0)
    box = page.locator(f"{PROBLEMS} [data-tb-action=problems-filter]")
    in_kernel(page, "problems.filter = 'no such words'")
    until(page, lambda: rows.count() == 0 and box.input_value() == "no such words")
    expect(page.locator(f"{PROBLEMS} .tb-found")).to_contain_text(f"0 of {len(existing)} problem")
    word = existing[0][2]
    box.fill(word.upper())
    until(page, lambda: asked(page, "problems.filter") == word.upper())
    result = sum(word in " ".join(one).lower() for one in existing)
    assert result > 0
    expect(rows).to_have_count(result)

    for theme, name in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
        command(page, "apputils:change-theme", theme=theme)
        page.wait_for_selector(f"[data-tb-root=netlist][data-tb-theme={name}]")
        settled(page)
        page.screenshot(path=shots / f"told_in_lab_{name}.png")
    assert watched.errors == [] and watched.outside == []
