"""Property tests draw the same examples every time, and a busy machine is no failure.

Tests that are not about placing take placements that an earlier test of this run made from a cache of this run alone:
many ask something of the same few models. Tests of the placer and of what it rests on, and those marked `uncached`,
place for themselves.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("house", deadline=None, derandomize=True, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])  # a loaded machine is no finding
settings.load_profile("house")

UNCACHED = frozenset(("balancer", "core", "epochsim", "lowering", "placer"))
_FOLDER = "TBUDA_TEST_PLACEMENTS"

os.environ["TBUDA_CACHE"] = "off"


def pytest_configure(config: pytest.Config) -> None:
    """One folder for all workers, which inherit its name."""
    if not hasattr(config, "workerinput"):
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="tbuda-placements-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_FOLDER, ""), ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of the test is made."""
    room = Path(item.path).relative_to(Path(__file__).parent).parts[0]
    uncached = room in UNCACHED or item.get_closest_marker("uncached") is not None
    os.environ["TBUDA_CACHE"] = "off" if uncached else os.environ[_FOLDER]
