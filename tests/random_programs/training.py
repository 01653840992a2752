"""One step of SGD on the simulated device against torch's."""

from __future__ import annotations

import copy
import traceback

import torch

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.random_programs.generate import Program
from tests.random_programs.judge import Shaken, Verdict

RATE = 0.05


def step(program: Program, target: torch.Tensor, way: Shaken | None = None) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss, and what each weight changes by."""
    module, inputs = program.module(), program.sample()
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    before = {n: p.detach().clone() for n, p in module.named_parameters()}
    with way or torch.enable_grad():
        loss = torch.nn.functional.mse_loss(module(*inputs), target)
        loss.backward()
    optimizer.step()
    return float(loss), {n: p.detach() - before[n] for n, p in module.named_parameters()}


def judge_training(program: Program) -> Verdict:
    torch.manual_seed(7)
    module, inputs = program.module(), program.sample()
    verdict = lambda what, text="": Verdict(program.seed, "training", what, text)  # noqa: E731
    try:
        target = torch.randn(module(*copy.deepcopy(inputs)).shape)
        loss, steps = step(program, target)
        free_loss, free_steps = step(program, target, Shaken(3))
    except RuntimeError as error:
        return verdict("same", f"torch itself refuses: {error}")
    try:
        options = CompileOptions(default_df_override=DataFormat.Float32)
        session = Session.for_training(
            module, inputs, torch.nn.MSELoss(), target, "sgd", RATE, options=options, cache=False
        )
        before = {n: p.detach().clone() for n, p in module.named_parameters()}
        told = session.train([(inputs, target)])[0].loss
        after = session.trainer.parameters()
    except TbudaError as error:
        return verdict("refused", f"{type(error).__name__}: {error}")
    except Exception:
        return verdict("raw", traceback.format_exc(limit=-6))
    if loss != loss and told != told:
        return verdict("same")
    if abs(told - loss) > 1e-3 * abs(loss) + 1e-6 + 20 * abs(free_loss - loss):
        return verdict("differs", f"loss {told!r}, torch {loss!r}")
    for name, change in steps.items():
        mine = torch.zeros_like(change)
        if name in after:
            mine = torch.as_tensor(after[name]).reshape(change.shape) - before[name]
        slack = 20 * float((free_steps[name] - change).abs().max()) + 1e-3 * float(change.abs().max()) + 2e-6
        off = float((mine - change).abs().nan_to_num(1e30).max())
        if off > slack and not bool(change.isnan().any()):
            known = "" if name in after else " (not trained)"
            return verdict("differs", f"{name} is off by {off} of {float(change.abs().max())}{known}")
    return verdict("same")
