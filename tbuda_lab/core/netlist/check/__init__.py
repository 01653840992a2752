"""Is a netlist valid? A registry of rules, each a small function; `check` runs them all and collects what they find."""

from tbuda_lab.core.netlist.check import (
    attributes,
    cores,
    formats,
    fused,
    graphs,
    placement,
    programs,
    queues,
    routing,
    shapes,
    special,
    tiles,
    workload,
)
from tbuda_lab.core.netlist.check.registry import (
    ARCHS,
    PROFILES,
    RULES,
    NetlistFacts,
    Rule,
    describe,
    facts_of,
    ordered_rules,
)
from tbuda_lab.core.netlist.check.run import CheckCache, check

__all__ = [
    "ARCHS",
    "PROFILES",
    "RULES",
    "CheckCache",
    "NetlistFacts",
    "Rule",
    "attributes",
    "check",
    "cores",
    "describe",
    "facts_of",
    "formats",
    "fused",
    "graphs",
    "ordered_rules",
    "placement",
    "programs",
    "queues",
    "routing",
    "shapes",
    "special",
    "tiles",
    "workload",
]
