"""Gap between what `Optimal` reaches and the best lower bound, per small model: it may not grow by more than 3 %.

    python -m tests.placer.test_regression

writes `gaps.json` anew, after a change that is meant (a better placement, or a bound that is no longer what it was).
"""

from __future__ import annotations

import functools
import json
import pathlib
import sys

import pytest

from tbuda_lab.core import passes
from tbuda_lab.core.device import load_device
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.options import CompileOptions
from tests.models import make
from tests.placer.graphs import convolutions, encoder, placed_as_chosen

GAPS = pathlib.Path(__file__).with_name("gaps.json")
ALLOWED = 1.03
SKETCHES = {"encoder": lambda: encoder(2), "convolutions": lambda: convolutions(32, 64, 3)}
MODELS = (*SKETCHES, "mlp", "unet", "mobilenet_v2")
CASES = [(m, d, (1, 64)[(i + j) % 2]) for i, m in enumerate(MODELS) for j, d in enumerate(("grayskull", "wormhole_b0"))]
"""Each model in two of the four pairs of device and batch; those alternate."""


@functools.cache
def passed(model: str) -> Graph:
    module, inputs = make(model)
    return passes.run(from_torch(module, inputs, name=model), CompileOptions()).graph


def gap(model: str, device: str, microbatch: int) -> float:
    """Limiter cycles of all epochs over the best lower bound."""
    spec, options = load_device(device), CompileOptions(microbatch=microbatch, objective="throughput")
    graph = SKETCHES[model]() if model in SKETCHES else lower(passed(model), spec, options)
    report = placed_as_chosen(graph, spec, options).report
    assert report is not None
    return report.bounds.gap


@pytest.mark.parametrize(("model", "device", "microbatch"), CASES)
def test_the_gap_to_the_best_bound_does_not_grow(model: str, device: str, microbatch: int) -> None:
    existing = json.loads(GAPS.read_text())[model][device][str(microbatch)]
    result = gap(model, device, microbatch)
    assert 1.0 <= result <= ALLOWED * existing, f"gap {result:.3f}, was {existing:.3f}"


def main() -> None:
    table: dict[str, dict[str, dict[str, float]]] = {}
    for model, device, microbatch in CASES:
        of_model = table.setdefault(model, {}).setdefault(device, {})
        of_model[str(microbatch)] = round(gap(model, device, microbatch), 4)
    GAPS.write_text(json.dumps(table, indent=1) + "\n")
    sys.stdout.write(GAPS.read_text())


if __name__ == "__main__":
    main()
