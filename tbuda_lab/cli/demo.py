"""`tbuda demo`: the bring-up of the first notebook, in the terminal."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tbuda_lab.cli.output import output_folder
from tbuda_lab.cli.tables import epoch_table, summary

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
    from tbuda_lab.cli import bert_encoder
    from tbuda_lab.cli.bringup import CompileRequest, compile_session, run_and_compare, write_results
    from tbuda_lab.core.epochsim import simulate
    from tbuda_lab.widgets.report import write_report

    with output_folder(arguments.out) as folder:
        began = time.perf_counter()
        request = CompileRequest(f"{Path(bert_encoder.__file__)}:make_model", device=arguments.device)
        print(f"BERT-base encoder (12 layers, hidden 768, sequence 128, random weights) on {arguments.device}")
        session = compile_session(request)
        compiled = time.perf_counter()
        print(epoch_table(session.compile()))
        print(summary(session.compile()))
        _, passed = run_and_compare(session, session.sample_inputs, 0.99)
        ran = time.perf_counter()
        write_results(session, request, folder, arguments.out)
        modelled = simulate(session.compile(), TRACED_INPUTS)
        modelled.trace.to_chrome_trace(folder / "trace.json")
        write_report(session, folder / "report.html", session.verify())
    print(f"compiled in {compiled - began:.1f} s, ran and compared in {ran - compiled:.1f} s")
    print(f"simulated: {modelled.cycles:,} cycles for {TRACED_INPUTS} inputs through all epochs")
    print(f"wrote {arguments.out}/netlist.yaml, report.html (open it in a browser), trace.json (chrome://tracing)")
    return 0 if passed else 1
