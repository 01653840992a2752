"""The chips of a cluster as stages of a pipeline: every chip takes a run of epochs, and the slowest one sets the pace.

While a chip works on one batch, those before it work on the next ones; so what counts is the largest sum of epoch
cycles over the chips, not the sum over all (placement.md#search). The least bound that some division stays within is
found by bisection; whether one exists for a bound is a shortest path over ops and stages. A link between chips is a
stage of its own: what crosses it may not take longer either.

In which order the chips of a cluster take the stages of a pipeline (placement.md#chips).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, PlacementError, need_known, quantity
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import phases
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import tile_shape
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment

SWITCH_CYCLES = CompileOptions.epoch_switch_cycles
"""Cycles charged per epoch if nothing else is asked for (placement.md#search)."""

_PRECISION = 1e-3
_LINK_SHARE = 0.9
_WINDOW_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which stages epochs may take: by the first op of an epoch in `breaks` a new one begins; an epoch of an op in
    `fixed` is that stage; one of an op in `least` is that stage or a later one. links[op]: cycles per input that a link
    between chips is busy with if a new stage begins with that op (none given: links cost nothing)."""

    stages: int
    breaks: frozenset[int] = frozenset()
    fixed: Mapping[int, int] = dataclasses.field(default_factory=dict)
    least: Mapping[int, int] = dataclasses.field(default_factory=dict)
    links: tuple[float, ...] = ()

    def link(self, op: int) -> float:
        """Cycles of the link before a stage that begins with an op."""
        return self.links[op] if self.links else 0.0

    def span(self, first: int, last: int) -> tuple[int, int] | None:
        """Least and most stage of an epoch of ops [first, last); None when its ops want different ones."""
        low, high = 0, self.stages - 1
        for op in range(first, last):
            low = max(low, self.least.get(op, 0))
        chips = {self.fixed[op] for op in range(first, last) if op in self.fixed}
        if chips:  # what the user asks for goes before what would be better
            return (min(chips), min(chips)) if len(chips) == 1 else None
        return low, high


def rules(problem: Problem) -> Rules:
    """Stages by the user's pins and chip breaks; ops that feed the host need a chip that the host reaches."""
    device = problem.device
    order = stage_order(problem)
    stage = {chip: i for i, chip in enumerate(order)}
    fixed = {problem.number[n]: stage[p.chip] for n, p in problem.pins.items() if p.chip is not None}
    reached = [i for i, chip in enumerate(order) if chip in device.mmio_chips]
    least: dict[int, int] = {}
    if device.arch != "grayskull" and reached:
        first = next(i for i in range(len(order)) if all(j in reached for j in range(i, len(order))))
        least = {op: first for op, fact in enumerate(problem.facts) if fact.host_output}
    breaks = frozenset(problem.number[n] for n in problem.chip_breaks)
    return Rules(len(order), breaks, fixed, least, link_cycles(problem, order))


def link_cycles(problem: Problem, order: Sequence[int]) -> tuple[float, ...]:
    """By op: cycles per input that the links are busy with if a stage begins there. All that was made before it and is
    read later crosses, one hop for every stage, over as many links as the narrowest hop between chips that follow each
    other has. Empty where there are no links (one chip).

    Grayskull chips write into a window of each other's DRAM instead: that costs nothing here, but where a batch and the
    next one do not fit the window no stage may begin (infinite), unless the user breaks there or pins chips.
    """
    device = problem.device
    grayskull = device.arch == "grayskull"
    if len(order) < 2 or not (grayskull or device.links):
        return ()
    if grayskull and any(pin.chip is not None for pin in problem.pins.values()):
        return ()
    rate = 1.0
    if not grayskull:
        widths = [device.neighbours(a).get(b, 0) for a, b in itertools.pairwise(order)]
        rate = device.eth_bytes_per_cycle * max(1, min(widths)) * _LINK_SHARE
    change = np.zeros(len(problem.order) + 1)
    for op, fact in enumerate(problem.facts):
        if fact.readers:
            last = max(r for r, _ in fact.readers)
            size = tensor_bytes(problem.graph, fact.name, problem.options, device)
            change[op + 1] += size
            change[last + 1] -= size
    crossing = np.cumsum(change)[:-1]
    if grayskull:
        low, high = device.p2p_window
        full = 2 * problem.options.microbatch * crossing > _WINDOW_SHARE * (high - low)
        full[[problem.number[n] for n in problem.chip_breaks]] = False
        return tuple(np.where(full, np.inf, 0.0).tolist()) if full.any() else ()
    return tuple((crossing / rate).tolist())


def stage_order(problem: Problem) -> tuple[int, ...]:
    """The chips that take epochs, in the order of their stages."""
    order = chip_order(problem.device, problem.options.chip_placement_policy)
    if not problem.on_one_chip:
        return order
    return order[:1] if problem.device.arch == "grayskull" else order[-1:]  # of the others the host reaches the last


Costs = Sequence[tuple[np.ndarray, np.ndarray]]
"""By first op: the last ops (exclusive) of the epochs that may begin there, and their cycles."""


class _Graph:
    """Epochs as edges, with the stages they may take."""

    def __init__(self, costs: Costs, rule: Rules) -> None:
        self.costs, self.rule = costs, rule
        self.n = len(costs)
        self.spans: list[tuple[np.ndarray, np.ndarray]] = []
        plain = not rule.fixed and not rule.least
        for first, (lasts, _) in enumerate(costs):
            low, high = np.zeros(len(lasts)), np.full(len(lasts), rule.stages - 1.0)
            if not plain:
                for i, last in enumerate(lasts.tolist()):
                    span = rule.span(first, last)
                    low[i], high[i] = span if span is not None else (1.0, 0.0)
            self.spans.append((low, high))

    def path(self, bound: float) -> list[tuple[int, int, int]] | None:
        """(first, last, stage) of the epochs of a division whose stages and links stay within the bound, or None.

        By op and stage the fewest cycles that the stage holds when the op is to come; fewer are never worse.
        """
        if max(self.rule.links, default=0.0) <= bound:
            return self._plain(bound)
        count = self.rule.stages
        numbers = np.arange(count)
        cost = np.full((self.n + 1, count), np.inf)
        back = np.full((self.n + 1, count, 2), -1)
        for first in range(self.n):
            now = cost[first]
            begun = np.flatnonzero(np.isfinite(now))
            if first > 0 and not len(begun):
                continue
            lasts, cycles = self.costs[first]
            low, high = self.spans[first]
            fits = (cycles <= bound)[:, None] & (low[:, None] <= numbers) & (numbers <= high[:, None])
            enters = first == 0 or (self.rule.link(first) <= bound) & (numbers > begun[0])
            new = np.where(fits & enters, cycles[:, None], np.inf)
            origin = np.broadcast_to(begun[0] if first > 0 else -1, new.shape)
            if first > 0 and first not in self.rule.breaks:
                more = now + cycles[:, None]
                stays = fits & (more <= bound) & (more <= new)
                new, origin = np.where(stays, more, new), np.where(stays, numbers, origin)
            better = new < cost[lasts]
            cost[lasts] = np.where(better, new, cost[lasts])
            at, stage = np.nonzero(better)
            back[lasts[at], stage] = np.stack([np.full(len(at), first), origin[at, stage]], axis=1)
        ends = np.flatnonzero(np.isfinite(cost[self.n]))
        if not len(ends):
            return None
        cuts: list[tuple[int, int, int]] = []
        last, taken = self.n, int(ends[0])
        while last > 0:
            first, before = (int(v) for v in back[last, taken])
            cuts.append((first, last, taken))
            last, taken = first, before
        return cuts[::-1]

    def _plain(self, bound: float) -> list[tuple[int, int, int]] | None:
        """`path` where a stage may begin anywhere: then fewer stages are never worse, one state for each op does."""
        width = (
            2.0 * np.ceil(bound) + 1.0
        )  # a state is stage * width + cycles in it; the least one is never worse than another
        state = np.full(self.n + 1, np.inf)
        back = np.full(self.n + 1, -1)
        state[0] = 0.0
        for first in range(self.n):
            if not np.isfinite(state[first]):
                continue
            lasts, cycles = self.costs[first]
            low, high = self.spans[first]
            stage = np.floor(state[first] / width)
            offsets = state[first] - stage * width
            least = np.maximum(low, stage + (first in self.rule.breaks and first > 0))
            stays = (least == stage) & (offsets + cycles <= bound)
            taken = np.where(stays, stage, np.maximum(least, stage + (offsets > 0)))
            new = taken * width + cycles + np.where(stays, offsets, 0.0)
            new[(cycles > bound) | (taken > high)] = np.inf
            better = new < state[lasts]
            state[lasts[better]] = new[better]
            back[lasts[better]] = first
        if not np.isfinite(state[self.n]):
            return None
        cuts: list[tuple[int, int, int]] = []
        at = self.n
        while at > 0:
            first = int(back[at])
            cuts.append((first, at, int(state[at] // width)))
            at = first
        return cuts[::-1]


def divide(costs: Costs, rule: Rules) -> list[tuple[int, int, int]] | None:
    """(first, last, stage) of epochs that make the slowest stage as fast as it can be; None when the rules allow no
    division (or no path leads through the epochs at all)."""
    graph = _Graph(costs, rule)
    open_links = [link for link in rule.links if math.isfinite(link)]
    high = float(sum(c.max() for _, c in costs if len(c)) + max(open_links, default=0.0))
    best = graph.path(high)
    if best is None:
        return None
    low = 0.0
    high = _slowest(best, costs, rule)
    while high - low > max(1.0, _PRECISION * high):
        middle = (low + high) / 2
        path = graph.path(middle)
        if path is None:
            low = middle
        else:
            best, high = path, min(middle, _slowest(path, costs, rule))
    return best


def _slowest(path: Sequence[tuple[int, int, int]], costs: Costs, rule: Rules) -> float:
    """Cycles of the slowest stage or link."""
    sums: dict[int, float] = {}
    links = [rule.link(b[0]) for a, b in itertools.pairwise(path) if a[2] != b[2]]
    for first, last, stage in path:
        lasts, cycles = costs[first]
        sums[stage] = sums.get(stage, 0.0) + float(cycles[lasts == last].min())
    return max([*sums.values(), *links], default=0.0)


def epoch_cost(problem: Problem, segment: Segment) -> float:
    """Cycles per input of one epoch, of switching to it and filling it: those of a batch B over B, where an epoch takes
    switch + fill + B x (slowest limiter + what full buffers cost), one of the optimizer the same with B = 1. The stall
    cycles of a priced epoch hold the latter, and the fill where it is not a number of the options."""
    cycles = problem.share(segment.first) * (segment.limiter_cycles + segment.stall_cycles)
    return cycles + overhead(problem, segment.first, segment.last)


def overhead(problem: Problem, first: int, last: int) -> float:
    """Cycles per input that an epoch of ops [first, last) takes beside its slowest op, whatever its candidates are."""
    options = problem.options
    if options.epoch_fill_cycles is None:
        return options.epoch_switch_cycles / options.inputs_counted
    chain = longest_chains(problem, first, last)[-1] if options.epoch_fill_cycles else 0
    return (options.epoch_switch_cycles + options.epoch_fill_cycles * chain) / options.inputs_counted


def longest_chains(problem: Problem, first: int, last: int) -> list[int]:
    """By the end of a run of ops that begins with `first`, up to `last`: ops on its longest chain."""
    depth: dict[int, int] = {}
    longest_chains: list[int] = []
    for op in range(first, last):
        depth[op] = 1 + max((depth[p] for p in problem.facts[op].producers if p in depth), default=0)
        longest_chains.append(max(depth[op], longest_chains[-1] if longest_chains else 0))
    return longest_chains


def chips_of(problem: Problem, segments: Sequence[Segment]) -> list[int]:
    """The chip of every epoch."""
    order = stage_order(problem)
    pinned = [
        next(
            (p.chip for op in problem.order[s.first : s.last] if (p := problem.pins.get(op)) and p.chip is not None),
            None,
        )
        for s in segments
    ]
    if len(order) == 1:
        return [order[0]] * len(segments)
    costs: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0, np.int64), np.zeros(0))] * len(problem.order)
    for segment in segments:
        costs[segment.first] = (np.array([segment.last]), np.array([epoch_cost(problem, segment)]))
    pipeline = divide(costs, rules(problem))
    beside = problem.device.arch == "grayskull"  # chips without links are numbered from 0 without gaps (rule N12)
    if pipeline is None:
        # pins that go back and forth between chips make no pipeline: an epoch then stays where the one before it is
        chips: list[int] = []
        for pin in pinned:
            chips.append(pin if pin is not None else chips[-1] if chips else order[0 if beside else -1])
        return chips
    top = pipeline[-1][2]
    # a pipeline that needs fewer stages than there are chips ends on the last chip, unless pins say where it is
    spare = 0 if beside or any(p is not None for p in pinned) else len(order) - 1 - top
    return [order[stage + spare] for _, _, stage in pipeline]


def temporal_epochs(chips: Sequence[int], arch: str, directions: Sequence[str] = ()) -> list[int]:
    """Numbers of the temporal epochs: a new one wherever a chip is used again, and where another program begins
    (directions: of each epoch); on grayskull every epoch is its own."""
    numbers: list[int] = []
    used: set[int] = set()
    for at, chip in enumerate(chips):
        begins = bool(directions) and at > 0 and directions[at] != directions[at - 1]
        if not numbers or arch == "grayskull" or chip in used or begins:
            numbers.append(numbers[-1] + 1 if numbers else 0)
            used = set()
        else:
            numbers.append(numbers[-1])
        used.add(chip)
    return numbers


def slowest_stage(problem: Problem, segments: Sequence[Segment]) -> float:
    """Cycles per input of the chip or link with the most to do: what a policy minimises (on one chip, the sum)."""
    sums: dict[int, float] = {}
    chips = chips_of(problem, segments)
    for segment, chip in zip(segments, chips, strict=True):
        sums[chip] = sums.get(chip, 0.0) + epoch_cost(problem, segment)
    links: list[float] = []
    if problem.has_stages:
        busy = link_cycles(problem, stage_order(problem))
        pairs = itertools.pairwise(zip(segments, chips, strict=True))
        links = [busy[s.first] for (_, a), (s, b) in pairs if a != b and busy]
    return max([*sums.values(), *links], default=0.0)


def pipeline_note(problem: Problem, segments: Sequence[Segment], chips: Sequence[int]) -> list[Diagnostic]:
    """What each stage takes, and what the links between chips have to carry."""
    if len(problem.device.chips) == 1:
        return []
    sums: dict[int, float] = {}
    for segment, chip in zip(segments, chips, strict=True):
        sums[chip] = sums.get(chip, 0.0) + epoch_cost(problem, segment)
    pace = max(sums.values(), default=0.0)
    shares = "; ".join(f"chip {chip} {int(cycles):,}" for chip, cycles in sums.items())
    pipeline_note = [
        Diagnostic(
            "note",
            "pipeline",
            "stages",
            f"{len(sums)} of {len(problem.device.chips)} chips in use; cycles per input, switching epochs included: "
            f"{shares}",
            "a stage ends at an epoch; set_chip_break or a chip pin moves it",
        )
    ]
    at = {op: chip for s, chip in zip(segments, chips, strict=True) for op in problem.order[s.first : s.last]}
    for (a, b), size in link_bytes(problem.graph, at, problem.options, problem.device).items():
        links = problem.device.neighbours(a).get(b, 0)
        rate = problem.device.eth_bytes_per_cycle * max(1, links) * _LINK_SHARE
        if problem.device.arch != "grayskull" and size / rate > pace:
            pipeline_note.append(
                Diagnostic(
                    "warning",
                    "pipeline",
                    "link",
                    f"{size} bytes an input from chip {a} to chip {b} take {int(size / rate)} cycles on {links} links, "
                    f"longer than the slowest stage ({int(pace)})",
                    "move the chip break to where less data crosses",
                )
            )
    return pipeline_note


def link_bytes(
    graph: Graph, chips: Mapping[str, int], options: CompileOptions, device: DeviceSpec
) -> dict[tuple[int, int], int]:
    """Bytes per input that cross from chip to chip, each producer once per chip that reads it."""
    crossing: dict[tuple[int, int], set[str]] = {}
    for node in graph.ops:
        for edge in node.inputs:
            if edge.source in chips and chips[edge.source] != chips[node.name]:
                crossing.setdefault((chips[edge.source], chips[node.name]), set()).add(edge.source)
    sizes: dict[tuple[int, int], int] = {}
    for pair, sources in sorted(crossing.items()):
        total = 0
        for name in sources:
            total += tensor_bytes(graph, name, options, device)
        sizes[pair] = total
    return sizes


def tensor_bytes(graph: Graph, name: str, options: CompileOptions, device: DeviceSpec) -> int:
    """Bytes of a tensor in tiles."""
    z, rt, ct = tile_shape(graph[name].shape)
    return z * rt * ct * tile_bytes(graph[name].df or options.data_format, align=device.tile_align)


def out_of_reach(
    graph: Graph, placed: Mapping[str, OpPlacement], device: DeviceSpec
) -> dict[str, dict[int, list[str]]]:
    """Tensors that lie in one queue of grayskull chips, which have no links, and that the queue cannot carry: by node,
    the readers on each chip. A queue lies with its readers, all of them on one chip, and that is the writer's or one
    beside it (rule N12). Readers in the producer's own epoch take it from the op and do not count; of weights and
    constants each chip has a queue of its own, but in training, where they change."""
    if device.arch != "grayskull" or len(device.chips) == 1:
        return {}
    users = graph.users()
    copied = () if phases(graph) else (NodeKind.PARAMETER, NodeKind.CONSTANT)
    readers_of: dict[str, dict[int, list[str]]] = {}
    for node in graph:
        if node.kind in copied:
            continue
        readers: dict[int, list[str]] = {}
        for user, port in users[node.name]:
            inside = node.name in placed and user in placed and placed[node.name].epoch == placed[user].epoch
            if user in placed and (not inside or port in queued_ports(graph[user])):
                readers.setdefault(placed[user].chip, []).append(user)
        far = node.name in placed and any(abs(chip - placed[node.name].chip) > 1 for chip in readers)
        if len(readers) > 1 or far:
            readers_of[node.name] = {chip: list(dict.fromkeys(readers[chip])) for chip in sorted(readers)}
    return readers_of


def check_reach(graph: Graph, placed: Mapping[str, OpPlacement], device: DeviceSpec) -> None:
    """Grayskull chips have no links: what several of them read cannot lie on one, and no chip writes to one that is not
    beside it. Raises `PlacementError` naming it."""
    wrong = []
    for name, readers in out_of_reach(graph, placed, device).items():
        chips = ", ".join(map(str, readers))
        if len(readers) > 1:
            text = f"ops on chips {chips} read it, and grayskull reads only its own DRAM"
        else:
            text = f"chip {placed[name].chip} writes it for chip {chips}, and grayskull writes only to the next chip"
        fix = "pin its readers to one chip, put a nop before those on the other one, or give every chip a copy of it"
        wrong.append(Diagnostic("error", name, "queue-chips", text, fix))
    if wrong:
        raise PlacementError(f"{quantity(len(wrong), 'tensor')} would be out of reach of a grayskull chip", wrong)


POLICIES = ("MMIO_LAST", "SNAKE")

_WALK_STEPS = 200_000


def chip_order(device: DeviceSpec, policy: str = "MMIO_LAST") -> tuple[int, ...]:
    """Chips in the order in which they take stages.

    "MMIO_LAST": as the device lists them, those that the host reaches last, for the outputs leave from the last stage.
    Every grayskull chip is a card of its own, which the host reaches: they are taken as listed, each beside the next.
    "SNAKE": a walk over ethernet links that visits every chip once and ends on one the host reaches, so that every
    stage is one hop from the next. Where there is no such walk it is MMIO_LAST.
    Raises `PlacementError` for another name.
    """
    need_known(("chip placement policy", policy, POLICIES))
    if device.arch == "grayskull":
        return tuple(device.chips)
    reached = set(device.mmio_chips)
    listed = [c for c in device.chips if c not in reached] + [c for c in device.chips if c in reached]
    if policy == "SNAKE" and len(listed) > 1:
        for end in device.mmio_chips:
            walk = _walk(device, end)
            if walk is not None:
                return walk[::-1]
    return tuple(listed)


def _walk(device: DeviceSpec, start: int) -> tuple[int, ...] | None:
    """A path over links that visits all chips, by Warnsdorff's rule (the neighbour with the fewest ways on first; ties
    keep the direction, then the lower number), with backtracking up to a fixed number of steps."""
    near = {chip: [n for n in device.neighbours(chip) if n in device.chips] for chip in device.chips}
    path = [start]
    seen = {start}

    def ways_on(chip: int) -> list[int]:
        step = path[-1] - path[-2] if len(path) > 1 else 0
        free = [n for n in near[chip] if n not in seen]
        return sorted(free, key=lambda n: (sum(m not in seen for m in near[n]), n - chip != step, n), reverse=True)

    stack = [ways_on(start)]
    for _ in range(_WALK_STEPS):
        if len(path) == len(device.chips):
            return tuple(path)
        if stack[-1]:
            chip = stack[-1].pop()
            path.append(chip)
            seen.add(chip)
            stack.append(ways_on(chip))
        else:
            stack.pop()
            seen.discard(path.pop())
            if not path:
                return None
    return None
