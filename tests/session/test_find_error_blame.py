"""Right models that look wrong, and faults that show only at a later op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import tbuda_lab.core.compiler.pipeline as pipeline
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

X, MASK = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)), torch.arange(256).reshape(4, 64) % 3 == 0
LOWEST = torch.finfo(torch.float32).min


def layered(f: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Session:
    """A session of a function of a linear layer's result, which the module calls `l`."""
    torch.manual_seed(0)
    module = nn.Module()
    module.l = nn.Linear(64, 64)
    fn = Fn(lambda *args: f(module.l(args[0]), *args[1:]))
    fn.l = module.l
    return Session(fn.eval(), inputs, "n150", CompileOptions(**options), name="blame", cache=False)


@pytest.mark.parametrize(
    "f, inputs",
    [
        (lambda y, mask: torch.relu(y), (X, torch.ones(4, 64))),
        (lambda y, mask: y.softmax(-1), (X, MASK)),
        (lambda y, ids: y.argmax(-1), (X, torch.arange(4))),
        (lambda y, mask, other: torch.where(mask, y, -y), (X, MASK, X)),
        (lambda y, mask: y.masked_fill(mask, float("-inf")), (X, MASK)),
        (lambda y, mask: y.masked_fill(mask, float("inf")), (X, MASK)),
        (lambda y, mask: y.masked_fill(mask, LOWEST), (X, MASK)),
        (lambda y, mask: y.masked_fill(mask, -1e30), (X, MASK)),
        (lambda y, mask: torch.where(mask, y, torch.tensor(float("-inf"))).exp(), (X, MASK)),
        (lambda y, mask: y.masked_fill(mask, float("-inf")).softmax(-1), (X, MASK)),
    ],
    ids=["relu", "softmax", "argmax", "where", "-inf", "inf", "finfo.min", "-1e30", "exp of -inf", "softmax of -inf"],
)
@pytest.mark.parametrize("mode", ["golden", "device"])
def test_unread_arguments_and_masks_that_reach_the_output_are_no_faults(
    f: Callable[..., Any], inputs: tuple[torch.Tensor, ...], mode: str
) -> None:
    report = layered(f, *inputs).find_error(mode=mode)
    assert report.right, report


@pytest.mark.parametrize("df", [DataFormat.Bfp4_b, DataFormat.Bfp2_b, DataFormat.Bfp8_b])
@pytest.mark.parametrize("bias", [1.0, 4.0, 0.7])
def test_numbers_just_below_a_power_of_two_cost_what_a_small_block_makes_of_them(df: DataFormat, bias: float) -> None:
    session = layered(lambda y: y, X, default_df_override=df)
    with torch.no_grad():
        session.model.l.weight.mul_(1e-3)
        session.model.l.bias.fill_(bias)
    report = session.find_error(min_pcc=0.1)
    assert report.right or f"{df.name} costs" in report.reason, report


SIZES: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], str, dict[str, int]]] = [
    ("one column fewer", lambda y: torch.cat([-y[:, 32:], y[:, :32]], -1) * torch.cos(y), "index", {"start": 1}),
    ("a stride", lambda y: torch.cat([y[:, :32], y[:, 32:]], -1) + y, "index", {"stride": 2}),
]


@pytest.mark.parametrize("f, kind, change", [row[1:] for row in SIZES], ids=[row[0] for row in SIZES])
def test_a_pass_that_changes_a_size_is_named_and_not_what_reads_it(
    f: Callable[[torch.Tensor], torch.Tensor], kind: str, change: dict[str, int]
) -> None:
    planted: list[str] = []
    run = pipeline.passes.run

    def broken(*args: Any, **options: Any) -> Any:
        done = run(*args, **options)
        node = next(n for n in done.graph.ops if n.op.type == kind and n.op.start == 0)
        node.op = dataclasses.replace(node.op, **change)
        planted.append(node.name)
        return done

    session = layered(f, X)
    with mock.patch.object(pipeline.passes, "run", broken):
        session.compile()
    report = session.find_error()
    assert (report.stage, report.op) == ("passed", planted[0]), report
    assert "its value is of shape" in report.reason


@pytest.mark.parametrize("activation", ["tanh", "abs", "gelu"])
def test_an_activation_that_the_model_does_not_have_is_named(activation: str) -> None:
    lower = pipeline.lower

    def broken(*args: Any, **options: Any) -> Any:
        graph = lower(*args, **options)
        graph["0.matmul"].op = dataclasses.replace(graph["0.matmul"].op, sfpu_op=activation)
        return graph

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64))
    session = Session(module.eval(), (X,), "n150", name="blame", cache=False)
    with mock.patch.object(pipeline, "lower", broken):
        session.compile()
    report = session.find_error()
    assert (report.stage, report.op, report.nodes) == ("lowered", "0.matmul", ("0.matmul",)), report


def test_a_fidelity_that_costs_most_is_named_with_the_one_to_give() -> None:
    session = layered(lambda y: y, X, default_df_override=DataFormat.Float32, default_math_fidelity=MathFidelity.LoFi)
    report = session.find_error(mode="device", min_pcc=0.9999999)
    assert report.costs[0].df == "LoFi" and report.costs[0].instead.startswith("HiFi"), report
    best = layered(lambda y: y, X, default_df_override=DataFormat.Float32, default_math_fidelity=MathFidelity.HiFi4)
    assert "LoFi" not in str(best.find_error(mode="device"))


def test_no_format_costs_more_than_the_whole_where_an_output_is_an_index() -> None:
    session = layered(lambda y: (y.softmax(-1), y.argmax(-1)), X, default_df_override=DataFormat.Bfp8_b)
    report = session.find_error(mode="device")
    assert report.right and 0 < report.costs[0].share <= 2 * report.error, report
