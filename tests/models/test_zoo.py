"""The models themselves: sizes as published, and outputs that depend on the input (or a correlation means nothing)."""

from __future__ import annotations

import pytest
import torch

from tests.models import NAMES, make, unseen

# Trainable parameters: He et al. and Sandler et al. as implemented everywhere; BERT-base's encoder is 12 * 7,087,872.
PARAMETERS = {"resnet18": 11_689_512, "mobilenet_v2": 3_504_872, "bert": 85_054_464}


def first_tensor(output: object) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output[0]  # type: ignore[index]


@pytest.mark.parametrize("name", NAMES)
def test_the_size_is_as_published_and_the_output_depends_on_the_input(name: str) -> None:
    module, inputs = make(name, seed=0)
    assert sum(p.numel() for p in module.parameters()) == PARAMETERS.get(name) or name not in PARAMETERS
    other = unseen(name, seed=1)
    with torch.no_grad():
        y, z = first_tensor(module(*inputs)), first_tensor(module(*other))
    assert torch.isfinite(y).all()
    assert 1e-2 < float(y.std()) < 1e3
    correlation = float(torch.corrcoef(torch.stack([y.flatten(), z.flatten()]))[0, 1])
    assert correlation < 0.99, f"{name}: outputs of two inputs correlate by {correlation:.4f}: 0.99 would prove nothing"


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_model(name: str) -> None:
    sizes = {"layers": 1} if name in ("bert", "gpt2") else {}
    (a, xs), (b, ys) = make(name, seed=3, **sizes), make(name, seed=3, **sizes)
    assert all(torch.equal(x, y) for x, y in zip(xs, ys, strict=True))
    assert all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
