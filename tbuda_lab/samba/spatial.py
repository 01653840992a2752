"""Spatial mapping: the whole program resident, every op on cores of its own."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.grid import Item, pack


class SpatialMappingError(PlacementError):
    """A spatial program needs more cores than there are, or more than one epoch of a kind."""


def map_spatially(graph: Graph, section: CompileResult, options: CompileOptions) -> CompileResult:
    """Compile with every op on cores of its own and one epoch of each kind. section: the compile by sections.

    Every op takes its smallest grid; the rectangles are packed on one chip and given to the placer as overrides. Raises
    `SpatialMappingError`, which says how many cores the program needs.
    """
    have = section.device.rows * section.device.cols
    least = sum(not node.attrs.get("inserted") for node in section.lowered.ops)
    if least > have:  # fused ops count once here, and each of their parts would need a core
        raise _too_large(section, least, have, "at least ")
    small = dataclasses.replace(options, balancer_policy="MinimizeGrid", enable_auto_fusing=False, loaded_once=True)
    first = compile_graph(graph, section.device, small, ())
    shapes = {op: p.size for op, p in first.placement.ops.items()}
    need = sum(r * c for r, c in shapes.values())
    items = [Item(r, c, turn=False) for r, c in shapes.values()]
    spots = pack(items, section.device.rows, section.device.cols) if need <= have else None
    if spots is None:
        raise _too_large(first, need, have)
    overrides = []
    for (op, shape), spot in zip(shapes.items(), spots, strict=True):
        overrides.append(Override("op_size", op, shape))
        overrides.append(Override("op_placement", op, {"start": tuple(spot[:2])}))
    result = compile_graph(graph, section.device, small, tuple(overrides))
    kinds = len({e.direction for e in result.placement.epochs})
    if len(result.placement.epochs) > kinds:
        raise SpatialMappingError(
            f"a spatial mapping has one epoch of each kind, the program needs {len(result.placement.epochs)}",
            [
                Diagnostic(
                    "error",
                    graph.name,
                    "spatial",
                    "an edge between ops keeps them in different epochs",
                    "use mapping='section'",
                )
            ],
        )
    return result


def _too_large(placed: CompileResult, need: int, have: int, bound: str = "") -> SpatialMappingError:
    """With the largest ops of a placement."""
    shapes = {op: p.size for op, p in placed.placement.ops.items()}
    largest = sorted(shapes, key=lambda op: -shapes[op][0] * shapes[op][1])[:3]
    return SpatialMappingError(
        f"a spatial mapping needs {bound}{need} cores, there are {have}",
        [
            Diagnostic(
                "error",
                op,
                "spatial",
                f"takes {shapes[op][0]}x{shapes[op][1]} cores",
                "use mapping='section', a smaller batch, or a device with more cores",
            )
            for op in largest
        ],
    )
