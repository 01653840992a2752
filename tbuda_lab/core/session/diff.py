"""Two compiles of a model compared op by op."""

from __future__ import annotations

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.diff import Diff, OpChange, OpState, compare_sides, side_of_result

__all__ = ["Diff", "OpChange", "OpState", "diff_results"]


def diff_results(a: CompileResult, b: CompileResult, name_a: str = "before", name_b: str = "after") -> Diff:
    """Compare two compiles by op name."""
    return compare_sides(side_of_result(a, name_a), side_of_result(b, name_b))
