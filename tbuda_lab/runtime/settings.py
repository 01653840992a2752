"""Which settings of the PyBuda API change nothing here, and why: options, environment switches. Setting one is said
once, by name; `tests/runtime/test_settings.py` holds that every option is read somewhere or stands in this list."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Any

_TVM = "models are traced by torch.export, not by TVM"
_JAX = "JAX models are not traced by TVM here"

NO_EFFECT: dict[str, str] = {
    "match_subgraph_patterns": "repeated parts of a model share their tables without it",
    "compile_subgraphs": "a device holds one graph; place each part on a TTDevice of its own",
    "graph_solver_self_cut_type": "edges and shapes are chosen together, and queues are put where they pay",
    "use_interactive_placer": "there is one placer, which is interactive",
    "enable_enumerate_u_kt": "every inner step is a candidate",
    "enable_link_past_cache_ios": "key-value caches are not linked by name",
    "enable_pt2_fx_graph_link": "graphs of torch.compile are compiled one by one",
    "enable_tm_cpu_fallback": "reshapes and slices of integers run on the host without it, all others on the device",
    "tm_cpu_fallback_max_depth": "reshapes and slices of integers run on the host without it, all others on the device",
    "enable_tvm_unsupported_ops": f"{_TVM}; ops that are not supported are all named in one error",
    "enable_op_level_comparision": "Session.verify compares every op",
    "enable_tvm_constant_prop": f"{_TVM}: constants are folded by enable_consteval",
    "convert_framework_params_to_tvm": _TVM,
    "enable_xla_jax_convert": _JAX,
    "enable_tvm_jax_freeze_large_model": _JAX,
    "framework_model_output_names": f"{_TVM}: outputs have the names of the returned structure",
    "tvm_constnat_prop_mask": _TVM,
    "compile_tvm_to_python": f"{_TVM}: no Python file stands between",
    "retain_tvm_python_files": f"{_TVM}: no Python file stands between",
    "tvm_graph_store_path": _TVM,
    "tvm_graph_load_path": _TVM,
    "tvm_module_to_num_patterns": _TVM,
    "max_pool_add_sub_surround": "padding never wins a maximum here",
    "max_pool_add_sub_surround_value": "padding never wins a maximum here",
    "enable_device_tilize": "inputs are tilized on the host",
    "enable_forked_dram_inputs": "every reader has its own DRAM stream",
    "enable_broadcast_splitting": "broadcasts are TMs on edges, and their fork is priced",
    "conv_multi_op_fracture_factor_override": "a convolution is one picker and one matmul; slow ones are split unasked",
    "enable_single_buffer_fallback": "an op that fits with single buffers only is placed with them without it",
    "backend_opt_level": "there is one executor",
    "backend_runtime_args": "there is one executor",
    "paddings": "rows and columns are filled up to tiles as each op needs it",
}  # fmt: skip
"""Options that are accepted and change nothing, and why."""

READ_ELSEWHERE = frozenset((
    "GOLDEN_WORMHOLE_B0", "PYBUDA_GOLDEN_BLACKHOLE", "PYBUDA_TTI_BACKEND_FORMAT", "PYBUDA_TTI_BACKEND_TILIZED_FORMAT",
    "PYBUDA_OVERRIDES_VETO", "PYBUDA_VERIFY_GOLDEN", "PYBUDA_FORCE_VERIFY_ALL", "PYBUDA_VERIFY_POST_AUTOGRAD_PASSES",
    "PYBUDA_VERIFY_POST_PLACER", "PYBUDA_VERIFY_RESULTS_OFF_BY_DEFAULT", "TT_BACKEND_GOLDEN_QUANTIZE",
    "PYBUDA_CONTINUE_ON_MISMATCH",
))  # fmt: skip
"""Switches that are read where they matter (architecture, images, verification)."""

NATURAL = {
    "PYBUDA_FORCE_SEQUENTIAL": "everything runs in the calling thread anyway",
    "PYBUDA_FORCE_THREADS": "everything runs in the calling thread",
    "PYBUDA_MICROBATCH_LOOPING": "the program loops over the microbatch anyway",
    "LOGGER_LEVEL": "messages go to Python's loggers below tbuda_lab: logging.getLogger('tbuda_lab').setLevel",
    "TT_BACKEND_OVERLAY_MAX_EXTRA_BLOB_SIZE": "no overlay blobs are made",
}

_warned: set[str] = set()


def warn_once(name: str, reason: str) -> None:
    """Warn once that a setting has no effect."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn(f"{name} has no effect: {reason}", UserWarning, stacklevel=3)


def reset_warnings() -> None:
    """Say everything again when it is set again."""
    _warned.clear()


def warn_options(config: Any) -> None:
    """Warn of every option of a configuration object that is not at its default and has no effect."""
    plain = type(config)()
    for field in dataclasses.fields(config):
        if field.name in NO_EFFECT and getattr(config, field.name) != getattr(plain, field.name):
            warn_once(field.name, NO_EFFECT[field.name])


def warn_environment(config: Any) -> None:
    """Warn of every switch of PyBuda's or its backend's in the environment that nothing reads. config: those that a
    compile reads."""
    for name in sorted(os.environ):
        theirs = name.startswith(("PYBUDA_", "TT_BACKEND_")) or name in NATURAL
        if theirs and name not in config and name not in READ_ELSEWHERE:
            warn_once(name, NATURAL.get(name, "no code here reads this switch"))
