"""What a compile left, under the names scripts read, and outputs of ops inside a model, kept while an input runs."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import netlist
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pybuda_stages import StageResult, all_stages
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import cycles_path, write_cycles_csv
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.files import file_stem, make_folder
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.repeats import repeats
from tbuda_lab.core.lowering.precision import precision_report
from tbuda_lab.core.netlist.schema import Queue
from tbuda_lab.core.session.op_checks import whole_output
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile_outputs import netlist_folder
from tbuda_lab.pybuda.enums import BackendDevice, BackendType, CompileDepth
from tbuda_lab.pybuda.specs import device_spec


@dataclasses.dataclass
class OpOverride:
    """What an op was overridden to (PyBuda's `_C.balancer.OpOverride`); None where the balancer chooses."""

    grid_shape: tuple[int, int] | None = None
    t_stream_dir: str | None = None
    t_stream_shape: tuple[int, int] | None = None
    u_kt: int | None = None


class Grid:
    """A size as (r, c)."""

    def __init__(self, r: int, c: int) -> None:
        self.r = r
        self.c = c

    def __iter__(self) -> Any:
        return iter((self.r, self.c))

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Grid | tuple | list) else NotImplemented

    def __repr__(self) -> str:
        return f"Grid(r={self.r}, c={self.c})"


class DeviceConfig:
    """A device under PyBuda's names: `grid_size.r`, `grid_size.c`, `arch_name`, harvested rows."""

    def __init__(self, spec: DeviceSpec, devtype: BackendType = BackendType.Golden) -> None:
        self.spec = spec
        self.devtype = devtype
        self.arch_name = spec.arch
        self.grid_size = Grid(spec.rows, spec.cols)
        self.chip_ids = list(spec.chips)

    def get_harvested_cfg(self) -> list[int]:
        """Per chip, the mask of its harvested physical rows."""
        return [sum(1 << r for r in rows) for rows in self.spec.harvested_by_chip]


@dataclasses.dataclass(frozen=True)
class MatchResult:
    """What `match_subgraph_patterns` = n found out of the traced graph: whether some part of it stands n times in a
    row, and whether a loop could run it (`core.graph.repeats`). Passes may treat the first of equal layers in another
    way than the others, by what they know of its input. What is placed does not depend on it: repeated parts share
    their tables in any case."""

    is_subgraph_pattern_found: bool
    is_subgraph_loopable: bool


def match_result(stages: Sequence[StageResult], copies: int) -> dict[str, MatchResult]:
    """`MatchResult` under the name that `pass_specific_output_kwargs` has for it; nothing where the compile ended
    before the stage of PyBuda that makes it."""
    graphs = {stage.name: stage.graph for stage in stages}
    graph = graphs.get("generate_initial_graph")
    if graph is None or "post_pattern_matcher" not in graphs:
        return {}
    found = repeats(graph, copies)
    return {"match_result": MatchResult(found is not None, found is not None and found.loop)}


