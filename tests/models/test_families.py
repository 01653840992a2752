"""Some of the families of bench/models/families.py, one for each way in which one of them failed before, where no op
alone (tests/frontend/ops_zoo.py) and no model of tests/e2e shows it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("families", Path(__file__).parents[2] / "bench/models/families.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["families"] = module
    spec.loader.exec_module(module)
    return module


families = load()


def test_the_list_is_long() -> None:
    assert len(families.FAMILIES) >= 60


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name",
    [
        "CLIPText",
        "Perceiver",
        "video (conv3d)",
        "OpenPose-light",
        "N-BEATS",
        "LSTM",
        "vector input",
        "matrix without batch",
        "Swin",
        "EfficientNet",
    ],
)
def test_it_runs_as_torch_does(name: str) -> None:
    assert families.judge(name) >= 0.99
