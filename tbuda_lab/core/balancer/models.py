"""Candidate tables for all ops of a lowered graph; equal ops share one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.enumerate import Choice, candidates
from tbuda_lab.core.balancer.l1 import header_bytes
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.balancer.types import OpModels, Reason
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, PlacementError, quantity
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import phases
from tbuda_lab.core.netlist.cores.buffers import EXTRA_STREAMS
from tbuda_lab.core.options import CompileOptions


def profiles(graph: Graph, options: CompileOptions) -> dict[str, OpProfile]:
    """The profile of every op, in graph order."""
    users, phase = graph.users(), phases(graph)
    headers = header_bytes(graph, options)
    return {node.name: profile_of(graph, node, options, users, phase, headers) for node in graph.ops}


def signature_of(profile: OpProfile, choice: Choice) -> str:
    """What ops have in common that share a table."""
    return profile.signature if choice == Choice() else f"{profile.signature}|{choice!r}"


def table_of(profile: OpProfile, choice: Choice, device: DeviceSpec, options: CompileOptions) -> OpModels:
    """All candidates of an op of which overrides fix `choice`."""
    return OpModels(signature_of(profile, choice), candidates(profile, device, options, choice), profile)


def op_models(
    graph: Graph, device: DeviceSpec, options: CompileOptions, choices: Mapping[str, Choice] | None = None
) -> dict[str, OpModels]:
    """All candidates of every op. choices: by op what is fixed of them (`Constraints.choices`). Raises `OverrideError`
    where that excludes every legal candidate and `PlacementError` for ops that have none at all; each names the counts
    of refusals and what would lift them."""
    op_profiles = profiles(graph, options)
    shared: dict[str, OpModels] = {}
    models: dict[str, OpModels] = {}
    failures: list[Diagnostic] = []
    vetoed: list[Diagnostic] = []
    for name, profile in op_profiles.items():
        choice = (choices or {}).get(name, Choice())
        signature = signature_of(profile, choice)
        table = shared.get(signature)
        if table is None:
            table = shared[signature] = table_of(profile, choice, device, options)
        models[name] = table
        if not len(table.legal()):
            counts = table.histogram()
            text, fix = _sentence(profile, len(table.rows), counts), _what_works(profile, choice, device, options)
            if not len(table.rows) and choice != Choice():
                text = _no_such_shape(profile, choice)
            if not len(table.rows) and not options.enable_t_streaming and _asks_to_stream(choice):
                text = "an override asks for t-streaming, which the option enable_t_streaming switches off"
                fix = "switch enable_t_streaming on, or take the override away"
            wrong = Diagnostic("error", name, "no-candidate", text, fix)
            (failures if choice == Choice() else vetoed).append(wrong)
    if vetoed:
        raise OverrideError(f"overrides leave {quantity(len(vetoed), 'op')} without a legal candidate", vetoed)
    if failures:
        raise PlacementError(f"no legal candidate for {quantity(len(failures), 'op')} on {device.name}", failures)
    return models


def _asks_to_stream(choice: Choice) -> bool:
    return choice.stream_dir not in (None, "n") or choice.stream_shape not in (None, (1, 1))


def _no_such_shape(profile: OpProfile, choice: Choice) -> str:
    """What is wrong where an override asks for a shape that divides the op's tiles nowhere."""
    z, rt, ct = profile.out
    asked = " and ".join(text for text, _, _ in _asked(choice) if text) or "what is asked for"
    return f"{profile.kind} with output of {z} x {rt} x {ct} tiles has no candidate with {asked}"


