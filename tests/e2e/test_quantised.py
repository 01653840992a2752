"""Quantised activations are rounded on the device, as the model's own framework rounds them."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

HALVES = torch.cat([torch.arange(-40.0, 40.0) / 8, torch.tensor([127.5, 126.5, -127.5, -129.0, 1e30, -1e30])])
"""Halves, what lies between them, and what lies beyond the limits."""
BESIDE = torch.tensor([0.5 - 2**-25, 0.5 + 2**-24, 1.5 - 2**-23, -0.5 - 2**-24])


def rounded(x: torch.Tensor) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 1.0, 0, -128, 127)


@pytest.mark.parametrize("df", [DataFormat.Float32, DataFormat.Float16_b])
def test_halves_go_to_the_even_number_whatever_the_machine_rounds(df: DataFormat) -> None:
    x = torch.cat([HALVES, BESIDE]) if df is DataFormat.Float32 else HALVES
    x = x.repeat(8)[None]
    options = CompileOptions(default_df_override=df, cpu_fallback="none")  # no part of it is the host's
    session = Session(Fn(rounded), (x,), options=options, cache=False)
    modes = ("exact", "golden") if df is DataFormat.Float32 else ("exact", "golden", "device")
    for mode in modes:
        assert torch.equal(session.run(mode=mode)[0][0], rounded(x)), mode


LIMITS = {
    "int8": (0.05, 0, -128, 127),
    "symmetric int8": (0.05, 0, -127, 127),
    "uint8": (0.03, 120, 0, 255),
    "uint8 from 0": (0.25, 0, 0, 255),
    "four bits": (0.5, 7, 0, 15),
    "zero point at an end": (1e-3, -4, -4, 7),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_fake_quantised_tensors_are_torchs(kind: str) -> None:
    scale, zero, low, high = LIMITS[kind]
    torch.manual_seed(0)
    x = torch.randn(1, 32, 64) * scale * (high - low) / 4
    model = Fn(lambda x: torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high))
    options = CompileOptions(default_df_override=DataFormat.Float32, cpu_fallback="none")
    got = Session(model, (x,), options=options, cache=False).run(mode="exact")[0][0]
    assert float((got - model(x)).abs().max()) < 1e-3 * scale
