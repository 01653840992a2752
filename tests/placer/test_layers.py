"""Cuts that repeat from layer to layer, against all cuts of small schedules written out."""

import itertools

import numpy as np
import pytest

from tbuda_lab.core.placer.policies.layers import (
    Costs,
    Layers,
    cheapest_path,
    equal_layers,
    repeated_path,
    whole_layers,
)


def cuts(first: int, last: int) -> list[list[tuple[int, int]]]:
    """All ways to cut ops [first, last) into runs."""
    inner = range(first + 1, last)
    ways = []
    for count in range(len(inner) + 1):
        for chosen in itertools.combinations(inner, count):
            ways.append(list(itertools.pairwise((first, *chosen, last))))
    return ways if last > first else [[]]


def random_costs(rng: np.random.Generator, layers: Layers, ops: int, longest: int) -> Costs:
    """Costs of runs, those of equal layers alike; some runs are missing."""
    known: dict[tuple[int, int], float] = {}
    costs = []
    for first in range(ops):
        lasts = [last for last in range(first + 1, min(ops, first + longest) + 1)]
        cycles = []
        for last in lasts:
            inside = layers.first <= first and last <= layers.last
            key = ((first - layers.first) % layers.period, last - first) if inside else (-1 - first, last)
            missing = last - first > 1 and rng.random() < 0.2
            known.setdefault(key, float("inf") if missing else float(rng.integers(1, 20) + 6 * (last - first)))
            cycles.append(known[key])
        finite = np.isfinite(cycles)
        costs.append((np.array(lasts)[finite], np.array(cycles)[finite]))
    return costs


def cost_of(costs: Costs, path: list[tuple[int, int]]) -> float:
    by_run = [dict(zip(lasts.tolist(), cycles.tolist(), strict=True)) for lasts, cycles in costs]
    return sum(by_run[first].get(last, float("inf")) for first, last in path)


def least(costs: Costs, first: int, last: int) -> float:
    return min((cost_of(costs, path) for path in cuts(first, last)), default=0.0)


@pytest.mark.parametrize("seed", range(6))
def test_the_repeated_path_is_the_cheapest_of_all_that_repeat(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = Layers(3, int(rng.integers(0, 3)), 0)
    layers = Layers(3, layers.first, layers.first + 10)
    ops = layers.last + int(rng.integers(0, 3))
    costs = random_costs(rng, layers, ops, 4)
    expected = float("inf")
    for together in (1, 2):
        span = together * layers.period
        for start in range(layers.first, layers.first + layers.period):
            copies = (layers.last - start) // span
            if copies:
                end = start + copies * span
                middle = copies * least(costs, start, start + span)
                expected = min(expected, least(costs, 0, start) + middle + least(costs, end, ops))
    path, cost = repeated_path(costs, (layers,))
    assert cost == pytest.approx(expected)
    assert cost_of(costs, path) == pytest.approx(cost)
    assert [first for first, _ in path] == [0, *(last for _, last in path[:-1])]
    assert path[-1][1] == ops
    free, lowest = cheapest_path(costs)
    assert lowest == pytest.approx(least(costs, 0, ops))
    assert cost_of(costs, free) == pytest.approx(lowest)


@pytest.mark.parametrize("seed", range(4))
def test_several_stretches_repeat_as_far_as_the_cost_allows(seed: int) -> None:
    """Two stretches with an op between: both repeat, the cheaper one alone, or none."""
    rng = np.random.default_rng(seed)
    one, two = Layers(2, 0, 6), Layers(3, 7, 13)
    first, second = random_costs(rng, one, 7, 3), random_costs(rng, Layers(3, 0, 6), 6, 3)
    costs = [*first, *((lasts + 7, cycles) for lasts, cycles in second)]
    alone = [repeated_path(costs, (layers,))[1] for layers in (one, two)]
    free = cheapest_path(costs)[1]
    path, cost = repeated_path(costs, (one, two))
    assert cost_of(costs, path) == pytest.approx(cost)
    assert cost == pytest.approx(alone[0] + alone[1] - free)  # no run crosses both
    assert [begin for begin, _ in path] == [0, *(last for _, last in path[:-1])] and path[-1][1] == 13
    least = min(alone)
    allowed = repeated_path(costs, (one, two), least)[1]
    assert allowed == pytest.approx(least)  # what the cheaper one costs leaves nothing for the other
    if least > free:
        assert repeated_path(costs, (one, two), free) == ([], np.inf)


def test_each_part_of_a_schedule_has_its_own_layers() -> None:
    """Forward, then backward with other layers, and updates of two kinds of weights one after the other."""
    forward, backward, updates = [1, *[2, 3] * 6], [*[4, 5, 6] * 6, 7], [*[8, 9] * 7, *[10, 11, 12, 13] * 6]
    kinds = [*forward, *backward, *updates]
    parts = (0, len(forward), len(forward) + len(backward))
    assert equal_layers(kinds, parts) == (Layers(2, 1, 13), Layers(3, 13, 31), Layers(2, 32, 46), Layers(4, 46, 70))
    assert equal_layers(kinds) == ()


def test_layers_are_found_where_they_repeat_often_enough() -> None:
    layer = [5, 6, 6, 7]
    assert equal_layers([1, 2, *layer * 6, 9]) == (Layers(4, 2, 26),)
    assert equal_layers([1, 2, *layer * 6, 5, 6, 9]) == (Layers(4, 2, 28),)
    assert equal_layers([1, 2, *layer * 5, 9]) == ()  # too few
    assert equal_layers([*range(30), *layer * 6]) == ()  # less than half of the ops
    assert equal_layers([]) == ()
    assert equal_layers([3] * 40) == (Layers(2, 0, 40),)


def test_no_path_where_some_ops_are_in_no_run() -> None:
    costs = [(np.array([at + 1]), np.array([1.0])) for at in range(12)]
    costs[5] = (np.zeros(0, np.int64), np.zeros(0))
    assert repeated_path(costs, (Layers(2, 0, 12),)) == ([], np.inf)
    assert cheapest_path(costs)[0] == []


@pytest.mark.parametrize(
    ("lengths", "whole"),
    [
        ([3, 4, 6, 4, 6, 4, 6, 4, 6, 7], range(1, 9)),  # of layers of ten ops, cut in two
        ([3, 4, 6, 4, 6, 4, 6, 4, 9, 4], range(1, 7)),  # an odd epoch ends them
        ([3, 5, 5, 10, 10, 10, 7], range(3, 6)),
        ([3, 4, 7, 4, 8, 4, 9, 4, 5, 2], range(0)),  # no layer is of repeated epochs alone
        ([23, 10, 10, 10, 7], range(0)),  # less than half
    ],
)
def test_whole_layers_are_those_of_repeated_epochs(lengths: list[int], whole: range) -> None:
    ends = np.cumsum([0, *lengths]).tolist()
    path = list(itertools.pairwise(ends))
    layers = Layers(10, 3, 43 if lengths[0] == 3 else 70)
    assert whole_layers(path, lengths, layers) == [path[at] for at in whole]