def _asked(choice: Choice) -> list[tuple[str, Choice, tuple[str, ...]]]:
    """Shapes that overrides fix: in words, the choice without it, the columns of a table that have it."""
    shapes: list[tuple[str, Choice, tuple[str, ...]]] = []
    if choice.grid is not None:
        text = f"grid {choice.grid[0]} x {choice.grid[1]}"
        shapes.append((text, dataclasses.replace(choice, grid=None), ("grid_r", "grid_c")))
    if choice.stream_shape is not None or choice.stream_dir is not None:
        asked = "x".join(map(str, choice.stream_shape)) if choice.stream_shape else str(choice.stream_dir)
        free = dataclasses.replace(choice, stream_shape=None, stream_dir=None)
        shapes.append((f"t-stream {asked}", free, ("stream_r", "stream_c")))
    if choice.u_kt is not None:
        shapes.append((f"u_kt {choice.u_kt}", dataclasses.replace(choice, u_kt=None), ("u_kt",)))
    return shapes


def _what_works(profile: OpProfile, choice: Choice, device: DeviceSpec, options: CompileOptions) -> str:
    """What would leave an op without a legal candidate one, tried before it is said."""

    def legal(free: Choice, of: OpProfile = profile, under: CompileOptions = options) -> np.ndarray:
        rows = candidates(of, device, under, free)
        legal_rows: np.ndarray = rows[rows["reason"] == Reason.LEGAL]
        return legal_rows

    fixes = []
    for text, free, columns in _asked(choice):
        rows = legal(free)
        found = sorted({tuple(int(row[name]) for name in columns) for row in rows[list(columns)]})
        if found:
            listed = ", ".join("x".join(map(str, shape)) for shape in found[:_LISTED])
            fixes.append(f"{text.split()[0]}: {listed}{' ...' * (len(found) > _LISTED)}")
    if not fixes and choice != Choice() and len(legal(Choice())):
        fixes.append("take the override away")
    streaming = dataclasses.replace(options, enable_t_streaming=True, manual_t_streaming=False)
    if not fixes and streaming != options and len(legal(choice, under=streaming)):
        fixes.append("let it t-stream (enable_t_streaming on, manual_t_streaming off)")
    stored = any(operand.feed == "parameter" for operand in profile.operands)
    if not fixes and stored and len(legal(dataclasses.replace(choice, dram_parameters=True, prologue=()))):
        fixes.append("leave its parameters in DRAM (default_dram_parameters, or force_dram_parameters of the op)")
    if not fixes and profile.df is DataFormat.Float32 and len(legal(choice, _in_sixteen_bits(profile))):
        fixes.append("Float16_b for this op and its operands (default_df_override)")
    _, rt, ct = profile.out
    none = f"no override leaves one: cut the tensor ({rt} x {ct} tiles) in the model, or take a device with more L1"
    return "; ".join(fixes) or none


def _in_sixteen_bits(profile: OpProfile) -> OpProfile:
    """The op as it is where the format of the model is Float16_b."""
    half = DataFormat.Float16_b
    operands = tuple(
        dataclasses.replace(operand, df=half) if operand.df is DataFormat.Float32 else operand
        for operand in profile.operands
    )
    return dataclasses.replace(profile, df=half, acc_df=half, intermed_df=half, operands=operands)


_LISTED = 12
"""Shapes that a refusal names, at most."""


def _sentence(profile: OpProfile, count: int, histogram: Mapping) -> str:  # type: ignore[type-arg]
    z, rt, ct = profile.out
    return (
        f"{profile.kind} with output of {z} x {rt} x {ct} tiles: none of {count} candidates is legal: "
        f"{describe(dict(histogram))}"
    )


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
    Reason.EXTRA_STREAMS: f"what is to be preloaded takes more than the {EXTRA_STREAMS} extra streams of a core",
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
    Reason.EXTRA_STREAMS: "use fewer cores, or stream one of these operands (prologue off)",
}


def describe(histogram: dict[Reason, int]) -> str:
    """One line: how many candidates were refused for what, most frequent first."""
    parts = [f"{count} x {MEANING[reason]}" for reason, count in histogram.items() if reason is not Reason.LEGAL]
    return "; ".join(parts) if parts else "no candidate was refused"
