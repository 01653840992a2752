"""The graphs of an Ir drawn in the workbench, with a group for each call, in both themes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab import popxl
from tbuda_lab.popxl import ops
from tbuda_lab.widgets import BringUp
from tests.browser.bare import bare_page
from tests.browser.conftest import settled

GRAPH = "[data-tb-view=irgraph]"


def compiled() -> popxl.Session:
    """Two calls of a layer, a loop, a conditional, and a step of the host."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        stream = popxl.h2d_stream((8, 64), popxl.float32, "images")
        weight = popxl.variable(np.eye(64, dtype=np.float32), name="weight")

        def layer(x: popxl.Tensor, weight: popxl.Tensor) -> popxl.Tensor:
            return ops.relu(x @ weight)

        def smooth(x: popxl.Tensor) -> popxl.Tensor:
            return ops.tanh(x)

        x = ops.host_load(stream)
        graph = ir.create_graph(layer, x, weight)
        for _ in range(2):
            (x,) = ops.call(graph, x, weight)
        again = ir.create_graph(smooth, x)
        (x,) = ops.repeat(again, 3, x)
        positive = ops.greater(ops.sum(x), popxl.constant(0.0))
        (x,) = ops.conditional(positive, again, ir.create_graph(layer, x, weight), [x], [x, weight])
        out = popxl.d2h_stream(x.shape, x.dtype, "told")
        ops.host_store(out, ops.floor(x))
    return popxl.Session(ir, "ipu_model")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_graphs_of_an_ir_are_drawn(browser: Any, shots: Path, theme: str) -> None:
    """A click on an op says what runs it, where it is called and at which line; its table has it, and leads back."""
    work = BringUp(compiled()).wait(120)
    with bare_page(browser, work.session, (1280, 1000), theme, {"height": 940}) as bare:
        page = bare.page
        bare.sees("[data-tb-action=tab-program]:not([hidden])")
        page.locator("[data-tb-action=tab-program]").click()
        bare.sees(f"{GRAPH}[data-tb-stage=ir]")
        drawn, chosen = page.locator(GRAPH), page.locator(".tb-program-chosen")
        page.locator(".tb-program-picture").scroll_into_view_if_needed()
        drawn.locator("[data-tb-action=graph-expand]").click()
        settled(page)
        keys = drawn.locator(".tb-legend .tb-key").all_inner_texts()
        assert keys == ["grid", "decomposed", "host", "program", "left out", "variable"]
        groups = drawn.locator(".tb-hooks [data-tb-group]")
        for _ in range(2):  # the second time the whole
            drawn.locator("[data-tb-action=graph-fit]").click()
            settled(page)
        bare.until(lambda: groups.count() == 5, 20)  # two calls, a loop, two branches
        drawn.locator(".tb-hooks [data-tb-op='floor_out']").click()
        bare.until(lambda: "rounding" in chosen.inner_text(), 20)
        assert "host" in chosen.inner_text() and "test_ir_graph.py" in chosen.inner_text()
        assert page.locator("tr[data-tb-op=floor_out].tb-now").count() == 1
        page.locator("details[data-tb-graph*=layer] summary").first.click()
        page.locator("details[data-tb-graph*=layer] [data-tb-action=show-op]", has_text="matMul_out").first.click()
        bare.until(lambda: "calls" in chosen.inner_text(), 20)
        page.locator(".tb-program-picture").scroll_into_view_if_needed()
        settled(page)
        page.screenshot(path=shots / f"ir_graph_{theme}.png")
        chosen.locator("[data-tb-action=segment]").first.click()
        assert page.errors == []
