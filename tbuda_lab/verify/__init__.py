"""`pybuda.verify`."""

from tbuda_lab.runtime.enums import TestKind
from tbuda_lab.runtime.verify import VerifyConfig, verify_module, verify_module_pipeline
from tbuda_lab.verify import backend, config, utils

__all__ = ["TestKind", "VerifyConfig", "backend", "config", "utils", "verify_module", "verify_module_pipeline"]
