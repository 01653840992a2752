"""SambaFlow's `samba.utils`: tracing, gradients of outputs, comparisons, measuring."""

from tbuda_lab.samba.utils import argparser, common, dataset, pef_utils
from tbuda_lab.samba.utils.calls import (
    assert_close,
    get_file_dir,
    init_output_grads,
    measure_performance,
    set_seed,
    trace_graph,
    trace_multigraph,
)

__all__ = [
    "argparser",
    "assert_close",
    "common",
    "dataset",
    "get_file_dir",
    "init_output_grads",
    "measure_performance",
    "pef_utils",
    "set_seed",
    "trace_graph",
    "trace_multigraph",
]
