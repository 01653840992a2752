"""The report of where each traced op runs, and the strict mode."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch

from tbuda_lab import samba
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.dialects.host_program import Collective, HostLoop, HostProgram, Run
from tbuda_lab.dialects.realisation import ALLOWED, KINDS, counts, realisations, refuse_host
from tbuda_lab.samba.tracing import trace


class Network(torch.nn.Module):
    """Loss and logits, with an integer label."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 10)
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layer(torch.relu(x))
        return self.loss(logits, label), logits


def sample() -> list[samba.SambaTensor]:
    return [samba.randn(8, 32, name="x", batch_dim=0), samba.randint(10, (8,), name="label", batch_dim=0)]


def test_every_op_has_one_entry_with_a_reason() -> None:
    traced = trace(Network(), sample())
    entries = {entry.op: entry for entry in realisations(traced.result)}
    assert set(entries) == {node.name for node in traced.result.graph.nodes.values() if node.op is not None}
    assert all(entry.reason and entry.kind in KINDS for entry in entries.values())
    assert entries["relu"].kind == entries["layer.matmul"].kind == "grid"
    assert entries["loss.log_softmax"].kind == "decomposed"
    host = {name: entry.allowed for name, entry in entries.items() if entry.kind == "host"}
    assert host["loss.equal"] == "integer encoding" and host["layer.transpose"] == "weights"
    assert set(host.values()) <= set(ALLOWED)
    assert sum(counts(list(entries.values())).values()) == len(entries)
    refuse_host(list(entries.values()))


def test_steps_of_the_host_program_are_entries() -> None:
    result = trace(torch.nn.Linear(32, 32), [samba.randn(8, 32, name="x", batch_dim=0)]).result
    program = HostProgram((("fwd", HostLoop(3, (Run("run"), Collective(("a", "b"))))),))
    entries = [entry for entry in realisations(result, program) if entry.kind == "program"]
    assert [(entry.op, entry.reason) for entry in entries] == [
        ("loop", "its body runs 3 times"),
        ("all_reduce", "mean of 2 gradients over the replicas"),
    ]


class Shifted(torch.nn.Module):
    """Arithmetic of a float input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + 1.0)


def test_strict_mode_names_what_it_refuses() -> None:
    traced = trace(Shifted(), [samba.randn(8, 32, name="x", batch_dim=0)])
    entries = realisations(traced.result)
    refuse_host(entries)
    # the same op moved into the recipe of its queue, as a compile would leave it
    traced.result.lowered["x"].recipe = traced.result.graph
    moved = realisations(traced.result)
    assert {e.type: (e.kind, e.allowed) for e in moved}["Relu"] == ("host", "")
    with pytest.raises(UnsupportedOp, match=r"strict mode: 2 ops[\s\S]*Relu relu: in the recipe of queue x"):
        refuse_host(moved)


def test_a_compile_prints_and_stores_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samba.session.reset()
    model = samba.from_torch_model_(Network())
    config = {"output_folder": str(tmp_path), "pef_name": "net", "strict": True}
    path = samba.session.compile(model, sample(), samba.optim.SGD(model.parameters()), config_dict=config)
    with tarfile.open(path) as tar:
        stream = tar.extractfile("unzipped_tti/samba.json")
        assert stream is not None
        stored = json.load(stream)["graphs"][0]["realisation"]
    assert stored["counts"]["program"] == 1 and stored["counts"]["grid"] > 0
    assert f"realisation of {len(stored['ops'])} ops: {stored['counts']['grid']} grid" in capsys.readouterr().out
