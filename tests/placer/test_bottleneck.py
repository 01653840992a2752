"""Why the slowest op of an epoch is not on more cores, and why a shape is refused: against every candidate there is."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tbuda_lab.core.balancer.bandwidth import limits, spoken
from tbuda_lab.core.balancer.models import MEANING, REMEDY
from tbuda_lab.core.balancer.types import Placement, Reason
from tbuda_lab.core.device import load_device
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import why, why_not
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import measure, place_rows
from tests.placer.graphs import convolutions, encoder, placed_as_chosen

CASES = [
    (*case, small)
    for case in (("encoder", "wormhole_b0", 1), ("encoder", "grayskull", 64), ("conv", "wormhole_b0", 64))
    for small in (False, True)
]


def placed(kind: str, device: str, batch: int, small: bool) -> tuple[Graph, Placement, CompileOptions]:
    graph = encoder(2) if kind == "encoder" else convolutions(32, 64, 2)
    spec, options = load_device(device), CompileOptions(microbatch=batch)
    op = "l0.up" if kind == "encoder" else next(n.name for n in graph.ops)
    chosen = (Override("op_size", op, (1, 1)),) if small else ()
    return graph, placed_as_chosen(graph, spec, options, chosen), options


@pytest.mark.parametrize(("kind", "device", "batch", "small"), CASES)
def test_the_reason_against_more_cores_is_true(kind: str, device: str, batch: int, small: bool) -> None:
    graph, p, options = placed(kind, device, batch, small)
    spec = load_device(device)
    problem = Problem.of(graph, p.models, spec, options, p.schedule)
    assert p.report is not None
    at = 0
    for epoch, message in zip(p.epochs, p.report.epochs, strict=True):
        first, last = at, at + len(epoch.ops)
        at = last
        rows = {first + i: p.ops[n].row for i, n in enumerate(epoch.ops)}
        _, limiter, load = measure(problem, first, last, rows)
        assert limiter == message.limiter_cycles
        op = problem.number[message.limiter_op]
        where, output = problem.places(op, first, last)
        table = p.models[message.limiter_op]
        cycles = limits(table.profile, table.rows, spec, where, output, load, batch).max(axis=0)
        legal = table.rows["reason"] == Reason.LEGAL
        faster = np.flatnonzero(legal & (cycles < cycles[rows[op]]))
        own = int(table.rows["cores"][rows[op]])
        free = spec.rows * spec.cols - sum(int(np.prod(p.ops[n].size)) for n in epoch.ops)
        text = message.no_larger
        overridden = "none of the candidates that its override leaves"
        assert not text.startswith(overridden) or (small and message.limiter_op == "l0.up") or kind == "conv"
        if text.startswith(("no legal candidate", overridden)):
            assert not len(faster)
        elif match := re.match(r"the next faster candidate takes (\d+) cores more, (\d+) are free", text):
            assert int(match[2]) == free
            assert int(match[1]) == int(table.rows["cores"][faster].min()) - own > free
        else:
            fitting = [int(r) for r in faster if table.rows["cores"][r] <= own + free]
            assert fitting
            book = EdgeCompatibility(problem, first, last, {})
            book.rows = {o: r for o, r in rows.items() if o != op}
            legal_edges = [r for r in fitting if book.check(op, r)]
            better = [
                r
                for r in legal_edges
                if (s := place_rows(problem, first, last, {**rows, op: r})) is not None and s.limiter_cycles < limiter
            ]
            assert text.startswith("legal: ") == bool(better) or len(fitting) > 24
        answer = why(p, message.limiter_op, spec.rows * spec.cols)
        assert answer.blocks_epoch and text in answer.text


def test_a_policy_that_gives_few_cores_is_said_to_have_chosen_so() -> None:
    """Not an edge that forbids ways to stream on the same cores: larger grids are legal."""
    spec, options = load_device("wormhole_b0"), CompileOptions(balancer_policy="MinimizeGrid")
    graph = encoder(1)
    p = placed_as_chosen(graph, spec, options)
    assert p.report is not None
    problem = Problem.of(graph, p.models, spec, options, p.schedule)
    at, said = 0, 0
    for epoch, message in zip(p.epochs, p.report.epochs, strict=True):
        first, last, at = at, at + len(epoch.ops), at + len(epoch.ops)
        if match := re.match(r"legal: (\d+)x(\d+) would make the epoch faster$", message.no_larger):
            said += 1
            op, grid = problem.number[message.limiter_op], (int(match[1]), int(match[2]))
            table = p.models[message.limiter_op].rows
            rows = {first + i: p.ops[n].row for i, n in enumerate(epoch.ops)}
            ways = np.flatnonzero(
                (table["reason"] == Reason.LEGAL) & (table["grid_r"] == grid[0]) & (table["grid_c"] == grid[1])
            )
            better = [
                s
                for r in ways.tolist()
                if (s := place_rows(problem, first, last, {**rows, op: r})) is not None
                and s.limiter_cycles < message.limiter_cycles
            ]
            assert better
            text = why(p, message.limiter_op, spec.rows * spec.cols).text
            assert f"{match[0]}; the policy MinimizeGrid chose otherwise" in text and "not on more cores" not in text
    assert said


@pytest.mark.parametrize("op", ["l0.score", "l0.max", "l0.up"])
def test_every_shape_has_its_reason_id_text_and_remedy(op: str) -> None:
    graph, device, options = encoder(1, 96, 160, 5), load_device("wormhole_b0"), CompileOptions()
    p = placed_as_chosen(graph, device, options)
    rows = p.models[op].rows
    _, rt, ct = p.models[op].profile.out  # type: ignore[union-attr]
    for r in range(1, device.rows + 3):
        for c in range(1, device.cols + 3):
            result = why_not(p, op, (r, c), device)
            mine = rows[(rows["grid_r"] == r) & (rows["grid_c"] == c)]["reason"]
            if r > device.rows or c > device.cols:
                assert result.reason is Reason.GRID_EXCEEDS_DEVICE
            elif rt % r or ct % c:
                assert result.reason is Reason.GRID_DOES_NOT_DIVIDE
                assert str(rt) in result.fix and str(ct) in result.fix
            elif (mine == Reason.LEGAL).any():
                assert result.reason is Reason.LEGAL and not result.fix
            else:
                assert result.reason in {Reason(int(x)) for x in mine}
            assert result.text.startswith(MEANING[result.reason])
            assert set(MEANING) == set(REMEDY) | {Reason.LEGAL} == set(Reason)


@pytest.mark.parametrize(
    ("limiter", "text"),
    [
        ("kernel", "kernel"),
        ("input 1 dram", "DRAM reads (input 1)"),
        ("input 0 noc", "NoC reads (input 0)"),
        ("output host", "host link writes (output)"),
        ("picker dram", "DRAM reads (picker)"),
        ("output noc", "NoC writes (output)"),
    ],
)
def test_what_limits_an_op_is_said_in_words(limiter: str, text: str) -> None:
    assert spoken(limiter) == text
