"""Candidates of every op with cost, memory and reasons; legality of edges; bandwidth limits."""

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.types import (
    CANDIDATE,
    Epoch,
    OpModels,
    OpPlacement,
    Placement,
    QueuePlacement,
    Reason,
)

__all__ = ["CANDIDATE", "Epoch", "OpModels", "OpPlacement", "Placement", "QueuePlacement", "Reason", "op_models"]
