"""Overrides checked and sorted by op before any candidate is made: what was asked, for which ops, and what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.enumerate import Choice, legal_stream_dirs, parallel_tiles
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, counted
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.options import OVERRIDE_KINDS, Override, target_text

MODEL_KINDS = frozenset(
    {
        "op_size",
        "t_stream_dir",
        "t_stream_shape",
        "u_kt",
        "input_buffer_multiplier",
        "output_buffer_multiplier",
        "dram_parameters",
    }
)
_FIELD = {
    "op_size": "grid",
    "t_stream_dir": "stream_dir",
    "t_stream_shape": "stream_shape",
    "u_kt": "u_kt",
    "output_buffer_multiplier": "output_multiplier",
    "dram_parameters": "dram_parameters",
}


def unmatched(overrides: Sequence[Override], names: Iterable[str]) -> list[Diagnostic]:
    """A warning for every override that addresses no op or queue, and an error for every unknown kind."""
    known = list(names)
    found: list[Diagnostic] = []
    for record in overrides:
        if record.kind not in OVERRIDE_KINDS:
            found.append(
                Diagnostic(
                    "error",
                    target_text(record.target),
                    "override-kind",
                    f"unknown override {record.kind!r}",
                    f"known: {', '.join(OVERRIDE_KINDS)}",
                )
            )
            continue
        missing: list[str] = []
        if isinstance(record.target, tuple) and record.target:
            present = set(known)
            missing = [n for n in record.target if n not in present]
        elif not record.matches(known):
            missing = [target_text(record.target)]
        for name in missing:
            close = _closest(name, known)
            found.append(
                Diagnostic(
                    "warning",
                    name,
                    "override-unmatched",
                    f"{record.kind} addresses no op or queue of this graph",
                    f"did you mean {close!r}?" if close else "check the name in the op table",
                )
            )
    return found


def _closest(name: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return near[0] if near else ""


def _grid_texts(profile: OpProfile, device: DeviceSpec) -> str:
    rows, cols = parallel_tiles(profile)
    legal_r = [d for d in divisors(rows) if d <= device.rows]
    legal_c = [d for d in divisors(cols) if d <= device.cols]
    return f"legal rows: {', '.join(map(str, legal_r))}; legal columns: {', '.join(map(str, legal_c))}"


def _pair(value: object) -> tuple[int, int] | None:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(v, int) and v > 0 for v in value):
        return int(value[0]), int(value[1])
    return None


def _check(record: Override, name: str, profile: OpProfile, device: DeviceSpec) -> Diagnostic | None:
    """What is wrong with one record for one op, or None."""

    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, f"override-{record.kind}", message, fix)

    rows, cols = parallel_tiles(profile)
    value = record.value
    if record.kind == "op_size":
        size = _pair(value)
        fix = _grid_texts(profile, device)
        if size is None:
            return error(f"a size is two positive numbers (rows, columns), not {value!r}", fix)
        if rows % size[0] or cols % size[1] or size[0] > device.rows or size[1] > device.cols:
            return error(
                f"grid {size[0]}x{size[1]} is illegal for {rows}x{cols} tiles on a device of "
                f"{device.rows}x{device.cols} cores",
                fix,
            )
    elif record.kind == "t_stream_dir":
        legal = ("n", *legal_stream_dirs(profile))
        if value not in legal:
            return error(f"direction {value!r} is illegal here", f"legal: {', '.join(legal)}")
    elif record.kind == "t_stream_shape":
        shape = _pair(value)
        fix = f"rows must divide {rows} and columns {cols}; one of the two must be 1"
        if shape is None or rows % shape[0] or cols % shape[1] or min(shape) != 1:
            return error(f"t-stream shape {value!r} is illegal for {rows}x{cols} tiles", fix)
        direction = "r" if shape[0] > 1 else "c" if shape[1] > 1 else ""
        if direction and direction not in {d[0] for d in legal_stream_dirs(profile)}:
            return error(
                f"this op cannot stream along {'rows' if direction == 'r' else 'columns'}",
                f"legal directions: {', '.join(('n', *legal_stream_dirs(profile)))}",
            )
    elif record.kind == "u_kt":
        if not profile.inner:
            return error("this op has no inner dimension", "u_kt is for matmul and reduce")
        legal_steps = divisors(profile.inner_run)
        if value not in legal_steps:
            return error(f"u_kt {value!r} is illegal", f"legal: {', '.join(map(str, legal_steps))}")
    elif record.kind == "input_buffer_multiplier":
        good = isinstance(value, Mapping) and all(
            isinstance(k, int) and 0 <= k < len(profile.operands) and isinstance(v, int) and v >= 1
            for k, v in value.items()
        )
        if not good:
            return error(
                f"{value!r} is not a map of operand index to factor",
                f"operands 0 to {len(profile.operands) - 1}, factors from 1",
            )
    elif record.kind == "output_buffer_multiplier":
        most = device.l1_usable // tile_bytes(DataFormat.Bfp2, align=device.tile_align)  # the smallest tiles
        if not (isinstance(value, int) and 1 <= value <= most):
            said = f"{value!r} is not a number of macro blocks"
            return error(said, f"a whole number from 1 to {most}, which is how many tiles L1 holds")
    return None


def _apart(name: str, choice: Choice, profile: OpProfile) -> Diagnostic | None:
    """What of one op's overrides does not go together, each of which could be had alone; None if all of it does."""
    if choice.stream_shape is None:
        return None

    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, "override-t_stream_shape", message, fix)

    (down, along), direction = choice.stream_shape, choice.stream_dir
    said = f"t-stream shape {down}x{along}"
    if (down > 1 and direction in ("n", "c", "cz")) or (along > 1 and direction in ("n", "r", "rz")):
        return error(f"{said} and direction {direction!r} do not go together", "take one of the two away")
    if choice.grid is not None:
        rows, cols = parallel_tiles(profile)
        (high, wide) = choice.grid
        if rows % (high * down) or cols % (wide * along):
            return error(
                f"{said} on a grid of {high}x{wide} does not divide {rows}x{cols} tiles",
                "rows of grid times pieces must divide the rows of tiles, and columns the columns",
            )
    return None


def choices(profiles: Mapping[str, OpProfile], device: DeviceSpec, overrides: Sequence[Override]) -> dict[str, Choice]:
    """What the overrides fix for each op they address. Later records win over earlier ones of the same kind.

    Raises `OverrideError` with one diagnostic for each illegal value, naming what would be legal.
    """
    table: dict[str, Choice] = {}
    errors: list[Diagnostic] = []
    names = list(profiles)
    for record in overrides:
        if record.kind not in MODEL_KINDS:
            continue
        for name in record.matches(names):
            wrong = _check(record, name, profiles[name], device)
            if wrong is not None:
                errors.append(wrong)
                continue
            choice = table.get(name, Choice())
            if record.kind == "input_buffer_multiplier":
                merged = {**dict(choice.input_multiplier), **dict(record.value)}
                table[name] = dataclasses.replace(choice, input_multiplier=tuple(sorted(merged.items())))
            elif record.kind == "op_size" or record.kind == "t_stream_shape":
                pair = _pair(record.value)
                table[name] = dataclasses.replace(choice, **{_FIELD[record.kind]: pair})  # type: ignore[arg-type]
            else:
                table[name] = dataclasses.replace(choice, **{_FIELD[record.kind]: record.value})
    errors += [wrong for name, choice in table.items() if (wrong := _apart(name, choice, profiles[name])) is not None]
    if errors:
        raise OverrideError(f"{counted(len(errors), 'override')} cannot be honoured", errors)
    return table
