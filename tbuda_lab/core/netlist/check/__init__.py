"""Is a netlist valid? A registry of rules, each a small function; `check` runs them all and collects what they find."""

from tbuda_lab.core.netlist.check import (
    attributes,
    chips,
    formats,
    fused,
    fused_buffers,
    graphs,
    integers,
    placement,
    programs,
    queues,
    routing,
    shapes,
    special,
    tiles,
    workload,
)
from tbuda_lab.core.netlist.check.cache import CheckCache
from tbuda_lab.core.netlist.check.facts import ARCHS, NetlistFacts, facts_of
from tbuda_lab.core.netlist.check.registry import PROFILES, RULES, Rule, describe, ordered
from tbuda_lab.core.netlist.check.run import check

__all__ = [
    "ARCHS",
    "PROFILES",
    "RULES",
    "CheckCache",
    "NetlistFacts",
    "Rule",
    "attributes",
    "check",
    "chips",
    "describe",
    "facts_of",
    "formats",
    "fused",
    "fused_buffers",
    "graphs",
    "integers",
    "ordered",
    "placement",
    "programs",
    "queues",
    "routing",
    "shapes",
    "special",
    "tiles",
    "workload",
]
