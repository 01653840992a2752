"""Documents in JupyterLab: session files and images by double click, netlists by *Open With*, or without a kernel."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.session import Session
from tests.browser.conftest import PATIENCE, box_of, command, expect, settled
from tests.measured.files import perceptron_rows, table
from tests.netlist import builders as b
from tests.session.models import perceptron
from tests.widgets.test_labcomm import image_files, tar
from tests.widgets.test_program_view import write_pef

JOURNAL = """{
"commands": [
  {"do": "resize", "op": "first.matmul", "size": [2, 2]}
, {"do": "checkpoint", "name": "small"}
, {"do": "break", "op": "second.matmul"}
, {"do": "undo"}
],
"device": "e300",
"format": "tbuda-session 1",
"harvested_rows": null,
"name": "mlp",
"options": {},
"overrides": []
}
"""


def small(path: Path) -> None:
    netlist.dump(
        b.build(
            [b.op("first", "nop", ["x"], grid=(2, 2)), b.op("second", "exp", ["first"], loc=(3, 1))], {"x": (1, 2, 2)}
        ),
        path,
    )


@pytest.fixture(scope="module")
def page(watched: Any, lab: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = lab.folder / "documents"
    folder.mkdir()
    small(folder / "small_netlist.yaml")
    (folder / "other.yaml").write_text("just: yaml\n")
    (folder / "not_a_netlist.yaml").write_text("a: [1, 2\n")
    (folder / "mlp.buda.json").write_text(JOURNAL)
    (folder / "plain.json").write_text("{}")
    tar(folder / "image.tti", image_files(tmp_path_factory.mktemp("image")))
    profile = table(perceptron_rows())
    for name, text in (
        ("ops_perf_results_1.csv", profile),
        ("ops_perf_cut.csv", profile[: profile.rindex("UnaryDevice") + 60]),
        ("mine.csv", profile),
        ("prices.csv", "a,b\n1,2\n"),
    ):
        (folder / name).write_text(text)
    (folder / "bad.tti").write_bytes(b"no archive")
    Session(*perceptron(), "n150", name="mlp").export_tti(folder / "mlp.tti")
    shutil.copy(write_pef(tmp_path_factory.mktemp("pef"), "digits"), folder / "digits.pef")
    page = watched.page
    page.set_default_timeout(PATIENCE // 4)
    command(page, "filebrowser:open-path", path="documents")
    page.wait_for_selector(".jp-DirListing-itemText >> text=mlp.buda.json")
    yield page
    command(page, "apputils:change-theme", theme="JupyterLab Light")


def item(page: Any, name: str) -> Any:
    return page.locator(".jp-DirListing-item", has=page.get_by_text(name, exact=True))


def test_a_double_click_leaves_yaml_to_the_editor(page: Any) -> None:
    for name in ("small_netlist.yaml", "other.yaml"):
        item(page, name).dblclick()
        page.wait_for_function(
            "n => window.jupyterapp.shell.currentWidget?.title.label === n && "
            "window.jupyterapp.shell.currentWidget.node.querySelector('.cm-editor')",
            arg=name,
        )


def test_open_with_netlist_grid(page: Any, shots: Path) -> None:
    item(page, "small_netlist.yaml").click(button="right")
    page.locator(".lm-Menu-item", has_text="Open With").hover()
    entry = page.locator(".lm-Menu-item", has_text="Netlist grid")
    entry.wait_for()
    entry.click()
    document = page.locator("[data-tb-document=netlist]")
    document.locator("[data-tb-root=netlistfile] .tb-tile[data-tb-op=first]").wait_for(timeout=PATIENCE)
    expect(document.locator("[data-tb-view=grid] .tb-tile[data-tb-op=first]")).to_have_count(1)
    document.locator("[data-tb-view=graph] [data-tb-op=first]").first.wait_for()
    document.locator("[data-tb-action=tab-queues]").click()
    expect(document.locator("[data-tb-queue=x]")).to_have_count(1)
    document.locator("[data-tb-action=tab-programs]").click()
    expect(document.locator("[data-tb-view=programs]")).to_contain_text("execute")
    page.screenshot(path=shots / "lab_netlist_light.png")
    expect(document.locator("[data-tb-banner]")).to_have_attribute("data-tb-banner", "")


def test_a_netlist_that_is_saved_again_is_read_again(page: Any, lab: Any) -> None:
    file = lab.folder / "documents" / "small_netlist.yaml"
    page.evaluate(
        """async text => {
          const { contents } = window.jupyterapp.serviceManager;
          const widget = window.jupyterapp.shell.currentWidget;
          widget.context.model.fromString(text);
          await widget.context.save();
        }""",
        file.read_text().replace("grid_loc: [3, 1]", "grid_loc: [5, 2]"),
    )
    page.wait_for_function(
        """() => {
          const t = document.querySelector('[data-tb-document=netlist] .tb-tile[data-tb-op=second]');
          return t && /row 5/.test(t.getAttribute('aria-label') ?? t.textContent);
        }"""
    )


def test_a_session_file_says_what_it_holds(page: Any, shots: Path) -> None:
    item(page, "mlp.buda.json").dblclick()
    view = page.locator("[data-tb-document=journal] [data-tb-view=journal]")
    view.locator("[data-tb-step]").first.wait_for(timeout=PATIENCE)  # the view is there before what it shows
    expect(view.locator("[data-tb-step]")).to_have_count(1)
    expect(view.locator("[data-tb-undone]")).to_have_count(1)
    for text in ("override_op_size", "(2, 2)", "small", "e300", "Session.open("):
        expect(view).to_contain_text(text)
    page.screenshot(path=shots / "lab_journal_light.png")


def test_an_image_shows_manifest_and_grid(page: Any, shots: Path) -> None:
    item(page, "image.tti").dblclick()
    document = page.locator("[data-tb-document=image]")
    document.locator(".tb-tile[data-tb-op=first]").wait_for(timeout=PATIENCE)
    page.wait_for_selector("[data-tb-view=image] dt")
    expect(document.locator("[data-tb-view=image]")).to_contain_text("Wormhole_B0")
    listed = document.locator("[data-tb-view=image] details td", has_text="torch.Tensor.w.pkl")
    expect(listed).to_be_hidden()
    document.locator("[data-tb-action=image-files]").click()
    expect(listed).to_be_visible()
    page.screenshot(path=shots / "lab_image_light.png")


def test_a_pef_opens_in_the_workbench(page: Any, shots: Path) -> None:
    item(page, "digits.pef").dblclick()
    document = page.locator("[data-tb-document=program]")
    document.locator("[data-tb-root=bringup] .tb-tile").first.wait_for(timeout=PATIENCE)
    document.locator("[data-tb-action=tab-program]").click()
    expect(document.locator("[data-tb-view=program]")).to_contain_text("section")
    page.screenshot(path=shots / "lab_pef_light.png")


def test_a_profile_opens_by_double_click(page: Any, shots: Path) -> None:
    item(page, "ops_perf_results_1.csv").dblclick()
    view = page.locator("[data-tb-document=profile]:visible [data-tb-view=measured]")
    view.locator("tbody tr").first.wait_for(timeout=PATIENCE)
    expect(view.locator("tbody tr")).to_have_count(4)
    expect(view.locator("[data-tb-metric=measured]")).to_contain_text("4 ops, 0.020 ms")
    expect(view).not_to_contain_text("finding")
    expect(view).not_to_contain_text("other views")  # it is alone
    tab = box_of(page.locator("[data-tb-document=profile]:visible"))
    assert box_of(view)["height"] > 0.9 * tab["height"] - 42
    page.screenshot(path=shots / "lab_profile_light.png")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.locator("[data-tb-theme=dark]:visible").first.wait_for()
    settled(page)
    page.screenshot(path=shots / "lab_profile_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.locator("[data-tb-theme=light]:visible").first.wait_for()


def test_a_profile_that_was_cut_shows_what_it_has(page: Any) -> None:
    item(page, "ops_perf_cut.csv").dblclick()
    view = page.locator("[data-tb-document=profile]:visible [data-tb-view=measured]")
    view.locator("tbody tr").first.wait_for(timeout=PATIENCE)
    expect(view.locator("tbody tr")).to_have_count(3)
    expect(view).to_contain_text("row 4: it is cut")


def test_a_table_of_another_name_is_opened_as_a_profile_or_says_why_not(page: Any) -> None:
    item(page, "mine.csv").dblclick()
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget?.title.label === 'mine.csv'")
    expect(page.locator("[data-tb-document=profile]:visible")).to_have_count(0)  # JupyterLab's own viewer
    for name, ends in (("mine.csv", "[data-tb-view=measured] tbody tr"), ("prices.csv", "[data-tb-banner=failed]")):
        item(page, name).click(button="right")
        page.locator(".lm-Menu-item", has_text="Open With").hover()
        page.locator(".lm-Menu-item", has_text="Measured profile").click()
        page.locator(f"[data-tb-document=profile]:visible {ends}").first.wait_for(timeout=PATIENCE)
    expect(page.locator("[data-tb-banner=failed]:visible")).to_contain_text("row 1: a profile has the columns")


def test_an_image_of_our_own_shows_its_model(page: Any, shots: Path) -> None:
    item(page, "mlp.tti").dblclick()
    document = page.locator("[data-tb-document=image]").last
    document.locator(".tb-tile[data-tb-op='first.matmul']").wait_for(timeout=PATIENCE)
    head = document.locator("[data-tb-view=image]")
    for text in ("9 rows x 8 columns", "included", "Session.open("):
        expect(head).to_contain_text(text)
    box_of(head)  # the tab is drawn
    facts = head.evaluate(  # in one step: the list may be drawn anew between two
        """head => [...head.querySelectorAll('dt')].map(term => {
          const [box, value] = [term.getBoundingClientRect(), term.nextElementSibling.getBoundingClientRect()];
          const beside = Math.abs(box.y - value.y) < 4 && box.right < value.x;
          return [term.innerText, term.nextElementSibling.innerText, beside];
        })"""
    )
    assert ["harvested", "row 11", True] in facts, "rows, not a mask"
    assert all(beside for *_, beside in facts)
    page.screenshot(path=shots / "lab_image_own_light.png")
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.locator("[data-tb-theme=dark]:visible").first.wait_for()
    page.screenshot(path=shots / "lab_image_own_dark.png")
    command(page, "apputils:change-theme", theme="JupyterLab Light")
    page.locator("[data-tb-theme=light]:visible").first.wait_for()


def test_a_file_that_is_none_says_why(page: Any) -> None:
    item(page, "bad.tti").dblclick()
    bad = page.locator("[data-tb-banner=failed]", has_text="neither a tar nor a zip")
    bad.wait_for(timeout=PATIENCE)
    bad.locator("[data-tb-action=try-again]").click()
    bad.wait_for()


def test_without_a_kernel_a_netlist_has_a_preview(page: Any, watched: Any, shots: Path) -> None:
    assert watched.errors == [], "nothing up to here; what comes now shuts kernels down and refuses new ones"
    page.evaluate(
        """async () => {
          const { sessions } = window.jupyterapp.serviceManager;
          await sessions.refreshRunning();
          await Promise.all([...sessions.running()].map(s => sessions.shutdown(s.id)));
        }"""
    )
    command(page, "application:close-all")
    page.route(
        "**/api/sessions*",
        lambda route: (
            route.fulfill(status=200, content_type="application/json", body="[]")
            if route.request.method == "GET"
            else route.abort()
        ),
    )
    page.route("**/api/kernels*", lambda route: route.abort() if route.request.method == "POST" else route.continue_())
    command(page, "docmanager:open", path="documents/small_netlist.yaml", factory="tbuda-netlist")
    document = page.locator("[data-tb-document=netlist]")
    tile = document.locator("[data-tb-root=preview] .tb-tile[data-tb-op=first]")
    tile.wait_for()
    tile.click()
    expect(document.locator("[data-tb-view=inspector]")).to_contain_text("grid_loc")
    document.locator("[data-tb-action=tab-queues]").click()
    expect(document.locator("[data-tb-queue=x]")).to_have_count(1)
    document.locator("[data-tb-action=tab-programs]").click()
    expect(document.locator("[data-tb-view=programs]")).to_contain_text("execute")
    document.locator("[data-tb-banner=failed]").wait_for()
    command(page, "apputils:change-theme", theme="JupyterLab Dark")
    page.wait_for_selector("[data-tb-root=preview][data-tb-theme=dark]")
    settled(page)
    page.screenshot(path=shots / "lab_preview_dark.png")
    command(page, "docmanager:open", path="documents/not_a_netlist.yaml", factory="tbuda-netlist")
    page.locator("[data-tb-banner=failed]", has_text="Not YAML").wait_for()
    page.unroute_all()


def test_nothing_went_wrong(watched: Any) -> None:
    # JupyterLab says so of the kernel that was refused above, and of those that were shut down while it held them
    gone = re.compile(r"ERR_FAILED|WebSocket connection to '[^']*/api/kernels/.*response code: 404")
    assert [e for e in watched.errors if not gone.search(e)] == []
    assert watched.outside == []
