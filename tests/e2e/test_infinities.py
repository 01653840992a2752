"""Inputs with infinities: softmax is torch's, and sample inputs are still seen to be a microbatch."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

OPTIONS = CompileOptions(default_df_override=DataFormat.Float32)


def with_infinities(*shape: int) -> torch.Tensor:
    """Rows (and columns) with one infinity of each sign, with both, and one that is minus infinity throughout."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    x[..., 1, 3], x[..., 2, 5], x[..., 0, 7], x[..., 0, 8] = torch.inf, -torch.inf, torch.inf, -torch.inf
    x[..., 3, :] = -torch.inf
    return x


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "alone"])
@pytest.mark.parametrize(
    ("df", "arch", "mode"),
    [
        ("Float32", "wormhole_b0", "golden"),
        ("Float16_b", "grayskull", "device"),
        ("Float16_b", "wormhole_b0", "golden"),
    ],
)
def test_softmax_of_infinities_is_torchs(df: str, arch: str, mode: str, fused: bool) -> None:
    """NaN throughout a row with plus infinity, and a row of minus infinities alone; 0 (of log_softmax -inf) where one
    element is minus infinity. Along rows and columns, of whole tiles and of parts (40, 33)."""

    def all_four(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(-1), y.softmax(-2), y.log_softmax(-1), x.log_softmax(-2)

    inputs = with_infinities(2, 33, 40), with_infinities(1, 32, 64)
    options = CompileOptions(default_df_override=DataFormat[df], enable_auto_fusing=fused)
    session = Session(Fn(all_four), inputs, device=arch, options=options)
    for g, w in zip(session.run(mode=mode)[0], all_four(*(x.bfloat16().float() for x in inputs)), strict=True):
        torch.testing.assert_close(g.float(), w, rtol=0.05, atol=0.02, equal_nan=True)


def test_sample_inputs_with_infinities_are_seen_to_be_a_microbatch() -> None:
    x = with_infinities(2, 4, 64)
    session = Session(Fn(lambda x: torch.relu(x) + 1), (x,), options=OPTIONS)
    assert session.compile().graph.inputs[0].shape[0] == 1
    assert torch.equal(session.run([(x[1:],)])[0][0], torch.relu(x[1:]) + 1)
    mixing = Session(Fn(lambda x: x.flip(0) * 1.0), (x,), options=OPTIONS)
    assert mixing.compile().graph.inputs[0].shape[0] == 2


def _behind_masks(x: torch.Tensor) -> torch.Tensor:
    """A number whose way has constants of which infinities come: its padding is masked before it fills a tile."""
    rows = x[0].logsumexp(0)
    joined = torch.cat([torch.tensor([-2.0]), rows[1:]])
    return torch.eye(33) + joined.mean()


SUMS = {
    "sum of all": lambda x: x.sum(),
    "mean of all": lambda x: x.mean(),
    "over slices": lambda x: x[:, :1].sum(0),
    "over slices of a column": lambda x: x[..., 3:4].mean(0),
    "over two dims": lambda x: x.sum((0, 2)),
    "a mean beside a matrix": lambda x: torch.eye(33) + x[..., :33].mean(),
    "behind masks": _behind_masks,
}


@pytest.mark.parametrize("sign", [None, 1.0, -1.0], ids=["finite", "inf", "-inf"])
def test_sums_over_slices_are_torchs(sign: float | None) -> None:
    x = torch.randn(2, 3, 33, generator=torch.Generator().manual_seed(6))
    if sign is not None:
        x[0, 0, 3] = sign * torch.inf

    def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x) for function in SUMS.values())

    session = Session(Fn(every), (x,), options=OPTIONS)
    for name, got, want in zip(SUMS, session.run()[0], every(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
