"""Which points come next: functions of the plan and the rows that there are, and of nothing else.

A sampler is made anew for every batch, with a seed of its own, from the rows of the batches before; so a run that was
interrupted goes on exactly as it would have, and the number of workers makes no difference.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore.engine import EXTRA
from tbuda_lab.core.explore.space import Objective, Point, Requirement, Space, digest
from tbuda_lab.core.explore.trial import DONE, Trial

SAMPLERS = ("grid", "random", "nsga2", "tpe")
BATCH = 8
"""Points that are asked for at once; the next ones are asked for when all of them have ended."""
POPULATION = 16
"""Trials of a generation of NSGA-II."""
REDRAWS = 20
"""Draws of a point that was there already before any other point is taken."""
_LISTED = 1 << 20


def plain_order(space: Space, sampler: str, seed: int) -> Iterator[Point]:
    """All points once, as "grid" or "random" takes them."""
    if sampler == "grid":
        yield from space
        return
    draw = random.Random(seed)
    if space.size <= _LISTED:
        order = list(range(space.size))
        draw.shuffle(order)
        yield from map(space.point, order)
        return
    drawn: set[int] = set()
    while len(drawn) < space.size:
        number = draw.randrange(space.size)
        if number not in drawn:
            drawn.add(number)
            yield space.point(number)


class Learner:
    """Asks Optuna's NSGA-II or TPE. Raises `InputError` where Optuna is not there."""

    def __init__(
        self,
        space: Space,
        sampler: str,
        seed: int,
        objectives: Sequence[Objective],
        requirements: Sequence[Requirement],
    ) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError(f"the sampler {sampler} needs Optuna: {EXTRA}; grid and random do without") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._space, self._sampler, self._seed = space, sampler, seed
        self._objectives, self._requirements = objectives, requirements
        self._kinds = {name: self._distribution(values) for name, values in space.axes.items()}

    def _distribution(self, values: Sequence[Any]) -> Any:
        """Of places in a list of values: in order where they are rising numbers, else as they come."""
        numbers = [v for v in values if type(v) in (int, float)]
        if len(numbers) == len(values) and numbers == sorted(numbers):
            return self._optuna.distributions.IntDistribution(0, len(values) - 1)
        return self._optuna.distributions.CategoricalDistribution(tuple(range(len(values))))

    def batch(self, trials: Sequence[Trial], count: int) -> list[Point]:
        """The next points, none of them among `trials`, fewer where the space has no more."""
        study = self._study(trials)
        seen = {_name(t.point) for t in trials}
        points: list[Point] = []
        rest = plain_order(self._space, "random", int(digest(self._seed, len(trials))[:8], 16))
        while len(points) < count and len(seen) < self._space.size:
            for _ in range(REDRAWS):
                places = study.ask(self._kinds).params
                point = {name: self._space.axes[name][places[name]] for name in self._space.axes}
                if _name(point) not in seen:
                    break
            else:
                point = next(p for p in rest if _name(p) not in seen)
            seen.add(_name(point))
            points.append(point)
        return points

    def _study(self, trials: Sequence[Trial]) -> Any:
        samplers = self._optuna.samplers
        seed = int(digest(self._seed, len(trials), self._sampler)[:8], 16)
        if self._sampler == "nsga2":
            sampler = samplers.NSGAIISampler(population_size=POPULATION, seed=seed)
        else:
            sampler = samplers.TPESampler(seed=seed, n_startup_trials=2 * BATCH)
        directions = ["minimize" if o.direction == "min" else "maximize" for o in self._objectives]
        study = self._optuna.create_study(directions=directions, sampler=sampler)
        study.add_trials([self._known(trial) for trial in trials])
        return study

    def _known(self, trial: Trial) -> Any:
        """A row as Optuna has trials."""
        params = {name: _place(values, trial.point[name]) for name, values in self._space.axes.items()}
        system: dict[str, Any] = {"NSGAIISampler:generation": trial.n // POPULATION}
        if self._requirements and trial.state == DONE:
            system["constraints"] = [min(r.excess(trial.numbers), 1e9) for r in self._requirements]
        values = [trial.numbers[o.number] for o in self._objectives] if trial.state == DONE else None
        states = self._optuna.trial.TrialState
        return self._optuna.trial.create_trial(
            params=params,
            distributions=self._kinds,
            values=values,
            system_attrs=system,
            state=states.COMPLETE if values is not None else states.FAIL,
        )


def _name(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)


def _place(values: Sequence[Any], value: Any) -> int:
    return next(k for k, other in enumerate(values) if json.dumps(other) == json.dumps(value))
