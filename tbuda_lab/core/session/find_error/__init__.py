"""The op that is wrong: first by stages (traced, passed, lowered, netlist, golden, device), then by ops."""

from tbuda_lab.core.session.find_error.report import ErrorReport, FormatCost, OpError
from tbuda_lab.core.session.find_error.search import find_error

__all__ = ["ErrorReport", "FormatCost", "OpError", "find_error"]
