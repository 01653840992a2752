"""Islands: searches from one placement that draw other steps, in this process or on workers; after every round all go
on from the best.

What an island finds is a placement of options (`optimise_rounds` names the rounds that led to it), so it is the same on
any number of workers, and a compile with these options comes to it without them.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, InputError, PlacementError
from tbuda_lab.core.explore.engine import Engine, open_engine
from tbuda_lab.core.explore.trial import CANCELLED, DONE, Task, TrialRunner, graph_text
from tbuda_lab.core.files.codec import to_plain
from tbuda_lab.core.graph import Graph, parse_graph
from tbuda_lab.core.options import CompileOptions, options_to_json
from tbuda_lab.core.overrides import Override, to_json

Curve = tuple[tuple[int, float], ...]


@dataclasses.dataclass(frozen=True)
class Islands:
    """How many search side by side, how often they exchange the best, and where: workers (processes of this machine, 0:
    this one) or a Dask scheduler that the user names."""

    count: int = 4
    rounds: int = 10
    workers: int = 0
    scheduler: Any = None

    def __post_init__(self) -> None:
        """Raises `InputError`."""
        for what, value, least in (
            ("islands", self.count, 1),
            ("rounds", self.rounds, 0),
            ("workers", self.workers, 0),
        ):
            if type(value) is not int or not least <= value <= 1024:
                raise InputError(f"{what} are a number from {least} to 1024, not {value!r}")


def search_islands(
    graph: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    overrides: Sequence[Override],
    names_of: Callable[[Override], tuple[str, ...]],
    islands: Islands,
    steps: int,
    cancel: threading.Event,
    cache: bool = True,
) -> tuple[CompileOptions, Curve]:
    """The options of the best placement after all rounds of so many steps, and (steps of an island, cycles per input)
    at the start and after every round; they never rise. options: those of the start, without a search.

    The best of a round is the one with the fewest cycles, then the first island; a round that finds nothing faster adds
    no name. Raises `Cancelled`, `InputError` where workers are not there, and `PlacementError` where a worker is lost.
    """
    text = graph_text(graph)
    engine = open_engine(islands.workers, islands.scheduler, TrialRunner(parse_graph(text)), text, None)
    records = tuple(to_json(o, names_of) for o in overrides)
    plain = to_plain(device)

    def tasks(rounds: Sequence[tuple[str, ...]]) -> list[Task]:
        chosen = [_with(options, steps if names else 0, names) for names in rounds]
        return [Task(n, plain, options_to_json(o), records, cache=cache) for n, o in enumerate(chosen)]

    try:
        names: tuple[str, ...] = ()
        best = _cycles(engine, tasks([()]), options, cancel)[0]
        curve = [(0, best)]
        for number in range(islands.rounds):
            tried = [(*names, f"{number}/{island}") for island in range(islands.count)]
            found = _cycles(engine, tasks(tried), options, cancel)
            at = min(range(islands.count), key=lambda k: (found[k], k))
            if found[at] < best:
                best, names = found[at], tried[at]
            curve.append(((number + 1) * steps, best))
        return _with(options, steps if names else 0, names), tuple(curve)
    finally:
        engine.close()


def _with(options: CompileOptions, steps: int, names: tuple[str, ...]) -> CompileOptions:
    return dataclasses.replace(options, optimise_steps=steps, optimise_seconds=None, optimise_rounds=names)


def _cycles(engine: Engine, tasks: Sequence[Task], options: CompileOptions, cancel: threading.Event) -> list[float]:
    """What each task comes to: cycles per input, or those of one input alone where latency is wanted."""
    found: dict[int, float] = {}
    at_work, stopped = len(tasks), False
    for task in tasks:
        engine.submit(task)
    while at_work:
        if cancel.is_set() and not stopped:
            stopped = True
            engine.cancel()
        for n, outcome in engine.poll(0.1):
            at_work -= 1
            if outcome["state"] == DONE:
                numbers = outcome["numbers"]
                found[n] = numbers["latency_ms"] if options.objective == "latency" else numbers["cycles/input"]
            elif outcome["state"] != CANCELLED:
                reason = outcome["reason"]
                raise PlacementError(f"an island was {outcome['state']}: {reason['type']}: {reason['text']}")
    if stopped:
        raise Cancelled("the search was cancelled")
    return [found[n] for n in range(len(tasks))]
