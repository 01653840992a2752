"""Parser and exit codes of `tbuda`.

Exit codes: 0 done; 1 what was asked cannot be done (one typed error on stderr says why and what to do); 2 the command
line itself is wrong (for `diff` also: a side cannot be read); 130 interrupted. A sub-command is a module with
`add_parser(subparsers)` that sets `handler`, a function from the parsed arguments to an exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tbuda_lab._version import __version__
from tbuda_lab.cli import bringup, cost, demo, diff, doctor, explore, export, netlist, profile, script, share, tti, tune
from tbuda_lab.core.errors import TbudaError

COMMANDS = (bringup, tune, explore, script, diff, share, netlist, tti, export, profile, cost, demo, doctor)


def build_parser() -> argparse.ArgumentParser:
    """The parser with every sub-command registered."""
    parser = argparse.ArgumentParser(
        prog="tbuda", description="Trace a model, place it on a grid of Tensix cores, run it without hardware."
    )
    parser.add_argument("--version", action="version", version=f"tbuda {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Only wrong usage leaves by `SystemExit`, as argparse does."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.handler(arguments) or 0)
    except TbudaError as error:
        print(f"tbuda: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tbuda: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) has gone. Point stdout elsewhere, or the interpreter complains when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
