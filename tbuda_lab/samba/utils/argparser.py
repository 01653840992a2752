"""The command line of SambaFlow programs: compile, run, test, measure-performance."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import yaml_map
from tbuda_lab.samba.sambaflow.logging import LEVELS, set_level
from tbuda_lab.samba.session import SESSION
from tbuda_lab.samba.utils.calls import set_seed

AddArguments = Callable[[argparse.ArgumentParser], Any]
COMPILES = (
    "pef_name",
    "output_folder",
    "mapping",
    "inference",
    "num_spatial_batches",
    "optimization_level",
    "data_parallel",
)
"""Arguments that `session.compile` follows where the program gives it no `config_dict`."""
COMMANDS = ("compile", "run", "test", "measure-performance")


def _common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-b", "--batch-size", type=int, default=1, help="samples per run")
    add("--inference", action="store_true", help="compile forward sections only")
    add("-p", "--pef", default="", help="path of the compiled PEF")
    add("--pef-name", default=None, help="name of the PEF; default: time and process")
    add("--output-folder", default="out", help="folder for compiled PEFs")
    add("--mapping", choices=("section", "spatial"), default="section")
    add("--strict", action="store_true", help="refuse ops that would run on the host without an accepted reason")
    add("--num-spatial-batches", type=int, default=1, help="batches per run of a spatial PEF")
    add("--data-parallel", action="store_true", help="train replicas that average their gradients")
    add("--reduce-on-rdu", action="store_true", help="average gradients on the devices, not on the host")
    add("-ws", "--world-size", type=int, default=1, help="number of replicas")
    add("--data-parallel-mode", choices=("normal", "inorder", "optimal"), default="normal")
    add("--distlearn-config", default=None)
    add("--num-iterations", type=int, default=100, help="runs of measure-performance")
    add("--min-duration", type=float, default=0.0, help="shortest duration of measure-performance, in seconds")
    add("--n-chips", type=int, default=1)
    add("--visualize", action="store_true")
    add("--enable-profiler", action="store_true", help="write samba_profile.json, a Chrome trace, at the end")
    add("--profiler-trace", default=None, help="write the Chrome trace to this file")
    add("--optimization-rules", default=None)
    add("--log-level", default="warning", choices=LEVELS, type=str.lower, help="least serious messages that are shown")
    add("--num-tiles", type=int, default=None)
    add("--resources-scaling-factors", type=float, nargs="*", default=None)
    add("--arch", default=None)
    for level in (0, 1, 3):
        add(
            f"-o{level}",
            dest="optimization_level",
            action="store_const",
            const=level,
            help="make every op a section of its own" if level == 0 else "put as many ops into a section as fit",
        )


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
        for add in (
            common_parser_fn,
            run_parser_fn if name != "compile" else None,
            test_parser_fn if name == "test" else None,
        ):
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
    _warn(arguments)
    _apply(arguments)
    return arguments


WITHOUT_EFFECT = {
    "n_chips": "a graph runs on one device",
    "visualize": "tbuda_lab.widgets.BringUp(PEF) shows the graph",
    "num_tiles": "a graph has all cores of a device",
    "resources_scaling_factors": "the placer weighs the resources of a section itself",
    "arch": "graphs are placed on the device that the session simulates",
    "optimization_rules": "the compiler decides which ops share a section",
    "distlearn_config": "replicas run in this process: --data-parallel --world-size N",
}
"""Options that scripts may give and nothing reads, and why or what works instead."""


def _warn(arguments: argparse.Namespace) -> None:
    """Options without effect are named where they are given."""
    for name, why in WITHOUT_EFFECT.items():
        default = 1 if name == "n_chips" else None
        if getattr(arguments, name, None) not in (None, False, default):
            warnings.warn(f"--{name.replace('_', '-')} has no effect here: {why}", stacklevel=3)


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
    """The session's own settings, the logger and, with `SAMBA_SEED` in the environment, the generators follow the
    command line. Raises `InputError` for a seed that is no whole number."""
    world_size = getattr(arguments, "world_size", 1)
    if world_size < 1:
        raise InputError(f"--world-size is at least 1, not {world_size}")
    if seed := os.environ.get("SAMBA_SEED", ""):
        if not seed.strip().isdecimal() or int(seed) >= 2**32:
            raise InputError(f"SAMBA_SEED is a whole number below 2^32, not {seed!r}")
        set_seed(int(seed))
    set_level(getattr(arguments, "log_level", "warning"))
    SESSION.settings |= {name: getattr(arguments, name) for name in COMPILES if hasattr(arguments, name)} | {
        "world_size": world_size,
        "strict": bool(getattr(arguments, "strict", False)),
        "data_parallel_mode": getattr(arguments, "data_parallel_mode", "normal"),
    }
    if getattr(arguments, "enable_profiler", False) or getattr(arguments, "profiler_trace", None):
        SESSION.start_samba_profile()
        SESSION.atexit_register(
            SESSION.end_samba_profile, getattr(arguments, "profiler_trace", None) or "samba_profile.json"
        )
