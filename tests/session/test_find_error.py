"""The wrong op found by itself: faults planted after each stage, clean models, values from outside, formats."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.cli import main
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph import Edge, Graph
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.ops import Relu, Sigmoid
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import FormatOp, Session
from tbuda_lab.core.session.find_error import ErrorReport, runs
from tbuda_lab.core.session.find_error.goldens import read_goldens
from tbuda_lab.core.verification import measure_error
from tbuda_lab.sim.kernels import eltwise
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tests.faults.judge import QUICK, clean, session_with, try_fault
from tests.faults.models import make
from tests.faults.plant import Fault, faults, planted, with_netlist
from tests.frontend.ops_zoo import Fn

FELT = [
    ("gated", "swapped operand"),
    ("causal", "lost bias"),
    ("mlp", "wrong format"),
    ("mlp", "off-by-one slice"),
    ("residual", "lost bias"),
    ("gated", "wrong TM"),
]


@pytest.mark.parametrize("model, kind", FELT)
def test_planted_faults_are_found_with_op_and_stage(model: str, kind: str) -> None:
    outcome = next(o for seed in range(5) if (o := try_fault(model, kind, random.Random(seed))) is not None)
    assert outcome.right, f"{outcome.fault.op} at {outcome.fault.stage}: {outcome.report}"
    assert "first wrong at" in str(outcome.report)


def test_a_fault_in_a_product_that_has_taken_over_its_relu_is_not_laid_to_the_next_op() -> None:
    session, every = clean("mlp")
    fault = next(f for f in every if (f.kind, f.stage, f.op) == ("off-by-one slice", "lowered", "0.matmul"))
    faulty = session_with("mlp", session, fault)
    assert faulty is not None and "relu" in str(faulty.compile().lowered["0.matmul"].op)
    report = faulty.find_error()
    assert (report.stage, report.op) == ("lowered", "0.matmul")


@pytest.mark.parametrize("op, change", [("2.matmul", "bias"), ("2.weight", "format")])
def test_a_netlist_that_is_off_by_less_than_its_formats_round_is_found(op: str, change: str) -> None:
    """Bfp8_b may cost an op 3 %; a lost bias that makes 2 %, or a weight in another format, is a fault all the same."""
    module, inputs = make("mlp")
    with torch.no_grad():
        hidden = module[1](module[0](inputs[0]))
        module[2].bias[:] = 0.02 * torch.linalg.vector_norm(module[2](hidden)) / np.sqrt(hidden.numel())
    options = CompileOptions(balancer_policy="Ribbon", default_df_override=DataFormat.Bfp8_b)
    session = Session(module, inputs, "n150", options, name="mlp", cache=False)
    result = session.compile()
    assert session.find_error().right

    def spoil(netlist: Netlist) -> None:
        placed = next(g.ops["2.matmul"] for g in netlist.graphs.values() if "2.matmul" in g.ops)
        if change == "bias":
            del placed.attributes["bias"]
            placed.inputs = placed.inputs[:2]
        else:
            netlist.queues["2.weight"].df = DataFormat.Bfp4_b

    session.result = with_netlist(result, Fault(change, "netlist", op, spoil))
    report = session.find_error()
    assert (report.stage, report.op) == ("netlist", op), report
    assert all(o.isolated.relative_l2 < 0.05 for o in report.ops)


@pytest.mark.parametrize("model", ["mlp", "causal", "residual"])
def test_clean_models_raise_no_alarm_and_say_what_rounding_costs(model: str) -> None:
    session, _ = clean(model)
    before = session.rev
    report = session.find_error()
    assert report.right and report.checked == ("traced", "passed", "lowered", "netlist", "golden")
    assert 0 < report.error < 0.03 and report.costs and "costs" in str(report)
    assert {o.op for o in report.ops} == set(session.compile().placement.ops)
    assert all(o.isolated.relative_l2 <= o.expected for o in report.ops)
    assert session.rev == before


@pytest.mark.parametrize("df", [None, "Float32", "Float16_b", "Bfp8_b", "Bfp4_b", "Bfp2_b"])
@pytest.mark.parametrize("model", ["mlp", "gated"])
def test_all_that_golden_mode_rounds_is_foreseen(model: str, df: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs to the nearest, weights, small blocks on the edge between two steps: no run without rounding is needed."""
    modes: list[str] = []

    def runner(result: CompileResult, mode: str) -> Runner:
        modes.append(mode)
        return Runner(result, mode)

    monkeypatch.setattr("tbuda_lab.core.session.find_error.search.Runner", runner)
    options = CompileOptions(balancer_policy="Ribbon", default_df_override=None if df is None else DataFormat[df])
    report = Session(*make(model), "n150", options, cache=False).find_error()
    assert modes == ["golden"] and report.stage in ("", "golden")
    assert report.right == (df not in ("Bfp4_b", "Bfp2_b"))


