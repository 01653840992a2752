"""Errors of the cycle model on silicon runs.

    python bench/cost_model.py FOLDER

FOLDER holds one folder per arch (grayskull, wormhole_b0) of measurement CSVs. For every op, format and variant:
runs, then median relative errors of the published coefficients, of our fit on runs it has not seen (five-fold
cross-validation, as recorded with the coefficients), and of the packaged model as `tbuda cost` uses it. Bars: median
over all ops 4 % on grayskull and 8 % on wormhole_b0, no op over 20 %; exits with 1 when one is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import machine  # noqa: F401  (finds the package, holds BLAS to one thread)
import numpy as np

from tbuda_lab.core.cost import Key, Table, load_table
from tbuda_lab.tools.calibrate import read_folder, relative_errors
from tbuda_lab.tools.measurements import Sheet

BARS = {"grayskull": 0.04, "wormhole_b0": 0.08}
FAMILY_BAR = 0.20


def errors_by_key(sheets: list[Sheet], arch: str, table: Table) -> dict[Key, np.ndarray]:
    """Relative errors of a table on every run, by what the runs have in common."""
    parts: dict[Key, list[np.ndarray]] = {}
    for sheet in sheets:
        assert sheet.measured is not None
        error = np.abs(sheet.estimate(arch, table) - sheet.measured) / sheet.measured
        timed = sheet.measured > 0
        for key in dict.fromkeys(sheet.keys):
            parts.setdefault(key, []).append(error[timed & [k == key for k in sheet.keys]])
    return {key: np.concatenate(rows) for key, rows in sorted(parts.items(), key=lambda i: dataclasses.astuple(i[0]))}


def report(arch: str, folder: Path) -> bool:
    """Prints the table of one arch; False when a bar is missed."""
    sheets = read_folder(folder)
    table = load_table(arch)
    packaged = errors_by_key(sheets, arch, table)
    published = errors_by_key(sheets, arch, dataclasses.replace(table, fits={}))
    print(f"### {arch}\n")
    print(
        "| op | format | variant | runs | published, median | unseen, median | unseen, mean | packaged, median | "
        "packaged, mean | packaged, p95 |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    worst = 0.0
    for key, error in packaged.items():
        fit = table.fits.get(key)
        unseen = (f"{fit.median_error:.1%}", f"{fit.mean_error:.1%}") if fit else ("", "")
        ours = relative_errors(error + 1, np.ones(len(error)))
        worst = max(worst, ours.median)
        print(
            f"| {key.kind} | {key.format} | {key.variant} | {len(error)} | {np.median(published[key]):.1%} | "
            f"{unseen[0]} | {unseen[1]} | {ours.median:.1%} | {ours.mean:.1%} | {ours.p95:.1%} |"
        )
    every = np.concatenate(list(packaged.values()))
    before = np.concatenate(list(published.values()))
    print(
        f"| all | | | {len(every)} | {np.median(before):.1%} | | | {np.median(every):.1%} | {every.mean():.1%} | "
        f"{np.quantile(every, 0.95):.1%} |\n"
    )
    return bool(np.median(every) <= BARS[arch] and worst <= FAMILY_BAR)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    held = [report(arch, arguments.folder / arch) for arch in BARS if (arguments.folder / arch).is_dir()]
    if not held:
        parser.error(f"{arguments.folder} has no folder named {' or '.join(BARS)}")
    return 0 if all(held) else 1


if __name__ == "__main__":
    raise SystemExit(main())
