"""SambaFlow programs that train: tables, batch norms, sections one by one, the optimizer's state; against torch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tbuda_lab import samba
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.samba import utils

Batch = Mapping[str, torch.Tensor]


@pytest.fixture(autouse=True)
def fresh_session() -> None:
    samba.session.reset()
    torch.manual_seed(0)


def given(batch: Batch) -> list[samba.SambaTensor]:
    return [samba.from_torch_tensor(value, name=name, batch_dim=0) for name, value in batch.items()]


def sgd(of: Any, parameters: Any, lr: float = 0.1) -> Any:
    return of.SGD(parameters, lr=lr, momentum=0.9)


def adamw(of: Any, parameters: Any) -> Any:
    return of.AdamW(parameters, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)


class Pair:
    """A model on the device and its copy in torch, each with its optimizer."""

    def __init__(self, model: torch.nn.Module, batch: Batch, make: Callable[[Any, Any], Any] = sgd, **how: Any) -> None:
        self.reference = copy.deepcopy(model)
        self.model = samba.from_torch_model_(model)
        self.optimizer, self.torch_optimizer = (
            make(samba.optim, model.parameters()),
            make(torch.optim, self.reference.parameters()),
        )
        self.outputs = utils.trace_graph(self.model, given(batch), self.optimizer, **how)

    def step(self, batch: Batch, sections: Sequence[str] | None = None) -> None:
        """One step of both; the loss, the gradients, and all outputs agree."""
        results = samba.session.run(given(batch), self.outputs, section_types=sections)
        wanted = self.reference(*batch.values())
        self.torch_optimizer.zero_grad()
        wanted[0].sum().backward()
        for result, value in zip(results, wanted, strict=True):
            torch.testing.assert_close(samba.to_torch(result), value.detach(), rtol=1e-4, atol=1e-4)
        for own, other in zip(self.model.parameters(), self.reference.parameters(), strict=True):
            if other.requires_grad:
                torch.testing.assert_close(own.__dict__["sn_grad"], other.grad, rtol=1e-3, atol=1e-5)
        self.torch_optimizer.step()

    def same(self) -> None:
        """Parameters and buffers of both, those of the device brought back."""
        samba.session.to_cpu(self.model)
        state = self.reference.state_dict()
        for name, value in self.model.state_dict().items():
            torch.testing.assert_close(value, state[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 16), torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.second(torch.relu(self.first(x)))
        return F.cross_entropy(logits, y), logits


def small_batches(count: int = 4) -> list[Batch]:
    return [{"x": torch.randn(8, 32), "y": torch.randint(10, (8,))} for _ in range(count)]


class Words(torch.nn.Module):
    """Token and place embeddings; the head shares the table where tied."""

    def __init__(self, tied: bool, padding: int | None = None) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(50, 32, padding_idx=padding), torch.nn.Embedding(8, 32)
        self.layer, self.head = torch.nn.Linear(32, 32), torch.nn.Linear(32, 50, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        logits = self.head(torch.tanh(self.layer(x)))
        return F.cross_entropy(logits.reshape(-1, 50), labels.reshape(-1)), logits


@pytest.mark.parametrize(("tied", "padding"), [(False, None), (True, None), (False, 0)])
def test_tables_are_trained(tied: bool, padding: int | None) -> None:
    batches = [{"ids": torch.randint(50, (2, 8)), "labels": torch.randint(50, (2, 8))} for _ in range(2)]
    for batch in batches:
        batch["ids"][:, 5:] = 0
    pair = Pair(Words(tied, padding), batches[0])
    before = copy.deepcopy(pair.reference.tokens.weight)
    for batch in batches:
        pair.step(batch)
    pair.same()
    assert not torch.equal(before, pair.model.tokens.weight)
    if padding is not None:
        assert torch.equal(before[0], pair.model.tokens.weight[0])


class Bags(torch.nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag, self.head = torch.nn.EmbeddingBag(20, 32, mode=mode), torch.nn.Linear(32, 4)

    def forward(self, ids: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.head(self.bag(ids))
        return F.cross_entropy(logits, y), logits


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_tables_of_bags_are_trained(mode: str) -> None:
    batch = {"ids": torch.randint(20, (4, 3)), "y": torch.randint(4, (4,))}
    pair = Pair(Bags(mode), batch)
    pair.step(batch)
    pair.step(batch)
    pair.same()


def test_tables_that_cannot_be_trained_say_so() -> None:
    batch = {"ids": torch.randint(20, (4, 3)), "y": torch.randint(4, (4,))}
    with pytest.raises(UnsupportedOp, match="use mode='sum'"):
        Pair(Bags("max"), batch)


def test_a_row_of_padding_that_is_not_zero_stays_as_it_is() -> None:
    model = Words(False, padding=3)
    with torch.no_grad():
        model.tokens.weight[3] = 1.0
    batch = {"ids": torch.randint(50, (2, 8)), "labels": torch.randint(50, (2, 8))}
    batch["ids"][0, :3] = 3
    pair = Pair(model, batch)
    pair.step(batch)
    pair.same()


class Normed(torch.nn.Module):
    """A batch norm behind a convolution of images, or behind a linear layer of vectors."""

    def __init__(self, images: bool) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False) if images else torch.nn.Linear(32, 16, bias=False)
        self.norm = torch.nn.BatchNorm2d(4) if images else torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(4 if images else 16, 10)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.norm(self.first(x)))
        logits = self.head(x.mean((2, 3)) if x.dim() == 4 else x)
        return F.cross_entropy(logits, y), logits


@pytest.mark.parametrize("images", [True, False])
def test_batch_norms_take_the_statistics_of_the_batch(images: bool) -> None:
    shape = (2, 3, 8, 8) if images else (8, 32)
    batches = [{"x": torch.randn(shape) + 1, "y": torch.randint(10, shape[:1])} for _ in range(2)]
    pair = Pair(Normed(images), batches[0])
    assert int(pair.model.norm.num_batches_tracked) == 0  # tracing runs the model and leaves no trace
    for batch in batches:
        pair.step(batch)
    pair.same()
    assert int(pair.model.norm.num_batches_tracked) == 2


def test_inputs_by_name_are_arguments() -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(32, 8)

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, labels: torch.Tensor | None = None) -> Any:
            y = self.layer(x) if mask is None else self.layer(x) * mask
            return y if labels is None else (F.mse_loss(y, labels), y)

    model = samba.from_torch_model_(Masked())
    batch = {name: samba.randn(4, n, name=name, batch_dim=0) for name, n in (("labels", 8), ("x", 32))}
    outputs = utils.trace_graph(model, batch)
    loss, y = samba.session.run(batch, outputs)
    wanted = model(**{name: samba.to_torch(value) for name, value in batch.items()})
    torch.testing.assert_close(samba.to_torch(loss), wanted[0].detach())
    torch.testing.assert_close(samba.to_torch(y), wanted[1].detach())
    with pytest.raises(ValueError, match="which takes x, mask, labels; target are none of them, x are missing"):
        utils.trace_graph(model, {"target": batch["labels"]})


def test_frozen_parameters_stay() -> None:
    model = Small()
    for parameter in model.first.parameters():
        parameter.requires_grad_(False)
    batch = small_batches(1)[0]
    pair = Pair(model, batch)
    pair.step(batch)
    pair.step(batch)
    pair.same()


HOST_CHANGES: dict[str, Callable[[torch.nn.Module], object]] = {
    "loaded": lambda model: model.load_state_dict(Small().state_dict()),
    "written": lambda model: model.get_parameter("first.weight").data.mul_(2),
    "other data": lambda model: setattr(model.get_parameter("first.bias"), "data", torch.ones(16)),
    "frozen": lambda model: model.get_parameter("first.bias").requires_grad_(False),
}


@pytest.mark.parametrize("how", HOST_CHANGES)
def test_what_a_program_changes_on_the_host_alone_is_told(how: str) -> None:
    """Weights are the device's from the trace on: it trains what it has until `to_rdu` or another trace."""
    batch = small_batches(1)[0]
    pair = Pair(Small(), batch)
    with torch.no_grad():
        HOST_CHANGES[how](pair.model)
    with pytest.warns(UserWarning, match=r"first\..* changed on the host .* session\.to_rdu"):
        pair.step(batch)
    samba.session.to_cpu(pair.model)
    with torch.no_grad():
        HOST_CHANGES["written"](pair.model)
    samba.session.to_rdu(pair.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        samba.session.run(given(batch), pair.outputs)


def test_gradients_that_no_update_took_are_told() -> None:
    first, second = small_batches(2)
    pair = Pair(Small(), first)
    samba.session.run(given(first), pair.outputs, section_types=["fwd", "bckwd"])
    with pytest.warns(UserWarning, match="do not accumulate"):
        pair.step(second)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pair.step(first)


def test_a_loss_outside_the_model() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    x, y = torch.randn(8, 32), torch.randint(10, (8,))
    pair = Pair(layers, {"x": x}, adamw, init_output_grads=False)
    for _ in range(3):
        (result,) = samba.session.run(given({"x": x}), pair.outputs, section_types=["fwd"])
        logits = samba.to_torch(result).clone().requires_grad_()
        F.cross_entropy(logits, y).backward()
        pair.outputs[0].sn_grad = logits.grad
        samba.session.run(given({"x": x}), pair.outputs, section_types=["bckwd", "gradnorm", "opt"])
        pair.torch_optimizer.zero_grad()
        F.cross_entropy(pair.reference(x), y).backward()
        pair.torch_optimizer.step()
    pair.same()


def test_a_forward_pass_alone_changes_no_gradient() -> None:
    first, second, third = small_batches(3)
    pair = Pair(Small(), first)
    pair.step(first, ["fwd", "bckwd"])
    for batch in (second, third):
        samba.session.run(given(batch), pair.outputs, section_types=["fwd"])
    samba.session.run(given(first), pair.outputs, section_types=["opt"])
    pair.same()
    pair.step(second)
    pair.same()
    with pytest.warns(UserWarning, match="no forward pass waits for it"):
        samba.session.run(given(first), pair.outputs, section_types=["bckwd"])


def test_the_gradient_of_an_output_may_change_from_run_to_run() -> None:
    (batch,) = small_batches(1)
    pair = Pair(Small(), batch, loss_indices=[0])
    for scale in (1.0, 3.0, 0.5):
        pair.outputs[0].sn_grad = torch.tensor(scale)
        (latest, _) = samba.session.run(given(batch), pair.outputs, section_types=["fwd", "bckwd"])
        pair.reference.zero_grad()
        (scale * pair.reference(*batch.values())[0]).backward()
        for own, other in zip(pair.model.parameters(), pair.reference.parameters(), strict=True):
            torch.testing.assert_close(own.__dict__["sn_grad"], other.grad, rtol=1e-4, atol=1e-6)
        assert latest.sn_grad is pair.outputs[0].sn_grad


class TwoHeads(torch.nn.Module):
    """Two outputs of one trunk, each with a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.left, self.right = torch.nn.Linear(32, 16), torch.nn.Linear(16, 8), torch.nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.relu(self.trunk(x))
        return self.left(hidden), self.right(hidden)


@pytest.mark.parametrize("chosen", [0, 1])
def test_a_program_that_sets_sn_grad_of_one_output_trains_on_that_alone(chosen: int) -> None:
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    pair = Pair(TwoHeads(), {"x": x}, sgd, init_output_grads=False)
    other = ("right", "left")[chosen]
    before = {n: p.detach().clone() for n, p in pair.reference.named_parameters() if n.startswith(other)}
    for scale in (1.0, -0.5):
        results = samba.session.run(given({"x": x}), pair.outputs, section_types=["fwd"])
        gradient = scale * torch.randn(results[chosen].shape, generator=torch.Generator().manual_seed(2))
        pair.outputs[chosen].sn_grad = gradient
        samba.session.run(given({"x": x}), pair.outputs, section_types=["bckwd", "opt"])
        pair.torch_optimizer.zero_grad()
        pair.reference(x)[chosen].backward(gradient)
        pair.torch_optimizer.step()
    pair.same()
    for name, parameter in pair.reference.named_parameters():
        if name in before:
            assert torch.equal(parameter, before[name])  # and `same` has held ours against it


@pytest.mark.parametrize("make", [sgd, adamw])
def test_a_checkpoint_holds_the_optimizers_state(make: Callable[[Any, Any], Any]) -> None:
    batches = small_batches()
    pair = Pair(Small(), batches[0], make)
    for batch in batches[:2]:
        pair.step(batch)
    samba.session.to_cpu(pair.model)
    weights, state = copy.deepcopy(pair.model.state_dict()), copy.deepcopy(pair.optimizer.state_dict())
    for number, values in pair.torch_optimizer.state_dict()["state"].items():
        for name, value in values.items():
            torch.testing.assert_close(state["state"][number][name], value, rtol=1e-4, atol=1e-6)

    samba.session.reset()
    pair.model = samba.from_torch_model_(Small())
    pair.model.load_state_dict(weights)
    pair.optimizer = make(samba.optim, pair.model.parameters())
    pair.optimizer.load_state_dict(state)
    pair.outputs = utils.trace_graph(pair.model, given(batches[0]), pair.optimizer)
    for batch in batches[2:]:
        pair.step(batch)
    pair.same()


def test_a_scheduler_of_learning_rates() -> None:
    batches = small_batches()
    pair = Pair(Small(), batches[0])
    schedulers = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (pair.optimizer, pair.torch_optimizer)]
    pair.optimizer.step()  # without gradients: torch's schedulers ask for a step before theirs
    for batch in batches:
        pair.step(batch)
        for scheduler in schedulers:
            scheduler.step()
    pair.same()
    samba.session.run(given(batches[0]), pair.outputs, hyperparam_dict={"lr": 0.0})
    before = [p.detach().clone() for p in pair.model.parameters()]
    samba.session.to_cpu(pair.model)
    assert all(torch.equal(a, b) for a, b in zip(before, pair.model.parameters(), strict=True))


def test_default_losses_of_different_shapes_are_told() -> None:
    class WithProbability(Small):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            loss, logits = super().forward(x, y)
            return loss, torch.sigmoid(logits)

    (batch,) = small_batches(1)
    with pytest.warns(UserWarning, match=r"ones at each of the outputs 0 \(\), 1 \(8, 10\); loss_indices="):
        Pair(WithProbability(), batch)
    pair = Pair(WithProbability(), batch, loss_indices=[0])
    pair.step(batch)
    pair.same()
