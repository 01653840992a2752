"""YAML text to `Netlist`, with a source map and all problems of the text."""

from tbuda_lab.core.netlist.reader.sections import read_text

__all__ = ["read_text"]
