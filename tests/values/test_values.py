"""A part of the sweep of `python -m tests.values`; the rules that it names are those of docs/numbers.md."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn
from tests.values.sweep import EXACT, NAMED, OPTIONS, differences

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


def test_memory_that_is_written_in_parts_holds_what_was_written() -> None:
    def in_parts(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y[..., :32] = x[..., :32]
        y[..., 32:] = 2.0
        return y * 1.0

    x = torch.randn(1, 4, 64)
    session = Session(Fn(in_parts), (x,), options=OPTIONS)
    assert torch.equal(session.run()[0][0], torch.cat([x[..., :32], torch.full((1, 4, 32), 2.0)], -1))
    stored = [n.value for n in session.graph("traced").nodes.values() if n.value is not None and n.value.size > 1]
    assert all(((v == 0) | (v == 2)).all() for v in stored)
