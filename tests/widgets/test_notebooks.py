"""The notebooks: they run from a clean kernel, and what is stored in them is small and can be read without one."""

from __future__ import annotations

import ast
import base64
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from tbuda_lab.widgets.pictures import fragments
from tests.kernels import Template

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
RUN_IN_LAB = "01_bring_up.ipynb"  # by tests/browser/test_bring_up.py, which looks at its outputs as well
MOST = 300_000  # bytes of a notebook
ABSOLUTE = re.compile(r"(?<![\w<.:/+=-])(?:/[\w.-]+){2,}")
"""A path from the root of somebody's machine: not the rest of a relative one, a tag, an address or a fraction."""
PICTURE = re.compile(r"data:[\w/+;,-]+base64,[\w+/=]+")
AGAIN = "store it again: make notebooks"
BUILT = (Path(__file__).parents[2] / "tbuda_lab/widgets/static/widget.js").is_file()


def texts(notebook: Any) -> Iterator[str]:
    """What a reader sees in words: the cells, what they print, and what their outputs say as text or HTML."""
    for cell in notebook.cells:
        yield cell.source
        for output in cell.get("outputs", ()):
            yield output.get("text", "")
            yield from (data for kind, data in output.get("data", {}).items() if kind.startswith("text/"))


@pytest.mark.parametrize("shown", ["/home/someone/x.yaml", "see '/tmp/a/b'", "File (/opt/lib/python/x.py)"])
def test_paths_from_the_root_are_seen(shown: str) -> None:
    assert ABSOLUTE.search(shown) and not ABSOLUTE.search("</td> models/net.yaml https://a.org/b/c 3/4 /inputs")


@pytest.fixture(scope="module")
def nbformat() -> ModuleType:
    """Imported for its tests alone: its grammars take five seconds, which every worker would spend."""
    for name in ("nbclient", "ipykernel"):
        pytest.importorskip(name)
    pytest.importorskip("nbformat.v4")
    return pytest.importorskip("nbformat")  # type: ignore[no-any-return]


def tool() -> ModuleType:
    """`notebooks/render.py`, which is a script and no package."""
    spec = importlib.util.spec_from_file_location("render", FOLDER / "render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shape(notebook: Any) -> list[tuple[str, list[tuple[str, ...]]]]:
    """What kinds of outputs each cell has, numbers aside."""
    return [
        (cell.id, [(o.output_type, *sorted(o.get("data", {}))) for o in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
WHEN = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:[-+]\d\d:\d\d|Z)")
"""The time of day of a checkpoint, in a session file."""


def says(output: Any) -> str:
    """All that an output says: text, HTML, and what its pictures draw and write."""
    kinds = output.get("data", {})
    whole = output.get("text", "") + "".join(kinds[kind] for kind in sorted(kinds) if kind.startswith("text/"))
    return PICTURE.sub(lambda m: base64.b64decode(m.group().split("base64,")[1]).decode(errors="replace"), whole)


def differs(stored: str, run: str) -> str:
    """Where two texts say something else, times of day aside: "" for nowhere. Of a fraction the last digit may differ,
    as the last bits of a tensor do from processor to processor."""
    stored, run = WHEN.sub("WHEN", stored), WHEN.sub("WHEN", run)
    pieces = (itertools.zip_longest(NUMBER.split(t), NUMBER.findall(t), fillvalue="") for t in (stored, run))
    for (word, number), (other, another) in itertools.zip_longest(*pieces, fillvalue=("", "")):
        if word != other or not _alike(number, another):
            return f"{word[-80:]}{number} is {other[-80:]}{another}"
    return ""


def _alike(stored: str, run: str) -> bool:
    fraction = re.search(r"\.(\d+)(?:e(.+))?$", stored)
    if fraction is None or not run:
        return stored == run
    a, b = (float(text.replace(",", "")) for text in (stored, run))
    return abs(a - b) < 1.5 * 10.0 ** (int(fraction[2] or 0) - len(fraction[1]))


def changes(stored: Any, run: Any) -> list[str]:
    """What a run of a notebook says otherwise than what is stored in it, by cell."""
    cells = zip(stored.cells, run.cells, strict=True)
    pairs = [(a.id, *both) for a, b in cells for both in zip(a.get("outputs", ()), b.get("outputs", ()), strict=True)]
    return [f"{cell}: {what}" for cell, a, b in pairs if (what := differs(says(a), says(b)))]


@pytest.mark.parametrize(
    ("stored", "run", "same"),
    [
        ("1,234 cycles", "1,234 cycles", True),
        ("1,234 cycles", "1,235 cycles", False),
        ("PCC 0.99987", "PCC 0.99988", True),
        ("PCC 0.99987", "PCC 0.99989", False),
        ("3.1e-05", "3.2e-05", True),
        ("3.1e-05", "3.1e-04", False),
        ("12 ops", "12 op", False),
        ("12 ops, 3", "12 ops, ", False),
        ('at "2026-11-28T22:39:37+00:00"', 'at "2027-01-08T02:00:01+00:00"', True),
        ("layer.1.add at 2", "layer.2.add at 2", False),
    ],
)
def test_numbers_are_compared(stored: str, run: str, same: bool) -> None:
    assert (differs(stored, run) == "") == same


def test_a_number_in_a_picture_is_compared(nbformat: Any) -> None:
    def shown(text: str) -> Any:
        picture = base64.b64encode(f"<svg><text>{text}</text></svg>".encode()).decode()
        html = f"<img src='data:image/svg+xml;base64,{picture}'>"
        outputs = [nbformat.v4.new_output("display_data", {"text/html": html})]
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="one", outputs=outputs)])

    assert changes(shown("7 cycles"), shown("7 cycles")) == []
    assert changes(shown("7 cycles"), shown("8 cycles")) == ["one: <img src='<svg><text>7 is <img src='<svg><text>8"]


