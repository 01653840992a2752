"""Cycles of every op type on every arch, fitted to silicon runs where there are runs."""

from tbuda_lab.core.cost.model import KINDS, cycles, fused_share
from tbuda_lab.core.cost.tables import Fit, Key, Table, dump_fits, load_fits, load_table

__all__ = ["KINDS", "Fit", "Key", "Table", "cycles", "dump_fits", "fused_share", "load_fits", "load_table"]
