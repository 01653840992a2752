"""`tbuda explore`: which device, how many chips, which batch and formats."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.cli.diff import percentage
from tbuda_lab.cli.target import load_target, read_settings
from tbuda_lab.core.errors import Cancelled, InputError, OutputError, not_supported, quantity
from tbuda_lab.core.files import check_writable

if TYPE_CHECKING:
    from tbuda_lab.core.explore import Trial
    from tbuda_lab.core.explore.store import Record
    from tbuda_lab.core.session.explore import Explore

EPILOG = """\
TARGET is a model (FILE.py:FUNCTION or FILE.onnx), or the folder of an exploration, which goes on.
Devices are expressions: n300, wormhole_b0:8 (chips), n150+harvest=2, n150+grid=6x8+l1=1M+clock=1.2G+dram=x2.

  tbuda explore model.py:make --devices n150,n300 --batches 1,8,64 --formats Float16_b,Bfp8_b --out build/which
  tbuda explore build/which --workers 2
  tbuda explore build/which --check build/main --fail-if-slower 3%

exit codes: 0 done; 1 bad input, a trial crashed, or slower than --fail-if-slower allows.
"""
_AXES = (
    ("--devices", "device", "device expressions"),
    ("--batches", "microbatch", "inputs per run"),
    ("--formats", "default_df_override", "data formats"),
    ("--fidelity", "default_math_fidelity", "math fidelities"),
    ("--policies", "balancer_policy", "placement policies"),
)
_EVERY = 0.5


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register explore."""
    parser = subparsers.add_parser(
        "explore",
        help="try devices, batches, formats and options; keep what is best",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="TARGET", help="a model, or the folder of an exploration")
    for flag, axis, meaning in _AXES:
        parser.add_argument(flag, dest=axis, metavar="A,B,...", help=f"an axis: {meaning}")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="an axis: values of any option, e.g. fuse_reduces=true,false (repeatable)",
    )
    parser.add_argument("--harvest", metavar="0,1,2", help="an axis: how many more rows are harvested")
    parser.add_argument("--overrides", metavar="A.json,B.json", help="an axis: files of overrides, or none")
    parser.add_argument(
        "--objective",
        action="append",
        default=[],
        metavar="NUMBER[:min|max]",
        help="what is wanted (repeatable; default samples/s:max and chips:min)",
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="NUMBER>=VALUE",
        help="what has to hold, e.g. 'pcc>=0.99' (repeatable)",
    )
    parser.add_argument(
        "--sampler",
        default=None,
        choices=("grid", "random", "nsga2", "tpe"),
        help="which points are tried (default grid: all of them; nsga2 and tpe need Optuna)",
    )
    parser.add_argument("--budget", type=int, default=None, metavar="N", help="trials (default 200)")
    parser.add_argument("--trial-seconds", type=float, default=None, metavar="S", help="a trial that takes longer ends")
    parser.add_argument(
        "--workers",
        default=None,
        metavar="N",
        help="processes, 0: this one (default); auto: two where it takes long (needs Dask)",
    )
    parser.add_argument("--scheduler", metavar="ADDRESS|FILE", help="a Dask scheduler that is running")
    parser.add_argument("--send-weights", action="store_true", help="let workers measure pcc; weights go to them")
    parser.add_argument("--seed", type=int, default=None, help="of samplers and of FUNCTION (default 0)")
    _add_results(parser)
    parser.set_defaults(handler=run_explore)


