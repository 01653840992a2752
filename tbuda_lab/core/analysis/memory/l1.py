"""The L1 of the cores of an op, buffer by buffer.

A compile decides how large the buffers are; the backend gives them addresses when it makes binaries. Here they are
stacked above the reserved part in a fixed order (output, intermediates, parameters, inputs), so that what is left is
one hole at the end.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.balancer.buffers import operand_bytes, picker_bytes, streamed_encoding_bytes
from tbuda_lab.core.balancer.parameters import preloads_encoding
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.epochsim.compiled import SimulatedCompile
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.hwops import HwSparseMatmul
from tbuda_lab.core.overrides import Override

KINDS = ("output", "intermediate", "parameter", "input")


@dataclasses.dataclass(frozen=True)
class L1Part:
    """A buffer. kind: one of `KINDS`; operand: number of the operand, -1 for none; source: what fills it; `start` and
    `bytes` within the core's L1."""

    kind: str
    operand: int
    source: str
    bytes: int
    start: int


@dataclasses.dataclass(frozen=True)
class L1Map:
    """The L1 of every core of an op, in bytes. `reserved`: firmware, overlay and routing tables, from address 0."""

    op: str
    size: int
    reserved: int
    parts: tuple[L1Part, ...]

    @property
    def used(self) -> int:
        """Bytes of all buffers, without the reserved part."""
        return sum(p.bytes for p in self.parts)

    @property
    def free(self) -> int:
        return self.size - self.reserved - self.used

    @property
    def largest_hole(self) -> int:
        """The largest free block; as buffers are stacked it is all that is free."""
        ends = [self.reserved, *(p.start + p.bytes for p in self.parts)]
        starts = [*(p.start for p in self.parts), self.size]
        return max(s - e for e, s in zip(ends, starts, strict=True))


def l1_map(result: SimulatedCompile, op: str) -> L1Map:
    """The buffers of an op. Raises `InputError` for a name that is not placed."""
    if op not in result.placement.ops:
        raise InputError(f"{op!r} is not an op of the placement")
    placement, device = result.placement, result.device
    table, at = placement.models[op], placement.ops[op].row
    rows = table.rows[at : at + 1]
    row = rows[0]
    buffers: list[tuple[str, int, str, int]] = [("output", -1, op, int(row["l1_output"]))]
    buffers.append(("intermediate", -1, op, int(row["l1_intermed"])))
    if table.profile is None:
        buffers += [("parameter", -1, "", int(row["l1_param"])), ("input", -1, "", int(row["l1_input"]))]
    else:
        buffers += _operands(result, op, table.profile, rows)
    parts = []
    address = device.l1_reserved
    for kind, operand, source, size in sorted(buffers, key=lambda p: KINDS.index(p[0])):
        if size:
            parts.append(L1Part(kind, operand, source, size, address))
            address += size
    return L1Map(op, device.l1_size, device.l1_reserved, tuple(parts))


def _operands(
    result: SimulatedCompile, op: str, profile: OpProfile, rows: np.ndarray
) -> list[tuple[str, int, str, int]]:
    align = result.device.tile_align
    multiplier = _multipliers(result.overrides, op)
    wider = result.placement.input_buffers.get(op, ())
    operands = []
    for port, (operand, edge) in enumerate(zip(profile.operands, result.lowered[op].inputs, strict=True)):
        fed, retained = (int(v[0]) for v in operand_bytes(profile, port, rows, multiplier, align))
        if port < len(wider):  # a short branch of a fork waits here
            fed = max(fed, wider[port] * tile_bytes(operand.df, align=align))
        operands += [("parameter", port, edge.source, retained), ("input", port, edge.source, fed)]
    if isinstance(profile.op, HwSparseMatmul):
        tiles, encoding = picker_bytes(profile, rows, align)
        operands.append(("parameter", -1, f"lc.sparse_tiles.{op}", tiles))
        resident = bool(preloads_encoding(rows)[0])
        size = encoding if resident else streamed_encoding_bytes(encoding, align)
        operands.append(("parameter" if resident else "input", -1, f"lc.sparse_encoding.{op}", int(size[0])))
    return operands


def _multipliers(overrides: tuple[Override, ...], op: str) -> dict[int, int]:
    multipliers: dict[int, int] = {}
    for override in overrides:
        if override.kind == "input_buffer_multiplier" and override.matches([op]):
            multipliers |= dict(override.value)
    return multipliers
