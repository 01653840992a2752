"""`pybuda.compile`."""

from tbuda_lab.runtime.compile import pybuda_compile
from tbuda_lab.runtime.config import _get_global_compiler_config
from tbuda_lab.runtime.enums import CompileDepth
from tbuda_lab.runtime.results import CompileResults
from tbuda_lab.runtime.stages import (
    CompileContext,
    generate_initial_graph,
    generate_netlist,
    init_compile,
    pybuda_compile_from_context,
    run_autograd_pass,
    run_backend_golden_verify,
    run_balancer_and_placer,
    run_consteval_pass,
    run_optimization_pass,
    run_post_autograd_pass,
    run_post_initial_graph_pass,
    run_post_pattern_matcher,
    run_pre_lowering_pass,
    run_pre_netlist_pass,
    run_pre_placer_pass,
)

__all__ = [
    "CompileContext", "CompileDepth", "CompileResults", "_get_global_compiler_config", "generate_initial_graph",
    "generate_netlist", "init_compile", "pybuda_compile", "pybuda_compile_from_context", "run_autograd_pass",
    "run_backend_golden_verify", "run_balancer_and_placer", "run_consteval_pass", "run_optimization_pass",
    "run_post_autograd_pass", "run_post_initial_graph_pass", "run_post_pattern_matcher", "run_pre_lowering_pass",
    "run_pre_netlist_pass", "run_pre_placer_pass",
]  # fmt: skip
