"""What the PyBuda API names and this project does not do (yet): said clearly, and at once."""

from __future__ import annotations

from tbuda_lab.core.errors import TbudaError


class NotSupported(TbudaError, NotImplementedError):
    """A call of the PyBuda API that is known and not supported; the message says what to use instead."""


def not_supported(what: str, instead: str = "") -> NotSupported:
    return NotSupported(f"{what} is not supported{f'; {instead}' if instead else ''}")
