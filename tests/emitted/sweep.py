"""Emits, reads back, checks; and plants faults."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.netlist.schema import Netlist
from tests.emitted.compiles import Job
from tests.emitted.faults import KINDS, Planted, found, plant


@dataclasses.dataclass(frozen=True)
class Checked:
    """A netlist as it was read back from its text, and what the strict check finds in it."""

    job: str
    device: DeviceSpec
    netlist: Netlist | None
    errors: tuple[str, ...]
    warnings: Counter[str]


def sweep(jobs: Iterable[Job]) -> Iterator[Checked]:
    """What jobs emit, one netlist after the other; a refusal by our own check counts as one with errors."""
    for job in jobs:
        try:
            for number, made in enumerate(job.netlists()):
                read = netlists.loads(netlists.dumps(made))
                findings = netlists.check(read, job.device, "strict")
                errors = tuple(str(f) for f in findings if f.severity == "error")
                warnings = Counter(f.rule for f in findings if f.severity != "error")
                yield Checked(f"{job.name} #{number}", job.device, read, errors, warnings)
        except NetlistError as error:
            yield Checked(job.name, job.device, None, (str(error),), Counter())


def seeded_faults(
    bases: list[tuple[Netlist, DeviceSpec]], count: int, seed: int = 0
) -> Iterator[tuple[Planted, list[str]]]:
    """Faults of all kinds in turn, in netlists in turn, with what was found."""
    rng, made = random.Random(seed), 0
    for k, kind in enumerate(itertools.islice(itertools.cycle(KINDS), 20 * count)):
        if made == count:
            return
        order = [bases[(k + at) % len(bases)] for at in range(len(bases))]
        planted = next((p for n, d in order if (p := plant(kind, n, d, rng)) is not None), None)
        if planted is None:
            continue
        device = next(d for n, d in order if n.archs == planted.netlist.archs and _same(n, planted.netlist))
        made += 1
        yield planted, found(planted, device)


def _same(one: Netlist, other: Netlist) -> bool:
    return list(one.queues) == list(other.queues)
