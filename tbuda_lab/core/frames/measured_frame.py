"""The frame of a measured profile: a row for each of its ops, and for each op of a placement that it is laid over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.errors import UnknownDevice
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.measured import MeasuredOp, MeasuredProfile
from tbuda_lab.core.measured.kernels import (
    Estimate,
    KernelTable,
    Machine,
    bounds_of,
    features,
    packaged_kernels,
    profile_machine,
)
from tbuda_lab.core.measured.overlay import MeasuredOverlay
from tbuda_lab.core.measured.profile import INCOMPLETE

MOST_FINDINGS = 100
MOST_NAMES = 200


def measured_frame(source: MeasuredProfile | MeasuredOverlay, kernels: KernelTable | None = None) -> Frame:
    """Columns of a profile, one row for each op in order; times in ns.

    `row_*`: name, code, kind, group, shape, section, fidelity, format and cores; `time` and the `gap` before it; what
    the table of kernels says (`table`, `extrapolated`: "" or why); the roofline (`compute`, `dram`, `noc`); `op`: of
    the model, the op that it is, "" for none, and its `layer`; `line` of the file; `outlier`. Of an overlay also
    `op_*`, one for each placed op: name, `measured`, `table`, `pipelined`, `lost`, NaN where there is none. meta: name,
    arch, total, typed,
    devices, kernels (its name), errors ([group, ops, left out]), findings, unmatched, missing, runs, and totals by kind
    and by section ([name, ops, ns]).
    """
    laid = source if isinstance(source, MeasuredOverlay) else None
    profile = laid.match.profile if laid is not None else source
    assert isinstance(profile, MeasuredProfile)
    table = kernels or (laid.kernels if laid is not None else packaged_kernels())
    ops = profile.sequence()
    strings = Strings()
    columns = _rows(ops, profile, table, strings)
    partner = {} if laid is None else {pair.measured.name: pair.op for pair in laid.match.pairs}
    columns["row_op"] = strings.column(partner.get(op.name, "") for op in ops)
    modules = {} if laid is None else laid.modules
    columns["row_layer"] = strings.column(layer_of(modules.get(partner.get(op.name, ""), "")) for op in ops)
    meta: dict[str, Any] = {
        "name": profile.name,
        "source": profile.source,
        "arch": profile.arch,
        "total": profile.total,
        "typed": profile.typed,
        "devices": len(profile.devices),
        "kernels": table.name,
        "errors": [list(e) for e in table.errors],
        "findings": [str(f) for f in sorted(profile.findings, key=lambda f: f.rule not in INCOMPLETE)[:MOST_FINDINGS]],
        "finding_count": len(profile.findings),
        "matched": laid is not None,
        "by_kind": [[key[0], n, ns] for key, n, ns in profile.by("kind")],
        "by_section": [[key[0], n, ns] for key, n, ns in profile.by("section")][:MOST_NAMES],
    }
    if laid is not None:
        columns |= _placed(laid, strings)
        meta |= {
            "unmatched": [op.name for op in laid.match.unmatched[:MOST_NAMES]],
            "unmatched_count": len(laid.match.unmatched),
            "missing": list(laid.match.missing[:MOST_NAMES]),
            "missing_count": len(laid.match.missing),
            "runs": laid.match.runs,
        }
    return Frame("measured", meta, columns, strings.table)


def _rows(
    ops: Sequence[MeasuredOp], profile: MeasuredProfile, table: KernelTable, strings: Strings
) -> dict[str, np.ndarray]:
    machine = _machine(profile)
    guesses: list[Estimate | None] = [None] * len(ops)
    bounds: list[dict[str, float]] = [{}] * len(ops)
    for at, op in enumerate(ops):
        if machine is not None and op.sized:
            work = features(op, machine)
            bounds[at] = bounds_of(op, machine, work)
            guesses[at] = table.estimate(op, machine, work) if op.cores else None

    def text(get: Callable[[MeasuredOp], str]) -> np.ndarray:
        return strings.column(get(op) for op in ops)

    return {
        "row_name": text(lambda o: o.name),
        "row_code": text(lambda o: o.code),
        "row_kind": text(lambda o: o.kind),
        "row_group": text(lambda o: o.group),
        "row_shape": text(lambda o: o.shape_text),
        "row_section": text(lambda o: o.section),
        "row_fidelity": text(lambda o: o.fidelity),
        "row_df": text(lambda o: o.outputs[0].datatype if o.outputs else ""),
        "row_cores": np.array([min(o.cores, 1 << 30) for o in ops], dtype="<u4"),
        "row_line": np.array([o.row for o in ops], dtype="<u4"),
        "row_time": np.array([np.nan if o.time is None else o.time for o in ops], dtype="<f8"),
        "row_gap": np.array([o.gap for o in ops], dtype="<f8"),
        "row_outlier": np.array([o.outlier for o in ops], dtype="u1"),
        "row_table": np.array([np.nan if g is None else g.time for g in guesses], dtype="<f8"),
        "row_extrapolated": strings.column("" if g is None else g.extrapolated for g in guesses),
        **{f"row_{k}": np.array([b.get(k, np.nan) for b in bounds], dtype="<f8") for k in ("compute", "dram", "noc")},
    }


def layer_of(module: str) -> str:
    """The part of a model that repeats: a module's path up to its first number, "encoder.layers.3"; all of a path
    without one."""
    words = module.split(".")
    at = next((k for k, word in enumerate(words) if word.isdigit()), len(words) - 1)
    return ".".join(words[: at + 1])


def _machine(profile: MeasuredProfile) -> Machine | None:
    """None for an arch that nobody knows: the times are shown all the same."""
    try:
        return profile_machine(profile)
    except UnknownDevice:
        return None


def _placed(laid: MeasuredOverlay, strings: Strings) -> dict[str, np.ndarray]:
    def number(get: Callable[[Any], float | None]) -> np.ndarray:
        return np.array([np.nan if (v := get(op)) is None else v for op in laid.ops], dtype="<f8")

    return {
        "op_name": strings.column(op.op for op in laid.ops),
        "op_measured": number(lambda o: o.measured),
        "op_table": number(lambda o: o.ttnn),
        "op_pipelined": number(lambda o: o.pipelined),
        "op_lost": number(lambda o: None if o.measured is None else o.lost),
        "op_extrapolated": strings.column(op.extrapolated for op in laid.ops),
    }
