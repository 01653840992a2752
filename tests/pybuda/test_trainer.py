"""Training through the netlist against torch: gradients, updates, optimizers, microbatches, accumulation."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, PlacementError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.pybuda import PyTorchModule, from_pybuda
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.netlist.check import check
from tbuda_lab.core.netlist.schema import Execute
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.core.trainer import Trainer
from tests.placer.router import prefetched

ROWS, WIDTH = 20, 40


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10))


def compiled(
    module: torch.nn.Module,
    sample: torch.Tensor,
    arch: str = "wormhole_b0",
    microbatch: int = 1,
    batches: int = 1,
    **optimizer: Any,
) -> CompileResult:
    graph = from_pybuda(PyTorchModule("model", module), (sample,), training=True)
    kind = optimizer.pop("kind", "sgd")
    inputs = tuple(n.name for n in graph.inputs)
    training = TrainingOptions(optimizer_options(kind, **optimizer), inputs, batches=batches)
    options = CompileOptions(default_df_override=DataFormat.Float32, training=training, microbatch=microbatch)
    return compile_graph(graph, arch, options)


def close(have: dict[str, torch.Tensor], want: dict[str, torch.Tensor], tolerance: float = 2e-4) -> None:
    assert have.keys() == want.keys()
    for name, value in want.items():
        scale = float(value.abs().max())
        torch.testing.assert_close(have[name], value, rtol=0, atol=tolerance * max(scale, 1e-3), msg=name)


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_gradients_and_updates_of_accumulated_batches(arch: str) -> None:
    """Two microbatches of two forward, then backward, gradients of both added up; then one step of the optimizer."""
    module = model()
    x = torch.randn(4, ROWS, WIDTH)
    result = compiled(module, x[:1], arch, microbatch=2, batches=2, learning_rate=0.05)
    trainer = Trainer(result)
    source, out = result.graph.inputs[0].name, result.graph.outputs[0].name
    seed = torch.randn(4, ROWS, 10)
    leaf = x.clone().requires_grad_()
    expected = module(leaf)
    expected.backward(seed)
    for half in (slice(0, 2), slice(2, 4)):
        (y,) = trainer.forward({source: x[half]})
        torch.testing.assert_close(y, expected[half].detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="room"):
        trainer.forward({source: x[:2]})
    for k, half in enumerate((slice(0, 2), slice(2, 4))):
        matches = trainer.backward({out: seed[half]}, zero_grad=k == 0)
        close(matches, {source: leaf.grad[half]})
    close(trainer.gradients(), {n: p.grad for n, p in module.named_parameters()})
    trainer.optimize()
    with torch.no_grad():
        close(trainer.parameters(), {n: p - 0.05 * p.grad for n, p in module.named_parameters()})
    trainer.forward({source: x[:2]})  # the sums begin anew
    trainer.backward({out: torch.zeros(2, ROWS, 10)})
    assert all(not g.any() for g in trainer.gradients().values())


def test_programs_are_those_of_the_three_parts() -> None:
    result = compiled(model(), torch.randn(1, ROWS, WIDTH))
    assert [p.name for p in result.netlist.programs] == ["run_fwd_0", "run_bwd_0", "run_opt_0"]
    assert [e.direction for e in result.placement.epochs] == ["fwd", "bwd", "opt"]
    assert {q.name for q in result.placement.queues.values() if q.kind == "accumulator"} == {
        f"grad_acc_{n}" for n in ("0.weight", "0.bias", "2.weight", "2.bias")
    }
    assert not [f for f in check(result.netlist, arch="wormhole_b0", profile="strict") if f.severity == "error"]
    again = compiled(model(), torch.randn(1, ROWS, WIDTH))
    assert again.netlist == result.netlist


def _lamb(p: torch.Tensor, g: torch.Tensor, s: dict[str, Any], correction: bool = False) -> torch.Tensor:
    s["m"], s["t"] = 0.9 * s.get("m", 0) + 0.1 * g, s.get("t", 0) + 1
    s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
    mean, variance = (1 - 0.9 ** s["t"], 1 - 0.999 ** s["t"]) if correction else (1.0, 1.0)
    r = s["m"] / mean / ((s["v"] / variance).sqrt() + 1e-8) + 0.01 * p
    return p - 0.01 * (p.norm() / r.norm()).clamp(0, 10) * r


def _lars(p: torch.Tensor, g: torch.Tensor, s: dict[str, Any]) -> torch.Tensor:
    local = 0.001 * p.norm() / (g.norm() + 0.01 * p.norm() + 1e-8)
    s["m"] = 0.9 * s.get("m", 0) + 0.01 * local * (g + 0.01 * p)
    return p - s["m"]


TORCH = {
    "sgd": lambda ps: torch.optim.SGD(ps, 0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda ps: torch.optim.Adam(ps, 0.01, weight_decay=0.01),
    "adamw": lambda ps: torch.optim.AdamW(ps, 0.01, weight_decay=0.01),
}
FORMULAS = {"lamb": _lamb, "lamb, corrected": functools.partial(_lamb, correction=True), "lars": _lars}
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"weight_decay": 0.01},
    "lamb, corrected": {"correction": True},
}


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "lamb", "lamb, corrected", "lars"])
def test_three_steps_of_an_optimizer(kind: str) -> None:
    module = torch.nn.Linear(WIDTH, 24)
    twin = copy.deepcopy(module)
    x, seed = torch.randn(1, ROWS, WIDTH), torch.randn(1, ROWS, 24)
    result = compiled(module, x, kind=kind.partition(",")[0], learning_rate=0.01, **SETTINGS.get(kind, {}))
    trainer = Trainer(result)
    theirs = TORCH[kind](twin.parameters()) if kind in TORCH else None
    state: dict[str, dict[str, Any]] = {n: {} for n, _ in twin.named_parameters()}
    for _ in range(3):
        trainer.forward({result.graph.inputs[0].name: x})
        trainer.backward({result.graph.outputs[0].name: seed})
        trainer.optimize()
        twin.zero_grad()
        twin(x).backward(seed)
        if theirs is not None:
            theirs.step()
        else:
            with torch.no_grad():
                for n, p in twin.named_parameters():
                    p.copy_(FORMULAS[kind](p, p.grad, state[n]))
        close(trainer.parameters(), {n: p.detach() for n, p in twin.named_parameters()})
    trainer.set_learning_rate(0.0)
    before = trainer.parameters()
    if kind != "lars":  # whose momentum goes on
        trainer.optimize()
        close(trainer.parameters(), before, 0.0 if kind != "sgd" else 1e-6)


def test_all_weights_share_the_powers_of_the_betas() -> None:
    """Ten weights read Adam's two factors, more than an op may feed: from queues, without nops between."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(5)])
    x = torch.randn(1, ROWS, WIDTH)
    result = compiled(module, x, kind="adamw", learning_rate=0.01)
    powers = [name for name in result.netlist.queues if "_pow" in name]
    assert powers == ["input_opt_0.beta1_pow", "input_opt_1.beta2_pow"]
    updates = [name for name, place in result.placement.ops.items() if name.startswith("opt_in0")]
    assert len(updates) == 10 * 3 + 4  # mean, variance, weight; both powers and factors
    trainer = Trainer(result)
    source, out = result.graph.inputs[0].name, result.graph.outputs[0].name
    optimizer = torch.optim.AdamW(module.parameters(), 0.01, weight_decay=0.0)
    for _ in range(3):
        seed = torch.randn(1, ROWS, WIDTH)
        optimizer.zero_grad()
        module(x).backward(seed)
        optimizer.step()
        trainer.forward({source: x})
        trainer.backward({out: seed})
        trainer.optimize()
    close(trainer.parameters(), {n: p.detach() for n, p in module.named_parameters()}, 1e-3)
    for state in trainer.states().values():
        assert float(state["beta1_pow"]) == pytest.approx(0.9**3)
        assert float(state["beta2_pow"]) == pytest.approx(0.999**3)


