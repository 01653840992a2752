"""`tbuda compile`, `tbuda run` and `tbuda report`: the whole pipeline on a user's own file."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.cli import tti
from tbuda_lab.cli.output import epoch_table, output_folder, print_comparisons, summary
from tbuda_lab.cli.request import (
    NETLIST,
    RECORD,
    CompileRequest,
    file_digest,
    read_record,
    read_request,
    refuse_flags,
    target_arguments,
)
from tbuda_lab.cli.target import is_image, read_tensors, split_target
from tbuda_lab.core.errors import InputError, ModelError, OverrideError
from tbuda_lab.core.files import atomic_file

if TYPE_CHECKING:
    import torch

    from tbuda_lab.core.compiler import CompileResult
    from tbuda_lab.core.session import Session

RESULTS = (
    RECORD,
    NETLIST,
    "netlist.cycles.csv",
    "parameters.npz",
    *(f"graph.{stage}.txt" for stage in ("traced", "passed", "lowered")),
)
"""All files that `tbuda compile` may write."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register compile, run and report."""
    compile_ = subparsers.add_parser("compile", help="compile a model; writes the netlist and what describes it")
    target_arguments(compile_)
    compile_.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    compile_.add_argument(
        "--parameters",
        action="store_true",
        help="also write parameters.npz: the contents of every parameter and constant queue, as "
        "`tbuda netlist run` takes them",
    )
    compile_.set_defaults(handler=run_compile)

    run = subparsers.add_parser(
        "run", help="compile a model (or take a compiled folder or image), run it, compare with torch"
    )
    target_arguments(run)
    tti.run_arguments(run)
    run.add_argument(
        "--inputs",
        type=Path,
        metavar="FILE.npz",
        help="inputs by name of the forward argument; default: the sample inputs",
    )
    run.add_argument("--outputs", type=Path, metavar="FILE.npz", help="write the outputs here")
    run.add_argument("--mode", choices=("golden", "device"), default="golden", help="numerics of the executor")
    run.add_argument(
        "--pcc",
        type=float,
        default=0.99,
        metavar="BAR",
        help="lowest correlation with torch that passes (default 0.99)",
    )
    run.set_defaults(handler=run_run)

    report = subparsers.add_parser("report", help="one self-contained HTML page about the compile")
    target_arguments(report)
    report.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE.html")
    report.add_argument(
        "--plots",
        type=Path,
        default=None,
        metavar="FILE.html",
        help="also write a page of plots (needs Bokeh): cycles and utilisation of epochs, roofline of "
        "ops, gap to bounds",
    )
    report.set_defaults(handler=run_report)


# -- the commands -----------------------------------------------------------------------------------------------------
def run_compile(arguments: argparse.Namespace) -> int:
    """Write netlist, graphs of every stage and `compile.json`; print the table of epochs."""
    if is_image(arguments.target):
        raise ModelError(
            f"{arguments.target} is compiled: `tbuda run` runs it, `tbuda export` and `tbuda report` take "
            "it as their model"
        )
    request = read_request(arguments)
    with output_folder(arguments.out, RESULTS) as folder:
        session = compile_session(request, not arguments.no_cache)
        write_results(session, request, folder, arguments.out, parameters=arguments.parameters)
    print(epoch_table(session.compile()))
    print(summary(session.compile()))
    print(f"wrote {arguments.out}/: {', '.join(sorted(n for n in RESULTS if (arguments.out / n).is_file()))}")
    return 0


def run_run(arguments: argparse.Namespace) -> int:
    """Compile, run on the executor, compare with torch; 1 when the correlation is below the bar."""
    import contextlib

    import numpy as np

    if is_image(arguments.target):
        return tti.run_image(arguments)
    if arguments.weights:
        raise ModelError("--weights is for a device image; a model has its own weights")
    request = read_request(arguments)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic_file(arguments.outputs)) if arguments.outputs else None
        session = open_session(arguments, request)
        sample = read_inputs(arguments.inputs, session) if arguments.inputs else session.sample_inputs
        got, passed = run_and_compare(session, sample, arguments.pcc, arguments.mode)
        if file is not None:
            names = session.compile().output_names
            arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in zip(names, got, strict=True)}
            with file.open("wb") as stream:
                np.savez(stream, **arrays)
    return 0 if passed else 1


def run_report(arguments: argparse.Namespace) -> int:
    """Compile, compare with torch, and write the page; of a folder of `tbuda explore` write its picture."""
    from tbuda_lab.widgets.report import write_report

    if (Path(arguments.target) / "explore.jsonl").is_file():
        from tbuda_lab.widgets.pictures.explore import write_explore_page

        refuse_flags(arguments, "an exploration says how its points were compiled")
        if arguments.plots is not None:
            raise InputError("--plots is of one compile; an exploration has its own picture: leave it out")
        write_explore_page(Path(arguments.target), arguments.out)
        print(f"wrote {arguments.out}")
        return 0
    request = read_request(arguments)
    with atomic_file(arguments.out) as file:
        session = open_session(arguments, request)
        if arguments.plots is not None:
            from tbuda_lab.widgets.pictures.plots import write_plots

            write_plots(session, arguments.plots)
        write_report(session, file, session.verify())
    print(f"wrote {arguments.out}" + (f" and {arguments.plots}" if arguments.plots is not None else ""))
    return 0


# -- shared with other commands ---------------------------------------------------------------------------------------
def compile_session(request: CompileRequest, cache: bool = True) -> Session:
    """Open the session and compile it, naming each stage on stderr when a person watches."""
    session = request.session(cache)
    if sys.stderr.isatty():
        session.on("stage", _announce)
    _check_targets(session)
    return session


