"""`tbuda diff`: what differs between two placements, and whether the second is slower than allowed."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.cli.profile import print_findings
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import atomic_file

if TYPE_CHECKING:
    from tbuda_lab.core.diff import Diff

EPILOG = """\
A and B are folders of `tbuda compile` or netlist files of any origin, or two measured runs (ops_perf_results*.csv, or
traces as JSON), whose ops are aligned and whose times are in ns; with --session they are checkpoints of that file
("start": as it was opened, "now": with all its edits).

exit codes: 0 done, and not slower than allowed; 1 slower than --fail-if-slower allows; 2 bad input, and, where
--fail-if-slower is given, measured runs with rows that are cut or have no time, or of other work (--allow-other-ops).

  tbuda diff build/main build/branch --fail-if-slower 3% > summary.md
  tbuda diff start now --session edits.buda.json --model model.py:make_model
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register diff."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two compiles or netlists; a gate for CI",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help="before")
    parser.add_argument("b", metavar="B", help="after")
    parser.add_argument(
        "--fail-if-slower",
        type=percentage,
        default=None,
        metavar="PERCENT",
        help="exit code 1 if B takes more than this longer than A, e.g. 3%%",
    )
    parser.add_argument(
        "--allow-other-ops",
        action="store_true",
        help="with --fail-if-slower: compare measured runs whose ops, shapes or ways of measuring differ",
    )
    parser.add_argument("--limit", type=_count, default=25, metavar="N", help="ops and queues listed (default 25)")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="also write a page with grids and table")
    parser.add_argument("--session", type=Path, metavar="FILE.buda.json", help="A and B are checkpoints of this file")
    parser.add_argument("--model", metavar="FILE.py:FUNCTION", help="with --session: the model that was edited")
    parser.add_argument("--arch", help="arch, board or device file of netlists; default: the netlist's first arch")
    parser.set_defaults(handler=run_diff)


def run_diff(arguments: argparse.Namespace) -> int:
    """Print the summary; 0, 1 if slower than allowed, 2 if a side cannot be read."""
    try:
        diff = _diff(arguments)
        print_findings((*diff.before.findings, *diff.after.findings))
        if arguments.fail_if_slower is not None and diff.doubts:
            raise InputError(
                "\n  ".join(("speed cannot be compared; profile again, or leave --fail-if-slower out", *diff.doubts))
            )
        if arguments.fail_if_slower is not None and diff.other_work and not arguments.allow_other_ops:
            reasons = "\n  ".join(diff.other_work)
            raise InputError(
                f"the runs are not of the same work; --allow-other-ops compares them all the same\n  {reasons}"
            )
        if arguments.fail_if_slower is not None and not diff.limiter_cycles[0]:
            raise InputError(f"{diff.a}: no cycles are known, so speed cannot be compared")
        if arguments.html is not None:
            _write_page(diff, arguments.html)
    except TbudaError as error:
        print(f"tbuda: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(diff.to_markdown(arguments.limit))
    if arguments.fail_if_slower is None or diff.slower <= arguments.fail_if_slower:
        return 0
    print(
        f"tbuda: {diff.b} is {100 * diff.slower:.2f} % slower than {diff.a}; "
        f"{100 * arguments.fail_if_slower:g} % is allowed",
        file=sys.stderr,
    )
    return 1


def _diff(arguments: argparse.Namespace) -> Diff:
    if arguments.allow_other_ops and arguments.fail_if_slower is None:
        raise InputError("--allow-other-ops: with --fail-if-slower alone; without it any two runs are compared")
    if (arguments.session is None) != (arguments.model is None):
        raise InputError("--session and --model belong together: the edits, and the model that was edited")
    if arguments.session is None:
        from tbuda_lab.core.diff import compare_sides, file_sides

        return compare_sides(*file_sides(arguments.a, arguments.b, arch=arguments.arch))
    if arguments.arch is not None:
        raise InputError(f"--arch {arguments.arch}: of netlists alone; {arguments.session} says its device")
    from tbuda_lab.cli.target import load_target
    from tbuda_lab.core.session import Session

    target = load_target(arguments.model)
    return Session.open(arguments.session, target.module, target.inputs).diff(arguments.a, arguments.b)


def _write_page(diff: Diff, path: Path) -> None:
    from tbuda_lab.widgets.report import diff_html

    text = diff_html(diff)
    with atomic_file(path) as file:
        file.write_text(text, encoding="utf-8")


def percentage(text: str) -> float:
    """The share of "3%", for a parser."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage; write for example 3%")
    return value / 100


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ops")
    return int(text)


__all__ = ["add_parser", "percentage", "run_diff"]
