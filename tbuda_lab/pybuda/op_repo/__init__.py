"""`pybuda.op_repo`: what ops there are, with their parameters, for tests that choose ops at random."""

from tbuda_lab.pybuda.op_repo.datatypes import (
    OperandNumInt,
    OperandNumRange,
    OperatorDefinition,
    OperatorParam,
    OperatorParamNumber,
    OperatorRepository,
    ShapeCalculationContext,
    TensorShape,
)
from tbuda_lab.pybuda.op_repo.repositories import pybuda_operator_repository, pytorch_operator_repository

__all__ = [
    "OperandNumInt",
    "OperandNumRange",
    "OperatorDefinition",
    "OperatorParam",
    "OperatorParamNumber",
    "OperatorRepository",
    "ShapeCalculationContext",
    "TensorShape",
    "pybuda_operator_repository",
    "pytorch_operator_repository",
]
