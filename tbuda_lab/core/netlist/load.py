"""Netlists from files and text."""

from __future__ import annotations

from pathlib import Path

from tbuda_lab.core.errors import InputError, NetlistError
from tbuda_lab.core.files import bounded_text
from tbuda_lab.core.netlist.reader import read_text
from tbuda_lab.core.netlist.schema import Netlist

MAX_BYTES = 256 << 20  # of a netlist's text


def load(path: str | Path, *, lenient: bool = False) -> Netlist:
    """Reads a netlist file.

    Raises NetlistError with every problem of the text, each with its line; `lenient=True` returns what could be read
    instead, with the problems in `Netlist.problems`, so that a broken file can be shown. A file that cannot be opened
    or decoded raises NetlistError in both cases.
    """
    try:
        text = bounded_text(Path(path), MAX_BYTES, "is no netlist")
    except InputError as error:
        raise NetlistError(str(error)) from error
    return loads(text, lenient=lenient, path=str(path))


def loads(text: str, *, lenient: bool = False, path: str | None = None) -> Netlist:
    """The same for the text of a netlist; `path` only names it in messages."""
    netlist = read_text(text, path)
    if netlist.problems and not lenient:
        count = len(netlist.problems)
        raise NetlistError(f"{path or 'the netlist'} has {count} problem{'s' * (count > 1)}",
                           [p.diagnostic(path) for p in netlist.problems])
    return netlist
