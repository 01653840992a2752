"""Real models at real size: the netlist on the executor against torch, on both archs, in two formats, on two seeds
(of weights and inputs alike), and for each compile on inputs that it has not seen."""

from __future__ import annotations

import functools
import gc

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.street import eager, pcc
from tests.models import NAMES, make, unseen

BARS = {DataFormat.Float16_b: 0.99, DataFormat.Float32: 0.9999}
FORMATS_AND_SEEDS = [(df, seed) for seed in (0, 1) for df in (DataFormat.Float16_b, DataFormat.Float32)]
model = functools.lru_cache(maxsize=1)(make)  # the cases of one model and seed follow each other


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
@pytest.mark.parametrize(("df", "seed"), FORMATS_AND_SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_torch(name: str, arch: str, df: DataFormat, seed: int) -> None:
    module, inputs = model(name, seed)
    new_inputs = unseen(name, seed + 10)
    session = Session(module, inputs, device=arch, options=CompileOptions(default_df_override=df))
    session.compile()
    wanted, other = eager(module, inputs), eager(module, new_inputs)
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
