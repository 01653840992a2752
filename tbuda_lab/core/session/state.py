"""What edits change: options and overrides. Immutable, so that a state is the key of its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.lowering.edits import edit_key, is_edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override


@dataclasses.dataclass(frozen=True)
class State:
    """One point of a session's history.

    base: the overrides with which the epochs were last chosen for the whole model; the difference between `overrides`
    and `base` is placed into those epochs (see `placing.Placing`).
    """

    options: CompileOptions
    overrides: tuple[Override, ...] = ()
    base: tuple[Override, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Hashable, and equal for equal states."""
        return self.options, frozen(self.overrides), frozen(self.base)

    def find(self, kind: str, target: str) -> Override | None:
        """The override of that kind made for exactly that name, if any."""
        return next((o for o in self.overrides if o.kind == kind and o.target == target), None)

    def put(self, override: Override) -> State:
        """With `override`, in the place of an earlier one of the same kind and target (for nops and queues: edge)."""
        found = list(self.overrides)
        for i, old in enumerate(found):
            same = edit_key(old) == edit_key(override) if is_edit(override) else old.target == override.target
            if old.kind == override.kind and same:
                found[i] = override
                return dataclasses.replace(self, overrides=tuple(found))
        return dataclasses.replace(self, overrides=(*self.overrides, override))

    def drop(self, target: str, kinds: Sequence[str] = ()) -> State:
        """Without the overrides made for exactly that name (of these kinds, if any are given)."""
        kept = tuple(o for o in self.overrides if o.target != target or (kinds and o.kind not in kinds))
        return dataclasses.replace(self, overrides=kept)


def frozen(value: Any) -> Any:
    """A hashable twin of a value made of mappings, sequences and overrides (two twins are equal if the values are)."""
    if isinstance(value, Override):
        return value.kind, frozen(value.target), frozen(value.value)
    if isinstance(value, dict):
        return tuple(sorted((repr(k), frozen(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v) for v in value)
    return value
