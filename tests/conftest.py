"""Property tests draw the same examples every time, other tests the same random numbers, and a busy machine is no
failure.

Tests that are not about placing take placements that an earlier test of this run made from a cache of this run alone:
many ask something of the same few models. Tests of the placer and of what it rests on, and those marked `uncached`,
place for themselves.
"""

from __future__ import annotations

import collections
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.kernels import Template

settings.register_profile(
    "house", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)  # a loaded machine is no finding
settings.load_profile("house")

UNCACHED = frozenset(("balancer", "core", "epochsim", "lowering", "placer"))
_FOLDER = "TBUDA_TEST_PLACEMENTS"

os.environ["TBUDA_CACHE"] = "off"
os.environ.setdefault("TBUDA_OUTPUT_DIR", os.path.join(tempfile.gettempdir(), "tbuda-netlists"))


def pytest_configure(config: pytest.Config) -> None:
    """One folder for all workers, which inherit its name."""
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tbuda-placements-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_FOLDER, ""), ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of the browser and other files of long tests first, in turns: while a worker waits for a page, another has
    work, and none begins a long file when the others end. Workers take files in this order
    (`--no-loadscope-reorder`)."""
    weights = collections.Counter[Path]()  # in the order of the collection, as every worker has it
    browser = set()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        weights[item.path] += 1 + 20 * ("e2e" in marks) + 100 * ("slow" in marks)
        if "browser" in marks:
            browser.add(item.path)
    files = sorted(weights, key=lambda path: -weights[path])
    turns = {
        path: turn
        for kind in (True, False)
        for turn, path in enumerate(path for path in files if (path in browser) is kind)
    }
    items.sort(key=lambda item: turns[item.path])


def pytest_collection_finish() -> None:
    """What imports made stays to the end: the garbage collector need not look at it again and again. At what is made
    later it looks more rarely: as often as Python does of itself, it took 9 % of the time of tests that trace."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test is made."""
    torch.manual_seed(0)
    room = Path(item.path).relative_to(Path(__file__).parent).parts[0]
    uncached = room in UNCACHED or item.get_closest_marker("uncached") is not None
    os.environ["TBUDA_CACHE"] = "off" if uncached else os.environ[_FOLDER]


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """Of a worker: where its kernels are forked from."""
    template = Template(tmp_path_factory.mktemp("kernels"))
    yield template
    template.stop()
