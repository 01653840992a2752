"""`tbuda profile import`: reads a measured profile, says what is in it, and matches it to a model."""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.measured.op_codes import OTHER

if TYPE_CHECKING:
    from tbuda_lab.core.measured import MeasuredProfile
    from tbuda_lab.core.measured.overlay import MeasuredOverlay

_SHOWN = 12
_NOTES = 3


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register profile."""
    profile = subparsers.add_parser("profile", help="read measured profiles, and match them to a model")
    commands = profile.add_subparsers(title="commands", metavar="COMMAND", required=True)
    read = commands.add_parser(
        "import",
        help="read ops_perf_results.csv or a trace",
        description="Reads TT-Metal's ops_perf_results*.csv, a trace of `tbuda export trace`, or one of Chrome or "
        "Perfetto. Prints where the time went; with a model, which op is which and measured beside "
        "predicted.",
    )
    read.add_argument("file", type=Path, metavar="FILE")
    read.add_argument("--model", metavar="FILE.py:FUNCTION", help="the model that ran")
    read.add_argument("--device", metavar="NAME", help="with --model: what it is placed on (default: wormhole_b0)")
    read.add_argument(
        "--kernels", type=Path, metavar="FILE.yaml", help="with --model: a table of `tbuda calibrate --profile`"
    )
    read.set_defaults(handler=run_import)


def run_import(arguments: argparse.Namespace) -> int:
    """Print the profile, and with a model what each of its ops took."""
    from tbuda_lab.core.measured import read_profile

    if arguments.model is None:
        idle = [flag for flag in ("--device", "--kernels") if getattr(arguments, flag[2:]) is not None]
        if idle:
            raise InputError(f"{' and '.join(idle)}: of a model alone; give --model FILE.py:FUNCTION")
    profile = read_profile(arguments.file)
    print_findings(profile.findings)
    print(profile_text(profile))
    if arguments.model is not None:
        from tbuda_lab.cli.target import load_target
        from tbuda_lab.core.session import Session

        target = load_target(arguments.model)
        session = Session(target.module, target.inputs, arguments.device or "wormhole_b0", name=target.name)
        print(overlay_text(session.load_profile(profile, arguments.kernels)))
    return 0


def print_findings(findings: Sequence[Diagnostic]) -> None:
    """The first of them, to the errors' stream."""
    for finding in findings[:_SHOWN]:
        print(finding, file=sys.stderr)
    if len(findings) > _SHOWN:
        print(f"and {len(findings) - _SHOWN} more findings", file=sys.stderr)


def profile_text(profile: MeasuredProfile) -> str:
    """Totals by kind of op."""
    ops, total = profile.sequence(), profile.total
    devices = f" on {len(profile.devices)} devices" if len(profile.devices) > 1 else ""
    if len(ops) < len(profile.ops):
        devices += f" ({len(profile.ops)} with copies, of which the slowest counts)"
    head = (
        f"{profile.name}: {quantity(len(ops), 'op')}{devices}{f', {profile.arch}' if profile.arch else ''}, "
        f"{total / 1e6:,.3f} ms; {profile.typed:.1%} of the ops are of a known kind"
    )
    lines = [head, f"{'kind':12} {'ops':>6} {'us':>12} {'share':>7}"]
    for (kind,), count, time in profile.by("kind"):
        lines.append(f"{kind:12} {count:6} {time / 1e3:12,.1f} {time / total if total else 0:7.1%}")
    unknown = collections.Counter(op.code for op in profile.ops if op.kind == OTHER)
    if unknown:
        lines.append(f"{OTHER}: {_listed([f'{code} ({count})' for code, count in unknown.most_common()])}")
    for count, what in ((sum(op.outlier for op in ops), "outlier"), (sum(op.time is None for op in ops), "op")):
        if count:
            without = " without a time" if what == "op" else ""
            lines.append(f"{quantity(count, what)}{without} {'is' if count == 1 else 'are'} left out of the sums")
    return "\n".join(lines)


def overlay_text(result: MeasuredOverlay) -> str:
    """What was matched, and the ops that lose most."""
    lines = [str(result)]
    lost = sorted((op for op in result.ops if op.measured is not None), key=lambda op: -op.lost)
    lines.append(f"{'op':56} {'measured us':>12} {'by table us':>12} {'ratio':>6} {'lost us':>9}")
    for op in lost[:_SHOWN]:
        ttnn = f"{op.ttnn / 1e3:12,.1f}" if op.ttnn else " " * 12
        ratio = f"{op.ratio:6.2f}" if op.ratio else " " * 6
        mark = " ~" if op.extrapolated else ""
        lines.append(f"{op.op[-56:]:56} {(op.measured or 0) / 1e3:12,.1f} {ttnn} {ratio} {op.lost / 1e3:9,.1f}{mark}")
    if any(op.extrapolated for op in lost[:_SHOWN]):
        lines.append("~ by table: extrapolated beyond what was measured")
    for note in result.match.notes[:_NOTES]:
        lines.append(f"note: {note}")
    if more := len(result.match.notes) - _NOTES:
        lines += [f"and {quantity(more, 'note')} more like these"] if more > 0 else []
    for name, ops in (("profile", [op.name for op in result.match.unmatched]), ("model", list(result.match.missing))):
        if ops:
            lines.append(f"only in the {name} ({len(ops)}): {_listed(ops)}")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
