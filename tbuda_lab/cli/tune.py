"""`tbuda tune`: search on from a placement, with a line that tells how it goes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.cli.bringup import open_session, write_results
from tbuda_lab.cli.output import epoch_table, output_folder, summary
from tbuda_lab.cli.request import read_request, target_arguments
from tbuda_lab.cli.target import changed_settings, is_image
from tbuda_lab.core.errors import InputError, ModelError

if TYPE_CHECKING:
    from tbuda_lab.core.session import Islands

STEPS = 50
"""Of a round of islands."""
_EVERY = 0.5  # seconds between two lines


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register tune."""
    parser = subparsers.add_parser("tune", help="compile a model and search for a faster placement")
    target_arguments(parser)
    parser.add_argument("--seconds", type=float, default=None, metavar="S", help="seconds to search (default 30)")
    parser.add_argument(
        "--steps",
        type=int,
        default=None,
        metavar="N",
        help="steps to search instead of seconds; gives the same result every time",
    )
    parser.add_argument(
        "--islands", type=int, default=None, metavar="N", help="searches side by side, each of --steps a round"
    )
    parser.add_argument(
        "--rounds", type=int, default=None, metavar="N", help="how often islands go on from the best (default 10)"
    )
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="processes of islands, 0: this one (default; needs Dask)"
    )
    parser.add_argument("--scheduler", metavar="ADDRESS|FILE", help="a Dask scheduler that islands run on")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.set_defaults(handler=run_tune)


def _islands(arguments: argparse.Namespace) -> Islands | None:
    """The islands that are asked for. Raises `InputError` for settings of islands without them."""
    from tbuda_lab.core.session import Islands

    given = {"--rounds": arguments.rounds, "--workers": arguments.workers, "--scheduler": arguments.scheduler}
    if arguments.islands is None:
        named = [flag for flag, value in given.items() if value is not None]
        if named:
            raise InputError(f"{', '.join(named)}: of islands alone; give --islands N")
        return None
    if arguments.seconds is not None:
        raise InputError("islands search by steps: what they find does not depend on time; give --steps of a round")
    rounds = 10 if arguments.rounds is None else arguments.rounds
    if rounds < 1:
        raise InputError(f"--rounds {rounds}: give 1 or more")
    return Islands(arguments.islands, rounds, arguments.workers or 0, arguments.scheduler)


def run_tune(arguments: argparse.Namespace) -> int:
    """Compile, search, and write the folder that `tbuda compile` would write with the steps that were done."""
    if is_image(arguments.target):
        raise ModelError(f"{arguments.target} is compiled: tune FILE.py:FUNCTION")
    if arguments.seconds is not None and arguments.steps is not None:
        raise InputError("--seconds and --steps: give one of the two")
    if (arguments.seconds is not None and arguments.seconds <= 0) or (
        arguments.steps is not None and arguments.steps < 1
    ):
        raise InputError("a search takes more than 0 seconds, or 1 step and more")
    islands = _islands(arguments)
    request = read_request(arguments)
    with output_folder(arguments.out) as folder:
        session = open_session(arguments, request)
        last_report = [time.monotonic()]

        def tell(stage: str, fraction: float) -> None:
            if stage == "place" and time.monotonic() - last_report[0] >= _EVERY and sys.stderr.isatty():
                last_report[0] = time.monotonic()
                print(f"\r  searching: {fraction:.0%} of placement ", end="", file=sys.stderr, flush=True)

        session.on("stage", tell)
        steps = STEPS if islands is not None and arguments.steps is None else arguments.steps
        seconds = 30.0 if arguments.seconds is None and steps is None else arguments.seconds
        before = session.options
        curve = session.optimise(seconds, steps, islands=islands)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        changes = changed_settings(before, session.options)
        names = {word.partition("=")[0] for word in changes}
        stated = [word for word in request.set if word.partition("=")[0].strip().replace("-", "_") not in names]
        write_results(session, dataclasses.replace(request, set=(*stated, *changes)), folder, arguments.out)
    for done, cycles in curve:
        print(f"{done:6d} steps {cycles:14,.0f} cycles per input")
    print(epoch_table(session.compile()))
    print(summary(session.compile()))
    print(f"wrote {arguments.out}/: {', '.join(sorted(p.name for p in arguments.out.iterdir() if p.is_file()))}")
    return 0
