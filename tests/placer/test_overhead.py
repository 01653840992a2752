"""What an epoch costs beside its slowest op: switch + fill + B x limiter, over the batch B."""

from __future__ import annotations

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.chip_stages import epoch_cost, longest_chains
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment
from tests.placer.graphs import encoder, placed_as_chosen


def problem_with(options: CompileOptions) -> Problem:
    graph, device = encoder(2), load_device("wormhole_b0")
    order = schedule(graph, options.scheduler_policy)
    return Problem.of(graph, op_models(graph, device, options), device, options, order)


def chain(problem: Problem, first: int, last: int) -> int:
    """The longest path inside a run, by walking every path."""

    def down(op: int) -> int:
        return 1 + max((down(r) for r, _ in problem.facts[op].readers if first <= r < last), default=0)

    return max(down(op) for op in range(first, last))


@pytest.mark.parametrize(("batch", "switch", "fill"), [(1, 20_000, 0), (4, 1_000, 300), (64, 0, 7)])
def test_an_epoch_costs_its_limiter_and_its_part_of_switch_and_fill(batch: int, switch: int, fill: int) -> None:
    problem = problem_with(CompileOptions(microbatch=batch, epoch_switch_cycles=switch, epoch_fill_cycles=fill))
    for first, last in ((0, 1), (0, 7), (3, 15), (5, len(problem.order))):
        deepest = chain(problem, first, last)
        assert longest_chains(problem, first, last)[-1] == deepest
        of_batch = switch + fill * deepest + batch * 12_345
        assert epoch_cost(problem, Segment(first, last, (), (), 9, 12_345)) == pytest.approx(of_batch / batch)


def test_dear_epochs_are_fewer() -> None:
    graph, device, counts = encoder(2), load_device("wormhole_b0"), []
    for switch in (0, 20_000, 10_000_000):
        options = CompileOptions(epoch_switch_cycles=switch)
        counts.append(len(placed_as_chosen(graph, device, options).epochs))
    assert counts[0] >= counts[1] >= counts[2] == 1 < counts[0]