class CompileResults:
    """Graphs, netlist and placement of one compile; its outputs, and what torch says they are (torch tensors)."""

    def __init__(
        self,
        result: CompileResult,
        name: str,
        outputs: list[Tensor] | None = None,
        golden: list[torch.Tensor] | None = None,
    ) -> None:
        self.result = result
        self.name = name
        self.depth: int = config._get_global_compiler_config().effective("compile_depth")
        self.outputs = outputs or []
        self.golden_outputs = golden or []
        self.pass_specific_output_kwargs = {
            "placer_solution": PlacerSolution(result),
            "consteval_trace": {
                node.name: [n.op.type for n in node.recipe.ops if n.op is not None]
                for node in result.lowered.of_kind(NodeKind.PARAMETER)
                if node.recipe is not None
            },
            "output_host_tms": {b.queue: [str(tm) for tm in b.tms] for b in result.outputs},
        }
        self.evaluate_intermediates: Callable[[], dict[str, Any]] = dict
        self.perf_model_results: dict[str, Any] = {}

    @functools.cached_property
    def golden_intermediates(self) -> dict[str, Any]:
        """By op of the traced graph what torch makes of the first input of the sample; worked out when it is read."""
        return self.evaluate_intermediates()

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """The stages of the compile by name up to `compile_depth`, each with its graph and report; see
        `core.compiler.staged`."""
        return all_stages(self.result)[: self.depth + 1]

    @property
    def precision_report(self) -> tuple[tuple[str, str], ...]:
        """(op, what a rule of mixed precision changed there and why)."""
        return precision_report(self.result.lowered)

    @property
    def initial_graph(self) -> Graph:
        return self.result.graph

    @property
    def lowered_graph(self) -> Graph:
        return self.result.lowered

    @property
    def netlist_filename(self) -> str | None:
        """Path of the netlist, which is written when it is read, into `netlist_folder`, and what its ops cost beside it
        (NAME.cycles.csv). None where `compile_depth` ended the compile before the netlist."""
        if self.depth < CompileDepth.GENERATE_NETLIST:
            return None
        folder = make_folder(netlist_folder(config._get_global_compiler_config()))
        path = folder / f"{file_stem(self.name)}_netlist.yaml"
        netlist.dump(self.result.netlist, path)
        write_cycles_csv(self.result, cycles_path(path))
        return str(path)


class PlacerSolution:
    """Where ops went, by PyBuda's names."""

    def __init__(self, result: CompileResult) -> None:
        self.placement = result.placement

    def epoch_id(self, op: str) -> int:
        return self.placement.ops[op].epoch

    def chip_id(self, op: str) -> int:
        return self.placement.ops[op].chip

    @property
    def name_to_op_placement(self) -> dict[str, Any]:
        return {name: OpPlacementView(p) for name, p in self.placement.ops.items()}

    @property
    def epoch_id_to_chip(self) -> dict[int, int]:
        return {epoch.index: epoch.chip for epoch in self.placement.epochs}

    @property
    def name_to_queue_placement(self) -> dict[str, Any]:
        return dict(self.placement.queues)


class OpPlacementView:
    """One op's place: chip_id, epoch_id, grid_transpose, placed_cores.start / .end (exclusive)."""

    def __init__(self, placed: Any) -> None:
        self.chip_id = placed.chip
        self.epoch_id = placed.epoch
        self.grid_transpose = placed.transposed
        self.placed_cores = PlacedCores(placed.start, placed.size)


class PlacedCores:
    """A rectangle of cores; `end` is exclusive."""

    def __init__(self, start: tuple[int, int], size: tuple[int, int]) -> None:
        self._size = size
        self.start = Coordinate(*start)
        self.end = Coordinate(start[0] + size[0], start[1] + size[1])

    def size_r(self) -> int:
        """Rows of cores."""
        return self._size[0]

    def size_c(self) -> int:
        """Columns of cores."""
        return self._size[1]


class Coordinate:
    def __init__(self, row: int, col: int) -> None:
        self.row = row
        self.col = col


def get_device_config(
    arch: BackendDevice = BackendDevice.Grayskull,
    chip_ids: Sequence[int] | None = None,
    backend_cluster_descriptor_path: str = "",
    backend_runtime_params_path: str = "",
    store_backend_db_to_yaml: bool = False,
    backend_type: BackendType = BackendType.Golden,
) -> DeviceConfig:
    """Facts of a device of this architecture, the configured one and its harvested rows considered."""
    spec = device_spec(
        arch,
        chip_ids,
        cluster=backend_cluster_descriptor_path or "",
        runtime_params=backend_runtime_params_path or "",
        store=store_backend_db_to_yaml,
    )
    return DeviceConfig(spec, backend_type)


