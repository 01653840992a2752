"""Measured runs beside simulated ones: profiles read from files, matched to a model's ops, kernels fitted to them."""

from tbuda_lab.core.measured.op_codes import KINDS, OTHER, group_of, kind_of
from tbuda_lab.core.measured.profile import MeasuredOp, MeasuredProfile, MeasuredTensor
from tbuda_lab.core.measured.read import read_profile

__all__ = [
    "KINDS",
    "OTHER",
    "MeasuredOp",
    "MeasuredProfile",
    "MeasuredTensor",
    "group_of",
    "kind_of",
    "read_profile",
]