def test_weights_and_state_can_be_written() -> None:
    module = torch.nn.Linear(WIDTH, 24)
    result = compiled(module, torch.randn(1, ROWS, WIDTH), kind="adam")
    trainer, other = Trainer(result), Trainer(result)
    values = {n: torch.randn_like(p) for n, p in module.named_parameters()}
    trainer.set_parameters(values)
    close(trainer.parameters(), values, 0.0)
    shared = {"beta1_pow": torch.tensor([0.81]), "beta2_pow": torch.tensor([0.998])}
    own = {n: {k: torch.rand_like(v) for k, v in parts.items()} for n, parts in trainer.states().items()}
    states = {n: {**parts, **shared} for n, parts in own.items()}
    other.set_states(states)
    for name, parts in other.states().items():
        close(parts, states[name], 0.0)
    with pytest.raises(InputError, match=r"beta1_pow of .* is shared with other weights"):
        other.set_states(own)
    close(other.states()["weight"], states["weight"], 0.0)  # nothing was written
    with pytest.raises(InputError, match="no weight 'other'"):
        trainer.set_parameters({"other": torch.zeros(1)})


def test_what_cannot_be_trained_is_told() -> None:
    with pytest.raises(InputError, match="no optimizer 'rprop'"):
        optimizer_options("rprop")
    with pytest.raises(InputError, match="no setting beta"):
        optimizer_options("sgd", beta=1.0)
    result = compile_graph(from_pybuda(PyTorchModule("m", model()), (torch.randn(1, ROWS, WIDTH),)), "wormhole_b0")
    with pytest.raises(InputError, match="compiled for inference"):
        Trainer(result)


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_an_optimizer_calculates_in_float32_for_16_bit_weights(arch: str) -> None:
    """1 - 0.999 and its powers are nothing in bfloat16: Adam's first step would be no step at all."""
    module = torch.nn.Linear(WIDTH, 24)
    twin = copy.deepcopy(module)
    x, seed = torch.randn(1, ROWS, WIDTH), torch.randn(1, ROWS, 24)
    graph = from_pybuda(PyTorchModule("model", module), (x,), training=True)
    training = TrainingOptions(optimizer_options("adam", learning_rate=0.01))
    trainer = Trainer(compile_graph(graph, arch, CompileOptions(training=training)))
    theirs = torch.optim.Adam(twin.parameters(), 0.01)
    for _ in range(2):
        trainer.forward({graph.inputs[0].name: x})
        trainer.backward({graph.outputs[0].name: seed})
        trainer.optimize()
        twin.zero_grad()
        twin(x).backward(seed)
        theirs.step()
    for name, p in twin.named_parameters():
        before = dict(module.named_parameters())[name].detach()
        step, want = trainer.parameters()[name] - before, p.detach() - before
        assert float((step - want).norm() / want.norm()) < 0.1, name


