"""`sambaflow.logging`: the logger that programs write to."""

from __future__ import annotations

import collections
import logging
from typing import Any

LEVELS = ("debug", "info", "warning", "error", "critical")


class SambaLogger(logging.Logger):
    """A logger whose calls take `log_limit`: how often a message is written, None for always."""

    def __init__(self, name: str, level: int = logging.NOTSET) -> None:
        super().__init__(name, level)
        self._counts: collections.Counter[str] = collections.Counter()

    def _log(self, level: int, msg: object, args: Any, *rest: Any, log_limit: int | None = None, **facts: Any) -> None:
        text = str(msg)
        self._counts[text] += 1
        if log_limit is None or self._counts[text] <= log_limit:
            facts["stacklevel"] = facts.get("stacklevel", 1) + 1
            super()._log(level, msg, args, *rest, **facts)


samba_logger = SambaLogger("samba", logging.WARNING)
samba_logger.parent = logging.getLogger()


def set_level(level: str) -> None:
    """The least serious messages that are written. Raises `ValueError` for an unknown level."""
    if level.lower() not in LEVELS:
        raise ValueError(f"log levels are {', '.join(LEVELS)}, not {level!r}")
    samba_logger.setLevel(level.upper())
