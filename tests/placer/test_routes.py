"""Emitted netlists as a router sees them: no core has more streams, phases or DRAM buffers than there are."""

from __future__ import annotations

import functools
import itertools
import math
import random

import pytest
import torch
import yaml

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.netlist import check, dumps, loads
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.placer.router import DRAM_IN, uses

POLICIES = ("Optimal", "Ribbon", "NLP", "CNN", "MinimizeGrid", "MaximizeTMinimizeGrid", "Random", "SingleOpPerEpoch")


class Attention(torch.nn.Module):
    """Masked attention on a sequence of `n` tiles."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width) for _ in range(4))
        self.heads, self.norm = heads, torch.nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + mask, -1)
        return self.norm(x + self.o((weights @ v).transpose(1, 2).reshape(b, t, d)))


def compiled(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], device: str, **options: object) -> CompileResult:
    torch.manual_seed(0)
    graph = from_torch(model.eval(), inputs, name="m")
    return compile_graph(graph, device, CompileOptions(**{"objective": "throughput", **options}))  # type: ignore[arg-type]


@functools.cache
def attention(width: int, heads: int, rows: int, causal: bool = False) -> Graph:
    """Traced once for all policies."""
    torch.manual_seed(0)
    mask = torch.triu(torch.full((rows, rows), -1e4), 1) if causal else torch.zeros(rows, rows)
    return from_torch(Attention(width, heads).eval(), (torch.randn(1, rows, width), mask[None, None]), name="m")


def placed(graph: Graph, device: str, **options: object) -> CompileResult:
    return compile_graph(graph, device, CompileOptions(**{"objective": "throughput", **options}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "device"), list(zip(POLICIES, itertools.cycle(("grayskull", "wormhole_b0")))))
def test_every_policy_keeps_within_the_streams(policy: str, device: str) -> None:
    result = placed(attention(192, 3, 160, causal=True), device, balancer_policy=policy)
    matches = uses(dumps(result.netlist))
    assert {name: use.faults() for name, use in matches.items() if use.faults()} == {}
    assert max(use.fan_out for use in matches.values()) > 0


@pytest.mark.parametrize("seed", range(2))
def test_any_sizes_around_stacks_go_together(seed: int) -> None:
    """Each op of an attention of 3 heads gets a random one of its grids: edges that no layout of both ends makes legal
    get a queue between. Read back from text, the netlist breaks no rule of the router."""
    device = ("grayskull", "wormhole_b0")[seed % 2]
    graph, draw = attention(192, 3, 160), random.Random(seed)
    plain = placed(graph, device, enable_auto_fusing=False)
    sizes = {}
    for name, model in op_models(plain.lowered, plain.device, plain.options).items():
        row = model.rows[draw.choice(model.legal())]
        sizes[name] = int(row["grid_r"]), int(row["grid_c"])
    overrides = tuple(Override("op_size", name, size) for name, size in sizes.items() if not name.startswith("buffer_"))
    result = compile_graph(graph, device, plain.options, overrides)
    got = {o.target: result.placement.ops[str(o.target)].size for o in overrides}
    assert got == {o.target: o.value for o in overrides}
    assert not [f for f in check(loads(dumps(result.netlist)), device, "strict") if f.severity == "error"]


@pytest.mark.parametrize(("width", "heads", "seed"), [(128, 2, 0), (256, 4, 3)])
def test_streams_that_go_back_are_counted_whole(width: int, heads: int, seed: int) -> None:
    """Slices of a streamed softmax that matmuls read out of order: 1,024 and 1,056 phases at a producer, of 862."""
    result = placed(attention(width, heads, 512), "wormhole_b0", balancer_policy="Random", seed=seed)
    assert {name: use.faults() for name, use in uses(dumps(result.netlist)).items() if use.faults()} == {}


def test_an_op_that_would_read_too_many_buffers_gets_narrower_writers() -> None:
    """Every op alone and as large as it gets: the context matmul would read 72 buffers of the values and 12 or more of
    the weights. Its writers are placed anew with fewer cores, and the others stay as large as they can be."""
    result = placed(attention(384, 6, 384), "grayskull", balancer_policy="SingleOpPerEpoch")
    assert len(result.placement.epochs) == len(result.placement.ops)
    reads = uses(dumps(result.netlist))
    most = max(use.dram_in for use in reads.values())
    assert 12 < most <= DRAM_IN - 1
    cores = {name: spot.size[0] * spot.size[1] for name, spot in result.placement.ops.items()}
    queries = next(n for n in cores if n.startswith("q."))
    assert cores[queries] == 72  # 12x12 tiles: 6 of 10 rows and 12 columns divide them


class Joins(torch.nn.Module):
    """A linear layer of six activations side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(6 * 256, 64, bias=False)

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.cat([torch.tanh(v) for v in x], -1))


