"""Diagnostics and the typed errors that carry them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """What a stage says: severity "error", "warning" or "note"; `where` names the element; `fix`: what is legal."""

    severity: str
    where: str
    rule: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.severity}: {self.where}: {self.message} [{self.rule}]"
        return f"{text}; {self.fix}" if self.fix else text


def quantity(count: int, noun: str) -> str:
    """ "1 op", "2 ops": for the messages of findings and errors."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


HOST_FIX = "write it with supported ops, or run this part of the model on the host (CPUDevice)"
"""What to do about an op that cannot be placed and that CPU fallback does not take either."""


class TbudaError(Exception):
    """Base of every error of ours that a user can act on. `diagnostics` holds all findings, worst first."""

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        self.diagnostics = tuple(diagnostics)
        lines = [message, *(f"  {d}" for d in self.diagnostics)]
        super().__init__("\n".join(lines))


class UnsupportedOp(TbudaError):
    """Ops that no stage can map; one diagnostic for each, with module path and source line.

    ops: the names of their nodes, where the stage worked on a graph.
    """

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = (), ops: Sequence[str] = ()) -> None:
        self.ops = tuple(ops)
        super().__init__(message, diagnostics)


class ModelError(TbudaError):
    """The model cannot be traced: data-dependent control flow, wrong inputs, not a module."""


class InputError(TbudaError):
    """An input of the wrong shape, dtype or count."""


class OverrideError(TbudaError):
    """An override that cannot be honoured."""


class PlacementError(TbudaError):
    """An op or queue that fits nowhere; the diagnostics say what would."""


class NetlistError(TbudaError):
    """A netlist that cannot be read or is not valid."""


class UnknownDevice(TbudaError):
    """A device, board or arch name that is not known."""


class OutputError(TbudaError):
    """A result that cannot be written where asked."""


class QueueError(TbudaError):
    """Push to a full queue, pop from an empty one, a pointer out of range."""


class Cancelled(TbudaError):
    """The user cancelled a running compile or run."""


def need_known(*names: tuple[str, str, Sequence[str]]) -> None:
    """names: what is named, the name, all names there are. Raises `PlacementError` with a diagnostic for each name that
    there is not."""
    wrong = [(what, name, legal) for what, name, legal in names if name not in legal]
    if wrong:
        raise PlacementError(
            "; ".join(f"unknown {what} {name!r}" for what, name, _ in wrong),
            [
                Diagnostic("error", name, "name-in-options", f"no such {what}", f"known: {', '.join(legal)}")
                for what, name, legal in wrong
            ],
        )


class NotSupported(TbudaError, NotImplementedError):
    """A call of the PyBuda API that is known and not supported; the message says what to use instead."""


def not_supported(what: str, instead: str = "") -> NotSupported:
    return NotSupported(f"{what} is not supported{f'; {instead}' if instead else ''}")


class WorkerLost(TbudaError, RuntimeError):
    """A worker process died, and what it held with it."""


class PipelineError(TbudaError, RuntimeError):
    """Devices, modules and inputs that do not go together."""


class BatchError(InputError, RuntimeError):
    """An input that is not like the one the pipeline was compiled for."""
