"""Real models at real size: the netlist on the executor against torch, on both archs, in two formats, on two seeds
(of weights and inputs alike), and for each compile on inputs that it has not seen."""

from __future__ import annotations

import functools
import gc
from typing import Any

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.street import eager, pcc
from tests.models import NAMES, make, unseen

BARS = {DataFormat.Float16_b: 0.99, DataFormat.Float32: 0.9999}
FORMATS_AND_SEEDS = [(df, seed) for seed in (0, 1) for df in (DataFormat.Float16_b, DataFormat.Float32)]
Case = tuple[Graph, tuple[Any, ...], torch.Tensor, tuple[Any, ...], torch.Tensor]


@functools.lru_cache(maxsize=1)
def traced(name: str, seed: int) -> Case:
    """The graph, inputs, the answer of torch, other inputs and theirs; cases of a model and seed follow each other."""
    module, inputs = make(name, seed)
    new_inputs = unseen(name, seed + 10)
    graph = from_torch(module, inputs, name=name)
    return graph, inputs, eager(module, inputs), new_inputs, eager(module, new_inputs)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
@pytest.mark.parametrize(("df", "seed"), FORMATS_AND_SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_torch(name: str, arch: str, df: DataFormat, seed: int) -> None:
    graph, inputs, wanted, new_inputs, other = traced(name, seed)
    session = Session(graph, inputs, device=arch, options=CompileOptions(default_df_override=df))
    first = session.run([inputs])[0][0]
    second = session.run([new_inputs])[0][0]
    assert first.shape == wanted.shape
    assert first.dtype == torch.float32
    assert pcc(first, wanted) >= BARS[df]
    # An input that the compile has not seen, on the same netlist; and each answer belongs to its own input.
    assert pcc(second, other) >= BARS[df]
    assert pcc(first, wanted) > pcc(first, other)
    # Correlation is blind to scale and offset.
    scale = float(wanted.abs().max())
    assert float((first - wanted).abs().max()) <= (0.001 if df is DataFormat.Float32 else 0.2) * scale
    del session
    gc.collect()
