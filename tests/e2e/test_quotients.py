"""What rounds a quotient to whole numbers answers as torch does, though the device multiplies by 1 / y."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.compiler.quotients import rounded_quotients
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

WHOLE = torch.arange(1.0, 129.0).reshape(2, 64)

ROUNDINGS = {
    "floor": lambda q: q.floor(),
    "ceil": lambda q: q.ceil(),
    "trunc": lambda q: q.trunc(),
    "round of halves": lambda q: (q + 0.5).round(),
    "frac": lambda q: q.frac(),
    "cast": lambda q: q.to(torch.int32),
    "long": lambda q: q.long(),
    "floor of a sum": lambda q: (q * 2 + 1).floor(),
    "floor of a part": lambda q: torch.cat([q[:, :7], q[:, 9:]], 1).floor(),
    "floor of a choice": lambda q: torch.where(q > 0, q, 0.0).floor(),
    "remainder": lambda q: torch.remainder(q, 1.0),
    "floor division": lambda q: torch.div(q, 1.0, rounding_mode="floor"),
}
QUOTIENTS = {
    "x / x": lambda x: 3 * x / x,
    "by a number": lambda x: x * 0.1 / 0.1,
    "reciprocal": lambda x: x * 49 * x.reciprocal(),
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_rounded_quotients_are_torchs(rounding: str) -> None:
    model = Fn(lambda x: tuple(ROUNDINGS[rounding](way(x)) for way in QUOTIENTS.values()))
    session = Session(model, (WHOLE,), options=CompileOptions(default_df_override=DataFormat.Float32), cache=False)
    for got, want in zip(session.run()[0], model(WHOLE), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


def test_a_comparison_of_a_quotient_bears_its_rule() -> None:
    x = torch.arange(1.0, 4097.0).reshape(64, 64)
    session = Session(
        Fn(lambda x: (3 * x / x < 3.0).float() * x),
        (x,),
        options=CompileOptions(default_df_override=DataFormat.Float32),
        cache=False,
    )
    (verdict,) = session.verify()
    assert verdict.rule == "quotients"


def test_each_value_is_looked_at_once() -> None:
    """Forty sums of a value with itself are 2^40 ways back to the quotient."""

    def doubled(x: torch.Tensor) -> torch.Tensor:
        q = x / (x + 1)
        for _ in range(40):
            q = q + q
        return q.floor()

    graph = from_torch(Fn(doubled), (torch.rand(1, 4),))
    assert len(rounded_quotients(graph)) == 41
