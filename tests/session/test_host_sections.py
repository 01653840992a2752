"""Models of which the host runs a part, in a session: against the module run eagerly in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.commands import SetOverride

FLOAT = CompileOptions(default_df_override=DataFormat.Float32)


class Between(nn.Module):
    """Something of the host's between two layers of the device; what has another shape or type goes out."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(16, 16), nn.Linear(16, 16), function

    def forward(self, x: torch.Tensor) -> Any:
        y = self.function(self.first(x))
        plain = isinstance(y, torch.Tensor) and y.dtype == torch.float32 and y.shape[-1:] == (16,)
        return self.second(y) if plain else y


def _cleared(y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[y < 0] = 0
    return y


TABLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "values in order": lambda y: y.sort(-1)[0],
    "largest with places": lambda y: y.max(-1),
    "smallest with places": lambda y: y.min(1),
    "a mask writes": _cleared,
    "whole quotients": lambda y: y // 0.3,
    "whole quotients of whole numbers": lambda y: (y * 10).long() // 3,
    "bits of whole numbers": lambda y: ((y * 10).int() ^ 3, (y * 10).int() & 3, (y * 10).int() << 2),
    "16 bits": lambda y: y.half().sort(-1)[0].float(),
    "rounded": lambda y: y.round(),
    "gathered by order": lambda y: y.gather(-1, y.argsort(-1)),
    "an inverse": lambda y: torch.linalg.inv(y @ y.transpose(1, 2) + torch.eye(8)),
    "rows by computed places": lambda y: nn.functional.embedding(y.argmax(-1), torch.arange(48.0).reshape(16, 3)),
    "no elements": lambda y: (y[:, :0], y + 1),
    "places of a pool": lambda y: nn.functional.max_pool1d(y, 2, return_indices=True)[1],
}


@pytest.mark.parametrize("name", TABLE)
def test_a_session_answers_as_torch_does(name: str) -> None:
    torch.manual_seed(3)
    model, x = Between(TABLE[name]).eval(), torch.randn(1, 8, 16)
    with torch.no_grad():
        wants = model(x)
    session = Session(model, (x,), options=FLOAT)
    have = session.run()[0]
    wants = [wants] if isinstance(wants, torch.Tensor) else list(wants)
    assert session.result is not None and session.result.chain is not None
    for got, want in zip(have, wants, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


class Routed(nn.Module):
    """The largest values of a hidden layer are kept, then a second layer, of which the host makes an inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.first(x))
        values, places = torch.topk(hidden, 8, dim=-1)
        last = self.second(torch.zeros_like(hidden).scatter(-1, places, values)) + hidden
        return torch.sinh(last), torch.linalg.inv(last @ last.transpose(-1, -2) + torch.eye(16)), places + 1000


@pytest.fixture(scope="module")
def routed() -> Session:
    torch.manual_seed(0)
    session = Session(Routed().eval(), (torch.randn(2, 16, 32),), options=FLOAT)
    session.compile()
    return session


def test_sections_of_the_device_are_one_netlist(routed: Session) -> None:
    result = routed.compile()
    assert result.chain is not None
    assert [s.place for s in result.chain.stages] == ["device", "host", "device", "host"]
    assert [p.name for p in result.netlist.programs] == ["run_fwd_0", "run_fwd_1"]
    assert min(c.pcc for c in routed.verify()) > 0.9999
    checks = routed.verify_ops()
    assert checks.first_failure is None and not checks.unchecked


def test_the_graph_shows_what_the_host_runs_and_notes_what_it_costs(routed: Session) -> None:
    frame = routed.frames.get("graph:traced")
    kinds = frame.meta["kinds"]
    names = [frame.strings[i] for i in frame.columns["node_name"]]
    on_host = {n for n, k in zip(names, frame.columns["node_kind"], strict=True) if kinds[k] == "host"}
    assert {"topk", "scatter", "linalg_inv_ex"} <= on_host and not any(n.startswith("second") for n in on_host)
    notes = [str(p) for p in routed.problems if p.rule == "host-work"]
    size = 16 * 32 * 4
    assert len(notes) == 2 and f"{size} bytes from the device and {size} bytes to it" in notes[0]


def test_ops_behind_the_host_are_edited_like_others(routed: Session) -> None:
    result = routed.compile()
    behind = next(n for n in result.placement.ops if n.startswith("second") and "matmul" in n)
    routed.apply(SetOverride(Override("op_size", behind, (1, 1))))
    assert min(c.pcc for c in routed.verify()) > 0.9999
    row = routed.compile().placement.candidate(behind)
    assert (int(row["grid_r"]), int(row["grid_c"])) == (1, 1)
    routed.undo()


def test_a_strict_session_refuses_and_names_op_and_line() -> None:
    session = Session(Routed().eval(), (torch.randn(1, 16, 32),), options=CompileOptions(cpu_fallback="none"))
    with pytest.raises(UnsupportedOp, match=r"test_host_sections\.py:\d+.*topk"):
        session.compile()
