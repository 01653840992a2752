"""The netlist: schema, YAML in and out, checks."""

from tbuda_lab.core.netlist.dump import dump, dumps, layout_of
from tbuda_lab.core.netlist.findings import Finding
from tbuda_lab.core.netlist.load import load, loads
from tbuda_lab.core.netlist.schema import Netlist

__all__ = ["Finding", "Netlist", "dump", "dumps", "layout_of", "load", "loads"]
