"""`pybuda.op.loss`: losses as modules for a TTDevice."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.pybuda import PyBudaModule, Tensor, apply
from tbuda_lab.core.ops import Abs, LogSoftmax, Multiply, ReduceAvg, ReduceSum, Subtract


class CrossEntropyLoss(PyBudaModule):
    """-sum(labels * log_softmax(predictions)) over the classes (the last dim), averaged over all rows.

    labels: one-hot or probabilities, of the predictions' shape. The result has size 1 in every dim.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def forward(self, *tensors: Tensor) -> Any:
        """predictions and labels; of several outputs all predictions first, then all labels: their losses add up."""
        count = _pairs(self.get_name(), tensors)
        total: Any = None
        for prediction, label in zip(tensors[:count], tensors[count:], strict=True):
            chosen = apply("", Multiply(), apply("", LogSoftmax(-1), prediction), label)
            loss = apply("", Multiply(), apply("", ReduceSum(-1), chosen), -1.0)
            for dim in range(len(prediction.shape) - 1):
                loss = apply("", ReduceAvg(dim - len(prediction.shape)), loss)
            total = loss if total is None else total + loss
        return total


class L1Loss(PyBudaModule):
    """|prediction - label|; reduction: "avg" over all elements, "sum", or "none"."""

    def __init__(self, name: str, reduction: str = "avg") -> None:
        super().__init__(name)
        if reduction not in ("avg", "sum", "none"):
            raise PipelineError(f"L1Loss {name!r}: reduction is avg, sum or none, not {reduction!r}")
        self.reduction = reduction

    def forward(self, *tensors: Tensor) -> Any:
        """predictions and labels; of several outputs all predictions first, then all labels: their losses add up."""
        count = _pairs(self.get_name(), tensors)
        total: Any = None
        for prediction, label in zip(tensors[:count], tensors[count:], strict=True):
            loss = apply("", Abs(), apply("", Subtract(), prediction, label))
            if self.reduction != "none":
                kind = ReduceAvg if self.reduction == "avg" else ReduceSum
                for dim in range(len(prediction.shape)):
                    loss = apply("", kind(-1 - dim), loss)
            total = loss if total is None else total + loss
        return total


def _pairs(name: str, tensors: tuple[Tensor, ...]) -> int:
    if not tensors or len(tensors) % 2:
        raise PipelineError(f"loss {name!r} takes as many labels as predictions, not {len(tensors)} tensors")
    return len(tensors) // 2
