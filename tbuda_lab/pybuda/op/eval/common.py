"""`pybuda.op.eval.common`."""

from tbuda_lab.pybuda.judging import calculate_pcc, compare_tensor_to_golden

__all__ = ["calculate_pcc", "compare_tensor_to_golden"]
