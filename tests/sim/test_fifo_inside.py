"""A queue that one op of an epoch fills and another empties: all inputs at once give what they give one by one."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.compiler.pipeline import compile_graph
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.runner import Runner
from tbuda_lab.sim import executions


def test_inputs_through_a_queue_inside_an_epoch_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 32)).eval()
    inputs = (torch.randn(12, 64),)
    graph = from_torch(model, inputs, name="m")
    first = compile_graph(graph, "wormhole_b0", CompileOptions(microbatch=4, enable_auto_fusing=False))
    source = next(n for n in first.placement.epochs[0].ops if first.lowered.users()[n][0][0] in first.placement.ops)
    reader = first.lowered.users()[source][0][0]
    queue = Override("insert_queue", source, {"dest": (reader,)})
    result = compile_graph(graph, "wormhole_b0", CompileOptions(microbatch=4, enable_auto_fusing=False), (queue,))
    assert result.placement.ops[source].epoch == result.placement.ops[reader].epoch

    def run() -> tuple[list[torch.Tensor], int, bool]:
        runner = Runner(result)
        out = runner.run([inputs])[0]
        plans = list(runner.executor.plans.values())
        return out, runner.executor.stats.ops, any(plan.sequential for plan in plans)

    together, few, sequential = run()
    monkeypatch.setattr(executions, "passed_on", lambda plan: None)
    alone, many, _ = run()
    assert sequential and few < many
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))
    assert torch.allclose(together[0], model(*inputs), atol=0.05)
