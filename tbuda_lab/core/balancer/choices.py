"""What the overrides of a model fix for the candidates of each op."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.enumerate import Choice, legal_stream_dirs, parallel_tiles
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, counted
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.overrides import KINDS, Kind, Malformed, OpLimits, Override

MODEL_KINDS = frozenset(name for name, kind in KINDS.items() if kind.choice)
"""Kinds that fix something of an op's candidates."""


def limits_of(profile: OpProfile, device: DeviceSpec) -> OpLimits:
    """What an op can have at all on a device."""
    rows, cols = parallel_tiles(profile)
    return OpLimits(
        rows, cols,
        tuple(d for d in divisors(rows) if d <= device.rows),
        tuple(d for d in divisors(cols) if d <= device.cols),
        (device.rows, device.cols),
        legal_stream_dirs(profile),
        tuple(divisors(profile.inner_run)) if profile.inner else (),
        len(profile.operands),
        tuple(port for port, operand in enumerate(profile.operands) if operand.feed == "parameter"),
        device.l1_usable // tile_bytes(DataFormat.Bfp2, align=device.tile_align),  # the smallest tiles
    )  # fmt: skip


def _apart(name: str, choice: Choice, profile: OpProfile) -> Diagnostic | None:
    """What of one op's overrides does not go together, each of which could be had alone; None if all of it does."""
    if choice.stream_shape is None:
        return None

    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, "override-t_stream_shape", message, fix)

    (down, along), direction = choice.stream_shape, choice.stream_dir
    text = f"t-stream shape {down}x{along}"
    if (down > 1 and direction in ("n", "c", "cz")) or (along > 1 and direction in ("n", "r", "rz")):
        return error(f"{text} and direction {direction!r} do not go together", "take one of the two away")
    if choice.grid is not None:
        rows, cols = parallel_tiles(profile)
        (high, wide) = choice.grid
        if rows % (high * down) or cols % (wide * along):
            return error(
                f"{text} on a grid of {high}x{wide} does not divide {rows}x{cols} tiles",
                "rows of grid times pieces must divide the rows of tiles, and columns the columns",
            )
    return None


def _read(record: Override, name: str, limits: OpLimits) -> Kind | Diagnostic:
    """The value of an override of one op, or what is wrong with it."""
    kind = KINDS[record.kind]
    try:
        parsed = kind.parse(record.value)
    except Malformed as error:
        message, fix = error.fault
        fault = message, kind.legal(limits) or fix
    else:
        wrong = parsed.validate(limits)
        if wrong is None:
            return parsed
        fault = wrong
    return Diagnostic("error", name, f"override-{record.kind}", *fault)


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
            parsed = _read(record, name, limits_of(profiles[name], device))
            if isinstance(parsed, Diagnostic):
                errors.append(parsed)
                continue
            choice = table.get(name, Choice())
            value = parsed.chosen(getattr(choice, parsed.choice))
            table[name] = dataclasses.replace(choice, **{parsed.choice: value})
    errors += [wrong for name, choice in table.items() if (wrong := _apart(name, choice, profiles[name])) is not None]
    if errors:
        raise OverrideError(f"{counted(len(errors), 'override')} cannot be met", errors)
    return table
