"""All frames of a netlist file."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.frames.frame import Frame
from tbuda_lab.core.frames.graphframe import graph_frame
from tbuda_lab.core.frames.netlistfile.grid import ops_frame
from tbuda_lab.core.frames.netlistfile.opgraph import op_graph
from tbuda_lab.core.frames.netlistfile.tables import findings_frame, programs_frame, queues_frame, text_frame
from tbuda_lab.core.frames.snapshot import device_text
from tbuda_lab.core.netlist.check.facts import NetlistFacts, facts_of, leading_arch
from tbuda_lab.core.netlist.schema import Netlist


def netlist_frames(n: Netlist, text: str, *, arch: str | None = None, profile: str = "backend") -> list[Frame]:
    """What a view of the file shows: summary, findings of `check`, op graph, grids, queues, programs, text.

    A netlist without ops has no graph and no grids.

    n: as `netlist.load(..., lenient=True)` gives it; it need not be valid. text: of the file. arch: as for `check`.
    Raises UnknownDevice for an arch that is none; no netlist makes it raise.
    """
    findings = netlists.check(n, arch, profile)
    facts = _facts(n, arch)
    shown = netlists.expand(n, facts.align)
    names = [*shown.queues, *(op.name for _, op in shown.ops())]
    drawn = [] if not any(shown.ops()) else [
        graph_frame(op_graph(shown), "netlist"), ops_frame(shown, facts.device)]
    return [
        _summary(shown, facts),
        findings_frame(shown, findings),
        *drawn,
        queues_frame(shown, facts.align),
        programs_frame(n),
        text_frame(n, text, names),
    ]


def _facts(n: Netlist, arch: str | None) -> NetlistFacts:
    if arch is not None:
        return facts_of(arch)
    return facts_of(leading_arch(n))


def _summary(n: Netlist, facts: NetlistFacts) -> Frame:
    chips = {c for g in n.graphs.values() for c in _listed(g.target_device)}
    counts: list[list[Any]] = [
        [sum(len(g.ops) for g in n.graphs.values()), "ops"], [len(n.graphs), "graphs"], [len(n.queues), "queues"],
        [len(n.programs), "programs"], [len(n.fused_ops), "fused ops"], [len(chips), "chips"],
    ]
    return Frame("summary", {
        "name": PurePath(n.path).name if n.path else "netlist",
        "device": f"arch {', '.join(n.arch) or 'not written'}, drawn on {device_text(facts.device)}",
        "counts": [[c, what[:-1] if c == 1 else what] for c, what in counts if c or what != "fused ops"],
    })


def _listed(device: int | list[int]) -> list[int]:
    return device if isinstance(device, list) else [device]