def test_recomputed_values_give_the_same_gradients_from_fewer_queues() -> None:
    module = model()
    x, seed = torch.randn(1, ROWS, WIDTH), torch.randn(1, ROWS, 10)
    selected: dict[bool, set[str]] = {}
    for recompute in (False, True):
        graph = from_pybuda(PyTorchModule("model", module), (x,), training=True)
        training = TrainingOptions(optimizer_options("sgd"), recompute=recompute)
        options = CompileOptions(default_df_override=DataFormat.Float32, training=training)
        result = compile_graph(graph, "wormhole_b0", options)
        selected[recompute] = {q.source for q in result.placement.queues.values() if q.kind == "e2e"}
        trainer = Trainer(result)
        trainer.forward({graph.inputs[0].name: x})
        trainer.backward({graph.outputs[0].name: seed})
        module.zero_grad()
        module(x).backward(seed)
        close(trainer.gradients(), {n: p.grad for n, p in module.named_parameters()})
    assert selected[True] == {"input_kept_nop"} < selected[False] | {"input_kept_nop"}
    assert len(selected[False]) > 1


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_large_weights_are_preloaded_by_programs_that_do_not_write_them(arch: str) -> None:
    """The feed-forward part of BERT-base: streamed through two buffers, a weight would not fit beside its own copy. The
    streams that fetch it are counted from the netlist's text by another reader; a core has 24."""
    module = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.ReLU(), torch.nn.Linear(3072, 768))
    graph = from_pybuda(PyTorchModule("model", module), (torch.randn(128, 768),), training=True)
    training = TrainingOptions(optimizer_options("sgd", learning_rate=0.1))
    options = CompileOptions(default_df_override=DataFormat.Float16_b, training=training, microbatch=16)
    netlist = compile_graph(graph, arch, options).netlist
    preloaded = {
        (program.name, queue)
        for program in netlist.programs
        for execute in program.instructions
        if isinstance(execute, Execute)
        for queue, setting in (execute.settings or {}).items()
        if setting.fields["prologue"] is True
    }
    weights = {"0.weight", "2.weight"}
    assert all({q for program, q in preloaded if program == name} & weights for name in ("run_fwd_0", "run_bwd_0"))
    assert not {q for program, q in preloaded if program == "run_opt_0"} & weights
    assert max(prefetched(dumps(netlist)).values()) <= 24


