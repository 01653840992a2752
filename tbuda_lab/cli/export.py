"""`tbuda export`: netlist, overrides, table, trace, report or image of a model, a compiled folder or edited session."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.cli.bringup import open_session
from tbuda_lab.cli.request import COMPILE_FLAGS, flags_given, read_request, target_arguments
from tbuda_lab.cli.target import is_image
from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.files import check_writable

if TYPE_CHECKING:
    from tbuda_lab.core.session import Session


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers `export` and its kinds; flags are the settings of `core.session.EXPORTS`."""
    parser = subparsers.add_parser("export", help="write a netlist, table, trace, picture, ... of a model")
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)

    def kind(name: str, text: str) -> argparse.ArgumentParser:
        command = kinds.add_parser(name, help=text)
        target_arguments(command, batch=name != "trace")
        command.add_argument(
            "--edits",
            type=Path,
            metavar="FILE.buda.json",
            help="the edits of a session; device, options and overrides are the file's",
        )
        command.add_argument("--out", type=Path, metavar="FILE", help="default: the model's name")
        command.set_defaults(handler=_export, kind=name)
        return command

    def switch(command: argparse.ArgumentParser, flag: str, text: str, *, default: bool) -> None:
        command.add_argument(flag, action=argparse.BooleanOptionalAction, default=default, help=text)

    command = kind("netlist", "write the netlist as YAML")
    switch(command, "--cycles", "write NAME.cycles.csv beside it", default=True)
    switch(command, "--validate", "read the text back and check it before it is written", default=False)
    command = kind("overrides", "write the edits as PyBuda's calls, or as JSON")
    command.add_argument("--form", choices=("python", "json", "both"), default="python")
    kind("table", "write one line per op (CSV; Parquet if FILE ends in .parquet)")
    command = kind("trace", "write a timeline as Chrome trace JSON")
    command.add_argument("--batch", type=int, default=8, help="how many inputs")
    command = kind("tti", "write a device image: the compiled model in one archive")
    command.add_argument("--name", default="", help="of the device image; default: the model's")
    switch(command, "--weights", "include the weights", default=True)
    command.add_argument(
        "--dump-format", choices=("default", "backend"), default="default", help="tensors as .npy, or as raw numbers"
    )
    command = kind("report", "write one HTML page that works offline")
    switch(command, "--verify", "run one sample and compare it with torch", default=False)
    command.add_argument("--pages", default="all", metavar="A,B", help="parts of it, e.g. summary,epochs; default: all")
    command.add_argument(
        "--redact",
        default="nothing",
        choices=("nothing", "names", "shapes", "both"),
        help="leave out names, shapes or both, and the netlist",
    )
    kind("plots", "write one page of plots that works offline (Bokeh)")
    command = kind("image", "write the grid of an epoch or a graph (SVG)")
    command.add_argument("--view", choices=("grid", "graph"), default="grid")
    command.add_argument("--epoch", type=int, help="with --view grid: which epoch (default 0)")
    command.add_argument(
        "--stage", choices=("traced", "passed", "lowered"), help="with --view graph: which graph (default lowered)"
    )


_NOT_SETTINGS = {
    "handler",
    "kind",
    "target",
    *COMPILE_FLAGS,
    "no_cache",
    "edits",
    "out",
}


def _export(arguments: argparse.Namespace) -> int:
    import tbuda_lab.widgets.handlers.exports  # noqa: F401  adds its kinds
    from tbuda_lab.core.session import EXPORTS

    settings = {name: value for name, value in vars(arguments).items() if name not in _NOT_SETTINGS}
    for name, only in [(s.name, s.only) for s in EXPORTS[arguments.kind].settings if s.only is not None]:
        if settings[name] is None:
            del settings[name]  # not given
        elif settings[only[0]] != only[1]:
            raise InputError(f"--{name} means nothing to --{only[0]} {settings[only[0]]}; leave one of them out")
    session = _open(arguments)
    export = session.export(arguments.kind, arguments.out, **settings)
    check_writable(export.path)  # before the work
    print(f"wrote {export.write()}")
    return 0


def _open(arguments: argparse.Namespace) -> Session:
    if arguments.edits is None:
        return open_session(arguments, read_request(arguments))
    return edited_session(arguments, arguments.edits)


def edited_session(arguments: argparse.Namespace, edits: Path) -> Session:
    """The session of a `*.buda.json` file on the model of a command line. Raises `ModelError` for flags that the file
    decides."""
    from tbuda_lab.cli.target import load_target
    from tbuda_lab.core.session import Session

    flags = flags_given(arguments, but=("seed",))
    if flags:
        raise ModelError(f"{edits} says device, options and overrides: leave {flags} out")
    request, cache = read_request(arguments), not arguments.no_cache
    if is_image(request.target):  # the edits of the graph in it
        image = Session.open(request.target)
        session = Session.open(edits, image.model, image.sample_inputs, cache=cache)
    else:
        target = load_target(request.target, seed=request.seed)
        session = Session.open(edits, target.module, target.inputs, cache=cache)
    session.source = (arguments.target,)
    return session
