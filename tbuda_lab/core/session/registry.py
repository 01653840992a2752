"""The sessions that live in this process, for those who list them. Nothing here keeps one alive."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session

_NUMBERS = itertools.count(1)
_LIVING: weakref.WeakValueDictionary[int, Session] = weakref.WeakValueDictionary()
_HEARERS: list[Callable[[Session], None]] = []


def note(session: Session) -> None:
    """A session has been made."""
    _LIVING[next(_NUMBERS)] = session
    for hearer in tuple(_HEARERS):
        hearer(session)


def living() -> dict[int, Session]:
    """Living sessions by a number that no other has in this process, oldest first."""
    return dict(sorted(_LIVING.items()))


def on_made(hearer: Callable[[Session], None]) -> Callable[[], None]:
    """Call `hearer(session)` for every session that is made; returns a function that removes it."""
    _HEARERS.append(hearer)
    return lambda: _HEARERS.remove(hearer)
