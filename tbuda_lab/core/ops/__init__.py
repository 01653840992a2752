"""The nD op set, one module per family; importing this package registers all of it."""

from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import (
    Add,
    Divide,
    Equal,
    Greater,
    GreaterEqual,
    Heaviside,
    Less,
    LessEqual,
    LogicalAnd,
    Maximum,
    Minimum,
    Multiply,
    NotEqual,
    Power,
    Subtract,
    Where,
)
from tbuda_lab.core.ops.conv import Conv2d, Conv2dTranspose, ConvRows, FromRows, PatchesRows, ToRows
from tbuda_lab.core.ops.gradients import GradientSeed, OwnGradient, StopGradient
from tbuda_lab.core.ops.host import Embedding, EmbeddingBag, FloorDivide, HostCall, OneHot, Remainder
from tbuda_lab.core.ops.image import PixelShuffle, Resize2d
from tbuda_lab.core.ops.norm import Batchnorm, BatchnormTraining, GroupNorm, Layernorm, LogSoftmax, Softmax
from tbuda_lab.core.ops.pool import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d, MaxPoolRows, SumPoolRows
from tbuda_lab.core.ops.reduce import Argmax, CumSum, Matmul, ReduceAvg, ReduceMax, ReduceSum
from tbuda_lab.core.ops.rounding import Bitcast, RoundFloat
from tbuda_lab.core.ops.slices import HSlice, HStack, Interleave, Stack, VSlice, VStack
from tbuda_lab.core.ops.tm import (
    BroadcastTo,
    Concatenate,
    GatherRows,
    Index,
    Pad,
    Repeat,
    Reshape,
    ScatterRows,
    Select,
    Squeeze,
    SumRows,
    Transpose,
    Unsqueeze,
)
from tbuda_lab.core.ops.unary import (
    Abs,
    Buffer,
    Cast,
    Clip,
    Cosine,
    Erf,
    Exp,
    Gelu,
    GeluDerivative,
    LeakyRelu,
    Log,
    LogicalNot,
    Nop,
    Pow,
    Reciprocal,
    Relu,
    RoundTo,
    Sigmoid,
    Sine,
    Sqrt,
    Tanh,
)

__all__ = [
    "Abs", "AdaptiveAvgPool2d", "Add", "Argmax", "AvgPool2d", "Batchnorm", "BatchnormTraining", "Bitcast",
    "BroadcastTo", "Buffer", "Cast", "Clip", "Concatenate", "Conv2d", "Conv2dTranspose", "ConvRows", "Cosine", "CumSum",
    "Divide", "Embedding", "EmbeddingBag", "Equal", "Erf", "Exp", "FloorDivide", "FromRows", "GatherRows", "Gelu",
    "GeluDerivative", "GradientSeed", "Greater", "GreaterEqual", "GroupNorm", "HSlice", "HStack", "Heaviside",
    "HostCall", "Index", "Interleave", "Layernorm", "LeakyRelu", "Less", "LessEqual", "Log", "LogSoftmax", "LogicalAnd",
    "LogicalNot", "Matmul", "MaxPool2d", "MaxPoolRows", "Maximum", "Minimum", "Multiply", "NdOp", "Nop", "NotEqual",
    "OneHot", "OwnGradient", "Pad", "PatchesRows", "PixelShuffle", "Pow", "Power", "Reciprocal", "ReduceAvg",
    "ReduceMax", "ReduceSum", "Relu", "Remainder", "Repeat", "Reshape", "Resize2d", "RoundFloat", "RoundTo",
    "ScatterRows", "Select", "Sigmoid", "Sine", "Softmax", "Sqrt", "Squeeze", "Stack", "StopGradient", "Subtract",
    "SumPoolRows", "SumRows", "Tanh", "ToRows", "Transpose", "Unsqueeze", "VSlice", "VStack", "Where",
]
