"""From an Ir to a netlist and a host program."""
