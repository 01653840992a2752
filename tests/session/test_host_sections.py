"""Models of which the host runs a part, in a session: against the module run eagerly in torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.commands import SetOverride
from tests.session import host_doors

FLOAT = host_doors.FLOAT


SLICE = (
    "sort",
    "max with places",
    "min with places",
    "where the mask is",
    "quotient",
    "quotient of whole numbers",
    "exclusive or",
    "half",
    "rows",
    "inverse",
    "no elements",
    "places of a pool",
    "any",
)


@pytest.mark.parametrize("name", SLICE)
def test_a_session_answers_as_torch_and_as_a_device_do(name: str) -> None:
    assert not host_doors.differences(name, ("device", "session"))


@pytest.mark.parametrize("door", [door for door in host_doors.DOORS if door not in ("device", "session")])
def test_every_door_answers_as_a_device_does(door: str) -> None:
    assert not host_doors.differences("topk with places", ("device", door))


class Unread(nn.Module):
    """What the host would make of a value, and what the device would make of that, is not returned."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (x.clamp(-1, 1).prod(-2) * 2).relu()
        return x.relu(), torch.ones(1), x


@pytest.mark.parametrize("door", ["session", "device"])
def test_what_nothing_reads_makes_no_section_and_no_output(door: str) -> None:
    x = torch.randn(1, 8)
    if door == "session":
        have = Session(Unread(), (x,), options=FLOAT).run()[0]
    else:
        pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("unread", Unread()))
        have = [v.value() for v in pybuda.run_inference(inputs=[(x,)]).get()]
        pybuda.pybuda_reset()
    assert [tuple(t.shape) for t in have] == [(1, 8), (1,), (1, 8)]
    torch.testing.assert_close(have[0], x.relu(), rtol=1e-2, atol=1e-2)


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