def test_a_function_by_another_formula_needs_no_run_without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's gelu is off by up to 5e-4, which moves a small block's exponent: that is foreseen, too."""
    session, every = clean("encoder")
    gelus = [f for f in every if (f.kind, f.stage) == ("wrong format", "golden") and f.op.endswith("gelu")]
    modes: list[str] = []

    def runner(result: CompileResult, mode: str) -> Runner:
        modes.append(mode)
        return Runner(result, mode)

    monkeypatch.setattr("tbuda_lab.core.session.find_error.search.Runner", runner)
    for fault in gelus:
        faulty = session_with("encoder", session, fault)
        assert faulty is not None
        report = faulty.find_error()
        assert (report.stage, report.op) == ("golden", fault.op)
    assert len(gelus) == 2 and modes == ["golden"] * 2


def test_how_far_the_devices_functions_are_from_their_definitions() -> None:
    x = torch.linspace(-12, 12, 400_001, dtype=torch.float32)
    exact = x.double().requires_grad_()
    value = torch.nn.functional.gelu(exact)
    (slope,) = torch.autograd.grad(value.sum(), exact)
    for name, wanted in (("gelu", value), ("gelu_derivative", slope)):
        off = np.abs(getattr(eltwise, name)(x.numpy()) - wanted.detach().numpy()).max()
        assert 0.7 * runs.FORMULAS[name] < off < runs.FORMULAS[name]


class Beside(nn.Module):
    """A product whose rounding is a small part of the output."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(64, 64)
        self.product.bias.data *= 10  # which fills the tiles' other rows, too

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * self.product(x)


def test_what_a_format_costs_is_of_the_outputs_without_what_fills_their_tiles() -> None:
    """19 rows of a tile's 32 are the model's: the rounding of one op alone makes nearly all of the outputs' error."""
    torch.manual_seed(0)
    session = Session(Beside().eval(), (torch.randn(1, 19, 64),), "n150", cache=False)
    session.apply(FormatOp("product.matmul", "Bfp2_b"))
    report = session.find_error()
    assert report.right and report.costs[0].op == "product.matmul"
    assert report.costs[0].share == pytest.approx(report.error, rel=0.03)
    assert f"costs {report.costs[0].share:.3g} of the {report.error:.3g} error" in str(report)
    many = dataclasses.replace(report, error=11 * report.costs[0].share)
    assert "no single op costs a tenth of it, most Bfp2_b at product.matmul" in str(many) and "give it" not in str(many)


@pytest.mark.parametrize("op", ["", "2.matmul"])
def test_views_are_led_to_the_op_that_is_wrong(op: str) -> None:
    session, every = clean("mlp")
    fault = next((f for f in every if (f.kind, f.stage, f.op) == ("lost bias", "lowered", op)), None)
    session = Session(*make("mlp"), "n150", cache=False) if fault is None else session_with("mlp", session, fault)
    assert session is not None
    session.compile()
    hub = hub_of(session)
    hub.find_error()
    hub.wait(60)
    assert hub.selection["names"] == ([op] if op else []) and hub.frames["errors"].meta["op"] == op


def test_a_fault_in_a_netlist_stays_where_it_was_planted() -> None:
    """`session_with` once compiled anew after it had planted it, so that none was ever asked for."""
    session, every = clean("mlp")
    fault = next(f for f in every if (f.kind, f.stage) == ("lost bias", "netlist"))
    faulty = session_with("mlp", session, fault)
    assert faulty is not None
    report = faulty.find_error()
    assert (report.stage, report.op) == ("netlist", fault.op)


def test_a_format_too_coarse_for_the_outputs_is_named_with_a_better_one() -> None:
    module, inputs = make("mlp")
    options = CompileOptions(default_df_override=DataFormat.Bfp4_b)
    report = Session(module, inputs, "n150", options).find_error()
    worst = report.costs[0]
    assert (report.stage, report.op) == ("golden", worst.op) and "Bfp4_b costs" in report.reason
    assert worst.df == "Bfp4_b" and worst.instead in ("Bfp8_b", "Float16_b")
    assert worst.share > 5 * Session(module, inputs, "n150").find_error().costs[0].share


def test_a_wrong_trace_is_found_against_the_module() -> None:
    """A traced graph whose subtraction is turned round: the module run eagerly never has that value."""
    module, inputs = make("gated")
    session = Session(module, inputs, "n150", cache=False)
    node = next(n for n in session.trace().ops if n.op.type == "subtract")
    node.inputs = node.inputs[::-1]
    report = session.find_error()
    assert (report.stage, report.op) == ("traced", node.name) and report.location


class Wide(nn.Module):
    """Scores of an untrained classifier: with a softmax probabilities that hardly differ; with a threshold truth
    values, and numbers chosen by them."""

    def __init__(self, tail: str) -> None:
        super().__init__()
        self.tail, self.linear = tail, nn.Linear(64, 640)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.linear(x)
        match self.tail:
            case "softmax":
                return torch.softmax(0.05 * scores, -1)
            case "offset":
                return 50 + scores
            case "threshold":
                return (scores > 0.1).float()
            case "chosen":
                return torch.where(scores > 0.1, scores + 40, scores - 40)
            case _:
                return torch.sigmoid(scores) * torch.sign(scores)


