"""Where tensors lie. Values alone: a program may say them, and a placement decides what they mean here."""

from __future__ import annotations

import dataclasses
import enum


class TensorStorage(enum.Enum):
    OnChip = 0
    OffChip = 1


class ReplicatedTensorSharding(enum.Enum):
    Off = 0
    On = 1


class TileSet(enum.Enum):
    Compute = 0
    IO = 1


class ExecutionContext(enum.Enum):
    Normal = 0
    AccumulateOuterFragment = 1
    WeightsFromHostFragment = 2
    WeightsToHostFragment = 3
    OptimizerFromHostFragment = 4
    Subgraph = 5


@dataclasses.dataclass
class TensorLocation:
    """Storage of a tensor, and whether its replicas share it out."""

    storage: TensorStorage = TensorStorage.OnChip
    replicated_tensor_sharding: ReplicatedTensorSharding = ReplicatedTensorSharding.Off
