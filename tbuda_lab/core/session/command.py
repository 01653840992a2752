"""What every edit is: a value with a state that it makes, a label, an inverse, and a call in PyBuda's words."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.literals import python_comment
from tbuda_lab.core.options import Override
from tbuda_lab.core.session.state import State


def refuse(where: str, message: str, fix: str) -> OverrideError:
    """The error of an edit that no model could take."""
    return OverrideError(f"{where}: {message}", [Diagnostic("error", where, "edit", message, fix)])


def whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def pair(op: str, what: str, value: object, least: int) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(whole(v, least) for v in value):
        return int(value[0]), int(value[1])
    raise refuse(op, f"{what} is (rows, columns), not {value!r}", f"two whole numbers from {least}")


def readers(op: str, names: object) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else names
    if isinstance(found, (tuple, list)) and all(isinstance(n, str) and n for n in found):
        return tuple(found)
    raise refuse(op, f"readers are names, not {names!r}", "a name, several, or none for all readers")


@dataclasses.dataclass(frozen=True)
class Command:
    """An edit. Values are checked when it is made (`OverrideError`); names are checked by the compile."""

    name: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """What a person reads in the undo list."""
        raise NotImplementedError

    def overrides(self) -> tuple[Override, ...]:
        """The records this edit adds; none where it only takes away or changes options."""
        return ()

    def apply(self, state: State) -> State:
        """The state after this edit."""
        for override in self.overrides():
            state = state.put(override)
        return state

    def inverse(self, state: State) -> Command:
        """The edit that leads from `apply(state)` back to `state`."""
        return Restore(state, self)

    def python(self) -> str:
        """The same in PyBuda's words; a comment where PyBuda has none."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Restore(Command):
    """Back to a state: the inverse of every edit. It lives in memory only; a journal holds the edits themselves."""

    state: State
    undone: Command
    name: ClassVar[str] = "restore"

    @property
    def label(self) -> str:
        return f"undo {self.undone.label}"

    def apply(self, state: State) -> State:
        return self.state

    def inverse(self, state: State) -> Command:
        return self.undone

    def python(self) -> str:
        return "\n".join(python_comment(f"undone: {line}") for line in self.undone.python().split("\n"))
