"""A small slice of the fuzz over sizes."""

from __future__ import annotations

import pytest

from tests.sizes.cases import Case, cases, fault

SLICE = [case for case in cases(240, seed=0) if case.tiles <= 400][:24]


@pytest.mark.parametrize("case", SLICE, ids=str)
def test_a_size_places_and_agrees_with_torch(case: Case) -> None:
    assert not fault(case)
