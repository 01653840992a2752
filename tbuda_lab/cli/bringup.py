"""`tbuda compile`, `tbuda run` and `tbuda report`: the whole pipeline on a user's own file."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tbuda_lab.cli import tti
from tbuda_lab.cli.output import epoch_table, output_folder, summary
from tbuda_lab.cli.target import is_model_file, load_target, read_settings, split_target
from tbuda_lab.core.errors import InputError, ModelError, OverrideError, TbudaError
from tbuda_lab.core.files import atomic_file, json_map, read_npz

if TYPE_CHECKING:
    import torch

    from tbuda_lab.core.compiler import CompileResult
    from tbuda_lab.core.device import DeviceSpec
    from tbuda_lab.core.session import Session
    from tbuda_lab.core.verification import Comparison

RECORD = "compile.json"
NETLIST = "netlist.yaml"
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


COMPILE_FLAGS = (
    "device",
    "harvested_rows",
    "df",
    "accumulate_df",
    "fidelity",
    "op_size",
    "epoch_break",
    "seed",
    "microbatch",
    "policy",
    "objective",
    "set",
    "chips",
    "cluster",
)
"""Arguments of the command line that say how a model is compiled."""


def target_arguments(parser: argparse.ArgumentParser, *, batch: bool = True) -> None:
    """A model's file or a compiled folder, and how it is to be compiled. batch: not where `--batch` says something else
    (then `--set microbatch=N` does)."""
    parser.add_argument(
        "target",
        metavar="MODEL",
        help="FILE.py:FUNCTION, a function that returns (module, tuple of sample inputs), "
        "a model file (FILE.onnx), a folder that `tbuda compile` wrote, or a device image "
        "(FILE.tti)",
    )
    parser.add_argument(
        "--device",
        default=None,
        metavar="NAME",
        help="arch, board or device file: wormhole_b0 (default), grayskull, blackhole, e150, e300, "
        "n150, n300, path.yaml, or an expression as in `tbuda explore` (n150+harvest=2)",
    )
    parser.add_argument("--harvested-rows", default=None, metavar="ROWS", help="harvested physical rows, e.g. 3,7")
    parser.add_argument("--df", default=None, metavar="FORMAT", help="data format: Float16_b (default), Float32, ...")
    parser.add_argument("--accumulate-df", default=None, metavar="FORMAT", help="accumulation format")
    parser.add_argument("--fidelity", default=None, metavar="NAME", help="math fidelity: HiFi3 (default), LoFi, ...")
    parser.add_argument(
        "--op-size",
        action="append",
        default=[],
        metavar="OP=RxC",
        help="put this op on R rows and C columns of cores (repeatable)",
    )
    parser.add_argument(
        "--epoch-break", action="append", default=[], metavar="OP", help="start a new epoch at this op (repeatable)"
    )
    parser.add_argument("--seed", type=int, default=None, help="passed to FUNCTION when it has a parameter `seed`")
    if batch:
        parser.add_argument(
            "--batch",
            type=int,
            default=None,
            metavar="N",
            dest="microbatch",
            help="inputs per run for which the model is placed (default 1)",
        )
    _placement_arguments(parser)


def _placement_arguments(parser: argparse.ArgumentParser) -> None:
    """How epochs are chosen, what else is set, and on how many chips."""
    parser.add_argument(
        "--policy", default=None, metavar="NAME", help="policy that chooses epochs: Optimal (default), Ribbon, ..."
    )
    parser.add_argument(
        "--objective",
        default=None,
        metavar="NAME",
        help="what is minimised: auto (time of the batch, default), latency, throughput",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any option of a session, e.g. enable_auto_fusing=false (repeatable)",
    )
    parser.add_argument(
        "--no-host",
        action="append_const",
        dest="set",
        const="cpu_fallback=none",
        help="refuse a model that has ops for the host between those of the device",
    )
    parser.add_argument("--chips", type=int, default=None, metavar="N", help="how many chips")
    parser.add_argument("--cluster", default=None, metavar="FILE.yaml", help="cluster descriptor: chips and links")
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="neither read nor write the placement cache (in $TBUDA_CACHE, or tbuda-lab in "
        "$XDG_CACHE_HOME or ~/.cache)",
    )


@dataclasses.dataclass(frozen=True)
class CompileRequest:
    """What one compile was asked for, in words that survive in `compile.json`."""

    target: str
    device: str = "wormhole_b0"
    harvested_rows: tuple[int, ...] | None = None
    df: str | None = None
    accumulate_df: str | None = None
    fidelity: str | None = None
    op_size: tuple[str, ...] = ()
    epoch_break: tuple[str, ...] = ()
    seed: int | None = None
    batch: int | None = None
    policy: str | None = None
    objective: str | None = None
    set: tuple[str, ...] = ()
    chips: int | None = None
    cluster: str | None = None

    def session(self, cache: bool = True) -> Session:
        """Load the model and open a session on it; nothing is compiled yet. cache: see `Session`."""
        from tbuda_lab.core.device import load_device
        from tbuda_lab.core.formats import FIDELITIES, MathFidelity, parse_format
        from tbuda_lab.core.options import CompileOptions
        from tbuda_lab.core.overrides import Override
        from tbuda_lab.core.session import Session

        if tti.is_image(self.target):
            return Session.open(self.target, cache=cache)
        options = CompileOptions()
        if self.df is not None:
            options = dataclasses.replace(options, default_df_override=_parse_flag(parse_format, self.df, "--df"))
        if self.accumulate_df is not None:
            df = _parse_flag(parse_format, self.accumulate_df, "--accumulate-df")
            options = dataclasses.replace(options, default_accumulate_df=df)
        if self.fidelity is not None:
            names = ", ".join(f.name for f in FIDELITIES)
            if self.fidelity not in names.split(", "):
                raise TbudaError(f"--fidelity {self.fidelity}: no such math fidelity; there are {names}")
            options = dataclasses.replace(options, default_math_fidelity=MathFidelity[self.fidelity])
        named = {"microbatch": self.batch, "balancer_policy": self.policy, "objective": self.objective}
        settings = read_settings(self.set) | {name: value for name, value in named.items() if value is not None}
        options = dataclasses.replace(options, **settings)
        overrides = [Override("op_size", *_op_size(text), source="command line") for text in self.op_size]
        overrides += [Override("epoch_break", name, True, source="command line") for name in self.epoch_break]
        device = self._expressed_device() or load_device(
            self.device, harvested_rows=self.harvested_rows, chips=self.chips, cluster=self.cluster
        )
        target = load_target(self.target, seed=self.seed)
        session = Session(
            target.module, target.inputs, device, options=options, overrides=overrides, name=target.name, cache=cache
        )
        session.source = self.words()
        return session

    def _expressed_device(self) -> DeviceSpec | None:
        """The device where it is an expression (`core.explore.parse_device`). Raises `InputError` where flags say of it
        what the expression says."""
        from tbuda_lab.core.explore import parse_device

        if "+" not in self.device and not re.fullmatch(r"[^:]+:\d+", self.device):
            return None
        if (self.harvested_rows, self.chips, self.cluster) != (None, None, None):
            raise InputError(f"--device {self.device} is an expression: it says chips and harvested rows itself")
        return parse_device(self.device)

    def words(self) -> tuple[str, ...]:
        """The target and the flags that say the same on a command line."""
        words = [self.target]
        rows = None if self.harvested_rows is None else ",".join(map(str, self.harvested_rows))
        single = (
            ("--device", None if self.device == "wormhole_b0" else self.device),
            ("--harvested-rows", rows),
            ("--df", self.df),
            ("--accumulate-df", self.accumulate_df),
            ("--fidelity", self.fidelity),
            ("--seed", self.seed),
            ("--batch", self.batch),
            ("--policy", self.policy),
            ("--objective", self.objective),
            ("--chips", self.chips),
            ("--cluster", self.cluster),
        )
        for flag, value in single:
            words += [] if value is None else [flag, str(value)]
        words += [w for text in self.op_size for w in ("--op-size", text)]
        words += [w for name in self.epoch_break for w in ("--epoch-break", name)]
        words += [w for text in self.set for w in ("--set", text)]
        return tuple(words)


def read_request(arguments: argparse.Namespace) -> CompileRequest:
    """The request of a command line; of a compiled folder, the one that made it. Raises `TbudaError`s."""
    rows = _rows(arguments.harvested_rows)
    if tti.is_image(arguments.target):
        refuse_flags(arguments, "an image says for which device it was compiled, and how")
        return CompileRequest(arguments.target)
    named = {
        "device": arguments.device,
        "harvested_rows": rows,
        "df": arguments.df,
        "accumulate_df": arguments.accumulate_df,
        "fidelity": arguments.fidelity,
        "op_size": tuple(arguments.op_size),
        "epoch_break": tuple(arguments.epoch_break),
        "seed": arguments.seed,
        "batch": getattr(arguments, "microbatch", None),
        "policy": arguments.policy,
        "objective": arguments.objective,
        "set": tuple(arguments.set),
        "chips": arguments.chips,
        "cluster": arguments.cluster,
    }
    named = {key: value for key, value in named.items() if value not in (None, ())}
    folder = Path(arguments.target)
    if not folder.is_dir():
        split_target(arguments.target)
        return CompileRequest(arguments.target, **named)
    record = read_record(folder)
    if named:
        flags = ", ".join("--" + key.replace("_", "-") for key in named)
        raise ModelError(f"{folder} was compiled already: {flags} would change that; compile FILE.py:FUNCTION again")
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record["request"].items()}
    path, function = fields.pop("target"), ""
    if not is_model_file(path):
        path, _, function = path.rpartition(":")
    file = os.path.normpath(folder / path)
    print(f"{folder} was compiled from {file}: executing it", file=sys.stderr)
    return CompileRequest(f"{file}:{function}" if function else file, **fields)


def refuse_flags(arguments: argparse.Namespace, why: str) -> None:
    """Raise `ModelError` for flags that say how to compile what is compiled already."""
    names_set = [name for name in COMPILE_FLAGS if getattr(arguments, name, None) not in (None, [])]
    if names_set:
        flags = ", ".join("--" + name.replace("_", "-") for name in names_set)
        raise ModelError(f"{arguments.target}: {why}; leave {flags} out, or compile FILE.py:FUNCTION")


def read_record(folder: Path) -> dict[str, Any]:
    file = folder / RECORD
    if not file.is_file():
        raise ModelError(f"{folder} has no {RECORD}: give FILE.py:FUNCTION or a folder of `tbuda compile`")
    try:
        record = json_map(file, "record of `tbuda compile`")
        _check_request(record.get("request"), str(file))
    except InputError as error:
        raise ModelError(f"{error}; compile again") from None
    return record


def _check_request(request: Any, where: str) -> None:
    """Raises `InputError` unless `request` holds what a `CompileRequest` can be made of."""
    hints = get_type_hints(CompileRequest)
    if not isinstance(request, dict):
        raise InputError(f"{where}: request is not an object")
    for name, value in request.items():
        if name not in hints:
            raise InputError(f"{where}: request has no field {str(name)[:40]!r}; it has {', '.join(hints)}")
        hint = str(hints[name])
        kind = int if "int" in hint else str
        items = value if "tuple" in hint and isinstance(value, list) else [value]
        if ("tuple" in hint) != isinstance(value, list) or not all(type(item) is kind for item in items):
            raise InputError(f"{where}: request: {name} does not take {str(value)[:60]!r}")
    target = request.get("target", "")
    if ":" not in target and not is_model_file(target):
        raise InputError(f"{where}: request: target is FILE.py:FUNCTION or a model file")


def _rows(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(row) for row in text.split(",") if row.strip())
    except ValueError:
        raise TbudaError(f"--harvested-rows {text}: give row numbers with commas between them, e.g. 3,7") from None


def _parse_flag(parse: Any, text: str, flag: str) -> Any:
    try:
        return parse(text)
    except (ValueError, KeyError) as error:
        raise TbudaError(f"{flag} {text}: {error}") from None


def _op_size(text: str) -> tuple[str, tuple[int, int]]:
    match = re.fullmatch(r"(.+)=(\d+)x(\d+)", text)
    if not match:
        raise OverrideError(f"--op-size {text}: write OP=RxC, e.g. matmul_7=4x8")
    return match[1], (int(match[2]), int(match[3]))


# -- the commands -----------------------------------------------------------------------------------------------------
def run_compile(arguments: argparse.Namespace) -> int:
    """Write netlist, graphs of every stage and `compile.json`; print the table of epochs."""
    if tti.is_image(arguments.target):
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

    if tti.is_image(arguments.target):
        return tti.run_image(arguments)
    if arguments.weights:
        raise ModelError("--weights is for a device image; a model has its own weights")
    request = read_request(arguments)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic_file(arguments.outputs)) if arguments.outputs else None
        session = compile_session(request, not arguments.no_cache)
        _check_unchanged(session, Path(arguments.target))
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

        write_explore_page(Path(arguments.target), arguments.out)
        print(f"wrote {arguments.out}")
        return 0
    request = read_request(arguments)
    with atomic_file(arguments.out) as file:
        session = compile_session(request, not arguments.no_cache)
        _check_unchanged(session, Path(arguments.target))
        if arguments.plots is not None:
            from tbuda_lab.widgets.pictures.plots import write_plots

            write_plots(session, arguments.plots)
        write_report(session, file, session.verify())
    print(f"wrote {arguments.out}" + (f" and {arguments.plots}" if arguments.plots is not None else ""))
    return 0


# -- shared with `tbuda demo` -----------------------------------------------------------------------------------------
def compile_session(request: CompileRequest, cache: bool = True) -> Session:
    """Open the session and compile it, naming each stage on stderr when a person watches."""
    session = request.session(cache)
    if sys.stderr.isatty():
        session.on("stage", _announce)
    _check_targets(session)
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
        "netlist_sha256": _digest(folder / NETLIST),
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


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of an .npz as tensors. Raises `InputError`."""
    import torch

    result = {}
    for name, array in read_npz(path).items():
        try:
            result[name] = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {name!r} holds {array.dtype}, a type that torch does not have") from error
    return result


