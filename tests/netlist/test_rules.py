"""Every rule: a valid netlist, one thing made wrong, and the rule names that thing."""

from __future__ import annotations

from typing import Any

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.netlist.check import PROFILES, RULES
from tests.netlist import builders as b
from tests.netlist.rules import (  # each registers its cases
    cases_formats,
    cases_fused,
    cases_ops,
    cases_programs,
    cases_queues,
    cases_routing,
    cases_shapes,
)
from tests.netlist.rules.common import CASES, Case

assert all((cases_formats, cases_fused, cases_ops, cases_programs, cases_queues, cases_routing, cases_shapes))


@pytest.mark.parametrize("c", CASES, ids=[f"{c.rule}-{k}" for k, c in enumerate(CASES)])
def test_rule_names_the_element(c: Case) -> None:
    valid = [
        f for f in netlist.check(b.reread(c.base()), c.arch, "strict") if f.severity == "error" and c.rule != "O16.arch"
    ]
    assert not valid, [str(f) for f in valid]
    n = c.base()
    c.change(n)
    matches = [f for f in netlist.check(n, c.arch, "strict") if f.rule == c.rule]
    assert any(c.where in "/".join(f.where) for f in matches), [str(f) for f in netlist.check(n, c.arch, "strict")]
    assert all(f.message and f.fix for f in matches)


@pytest.mark.parametrize("c", CASES, ids=[f"{c.rule}-{k}" for k, c in enumerate(CASES)])
def test_a_file_gives_the_line(c: Case) -> None:
    """The same as a file: some rule refuses it (the reader's own, for what cannot be read), with a line."""
    n = c.base()
    c.change(n)
    findings = netlist.check(b.reread(n), c.arch, "strict")
    assert findings
    severity = "warning" if RULES[c.rule].profile == "note" else "error"
    assert any(f.severity == severity for f in findings)
    lines = [f.line for f in findings if f.severity == severity]
    assert any(lines) or c.rule in ("Q9.any", "G1.any", "P0", "D2", "R5")


def test_every_rule_has_a_case() -> None:
    assert {c.rule for c in CASES} == set(RULES)


@pytest.mark.parametrize("c", CASES, ids=[f"{c.rule}-{k}" for k, c in enumerate(CASES)])
def test_profiles_only_grow(c: Case) -> None:
    """What is an error in one profile is one in the next; findings themselves do not depend on the profile."""
    n = c.base()
    c.change(n)
    errors: set[Any] = set()
    everything = None
    for profile in PROFILES:
        findings = netlist.check(n, c.arch, profile)
        now = {(f.rule, f.where, f.message) for f in findings if f.severity == "error"}
        assert errors <= now
        errors = now
        listed = {(f.rule, f.where, f.message) for f in findings}
        assert everything in (None, listed)
        everything = listed
