"""JAX functions in: `from_jax`."""

from tbuda_lab.core.frontend.jax_model.importer import from_jax
from tbuda_lab.core.frontend.jax_model.primitives import TABLE

__all__ = ["TABLE", "from_jax"]