@pytest.mark.parametrize("policy", ["Ribbon", "NLP", "MinimizeGrid"])
def test_writers_in_the_first_epoch_get_narrower(policy: str) -> None:
    """The six activations fill the first epoch; the concatenation alone reads too many of their buffers."""
    graph = from_torch(Joins().eval(), tuple(torch.rand(1, 224, 256) for _ in range(6)))
    options = CompileOptions(balancer_policy=policy, enable_auto_fusing=False)
    result = compile_graph(graph, "grayskull", options, (Override("epoch_break", "concatenate"),))
    assert max(use.dram_in for use in uses(dumps(result.netlist)).values()) <= DRAM_IN - 1
    assert len(result.placement.epochs) >= 2


@pytest.mark.parametrize("policy", ["Ribbon", "NLP", "MinimizeGrid", "SingleOpPerEpoch"])
def test_epochs_say_why_the_next_op_did_not_join(policy: str) -> None:
    """Policies that fill epochs in order compare no costs: an epoch ends where an edge or the grid refuses an op."""
    result = placed(attention(384, 6, 384), "n150", balancer_policy=policy, target_cycles=3000)
    report = result.placement.report
    assert report is not None
    for epoch, cost in zip(result.placement.epochs, report.epochs, strict=True):
        if epoch.index == len(report.epochs) - 1:
            assert cost.end_reason == ""
        elif "free cores" in cost.end_reason:
            used = sum(math.prod(result.placement.ops[name].size) for name in epoch.ops)
            assert f"among {72 - used} free cores" in cost.end_reason
        else:
            assert "->" in cost.end_reason or "epoch of its own" in cost.end_reason or "goes with" in cost.end_reason
    assert len(report.epochs) > 1 or policy == "MinimizeGrid"


def test_a_queue_takes_one_of_the_output_streams() -> None:
    """One core that feeds 16 has no stream left for the queue that the cosine's epoch reads; one that feeds 8 has."""

    class Fan(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.exp(x)
            return torch.sin(y) * torch.cos(y)

    graph = from_torch(Fan().eval(), (torch.randn(1, 128, 128),), name="m")
    options = CompileOptions(enable_auto_fusing=False, enable_fork_join_buffering=False)
    for size, together in (((4, 4), False), ((4, 2), True)):
        sizes = Override("op_size", "exp", (1, 1)), Override("op_size", "sine", size)
        result = compile_graph(graph, "wormhole_b0", options, (*sizes, Override("epoch_break", "cosine")))
        matches = uses(dumps(result.netlist))
        assert {name: use.faults() for name, use in matches.items() if use.faults()} == {}
        assert (result.placement.ops["exp"].epoch == result.placement.ops["sine"].epoch) is together
        assert matches["exp"].fan_out == (8 + 1 if together else 1)


@pytest.mark.parametrize(
    ("device", "df", "accumulate"),
    [
        ("grayskull", DataFormat.Float16, DataFormat.Float32),
        ("grayskull", DataFormat.Bfp8, DataFormat.Float16_b),
        ("grayskull", DataFormat.Float16_b, DataFormat.Float16),
        ("grayskull", DataFormat.Float32, None),
        ("wormhole_b0", DataFormat.Float16, DataFormat.Float32),
    ],
)
def test_what_ops_accumulate_in_goes_with_their_operands(
    device: str, df: DataFormat, accumulate: DataFormat | None
) -> None:
    """Whatever is asked for: no wide sums on grayskull, where spills have the exponent of the result, and no wide
    maximum of 5-bit exponents anywhere (netlist-format.md#op-rules)."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Softmax(-1))
    result = compiled(
        model, (torch.randn(1, 32, 64),), device, default_df_override=df, default_accumulate_df=accumulate
    )
    short = {"Float16", "Bfp8", "Bfp4", "Bfp2"}
    netlist = yaml.safe_load(dumps(result.netlist))
    ops = [op for graph in netlist["graphs"].values() for op in graph.values() if isinstance(op, dict)]
    assert any(op["type"] == "reduce" for op in ops) and any(op["type"] == "matmul" for op in ops)
    for op in ops:
        if op["type"] == "reduce" and op["acc_df"] == "Float32":
            assert not short & set(op["in_df"])
        if device == "grayskull":
            assert op["acc_df"] != "Float32"
            assert (op["intermed_df"] in short) == (op["out_df"] in short)
