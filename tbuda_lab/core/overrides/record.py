"""An override as it is recorded: one request of the user, its target, and its value as it was given."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

FIRST = "first"
"""Value of a break: before whichever of the ops it addresses is scheduled first, instead of before each."""


@dataclasses.dataclass(frozen=True)
class Each:
    """The names that a pattern or predicate matched, as a file holds it: each for itself, where there is such an op.

    A tuple is one list instead: a break stands before the first of its ops, and what one of them cannot have is an
    error.
    """

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"each of {', '.join(self.names) or 'no names'}"


Target = str | tuple[str, ...] | Each | re.Pattern[str] | Callable[[Any], bool]


def target_text(target: Any) -> str:
    """A target as a person reads it: the same in every run, as the address of a predicate would not be."""
    if isinstance(target, str):
        return target
    if isinstance(target, tuple):
        return ", ".join(target)
    if isinstance(target, Each):
        return str(target)
    return f"/{target.pattern}/" if hasattr(target, "pattern") else "a predicate"


@dataclasses.dataclass(frozen=True)
class Override:
    """One request of the user. `kind`: a name in `KINDS`; `target`: a name, names, a regex or a predicate (in a file:
    what it matched); `value`: as the class of the kind reads it (its `parse`); `source`: who asked."""

    kind: str
    target: Target
    value: Any = True
    source: str = "code"

    def __post_init__(self) -> None:
        if isinstance(self.target, list):  # as people write several names
            object.__setattr__(self, "target", tuple(self.target))

    @property
    def is_named(self) -> bool:
        """Whether the target is names; which ops a pattern or predicate means is known once there is a graph."""
        return isinstance(self.target, str | tuple | Each)

    def matches(self, names: Iterable[str]) -> list[str]:
        """The names of `names` that this override addresses, in their order."""
        return names_meant(self.target, names)


def names_meant(target: Target, names: Iterable[str]) -> list[str]:
    """The names of `names` that a target means, in their order. A name that is not there means the ops that passes made
    of the op of that name (`parts_of`). A pattern means those that it matches whole; a predicate is given the name."""
    if isinstance(target, str | tuple | Each):
        names = list(names)
        targets = {target} if isinstance(target, str) else set(target if isinstance(target, tuple) else target.names)
        missing = targets.difference(names)
        if missing and not isinstance(target, Each):
            targets.update(part for name in missing for part in parts_of(name, names))
        return [n for n in names if n in targets]
    if isinstance(target, re.Pattern):
        return [n for n in names if target.fullmatch(n)]
    return [n for n in names if target(n)]


def parts_of(name: str, names: Iterable[str]) -> list[str]:
    """The ops that passes made of the op of that name: theirs are `<name>.dc.<op>.<k>` (see `ops.builder`)."""
    return [n for n in names if n.startswith(f"{name}.dc.")]


def frozen(value: Any) -> Any:
    """A hashable form of a value made of mappings, sequences and overrides: equal where the values are."""
    if isinstance(value, Override):
        return value.kind, frozen(value.target), frozen(value.value)
    if isinstance(value, Mapping):
        return tuple(sorted((repr(k), frozen(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v) for v in value)
    return value
