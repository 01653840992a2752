"""What is explored: axes with their values, the points they span, and what is wanted of a point."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore.devices import parse_device
from tbuda_lab.core.explore.numbers import NUMBERS
from tbuda_lab.core.options import CompileOptions, options_from_json, plain_value
from tbuda_lab.core.overrides import from_json

DEVICE, HARVEST, OVERRIDES = "device", "harvest", "overrides"
ALIASES = {
    "devices": DEVICE,
    "batch": "microbatch",
    "batches": "microbatch",
    "format": "default_df_override",
    "formats": "default_df_override",
    "fidelity": "default_math_fidelity",
    "policy": "balancer_policy",
    "policies": "balancer_policy",
}
"""Short names of axes."""
MOST_POINTS = 1 << 40
Point = dict[str, Any]
"""Axis -> value, as JSON has it."""


@dataclasses.dataclass(frozen=True)
class Space:
    """axes: name -> values, as JSON has them, all different. override_sets: name -> overrides as plain data."""

    axes: Mapping[str, tuple[Any, ...]]
    override_sets: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises `InputError` for an axis that is no option, one without values, a device that is none."""
        options = {f.name for f in dataclasses.fields(CompileOptions)} - {"training"}
        for name, values in self.axes.items():
            if name not in (DEVICE, HARVEST, OVERRIDES) and name not in options:
                near = difflib.get_close_matches(name, sorted(options | set(ALIASES)), n=3, cutoff=0.4)
                raise InputError(
                    f"axis {name!r} is no option, device, harvest or overrides"
                    + (f"; near it: {', '.join(near)}" if near else "")
                )
            if not values:
                raise InputError(f"axis {name!r} has no values: the space is empty")
            if len({json.dumps(v) for v in values}) < len(values):
                raise InputError(f"axis {name!r} has a value twice: {', '.join(map(str, values))}")
        if not self.axes:
            raise InputError("the space is empty: give an axis, such as devices or batches")
        for text in self.axes.get(DEVICE, ()):
            parse_device(_text(text))
        if any(type(v) is not int or v < 0 for v in self.axes.get(HARVEST, ())):
            raise InputError("harvest is a number of rows, 0 or more")
        missing = [v for v in self.axes.get(OVERRIDES, ()) if v not in self.override_sets]
        if missing:
            raise InputError(f"there are no overrides named {missing[0]!r}; known: {', '.join(self.override_sets)}")
        for records in self.override_sets.values():
            for record in records:
                from_json(record)
        if self.size > MOST_POINTS:
            raise InputError(f"the space has {self.size:.1e} points, {MOST_POINTS:.1e} are the most")

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(map(len, self.axes.values()))

    def point(self, number: int) -> Point:
        """The point of a number from 0: the last axis changes fastest, devices come first, slowest."""
        point: Point = {}
        for name in reversed(self._order):
            number, at = divmod(number, len(self.axes[name]))
            point[name] = self.axes[name][at]
        return {name: point[name] for name in self.axes}

    def __iter__(self) -> Iterator[Point]:
        return (self.point(n) for n in range(self.size))

    @property
    def _order(self) -> list[str]:
        """Axes by how slowly a grid changes them, so that trials of one device follow each other."""
        return sorted(self.axes, key=lambda name: (name != DEVICE, name != HARVEST))

    def options(self, point: Point, base: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a point as plain data; base: those that no axis says."""
        return {**base, **{k: v for k, v in point.items() if k not in (DEVICE, HARVEST, OVERRIDES)}}

    def to_json(self) -> dict[str, Any]:
        """As the header of a file has it; the order of the axes is that of a grid."""
        axes = [[name, list(values)] for name, values in self.axes.items()]
        return {"axes": axes, "override_sets": {k: list(v) for k, v in self.override_sets.items()}}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"a device is a text, not {value!r}")
    return value


def make_space(axes: Mapping[str, Sequence[Any]], override_sets: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """A space of values as Python or JSON has them, axes by name or `ALIASES`. Raises `InputError`."""
    named: dict[str, tuple[Any, ...]] = {}
    for name, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            values = [values]
        axis = ALIASES.get(name.replace("-", "_"), name.replace("-", "_"))
        if axis in named:
            raise InputError(f"axis {axis!r} is given twice")
        named[axis] = tuple(_plain(value) for value in values)
    return Space(named, {k: tuple(v) for k, v in (override_sets or {}).items()})


def _plain(value: Any) -> Any:
    value = plain_value(value)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise InputError(f"{value!r} is no value of an axis: give numbers, texts, formats or fidelities") from None
    return value


def space_from_json(data: Any, where: str) -> Space:
    """The space of a header. Raises `InputError`."""
    if not isinstance(data, dict) or set(data) != {"axes", "override_sets"}:
        raise InputError(f"{where}: the space has axes and override_sets")
    axes, sets = data["axes"], data["override_sets"]
    pairs = isinstance(axes, list) and all(
        isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], list) for p in axes
    )
    if not pairs or not isinstance(sets, dict) or not all(isinstance(values, list) for values in sets.values()):
        raise InputError(f"{where}: axes are pairs of a name and its values, override_sets lists by name")
    return Space({name: tuple(values) for name, values in axes}, {k: tuple(v) for k, v in sets.items()})


def check_options(base: Mapping[str, Any]) -> None:
    """Raises `InputError` for options that no compile could use."""
    CompileOptions(**options_from_json(dict(base)))


# -- what is wanted ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Objective:
    """A number that is to be "min" or "max"."""

    number: str
    direction: str

    @property
    def sign(self) -> float:
        """Times the number, less is better."""
        return 1.0 if self.direction == "min" else -1.0

    def __str__(self) -> str:
        return f"{self.number}:{self.direction}"


@dataclasses.dataclass(frozen=True)
class Requirement:
    """A number and its bound; relation is ">=" or "<="."""

    number: str
    relation: str
    bound: float

    def holds(self, numbers: Mapping[str, float]) -> bool:
        """Whether a trial's numbers hold it; one that is not there does not."""
        value = numbers.get(self.number, math.nan)
        return value >= self.bound if self.relation == ">=" else value <= self.bound

    def excess(self, numbers: Mapping[str, float]) -> float:
        """By what part of the bound it is missed; 0 or less where it holds."""
        value = numbers.get(self.number, math.nan)
        gap = self.bound - value if self.relation == ">=" else value - self.bound
        return math.inf if math.isnan(gap) else gap / (abs(self.bound) or 1.0)

    def __str__(self) -> str:
        return f"{self.number}{self.relation}{self.bound:g}"


def parse_objective(text: str) -> Objective:
    """`samples/s:max`; without a direction the usual one of the number. Raises `InputError`."""
    name, _, direction = text.partition(":")
    number = _number(name, text)
    direction = direction.strip() or NUMBERS[number].better
    if direction not in ("min", "max"):
        raise InputError(f"objective {text!r}: {direction!r} is neither min nor max")
    return Objective(number, direction)


def parse_requirement(text: str) -> Requirement:
    """`pcc>=0.99`. Raises `InputError`."""
    for relation in (">=", "<="):
        name, found, bound = text.partition(relation)
        if found:
            try:
                value = float(bound)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise InputError(f"requirement {text!r}: {bound!r} is not a number")
            return Requirement(_number(name, text), relation, value)
    raise InputError(f"requirement {text!r}: write NUMBER>=VALUE or NUMBER<=VALUE, e.g. pcc>=0.99")


def _number(name: str, text: str) -> str:
    name = name.strip().lower()
    if name not in NUMBERS:
        raise InputError(f"{text!r}: {name!r} is no number of a trial; there are {', '.join(NUMBERS)}")
    return name


def front_of(rows: Sequence[Sequence[float]]) -> list[int]:
    """Of rows of numbers of which less is better, those that no other one beats in one and equals in the rest."""
    if not rows:
        return []
    order = sorted(range(len(rows)), key=lambda k: tuple(rows[k]))
    front: list[int] = []
    for k in order:  # what comes before is never worse in all numbers than what comes after
        beaten = any(
            all(a <= b for a, b in zip(rows[f], rows[k], strict=True)) and tuple(rows[f]) != tuple(rows[k])
            for f in front
        )
        if not beaten:
            front.append(k)
    return sorted(front)


def digest(*parts: Any) -> str:
    """SHA-256 of plain data, in hexadecimal."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
