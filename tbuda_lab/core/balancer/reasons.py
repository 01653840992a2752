"""Texts of the refusal reasons: what each means and what would lift it."""

from __future__ import annotations

from tbuda_lab.core.balancer.types import Reason

MEANING: dict[Reason, str] = {
    Reason.LEGAL: "legal",
    Reason.OUTPUT_BUFFER: "the macro blocks of the output buffer are odd, or do not divide t (nor the other way round)",
    Reason.USER_ACCESS_PREVENTS_STREAMING: "a reader takes the tiles in an order that t-streaming cannot give",
    Reason.OPERAND_ACCESS_PREVENTS_STREAMING: "an operand cannot be sliced the way this t-streaming asks for",
    Reason.OPERAND_AND_USER_ACCESS_PREVENTS_STREAMING: "both an operand and a reader forbid this t-streaming",
    Reason.ILLEGAL_STREAMING: "this op cannot be cut along that dimension",
    Reason.L1_OVER_LIMIT: "output, parameter and intermediate buffers exceed the L1 of a core",
    Reason.DRAM_CHANNEL_CAPACITY: "one buffer of a queue would exceed a DRAM channel",
    Reason.INPUT_BUFFER_ALLOCATION: "the L1 left beside the other buffers cannot hold the input buffers",
    Reason.PADDING_NOT_SATISFIED: "padding does not fit the macro blocks",
    Reason.ILLEGAL_SPARSE_MATMUL: "the 16-bit words of the sparse encoding cannot hold tile, row and column numbers",
    Reason.OVERRIDDEN: "an override of the user excludes it",
    Reason.GRID_EXCEEDS_DEVICE: "the grid is larger than the device",
    Reason.GRID_DOES_NOT_DIVIDE: "the grid does not divide the tiles that it shares out",
}

REMEDY: dict[Reason, str] = {
    Reason.OUTPUT_BUFFER: "set an output buffer of 1, or of twice a divisor or multiple of t",
    Reason.USER_ACCESS_PREVENTS_STREAMING: "put the reader into another epoch, or insert a nop",
    Reason.OPERAND_ACCESS_PREVENTS_STREAMING: "stream along the other dimension, or not at all",
    Reason.OPERAND_AND_USER_ACCESS_PREVENTS_STREAMING: "break the epoch before this op, or insert nops",
    Reason.ILLEGAL_STREAMING: "drop the t-stream override, or stream along the other dimension",
    Reason.L1_OVER_LIMIT: "use more cores, a larger t-stream factor or a smaller format; leave parameters in DRAM",
    Reason.DRAM_CHANNEL_CAPACITY: "use a larger queue grid or fewer entries",
    Reason.INPUT_BUFFER_ALLOCATION: "use more cores, a smaller u_kt or more t-streaming; leave parameters in DRAM",
    Reason.PADDING_NOT_SATISFIED: "choose blocks that the padding does not cover whole",
    Reason.ILLEGAL_SPARSE_MATMUL: "use smaller blocks (more rows of cores or t-streaming) or a smaller u_kt",
    Reason.OVERRIDDEN: "change or remove the override",
    Reason.GRID_EXCEEDS_DEVICE: "choose a grid within the rows and columns of the device",
    Reason.GRID_DOES_NOT_DIVIDE: "choose rows and columns that divide those of the op's tiles",
}


def describe(histogram: dict[Reason, int]) -> str:
    """One line: how many candidates were refused for what, most frequent first."""
    parts = [f"{count} x {MEANING[reason]}" for reason, count in histogram.items() if reason is not Reason.LEGAL]
    return "; ".join(parts) if parts else "no candidate was refused"


def remedies(histogram: dict[Reason, int]) -> str:
    """What would lift the refusals, most frequent first."""
    return "; ".join(REMEDY[reason] for reason in histogram if reason is not Reason.LEGAL)
