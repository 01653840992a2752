"""`samba.nn.parameter`."""

from tbuda_lab.samba.tensor import SambaParameter

__all__ = ["SambaParameter"]