def test_they_are_all_there() -> None:
    assert [n.name for n in NOTEBOOKS] == [
        "01_bring_up.ipynb",
        "02_reshape.ipynb",
        "03_cnn.ipynb",
        "04_open_a_netlist.ipynb",
        "05_overrides_as_code.ipynb",
        "06_sambaflow.ipynb",
        "07_slow_and_wrong.ipynb",
        "08_any_model.ipynb",
        "09_popxl.ipynb",
        "10_which_card.ipynb",
    ]
    readme = (FOLDER / "README.md").read_text()
    assert [n.name for n in NOTEBOOKS if n.name not in readme] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_what_is_stored(path: Path, nbformat: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.get("widgets") is None
    assert path.stat().st_size < MOST
    text = path.read_text()
    assert "application/vnd.jupyter.widget-view" not in text, "a dead model would hide the static picture"
    assert [path for shown in texts(notebook) for path in ABSOLUTE.findall(PICTURE.sub("", shown))] == []
    pictures = 0
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        ast.parse(cell.source)
        assert cell.execution_count == number
        assert "execution" not in cell.metadata
        assert not [o for o in cell.outputs if o.output_type == "error" or o.get("name") == "stderr"]
        pictures += sum("<img" in o.get("data", {}).get("text/html", "") for o in cell.outputs)
    assert pictures > 0, "no static picture is stored"
    assert tool().AT_WORK not in text, "a view is stored without its picture: show its picture at the end"


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="the front end is not built: make front-end")
@pytest.mark.parametrize("path", [n for n in NOTEBOOKS if n.name != RUN_IN_LAB], ids=lambda p: p.stem)
def test_it_runs(path: Path, nbformat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: Template) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), *sys.path]))
    monkeypatch.setenv("JUPYTER_PATH", str(kernels.path))
    notebook = tool().execute(path, tmp_path)
    stored = nbformat.read(path, as_version=4)
    assert shape(notebook) == shape(stored), AGAIN
    assert changes(stored, notebook) == [], AGAIN
    printed = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", ()))
    pcc = [float(p) for p in re.findall(r"PCC (\d\.\d+)", printed)]
    assert all(p >= 0.99 for p in pcc)
    # 07 plants a fault: what it prints is where that is; 09 trains beside torch, and a cell of its own raises
    assert pcc or path.stem[:2] in ("04", "05", "07", "09")


@pytest.mark.parametrize("forked", [True, False])
def test_a_kernel_is_a_fork_or_starts_as_usual_where_no_template_answers(
    forked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels: Template
) -> None:
    """Either answers, has its own environment and streams, and is gone after a shutdown."""
    start_new_kernel = pytest.importorskip("jupyter_client.manager").start_new_kernel
    template = kernels if forked else Template(tmp_path)
    if not forked:
        template.stop()
    monkeypatch.setenv("JUPYTER_PATH", str(template.path))
    monkeypatch.setenv("TBUDA_ASKED", str(tmp_path))
    messages: list[Any] = []
    manager, client = start_new_kernel(startup_timeout=240)
    client.execute_interactive(
        "import os, sys; print(os.getpid(), os.environ['TBUDA_ASKED'], 'torch' in sys.modules)",
        timeout=240,
        output_hook=messages.append,
    )
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    pid, asked, has_torch = "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream").split()
    assert asked == str(tmp_path) and has_torch == str(forked)
    psutil.wait_procs([psutil.Process(int(pid))] if psutil.pid_exists(int(pid)) else [], timeout=60)
    assert not psutil.pid_exists(int(pid))


def test_a_view_that_was_at_work_is_stored_as_it_was_in_the_end(nbformat: Any) -> None:
    note = fragments.bringup_html({})
    assert tool().AT_WORK in note

    def output(html: str, name: str) -> Any:
        return nbformat.v4.new_output("execute_result", {"text/html": html, "text/plain": name})

    outputs = [[output(note, "a")], [output("<p>first</p>", "a"), output(note, "b")], [output("<p>last</p>", "a")]]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", outputs=o) for o in outputs])
    tool().finished(notebook)
    matches = [[o.data["text/html"] for o in cell.outputs] for cell in notebook.cells]
    assert matches == [["<p>last</p>"], ["<p>first</p>", note], ["<p>last</p>"]]


def test_pieces_of_a_stream_are_joined(nbformat: Any) -> None:
    out = nbformat.v4.new_output
    pieces = [
        out("stream", name="stdout", text="a"),
        out("stream", name="stdout", text="b"),
        out("stream", name="stderr", text="c"),
        out("display_data"),
        out("stream", name="stdout", text="d"),
    ]
    joined = tool().joined(pieces)
    assert [(o.output_type, o.get("text")) for o in joined] == [
        ("stream", "ab"),
        ("stream", "c"),
        ("display_data", None),
        ("stream", "d"),
    ]
