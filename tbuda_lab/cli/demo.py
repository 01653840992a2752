"""`tbuda demo`: the bring-up of the first notebook, in the terminal."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.cli.output import epoch_table, output_folder, summary
from tbuda_lab.core.errors import quantity

if TYPE_CHECKING:
    from tbuda_lab.core.session import Session
    from tbuda_lab.core.verification import Comparison

TRACED_INPUTS = 4
"""So many that an epoch is seen to fill, to run full and to drain, and few enough for any viewer."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `tbuda demo`."""
    parser = subparsers.add_parser("demo", help="bring up a BERT-base encoder: trace, place, run, report")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), metavar="DIR")
    parser.add_argument("--device", default="n150", metavar="NAME")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table of epochs and the comparison with torch; write netlist, report and trace."""
    from tbuda_lab.cli.bringup import compile_session, run_and_compare, write_results
    from tbuda_lab.cli.request import CompileRequest
    from tbuda_lab.core.session.exports import export_trace
    from tbuda_lab.widgets.report import write_report

    with output_folder(arguments.out) as folder:
        began = time.perf_counter()
        request = CompileRequest(f"{Path(__file__).with_name('demo_model.py')}:make_model", device=arguments.device)
        print(f"BERT-base encoder (12 layers, hidden 768, sequence 128, random weights) on {arguments.device}")
        session = compile_session(request)
        compiled = time.perf_counter()
        print(epoch_table(session.compile()))
        print(summary(session.compile()))
        _, passed = run_and_compare(session, session.sample_inputs, 0.99)
        ran = time.perf_counter()
        write_results(session, request, folder, arguments.out)
        export_trace(session, folder / "trace.json", batch=TRACED_INPUTS)
        verdicts = session.verify()
        write_report(session, folder / "report.html", verdicts)
    print(
        f"compiled in {compiled - began:.1f} s, ran and compared in {ran - compiled:.1f} s; wrote {arguments.out}/: "
        "netlist.yaml, report.html, trace.json (open it in ui.perfetto.dev)"
    )
    print()
    print(closing(session, verdicts, arguments.out))
    return 0 if passed else 1


def closing(session: Session, verdicts: Sequence[Comparison], folder: Path) -> str:
    """Five lines: what was compiled, how fast it is, what limits it, how well it agrees with torch, what to open."""
    from tbuda_lab.core.epochsim import epoch_limits

    result, times, device = session.compile(), session.time(), session.device
    limits = epoch_limits(result.placement, times)
    bounds = Counter(limit.bound for limit in limits)
    most, count = bounds.most_common(1)[0]
    longest = max(range(len(limits)), key=lambda e: times.epochs[e].cycles)
    lowest = min((v.pcc for v in verdicts), default=1.0)
    rows = (
        (
            "what",
            f"{quantity(len(result.placement.ops), 'op')} in {quantity(len(limits), 'epoch')} on {device.name}, "
            f"{device.cores} cores",
        ),
        (
            "fast",
            f"{times.per_input:,.0f} cycles per input in a batch of {times.batch}, "
            f"{device.clock_hz / times.per_input:,.0f} inputs/s, simulated",
        ),
        (
            "limit",
            f"{most.words} in {count} of {quantity(len(limits), 'epoch')}; the longest is epoch {longest}. "
            f"{limits[longest].text}",
        ),
        ("PCC", f"{lowest:.6f} against the model itself"),
        ("next", f"open {folder}/report.html, or drag it yourself: make lab"),
    )
    return "\n".join(f"{name:6s} {text}" for name, text in rows)