@pytest.mark.parametrize("df", [DataFormat.Float16_b, DataFormat.Bfp8_b])
@pytest.mark.parametrize("tail", ["softmax", "offset", "threshold", "chosen", "sign"])
def test_rounding_that_every_format_does_is_no_alarm(tail: str, df: DataFormat) -> None:
    """Where an output hardly varies a correlation is that of the rounding; beside a threshold a number may fall on its
    other side."""
    torch.manual_seed(3)
    report = Session(Wide(tail).eval(), (torch.randn(1, 32, 64),), "n150", CompileOptions(default_df_override=df))
    assert report.find_error().right, str(report.find_error())


def test_a_few_numbers_that_a_format_cuts_off_are_told_where_they_are_much() -> None:
    """Float16 ends at 131,008: one in two hundred numbers beyond is far more than noise."""
    torch.manual_seed(3)
    x = torch.randn(1, 32, 64)
    x[..., ::200] = 4000.0
    options = dataclasses.replace(QUICK, default_df_override=DataFormat.Float16)
    report = Session(Fn(lambda x: (x * 1000) * 2), (x,), "n150", options).find_error(mode="device")
    assert not report.right and "Float16" in report.reason, str(report)


def test_an_output_that_hardly_varies_still_fails_where_more_is_lost() -> None:
    torch.manual_seed(3)
    options = CompileOptions(default_df_override=DataFormat.Bfp2_b)
    session = Session(Wide("softmax").eval(), (torch.randn(1, 32, 64),), "n150", options)
    assert session.find_error().stage == "golden"


@pytest.mark.parametrize(
    "mean, noise, good", [(0.0, 0.1, True), (0.0, 0.2, False), (50.0, 0.1, True), (50.0, 0.8, False), (1.0, 0.3, False)]
)
def test_what_is_lost_is_held_against_a_spread_of_a_tenth_at_least(mean: float, noise: float, good: bool) -> None:
    """Numbers of spread 1 about a mean, with noise: sqrt(2 (1 - 0.99)) = 0.14 of the spread leaves a correlation of
    0.99; about 50 the spread counts as a tenth of the length, 5, and 0.7 is what is let pass."""
    values, off = np.random.default_rng(0).standard_normal((2, 10_000)).clip(-2, 2)
    assert measure_error("x", mean + values, mean + values + noise * off).within(0.99) is good


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(32, 4, batch_first=True), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.attention(x, x, x)[0])


LAYERS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "encoder": lambda: (nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(1, 8, 32)),
    "attention": lambda: (Attending(), torch.randn(1, 8, 32)),
    "lstm": lambda: (Fn(nn.LSTM(32, 32, batch_first=True)), torch.randn(1, 2, 32)),
    "norms": lambda: (
        nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(4)]),
        torch.randn(1, 32, 64),
    ),
}


def wrong_traces(graph: Graph) -> Iterator[tuple[str, Callable[[Graph], None]]]:
    """Lost biases, and functions exchanged for relu or sigmoid."""
    for node in graph.ops:
        if node.op.type == "matmul" and len(node.inputs) == 3:
            yield node.name, lambda g, name=node.name: setattr(g[name], "inputs", g[name].inputs[:2])
        elif node.op.type in ("softmax", "sigmoid", "tanh", "relu", "gelu"):
            other = Sigmoid() if node.op.type == "relu" else Relu()
            yield node.name, lambda g, name=node.name, op=other: setattr(g[name], "op", op)


@pytest.mark.parametrize("layer", LAYERS)
def test_wrong_traces_of_layers_that_torch_fuses_are_laid_to_their_op(layer: str) -> None:
    """The kernels by which torch runs whole layers show none of their values, and all values behind a norm are of one
    length. A bias of keys is left out of what the softmax behind it gives."""
    torch.manual_seed(0)
    module, x = LAYERS[layer]()
    for parameter in module.eval().parameters():
        nn.init.normal_(parameter, std=0.3)
    whole = Session(module, (x,), "n150", QUICK).trace()
    told = []
    for name, change in wrong_traces(whole):
        session = Session(module, (x,), "n150", QUICK, cache=False)
        change(session.trace())
        report = session.find_error()
        assert report.right or (report.stage == "traced" and name in (report.op, *report.nodes)), (name, str(report))
        told.append(not report.right)
    assert sum(told) >= len(told) - 1 >= 2


def test_an_op_that_cannot_be_calculated_is_named_with_its_stage() -> None:
    module, inputs = make("mlp")
    session = Session(module, inputs, "n150", QUICK, cache=False)
    result = session.compile()
    node = next(n for n in result.passed.ops if n.op.type == "matmul")
    node.inputs = node.inputs[:1]
    result.lowered.nodes[result.lowered.outputs[0].sources[0]].op = None
    report = session.find_error()
    assert (report.stage, report.op) == ("passed", node.name) and "cannot be calculated" in report.reason


