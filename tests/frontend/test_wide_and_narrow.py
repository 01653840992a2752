"""Floats that no format of a device holds: of 64 bits beyond float32, and of 8 bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import InputError, TbudaError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

EXACT = CompileOptions(default_df_override=DataFormat.Float32)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


class Model(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], weight: torch.Tensor) -> None:
        super().__init__()
        self.function = [function]
        self.register_buffer("weight", weight)

    def forward(self, x):
        return self.function[0](x, self.weight)


def wide(value: float) -> torch.Tensor:
    return torch.full((4,), value, dtype=torch.float64)


BEYOND: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor]] = {
    "an input": (lambda x, _: x + 1.0, wide(0), wide(1e300)),
    "an input below": (lambda x, _: x + 1.0, wide(0), wide(-3.5e38)),
    "a weight": (lambda x, w: x * w * 1e-300, wide(1e300), wide(1.0)),
    "a constant": (lambda x, _: x * torch.tensor(1e300, dtype=torch.float64) * 1e-300, wide(0), wide(1.0)),
    "a number": (lambda x, _: x * 1e300, wide(0), wide(1.0)),
    "a product on the way": (lambda x, _: (x * 1e200) * 1e-200, wide(0), wide(1.0)),
    "a power on the way": (lambda x, _: ((x + 9) ** 50).log(), wide(0), wide(1.0)),
    "what was float32": (lambda x, _: x.double() * 1e200 * 1e-200, wide(0), torch.ones(4)),
}


@pytest.mark.parametrize("name", BEYOND)
def test_numbers_beyond_float32_are_refused(name: str) -> None:
    function, weight, x = BEYOND[name]
    with pytest.raises(TbudaError, match=r"would be infinite on the device|another answer"):
        session = Session(Model(function, weight), (x[None],), options=EXACT, cache=False)
        session.compile()
        session.run([(x[None],)])


def test_later_inputs_beyond_float32_are_refused() -> None:
    session = Session(Model(BEYOND["an input"][0], wide(0)), (wide(1)[None],), options=EXACT, cache=False)
    session.compile()
    for value in (float("inf"), float("nan"), 3.4e38):
        torch.testing.assert_close(session.run([(wide(value)[None],)])[0][0], wide(value)[None], equal_nan=True)
    with pytest.raises(InputError, match=r"input 'x' holds -1e\+300"):
        session.run([(wide(-1e300)[None],)])


@pytest.mark.parametrize("dtype", FLOAT8)
def test_weights_of_8_bits_are_what_they_are(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for function in (lambda x, w: x * w.to(x.dtype), lambda x, w: x + w.float().relu(), lambda x, w: x - w[0].float()):
        model, x = Model(function, torch.randn(4).to(dtype)), torch.randn(1, 4)
        session = Session(model, (x,), options=EXACT, cache=False)
        session.compile()
        torch.testing.assert_close(session.run([(x,)])[0][0], model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_rounding_to_8_bits_is_refused_by_line(dtype: torch.dtype) -> None:
    for function in (
        lambda x, _: x.to(dtype).float(),
        lambda x, _: (x * 300).to(dtype).bfloat16(),
        lambda x, _: (x + 1).to(dtype),
        lambda x, w: (x + w).type(dtype).float() * 2,
    ):
        with pytest.raises(UnsupportedOp, match=r"test_wide_and_narrow\.py:\d+.*rounds to torch.float8"):
            from_torch(Model(function, torch.ones(4)), (torch.randn(1, 4),))
    with pytest.raises(InputError, match=r"float8.* is not an input"):
        from_torch(Model(lambda x, _: x.float(), torch.ones(4)), (torch.randn(1, 4).to(dtype),))
