"""`pybuda._C.balancer`."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class OpOverride:
    """What an op was overridden to; None where the balancer chooses."""

    grid_shape: tuple[int, int] | None = None
    t_stream_dir: str | None = None
    t_stream_shape: tuple[int, int] | None = None
    u_kt: int | None = None


__all__ = ["OpOverride"]