@pytest.mark.parametrize(("each", "stride", "dilation"), [(1, 1, 1), (1, 2, 1), (1, 1, 2), (4, 1, 1), (4, 2, 2)])
def test_grouped_convolutions_train_with_as_many_ops_for_any_number_of_groups(
    each: int, stride: int, dilation: int
) -> None:
    """each: channels of a group."""
    count = []
    for channels in (8, 40):
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, channels, 1, bias=False),
            torch.nn.Conv2d(channels, channels, 3, stride, dilation, dilation, groups=channels // each),
        )
        x = torch.randn(1, 3, 9, 9, requires_grad=True)
        y = module(x)
        seed = torch.randn_like(y)
        y.backward(seed)
        assert x.grad is not None
        result = compiled(module, x.detach(), learning_rate=0.1)
        trainer = Trainer(result)
        trainer.forward({result.graph.inputs[0].name: x.detach()})
        got = trainer.backward({result.graph.outputs[0].name: seed})
        close(got, {result.graph.inputs[0].name: x.grad})
        close(trainer.gradients(), {name: p.grad for name, p in module.named_parameters() if p.grad is not None})
        count.append(len(result.passed.ops))
    assert count[0] == count[1]


class Scaled(torch.nn.Module):
    """Times a weight of many slices, each of (size, size)."""

    def __init__(self, slices: int, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(slices, size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_a_sum_of_gradients_has_room_in_l1_for_all_its_parts(arch: str) -> None:
    """The netlist's check counts them, too. Where no grid makes the parts small enough, the compile says which op it
    is."""
    options = CompileOptions(training=TrainingOptions(optimizer_options("sgd", learning_rate=0.1)))
    x = torch.randn(1, 64, 160, 160)
    result = compile_graph(from_pybuda(PyTorchModule("model", Scaled(64, 160)), (x,), training=True), arch, options)
    (op,) = [op for graph in result.netlist.graphs.values() for op in graph.ops.values() if op.gradient_op]
    blocks = op.blocking
    tiles = blocks.t * blocks.mblock[0] * blocks.mblock[1] * blocks.ublock[0] * blocks.ublock[1]
    assert blocks.t == 64 and tiles * 2080 < load_device(arch).l1_usable
    x = torch.randn(1, 600, 3, 3)
    with pytest.raises(PlacementError) as raised:
        compile_graph(from_pybuda(PyTorchModule("model", Scaled(600, 3)), (x,), training=True), arch, options)
    assert [d.where for d in raised.value.diagnostics] == [op.name]


def test_the_gradient_by_an_input_that_all_elements_share_is_their_sum() -> None:
    class Product(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * y

    generator = torch.Generator().manual_seed(2)
    x, y, g = (torch.randn(s, generator=generator) for s in ((3, 4, 33), (33,), (3, 4, 33)))
    graph = from_pybuda([PyTorchModule("m", Product())], (x, y), training=True)
    names = tuple(n.name for n in graph.inputs)
    options = CompileOptions(
        default_df_override=DataFormat.Float32, microbatch=3, training=TrainingOptions(input_gradients=names)
    )
    trainer = Trainer(compile_graph(graph, "wormhole_b0", options))
    trainer.forward(dict(zip(names, (x, y), strict=True)))
    got = trainer.backward({graph.outputs[0].name: g})
    torch.testing.assert_close(got[names[0]], g * y)
    torch.testing.assert_close(got[names[1]], (g * x).sum((0, 1)))


@pytest.mark.parametrize("chips", [2, 3])
def test_weights_are_trained_on_cards_that_read_only_their_own_memory(chips: int) -> None:
    """The backward part and the optimizer go on to the next grayskull chip; every weight lies where it is read."""
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU())
    x, seed = torch.randn(1, ROWS, WIDTH), torch.randn(1, ROWS, WIDTH)
    graph = from_pybuda(PyTorchModule("model", module), (x,), training=True)
    training = TrainingOptions(optimizer_options("sgd", learning_rate=0.05))
    options = CompileOptions(default_df_override=DataFormat.Float32, training=training)
    apart = tuple(Override("chip_break", name) for name in ("1.relu", "bw_in0_1.relu_multiply_2")[: chips - 1])
    result = compile_graph(graph, load_device("grayskull", chips=chips), options, apart)
    queues, ops = result.placement.queues, result.placement.ops
    assert {ops[name].chip for name in ops} == set(range(chips))
    trainer = Trainer(result)
    trainer.forward({result.graph.inputs[0].name: x})
    trainer.backward({result.graph.outputs[0].name: seed})
    trainer.optimize()
    module(x).backward(seed)
    (weight,) = module.parameters()
    assert weight.grad is not None
    close(trainer.parameters(), {"0.weight": weight.detach() - 0.05 * weight.grad})
    assert queues["0.weight"].chip == ops["0.matmul"].chip
