"""Netlists from files and text."""

from __future__ import annotations

from pathlib import Path

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.netlist.reader import read_text
from tbuda_lab.core.netlist.schema import Netlist


def load(path: str | Path, *, lenient: bool = False) -> Netlist:
    """Reads a netlist file.

    Raises NetlistError with every problem of the text, each with its line; `lenient=True` returns what could be read
    instead, with the problems in `Netlist.problems`, so that a broken file can be shown. A file that cannot be opened
    or decoded raises NetlistError in both cases.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NetlistError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a NUL in the name
        raise NetlistError(f"{str(path)!r} is not a file name: {error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NetlistError(f"{path} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from error
    return loads(text, lenient=lenient, path=str(path))


def loads(text: str, *, lenient: bool = False, path: str | None = None) -> Netlist:
    """The same for the text of a netlist; `path` only names it in messages."""
    netlist = read_text(text, path)
    if netlist.problems and not lenient:
        count = len(netlist.problems)
        raise NetlistError(f"{path or 'the netlist'} has {count} problem{'s' * (count > 1)}",
                           [p.diagnostic(path) for p in netlist.problems])
    return netlist
