"""`tbuda netlist`: check, run, roundtrip and show netlists of any origin."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError, quantity
from tbuda_lab.core.files.atomic import atomic_text
from tbuda_lab.core.netlist.cores import cases as core_cases
from tbuda_lab.core.netlist.routing import cases as edge_cases

_PROFILES = """\
profiles:
  backend   what no machine can run is an error (the default): what parser, router and golden model refuse, shapes
            that do not fit, cores and channels that do not exist, queues that overlap in memory, buffers beyond L1
  strict    also what they let pass: loops without end, inputs that nothing reads, addresses that are not aligned
What only `strict` refuses is a warning in `backend`.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers `netlist` and its sub-commands."""
    parser = subparsers.add_parser("netlist", help="check, run, rewrite and show netlists")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser(
        "check",
        help="check a netlist; one line per error on stderr, exit code 1",
        epilog=_PROFILES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("file", type=Path)
    command.add_argument("--arch", help="arch, board or device descriptor; default: the first that the netlist names")
    command.add_argument("--profile", choices=("backend", "strict"), default="backend")
    command.set_defaults(handler=_check)

    command = commands.add_parser("run", help="run all programs of a netlist on arrays")
    command.add_argument("file", type=Path)
    command.add_argument("--inputs", type=Path, required=True, help=".npz: (entries, t, R, C) of each host-fed queue")
    command.add_argument("--outputs", type=Path, required=True, help=".npz to write")
    command.add_argument("--mode", choices=("golden", "device"), default="golden")
    command.add_argument("--arch", help="default: the first arch of the netlist")
    command.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the programs; those not given are 1",
    )
    command.add_argument(
        "--max-steps",
        type=_steps,
        metavar="N",
        default=None,
        help="instructions and inputs that a program may run (default 10000000); a loop that takes "
        "more is refused before it begins",
    )
    command.set_defaults(handler=_run)

    _add_judges(commands)

    command = commands.add_parser("roundtrip", help="write a netlist in the canonical layout")
    command.add_argument("file", type=Path)
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(handler=_roundtrip)

    command = commands.add_parser("show", help="text grid of each epoch, queues, programs")
    command.add_argument("file", type=Path)
    command.add_argument("--graph", help="show only this graph")
    command.add_argument("--arch", help="default: the first arch of the netlist")
    command.set_defaults(handler=_show)


def _add_judges(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-commands that judge files of cases."""
    command = commands.add_parser(
        "edges",
        help="judge edges by the router's rules; JSON lines in and out",
        description="Judges edges by the rules that balancer and `netlist check` go by. A "
        "case has producer, tms, consumer, arch and input_count; the answer id, verdict and "
        "rule.",
    )
    command.add_argument("cases", type=Path, metavar="CASES.jsonl")
    command.add_argument("--out", type=Path, required=True, metavar="OUT.jsonl")
    command.set_defaults(handler=_judge, judge=edge_cases.judge_file)

    command = commands.add_parser(
        "cores",
        help="judge cores: bytes of L1 by kind, and streams; JSON lines in and out",
        description="Judges the cores of epochs by the rules that balancer and `netlist "
        "check` go by. A case has ops, arch and input_count; the answer id, verdict, class, "
        "and for groups of cores the bytes by kind and the extra streams.",
    )
    command.add_argument("cases", type=Path, metavar="CASES.jsonl")
    command.add_argument("--out", type=Path, required=True, metavar="OUT.jsonl")
    command.set_defaults(handler=_judge, judge=core_cases.judge_file)


def _check(arguments: argparse.Namespace) -> int:
    """Errors go to stderr and warnings to stdout, one line each."""
    n = netlist.load(arguments.file, lenient=True)
    findings = netlist.check(n, arguments.arch, arguments.profile)
    errors = 0
    for finding in findings:
        wrong = finding.severity == "error"
        errors += wrong
        print(finding.text(str(arguments.file)), file=sys.stderr if wrong else sys.stdout)
    if not errors:
        ops = sum(len(graph.ops) for graph in n.graphs.values())
        parts = (len(n.queues), "queue"), (len(n.graphs), "graph"), (ops, "op")
        print(f"{arguments.file}: valid: {', '.join(quantity(*part) for part in parts)}")
    return 1 if errors else 0


def _judge(arguments: argparse.Namespace) -> int:
    """Legal and illegal are both answers: the exit code is 0 for either."""
    try:
        cases = arguments.cases.open(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {arguments.cases}: {error.strerror or error}") from error
    with cases, atomic_text(arguments.out) as out:
        try:
            for line in arguments.judge(cases):
                out.write(line + "\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{arguments.cases} is not UTF-8 text") from error
    return 0


def _roundtrip(arguments: argparse.Namespace) -> int:
    netlist.dump(netlist.load(arguments.file), arguments.out)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    n = netlist.load(arguments.file, lenient=True)
    for problem in n.problems:
        print(problem.text(str(arguments.file)), file=sys.stderr)
    sys.stdout.write(netlist.show(n, arguments.graph, arguments.arch))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from tbuda_lab.sim import files

    files.run_file(
        arguments.file,
        arguments.inputs,
        arguments.outputs,
        mode=arguments.mode,
        arch=arguments.arch,
        params=read_params(arguments.param),
        max_steps=arguments.max_steps or files.MAX_STEPS,
    )
    return 0


def _steps(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps: 1 or more")
    return int(text)


def read_params(items: list[str]) -> dict[str, int]:
    """`NAME=VALUE` pairs; the `$` before a name may be left out. Raises InputError."""
    out: dict[str, int] = {}
    for item in items:
        name, equals, text = item.partition("=")
        try:
            value = {"true": 1, "false": 0}[text.lower()] if text.lower() in ("true", "false") else int(text, 0)
        except ValueError:
            equals = ""
            value = 0
        if not equals or not name:
            raise InputError(f"--param {item}: write NAME=VALUE, where VALUE is a whole number, true or false")
        out[name if name.startswith("$") else f"${name}"] = value
    return out
