"""The coefficients: our fits of silicon runs where there are runs, the published figures elsewhere.

`data/fitted_<arch>.yaml` holds what `tbuda calibrate` wrote; `data/published_<arch>.yaml` the coefficients that the
backend published (latest version), in a schema of ours: `when` conditions, later matching rules win. Blackhole, of
which no run is public, is taken to run Wormhole's cycles, and so are the vector functions of Grayskull that have
neither runs nor published figures.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError, UnknownDevice, UnsupportedOp
from tbuda_lab.core.files import parse_yaml, yaml_map

ARCHS = ("grayskull", "wormhole_b0", "blackhole")
_FITTED_FROM = {"grayskull": "grayskull", "wormhole_b0": "wormhole_b0", "blackhole": "wormhole_b0"}
_BORROWED = {"grayskull": ("wormhole_b0", ("abs", "cosine", "dropout", "lrelu", "sine", "square", "tanh"))}

Pieces = list[dict[str, float]]


@dataclasses.dataclass(frozen=True)
class Key:
    """What a fit holds for: the op kind, the class of its input format, and the variant ("", "approximate",
    "l1_acc", or the dimension of a reduction)."""

    kind: str
    format: str
    variant: str = ""


@dataclasses.dataclass(frozen=True)
class Fit:
    """Cycles of one key: the maximum of `pieces`; from `runs` measurements, with the relative errors out of fold."""

    key: Key
    pieces: tuple[dict[str, float], ...]
    runs: int
    median_error: float
    mean_error: float


@dataclasses.dataclass(frozen=True)
class Table:
    """All coefficients of one arch."""

    arch: str
    fits: Mapping[Key, Fit]
    published: Mapping[str, list[dict[str, Any]]]

    def with_fits(self, fits: Mapping[Key, Fit]) -> Table:
        """The same table with these fits in place of its own."""
        return dataclasses.replace(self, fits=dict(self.fits) | dict(fits))


@functools.cache
def load_table(arch: str) -> Table:
    """The packaged coefficients of an arch; raises `UnknownDevice` for another name."""
    if arch not in ARCHS:
        raise UnknownDevice(f"no cycle coefficients for {arch!r}; archs are {', '.join(ARCHS)}")
    fits = dict(_packaged_fits(_FITTED_FROM[arch]))
    if arch in _BORROWED:
        source, kinds = _BORROWED[arch]
        fits |= {key: fit for key, fit in _packaged_fits(source).items() if key.kind in kinds}
    return Table(arch, fits, _read_packaged(f"published_{arch}.yaml")["ops"])


@functools.cache
def _packaged_fits(arch: str) -> dict[Key, Fit]:
    name = f"fitted_{arch}.yaml"
    return read_fits(_read_packaged(name), name)


def _read_packaged(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("data", name).read_text(encoding="utf-8")
    packaged: dict[str, Any] = parse_yaml(text, name)
    return packaged


def load_fits(path: Path) -> tuple[str, dict[Key, Fit]]:
    """(arch, fits) of a file that `tbuda calibrate` wrote; raises `InputError` when it is no such file."""
    data = yaml_map(path, "file of fitted coefficients")
    if data.get("arch") not in ARCHS:
        raise InputError(f"{path}: not a file of fitted coefficients: arch is one of {', '.join(ARCHS)}")
    return data["arch"], read_fits(data, str(path))


def read_fits(data: dict[str, Any], name: str) -> dict[Key, Fit]:
    """The `fits` list of a coefficients file."""
    entries = data.get("fits") or []
    if not isinstance(entries, list):
        raise InputError(f"{name}: fits is a list, not {type(entries).__name__}")
    fits: dict[Key, Fit] = {}
    for entry in entries:
        try:
            key = Key(str(entry["kind"]), str(entry["format"]), str(entry.get("variant", "")))
            pieces = tuple({str(f): _weight(w) for f, w in piece.items()} for piece in entry["pieces"])
            errors = _weight(entry["median_error"]), _weight(entry["mean_error"])
            fits[key] = Fit(key, pieces, int(entry["runs"]), *errors)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError) as error:
            raise InputError(f"{name}: not a fit: {str(entry)[:200]}") from error
        if not pieces:
            raise InputError(f"{name}: a fit of {key.kind} without pieces")
    return fits


def _weight(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a weight")
    return number


def dump_fits(arch: str, fits: Mapping[Key, Fit]) -> str:
    """The text of a coefficients file; `load_fits` reads it back."""
    lines = [
        "# Cycles of one core and input, fitted to silicon runs by `tbuda calibrate`: the largest of the pieces,",
        "# each a sum of features (tbuda_lab/core/cost/model.py) times cycles. Errors are relative, from",
        "# five-fold cross-validation.",
        f"arch: {arch}",
        "fits:",
    ]
    for key, fit in sorted(fits.items(), key=lambda item: dataclasses.astuple(item[0])):
        variant = f", variant: {key.variant}" if key.variant else ""
        lines.append(
            f"  - {{kind: {key.kind}, format: {key.format}{variant}, runs: {fit.runs}, "
            f"median_error: {fit.median_error:.4f}, mean_error: {fit.mean_error:.4f},"
        )
        pieces = [", ".join(f"{name}: {weight:.6g}" for name, weight in piece.items()) for piece in fit.pieces]
        lines.append("     pieces: [" + ", ".join(f"{{{piece}}}" for piece in pieces) + "]}")
    return "\n".join(lines) + "\n"


def published_coefficients(table: Table, kind: str, conditions: frozenset[str]) -> dict[str, float] | None:
    """The published coefficients of an op under those conditions (df_int8, df_int32, df_bfp, approx, vector_r,
    vector_c, l1_acc_en, dim_c), None when the op is not in the table."""
    coefficients: dict[str, float] | None = None
    for rule in table.published.get(kind, ()):
        if conditions.issuperset(rule["when"]):
            coefficients = rule["coeff"]
    return coefficients


def unknown_kind(kind: str, kinds: tuple[str, ...]) -> UnsupportedOp:
    """The error for an op type that the tables have no coefficients of."""
    return UnsupportedOp(f"no cycle estimate for op type {kind!r}; there are {', '.join(kinds)}")
