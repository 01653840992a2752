"""What stands in the manifest of an image, beside the compile."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tbuda_lab._version import __version__
from tbuda_lab.core.bindings import InputBinding, OutputBinding
from tbuda_lab.core.files.codec import to_plain
from tbuda_lab.core.graph import Node, NodeKind
from tbuda_lab.core.graph.phases import is_cache, subgraph_of
from tbuda_lab.core.ops import PatchesRows
from tbuda_lab.core.options import options_to_json
from tbuda_lab.core.overrides import Override, to_json
from tbuda_lab.core.tti.loaded_image import LoadedImage

VERSION = "1.1.0+tbuda.1"
"""Of the archive: PyBuda's own, and ours behind the plus."""
RELEASE = f"tbuda_lab {__version__}"
SECTION = "tbuda_lab"
FOLDER = "unzipped_tti"
BUILD = "backend_build_binaries"
TILE_DIM = (32, 32)
ARCHS = {"grayskull": "Grayskull", "wormhole_b0": "Wormhole_B0", "blackhole": "Blackhole"}


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """What a manifest says beside the compile. compiler_cfg, verify_cfg: plain data, for readers."""

    devtype: str = "Golden"
    fp32_fallback: str = "Float16_b"
    microbatch_count: int = 1
    compiler_cfg: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    verify_cfg: Mapping[str, Any] | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    target_shapes: Sequence[Sequence[int]] = ()


def enum(kind: str, member: str) -> dict[str, str]:
    """A member of an enum as the manifest writes it."""
    return {"__enum__": f"{kind}.{member}"}


