"""`pybuda.verify`."""

from tbuda_lab.pybuda.verify import backend, config, utils
from tbuda_lab.runtime.enums import TestKind
from tbuda_lab.runtime.verify import VerifyConfig, verify_module, verify_module_pipeline

__all__ = ["TestKind", "VerifyConfig", "backend", "config", "utils", "verify_module", "verify_module_pipeline"]
