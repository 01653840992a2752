"""`tbuda share`: one page to send, in which the reader can drag; `tbuda bisect`: the op that is wrong."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from tbuda_lab.cli.bringup import open_session
from tbuda_lab.cli.request import read_request, target_arguments
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import atomic_file


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register share and bisect."""
    share = subparsers.add_parser(
        "share",
        help="one page to send: works from a file, and its reader can drag",
        description="Writes the report with the cost tables of the best single edits, so that who gets it can try them "
        "without tbuda. No request leaves the page.",
    )
    target_arguments(share)
    share.add_argument("--out", type=Path, default=Path("share.html"), metavar="FILE.html")
    share.add_argument(
        "--edits", type=int, default=50, metavar="N", help="best edits to search for (default %(default)s)"
    )
    share.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="time to search for edits (default %(default)g)"
    )
    share.add_argument("--profile", type=Path, metavar="FILE", help="a measured run to lay over it")
    share.set_defaults(handler=run_share)

    bisect = subparsers.add_parser(
        "bisect",
        help="find the op that is wrong, and the stage where it goes wrong first",
        description="Compares stage after stage: traced graph, passes, lowering, netlist without rounding, with "
        "formats and, with --mode device, as the machine rounds. Exit code 0: right "
        "everywhere; 1: an op is wrong; 2: it cannot be looked for.",
    )
    target_arguments(bisect)
    bisect.add_argument("--mode", choices=("golden", "device"), default="golden", help="how far to go")
    bisect.add_argument(
        "--goldens",
        type=Path,
        metavar="FILE",
        help="values of ops from outside: .npz, .safetensors, or .jsonl with a name and values in each line",
    )
    bisect.add_argument(
        "--pcc",
        type=float,
        default=0.99,
        metavar="BAR",
        help="lowest correlation of an output with its formats (default %(default)s)",
    )
    bisect.add_argument("--ops", type=int, default=5, metavar="N", help="ops with the largest own error to list")
    bisect.set_defaults(handler=run_bisect)


def run_share(arguments: argparse.Namespace) -> int:
    """Compile, search for edits, and write the page."""
    from tbuda_lab.widgets.report import report_html, shared_tables

    if arguments.edits < 1 or not 0 < arguments.seconds < math.inf:
        raise InputError("a page has 1 edit or more, and more than 0 seconds to search for them")
    request = read_request(arguments)
    with atomic_file(arguments.out) as file:
        session = open_session(arguments, request)
        if arguments.profile is not None:
            session.load_profile(arguments.profile)
        tables = shared_tables(session, arguments.edits, arguments.seconds)
        text = report_html(session, tables=tables)
        file.write_text(text, encoding="utf-8")
    count = len(tables["suggest"])
    edits = f"{count} edit{'s' * (count > 1)} that gain{'s' * (count == 1)}" if count else "no single edit gains"
    print(f"wrote {arguments.out}: {len(text.encode()) / 1e6:.1f} MB, {edits}, tables of {tables['count']} ops to drag")
    return 0


def run_bisect(arguments: argparse.Namespace) -> int:
    """Print where it goes wrong first; 1 where it does, 2 where it cannot be looked for."""
    from tbuda_lab.core.session.find_error.report import WORTH

    try:
        if arguments.ops < 0:
            raise InputError(f"--ops {arguments.ops}: ops to list are 0 or more")
        session = open_session(arguments, read_request(arguments))
        report = session.find_error(mode=arguments.mode, goldens=arguments.goldens, min_pcc=arguments.pcc)
    except TbudaError as error:
        print(f"tbuda: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(report)
    worst = sorted(report.ops, key=lambda op: -op.isolated.relative_l2)[: arguments.ops]
    if worst:
        print(f"{'op':56} {'own':>9} {'accumulated':>12} {'pcc':>9} {'largest':>10} {'ulps':>9}")
    for op in worst:
        print(
            f"{op.op[-56:]:56} {op.isolated.relative_l2:9.2g} {op.accumulated.relative_l2:12.2g} "
            f"{'constant' if op.accumulated.constant else f'{op.accumulated.pcc:.6f}':>9} "
            f"{op.accumulated.max_abs:10.3g} {op.accumulated.ulps:9.2g}"
        )
    for cost in (c for c in report.costs if c.share > 0):
        worth = cost.instead and cost.share >= WORTH * report.error
        print(
            f"{cost.df} at {cost.op} costs {cost.share:.2g} of {report.error:.2g}"
            + (f": {cost.instead} instead" if worth else "")
        )
    return 0 if report.right else 1


__all__ = ["add_parser", "run_bisect", "run_share"]