def manifest_of(
    loaded: LoadedImage, facts: ImageFacts, netlist: str, tensors: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest. netlist: its file name; tensors: queue name -> node; ours: what stands under `tbuda_lab` beside
    device, options and overrides."""
    device, plan = loaded.device, loaded.options.training
    return {
        "version": VERSION,
        "device_image_name": loaded.name,
        "arch": enum("BackendDevice", ARCHS[device.arch]),
        "devtype": enum("BackendType", facts.devtype),
        "chip_ids": list(device.chips),
        "fp32_fallback": enum("DataFormat", facts.fp32_fallback),
        "optimizer": None if plan is None or plan.optimizer is None else plan.optimizer.kind,
        "training": plan is not None,
        "microbatch_size": loaded.options.microbatch,
        "microbatch_count": facts.microbatch_count,
        "grid_size": [device.rows, device.cols],
        "harvested_rows": [device.harvesting_mask(i) for i in range(len(device.chips))],
        "compiled_graph_state": _state(loaded, facts, netlist, tensors),
        "verify_cfg": dict(facts.verify_cfg) if facts.verify_cfg is not None else None,
        "compiler_cfg": dict(facts.compiler_cfg),
        "loss_module": None,
        "module_name_to_metadata": {
            m.name: {"module": SECTION, "class": m.kind, "module_file_path": "", "parameters": m.parameters}
            for m in loaded.modules
        },
        "pybuda_pip_version_id": RELEASE,
        "pybuda_commit_hash": "",
        "budabackend_commit_hash": "",
        SECTION: {
            "device": to_plain(device),
            "options": options_to_json(loaded.options),
            "overrides": [d for o in loaded.overrides for d in _override(o, loaded)],
            "signature": loaded.signature,
            "weighted": list(loaded.weight_queues),
            **ours,
        },
    }


def _override(override: Override, loaded: LoadedImage) -> list[dict[str, Any]]:
    """An override as a record of names, as `overrides.from_json` reads it; none of a pattern or predicate that matches
    nothing."""
    names = dict.fromkeys([*loaded.graph.nodes, *(op.name for _, op in loaded.netlist.ops()), *loaded.netlist.queues])
    result = () if override.is_named else tuple(override.matches(names))
    return [to_json(override, lambda _: result)] if override.is_named or result else []


def _state(loaded: LoadedImage, facts: ImageFacts, netlist: str, tensors: Mapping[str, Any]) -> dict[str, Any]:
    queues = loaded.netlist.queues
    parameters = list(loaded.weight_queues)
    constants = [q for q in loaded.parameters if q not in parameters]
    inputs, outputs = [n for n in loaded.graph.inputs if not n.attrs.get("target")], loaded.graph.outputs
    plan = loaded.options.training
    gradients = () if plan is None else plan.input_gradients
    return {
        "microbatch": loaded.options.microbatch,
        "graph_name": loaded.name,
        "ordered_input_names": [b.queue for b in loaded.inputs],
        "ordered_output_names": [b.queue for b in loaded.outputs],
        "ordered_input_gradient_names": [b.queue for b in loaded.outputs if b.phase == "backward"],
        "ordered_output_gradient_names": [b.queue for b in loaded.inputs if b.gradient_of],
        "ordered_target_names": [n.name for n in loaded.graph.inputs if n.attrs.get("target")],
        "ordered_constant_node_names": constants,
        "ordered_parameter_node_names": parameters,
        "ordered_intermediate_activation_names": [],
        "ordered_input_subgraph_indices": [_subgraph_that_reads(loaded, b.queue) for b in loaded.inputs],
        "ordered_output_subgraph_indices": [subgraph_of(b.phase) for b in loaded.outputs],
        "ordered_target_subgraph_indices": [0 for n in loaded.graph.inputs if n.attrs.get("target")],
        "ordered_input_tile_broadcast_dims": [[] for _ in loaded.inputs],
        "ordered_target_tile_broadcast_dims": [],
        "ordered_bw_input_tile_broadcast_dims": [],
        "ordered_input_runtime_tensor_transforms": [_transform(b) for b in loaded.inputs],
        "ordered_output_runtime_tensor_transforms": [_transform(b) for b in loaded.outputs],
        "input_to_tile_dims": {b.queue: list(queues[b.queue].tile_dim or TILE_DIM) for b in loaded.inputs},
        "parameter_to_tile_dims": {q: list(queues[q].tile_dim or TILE_DIM) for q in parameters},
        "constant_to_tile_dims": {q: list(queues[q].tile_dim or TILE_DIM) for q in constants},
        "ordered_input_requires_grad": [b.name in gradients for b in loaded.inputs],
        "ordered_output_requires_grad": [False] * len(loaded.outputs),
        "ordered_input_shapes": [_shape(n, loaded.options.microbatch) for n in inputs],
        "ordered_output_shapes": [_shape(n, loaded.options.microbatch) for n in outputs],
        "ordered_target_shapes": [list(s) for s in facts.target_shapes],
        "ordered_intermediate_shapes": [],
        "ordered_output_data_formats": [enum("DataFormat", queues[b.queue].df.name) for b in loaded.outputs],
        "netlist_filename": f"{FOLDER}/{netlist}",
        "output_host_tms": {b.queue: [[tm.name, list(tm.args)] for tm in b.tms] for b in loaded.outputs},
        "consteval_trace": {},
        "post_const_eval_constants": {q: tensors[q] for q in constants if q in tensors},
        "post_const_eval_parameters": {q: tensors[q] for q in parameters if q in tensors},
        "optimizer_param_info": {w.name: [[s.suffix, s.queue] for s in w.states] for w in loaded.weights},
        "cpueval_outputs": None,
        "has_cache_buffers": any(map(is_cache, loaded.graph.of_kind(NodeKind.PARAMETER))),
    }


def _subgraph_that_reads(loaded: LoadedImage, queue: str) -> int:
    """The subgraph in the name of the netlist's graph that reads a queue, `fwd_<subgraph>_<epoch>`."""
    for name, graph in loaded.netlist.graphs.items():
        if any(port.source == queue for op in graph.ops.values() for port in op.inputs):
            return int(name.split("_")[1])
    return 0


def _shape(node: Node, microbatch: int) -> list[int]:
    """Of a model's tensor as scripts push it: dim 0 is the microbatch where it was cut to 1."""
    shape = list(node.shape)
    return [microbatch, *shape[1:]] if shape and shape[0] == 1 else shape


def _transform(binding: InputBinding | OutputBinding) -> dict[str, Any]:
    """What the host does between the model's tensor and the queue's, in PyBuda's words where it has them."""
    recipe = binding.recipe
    if recipe is None:
        return {"type": "NoTransform"}
    ops = [node.op.type for node in recipe.ops if node.op is not None]
    if ops == ["reshape"] and len(recipe.inputs) == 1:
        ends = recipe.inputs[0].shape, recipe.outputs[0].shape
        return {
            "type": "ReinterpretShape",
            "original_shape": {"dims_": list(ends[0])},
            "reinterpreted_shape": {"dims_": list(ends[1])},
        }
    patches = next((node.op for node in recipe.ops if isinstance(node.op, PatchesRows)), None)
    if patches is None:
        return {"type": "HostRecipe", "ops": ops}
    (height, width), (rows, columns) = patches.stride, patches.patch
    return {
        "type": "Prestride",
        "ops": ops,
        "original_shape": {"dims_": list(recipe.inputs[0].shape)},
        "reinterpreted_shape": {"dims_": list(recipe.outputs[0].shape)},
        "stride_height": height,
        "stride_width": width,
        "kernel_height": rows,
        "kernel_width": columns,
    }
