"""`pybuda.op.eval`: comparison of tensors, and facts about sparse pickers of convolutions."""

from tbuda_lab.pybuda.judging import compare_tensor_to_golden
from tbuda_lab.pybuda.op.eval import common, sparse_utils
from tbuda_lab.pybuda.op.eval.sparse_utils import (
    create_flattened_padding_removal_sparse_picker_matrix,
    create_reshape_flatten_sparse_picker_matrix,
    does_prestriding_improve_perf,
)

__all__ = [
    "common",
    "compare_tensor_to_golden",
    "create_flattened_padding_removal_sparse_picker_matrix",
    "create_reshape_flatten_sparse_picker_matrix",
    "does_prestriding_improve_perf",
    "sparse_utils",
]
