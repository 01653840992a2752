"""Errors of the cycle model where whole values of a parameter were never measured.

    python bench/cost_left_out.py FOLDER [--worst 30]

FOLDER as for cost_model.py. For every op, format and variant and every value that a parameter of its runs takes (t,
macro blocks, ublocks, inner dimension, z, fidelity, nonzero tiles; shapes and sizes of macro block and ublock as a
whole), the form is fitted to the runs with other values, with features and pieces as in the packaged fit, and predicts
those with this one: the error of extending the model to what is beside or beyond the sweep. A format left out is
priced as the packaged model prices one without runs. Prints, per arch, the median errors by parameter over all ops,
the worst values, and the median of each family over all values.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import machine  # noqa: F401  (finds the package, holds BLAS to one thread)
import numpy as np
import numpy.typing as npt

from tbuda_lab.core.cost import Fit, Key, Table, load_table
from tbuda_lab.tools.calibrate import KeyRuns, fit_pieces, form, group, read_folder
from tbuda_lab.tools.measurements import Sheet

ARCHS = ("grayskull", "wormhole_b0")
FEWEST = 5  # runs that have to be left to fit


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Relative errors of the runs of a key with one value of a parameter, by a fit to those with others."""

    key: Key
    parameter: str
    value: str
    errors: npt.NDArray[np.float64]

    @property
    def median(self) -> float:
        return float(np.median(self.errors))


def parameters(runs: KeyRuns) -> dict[str, npt.NDArray[np.str_]]:
    """The value of every run by parameter, shapes and sizes of blocks among them."""
    c = {name: values.astype(np.int64) for name, values in runs.counts.items()}
    parameters = {name: values.astype(str) for name, values in c.items()}
    for block, (rows, columns) in {"mblock": ("mblock_m", "mblock_n"), "ublock": ("ublock_r", "ublock_c")}.items():
        parameters[block] = np.array([f"{r}x{k}" for r, k in zip(c[rows], c[columns], strict=True)])
        parameters[f"{block} size"] = (c[rows] * c[columns]).astype(str)
    return parameters


def values_left_out(runs: KeyRuns, fit: Fit) -> Iterator[LeftOut]:
    """Every value of every parameter left out in turn, with the features and number of pieces of a fit."""
    names = dict.fromkeys((*form(runs.key), *(name for piece in fit.pieces for name in piece)))
    x = np.stack([runs.features[name] for name in names], axis=1)
    y = runs.measured
    for parameter, values in parameters(runs).items():
        distinct = np.unique(values)
        for value in distinct if len(distinct) > 1 else ():
            held = values == value
            if (~held).sum() < FEWEST:
                continue
            estimate = (x[held] @ fit_pieces(x[~held], y[~held], len(fit.pieces)).T).max(axis=1)
            yield LeftOut(runs.key, parameter, value, np.abs(estimate - y[held]) / y[held])


def formats_left_out(sheets: list[Sheet], arch: str, table: Table) -> Iterator[LeftOut]:
    """Every key whose op was measured in another format too, priced without its own fit."""
    for key in table.fits:
        others = [k for k in table.fits if (k.kind, k.variant) == (key.kind, key.variant) and k != key]
        if not others:
            continue
        without = dataclasses.replace(table, fits={k: fit for k, fit in table.fits.items() if k != key})
        errors = []
        for sheet in sheets:
            mine = np.array([k == key for k in sheet.keys])
            if sheet.measured is not None and mine.any():
                mine &= sheet.measured > 0
                errors.append(np.abs(sheet.estimate(arch, without)[mine] / sheet.measured[mine] - 1))
        if errors:
            yield LeftOut(key, "format", key.format, np.concatenate(errors))


def report(arch: str, folder: Path, worst: int) -> None:
    """Prints the tables of one arch."""
    sheets, table = read_folder(folder), load_table(arch)
    matches = [
        one for runs in group(sheets) if runs.key in table.fits for one in values_left_out(runs, table.fits[runs.key])
    ]
    matches += formats_left_out(sheets, arch, table)
    print(f"### {arch}\n\n| parameter | values left out | runs | median | 95th percentile | worst value's median |")
    print("|---|---|---|---|---|---|")
    for parameter in dict.fromkeys(one.parameter for one in matches):
        mine = [one for one in matches if one.parameter == parameter]
        errors = np.concatenate([one.errors for one in mine])
        print(
            f"| {parameter} | {len(mine)} | {len(errors)} | {np.median(errors):.1%} | "
            f"{np.quantile(errors, 0.95):.1%} | {max(one.median for one in mine):.1%} |"
        )
    print("\n| op | format | variant | left out | runs | median |\n|---|---|---|---|---|---|")
    for one in sorted(matches, key=lambda one: -one.median)[:worst]:
        print(
            f"| {one.key.kind} | {one.key.format} | {one.key.variant} | {one.parameter} {one.value} | "
            f"{len(one.errors)} | {one.median:.1%} |"
        )
    print("\n| op | median over all values left out | parameter it is worst for | median |\n|---|---|---|---|")
    for kind in sorted({one.key.kind for one in matches}):
        mine = [one for one in matches if one.key.kind == kind]
        by = {
            p: np.median(np.concatenate([one.errors for one in mine if one.parameter == p]))
            for p in dict.fromkeys(one.parameter for one in mine)
        }
        hardest = max(by, key=lambda p: by[p])
        print(
            f"| {kind} | {np.median(np.concatenate([one.errors for one in mine])):.1%} | {hardest} | "
            f"{by[hardest]:.1%} |"
        )
    print()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--worst", type=int, default=30, help="values to list (default %(default)s)")
    arguments = parser.parse_args()
    folders = {arch: arguments.folder / arch for arch in ARCHS if (arguments.folder / arch).is_dir()}
    if not folders:
        parser.error(f"{arguments.folder} has no folder named {' or '.join(ARCHS)}")
    for arch, folder in folders.items():
        report(arch, folder, arguments.worst)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
