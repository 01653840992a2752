"""Rules D: devices, and the order of sections."""

from __future__ import annotations

from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.facts import ARCHS
from tbuda_lab.core.netlist.check.registry import Issues, rule


@rule("D2", "netlist", "parse")
def arch_known(c: CheckContext) -> Issues:
    """The netlist names an arch, and a known one."""
    if not c.n.arch:
        yield ("devices", "arch"), "no arch", f"write `devices: {{arch: ...}}` with one of {', '.join(ARCHS)}"
    for arch in c.n.arch:
        if arch.lower() not in ARCHS:
            yield ("devices", "arch"), f"unknown arch {arch!r}", f"known are {', '.join(ARCHS)}"


@rule("D4", "netlist", "parse", "note")
def section_order(c: CheckContext) -> Issues:
    """Sections stand in the order in which the backend needs them: devices, queues, graphs, programs."""
    place = {name: i for i, name in enumerate(c.n.order)}
    for first, later in (("devices", "queues"), ("queues", "graphs"), ("queues", "programs")):
        if first in place and later in place and place[first] > place[later]:
            yield (first,), f"section {first} stands after {later}", \
                f"the backend reads in file order: put {first} first"
