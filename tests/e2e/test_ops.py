"""Every torch op that the frontend maps, alone through the whole street, against torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.street import pcc
from tests.frontend.ops_zoo import CASES, Fn

HOST = {"floor of floats"}
"""What only the host can do, here asked of the device."""
OPTIONS = CompileOptions(default_df_override=DataFormat.Float32)


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "function", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_op_on_the_device(
    name: str, function: Callable[..., object] | torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    """Float32 on wormhole_b0: within 1 % of the largest value everywhere, and correlated >= 0.9999."""
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    session = Session(module, inputs, device="wormhole_b0", options=OPTIONS)
    if name in HOST:
        with pytest.raises(UnsupportedOp):
            session.compile()
        return
    got, want = session.run()[0], frontend.reference(module, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert float((g - w.float()).abs().max()) <= 0.01 * float(w.float().abs().max()) + 1e-6
        assert w.numel() < 3 or float(w.float().std()) == 0 or pcc(w.float(), g) >= 0.9999