def test_values_from_outside_are_judged(tmp_path: Path) -> None:
    module, inputs = make("mlp")
    session = Session(module, inputs, "n150")
    with torch.no_grad():
        hidden = module[1](module[0](inputs[0])).numpy()
    name = next(n.name for n in session.trace().ops if n.op.type == "relu")
    np.savez(tmp_path / "good.npz", **{name: hidden})
    np.savez(tmp_path / "bad.npz", **{name: hidden + 1})
    assert session.find_error(goldens=tmp_path / "good.npz").right
    report = session.find_error(goldens=tmp_path / "bad.npz")
    assert (report.stage, report.op) == ("traced", name) and "golden" in report.reason


def two_layers() -> tuple[Session, np.ndarray]:
    """A session on a batch of 32, and what its first layer gives for all of it."""
    torch.manual_seed(3)
    module, x = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval(), torch.randn(32, 64)
    with torch.no_grad():
        return Session(module, (x,), "n150"), module[0](x).numpy()


@pytest.mark.parametrize("factor, right", [(1.0, True), (1.005, True), (1.05, False), (-1.0, False), (np.nan, False)])
def test_values_of_a_whole_batch_are_judged_by_what_formats_explain(factor: float, right: bool) -> None:
    """A graph holds the first element of a batch; in Float16_b formats explain a hundredth."""
    session, hidden = two_layers()
    report = session.find_error(goldens={"0.matmul": hidden * factor})
    assert report.right is right
    assert right or ("pcc" in report.reason and "formats explain 0.01" in report.reason)


@pytest.mark.parametrize(
    "goldens, text",
    [
        ({}, "no values"),
        ({"0.matmull": np.ones((1, 128))}, "near: 0.matmul"),
        ({"0.matmul": np.ones((5, 7))}, r"has the shape \(5, 7\); the op has \(1, 128\)"),
        ({"0.matmul": None}, "no real numbers"),
        ({"0.matmul": np.ones((128, 1))}, r"\(128, 1\); the op has \(1, 128\).* no other layout"),
        ({"0.matmul": np.ones((2, 64))}, r"has the shape \(2, 64\)"),
        ({"0.matmul": np.ones((1, 1, 64, 2))}, r"has the shape \(1, 1, 64, 2\)"),
        ({"0.matmul": np.ones((32, 128, 1))}, r"has the shape \(32, 128, 1\)"),
        ({"0.matmul": np.ones((32, 8, 16))}, r"has the shape \(32, 8, 16\)"),
        ({"0.matmul": np.ones((1, 128), bool)}, "holds truth values; the op has numbers"),
        ({"0.matmul": torch.ones(1, 128, dtype=torch.bool)}, "holds truth values; the op has numbers"),
        ({"0.matmul": [[True] + [1.0] * 127]}, "a truth value stands among its numbers"),
        ({"0.matmul": np.ones((1, 128), np.complex64)}, "no real numbers"),
        (5, "not int"),
        ([1], "not list"),
    ],
)
def test_values_that_no_op_has_are_refused(goldens: Any, text: str) -> None:
    session, _ = two_layers()
    with pytest.raises(InputError, match=text):
        session.find_error(goldens=goldens)


@pytest.mark.parametrize("shape", [(128,), (1, 128), (1, 1, 128), (1, 1, 1, 128), (32, 128), (32, 1, 128)])
def test_values_have_the_shape_of_the_op_but_for_leading_ones(shape: tuple[int, ...]) -> None:
    session, hidden = two_layers()
    values = hidden[: shape[0] if shape[0] == 32 else 1].reshape(shape)
    assert session.find_error(goldens={"0.matmul": values}).right


def test_truth_values_are_those_of_an_op_that_compares() -> None:
    class Above(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (x > 0.5)

    x = torch.linspace(-1, 1, 32 * 32).reshape(1, 32, 32)
    session = Session(Above(), (x,), "n150")
    name = next(n.name for n in session.trace().ops if n.op.type == "greater")
    assert session.find_error(goldens={name: x > 0.5}).right
    assert session.find_error(goldens={name: (x <= 0.5).numpy()}).op == name


class Masked(nn.Module):
    """Scores with a finite mask, beside which a difference of theirs is small."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = 3 * self.q(x) @ self.k(x).transpose(-1, -2) / 8 + mask
        return scores.softmax(-1) @ self.v(x)


@pytest.mark.parametrize("never", [-1e4, -1e9, torch.finfo(torch.float32).min, -np.inf])
@pytest.mark.parametrize("kind", ["wrong TM", "lost bias"])
def test_a_mask_hides_no_fault(never: float, kind: str) -> None:
    torch.manual_seed(2)
    sample = torch.randn(1, 48, 64), torch.triu(torch.full((1, 48, 48), never), 1)
    model = Masked().eval()
    session = Session(model, sample, "n150", cache=False)
    planted_in = {"wrong TM": "k.matmul", "lost bias": "q.matmul"}[kind]
    every = faults(session.compile())
    fault = next(f for f in every if (f.kind, f.stage, f.op) == (kind, "lowered", planted_in))
    faulty = Session(model, sample, "n150", cache=False)
    with planted(fault):
        faulty.compile()
    report = faulty.find_error()
    assert (report.stage, report.op) == ("lowered", planted_in), str(report)
    scores = session.find_error(goldens={session.trace().outputs[0].sources[0]: np.zeros((1, 48, 64))})
    assert not scores.right


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [False, True])
def test_models_in_halves_are_clean(half: torch.dtype, mixed: bool) -> None:
    """Their own rounding, which the traced graph has not, is no fault."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 64).to(half), nn.GELU(), nn.Linear(64, 32).to(half)).eval()
    model = (
        nn.Sequential(Fn(lambda x: x.to(half)), layers, Fn(lambda x: x.float()), nn.Softmax(-1)) if mixed else layers
    )
    session = Session(model, (torch.randn(1, 40, 64, dtype=torch.float32 if mixed else half),), "n150", cache=False)
    assert session.find_error().right and session.find_error(mode="device").right
    assert session.tune("relative<=0.5").points


def test_a_fault_of_the_trace_before_a_part_of_the_host() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), Fn(lambda x: x.sort(-1).values), nn.Linear(64, 64)).eval()
    sample = (torch.randn(1, 32, 64),)
    clean_session = Session(model, sample, "n150", cache=False)
    assert clean_session.find_error().right and clean_session.compile().chain is not None
    session = Session(model, sample, "n150", cache=False)
    traced = session.trace()
    relu = next(n for n in traced.ops if isinstance(n.op, Relu))
    for node in traced:
        node.inputs = tuple(Edge(relu.sources[0]) if e.source == relu.name else e for e in node.inputs)
    report = session.find_error()
    assert report.stage == "traced" and "sort" in report.op, str(report)


