"""How long a batch takes by the simulator of epochs, each kind of epoch simulated once."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.placer.assemble import Parts, input_buffers
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.epoch_throughput import trial
from tbuda_lab.core.session.placing import Placed
from tbuda_lab.core.session.state import frozen


@dataclasses.dataclass(frozen=True)
class PaceStall:
    """A stall that slows its epoch down, by ops counted from the first of the epoch. reader: the first op on the short
    branch, or the join; cycles: of the whole batch."""

    fork: int
    reader: int
    cycles: int


@dataclasses.dataclass(frozen=True)
class Pace:
    """cycles: of the whole batch, with the switch to the epoch."""

    cycles: int
    stalls: tuple[PaceStall, ...]


def paces_of(placed: Placed, batch: int) -> list[Pace]:
    """By epoch, for a placement on one chip (where no epoch runs beside another) and a batch that each takes in one go.
    What `epochsim.simulate` says of the whole placement is the sum; equal epochs are simulated once."""
    problem = placed.problem
    asked = [o for o in placed.overrides if o.kind == "input_buffer_multiplier"]
    found = []
    for segment in placed.segments:
        names = problem.order[segment.first : segment.last]
        factors = tuple((names.index(n), frozen(o.value)) for o in asked for n in o.matches(names))
        key = ("pace", batch, problem.structure(segment.first, segment.last), segment.rows, factors)
        pace = problem.answers.get(key)
        if not isinstance(pace, Pace):
            pace = problem.answers[key] = _pace(placed, segment, batch)
        found.append(pace)
    return found


def _pace(placed: Placed, segment: Segment, batch: int) -> Pace:
    problem = placed.problem
    one = trial(problem, segment, placed.overrides)
    sizes = input_buffers(problem, [segment], placed.overrides, [Parts().of(problem, segment)])
    times = simulate(dataclasses.replace(one, placement=dataclasses.replace(one.placement, input_buffers=sizes)), batch)
    at = {name: i for i, name in enumerate(problem.order[segment.first : segment.last])}
    stalls = tuple(
        PaceStall(at[s.fork], at[s.short[0] if s.short else s.join], s.cycles) for s in times.stalls if s.critical
    )
    return Pace(times.cycles, stalls)
