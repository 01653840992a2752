"""Real models at real size: the netlist on the executor against torch, on both archs, in two formats, on two seeds."""

from __future__ import annotations

import gc

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.street import eager, pcc
from tests.models import NAMES, make

BARS = {DataFormat.Float16_b: 0.99, DataFormat.Float32: 0.9999}


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("df", BARS, ids=lambda df: df.name)
@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_torch(name: str, arch: str, df: DataFormat, seed: int) -> None:
    module, inputs = make(name, seed)
    unseen = make(name, seed + 10)[1]
    session = Session(module, inputs, device=arch, options=CompileOptions(default_df_override=df))
    session.compile()
    wanted, other = eager(module, inputs), eager(module, unseen)
    first = session.run([inputs])[0][0]
    second = session.run([unseen])[0][0]
    assert first.shape == wanted.shape
    assert first.dtype == torch.float32
    assert pcc(first, wanted) >= BARS[df]
    # An input that the compile has not seen, on the same netlist; and each answer belongs to its own input.
    assert pcc(second, other) >= BARS[df]
    assert pcc(first, wanted) > pcc(first, other)
    # Correlation is blind to scale and offset.
    scale = float(wanted.abs().max())
    assert float((first - wanted).abs().max()) <= (0.005 if df is DataFormat.Float32 else 0.2) * scale
    del session
    gc.collect()
