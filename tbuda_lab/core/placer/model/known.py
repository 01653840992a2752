"""Names that are looked up in a list, as options give them."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.errors import Diagnostic, PlacementError


def need_known(*asked: tuple[str, str, Sequence[str]]) -> None:
    """asked: what is named, the name, all names there are. Raises `PlacementError` with a diagnostic for each name that
    there is not."""
    wrong = [(what, name, known) for what, name, known in asked if name not in known]
    if wrong:
        raise PlacementError(
            "; ".join(f"unknown {what} {name!r}" for what, name, _ in wrong),
            [
                Diagnostic("error", name, "name-in-options", f"no such {what}", f"known: {', '.join(known)}")
                for what, name, known in wrong
            ],
        )
