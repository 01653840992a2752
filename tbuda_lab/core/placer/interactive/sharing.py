"""Results that share what is equal in them.

An edit changes a few ops of a thousand. A result that holds objects of its own for all of them costs memory, and with
32 results kept the collector of cyclic garbage takes half a second over them every few edits. Objects that are shared
also tell at once what an edit left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.netlist.schema import Execute, Netlist

T = TypeVar("T")


def shared(new: Mapping[str, T], old: Mapping[str, T]) -> dict[str, T]:
    """`new`, with the objects of `old` where they are equal; order is that of `new`."""
    shared = {}
    for name, value in new.items():
        before = old.get(name)
        shared[name] = before if before is not None and (before is value or before == value) else value
    return shared


def share_placement(new: Placement, old: Placement) -> Placement:
    """An equal placement that takes from `old` what is the same there."""
    old_epochs = dict(enumerate(old.epochs))
    epochs = (old_epochs[i] if old_epochs.get(i) == epoch else epoch for i, epoch in enumerate(new.epochs))
    return dataclasses.replace(
        new,
        ops=shared(new.ops, old.ops),
        queues=shared(new.queues, old.queues),
        epochs=tuple(epochs),
        ublock_order=old.ublock_order if new.ublock_order == old.ublock_order else new.ublock_order,
    )


def share_netlist(new: Netlist, old: Netlist) -> None:
    """Takes from `old` what is equal there: queues, ops, settings of queues."""
    new.queues = shared(new.queues, old.queues)
    for graph in new.graphs.values():
        before = old.graphs.get(graph.name)
        if before is not None:
            graph.ops = shared(graph.ops, before.ops)
    runs = {(p.name, i.graph): i for p in old.programs for i in p.instructions if isinstance(i, Execute)}
    for program in new.programs:
        for at, instruction in enumerate(program.instructions):
            if isinstance(instruction, Execute):
                entry = runs.get((program.name, instruction.graph))
                if entry is not None and entry == instruction:
                    program.instructions[at] = entry
