"""Outputs of ops inside a model, kept while an input runs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.session.opchecks import whole_output
from tbuda_lab.runtime.errors import PipelineError


class IntermediateOutputs:
    """What the named ops give for one pushed input; `take` is an executor's `on_op`.

    Raises `PipelineError` for a name that no op of the compiled model has.
    """

    def __init__(self, result: CompileResult, names: Sequence[str]) -> None:
        ops = result.placement.ops
        for name in names:
            if name not in ops:
                near = difflib.get_close_matches(name, ops, 3)
                raise PipelineError(f"op_intermediates_to_save: there is no op {name!r} in the compiled model"
                                    + (f"; did you mean {', '.join(near)}?" if near else ""))
        self.result = result
        self.parts: dict[str, list[torch.Tensor]] = {name: [] for name in names}

    def take(self, name: str, output: np.ndarray) -> None:
        """An op gave (n, t, R, C): n elements of the microbatch."""
        if name in self.parts:
            _, z, rows, cols = self.result.lowered[name].shape
            for one in output:
                whole = whole_output(self.result, name, np.array(one, np.float32))
                self.parts[name].append(torch.from_numpy(whole[:z, :rows, :cols].copy())[None])

    def tensors(self) -> list[Tensor]:
        """One tensor (microbatch, z, rows, columns) per name, in the order of the names."""
        return [Tensor.create_from_torch(torch.cat(parts)) for parts in self.parts.values()]