def _add_results(parser: argparse.ArgumentParser) -> None:
    """Where results are kept, what is written of them, and what they are held to."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument("--no-cache", action="store_true", help="do not use the placement cache")
    parser.add_argument("--keep-old", action="store_true", help="also list rows of another version of this package")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write one line a trial")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="the same as Parquet (needs pyarrow)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the picture: one page that works offline")
    parser.add_argument("--check", type=Path, metavar="DIR", help="compare with another exploration, point by point")
    parser.add_argument(
        "--fail-if-slower",
        type=percentage,
        default=None,
        metavar="PERCENT",
        help="with --check: exit code 1 if a point is worse by more in the first objective",
    )


def run_explore(arguments: argparse.Namespace) -> int:
    """Explore, or go on; print the table; 1 where a trial crashed or a check failed."""
    from tbuda_lab.core.explore import has_crash

    if arguments.fail_if_slower is not None and arguments.check is None:
        raise InputError("--fail-if-slower needs --check DIR: the exploration to compare with")
    files = _refuse_outputs(arguments)
    before = None
    if arguments.check is not None:  # before anything is compiled
        from tbuda_lab.core.explore import read

        before = read(arguments.check)
    exploration = _open(arguments)
    if before is not None:
        _refuse_other_model(exploration, before, arguments.check)
    try:
        for path in files:  # those in its own folder, which is there now
            check_writable(path)
        exploration.on_change(_tell())
        exploration.run()
    except KeyboardInterrupt:
        raise Cancelled(f"interrupted; `tbuda explore {exploration.folder}` goes on") from None
    finally:
        exploration.close()
        if sys.stderr.isatty():
            print(file=sys.stderr)
    if arguments.csv is not None:
        exploration.to_csv(arguments.csv)
    if arguments.parquet is not None:
        exploration.to_parquet(arguments.parquet)
    if arguments.html is not None:
        from tbuda_lab.widgets.pictures.explore import write_explore_page

        write_explore_page(exploration.folder, arguments.html, arguments.keep_old)
    print(table(exploration, arguments.keep_old))
    slower = _check(exploration, before, arguments) if before is not None else False
    return int(slower or has_crash(exploration.trials))


def _refuse_outputs(arguments: argparse.Namespace) -> list[Path]:
    """Raises `OutputError` for results that cannot be written where they are asked for, before any work. Gives the
    files that are to lie in the exploration's own folder, which may not be there yet."""
    from tbuda_lab.core.explore.store import OWN_FILES

    folder = Path(os.path.realpath(arguments.target if arguments.out is None else arguments.out))
    if arguments.out is not None:
        above = next(p for p in (folder, *folder.parents) if p.exists())
        if not above.is_dir():
            raise OutputError(f"cannot write {arguments.out}: {above} is a file; give a folder")
        if not os.access(above, os.W_OK):
            raise OutputError(f"cannot write {arguments.out}: permission denied; give a folder that is writable")
    if arguments.parquet is not None and importlib.util.find_spec("pyarrow") is None:
        raise not_supported("parquet without pyarrow", "install tbuda-lab[parquet], or write CSV")
    given = [path for path in (arguments.csv, arguments.parquet, arguments.html) if path is not None]
    real = [Path(os.path.realpath(path)) for path in given]
    if len(set(real)) < len(real):
        raise OutputError("--csv, --parquet and --html name the same file: give each one of its own")
    inside = []
    for path, at in zip(given, real, strict=True):
        if at.parent == folder and at.name in OWN_FILES:
            raise OutputError(f"cannot write {path}: the exploration itself lies there; give another name")
        if at.parent == folder and not folder.exists():
            inside.append(path)
        else:
            check_writable(path)
    return inside


