"""The command line of SambaFlow programs: compile, run, test, measure-performance."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import yaml_map

AddArguments = Callable[[argparse.ArgumentParser], Any]
COMMANDS = ("compile", "run", "test", "measure-performance")


def _common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-b", "--batch-size", type=int, default=1, help="samples of one run")
    add("--inference", action="store_true", help="forward sections alone")
    add("-p", "--pef", default="", help="the compiled PEF")
    add("--pef-name", default=None, help="name of the PEF; default: time and process")
    add("--output-folder", default="out", help="where PEFs go")
    add("--mapping", choices=("section", "spatial"), default="section")
    add("--strict", action="store_true", help="refuse ops on the host that have no reason to be there")
    add("--num-spatial-batches", type=int, default=1, help="batches of one run of a spatial PEF")
    add("--data-parallel", action="store_true", help="replicas that average their gradients")
    add("--reduce-on-rdu", action="store_true", help="the devices average gradients, not the host")
    add("-ws", "--world-size", type=int, default=1, help="number of replicas")
    add("--data-parallel-mode", choices=("normal", "inorder", "optimal"), default="normal")
    add("--distlearn-config", default=None)
    add("--num-iterations", type=int, default=100, help="runs of measure-performance")
    add("--min-duration", type=float, default=0.0, help="least seconds of measure-performance")
    add("--n-chips", type=int, default=1)
    add("--visualize", action="store_true")
    add("--enable-profiler", action="store_true")
    add("--profiler-trace", default=None)
    add("--optimization-rules", default=None)
    for level in (0, 1, 3):
        add(f"-o{level}", dest="optimization_level", action="store_const", const=level)


def build_parser(
    common_parser_fn: AddArguments | None = None,
    run_parser_fn: AddArguments | None = None,
    test_parser_fn: AddArguments | None = None,
) -> argparse.ArgumentParser:
    """The parser of a program: its own arguments may replace those of the framework."""
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        sub = commands.add_parser(name, conflict_handler="resolve")
        _common(sub)
        for add in (common_parser_fn, run_parser_fn if name != "compile" else None,
                    test_parser_fn if name == "test" else None):  # fmt: skip
            if add is not None:
                add(sub)
    return parser


def parse_app_args(
    argv: Sequence[str] | None = None,
    common_parser_fn: AddArguments | None = None,
    run_parser_fn: AddArguments | None = None,
    test_parser_fn: AddArguments | None = None,
    dev_mode: bool = False,
) -> argparse.Namespace:
    """The arguments of a program. Raises `SystemExit` as argparse does."""
    arguments = build_parser(common_parser_fn, run_parser_fn, test_parser_fn).parse_args(argv)
    if arguments.pef_name is None:
        arguments.pef_name = f"pef_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}"
    arguments.dev_mode = dev_mode
    _apply(arguments)
    return arguments


def parse_yaml_to_args(path: str, args: argparse.Namespace) -> argparse.Namespace:
    """Arguments with values from a YAML file of `name: value`, which come before the command line's defaults.

    Raises `InputError` for a file that is no such map, and for a name that no argument has.
    """
    values = {str(k).replace("-", "_"): v for k, v in yaml_map(Path(path), "an argument file").items()}
    unknown = [k for k in values if k not in vars(args)]
    if unknown:
        raise InputError(f"{path}: no argument {', '.join(unknown)}; there are {', '.join(sorted(vars(args)))}")
    merged = argparse.Namespace(**{**vars(args), **values})
    _apply(merged)
    return merged


def _apply(arguments: argparse.Namespace) -> None:
    """The session's own settings follow the command line."""
    from tbuda_lab import samba

    samba.session.settings |= {"world_size": arguments.world_size}
