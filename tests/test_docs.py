"""Documents that name files, targets and commands must stay true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "docs/design", "docs/reference", "bench", "notebooks")
PAGES = sorted(str(page.relative_to(ROOT)) for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    prefixes = r"(?:tbuda_lab|tests|bench|docs|notebooks|labextension)/[\w./-]*"
    built = ("tbuda_lab/widgets/static", "tbuda_lab/labextension")
    named = {path.rstrip(".") for path in re.findall(rf"`({prefixes})`", text)}
    missing += [path for path in sorted(named) if not path.startswith(built) and not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", (ROOT / page).read_text(encoding="utf-8")))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    """With these options; a mere name (`tbuda netlist`) is one that has a help."""
    from tbuda_lab.cli.app import build_parser

    text = (ROOT / page).read_text(encoding="utf-8").replace("ARCH", "grayskull")
    lines = re.findall(r"^(tbuda [a-z].*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert lines or page != "README.md"
    lines += re.findall(r"`(tbuda [a-z][^`]*)`", text)
    for line in lines:
        words = line.split()[1:]
        if any(re.search(r"[-./%A-Z]", word) for word in words):
            build_parser().parse_args(words)
        else:
            with pytest.raises(SystemExit) as end:
                build_parser().parse_args([*words, "--help"])
            assert end.value.code == 0, line


def test_makefile_is_sound() -> None:
    answer = subprocess.run(["make", "-n", "help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def _scripts(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


RUN_EACH = """
import json, sys, traceback
import tbuda_lab
for number, script in enumerate(json.load(sys.stdin)):
    print("== script", number, flush=True)
    try:
        exec(compile(script, f"<script {number}>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc(file=sys.stdout)
    tbuda_lab.pybuda_reset()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scripts of the documents ran."""
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, list[str]]:
    """What the scripts of each document print, each with names of its own, in one process: it imports torch once."""
    readme = [script for script in _scripts("README.md") if "import tbuda_lab as pybuda" in script]
    pages = {
        "README.md": readme,
        "docs/device-images.md": _scripts("docs/device-images.md"),
        "docs/how-to.md": ["\n".join(_scripts("docs/how-to.md"))],
    }
    answer = subprocess.run(
        [sys.executable, "-c", RUN_EACH],
        input=json.dumps([script for each in pages.values() for script in each]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    outputs = iter(re.split(r"^== script \d+\n", answer.stdout, flags=re.MULTILINE)[1:])
    return {page: [next(outputs) for _ in scripts] for page, scripts in pages.items()}


@pytest.mark.parametrize(
    ("page", "least", "expected"),
    [
        ("README.md", 1, "(1, 1, 32, 32)"),
        ("docs/device-images.md", 2, "- Device Name: tt0"),
        ("docs/how-to.md", 1, "cycles of the slowest kernels per input"),
    ],
)
def test_scripts_run(page: str, least: int, expected: str, printed: dict[str, list[str]]) -> None:
    assert len(printed[page]) >= least
    for output in printed[page]:
        assert "Traceback" not in output, output
    assert expected in "".join(printed[page])


def test_the_scripts_about_device_images_write_them(printed: dict[str, list[str]], folder: Path) -> None:
    assert "(1, 32)" in printed["docs/device-images.md"][0]
    assert sorted(p.name for p in (folder / "device_images").iterdir()) == ["net.tti", "net_1.tti", "tt0.tti"]


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_citations_resolve() -> None:
    """Every `page.md#section` in code and documents is a section of docs/design, and no other page is cited."""
    pages = {page.name: _anchors(page) for page in (ROOT / "docs/design").glob("*.md")}
    tracked = [*(ROOT / "tbuda_lab").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py")]
    cited = 0
    unresolved = []
    for file in tracked:
        if file == Path(__file__):
            continue
        for name, anchor in re.findall(r"\b([\w-]+\.md)#([\w-]+)", file.read_text(encoding="utf-8")):
            cited += 1
            if anchor not in pages.get(name, set()):
                unresolved.append(f"{file.relative_to(ROOT)}: {name}#{anchor}")
    assert unresolved == []
    assert cited > 50


def test_the_page_on_routing_has_every_rule() -> None:
    """By the name that reports and the checker give it."""
    from tbuda_lab.core.netlist.check import registry
    from tbuda_lab.core.netlist.routing import RouteRule

    text = (ROOT / "docs/design/routing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert {rule.label for rule in RouteRule if rule} - named == set()
    rules = set(re.findall(r"^\| (N\d+) \|", text, re.MULTILINE))
    assert {r.id for r in registry.ordered_rules() if r.stage == "route"} == rules


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """MkDocs is strict: a link, an anchor or a name of the API that is not there is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    reference = (tmp_path / "site/reference/session/index.html").read_text(encoding="utf-8")
    assert "tbuda_lab.core.session.Session.legal" in reference or "Session.legal" in reference
