"""Placements checked from outside: order, rectangles, edges, queues, overrides, and the optimum on small
cases."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.balancer import op_models, profile
from tbuda_lab.core.balancer.blocks import read_order, ublock_orders
from tbuda_lab.core.balancer.edges import MAX_FAN_OUT_STREAMS, EdgeReason, pipe, stream_verdict
from tbuda_lab.core.balancer.types import Placement, Reason
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import OverrideError, PlacementError
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwSparseMatmul, HwUnary, tile_shape
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import legal_grids, why
from tbuda_lab.core.placer.model.chip_stages import SWITCH_CYCLES
from tbuda_lab.core.placer.model.grid import Item, pack
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule, sparse_pairs
from tbuda_lab.core.placer.model.segment import measure
from tbuda_lab.core.session import Session
from tests import pairs
from tests.placer.graphs import Sketch, convolutions, encoder, placed_as_chosen

GRAPHS = {"encoder": lambda: encoder(2), "convolutions": lambda: convolutions(32, 64, 3)}
DEVICES = ["grayskull", "wormhole_b0", "blackhole", "n150"]


def placed(graph: Graph, device: DeviceSpec, overrides: tuple[Override, ...] = (), **options: object) -> Placement:
    o = CompileOptions(**{"objective": "throughput", **options})  # type: ignore[arg-type]
    return placed_as_chosen(graph, device, o, overrides)


def check(graph: Graph, device: DeviceSpec, p: Placement) -> None:
    """Everything a placement promises, one op, edge and queue at a time."""
    orders = ublock_orders(graph)
    users = graph.users()
    assert set(p.ops) == {n.name for n in graph.ops}
    assert [name for e in p.epochs for name in e.ops] == list(p.schedule)
    at = {name: i for i, name in enumerate(p.schedule)}
    for epoch in p.epochs:
        used: set[tuple[int, int]] = set()
        for name in epoch.ops:
            spot, row = p.ops[name], p.candidate(name)
            assert spot.epoch == epoch.index and spot.chip == epoch.chip
            assert row["reason"] == Reason.LEGAL and row["l1_total"] <= device.l1_usable
            grid = (int(row["grid_r"]), int(row["grid_c"]))
            assert spot.size == (grid[::-1] if spot.transposed else grid)
            mine = {(spot.start[0] + r, spot.start[1] + c) for r in range(spot.size[0]) for c in range(spot.size[1])}
            assert not mine & used and all(0 <= r < device.rows and 0 <= c < device.cols for r, c in mine)
            used |= mine
    streams: dict[str, int] = {}
    for node in graph.ops:
        for port, edge in enumerate(node.inputs):
            if edge.source not in p.ops:
                continue
            assert at[edge.source] < at[node.name]
            a, b = p.models[edge.source], p.models[node.name]
            pr, cr = p.candidate(edge.source), p.candidate(node.name)
            same = p.ops[edge.source].epoch == p.ops[node.name].epoch
            if same:
                assert stream_verdict(a.profile, pr, b.profile, port, cr) is EdgeReason.LEGAL
            cost = pipe(
                a.profile,
                pr,
                orders[edge.source],
                b.profile,
                port,
                cr,
                read_order(graph, orders, node.name),
                from_queue=not same,
            )
            assert cost.reason is EdgeReason.LEGAL
            if same:
                streams[edge.source] = streams.get(edge.source, 0) + cost.fan_out
            else:
                assert p.ops[edge.source].epoch < p.ops[node.name].epoch
                assert f"e2e_{edge.source}_0" in p.queues
    assert all(n <= MAX_FAN_OUT_STREAMS for n in streams.values())
    for name in p.ops:
        crosses = any(
            p.ops[u].epoch != p.ops[name].epoch or port in queued_ports(graph[u])
            for u, port in users[name]
            if u in p.ops
        )
        assert crosses == (f"e2e_{name}_0" in p.queues)
    spans: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for q in p.queues.values():
        assert len(q.buffers) == q.grid[0] * q.grid[1]
        tiles = q.t * q.mblock[0] * q.mblock[1] * q.ublock[0] * q.ublock[1]
        if q.layout == "tilized":
            assert q.bytes_per_buffer >= tiles * tile_bytes(q.df) * q.entries + device.queue_header
        if q.kind in ("input", "parameter", "constant"):
            z, rt, ct = tile_shape(graph[q.source].shape)
            assert (q.t, q.grid[0] * q.mblock[0] * q.ublock[0], q.grid[1] * q.mblock[1] * q.ublock[1]) == (z, rt, ct)
        for channel, address in q.buffers:
            chip = q.chip if q.location == "dram" else -1
            spans.setdefault((q.location, chip, channel), []).append((address, address + q.bytes_per_buffer))
    for (location, _, channel), ranges in spans.items():
        ranges.sort()
        assert all(x[1] <= y[0] for x, y in itertools.pairwise(ranges))
        limit = device.dram_end(channel) if location == "dram" else device.sysmem_bytes(channel)
        assert ranges[-1][1] <= limit
        assert location == "host" or ranges[0][0] >= device.dram_start(channel)


@pytest.mark.parametrize(
    ("policy", "device", "name"), pairs(["Optimal", "NLP", "MinimizeGrid", "SingleOpPerEpoch"], DEVICES, GRAPHS)
)
def test_a_placement_keeps_every_rule(name: str, device: str, policy: str) -> None:
    graph, spec = GRAPHS[name](), load_device(device)
    p = placed(graph, spec, balancer_policy=policy)
    check(graph, spec, p)
    assert p.report is not None and p.report.policy == policy
    assert p.report.bounds.achieved_limiter >= p.report.bounds.achieved_kernel
    assert p.report.bounds.achieved_kernel >= p.report.bounds.area
    assert p.report.bounds.achieved_kernel >= p.report.bounds.critical_op
    assert p.report.bounds.achieved_limiter >= p.report.bounds.dram
    if policy == "SingleOpPerEpoch":
        assert len(p.epochs) == len(graph.ops)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=25))
def test_every_schedule_is_topological(sources: list[tuple[int, int]]) -> None:
    s = Sketch()
    names = [s.input("x", 1, 1, 32, 32)]
    for i, (a, b) in enumerate(sources):
        first, second = names[a % len(names)], names[b % len(names)]
        names.append(s.op(f"n{i}", HwBinary("add"), (1, 1, 32, 32), first, second))
    for policy in ("ModuleInputsBFS", "Topological", "LongestPath"):
        order = schedule(s.graph, policy)
        assert sorted(order) == sorted(n.name for n in s.graph.ops)
        at = {n: i for i, n in enumerate(order)}
        assert all(at[e.source] < at[n.name] for n in s.graph.ops for e in n.inputs if e.source in at)


def test_a_picker_stands_directly_before_its_matmul() -> None:
    graph = convolutions(16, 32, 3)
    pairs = sparse_pairs(graph)
    assert len(pairs) == 3
    for policy in ("ModuleInputsBFS", "Topological", "LongestPath"):
        order = schedule(graph, policy)
        assert all(order.index(d) == order.index(s) + 1 for s, d in pairs.items())


def test_unknown_names_of_policies_are_errors() -> None:
    graph, spec = encoder(1), load_device("wormhole_b0")
    with pytest.raises(PlacementError, match="Optimal"):
        placed(graph, spec, balancer_policy="Ribbons")
    with pytest.raises(PlacementError, match="LongestPath"):
        placed(graph, spec, scheduler_policy="Random")


# -- exactness on small cases ----------------------------------------------------------------------------------------
def exact(problem: Problem) -> float:
    """The best sum over epochs by trying every cut, and every shape of every op in every epoch."""
    n = len(problem.order)
    shapes: list[list[int]] = []
    for table in problem.tables:
        rows = table.rows
        best: dict[tuple[object, ...], int] = {}
        for i in table.legal():
            key = tuple(rows[f][i].item() for f in ("grid_r", "grid_c", "stream_r", "stream_c", "buf_size_mb"))
            if key not in best or rows["cycles"][i] < rows["cycles"][best[key]]:
                best[key] = int(i)
        shapes.append([i for key, i in best.items() if key[2:4] == (1, 1)])
    cost: dict[tuple[int, int], float] = {}
    for first in range(n):
        for last in range(first + 1, n + 1):
            cost[first, last] = math.inf
            for rows_ in itertools.product(*shapes[first:last]):
                chosen = dict(zip(range(first, last), rows_, strict=True))
                area = sum(int(problem.tables[o].rows["cores"][r]) for o, r in chosen.items())
                if area > problem.cores:
                    continue
                _, limiter, _ = measure(problem, first, last, chosen)
                if limiter >= cost[first, last]:
                    continue
                items = [
                    Item(int(problem.tables[o].rows["grid_r"][r]), int(problem.tables[o].rows["grid_c"][r]))
                    for o, r in chosen.items()
                ]
                if any(pack(list(p), problem.device.rows, problem.device.cols) for p in itertools.permutations(items)):
                    cost[first, last] = limiter
    best_sum = [0.0] + [math.inf] * n
    for last in range(1, n + 1):
        best_sum[last] = min(best_sum[f] + cost[f, last] + SWITCH_CYCLES for f in range(last))
    return best_sum[n]


def small_chain(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    s = Sketch()
    rows, cols = (int(rng.choice([2, 4])) * 32 for _ in range(2))
    x = s.input("x", 1, 1, rows, cols)
    for i in range(3):
        kind = rng.integers(3)
        if kind == 0:
            wide = int(rng.choice([2, 4])) * 32
            x = s.op(f"n{i}", HwMatmul(), (1, 1, rows, wide), x, s.parameter(f"w{i}", 1, 1, cols, wide))
            cols = wide
        else:
            x = s.op(f"n{i}", HwUnary("exp" if kind == 1 else "gelu"), (1, 1, rows, cols), x)
    return s.output(x)


@pytest.mark.parametrize("seed", range(8))
def test_small_cases_reach_the_optimum(seed: int) -> None:
    """On a device of 2 x 4 cores, streaming off: all cuts and all shapes are tried."""
    graph = small_chain(seed)
    device = dataclasses.replace(load_device("wormhole_b0"), rows=2, cols=4)
    options = CompileOptions(enable_t_streaming=False, objective="throughput")
    models = op_models(graph, device, options)
    p = placed_as_chosen(graph, device, options)
    check(graph, device, p)
    reached = sum(e.limiter_cycles for e in p.report.epochs) + len(p.epochs) * SWITCH_CYCLES
    problem = Problem.of(graph, models, device, options, p.schedule)
    assert reached <= 1.02 * exact(problem)


# -- overrides -------------------------------------------------------------------------------------------------------
def test_pins_breaks_sizes_and_channels_are_obtained() -> None:
    graph, spec = encoder(2), load_device("wormhole_b0")
    overrides = (
        Override("op_size", "l0.up", (2, 8)),
        Override("op_placement", "l0.up", {"start": (4, 0)}),
        Override("op_size", "l1.up", (1, 4)),
        Override("op_placement", "l1.up", {"transpose": True}),
        Override("epoch_break", re.compile(r"l1\.q|l0\.exp")),
        Override("queue_channel", "l0.q.w", {"channel": 2}),
    )
    p = placed(graph, spec, overrides)
    check(graph, spec, p)
    assert p.ops["l0.up"].start == (4, 0) and p.ops["l0.up"].size == (2, 8)
    assert p.ops["l1.up"].transposed and p.ops["l1.up"].size == (4, 1)
    assert {"l1.q", "l0.exp"} <= {e.ops[0] for e in p.epochs}
    assert {c for c, _ in p.queues["l0.q.w"].buffers} == {2}
    assert not [d for d in p.diagnostics if d.rule not in ("fork-join", "stream-reader")]


def test_an_override_of_nothing_warns_and_guesses() -> None:
    p = placed(encoder(1), load_device("wormhole_b0"), (Override("op_size", "l0.upp", (1, 1)),))
    (warning,) = (d for d in p.diagnostics if d.rule not in ("fork-join", "stream-reader"))
    assert warning.severity == "warning" and "'l0.up'" in warning.fix


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (Override("op_placement", "l0.up", {"start": (10, 0)}), "10x8 cores"),
        (Override("op_placement", "l0.up", {"start": "here"}), "(row, column)"),
        (Override("op_placement", "l0.up", {"chip": 3}), "chips: 0"),
        (Override("queue_channel", "l0.q.w", {"channel": 6}), "channels 0 to 5"),
        (Override("queue_channel", "x", {"channel": 1}), "host memory"),
        (Override("op_colour", "l0.up", "red"), "known: op_size"),
    ],
)
def test_impossible_overrides_say_what_is_possible(override: Override, says: str) -> None:
    with pytest.raises(OverrideError) as raised:
        placed(encoder(1), load_device("wormhole_b0"), (override,))
    assert says in str(raised.value)


def test_two_ops_pinned_to_one_place_get_two_epochs() -> None:
    overrides = tuple(Override("op_placement", n, {"start": (0, 0)}) for n in ("l0.q", "l0.k"))
    graph, spec = encoder(1), load_device("wormhole_b0")
    p = placed(graph, spec, overrides)
    check(graph, spec, p)
    assert p.ops["l0.q"].start == p.ops["l0.k"].start == (0, 0)
    assert p.ops["l0.q"].epoch != p.ops["l0.k"].epoch


# -- queues, report, determinism ---------------------------------------------------------------------------------------
def test_sparse_matmuls_get_their_two_queues() -> None:
    p = placed(convolutions(32, 64, 2), load_device("wormhole_b0"))
    for i in range(2):
        grid = (int(p.candidate(f"c{i}.pick")["grid_r"]), 1)
        for kind in ("sparse_tiles", "sparse_encoding"):
            (queue,) = [q for q in p.queues.values() if q.kind == kind and q.source == f"c{i}.pick"]
            assert queue.grid == grid and queue.access == "ram"


def test_inputs_lie_on_the_host_where_the_device_reads_it() -> None:
    graph = encoder(1)
    assert placed(graph, load_device("wormhole_b0")).queues["x"].location == "host"
    assert placed(graph, load_device("grayskull")).queues["x"].location == "dram"
    assert placed(graph, load_device("wormhole_b0"), input_queues_on_host=False).queues["x"].location == "dram"
    out = placed(graph, load_device("grayskull")).queues["out"]
    assert (out.location, out.grid, out.layout) == ("host", (1, 1), "untilized")


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_queues_too_large_for_host_memory_lie_in_dram(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "HOST_QUEUE_BYTES", 100_000)
    model, x, y = torch.nn.ReLU(), torch.randn(1, 64, 64), torch.randn(1, 256, 256)
    large, small = Session(model, [y], arch, name="m"), Session(model, [x], arch, name="m")
    for session, location, value in ((small, "host", x), (large, "dram", y)):
        ((found,),) = session.run()
        assert session.result is not None
        queues = session.result.placement.queues
        assert queues["m.output_0"].location == location
        assert torch.equal(found.double().sign(), value.relu().double().sign())
        assert sum(q.location == location for q in queues.values()) >= (1 if arch == "grayskull" else 2)


def test_why_names_the_limit_and_the_refusals() -> None:
    graph, spec = convolutions(64, 64, 2), load_device("wormhole_b0")
    p = placed(graph, spec)
    for epoch in p.report.epochs:
        answer = why(p, epoch.limiter_op, spec.cores)
        assert answer.blocks_epoch and answer.limiter_cycles == epoch.limiter_cycles
        assert answer.legal + sum(n for _, n, _, _ in answer.refused) == answer.total
        assert epoch.limiter_op in answer.text
    grids = legal_grids(p, "c0.add")
    assert len({(r, c) for r, c, _, _ in grids.tolist()}) == len(grids)


def test_why_names_what_limits_the_epoch_as_well() -> None:
    """Equal ops of equal layers take equally long; the report names one of them."""
    p = placed(encoder(2), load_device("wormhole_b0"))
    tied = {
        op: p.report.epochs[spot.epoch].limiter_op
        for op, spot in p.ops.items()
        if p.report.op_limiters[op][1] == p.report.epochs[spot.epoch].limiter_cycles
    }
    assert {op == limiter for op, limiter in tied.items()} == {True, False}
    for op, limiter in tied.items():
        assert (f"It is the slowest op of the epoch, and so is {limiter}" in why(p, op, 80).text) == (op != limiter)


def test_why_tells_what_an_override_leaves_from_what_is_legal() -> None:
    """The slowest op of one epoch, free and then held to its own grid with everything else that is faster refused."""
    graph, spec = encoder(1), load_device("wormhole_b0")
    free = placed(graph, spec)
    assert free.report is not None
    for op in dict.fromkeys(e.limiter_op for e in free.report.epochs):
        assert "override" not in why(free, op, spec.cores).text
        narrow = placed(graph, spec, (Override("op_size", op, (1, 1)),))
        answer = why(narrow, op, spec.cores)
        assert answer.grid == (1, 1) and all(grid == (1, 1) for grid, _, _ in answer.faster)
        assert "that its override leaves" in answer.text and ("only candidate" in answer.text) == (answer.total == 1)
        assert "no legal candidate" not in answer.text
        if answer.blocks_epoch and not answer.faster:
            assert "none of the candidates that its override leaves" in answer.text


def test_no_op_reads_a_node_that_is_no_leaf_or_op() -> None:
    for make in GRAPHS.values():
        graph = make()
        assert {n.kind for n in graph} <= {NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.OP, NodeKind.OUTPUT}
        assert any(isinstance(n.op, (HwSparseMatmul, HwMatmul)) for n in graph)
