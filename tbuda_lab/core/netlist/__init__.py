"""The netlist: schema, YAML in and out, checks."""

from tbuda_lab.core.netlist.check import check
from tbuda_lab.core.netlist.dump import Texts, dump, dumps, layout_of
from tbuda_lab.core.netlist.expand import expand
from tbuda_lab.core.netlist.reader.sections import file_text, load, loads
from tbuda_lab.core.netlist.schema import Finding, Netlist
from tbuda_lab.core.netlist.show import show

__all__ = [
    "Finding",
    "Netlist",
    "Texts",
    "check",
    "dump",
    "dumps",
    "expand",
    "file_text",
    "layout_of",
    "load",
    "loads",
    "show",
]