def io_queues(result: CompileResult, queue_type: str) -> tuple[list[Queue], list[list[int]], list[tuple[int, ...]]]:
    """The netlist's queues of one kind, in order: their descriptions, the dims in which a value fills its tile, and the
    shapes that the model has. queue_type: "input", "output", "target", "bw_input" (gradients by outputs, from the next
    device), "bw_output" (gradients by inputs) or "parameter"."""
    targets = {n.name for n in result.graph.inputs if n.attrs.get("target")}
    ends: list[tuple[str, tuple[int, ...]]] = []
    if queue_type in ("input", "target", "bw_input"):
        for source in result.inputs:
            kind = "bw_input" if source.gradient_of else "target" if set(source.sources) <= targets else "input"
            ends += [(source.queue, tuple(source.shape))] if kind == queue_type else []
    elif queue_type == "parameter":
        parameters = (n for n in result.lowered.of_kind(NodeKind.PARAMETER) if n.name in result.netlist.queues)
        ends += [(n.name, tuple(n.shape)) for n in parameters]
    else:
        phase = "backward" if queue_type == "bw_output" else "forward"
        ends += [(o.queue, tuple(o.shape)) for o in result.outputs if o.phase == phase]
    fills = [[-k for k in (2, 1) if len(shape) >= k and shape[-k] == 1] for _, shape in ends]
    return [result.netlist.queues[name] for name, _ in ends], fills, [shape for _, shape in ends]


TAP = "tap"
"""Attribute of an OUTPUT that is a tap: the op whose value it is."""


def add_taps(graph: Graph, names: Sequence[str]) -> None:
    """Makes the named ops of a traced graph outputs behind its own; names that it does not have stay for the lowered
    graph."""
    for name in dict.fromkeys(names):
        if name in graph and graph[name].kind is NodeKind.OP:
            shape = graph[name].shape
            graph.add(Node(f"{name}_tapout", NodeKind.OUTPUT, shape, inputs=(Edge(name),), attrs={TAP: name}))


def taps(graph: Graph) -> dict[str, Node]:
    """The taps by the names of their ops."""
    return {str(node.attrs[TAP]): node for node in graph.outputs if TAP in node.attrs}


class IntermediateOutputs:
    """What the named ops give for one pushed input; `take` is an executor's `on_op`.

    Raises `PipelineError` for a name that no op of the model, traced or compiled, has.
    """

    def __init__(self, result: CompileResult, names: Sequence[str]) -> None:
        ops, self.taps = result.placement.ops, taps(result.graph)
        for name in names:
            if name not in ops and name not in self.taps:
                known = [*ops, *(node.name for node in result.graph.ops)]
                near = difflib.get_close_matches(name, known, 3)
                raise PipelineError(
                    f"op_intermediates_to_save: there is no op {name!r} in the model"
                    + (f"; did you mean {', '.join(dict.fromkeys(near))}?" if near else "")
                )
        self.result, self.names = result, tuple(dict.fromkeys(names))
        self.parts: dict[str, list[torch.Tensor]] = {name: [] for name in self.names if name not in self.taps}

    def take(self, name: str, output: np.ndarray) -> None:
        """An op gave (n, t, R, C): n elements of the microbatch."""
        if name in self.parts:
            _, z, rows, cols = self.result.lowered[name].shape
            for one in output:
                whole = whole_output(self.result, name, np.array(one, np.float32))
                self.parts[name].append(torch.from_numpy(whole[:z, :rows, :cols].copy())[None])

    def tensors(self, tapped: Sequence[torch.Tensor]) -> list[Tensor]:
        """One tensor (microbatch, z, rows, columns) per name, in the order of the names. tapped: values of the taps,
        in the order of the graph's outputs."""
        values = {
            name: value.reshape(self.result.options.microbatch, -1, *(1, 1, *node.shape)[-2:])
            for (name, node), value in zip(self.taps.items(), tapped, strict=True)
        }
        values |= {name: torch.cat(parts) for name, parts in self.parts.items()}
        return [Tensor.create_from_torch(values[name]) for name in self.names]
