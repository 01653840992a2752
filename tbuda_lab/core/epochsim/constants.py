"""The constants of the epoch model, in one place."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EpochConstants:
    """All times in cycles of the device's clock. None of them is measured on silicon: they are stated assumptions.

    switch: from the end of an epoch to the start of the next on the same chip (loading kernels and stream
        configuration). No published figure; the placer's objective uses the same one.
    noc_latency: a message between cores, data one way and the credit for freed space the other.
    dram_latency: from an epoch's start to the first tile of a queue in DRAM or host memory, and from the last packed
        tile to its place there. Transfers themselves are in the ops' limiter cycles.
    host_input, host_output: cycles per input that the host needs to push one, and to pop one; 0: never the limit.
    steps: into how many equal steps an op's work on one input is cut, at least (an op that streams takes one step per
        t or more, one with fewer ublocks takes fewer). More steps follow the hand-over of blocks more closely.
    max_steps: and at most.
    parts: into how many groups of cores an op may fall that do not go in step (they need different blocks of what
        streams in); an op with more is taken to go in step.
    """

    switch: int = 20_000
    noc_latency: int = 100
    dram_latency: int = 500
    host_input: int = 0
    host_output: int = 0
    steps: int = 16
    max_steps: int = 96
    parts: int = 16

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            least = 1 if field.name in ("steps", "max_steps", "parts") else 0
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{field.name} is a whole number of at least {least}, not {value!r}")
