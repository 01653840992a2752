"""Errors of PopXL programs. Everything that is not here is the plain Python error that PopXL raises."""

from __future__ import annotations

from tbuda_lab.core.errors import TbudaError


class popart_exception(TbudaError, RuntimeError):
    """A graph or a call that cannot be: shapes that do not fit, an order that is ambiguous, a graph without ops."""


class poplar_application_runtime_error(popart_exception):
    """What a program finds out while it runs: a scale of 8-bit floats that is out of range."""


class UndefinedValue(Exception):
    """A property of a tensor that nothing has decided yet, such as the IPU of a tensor that no op reads or makes."""
