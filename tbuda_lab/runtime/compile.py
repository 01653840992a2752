"""`pybuda_compile`: one device compiled and checked, without a run loop."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core import frontend
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.runtime import config
from tbuda_lab.runtime.compare import compare_tensor_to_golden
from tbuda_lab.runtime.compilerconfig import CompilerConfig
from tbuda_lab.runtime.device import TTDevice, as_inputs
from tbuda_lab.runtime.enums import CompileDepth
from tbuda_lab.runtime.results import CompileResults


def pybuda_compile(
    device: TTDevice,
    graph_name: str,
    *inputs: Any,
    compiler_cfg: CompilerConfig | None = None,
    verify_cfg: Any = None,
    **_: Any,
) -> CompileResults:
    """Compile the modules placed on a device for these inputs, run them, and judge the outputs if `verify_cfg` says so.

    Without `compiler_cfg` the global configuration and its overrides apply. A compile depth below
    BACKEND_GOLDEN_VERIFY compiles only; `outputs` are then the reference's. Raises `AssertionError` on a mismatch.
    """
    sample = as_inputs(inputs)
    before = config._get_global_compiler_config()
    config._set_global_compiler_config(compiler_cfg or before)
    try:
        result = device.compile_for_inputs(sample)
        depth = config._get_global_compiler_config().compile_depth
        golden = [Tensor.create_from_torch(t) for t in _reference(device, sample)]
        outputs = golden
        if depth >= CompileDepth.BACKEND_GOLDEN_VERIFY:
            outputs = [Tensor.create_from_torch(t) for t in device.run_forward(sample)]
    finally:
        config._set_global_compiler_config(before)
    if verify_cfg is not None and verify_cfg.enabled and outputs is not golden:
        for k, (want, got) in enumerate(zip(golden, outputs, strict=True)):
            if not compare_tensor_to_golden(f"{graph_name} output {k}", want, got, is_buda=True, verify_cfg=verify_cfg):
                raise AssertionError(f"{graph_name} output {k}: data mismatch")
    found = CompileResults(result, device.modules[-1].get_name(), outputs, golden)
    found.golden_intermediates = _intermediates(device, sample)
    return found


def _intermediates(device: TTDevice, sample: Any) -> dict[str, Tensor]:
    """Every op of the traced graph in torch, for the first element of the sample."""
    graph = device.trace(sample)
    feed = next(iter(elements(graph, frontend.feeds(graph, sample))))
    values = evaluate_nodes(graph, feed)
    return {node.name: Tensor.create_from_torch(values[node.name]) for node in graph.ops}


def _reference(device: TTDevice, sample: Any) -> Any:
    value = sample
    for module in device.modules:
        value = tuple(frontend.reference(module, value))
    return value
