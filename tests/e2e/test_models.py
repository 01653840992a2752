"""Real models at real size: the netlist on the executor against torch, on both archs, in two formats, on two seeds
(of weights and inputs alike), and for each compile on inputs that it has not seen.

Each model is compiled twice: the second time in the other format, on the other arch, from the other seed. Which of the
four such pairs of compiles a model has changes from one to the next, so that every two of format, arch and seed meet.
In Float32, where errors do not add up over the depth, a model of equal layers has two of them, and images half as many
rows and columns; GPT-2 has half of its layers in Float16_b, where BERT has all.
"""

from __future__ import annotations

import gc
import itertools
from typing import Any

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.references import eager, pcc
from tests.models import NAMES, make, unseen

BARS = {DataFormat.Float16_b: 0.99, DataFormat.Float32: 0.9999}
FORMATS, ARCHS = (DataFormat.Float16_b, DataFormat.Float32), ("wormhole_b0", "grayskull")
FIRST = ((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1))
CASES = [
    (name, FORMATS[df ^ other], ARCHS[arch ^ other], seed ^ other)
    for i, name in enumerate(NAMES)
    for df, arch, seed in (FIRST[i % 4],)
    for other in (0, 1)
]
F16, F32 = FORMATS
SIZES: dict[tuple[str, DataFormat], dict[str, int]] = {
    ("gpt2", F32): {"layers": 2},
    ("bert", F32): {"layers": 2},
    ("gpt2", F16): {"layers": 6},
    ("resnet18", F32): {"size": 112},
    ("mobilenet_v2", F32): {"size": 112},
}
Case = tuple[Graph, tuple[Any, ...], torch.Tensor, tuple[Any, ...], torch.Tensor]


def traced(name: str, seed: int, sizes: dict[str, int]) -> Case:
    """The graph, inputs, the answer of torch, other inputs and theirs."""
    module, inputs = make(name, seed, **sizes)
    new_inputs = unseen(name, seed + 10, **sizes)
    graph = from_torch(module, inputs, name=name)
    return graph, inputs, eager(module, inputs), new_inputs, eager(module, new_inputs)


def test_every_two_of_format_arch_and_seed_meet() -> None:
    for a, b in itertools.combinations((1, 2, 3), 2):
        assert len({(case[a], case[b]) for case in CASES}) == 4
    assert {case[0] for case in CASES} == set(NAMES)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("name", "df", "arch", "seed"), CASES)
def test_agrees_with_torch(name: str, df: DataFormat, arch: str, seed: int) -> None:
    graph, inputs, expected, new_inputs, other = traced(name, seed, SIZES.get((name, df), {}))
    session = Session(graph, inputs, device=arch, options=CompileOptions(default_df_override=df))
    first = session.run([inputs])[0][0]
    second = session.run([new_inputs])[0][0]
    assert first.shape == expected.shape
    assert first.dtype == torch.float32
    assert pcc(first, expected) >= BARS[df]
    # An input that the compile has not seen, on the same netlist; and each answer belongs to its own input.
    assert pcc(second, other) >= BARS[df]
    assert pcc(first, expected) > pcc(first, other)
    # Correlation is blind to scale and offset.
    scale = float(expected.abs().max())
    assert float((first - expected).abs().max()) <= (0.001 if df is DataFormat.Float32 else 0.2) * scale
    del session
    gc.collect()
