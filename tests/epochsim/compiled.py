"""Placed graphs as the simulator takes them, from graphs written by hand."""

from __future__ import annotations

from types import SimpleNamespace

from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.placer.graphs import placed_as_chosen


def placed(
    graph: Graph,
    device: str = "wormhole_b0",
    options: CompileOptions | None = None,
    overrides: tuple[Override, ...] = (),
) -> SimpleNamespace:
    """What `simulate` reads of a CompileResult."""
    spec, options = load_device(device), options or CompileOptions()
    placement = placed_as_chosen(graph, spec, options, overrides)
    factors = resolve(overrides, graph, spec, options).input_factors
    return SimpleNamespace(
        lowered=graph,
        placement=placement,
        device=spec,
        options=options,
        input_factors=factors,
        loaded_once=options.loaded_once,
    )
