"""What an edit is: a value that knows the state it makes, its label, its inverse, and its call in PyBuda's `config`
module.

An edit that fixes something of ops or queues says so in kinds of override (`asks`): checks, label, records and Python
follow from them.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.literals import python_comment
from tbuda_lab.core.overrides import (
    Kind,
    MalformedValue,
    Override,
    override_python,
    target_text,
)


def refuse(where: str, message: str, fix: str) -> OverrideError:
    """The error of an edit that no model could take."""
    return OverrideError(f"{where}: {message}", [Diagnostic("error", where, "edit", message, fix)])


def read_readers(op: str, names: object) -> tuple[str, ...]:
    """Names of ops, from one or several."""
    result = (names,) if isinstance(names, str) else names
    if isinstance(result, tuple | list) and all(isinstance(n, str) and n for n in result):
        return tuple(result)
    raise refuse(op, f"readers are names, not {names!r}", "a name, several, or none for all readers")


@dataclasses.dataclass(frozen=True)
class Command:
    """An edit. Values are checked when it is made (`OverrideError`); names are checked by the compile."""

    name: ClassVar[str] = ""

    def asks(self) -> tuple[tuple[str | tuple[str, ...], Kind], ...]:
        """What the edit fixes: (target, value). Raises `MalformedValue`."""
        return ()

    def _check(self, where: str) -> None:
        """Raises `OverrideError` for a value that no model could take."""
        try:
            for _, value in self.asks():
                type(value).parse(value.value)
        except MalformedValue as error:
            raise refuse(where, *error.fault) from None

    @property
    def label(self) -> str:
        """What a person reads in the undo list."""
        return ", ".join(value.label(target_text(target)) for target, value in self.asks())

    def overrides(self) -> tuple[Override, ...]:
        """The records this edit adds; none where it only takes away or changes options."""
        return tuple(Override(value.kind, target, value.value, "edit") for target, value in self.asks())

    def apply(self, state: Request) -> Request:
        """The state after this edit."""
        for override in self.overrides():
            state = state.put(override)
        return state

    def inverse(self, state: Request) -> Command:
        """The edit that leads from `apply(state)` back to `state`."""
        return Restore(state, self)

    def python(self) -> str:
        """The same in PyBuda's words; a comment where PyBuda has none."""
        return "\n".join(override_python(o) for o in self.overrides())


@dataclasses.dataclass(frozen=True)
class Restore(Command):
    """Back to a state: the inverse of every edit. It lives in memory only; a journal holds the edits themselves."""

    state: Request
    undone: Command
    name: ClassVar[str] = "restore"

    @property
    def label(self) -> str:
        return f"undo {self.undone.label}"

    def apply(self, state: Request) -> Request:
        return self.state

    def inverse(self, state: Request) -> Command:
        return self.undone

    def python(self) -> str:
        return "\n".join(python_comment(f"undone: {line}") for line in self.undone.python().split("\n"))
