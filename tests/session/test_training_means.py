"""A session trains a module as torch does, or refuses it: one step of each kind, with eager torch as the oracle."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tbuda_lab.core.errors import InputError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import MIN_PCC

FLOATS = CompileOptions(default_df_override=DataFormat.Float32)
RATE = 0.1


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 0.5


class Saved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.p = p
        return torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return g * (x.abs() < 1) * ctx.p, None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.mT, 2 * x.mT @ g


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return -g


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b


def no_grad(h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        gate = torch.sigmoid(h) * 2
    return h * gate


def switched(h: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(False):
        gate = torch.tanh(h)
        with torch.enable_grad():
            h = h + torch.sin(h)
    return h * gate


@torch.no_grad()
def decorated(h: torch.Tensor) -> torch.Tensor:
    return h.abs().mean(-1, keepdim=True)


def hooked(function: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(h: torch.Tensor) -> torch.Tensor:
        if h.requires_grad:
            h.register_hook(function)
        return torch.tanh(h)

    return change


KEPT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": lambda h: torch.tanh(h),
    "detach": lambda h: h.detach(),
    "a gate that is detached": lambda h: h * torch.sigmoid(h).detach(),
    ".data": lambda h: h + torch.exp(h.data),
    "no_grad": no_grad,
    "set_grad_enabled": switched,
    "a decorator": lambda h: h / (decorated(h) + 1),
    "straight through": lambda h: h + (torch.sign(h) - h).detach(),
    "a Function": Sign.apply,
    "a Function that saves": lambda h: Saved.apply(h, 0.3),
    "a Function of two": lambda h: Product.apply(h, torch.relu(h.mT @ h)),
    "gradient reversal": Reverse.apply,
    "a hook": hooked(lambda g: g * 0.1),
    "a hook that clamps": hooked(lambda g: g.clamp(-0.01, 0.01)),
    "a hook that sets zeros": hooked(torch.zeros_like),
    "a hook that looks": hooked(lambda g: None),
    "a checkpoint": lambda h: checkpoint(lambda t: torch.sin(t) * 2, h, use_reentrant=False),
    "an old checkpoint": lambda h: checkpoint(lambda t: torch.sin(t) * 2, h, use_reentrant=True),
    "in place": lambda h: h.clone().mul_(2).add_(h.detach()),
    "softmax over the batch": lambda h: h.softmax(0),
    "minus the batch's mean": lambda h: h - h.mean(0, keepdim=True),
    "batch statistics that are detached": lambda h: (h - h.mean(0).detach()) / (h.std(0).detach() + 1),
    "the batch turned round": lambda h: h.flip(0) * h,
    "products within the batch": lambda h: h @ h.T @ h,
}


class Model(nn.Module):
    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.a, self.b, self.change = nn.Linear(6, 5), nn.Linear(5, 4), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.change(self.a(x)))


def trains_as_torch(
    module: nn.Module, inputs: tuple[Any, ...], loss: nn.Module, target: torch.Tensor, steps: int = 1, seed: int = 5
) -> Session:
    """Losses and weights of some steps, of a session and of eager torch."""
    mine, eager = copy.deepcopy(module), copy.deepcopy(module)
    session = Session.for_training(mine, inputs, loss, target, "sgd", RATE, options=FLOATS, device="wormhole_b0")
    torch.manual_seed(seed)
    told = [session.train([(inputs, target)])[0].loss for _ in range(steps)]
    optimizer = torch.optim.SGD(eager.parameters(), lr=RATE)
    torch.manual_seed(seed)
    for have in told:
        optimizer.zero_grad()
        wanted = loss(eager(*inputs), target)
        wanted.backward()
        optimizer.step()
        assert have == pytest.approx(float(wanted.detach()), rel=1e-3, abs=1e-5)
    weights = session.trainer.parameters()
    for name, parameter in eager.named_parameters():
        before = module.get_parameter(name).detach()
        step = (parameter.detach() - before).abs().max()
        moved = weights[name].reshape(parameter.shape) if name in weights else before
        assert (moved - parameter).abs().max() <= 2e-3 * step + 1e-6, name
    return session


@pytest.mark.parametrize("name", KEPT)
def test_what_a_model_says_about_gradients(name: str) -> None:
    torch.manual_seed(0)
    trains_as_torch(Model(KEPT[name]), (torch.randn(3, 6),), nn.MSELoss(), torch.randn(3, 4))


def _written(h: torch.Tensor) -> torch.Tensor:
    h = h * 1.0
    h[1:2] += 1
    h[:1] *= 2.0
    return h


FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "writes along dim 0": _written,
    "a number is flipped": lambda h: h * h.mean().flip(0),
    "a number is selected": lambda h: h + h.sum().index_select(0, torch.tensor([0])),
    "a number is written": lambda h: h * h.mean().index_fill(0, torch.tensor([0]), 0.5) + h,
    "rows change places": lambda h: h.flip(0) * h,
}
"""What is done to dim 0 of a batch, and to tensors without dims."""


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_mix_a_batch_train(name: str) -> None:
    torch.manual_seed(0)
    trains_as_torch(Model(FORMS[name]), (torch.randn(3, 6),), nn.MSELoss(), torch.randn(3, 4))


@pytest.mark.parametrize("name", ["round", "floor", "sort", "topk", "cumprod"])
def test_an_op_of_the_host_is_refused_with_what_trains_it(name: str) -> None:
    """`tests/pybuda/test_fallback.py` trains them on a TTDevice."""
    calls = {"sort": lambda h: h.sort(-1)[0], "topk": lambda h: h + h.topk(1)[0], "cumprod": lambda h: h.cumprod(-1)}
    model = Model(calls.get(name) or getattr(torch, name))
    session = Session.for_training(model, (torch.randn(3, 6),), nn.MSELoss(), torch.randn(3, 4), options=FLOATS)
    with pytest.raises(UnsupportedOp, match=f"{name}.*a TTDevice trains the model with this op on the host"):
        session.compile()


def _with_module_hook() -> nn.Module:
    model = Model(torch.tanh)
    model.b.register_full_backward_hook(lambda _, given, __: tuple(g * 0.1 for g in given))
    return model


def _with_accumulated() -> nn.Module:
    model = Model(torch.tanh)

    def half(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad *= 0.5

    model.a.weight.register_post_accumulate_grad_hook(half)
    return model


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


REFUSED = {
    "a module's hook": (_with_module_hook, (3, 6), (3, 4), "a backward hook of module 'b'"),
    "a hook behind the sum": (_with_accumulated, (3, 6), (3, 4), "a hook of parameter 'a.weight'"),
    "a Function of two results": (lambda: Model(lambda h: sum(Two.apply(h))), (3, 6), (3, 4), "Two: it returns 2"),
    "a dropout inside a layer": (Attention, (2, 3, 8), (2, 3, 8), "MultiheadAttention drops with probability 0.5"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_form_is_refused_by_name(name: str) -> None:
    make, shape, goal, text = REFUSED[name]
    torch.manual_seed(0)
    with pytest.raises(UnsupportedOp) as error:
        Session.for_training(make(), (torch.randn(shape),), nn.MSELoss(), torch.randn(goal), options=FLOATS)
    assert any(text in d.message for d in error.value.diagnostics), error.value


def test_hooks_of_parameters() -> None:
    torch.manual_seed(0)
    model = Model(torch.tanh)
    model.a.weight.register_hook(lambda g: g * 3)
    model.b.bias.register_hook(lambda g: g.clamp(-0.05, 0.05))
    eager = copy.deepcopy(model)  # which loses the hooks
    eager.a.weight.register_hook(lambda g: g * 3)
    eager.b.bias.register_hook(lambda g: g.clamp(-0.05, 0.05))
    x, y = torch.randn(3, 6), torch.randn(3, 4)
    session = Session.for_training(model, (x,), nn.MSELoss(), y, "sgd", RATE, options=FLOATS)
    assert all(c.passes(MIN_PCC) for c in session.check_gradients(x, y))
    session.train([(x, y)])
    optimizer = torch.optim.SGD(eager.parameters(), lr=RATE)
    nn.functional.mse_loss(eager(x), y).backward()
    optimizer.step()
    for name, parameter in eager.named_parameters():
        torch.testing.assert_close(
            session.trainer.parameters()[name].reshape(parameter.shape), parameter.detach(), rtol=1e-4, atol=1e-5
        )


# -- look-up tables --------------------------------------------------------------------------------------------------
class Words(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind, self.l = kind, nn.Linear(6, 9, bias=False)
        padding = 0 if "padding" in kind else None
        if "bag" in kind:
            self.e: nn.Module = nn.EmbeddingBag(9, 6, mode="sum" if "sum" in kind else "mean", padding_idx=padding)
        else:
            self.e = nn.Embedding(9, 6, padding, scale_grad_by_freq="frequency" in kind, sparse="sparse" in kind)
        if "row" in kind:
            with torch.no_grad():
                self.e.weight[0] = torch.randn(6)
        if "tied" in kind:
            self.l.weight = self.e.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        if "bag" in self.kind:
            return self.l(self.e(i))
        if "indexed" in self.kind:
            return self.l(self.e.weight[i].mean(1))
        if "functional" in self.kind:
            return self.l(F.embedding(i, self.e.weight, padding_idx=2).mean(1))
        return self.l(torch.tanh(self.e(i)).mean(1))


TABLES = (
    "plain",
    "padding",
    "padding and a row",
    "frequency",
    "frequency and padding",
    "tied",
    "tied and padding",
    "bag",
    "bag sum",
    "bag padding",
    "bag sum padding",
    "indexed",
    "functional",
    "sparse gradients",
)


@pytest.mark.parametrize("kind", TABLES)
def test_tables_train(kind: str) -> None:
    module = Words(kind)
    ids = torch.tensor([[1, 0, 1], [2, 2, 2], [0, 5, 2], [8, 7, 1]])
    trains_as_torch(module, (ids,), nn.CrossEntropyLoss(), torch.tensor([1, 7, 0, 3]), steps=2)


def test_a_table_that_forward_renormalises_is_refused() -> None:
    module = nn.Sequential(nn.Embedding(9, 6, max_norm=0.5), nn.Flatten(), nn.Linear(18, 4))
    with pytest.raises(UnsupportedOp, match="parameter 'weight' of module '0'"):
        Session.for_training(module, (torch.tensor([[1, 0, 1]]),), nn.MSELoss(), torch.randn(1, 4), options=FLOATS)


# -- losses ----------------------------------------------------------------------------------------------------------
class Own(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.function(*values)


def dice(h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p, t = torch.sigmoid(h), (y > 0).float()
    return 1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1)


def contrastive(h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.normalize(h) @ F.normalize(y).T, torch.arange(h.shape[0]))


CLASSES = torch.tensor([1, 3, 0, 2])
NUMBERS = torch.linspace(-1, 1, 16).reshape(4, 4) * torch.tensor([[1.0], [-1], [2], [1]])
WEIGHTS = torch.tensor([0.2, 1.0, 3.0, 0.5])
LOSSES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "mse": (nn.MSELoss(), NUMBERS),
    "mse sum": (nn.MSELoss(reduction="sum"), NUMBERS),
    "l1": (nn.L1Loss(), NUMBERS),
    "l1 sum": (nn.L1Loss(reduction="sum"), NUMBERS),
    "huber": (nn.HuberLoss(), NUMBERS),
    "smooth l1 sum": (nn.SmoothL1Loss(reduction="sum"), NUMBERS),
    "cross entropy": (nn.CrossEntropyLoss(), CLASSES),
    "cross entropy sum": (nn.CrossEntropyLoss(reduction="sum"), CLASSES),
    "weighted": (nn.CrossEntropyLoss(weight=WEIGHTS), CLASSES),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
    "ignoring": (nn.CrossEntropyLoss(), torch.tensor([1, -100, 0, 2])),
    "ignoring one": (nn.CrossEntropyLoss(ignore_index=0), CLASSES),
    "weighted and ignoring": (nn.CrossEntropyLoss(weight=WEIGHTS, ignore_index=3), CLASSES),
    "probabilities": (nn.CrossEntropyLoss(), NUMBERS.softmax(-1)),
    "nll": (Own(lambda h, y: F.nll_loss(h.log_softmax(-1), y)), CLASSES),
    "kl batchmean": (Own(lambda h, y: F.kl_div(h.log_softmax(-1), y, reduction="batchmean")), NUMBERS.softmax(-1)),
    "kl mean": (Own(lambda h, y: nn.KLDivLoss()(h.log_softmax(-1), y)), NUMBERS.softmax(-1)),
    "kl sum": (Own(lambda h, y: nn.KLDivLoss(reduction="sum")(h.log_softmax(-1), y)), NUMBERS.softmax(-1)),
    "bce": (nn.BCEWithLogitsLoss(), (NUMBERS > 0).float()),
    "bce weighted": (nn.BCEWithLogitsLoss(pos_weight=WEIGHTS), (NUMBERS > 0).float()),
    "triplet": (Own(lambda h, y: F.triplet_margin_loss(h, y, y.flip(1))), NUMBERS),
    "margin": (Own(lambda h, y: F.margin_ranking_loss(h, y, torch.sign(y), 0.5)), NUMBERS),
    "cosine": (Own(lambda h, y: F.cosine_embedding_loss(h, y, torch.ones(h.shape[0]))), NUMBERS),
    "dice": (Own(dice), NUMBERS),
    "contrastive": (Own(contrastive), NUMBERS),
    "own sum": (Own(lambda h, y: ((h - y) ** 2).sum()), NUMBERS),
    "root": (Own(lambda h, y: ((h - y) ** 2).mean().sqrt()), NUMBERS),
    "a third of it": (Own(lambda h, y: ((h - y) ** 2).sum() / 3), NUMBERS),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_and_its_gradients_are_torchs(name: str) -> None:
    loss, target = LOSSES[name]
    torch.manual_seed(0)
    trains_as_torch(nn.Sequential(nn.Linear(6, 4)), (torch.randn(4, 6),), loss, target)


def test_targets_that_are_left_out_after_a_sample_without_any() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    session = Session.for_training(nn.Linear(6, 4), (x,), nn.CrossEntropyLoss(), CLASSES, options=FLOATS)
    with pytest.raises(InputError, match="leaves out"):
        session.train([(x, torch.tensor([1, -100, 0, 2]))])


# -- modes -----------------------------------------------------------------------------------------------------------
MODES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "batch norm": (lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 4)), (4, 6)),
    "batch norm of images": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4)),
        (3, 2, 6, 6),
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Linear(5, 4)), (4, 6)),
    "two dropouts": (
        lambda: nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 4)),
        (4, 6),
    ),
    "dropout of channels": (
        lambda: nn.Sequential(nn.Conv2d(2, 8, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(128, 4)),
        (2, 2, 6, 6),
    ),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 4)), (4, 6)),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_the_modules_own(name: str, training: bool) -> None:
    make, shape = MODES[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = trains_as_torch(make().train(training), (torch.randn(shape),), nn.MSELoss(), torch.randn(shape[0], 4))
    assert all(c.passes(MIN_PCC) for c in session.verify())


def test_a_forward_that_asks_for_its_mode() -> None:
    class Asks(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (3 if self.training else 1)

    torch.manual_seed(0)
    for training in (True, False):
        trains_as_torch(Asks(torch.tanh).train(training), (torch.randn(2, 6),), nn.MSELoss(), torch.randn(2, 4))


# -- doors -----------------------------------------------------------------------------------------------------------
def test_a_session_of_a_batch_runs_verifies_and_shows_itself() -> None:
    from tbuda_lab.widgets import BringUp

    torch.manual_seed(0)
    x, y = torch.randn(32, 6), torch.randn(32, 4)
    session = Session.for_training(Model(torch.tanh), (x,), nn.MSELoss(), y, options=FLOATS)
    (losses,) = session.run()[0]
    assert losses.shape == (32,)
    assert [c.name for c in session.verify()] == ["loss"] and all(c.passes(MIN_PCC) for c in session.verify())
    assert session.verify_ops().first_failure is None
    page = BringUp(session)
    page.wait(60)
    page.close()


@pytest.mark.parametrize("nest", [lambda x: {"a": x}, lambda x: [x, {"b": 2 * x}]])
def test_nested_inputs(nest: Callable[[torch.Tensor], Any]) -> None:
    class Nested(Model):
        def forward(self, given: Any) -> torch.Tensor:
            tensors = [given["a"]] if isinstance(given, dict) else [given[0], given[1]["b"]]
            return super().forward(sum(tensors))

    torch.manual_seed(0)
    session = trains_as_torch(Nested(torch.tanh), (nest(torch.randn(2, 6)),), nn.MSELoss(), torch.randn(2, 4))
    assert all(c.passes(MIN_PCC) for c in session.verify())
