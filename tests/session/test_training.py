"""Training in a session: steps, events, learning rate, pause, edits while it trains, gradients against torch."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import torch

from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.training import TrainingProgress, TrainingStep

BATCH = 2


def made(**more: object) -> tuple[Session, torch.nn.Module]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.Tanh(), torch.nn.Linear(24, 8))
    sample = torch.randn(BATCH, 16, 40), torch.randn(BATCH, 16, 8)
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session.for_training(
        model, sample[0], torch.nn.MSELoss(), sample[1], learning_rate=0.5, options=options, **more
    )
    return session, model


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(BATCH, 16, 40, generator=generator), torch.randn(BATCH, 16, 8, generator=generator))
        for _ in range(count)
    ]


def test_steps_losses_and_learning_rates_are_those_of_torch() -> None:
    session, model = made()
    twin = copy.deepcopy(model)
    told: list[TrainingStep] = []
    session.on("trained", told.append)
    data = batches(4)
    session.train(data[:2])
    session.set_learning_rate(0.125)
    session.train(data[2:])
    for k, (x, y) in enumerate(data):
        rate = 0.5 if k < 2 else 0.125
        losses = ((twin(x) - y) ** 2).mean((1, 2))
        twin.zero_grad()
        losses.mean().backward()
        with torch.no_grad():
            for p in twin.parameters():
                p -= rate * p.grad
        assert (told[k].step, told[k].learning_rate) == (k + 1, rate)
        assert told[k].loss == pytest.approx(float(losses.mean().detach()), rel=1e-3)
    for name, p in twin.named_parameters():
        torch.testing.assert_close(session.trainer.parameters()[name], p.detach(), rtol=1e-3, atol=1e-4)


def test_gradients_against_torch_and_epochs_by_direction() -> None:
    session, model = made(device="grayskull")
    result = session.check_gradients(*batches(1)[0])
    assert {c.name for c in result} == {n for n, _ in model.named_parameters()}
    assert all(c.pcc is not None and c.pcc > 0.9999 for c in result)
    assert session.result is not None
    assert [e.direction for e in session.result.placement.epochs] == ["fwd", "bwd", "opt"]


def test_a_second_verification_begins_at_the_weights_of_the_model_too() -> None:
    """A run makes a step of the optimizer: the next one is held against the model that made none."""
    session, _ = made()
    first, second = session.verify(), session.verify()
    assert first == second and second[0].pcc > 0.999
    session.run()
    trained = session.run()[0][0]
    assert session.verify() == first
    assert session.run()[0][0].mean() < trained.mean(), "runs by hand go on from where they were"


def test_an_edit_of_the_placement_keeps_what_was_trained() -> None:
    session, _ = made()
    session.train(batches(1))
    before = session.trainer.parameters()
    op = session.result.placement.epochs[1].ops[-1]
    session.apply(Override("op_size", op, (1, 1)))
    after = session.trainer.parameters()
    assert session.result.placement.ops[op].size == (1, 1)
    for name, value in before.items():
        assert torch.equal(after[name], value)
    session.train(batches(1))


def test_pause_and_step_one_training_step() -> None:
    session, _ = made()
    session.compile()
    told: list[TrainingStep] = []
    arrived = threading.Event()

    def listen(step: TrainingStep) -> None:
        told.append(step)
        arrived.set()

    session.on("trained", listen)
    session.control.pause()
    worker = threading.Thread(target=session.train, args=(batches(2),))
    worker.start()
    session.control.step_input()
    assert arrived.wait(30)
    assert len(told) == 1
    session.control.resume()
    worker.join(30)
    assert [t.step for t in told] == [1, 2]


def test_what_cannot_train_is_told() -> None:
    session, _ = made()
    with pytest.raises(InputError, match="learning rate"):
        session.set_learning_rate(-1.0)
    with pytest.raises(InputError, match="a batch is inputs for"):
        session.train([(torch.zeros(BATCH, 16, 40), ())])
    plain = Session(torch.nn.Linear(40, 8), torch.zeros(1, 16, 40))
    with pytest.raises(InputError, match="for_training"):
        plain.train([])


def test_progress_is_told_with_every_step_and_at_a_pause() -> None:
    session, _ = made()
    told: list[TrainingProgress] = []
    paused = threading.Event()

    def hear(progress: TrainingProgress) -> None:
        told.append(progress)
        if progress.paused:
            paused.set()

    session.on("training", hear)
    session.control.pause()
    thread = threading.Thread(target=session.train, args=(batches(3),))
    thread.start()
    assert paused.wait(120) and told[-1].done == 0 and told[-1].total == 3
    paused.clear()
    session.control.step_input()
    assert paused.wait(120)
    assert told[-1].paused and told[-1].done == 1 and told[-1].last == session.training_steps[0]
    session.control.resume()
    thread.join(120)
    assert [p.done for p in told if p.running and not p.paused] == [1, 2, 3]
    assert not told[-1].running and told[-1].done == 3 and len(session.training_steps) == 3


def test_gradients_are_told_of_the_ops_that_make_them() -> None:
    session, _ = made()
    x, y = batches(1)[0]
    comparisons = session.check_gradients(x, y)
    values = session.gradients_by_op(comparisons)
    by_name = {c.name: c.pcc for c in comparisons}
    assert values["0.matmul"] == min(by_name["0.weight"], by_name["0.bias"]), "the op that reads both"
    lowered = session.result.lowered
    for name, pcc in by_name.items():
        end = lowered[f"grad_acc_{name}.sum"].sources[0]
        assert values[end] == pcc and all(values[s] == pcc for s in lowered[end].sources)
    assert set(values) <= {n.name for n in lowered.ops} and not any(op.startswith("opt_") for op in values)


OTHERS = {
    "a function": torch.relu,
    "a class": torch.nn.Linear,
    "nothing": None,
    "a list": [torch.nn.Linear(8, 8)],
    "weights": torch.nn.Linear(8, 8).state_dict(),
    "a text": "model.bin",
    "TorchScript": torch.jit.script(torch.nn.Linear(8, 8)),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("place", ["model", "loss"])
def test_what_is_no_module_is_refused_by_type(other: str, place: str) -> None:
    x = torch.randn(2, 8)
    parts = {"model": torch.nn.Linear(8, 8), "loss": torch.nn.MSELoss(), place: OTHERS[other]}
    with pytest.raises(ModelError, match=r"a torch\.nn\.Module|not a model file|TorchScript"):
        Session.for_training(parts["model"], (x,), parts["loss"], (x,))


def test_an_exported_program_trains_as_its_module() -> None:
    torch.manual_seed(1)
    model, x, target = torch.nn.Linear(8, 8), torch.randn(2, 8), torch.randn(2, 8)
    program = torch.export.export(copy.deepcopy(model), (x,))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session.for_training(program, (x,), torch.nn.MSELoss(), (target,), options=options)
    (step,) = session.train([((x,), (target,))])
    assert step.loss == pytest.approx(float(torch.nn.functional.mse_loss(model(x), target)), rel=1e-4)


class Stored(torch.nn.Module):
    """Both factors are the model's; what is added is given."""

    def __init__(self, product: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.product = product
        self.first, self.second = (torch.nn.Parameter(torch.randn(shape)) for shape in shapes)

    def forward(self, bias: torch.Tensor) -> torch.Tensor:
        return self.product(bias, self.first, self.second)


@pytest.mark.parametrize("bias", [(), (1,), (3,), (1, 3)])
@pytest.mark.parametrize(
    "model",
    [
        lambda: Stored(torch.addmm, (2, 4), (4, 3)),
        lambda: Stored(torch.baddbmm, (2, 2, 4), (2, 4, 3)),
        lambda: Stored(lambda b, x, w: torch.nn.functional.linear(x, w, b.reshape(-1).expand(3)), (2, 4), (3, 4)),
    ],
    ids=["addmm", "baddbmm", "linear"],
)
def test_a_bias_that_is_given_to_a_product_of_stored_matrices(
    model: Callable[[], Stored], bias: tuple[int, ...]
) -> None:
    module, given = model(), torch.randn(bias)
    want = module(given)
    target = torch.randn(want.shape)
    gradients = torch.autograd.grad(torch.nn.functional.mse_loss(want, target), list(module.parameters()))
    wanted = [p.detach() - 0.1 * g for p, g in zip(module.parameters(), gradients, strict=True)]
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session.for_training(module, (given,), torch.nn.MSELoss(), target, "sgd", 0.1, options=options)
    session.train([((given,), target)])
    trained = session.trainer.parameters()
    for name, value in zip(("first", "second"), wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(trained[name]), value, atol=1e-5, rtol=1e-4)
