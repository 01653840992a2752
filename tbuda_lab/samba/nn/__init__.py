"""`samba.nn`: modules are torch's own; parameters have SambaFlow's names."""

from tbuda_lab.samba.nn import parameter
from tbuda_lab.samba.nn.parameter import SambaParameter

__all__ = ["SambaParameter", "parameter"]
