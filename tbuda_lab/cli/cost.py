"""`tbuda cost` estimates the cycles of measured runs; `tbuda calibrate` refits the coefficients to them."""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.cli.profile import print_findings
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import atomic_file

if TYPE_CHECKING:
    from tbuda_lab.core.cost import Fit, Table
    from tbuda_lab.tools.measurements import Sheet

COLUMN = "estimated_cycles"
_ARCHS = ("grayskull", "wormhole_b0", "blackhole")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Registers both commands."""
    cost = subparsers.add_parser(
        "cost",
        help="add estimated cycles to a measurement CSV",
        description=f"Copies a measurement CSV and adds the column {COLUMN}: modelled cycles of one core per input. It "
        "is empty in rows that cannot be estimated; notes on stderr say why.",
    )
    cost.add_argument("file", type=Path, metavar="FILE.csv")
    cost.add_argument("--arch", required=True, type=str.lower, choices=_ARCHS)
    cost.add_argument("--out", required=True, type=Path, metavar="OUT.csv")
    cost.add_argument("--op", help="op type of the runs, where neither a column nor the file name gives it")
    cost.add_argument(
        "--coefficients",
        type=Path,
        metavar="FILE.yaml",
        help="coefficients that `tbuda calibrate` wrote, instead of the packaged ones",
    )
    cost.set_defaults(handler=run_cost)

    calibrate = subparsers.add_parser(
        "calibrate",
        help="refit the cycle coefficients to measurement CSVs",
        description="Fits every op and format found in the CSVs of a folder and prints the errors on unseen runs "
        "(five-fold cross-validation). With --profile instead: fits a table of kernels that run one at a "
        "time to profiles of TT-Metal, and prints the errors on profiles left out of the fit.",
    )
    calibrate.add_argument("folder", type=Path, metavar="FOLDER", nargs="?")
    calibrate.add_argument("--arch", type=str.lower, choices=_ARCHS, help="needed with FOLDER")
    calibrate.add_argument("--profile", type=Path, nargs="+", metavar="FILE", help="ops_perf_results*.csv of runs")
    calibrate.add_argument("--kernels", metavar="NAME", help="with --profile: name of the table (default ttnn)")
    calibrate.add_argument("--out", type=Path, metavar="FILE.yaml", help="where to write the coefficients")
    calibrate.set_defaults(handler=run_calibrate)


def run_cost(arguments: argparse.Namespace) -> int:
    """Writes the sheet with the added column; prints the errors when the sheet has measured cycles."""
    from tbuda_lab.tools.calibrate import relative_errors
    from tbuda_lab.tools.measurements import read_sheet

    table = _table(arguments)
    with atomic_file(arguments.out) as temporary:
        sheet = read_sheet(arguments.file, arguments.op, strict=False)
        if sheet.cells and len(sheet.refused) == len(sheet.cells):
            raise InputError(
                f"{arguments.file}: none of its {len(sheet.cells)} rows can be estimated: " + "; ".join(sheet.notes)
            )
        estimate = sheet.estimate(arguments.arch, table)
        _write(sheet, [str(value) if value else "" for value in estimate.tolist()], temporary)
    for note in sheet.notes:
        print(f"{arguments.file}: {note}", file=sys.stderr)
    without = f", {len(sheet.refused)} of them without an estimate" if sheet.refused else ""
    print(f"{len(estimate)} runs{without} -> {arguments.out}")
    timed = None if sheet.measured is None else sheet.measured > 0  # NaN: a run without a time
    if sheet.measured is not None and timed is not None and timed.any():
        errors = relative_errors(estimate[timed], sheet.measured[timed])
        print(f"relative error: median {errors.median:.1%}, mean {errors.mean:.1%}, 95th percentile {errors.p95:.1%}")
    return 0


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Fits and prints one line per fit; writes the coefficients when asked."""
    if arguments.profile:
        return _calibrate_profiles(arguments)
    if arguments.folder is None or arguments.arch is None:
        raise InputError("give a FOLDER of measurement CSVs with --arch, or profiles: --profile FILE.csv ...")
    if arguments.kernels is not None:
        raise InputError("--kernels names the table of profiles; give --profile FILE.csv ..., or leave it out")
    from tbuda_lab.core.cost import dump_fits
    from tbuda_lab.tools.calibrate import calibrate, group, read_folder

    runs = group(read_folder(arguments.folder))
    print(f"{'op':18} {'format':8} {'variant':12} {'runs':>5} {'pieces':>6} {'median':>8} {'mean':>8}")
    if arguments.out is None:
        calibrate(runs, _show)
        return 0
    with atomic_file(arguments.out) as temporary:
        temporary.write_text(dump_fits(arguments.arch, calibrate(runs, _show)), encoding="utf-8")
    print(f"coefficients -> {arguments.out}")
    return 0


