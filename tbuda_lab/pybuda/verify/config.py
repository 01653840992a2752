"""`pybuda.verify.config`."""

from tbuda_lab.runtime.enums import TestKind
from tbuda_lab.runtime.verify import VerifyConfig

__all__ = ["TestKind", "VerifyConfig"]
