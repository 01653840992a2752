"""Steps of optimizers (the domain ai.onnx.preview.training) and small ops of the domain ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates

TRAINING = "ai.onnx.preview.training"


def _groups(n: OnnxNode, each: int) -> list[list[Tensor]]:
    """Operands behind rate and step: all weights, then all gradients, and so on: for each weight its own."""
    count = (len(n.operands) - 2) // each
    return [[n.x(2 + k + part * count) for part in range(each)] for k in range(count)]


def _decayed(n: OnnxNode, x: Tensor, g: Tensor) -> Tensor:
    penalty = float(n.attr("norm_coefficient", 0.0))
    return n.aten.add(g, n.aten.mul(x, penalty)) if penalty else g


@translates(f"{TRAINING}.Adagrad")
def adagrad(n: OnnxNode) -> Any:
    step = n.aten.add(n.aten.mul(as_dtype(n, n.x(1), torch.float32), float(n.attr("decay_factor", 0.0))), 1.0)
    rate = n.aten.div(n.x(0), step)
    weights, sums = [], []
    for x, g, h in _groups(n, 3):
        g = _decayed(n, x, g)
        h = n.aten.add(h, n.aten.mul(g, g))
        change = n.aten.div(n.aten.mul(rate, g), n.aten.add(n.aten.sqrt(h), float(n.attr("epsilon", 1e-6))))
        weights.append(n.aten.sub(x, change))
        sums.append(h)
    return (*weights, *sums)


@translates(f"{TRAINING}.Adam")
def adam(n: OnnxNode) -> Any:
    alpha, beta = float(n.attr("alpha", 0.9)), float(n.attr("beta", 0.999))
    at = n.scalar(1, "step")
    rate = n.x(0)
    if at > 0:  # the moments begin at zero
        rate = n.aten.mul(rate, (1 - beta**at) ** 0.5 / (1 - alpha**at))
    weights, firsts, seconds = [], [], []
    for x, g, v, h in _groups(n, 4):
        g = _decayed(n, x, g)
        v = n.aten.add(n.aten.mul(v, alpha), n.aten.mul(g, 1 - alpha))
        h = n.aten.add(n.aten.mul(h, beta), n.aten.mul(n.aten.mul(g, g), 1 - beta))
        change = n.aten.div(n.aten.mul(rate, v), n.aten.add(n.aten.sqrt(h), float(n.attr("epsilon", 1e-6))))
        post = 1 - float(n.attr("norm_coefficient_post", 0.0))
        new = n.aten.sub(x, change)
        weights.append(new if post == 1.0 else n.aten.mul(new, post))
        firsts.append(v)
        seconds.append(h)
    return (*weights, *firsts, *seconds)


@translates(f"{TRAINING}.Momentum")
def momentum(n: OnnxNode) -> Any:
    alpha, beta, mode = float(n.attr("alpha", 0.0)), float(n.attr("beta", 0.0)), n.attr("mode", "standard")
    beta = beta if n.scalar(1, "step") > 0 else 1.0
    weights, moments = [], []
    for x, g, v in _groups(n, 3):
        g = _decayed(n, x, g)
        v = n.aten.add(n.aten.mul(v, alpha), n.aten.mul(g, beta))
        change = n.aten.add(g, n.aten.mul(v, alpha)) if mode == "nesterov" else v
        weights.append(n.aten.sub(x, n.aten.mul(n.x(0), change)))
        moments.append(v)
    return (*weights, *moments)


@translates("ai.onnx.ml.Binarizer")
def binarizer(n: OnnxNode) -> Any:
    return as_dtype(n, n.aten.gt(n.x(), float(n.attr("threshold", 0.0))), n.dtype())


@translates("ai.onnx.ml.ArrayFeatureExtractor")
def array_feature_extractor(n: OnnxNode) -> Any:
    at = n.x(1)
    count = 1
    for size in n.calls.shape(at):
        count *= size
    flat = FoldedValue(at.tensor.reshape(-1), at.label) if isinstance(at, FoldedValue) else n.reshape(at, (count,))
    if n.rank() == 0:
        raise CannotMap("features of a single number")
    x = n.x() if n.rank() > 1 else n.reshape(n.x(), (1, n.shape()[0]))
    return n.aten.index_select(x, len(n.calls.shape(x)) - 1, flat)
