"""A check that remembers the ops of earlier netlists finds what one from scratch finds."""

from __future__ import annotations

import dataclasses

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.netlist.check import CheckCache, facts_of, ordered_rules
from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.schema import Queue
from tbuda_lab.core.netlist.tables import Tables
from tbuda_lab.core.placer.interactive.placed_ops import share_netlist
from tests.netlist import test_rules
from tests.netlist.rules.common import CASES, Case

assert test_rules.CASES is CASES  # it makes every file of cases register its own


@pytest.mark.parametrize("c", CASES, ids=[f"{c.rule}-{k}" for k, c in enumerate(CASES)])
def test_nothing_is_missed_after_a_change(c: Case) -> None:
    cache, base, changed = CheckCache(), c.base(), c.base()
    valid = netlist.check(base, c.arch, "strict")
    assert netlist.check(base, c.arch, "strict", cache) == valid
    c.change(changed)
    expected = netlist.check(changed, c.arch, "strict")
    share_netlist(changed, base)
    for _ in range(2):
        assert netlist.check(changed, c.arch, "strict", cache) == expected
        assert netlist.check(base, c.arch, "strict", cache) == valid


def test_other_devices_and_profiles_have_their_own_findings() -> None:
    cache = CheckCache()
    for c in CASES[::7]:
        n = c.base()
        c.change(n)
        for arch in ("wormhole_b0", "grayskull", "wormhole_b0"):
            for profile in ("strict", "backend"):
                assert netlist.check(n, arch, profile, cache) == netlist.check(n, arch, profile)


def test_most_rules_look_no_further_than_the_sources_of_an_op() -> None:
    cache, n = CheckCache(), CASES[0].base()
    rules = [rule for rule in ordered_rules() if rule.scope == "op"]
    context = CheckContext(Tables(n), facts_of("wormhole_b0"))
    ops = [op for _, op in n.ops()]
    first = cache.check(context, rules, ops)
    assert ops and all(len(known.beyond) * 4 < len(rules) for known in first)
    again = cache.check(context, rules, ops)
    assert all(a is b for a, b in zip(first, again, strict=True))


def test_queues_that_move_in_memory_are_nothing_to_the_ops() -> None:
    cache, n = CheckCache(), CASES[0].base()
    rules = [rule for rule in ordered_rules() if rule.scope == "op"]
    facts = facts_of("wormhole_b0")
    first = cache.check(CheckContext(Tables(n), facts), rules, [op for _, op in n.ops()])
    moved = dataclasses.replace(n, queues={name: _moved(q) for name, q in n.queues.items()})
    again = cache.check(CheckContext(Tables(moved), facts), rules, [op for _, op in moved.ops()])
    assert first and all(a is b for a, b in zip(first, again, strict=True))
    deeper = dataclasses.replace(
        n, queues={name: dataclasses.replace(q, entries=q.entries + 1) for name, q in n.queues.items()}
    )
    third = cache.check(CheckContext(Tables(deeper), facts), rules, [op for _, op in deeper.ops()])
    read = [any(i.source in n.queues for i in op.inputs) for _, op in n.ops()]
    assert any(read) and [a is not b for a, b in zip(first, third, strict=True)] == read


def _moved(queue: Queue) -> Queue:
    return dataclasses.replace(
        queue, buffers=[dataclasses.replace(b, address=b.address + 0x100000) for b in queue.buffers]
    )