def _open(arguments: argparse.Namespace) -> Explore:
    """The exploration of a command line. Raises `InputError`."""
    from tbuda_lab.core.explore import plan_of, read
    from tbuda_lab.core.session import Session
    from tbuda_lab.core.session.explore import Explore

    engine = _engine(arguments)
    settings = {"send_weights": arguments.send_weights, "cache": not arguments.no_cache}
    folder = Path(arguments.target)
    if folder.is_dir():
        _refuse_axes(arguments)
        plan = plan_of(read(folder).header, str(folder))
        if not plan.source:
            raise InputError(f"{folder} was made in Python: Explore.resume(session, {str(folder)!r}) goes on")
        print(f"{folder} explores {plan.source[0]}: executing it", file=sys.stderr)
        target = load_target(plan.source[0], seed=plan.seed)
        session = Session(target.module, target.inputs, name=target.name, cache=not arguments.no_cache)
        session.source = plan.source
        return Explore.resume(session, folder, engine, **settings)
    if not folder.exists() and ":" not in arguments.target and folder.suffix != ".onnx":
        raise InputError(
            f"{arguments.target}: there is no such folder; give that of an exploration, or a model: FILE.py:FUNCTION, "
            "FILE.onnx"
        )
    axes, sets = _axes(arguments)
    if arguments.out is None:
        raise InputError("--out DIR is missing: the folder of the results")
    seed = 0 if arguments.seed is None else arguments.seed
    target = load_target(arguments.target, seed=seed)
    session = Session(target.module, target.inputs, name=target.name, cache=not arguments.no_cache)
    session.source = (arguments.target,)
    from tbuda_lab.core.explore import make_space
    from tbuda_lab.core.session.explore import DEFAULT_OBJECTIVES

    return Explore(
        session,
        make_space(axes, sets),
        arguments.objective or DEFAULT_OBJECTIVES,
        arguments.require,
        arguments.sampler or "grid",
        200 if arguments.budget is None else arguments.budget,
        engine,
        seed,
        arguments.out,
        arguments.trial_seconds,
        **settings,
    )


def _refuse_axes(arguments: argparse.Namespace) -> None:
    """Raises `InputError` for what a folder says itself."""
    given = [flag for flag, axis, _ in _AXES if getattr(arguments, axis) is not None]
    more = {
        "--set": arguments.set,
        "--harvest": arguments.harvest,
        "--overrides": arguments.overrides,
        "--objective": arguments.objective,
        "--require": arguments.require,
        "--sampler": arguments.sampler,
        "--budget": arguments.budget,
        "--seed": arguments.seed,
        "--trial-seconds": arguments.trial_seconds,
        "--out": arguments.out,
    }
    given += [flag for flag, value in more.items() if value is not None and value != []]
    if given:
        raise InputError(
            f"{arguments.target} says itself what is explored: leave {', '.join(given)} out, or name the "
            "model and another --out"
        )


def _engine(arguments: argparse.Namespace) -> Any:
    workers = arguments.workers
    if arguments.scheduler is not None:
        if workers is not None:
            raise InputError("--workers starts processes here, --scheduler joins a cluster that runs: give one of them")
        return arguments.scheduler
    if workers is None or workers == "auto":
        return workers
    if not workers.isdecimal():
        raise InputError(f"--workers {workers}: give a number from 0, or auto")
    return int(workers)


def _axes(arguments: argparse.Namespace) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """The axes of a command line, and the overrides by name."""
    from tbuda_lab.core.overrides import to_json
    from tbuda_lab.core.session.explore import file_overrides

    axes: dict[str, list[Any]] = {}
    for _, axis, _ in _AXES:
        text = getattr(arguments, axis)
        if text is not None:
            axes[axis] = _values(text) if axis == "device" else _settings(axis, text)
    for word in arguments.set:
        name, equals, text = word.partition("=")
        if not equals:
            raise InputError(f"--set {word}: write NAME=VALUE,VALUE, e.g. fuse_reduces=true,false")
        axes[name.strip().replace("-", "_")] = _settings(name, text)
    if arguments.harvest is not None:
        words = _values(arguments.harvest)
        if not all(w.isdecimal() for w in words):
            raise InputError(f"--harvest {arguments.harvest}: give numbers of rows, e.g. 0,1,2")
        axes["harvest"] = [int(w) for w in words]
    sets: dict[str, list[Any]] = {}
    for word in _values(arguments.overrides or ""):
        overrides = () if word == "none" else file_overrides(Path(word))
        sets[Path(word).name] = [to_json(o, lambda o: (str(o.target),)) for o in overrides]
    if sets:
        axes["overrides"] = list(sets)
    if not axes:
        raise InputError("the space is empty: give an axis, such as --devices n150,n300 or --batches 1,8,64")
    return axes, sets


