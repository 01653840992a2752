"""`pybuda.verify.backend`."""

from tbuda_lab.runtime.verify import verify_module, verify_module_pipeline

__all__ = ["verify_module", "verify_module_pipeline"]
