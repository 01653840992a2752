"""Tests check something themselves, and ask public names of the product only."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import pairs

ROOT = Path(__file__).parent
CHECKS = frozenset(
    (
        "raises",
        "fail",
        "warns",
        "assert_close",
        "assert_allclose",
        "assert_array_equal",
        "assert_array_max_ulp",
        "verify_module",
        "verify_module_pipeline",  # the face's own checks: they raise when the numbers are off
        "until",
        "expect",
        "item",  # what a page comes to show: these give up with an error
    )
)
PUBLIC_BY_USE = frozenset(
    (
        "_get_global_compiler_config",
        "_set_global_compiler_config",
        "_clear_global_compiler_config",
        "_C",  # PyBuda's
        "_version",  # of the package, as the build reads it
        "_dynamo",
        "_BatchNorm",  # torch's
        "_assert_async",  # torch's
        "_experts_implementation",  # of transformers
        "_replace",
        "_asdict",  # of named tuples
        "_exit",  # how a forked process ends
    )
)


@pytest.fixture(scope="module")
def files() -> dict[Path, ast.Module]:
    """Read for these tests alone, not by every worker."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def called(function: ast.AST) -> set[str]:
    """Names of what a function calls; "assert" if it asserts itself."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            names.add("assert")
        elif isinstance(node, ast.Call):
            names.add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
    return names


def near(path: Path, tree: ast.Module) -> Iterator[Path]:
    """Files whose functions a file may call: itself, the modules of the tests that it imports, and `conftest`."""
    yield from (path, path.parent / "conftest.py")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            module = ROOT.joinpath(*(node.module or "").split(".")[1:])
            yield from (module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names))


def checks(names: set[str], helpers: set[str]) -> bool:
    return "assert" in names or not names.isdisjoint(CHECKS | helpers) or any(n.startswith("wait_for") for n in names)


def test_every_test_checks_something(files: dict[Path, ast.Module]) -> None:
    """By itself, or by a helper near it that does."""
    calls = {
        path: [(node, called(node)) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for path, tree in files.items()
    }
    helpers: dict[Path, set[str]] = {path: set() for path in files}
    reach = {path: {other for other in near(path, tree) if other in files} for path, tree in files.items()}
    size = -1
    while size != (size := sum(map(len, helpers.values()))):
        for path in files:
            there = set().union(*(helpers[other] for other in reach[path]))
            helpers[path] |= {
                node.name for node, names in calls[path] if not node.name.startswith("test_") and checks(names, there)
            }
    blind = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in files
        if path.name.startswith("test_")
        for node, names in calls[path]
        if node.name.startswith("test_") and not checks(names, set().union(*(helpers[o] for o in reach[path])))
    ]
    assert blind == []


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_") and name not in PUBLIC_BY_USE


def test_no_test_asks_private_names_of_the_product(files: dict[Path, ast.Module]) -> None:
    """Names of the test's own class (`self._x`) and of modules of the tests are its own affair."""
    private_names = []
    for path, tree in files.items():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tbuda_lab"):
                names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
                names = [node.attr]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
                names = [str(a.value).rpartition(".")[2] for a in node.args[:2] if isinstance(a, ast.Constant)]
            private_names += [f"{path.relative_to(ROOT)}:{node.lineno} {name}" for name in names if private(name)]
    assert private_names == []


@pytest.mark.parametrize("sizes", [(3, 2), (4, 2, 4), (7, 2, 2, 2), (2, 3, 4, 5)])
def test_every_two_values_of_two_axes_meet(sizes: tuple[int, ...]) -> None:
    rows = pairs(*(range(n) for n in sizes))
    for a, b in itertools.combinations(range(len(sizes)), 2):
        assert len({(row[a], row[b]) for row in rows}) == sizes[a] * sizes[b]
    assert len(rows) < 1.5 * math.prod(sorted(sizes)[-2:])