def _values(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _settings(name: str, text: str) -> list[Any]:
    """Values of an option, each as `--set` reads it. A value of several names is written with ;"""
    values = []
    for word in _values(text):
        (value,) = read_settings([f"{name}={word.replace(';', ',')}"]).values()
        values.append(value)
    return values


def _tell() -> Any:
    """A listener that says how far it is, where somebody looks."""
    last = [0.0]

    def tell(exploration: Explore) -> None:
        if not sys.stderr.isatty() or time.monotonic() - last[0] < _EVERY:
            return
        last[0] = time.monotonic()
        p = exploration.progress
        left = "" if p.seconds_left is None else f", about {p.seconds_left:,.0f} s left"
        print(f"\r  {p.done} of {p.total} trials{left}   ", end="", file=sys.stderr, flush=True)

    return tell


def table(exploration: Explore, keep_old: bool = False) -> str:
    """One line a trial, the front marked, then the front's commands."""
    plan = exploration.plan
    best = exploration.front()
    names = list(dict.fromkeys([o.number for o in plan.objectives] + [r.number for r in plan.requirements]))
    axes = list(plan.space.axes)
    rows = [["", "n", *axes, *names, "state"]]
    for trial in (*(exploration.stale if keep_old else ()), *exploration.trials):
        rows.append(_row(trial, axes, names, "*" if trial in best else "", trial in exploration.stale))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    if not best:
        lines.append("no trial is done" + (" and holds what is required" if plan.requirements else ""))
    for trial in best:
        numbers = ", ".join(f"{name} {_number(trial.numbers[name])}" for name in names)
        lines.append(f"* {trial.n}: {numbers}: {shlex.join(['tbuda', 'compile', *exploration.words(trial.n)])}")
    return "\n".join(lines)


def _row(trial: Trial, axes: list[str], names: list[str], mark: str, stale: bool) -> list[str]:
    numbers = [_number(trial.numbers[name]) if name in trial.numbers else "" for name in names]
    state = trial.state if trial.reason is None else f"{trial.state}: {trial.reason['text'][:100]}"
    return [
        mark,
        str(trial.n),
        *(str(trial.point.get(a, "")) for a in axes),
        *numbers,
        f"of version {trial.version}" if stale else state,
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _refuse_other_model(exploration: Explore, before: Record, folder: Path) -> None:
    """Raises `InputError` where a folder to compare with is of another model."""
    from tbuda_lab.core.explore import read

    own = read(exploration.folder).header["model"]
    if before.header["model"] != own:
        exploration.close()
        raise InputError(
            f"{folder} explores {before.header['model']}, {exploration.folder} {own}: give a folder of the same model"
        )


def _check(exploration: Explore, before: Record, arguments: argparse.Namespace) -> bool:
    """Print what differs from another exploration; whether a point is worse than allowed. Raises `InputError` where no
    point is in both."""
    from tbuda_lab.core.explore import check

    objective = exploration.plan.objectives[0]
    trials = [*before.trials.values(), *before.stale]
    changes = check(trials, exploration.trials, objective)
    differ = sum(change.before != change.after for change in changes)
    points = quantity(len(changes), "point")
    print(f"{points} compared with {arguments.check}: {objective.number} differs at {differ or 'none'}")
    for change in changes:
        if change.before != change.after:
            share = "" if abs(change.slower) == float("inf") else f" ({100 * change.slower:+.2f} % worse)"
            print(f"{objective.number} at {_point(change.point)}: {change.before} -> {change.after}{share}")
    allowed = arguments.fail_if_slower
    worse = [c for c in changes if allowed is not None and c.slower > allowed]
    if worse:
        print(
            f"tbuda: {len(worse)} of {len(changes)} points are worse in {objective.number} than "
            f"{100 * allowed:g} % allows",
            file=sys.stderr,
        )
    return bool(worse)


def _point(point: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in point.items())