def _table(arguments: argparse.Namespace) -> Table | None:
    from tbuda_lab.core.cost import load_fits, load_table

    if arguments.coefficients is None:
        return None
    arch, fits = load_fits(arguments.coefficients)
    if arch != arguments.arch:
        raise InputError(f"{arguments.coefficients}: coefficients of {arch}, not of {arguments.arch}")
    return load_table(arguments.arch).with_fits(fits)


def _write(sheet: Sheet, column: list[str], path: Path) -> None:
    """Header and cells as they were, the new column last (replaced where the sheet already has it)."""
    selected = [index for index, name in enumerate(sheet.header) if name != COLUMN]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(sheet.header[index] for index in selected), COLUMN])
        writer.writerows(
            [*(row[index] for index in selected), value] for row, value in zip(sheet.cells, column, strict=True)
        )


def _show(fit: Fit) -> None:
    print(
        f"{fit.key.kind:18} {fit.key.format:8} {fit.key.variant:12} {fit.runs:5} {len(fit.pieces):6} "
        f"{fit.median_error:8.2%} {fit.mean_error:8.2%}",
        flush=True,
    )


def _calibrate_profiles(arguments: argparse.Namespace) -> int:
    """The table of kernels of profiles; one line for each kernel, errors on profiles left out."""
    from tbuda_lab.core.files import atomic_text
    from tbuda_lab.core.measured import read_profile
    from tbuda_lab.core.measured.calibrate import calibrate_kernels
    from tbuda_lab.core.measured.kernels import COEFFICIENTS, dump_kernels

    if arguments.folder is not None:
        raise InputError(f"{arguments.folder}: give a folder of measurement CSVs or profiles, not both")
    if arguments.arch is not None:
        raise InputError(f"--arch {arguments.arch}: of measurement CSVs alone; a profile names its own device")
    name = "ttnn" if arguments.kernels is None else arguments.kernels
    if not re.fullmatch(r"[\w .+-]{1,40}", name):
        raise InputError(f"--kernels {name!r}: the name of a table has 1 to 40 letters, digits, spaces and . + - _")
    profiles = [read_profile(path) for path in arguments.profile]
    for profile in profiles:
        print_findings(profile.findings)
    table = calibrate_kernels(profiles, name)
    if arguments.out is not None:  # before anything is printed: a reader of the output may go away
        with atomic_text(arguments.out) as file:
            file.write(dump_kernels(table))
    print(f"{'kernel':20} {'runs':>6} {'ops':>5} {'left out':>9}  {'  '.join(f'{c:>8}' for c in COEFFICIENTS)}")
    for key, kernel in sorted(table.kernels.items()):
        error = "" if math.isnan(kernel.left_out) else f"{kernel.left_out:.1%}"
        values = "  ".join(f"{v:8.4g}" for v in kernel.coefficients)
        print(f"{key or 'all':20} {kernel.ops:6} {kernel.different:5} {error:>9}  {values}")
    for group, ops, left_out in table.errors:
        print(f"{group}: median error of {ops} runs on profiles left out {left_out:.1%}")
    if arguments.out is not None:
        print(f"wrote {arguments.out}")
    return 0
