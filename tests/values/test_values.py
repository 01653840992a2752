"""A part of the sweep of `python -m tests.values`; the rules that it names are those of docs/numbers.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.values.sweep import EXACT, NAMED, differences

DOCUMENT = Path(__file__).parents[2] / "docs" / "numbers.md"
MODULES = [*list(EXACT)[::5], "pad -inf then max pool", "cumsum", "average pool", "ge other", "or of truths"]


@pytest.mark.parametrize("name", sorted(set(MODULES)))
def test_special_values_are_torchs(name: str) -> None:
    assert differences(name, EXACT[name]) == []


def test_every_rule_is_written_down() -> None:
    text = DOCUMENT.read_text()
    assert [rule for rule, _ in NAMED.values() if f"| **{rule}** |" not in text] == []


def test_a_difference_is_seen() -> None:
    """The machine's own 1 / 0 is one."""
    assert {d.value for d in differences("reciprocal", NAMED["reciprocal"][1])} == {0.0}
