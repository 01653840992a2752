"""Candidate tables for all ops of a lowered graph; equal ops share one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tbuda_lab.core.balancer.choices import choices
from tbuda_lab.core.balancer.enumerate import Choice, enumerate_candidates
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.balancer.reasons import describe, remedies
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, PlacementError, counted
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override


def profiles(graph: Graph, options: CompileOptions) -> dict[str, OpProfile]:
    """The profile of every op, in graph order."""
    users = graph.users()
    return {node.name: profile_of(graph, node, options, users[node.name]) for node in graph.ops}


def op_models(
    graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override] = ()
) -> dict[str, OpModels]:
    """All candidates of every op. Raises `OverrideError` for an override that excludes every legal candidate and
    `PlacementError` for ops that have none at all; each names the counts of refusals and what would lift them."""
    result = profiles(graph, options)
    fixed = choices(result, device, overrides)
    shared: dict[str, OpModels] = {}
    models: dict[str, OpModels] = {}
    failures: list[Diagnostic] = []
    vetoed: list[Diagnostic] = []
    for name, profile in result.items():
        choice = fixed.get(name, Choice())
        signature = profile.signature if choice == Choice() else f"{profile.signature}|{choice!r}"
        table = shared.get(signature)
        if table is None:
            table = OpModels(signature, enumerate_candidates(profile, device, options, choice), profile)
            table.rows.setflags(write=False)
            shared[signature] = table
        models[name] = table
        if not len(table.legal()):
            counts = table.histogram()
            text, fix = _sentence(profile, len(table.rows), counts), remedies(counts)
            if not len(table.rows) and not options.enable_t_streaming and _asks_to_stream(choice):
                text = "an override asks for t-streaming, which the option enable_t_streaming switches off"
                fix = "switch enable_t_streaming on, or take the override away"
            wrong = Diagnostic("error", name, "no-candidate", text, fix)
            (failures if choice == Choice() else vetoed).append(wrong)
    if vetoed:
        raise OverrideError(f"overrides leave {counted(len(vetoed), 'op')} without a legal candidate", vetoed)
    if failures:
        raise PlacementError(f"no legal candidate for {counted(len(failures), 'op')} on {device.name}", failures)
    return models


def _asks_to_stream(choice: Choice) -> bool:
    return choice.stream_dir not in (None, "n") or choice.stream_shape not in (None, (1, 1))


def _sentence(profile: OpProfile, count: int, histogram: Mapping) -> str:  # type: ignore[type-arg]
    z, rt, ct = profile.out
    return (
        f"{profile.kind} with output of {z} x {rt} x {ct} tiles: none of {count} candidates is legal: "
        f"{describe(dict(histogram))}"
    )