class Chosen(nn.Module):
    """Its output is an index, a truth value or a number of what a layer gives."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(64, 96), kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.layer(x))
        return {"index": y.argmax(-1), "truth": y > 0, "number": y}[self.kind]


@pytest.mark.parametrize("kind", ["index", "truth", "number"])
@pytest.mark.parametrize("stage, fault", [("passed", "lost bias"), ("lowered", "lost bias"), ("netlist", "lost bias")])
def test_outputs_that_are_no_floats_hide_no_fault(kind: str, stage: str, fault: str) -> None:
    torch.manual_seed(0)
    model, sample = Chosen(kind).eval(), (torch.randn(1, 32, 64),)
    session = Session(model, sample, "n150", cache=False)
    assert session.find_error().right
    planted_there = next(f for f in faults(session.compile()) if (f.kind, f.stage) == (fault, stage))
    faulty = Session(model, sample, "n150", cache=False)
    with planted(planted_there):
        faulty.compile()
    if stage == "netlist":
        faulty.result = with_netlist(faulty.compile(), planted_there)
    report = faulty.find_error()
    assert (report.stage, report.op) == (stage, planted_there.op), str(report)


TAILS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "places": lambda y: y.topk(5)[1],
    "whole numbers": lambda y: (y * 10).round().to(torch.int32),
    "sorted": lambda y: y.sort(-1)[0],
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("stage", ["passed", "lowered"])
def test_a_fault_before_a_part_of_the_host_is_found(tail: str, stage: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 50), Fn(TAILS[tail])).eval()
    sample = (torch.randn(1, 32, 64),)
    session = Session(model, sample, "n150", cache=False)
    assert session.compile().chain is not None and session.find_error().right
    every = faults(session.compile())
    fault = next(f for f in every if (f.kind, f.stage, f.op) == ("lost bias", stage, "0.matmul"))
    faulty = Session(model, sample, "n150", cache=False)
    with planted(fault):
        faulty.compile()
    report = faulty.find_error()
    assert (report.stage, report.op) == (stage, "0.matmul"), str(report)


def test_what_formats_make_of_indices_is_told() -> None:
    torch.manual_seed(0)
    session = Session(Chosen("index").eval(), (torch.randn(1, 32, 64),), "n150", cache=False)
    session.apply(FormatOp("layer.matmul", "Bfp2_b"))
    report = session.find_error()
    assert report.differing > 0.1 and "of whole numbers or truth values differ" in str(report)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(self.a(x))
        return self.c(torch.tanh(self.b(y)) - y)


def test_ops_on_images_are_named_after_passes() -> None:
    """Passes lay points of images as rows; the values are found again there."""
    torch.manual_seed(0)
    sample = (torch.randn(1, 3, 16, 16),)
    for name in ("a.weight", "b.weight", "c.bias"):

        def roll(graph: Graph, name: str = name) -> None:
            if name in graph:
                graph[name].value = np.roll(np.asarray(graph[name].value), 1)

        session = Session(Images().eval(), sample, "n150", cache=False)
        with planted(Fault("rolled", "passed", name, roll)):
            passed = session.compile().passed
        op = next(n.name for n in passed.ops if name in n.sources)
        report = session.find_error()
        assert (report.stage, report.op, report.nodes) == ("passed", op, (op,)), str(report)


@pytest.mark.parametrize("images", [False, True])
def test_an_activation_that_the_lowering_loses_is_laid_to_its_op(images: bool) -> None:
    torch.manual_seed(0)
    layers = (
        (nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 1))
        if images
        else (nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
    )
    sample = torch.randn(1, 3, 16, 16) if images else torch.randn(1, 64, 64)
    session = Session(nn.Sequential(*layers).eval(), (sample,), "n150", cache=False)
    lowered = session.compile().lowered
    first = next(n for n in lowered.ops if getattr(n.op, "relu", None) is not None)
    first.op = dataclasses.replace(first.op, relu=None)  # type: ignore[type-var]
    report = session.find_error()
    assert (report.stage, report.op) == ("lowered", first.name) and "without the activation" in str(report)


@pytest.mark.parametrize("columns", [4, 33])
def test_a_fault_in_what_fills_tiles_is_laid_to_the_op_that_fills_them(columns: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, columns), nn.Softmax(-1), nn.Linear(columns, 64)).eval()
    session = Session(model, (torch.randn(1, 32, 64),), "n150", cache=False)
    result = session.compile()
    netlist = copy.deepcopy(result.netlist)
    fills = next(o for g in netlist.graphs.values() for o in g.ops.values() if "reduce_max" in o.name)
    assert fills.type == "add"
    fills.type = "subtract"
    session.result = dataclasses.replace(result, netlist=netlist)
    report = session.find_error()
    assert (report.stage, report.op) == ("netlist", fills.name) and "fills its tiles" in str(report)


def test_a_mask_of_infinities_costs_no_format_infinitely_much() -> None:
    for seed in range(3, 5):
        torch.manual_seed(seed)
        sample = torch.randn(1, 48, 64), torch.triu(torch.full((1, 48, 48), -np.inf), 1)
        report = Session(Masked().eval(), sample, "n150", cache=False).find_error()
        assert report.right and all(np.isfinite(c.share) for c in report.costs)


@pytest.mark.parametrize("columns", [10, 33])
def test_formats_of_blocks_are_tried_for_any_number_of_columns(columns: int) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, columns)).eval()
    assert Session(model, (torch.randn(1, 32, 64),), "n150", cache=False).tune("pcc>=0.99").points


def test_outputs_that_are_no_numbers_are_told() -> None:
    """They have no error; a model without an error is given no advice."""
    session = Session(Fn(lambda x: (x - 0.5).log()), (torch.linspace(0, 1, 64).reshape(1, 2, 32),), "n150")
    report = session.find_error()
    assert report.not_finite == 0.5 and "50.0% of what the model itself gives is NaN" in str(report)
    nothing = session.find_error(inputs=(torch.full((1, 2, 32), np.nan),))
    assert nothing.not_finite == 1 and "give it" not in str(nothing)


@pytest.mark.parametrize("bound", [0, 1.5, float("nan"), "a"])
def test_a_bound_that_no_correlation_has_is_refused(bound: Any) -> None:
    session, _ = two_layers()
    with pytest.raises(InputError, match="min_pcc is a correlation"):
        session.find_error(min_pcc=bound)


def hard(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.hardtanh(50 * torch.sin(3 * x))


OF_LEAVES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "softmax": lambda: (nn.Softmax(-1), 10 * torch.randn(1, 32, 64)),
    "norm": lambda: (nn.LayerNorm(64), torch.randn(1, 32, 64) + 10),
    "groups": lambda: (nn.GroupNorm(2, 4), torch.randn(1, 4, 16, 16) + 10),
    "difference": lambda: (Fn(lambda x: x - x.mean()), torch.randn(1, 32, 64) + 10),
    "exponential": lambda: (Fn(lambda x: torch.log_softmax(x + 50, -1)), torch.randn(1, 32, 64)),
    "sine": lambda: (Fn(torch.sin), 31 * torch.rand(1, 32, 64)),
    "steep": lambda: (Fn(hard), torch.randn(1, 32, 64)),
}


@pytest.mark.parametrize("mode", ["golden", "device"])
@pytest.mark.parametrize("model", OF_LEAVES)
def test_what_an_op_makes_of_rounded_inputs_is_no_error_of_it(model: str, mode: str) -> None:
    """A difference of near numbers, an exponential and a sine are off by far more than what they read."""
    torch.manual_seed(7)
    module, x = OF_LEAVES[model]()
    report = Session(module.eval(), (x,), "n150", QUICK, cache=False).find_error(mode=mode)
    assert report.right, str(report)


class Causal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(64, 192), nn.Linear(64, 64)
        self.register_buffer("mask", torch.full((32, 32), float("-inf")).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.o(torch.softmax(q @ k.transpose(-1, -2) / 8 + self.mask, -1) @ v)


def test_a_mask_in_blocks_is_what_costs_and_its_sum_is_named() -> None:
    torch.manual_seed(0)
    options = dataclasses.replace(QUICK, default_df_override=DataFormat.Bfp8_b)
    session = Session(Causal().eval(), (torch.randn(1, 32, 64),), "n150", options, cache=False)
    report = session.find_error(mode="device")
    assert report.costs[0].op == "add" and report.costs[0].share > 0.5 * report.error, str(report)


def test_a_fault_behind_a_comparison_is_not_laid_to_it() -> None:
    """What the module compares is known, too, though it is no number."""
    torch.manual_seed(0)
    left, right = nn.Linear(64, 64), nn.Linear(64, 16)
    session = Session(Fn(lambda x: right(torch.where(left(x) > 0.5, x, -x))), (torch.randn(1, 32, 64),), "n150", QUICK)
    node = next(n for n in session.trace().ops if n.op.type == "where")
    node.inputs = (node.inputs[0], node.inputs[2], node.inputs[1])
    report = session.find_error()
    assert (report.stage, report.op) == ("traced", node.name), str(report)


class Cancelling(nn.Module):
    """A mean of numbers that cancel, and numbers that the host rounds in between."""

    def __init__(self, host: bool) -> None:
        super().__init__()
        self.host, self.linear, self.norm = host, nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        return torch.clamp(torch.round(y / 0.05), -128, 127) * 0.05 if self.host else y - y.mean(-1, keepdim=True)


@pytest.mark.parametrize("df", [DataFormat.Float32, DataFormat.Float16_b, DataFormat.Bfp8_b])
@pytest.mark.parametrize("fidelity", [MathFidelity.LoFi, MathFidelity.HiFi4])
@pytest.mark.parametrize("host", [False, True])
def test_what_cancels_and_what_the_host_makes_of_a_run_is_no_error_of_the_device(
    host: bool, fidelity: MathFidelity, df: DataFormat
) -> None:
    torch.manual_seed(0)
    options = dataclasses.replace(QUICK, default_df_override=df, default_math_fidelity=fidelity)
    report = Session(Cancelling(host).eval(), (torch.randn(1, 32, 64),), "n150", options).find_error(mode="device")
    assert report.right, str(report)


@pytest.mark.parametrize("df", [DataFormat.Float32, DataFormat.Float16, DataFormat.Float16_b])
@pytest.mark.parametrize("fidelity", [MathFidelity.LoFi, MathFidelity.HiFi2])
def test_a_fidelity_that_was_asked_for_is_no_error_of_the_device(fidelity: MathFidelity, df: DataFormat) -> None:
    module, inputs = make("causal")
    options = CompileOptions(default_df_override=df, default_math_fidelity=fidelity)
    report = Session(module, inputs, "n150", options).find_error(mode="device", min_pcc=0.98)
    assert report.right, str(report)


def test_a_fidelity_that_was_not_asked_for_is_one() -> None:
    session, _ = two_layers()

    def least(netlist: Netlist) -> None:
        for graph in netlist.graphs.values():
            for op in graph.ops.values():
                if op.name == "0.matmul":
                    op.math_fidelity = "LoFi"

    session.result = with_netlist(session.compile(), Fault("fidelity", "netlist", "0.matmul", least))
    report = session.find_error(mode="device")
    assert report.op == "0.matmul" and report.stage == "device", str(report)


def archive(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, a=values)
    return file.getvalue()


def safetensors(values: np.ndarray, **changes: object) -> bytes:
    entry = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [0, values.nbytes]} | changes
    header = json.dumps({"a": entry}).encode()
    return struct.pack("<Q", len(header)) + header + values.astype("<f4").tobytes()


def test_goldens_are_read_from_three_kinds_of_files(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "a.safetensors").write_bytes(safetensors(values))
    (tmp_path / "a.jsonl").write_text('{"op": "a", "golden": [0, 1, 2, 3, 4, 5], "shape": [2, 3]}\n\n')
    np.savez(tmp_path / "a.npz", a=values)
    for name in ("a.safetensors", "a.jsonl", "a.npz"):
        np.testing.assert_array_equal(read_goldens(tmp_path / name)["a"], values)


def test_of_a_card_and_its_reference_the_card_is_judged(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"op": "a", "golden": [1, 2], "device": [3, 4]}')
    assert read_goldens(tmp_path / "x.jsonl")["a"].tolist() == [3, 4]


def test_a_report_of_chisel_is_told_for_what_it_says(tmp_path: Path) -> None:
    """Lines as its `ChiselRecord` serialises them: no values, a payload by status."""
    head = {"op_asm": "%5 = ttnn.matmul", "binary_id": 0, "program_name": "main", "program_index": 0}
    right = {"status": "ok", "mode": "isolated", "pcc": 0.99999, "atol": 1e-3, "rtol": 1e-2, "device_id": 0}
    lines = [
        {"op": "ttnn.to_layout", "check": "golden", "ssa": "%1", **head, "payload": {"status": "no_golden"}},
        {"op": "ttnn.add", "check": "numerics", "ssa": "%4", **head, "payload": right},
        {"op": "ttnn.matmul", "check": "numerics", "ssa": "%5", **head}
        | {"payload": right | {"status": "numerics_fail", "mode": "accumulated", "pcc": 0.9312, "rtol": None}},
        {"op": "ttnn.relu", "check": "shape", "ssa": "%6", **head}
        | {"payload": {"status": "shape_mismatch", "expected_shape": [1], "actual_shape": [2]}},
    ]
    (tmp_path / "report.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InputError, match=r"2 of 4 checks failed, first ttnn.matmul %5 .*pcc 0.9312.*npz"):
        read_goldens(tmp_path / "report.jsonl")


@pytest.mark.parametrize(
    "name, data",
    [
        ("x.pkl", b"x"),
        ("x.jsonl", b"{"),
        ("x.jsonl", b"[1]"),
        ("x.jsonl", b'{"op": "a"}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op": "b", "pcc": 0.9}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"opname": "b", "golden": [2]}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op": "b", "device": "wormhole"}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op": "b", "Golden": [2]}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{}'),
        ("x.jsonl", b'{"op": "a", "payload": {}}'),
        ("x.jsonl", b'{"op": "a", "payload": {"status": [1], "pcc": "x", "mode": {}}}'),
        ("x.jsonl", b'{"op":"a","golden":["x"]}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op":"a","golden":[2]}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op":"b","vals":[2]}'),
        ("x.jsonl", b'{"op":"a","golden":[1]}\n{"op":"b","payload":{"status":"failed"}}'),
        ("x.jsonl", b'{"op":"a","golden":[1,2],"shape":[3]}'),
        ("x.jsonl", b'{"op":"a","golden":[1,2],"shape":"2x1"}'),
        ("x.jsonl", b'{"op":"a","golden":[1,2],"shape":[2.0]}'),
        ("x.jsonl", b'{"op":"a","golden":[],"shape":[4294967296, 4294967296]}'),
        ("x.jsonl", b'{"op":"a","golden":[1],"golden":[2]}'),
        ("x.jsonl", b'{"op":"a","golden":[1.5, true]}'),
        ("x.jsonl", b'{"op":"a","golden":[[1, 2], [false, 3]]}'),
        ("x.safetensors", b"123"),
        ("x.safetensors", struct.pack("<Q", 1 << 60) + b"{}"),
        ("x.safetensors", struct.pack("<Q", 2) + b"[]"),
        ("x.safetensors", safetensors(np.zeros(2), data_offsets=[0, 1 << 40])),
        ("x.safetensors", safetensors(np.zeros(2), dtype="X")),
        ("x.safetensors", safetensors(np.zeros(2), shape=[5])),
        ("x.safetensors", safetensors(np.zeros(2), shape="2")),
        ("x.safetensors", safetensors(np.zeros(2), shape=[2.5])),
        ("x.safetensors", safetensors(np.zeros(2), shape=[float("inf")])),
        ("x.npz", b"no zip"),
        ("x.npz", archive(np.array([1 + 2j]))),
        ("x.npz", archive(np.array(["1"]))),
    ],
)
def test_bad_files_of_values_are_refused(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError):
        read_goldens(tmp_path / name)


def test_what_it_is_not_for_is_refused() -> None:
    module, inputs = make("mlp")
    with pytest.raises(InputError, match="golden or device"):
        Session(module, inputs, "n150").find_error(mode="exact")
    training = Session.for_training(
        nn.Linear(32, 32), torch.randn(2, 32), nn.MSELoss(), torch.randn(2, 32), device="n150"
    )
    with pytest.raises(InputError, match="inference"):
        training.find_error()


def test_measures_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal(500)
    b = a + 0.01 * rng.standard_normal(500)
    found = measure_error("x", a, b)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(a), rel=1e-6)
    assert found.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-6)
    assert found.pcc == pytest.approx(np.corrcoef(a, b)[0, 1], rel=1e-6)
    assert found.ulps == pytest.approx(found.max_abs / np.spacing(np.float32(np.abs(a).max())), rel=1e-6)
    flat = measure_error("x", np.full(9, 3.0), np.full(9, 3.0) + 1e-3 * rng.standard_normal(9))
    assert flat.constant and flat.pcc == 1.0
    lost = measure_error("x", np.array([1.0, np.inf]), np.array([1.0, 2.0]))
    assert lost.pcc == 0 and not np.isfinite(lost.relative_l2)
    assert measure_error("x", np.zeros(4), np.zeros(4)).relative_l2 == 0
    with pytest.raises(ValueError, match="against"):
        measure_error("x", a, a[1:])


def make_report() -> ErrorReport:
    return Session(*make("mlp"), "n150", cache=False).find_error()


def test_the_command_says_it_and_its_exit_code_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.py"
    model.write_text("from tests.faults.models import make\n\n\ndef mlp():\n    return make('mlp')\n")
    assert main(["bisect", f"{model}:mlp", "--device", "n150"]) == 0
    said = capsys.readouterr().out
    assert "right everywhere" in said
    assert said.splitlines()[1].split() == ["op", "own", "accumulated", "pcc", "largest", "ulps"]
    worst = max(make_report().ops, key=lambda o: o.isolated.relative_l2)
    assert f"{worst.accumulated.max_abs:.3g}" in said and f"{worst.accumulated.ulps:.2g}" in said
    assert "costs 0 of" not in said
    (tmp_path / "g.jsonl").write_text('{"op": "0.matmul", "golden": ' + json.dumps([7.0] * 256 * 384) + "}\n")
    assert main(["bisect", f"{model}:mlp", "--device", "n150", "--goldens", str(tmp_path / "g.jsonl")]) == 1
    assert "first wrong at `traced`" in capsys.readouterr().out