def _check_unchanged(session: Session, folder: Path) -> None:
    """A compiled folder must still be what the model compiles to. Raises `ModelError`."""
    from tbuda_lab.core import netlist

    if folder.is_dir():
        digest = hashlib.sha256(netlist.dumps(session.compile().netlist).encode()).hexdigest()
        if digest != read_record(folder).get("netlist_sha256"):
            raise ModelError(f"{folder}: the model's file has changed since it was compiled; compile it again")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


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


def compare_outputs(
    names: Sequence[str], got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], bar: float
) -> bool:
    """Print one line per output; whether all of them pass."""
    from tbuda_lab.core.verification import compare_tensors

    rows = [compare_tensors(name, theirs, ours) for name, ours, theirs in zip(names, got, expected, strict=True)]
    return print_comparisons(rows, got, bar)


def print_comparisons(rows: Sequence[Comparison], got: Sequence[torch.Tensor], bar: float) -> bool:
    """One line per comparison, those of outputs first; whether all of them pass."""
    from tbuda_lab.core.verification import MAX_RELATIVE

    print(f"{'output':24s} {'shape':>16s} {'PCC':>9s} {'max error':>10s} {'largest':>10s} {'relative':>9s}")
    for k, row in enumerate(rows):
        shape = "x".join(map(str, got[k % len(got)].shape))
        print(f"{row.name:24s} {shape:>16s} {row.pcc:9.6f} {row.max_abs:10.3g} {row.scale:10.3g} {row.relative:9.2g}")
    passed = all(row.passes(bar) for row in rows)
    lowest, largest = min((r.pcc for r in rows), default=1.0), max((r.relative for r in rows), default=0.0)
    print(
        f"{'pass' if passed else 'FAIL'}: lowest PCC against the model itself is {lowest:.6f}, the bar is {bar}; "
        f"largest error is {largest:.2g} of the largest value, the bar is {MAX_RELATIVE}"
    )
    rules = {row.name: row.rule for row in rows if row.rule}
    for name, rule in rules.items():
        print(f"{name}: the machine's own arithmetic explains it ({rule}); see docs/numbers.md")
    if len(rows) > len(got):
        print("the model's second answer to the same inputs is another one: it keeps something from run to run")
    return passed
