"""The registry of rules, each a small function with an id, a one-line doc and the profile from which it is an error,
and what rules ask of a device."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import Netlist

Issue = tuple["str | tuple[str, ...]", str, str]
"""(place below the element, message, what would be legal). The place is a field name or a tuple of names; a rule over
the whole netlist gives full paths."""
Issues = Iterator[Issue]

PROFILES = ("backend", "strict")
STAGES = ("parse", "verify", "fused", "programs", "workload", "golden", "shapes", "placement", "route")
FILES = (
    "devices",
    "queues",
    "graphs",
    "attributes",
    "tms",
    "tiles",
    "formats",
    "special",
    "fused",
    "programs",
    "workload",
    "shapes",
    "placement",
    "cores",
    "routing",
)
SCOPES = ("netlist", "queue", "graph", "op", "fused_op", "program", "setting")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule. `profile` is the first profile in which breaking it is an error: a "strict" rule only warns in
    "backend", a "note" always. Scopes hand the function: netlist (context), queue (context, queue), graph (context,
    graph), op (context, op), fused_op (context, fused op), program (context, program), setting (context, Setting)."""

    id: str
    scope: str
    stage: str
    profile: str  # "backend" | "strict" | "note"
    doc: str
    check: Callable[..., Issues]

    def severity(self, profile: str) -> str:
        if self.profile == "note":
            return "warning"
        return "error" if PROFILES.index(self.profile) <= PROFILES.index(profile) else "warning"


RULES: dict[str, Rule] = {}


def rule(
    id: str, scope: str, stage: str = "verify", profile: str = "backend"
) -> Callable[[Callable[..., Issues]], Callable[..., Issues]]:
    """Registers a rule function; the first line of its docstring is its doc."""
    assert scope in SCOPES and stage in STAGES and profile in (*PROFILES, "note"), (id, scope, stage, profile)

    def register(check: Callable[..., Issues]) -> Callable[..., Issues]:
        assert id not in RULES, f"two rules {id}"
        doc = (check.__doc__ or id).strip().splitlines()[0]  # Python leaves docs away under PYTHONOPTIMIZE=2
        RULES[id] = Rule(id, scope, stage, profile, doc, check)
        return check

    return register


def ordered_rules() -> list[Rule]:
    """All rules, stage by stage as the backend works, within a stage file by file in the order of `FILES`."""

    def place(r: Rule) -> tuple[int, int]:
        return STAGES.index(r.stage), FILES.index(r.check.__module__.rpartition(".")[2])

    return sorted(RULES.values(), key=place)


# what the reader refuses in a text before any rule runs; some share their id with rules that say the same of a netlist
TEXT_RULES = {
    "Y1": "The file is valid YAML of bounded depth, and no alias refers to itself.",
    "Y2": "Sections and fields are unique; only input_N_tms may repeat, and its entries are joined.",
    "Y3": "Sections and elements are maps or lists, whichever the format expects.",
    "Y4": "Values are numbers, true or false, or names, whichever the format expects.",
    "D1": "devices has no key but arch.",
    "D3": "The requested arch is one that the netlist names.",
    "Q1": "Queue fields are known.",
    "Q2": "Queue names are unique.",
    "Q3": "grid_size, mblock and ublock are pairs.",
    "Q8": "Data formats are known.",
    "O2": "grid_size, mblock and ublock of ops are pairs.",
    "O4": "There is one in_df for each input; grid_loc is a pair.",
    "O8": "Attribute values have their shape.",
    "O9": "TMs are known, have the arguments they take, and name an input of the op.",
    "F12": "Sub-op fields and attributes are known; the type stands before the attributes.",
}


def describe() -> list[dict[str, Any]]:
    """Id, scope, stage, profile and doc of every rule, for documentation and views."""
    texts = [
        {"id": id, "scope": "text", "stage": "parse", "profile": "backend", "doc": doc}
        for id, doc in TEXT_RULES.items()
    ]
    return texts + [
        {"id": r.id, "scope": r.scope, "stage": r.stage, "profile": r.profile, "doc": r.doc} for r in ordered_rules()
    ]


ARCHS = ("grayskull", "wormhole", "wormhole_b0", "blackhole")
_A0_DST = 4  # wormhole A0 took ublocks four times as large


@dataclasses.dataclass(frozen=True)
class NetlistFacts:
    """A device under the name that a netlist gives its arch: `wormhole` is the A0 stepping of wormhole_b0."""

    arch: str
    device: DeviceSpec

    @property
    def grayskull(self) -> bool:
        return self.arch == "grayskull"

    @property
    def align(self) -> int:
        """Bytes to which tiles, queue headers and addresses are aligned."""
        return self.device.tile_align

    @property
    def l1_limit(self) -> int:
        """Bytes of L1 that buffers can have at most."""
        return self.device.l1_usable

    def dst_limit(self, acc_df: DataFormat | None) -> int:
        """Tiles of one ublock at most."""
        return self.device.dst_tiles(acc_df) * (_A0_DST if self.arch == "wormhole" else 1)


def leading_arch(n: Netlist) -> str:
    """The arch that decides where none is asked for: the first that the netlist names, wormhole_b0 before `wormhole`
    (no machine of that early stepping is left); wormhole_b0 if it names none that exists."""
    archs = [a for a in n.archs if a in ARCHS]
    if not archs or (archs[0] == "wormhole" and "wormhole_b0" in archs):
        return "wormhole_b0"
    return archs[0]


@functools.cache
def facts_of(name: str) -> NetlistFacts:
    """The facts of an arch (one of `ARCHS`, every row working), a board or a descriptor file.

    Raises UnknownDevice."""
    if name.lower() == "wormhole":
        return NetlistFacts("wormhole", load_device("wormhole_b0"))
    device = load_device(name)
    return NetlistFacts(device.arch, device)
