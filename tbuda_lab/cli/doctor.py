"""`tbuda doctor`: what is installed, what is missing, and what works without it."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import tbuda_lab
from tbuda_lab._version import __version__

# (distribution, what works without it, what it is needed for); the first group is required
REQUIRED = ("torch", "numpy", "scipy", "networkx", "PyYAML")
OPTIONAL = (
    ("jupyterlab", "notebooks in JupyterLab", "compile, run and report on the command line work without it"),
    ("anywidget", "the BringUp widget", "compile, run and report on the command line work without it"),
    ("ipywidgets", "the BringUp widget", "compile, run and report on the command line work without it"),
    ("bokeh", "plots (tbuda report --plots)", "everything but the plots works without it"),
    ("transformers", "the BERT and GPT-2 tests", "your own torch modules work without it"),
    ("playwright", "the browser test", "everything but that test works without it"),
    ("hypothesis", "the property tests", "everything but the tests works without it"),
    ("pytest", "the tests", "everything but the tests works without it"),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `tbuda doctor`."""
    parser = subparsers.add_parser("doctor", help="list what is installed, what is missing, what works without it")
    parser.set_defaults(handler=run)


def run(_: argparse.Namespace) -> int:
    """Print the findings; 1 when something required is missing."""
    print(f"tbuda {__version__}  Python {platform.python_version()}  {platform.system()} {platform.machine()}")
    missing = [name for name in REQUIRED if not _line(name, _version(name), "required")]
    for name, purpose, without in OPTIONAL:
        _line(name, _version(name), f"for {purpose}; {without}")

    package = Path(tbuda_lab.__file__).parent
    _line(
        "views",
        _built(package / "widgets/static/page.js"),
        "run `make front-end` in a checkout, or install a wheel; the command line works without it",
    )
    _line(
        "labextension",
        _labextension(package),
        "run `make front-end` in a checkout, or install a wheel; notebooks work without it",
    )
    _line("node", _program("node"), "for building the front end (20 or newer); an installed wheel works without it")
    _line(
        "chromium",
        _program("chromium", "chromium-browser", "google-chrome"),
        "for the browser test; everything but that test works without it",
    )
    print("  --  Tensix hardware      not looked for: every device is simulated")
    if missing:
        print(f"missing and required: {', '.join(missing)}; run `pip install tbuda-lab` again", file=sys.stderr)
    return 1 if missing else 0


def _line(name: str, version: str | None, note: str) -> bool:
    if version is None:
        print(f"  no  {name:20s} {note}")
    else:
        print(f"  ok  {name:20s} {version}")
    return version is not None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _built(path: Path) -> str | None:
    return f"built ({path.stat().st_size // 1024} kB)" if path.is_file() else None


def _labextension(package: Path) -> str | None:
    """The prebuilt extension: in the environment's share folder, or in the checkout."""
    for folder in (Path(sys.prefix) / "share/jupyter/labextensions/@tbuda-lab/labextension", package / "labextension"):
        if (folder / "package.json").is_file():
            return "built"
    return None


def _program(*names: str) -> str | None:
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        number = re.search(r"\d+(\.\d+)+", answer.stdout)
        return f"{number[0] if number else 'found'} ({path})"
    return None
