"""The ops of `pybuda.op` and those of torch, as data."""

from __future__ import annotations

from tbuda_lab.pybuda.op_repo.datatypes import (
    OperandNumInt,
    OperandNumRange,
    OperatorDefinition,
    OperatorParamNumber,
    OperatorRepository,
)

UNARY = (
    "abs",
    "argmax",
    "buffer",
    "cosine",
    "exp",
    "gelu",
    "log",
    "logical_not",
    "nop",
    "reciprocal",
    "relu",
    "sigmoid",
    "sine",
    "sqrt",
    "tanh",
    "tilizer",
)
BINARY = (
    "add",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "heaviside",
    "less",
    "less_equal",
    "logical_and",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "power",
    "subtract",
)
WITH_PARAMETERS: dict[str, tuple[int, list[OperatorParamNumber]]] = {
    "binary_stack": (2, [OperatorParamNumber("dim", int, -1, -1)]),
    "clip": (1, [OperatorParamNumber("min", float, 0, 100), OperatorParamNumber("max", float, 0, 100)]),
    "cumsum": (1, [OperatorParamNumber("axis", int, 0, 3)]),
    "dropout": (1, [OperatorParamNumber("p", float, 0, 1)]),
    "leaky_relu": (1, [OperatorParamNumber("alpha", float, 0, 100)]),
    "pow": (1, [OperatorParamNumber("exponent", float, 0, 100)]),
}
SEVERAL = {"concatenate": "axis", "interleave": "axis", "stack": "axis"}
FULL = {
    "nop": "Identity",
    "tilizer": "Tilize",
    "maximum": "Max",
    "minimum": "Min",
    "logical_not": "LogicalNot",
    "cumsum": "CumSum",
}


def _full(name: str) -> str:
    """ "greater_equal" -> "pybuda.op.GreaterEqual"."""
    return f"pybuda.op.{FULL.get(name) or ''.join(part.capitalize() for part in name.split('_'))}"


def _pybuda() -> list[OperatorDefinition]:
    one, two = OperandNumInt(1), OperandNumInt(2)
    pybuda = [OperatorDefinition(name, _full(name), one) for name in UNARY]
    pybuda += [OperatorDefinition(name, _full(name), two) for name in BINARY]
    pybuda += [
        OperatorDefinition(n, _full(n), OperandNumInt(c), forward_params=ps) for n, (c, ps) in WITH_PARAMETERS.items()
    ]
    pybuda += [
        OperatorDefinition(n, _full(n), OperandNumRange(2, 7), forward_params=[OperatorParamNumber(p, int, -3, -1)])
        for n, p in SEVERAL.items()
    ]
    pybuda += [OperatorDefinition(n, _full(n), two) for n in ("matmul", "sparse_matmul")]
    pybuda += [OperatorDefinition("where", _full("where"), OperandNumInt(3))]
    pybuda += [OperatorDefinition("index_copy", _full("index_copy"), OperandNumInt(3))]
    return sorted(pybuda, key=lambda operator: operator.name)


def _pytorch() -> list[OperatorDefinition]:
    one, two = OperandNumInt(1), OperandNumInt(2)
    unary = (
        "relu",
        "sqrt",
        "reciprocal",
        "sigmoid",
        "abs",
        "cos",
        "exp",
        "neg",
        "rsqrt",
        "sin",
        "square",
        "log",
        "tanh",
    )
    binary = ("add", "div", "ge", "gt", "le", "lt", "maximum", "minimum", "mul", "sub", "eq", "ne", "matmul")
    channels = [
        OperatorParamNumber("in_channels", int, 10, 50),
        OperatorParamNumber("out_channels", int, 10, 50),
        OperatorParamNumber("kernel_size", int, 3, 3),
        OperatorParamNumber("stride", int, 1, 1),
        OperatorParamNumber("padding", int, 1, 1),
    ]
    linear = [OperatorParamNumber("in_features", int, 10, 50), OperatorParamNumber("out_features", int, 10, 50)]
    return [
        *(OperatorDefinition(name, f"torch.{name}", one) for name in unary),
        *(OperatorDefinition(name, f"torch.{name}", two) for name in binary),
        OperatorDefinition("linear", "torch.nn.Linear", one, constructor_params=linear, instantiate=True),
        OperatorDefinition("conv2d", "torch.nn.Conv2d", one, constructor_params=channels, instantiate=True),
    ]


pybuda_operator_repository = OperatorRepository(_pybuda())
pytorch_operator_repository = OperatorRepository(_pytorch())
