"""A small slice of the fuzz over sizes."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.sizes.cases import Case, cases, fault

SLICE = [case for case in cases(240, seed=0) if case.tiles <= 400][:24]


@pytest.mark.parametrize("case", SLICE, ids=str)
def test_a_size_places_and_agrees_with_torch(case: Case) -> None:
    assert not fault(case)


def test_softmax_of_a_vocabulary_is_as_near_as_torch_in_bfloat16() -> None:
    """Exponents of numbers up to 13: a bit that is cut off one is 3 % of its exponential."""
    x = 3 * torch.randn(1, 1, 50257, generator=torch.Generator().manual_seed(0))
    options = CompileOptions(default_df_override=DataFormat.Float16_b)
    ((found,),) = Session(torch.nn.Softmax(-1), [x], "n150", options, name="vocabulary").run()
    wanted, own = torch.softmax(x.double(), -1), torch.softmax(x.to(torch.bfloat16), -1).double()

    def pcc(y: torch.Tensor) -> float:
        return float(torch.corrcoef(torch.stack([y.double().flatten(), wanted.flatten()]))[0, 1])

    assert pcc(found) >= pcc(own) - 1e-5 > 0.9999
