"""`tbuda script`: a script written for PyBuda, SambaFlow or PopXL, run as it is."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from pathlib import Path

from tbuda_lab import alias
from tbuda_lab.core.errors import InputError

WITHOUT_FORM = ("popart",)
"""Packages whose programs other people have, and nothing here stands for."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `tbuda script`."""
    parser = subparsers.add_parser(
        "script",
        help="run a Python script that imports pybuda, sambaflow or popxl on the simulated device",
        description="Run FILE as `python FILE` would, with our packages under the foreign names that it imports.",
    )
    parser.add_argument(
        "--replicas",
        metavar="N",
        help="replicas of popxl.Ir(replication='popdist'), those of all instances together",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the script")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="what the script gets as sys.argv")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """The exit code of the script; 1 after an exception, whose traceback begins in the script."""
    path: Path = arguments.file
    if not path.is_file():
        raise InputError(f"there is no script {path}")
    for name in alias.available():
        alias.install(name)
    argv, search, variables = sys.argv, list(sys.path), dict(os.environ)
    from tbuda_lab.dialects.replicas import TOTAL, asked_for_replicas

    if arguments.replicas is not None:
        os.environ[TOTAL] = arguments.replicas
    sys.argv = [str(path), *arguments.arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames or error.__traceback__)
        if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in WITHOUT_FORM:
            print(
                f"{error.name} has no form here: {', '.join(alias.available())} programs run as they are, "
                "PopART's own API does not; write the model with popxl, in torch, SambaFlow's way or PyBuda's",
                file=sys.stderr,
            )
        return 1
    finally:
        sys.argv, sys.path[:] = argv, search
        if arguments.replicas is not None:
            os.environ.pop(TOTAL, None)
            os.environ |= {TOTAL: variables[TOTAL]} if TOTAL in variables else {}
            if not asked_for_replicas():
                print(f"--replicas {arguments.replicas}: no popxl.Ir(replication='popdist') was made", file=sys.stderr)
    return 0
