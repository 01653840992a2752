"""Which replicas belong together: groups of one size, numbered in order of appearance."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tbuda_lab.popxl.ir import Ir


class ReplicaGrouping:
    """Made by `Ir.replica_grouping` (groups of replicas a stride apart) or `Ir.replica_grouping_from_assignments`."""

    _assignment: list[int]
    _stride: int | None
    _group_size: int

    def __init__(self) -> None:
        raise RuntimeError("a ReplicaGrouping cannot be made; call ir.replica_grouping(...)")

    @classmethod
    def _strided(cls, ir: Ir, stride: int, group_size: int | None) -> ReplicaGrouping:
        replicas, stride = ir.replication_factor, operator.index(stride)
        if not 1 <= stride <= replicas:
            raise ValueError(f"stride {stride} is not in the range 1 to {replicas}, the number of replicas")
        if replicas % stride:
            raise ValueError(f"stride {stride} does not divide the {replicas} replicas")
        size = replicas // stride if group_size is None else operator.index(group_size)
        if not 1 <= size <= replicas:
            raise ValueError(f"group_size {size} is not in the range 1 to {replicas}, the number of replicas")
        if size == 1:
            stride = 1
        if replicas % (stride * size):
            raise ValueError(f"{replicas} replicas cannot be groups of {size} with stride {stride}")
        assignment = [r // (stride * size) * stride + r % stride for r in range(replicas)]
        return cls._of(assignment, stride)

    @classmethod
    def _assigned(cls, replicas: int, assignment: Sequence[int]) -> ReplicaGrouping:
        numbers = [operator.index(n) for n in assignment]
        if len(numbers) != replicas:
            raise ValueError(f"{len(numbers)} replicas are assigned to groups, there are {replicas}")
        groups = list(dict.fromkeys(numbers))
        if sorted(groups) != list(range(len(groups))):
            raise ValueError(f"groups are numbered from 0 on without gaps, not {sorted(groups)}")
        if groups != sorted(groups):
            raise ValueError(f"groups are numbered in order of appearance, not {groups}")
        if len({numbers.count(g) for g in groups}) > 1:
            raise ValueError("all groups have the same size")
        return cls._of(numbers, None)

    @classmethod
    def _of(cls, assignment: list[int], stride: int | None) -> ReplicaGrouping:
        self = object.__new__(cls)
        self._assignment = assignment
        self._group_size = assignment.count(0)
        self._stride = stride if stride is not None else cls._common_stride(assignment)
        return self

    @staticmethod
    def _common_stride(assignment: list[int]) -> int | None:
        """The stride with which a regular grouping has this assignment."""
        replicas, size = len(assignment), assignment.count(0)
        for stride in range(1, replicas + 1):
            if replicas % (stride * size) == 0 and assignment == [
                r // (stride * size) * stride + r % stride for r in range(replicas)
            ]:
                return stride
        return None

    @property
    def stride(self) -> int:
        """Raises `NotImplementedError` where the replicas of a group are not evenly apart."""
        if self._stride is None:
            raise NotImplementedError("this grouping has no stride; is_const tells")
        return self._stride

    @property
    def group_size(self) -> int:
        return self._group_size

    @property
    def num_replicas(self) -> int:
        return len(self._assignment)

    @property
    def num_groups(self) -> int:
        return len(self._assignment) // self._group_size

    @property
    def assignment(self) -> list[int]:
        """By replica the number of its group."""
        return list(self._assignment)

    @property
    def is_const(self) -> bool:
        """Whether the replicas of every group are one stride apart."""
        return self._stride is not None

    @functools.cached_property
    def groups(self) -> list[list[int]]:
        """The replicas of each group in order."""
        return [[r for r, g in enumerate(self._assignment) if g == group] for group in range(self.num_groups)]

    @functools.cached_property
    def const_rg(self) -> ReplicaGrouping:
        """The regular grouping with the largest groups that are parts of this one's groups."""
        if self.is_const:
            return self
        gaps = [b - a for group in self.groups for a, b in itertools.pairwise(group)]
        stride = min(gaps)
        sizes = []
        for group in self.groups:
            run = 1
            for a, b in itertools.pairwise(group):
                if b - a > stride:
                    sizes.append(run)
                    run = 0
                run += 1
            sizes.append(run)
        size = math.gcd(*sizes)
        replicas = self.num_replicas
        if size == 1 or replicas % (stride * size):
            return self._of(list(range(replicas)), 1)
        assignment = [r // (stride * size) * stride + r % stride for r in range(replicas)]
        inside = all(
            len({self._assignment[r] for r in range(replicas) if assignment[r] == g}) == 1 for g in set(assignment)
        )
        return self._of(assignment, stride) if inside else self._of(list(range(replicas)), 1)

    @property
    def to_device_map(self) -> list[int] | None:
        """By group of `const_rg` the group of this one; None where they are the same."""
        if self.is_const:
            return None
        return [self._assignment[group[0]] for group in self.const_rg.groups]

    @property
    def to_host_map(self) -> list[int] | None:
        """By group the first group of `const_rg` in it; None where they are the same."""
        device = self.to_device_map
        return None if device is None else [device.index(g) for g in range(self.num_groups)]

    def transpose(self) -> ReplicaGrouping:
        """The first replicas of all groups together, the second ones, ..."""
        rank = {r: k for group in self.groups for k, r in enumerate(group)}
        return self._of([rank[r] for r in range(self.num_replicas)], None)

    def _host_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.num_groups, *shape) if self.num_groups > 1 else shape

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            raise TypeError(f"a ReplicaGrouping is compared with {type(other).__name__}")
        return self._assignment == other._assignment

    def __hash__(self) -> int:
        return hash(tuple(self._assignment))

    def __repr__(self) -> str:
        head = f"num_replicas={self.num_replicas}, "
        if self._stride is None:
            return f"ReplicaGrouping({head}group_size={self.group_size}, assignment={self._assignment})"
        return (
            f"ReplicaGrouping({head}stride={self.stride}, group_size={self.group_size}, num_groups={self.num_groups})"
        )


class CommGroupType:
    """How a CommGroup divides replicas."""

    All = "all"
    Consecutive = "consecutive"
    Orthogonal = "orthogonal"
    Ungrouped = "none"


class CommGroup:
    """The older way to say a grouping: all replicas, so many consecutive or orthogonal ones, or each alone."""

    def __init__(self, type: str = CommGroupType.All, replicaGroupSize: int = 0) -> None:
        self.type, self.replicaGroupSize = type, replicaGroupSize

    def toReplicaGrouping(self, replicas: int) -> ReplicaGrouping:
        """The grouping of so many replicas."""
        size = {CommGroupType.All: replicas, CommGroupType.Ungrouped: 1}.get(self.type, self.replicaGroupSize)
        stride = replicas // size if self.type == CommGroupType.Orthogonal else 1
        return ReplicaGrouping._of([r // (stride * size) * stride + r % stride for r in range(replicas)], stride)
