"""Modules that hold their own weights: Linear, convolutions, pooling."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.frontend.pybuda import Parameter, Tensor
from tbuda_lab.pybuda.module import PyBudaModule
from tbuda_lab.pybuda.op import nn_ops
from tbuda_lab.pybuda.op.common import refusing
from tbuda_lab.pybuda.op.nn_ops import Size, two


class Linear(PyBudaModule):
    """x @ weights + bias; weights (in_features, out_features)."""

    def __init__(self, name: str, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(name)
        self.weights = Parameter(in_features, out_features)
        self.bias = Parameter(out_features) if bias else None

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.Matmul(f"{self.get_name()}.matmul", activations, self.weights, self.bias)


class Conv2dModule(PyBudaModule):
    """2-D convolution with weights (out_channels, in_channels / groups, kH, kW)."""

    settings: dict[str, Any]

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Any = "same",
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        channel_last: bool = False,
    ) -> None:
        super().__init__(name)
        self.weights = Parameter(out_channels, in_channels // groups, *two(kernel_size))
        self.bias = Parameter(out_channels) if bias else None
        self.__dict__["settings"] = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "channel_last": channel_last,
        }

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.Conv2d(f"{self.get_name()}.conv2d", activations, self.weights, self.bias, **self.settings)


class ConvTranspose2dModule(Conv2dModule):
    """Transposed 2-D convolution with weights (in_channels, out_channels / groups, kH, kW)."""

    def __init__(
        self,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Any = "same",
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        channel_last: bool = False,
    ) -> None:
        if two(output_padding) != (0, 0):
            refusing("ConvTranspose2dModule(output_padding=...)", "pad the result")()
        if padding_mode != "zeros":
            refusing(f"ConvTranspose2dModule(padding_mode={padding_mode!r})", "pad with zeros")()
        super().__init__(
            name, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, channel_last
        )
        groups = self.settings["groups"]
        self.weights = Parameter(in_channels, out_channels // groups, *two(kernel_size))

    def forward(self, activations: Tensor) -> Tensor:
        stem = f"{self.get_name()}.conv2d_transpose"
        return nn_ops.Conv2dTranspose(stem, activations, self.weights, self.bias, **self.settings)


class _Pool(PyBudaModule):
    settings: dict[str, Any]

    def __init__(self, name: str, kernel_size: Any, stride: Any = 1, padding: Any = "same", **settings: Any) -> None:
        super().__init__(name)
        self.__dict__["settings"] = {"kernel_size": kernel_size, "stride": stride, "padding": padding, **settings}


class MaxPool1dModule(_Pool):
    """Largest value of each window of (N, C, L)."""

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.MaxPool1d(f"{self.get_name()}.max_pool1d", activations, **self.settings)


class MaxPool2dModule(_Pool):
    """Largest value of each window of an image."""

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.MaxPool2d(f"{self.get_name()}.max_pool2d", activations, **self.settings)


class AvgPool2dModule(_Pool):
    """Mean of each window of an image."""

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.AvgPool2d(f"{self.get_name()}.avg_pool2d", activations, **self.settings)


class SparseMatmulModule(PyBudaModule):
    """A product with a constant sparse matrix."""

    sparse: Any

    def __init__(self, name: str, sparse: Any) -> None:
        super().__init__(name)
        self.__dict__["sparse"] = sparse

    def forward(self, activations: Tensor) -> Tensor:
        return nn_ops.SparseMatmul(f"{self.get_name()}.sparse_matmul", self.sparse, activations)