def open_session(arguments: argparse.Namespace, request: CompileRequest) -> Session:
    """`compile_session` of a command's target, which of a compiled folder has to give what is in it. Raises
    `ModelError` where the model's file has changed."""
    session = compile_session(request, not arguments.no_cache)
    _check_unchanged(session, Path(arguments.target))
    return session


def _check_targets(session: Session) -> None:
    """An override that addresses no op is a misspelling. Raises `OverrideError` with the nearest names."""
    ops = list(session.compile().placement.ops)
    for override in session.overrides:
        if not override.matches(ops):
            near = difflib.get_close_matches(str(override.target), ops, n=3, cutoff=0.3) or ops[:3]
            flag = "--" + override.kind.replace("_", "-")
            raise OverrideError(
                f"{flag}: the compiled model has no op {override.target!r}; near it: {', '.join(near)} "
                f"(compile without {flag}, graph.lowered.txt names them all)"
            )


def _announce(stage: str, fraction: float) -> None:
    if fraction == 0.0:
        print(f"  {stage} ...", file=sys.stderr)


def write_results(
    session: Session, request: CompileRequest, folder: Path, final: Path, *, parameters: bool = False
) -> None:
    """netlist.yaml, netlist.cycles.csv, graph.<stage>.txt, compile.json and on request parameters.npz, into `folder`.

    final: where the folder will end up; the model's path is recorded relative to it, so that both can move together.
    """
    import numpy as np

    from tbuda_lab.core import netlist
    from tbuda_lab.core.epochsim import cycles_path, write_cycles_csv
    from tbuda_lab.core.graph import print_graph

    result = session.compile()
    netlist.dump(result.netlist, folder / NETLIST)
    write_cycles_csv(result, cycles_path(folder / NETLIST))
    for stage in ("traced", "passed", "lowered"):
        (folder / f"graph.{stage}.txt").write_text(print_graph(session.graph(stage)), encoding="utf-8")
    file, function = split_target(request.target)
    request_fields = dataclasses.asdict(request)
    # realpath: `Path.resolve` raises RuntimeError for links that lead to themselves
    target = os.path.relpath(os.path.realpath(file), os.path.realpath(final))
    request_fields["target"] = f"{target}:{function}" if function else target
    record = {
        "request": {key: value for key, value in request_fields.items() if value not in (None, (), [])},
        "arch": result.device.arch,
        **_objective_numbers(result),
        "epochs": len(result.placement.epochs),
        "ops": len(result.placement.ops),
        "inputs": [{"name": b.name, "queue": b.queue, "shape": list(b.shape)} for b in result.inputs],
        "outputs": [{"name": b.name, "queue": b.queue, "shape": list(b.shape)} for b in result.outputs],
        **({} if result.chain is None else {"host": [dataclasses.asdict(work) for work in result.chain.work()]}),
        "warnings": [str(d) for d in result.diagnostics],
        "netlist_sha256": file_digest(folder / NETLIST),
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if parameters:
        arrays: dict[str, Any] = {name: value[None] for name, value in result.parameters.items()}
        with (folder / "parameters.npz").open("wb") as stream:
            np.savez(stream, **arrays)


def _objective_numbers(result: CompileResult) -> dict[str, Any]:
    """The simulated time of the batch first, as every view shows it; then what the placer minimised (of several chips
    the slowest one's sum), what it is made of, its bound, the sums over kernels and limiters, and the curve of a search
    that went on: [steps, cycles]."""
    from tbuda_lab.core.epochsim import batch_time

    report = result.placement.report
    if report is None or report.objective is None:
        return {}
    value = report.objective
    curve = {"curve": [[steps, round(cycles)] for steps, cycles in report.curve]} if report.curve else {}
    return {
        "cycles_per_input": round(batch_time(result, value.inputs).per_input),
        "batch": value.inputs,
        "objective": {
            "minimised": round(value.slowest_chip if len(result.device.chips) > 1 else value.time),
            "slowest_ops": round(value.limiter),
            "filling_and_waiting": round(value.waiting),
            "switches": round(value.switch),
            "lower_bound": round(value.bound),
        },
        "sum_limiter_cycles": report.bounds.achieved_limiter,
        "sum_kernel_cycles": report.bounds.achieved_kernel,
        **curve,
    }


def read_inputs(path: Path, session: Session) -> tuple[Any, ...]:
    """The arrays of an .npz in the order of the model's inputs. Raises `InputError` (missing or surplus names)."""
    names = [node.name for node in session.graph("traced").inputs]
    arrays = read_tensors(path)
    if set(arrays) != set(names):
        raise InputError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}; the model takes {', '.join(names)}")
    return tuple(arrays[name] for name in names)


def _check_unchanged(session: Session, folder: Path) -> None:
    """A compiled folder must still be what the model compiles to. Raises `ModelError`."""
    from tbuda_lab.core import netlist

    if folder.is_dir():
        digest = hashlib.sha256(netlist.dumps(session.compile().netlist).encode()).hexdigest()
        if digest != read_record(folder).get("netlist_sha256"):
            raise ModelError(f"{folder}: the model's file has changed since it was compiled; compile it again")


def run_and_compare(
    session: Session, sample: tuple[Any, ...], bar: float, mode: str = "golden"
) -> tuple[list[torch.Tensor], bool]:
    """Run one sample, print its comparison with the model itself, one line per output.

    Returns the outputs and whether all of them pass (see `verification.Comparison.passes`).
    """
    from tbuda_lab.core.runner import fill_microbatch

    got = session.run(fill_microbatch(session.compile(), [sample]), mode)[0]
    names = session.compile().output_names
    rows = session.runs.judge(sample, got, mode)
    named = [dataclasses.replace(row, name=names[k]) if k < len(names) else row for k, row in enumerate(rows)]
    return got, print_comparisons(named, got, bar)
