"""Samples by position and by name."""

from __future__ import annotations

import torch

from tbuda_lab.core.session import Session


class Weighted(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left - 2 * right


def test_a_dict_of_inputs_is_taken_by_argument_name():
    torch.manual_seed(0)
    left, right = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
    session = Session(Weighted(), {"right": right, "left": left})
    (comparison,) = session.verify()
    assert comparison.pcc > 0.999
    (output,) = session.run([{"left": right, "right": left}])[0]
    torch.testing.assert_close(output, right - 2 * left, rtol=2e-2, atol=5e-2)
