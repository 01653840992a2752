"""Inputs of several sizes: torch's own answers, few sessions, clear refusals."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.serving.buckets import BucketedModel

SIZES = {"x": {1: (8, 16)}, "mask": {1: (8, 16)}}


class Masked(nn.Module):
    """Attention over the places whose mask is 1, and its mean over them."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.line(x)
        scores = x @ y.mT + (mask[:, None] - 1) * 1e4
        y = scores.softmax(-1) @ y
        return y, (y * mask[..., None]).sum(1)


@pytest.fixture(scope="module")
def model() -> BucketedModel:
    torch.manual_seed(0)
    return BucketedModel(Masked().eval(), SIZES, options=CompileOptions(default_df_override=DataFormat.Float32))


def test_sizes_of_one_bucket_share_a_session(model: BucketedModel) -> None:
    for length in (5, 8, 7, 12):
        x, mask = torch.randn(1, length, 16), torch.ones(1, length)
        got = model.run({"x": x, "mask": mask})
        with torch.no_grad():
            want = model.model(x, mask)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-3)
    assert len(model.sessions) == 2


def test_what_no_bucket_holds_is_refused(model: BucketedModel) -> None:
    with pytest.raises(InputError, match="from 1 to 16"):
        model.run({"x": torch.zeros(1, 17, 16), "mask": torch.zeros(1, 17)})
    with pytest.raises(InputError, match="another size"):
        model.run({"x": torch.zeros(1, 7, 16), "mask": torch.zeros(1, 8)})
    with pytest.raises(InputError, match="not given"):
        model.run({"x": torch.zeros(1, 7, 16)})
    with pytest.raises(InputError, match="rising"):
        BucketedModel(model.model, {"x": {1: (16, 8)}})
    with pytest.raises(InputError, match="the batch"):
        BucketedModel(model.model, {"x": {0: (8,)}})
