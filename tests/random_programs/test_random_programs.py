"""Some of the random programs of `python -m tests.random_programs`: each is as torch has it, or refused by a type."""

from __future__ import annotations

import pytest

from tests.random_programs.generate import generate
from tests.random_programs.judge import judge

SEEDS = range(24)  # a slice: the command takes any number


@pytest.mark.parametrize("first", range(0, len(SEEDS), 12))
def test_programs_are_torchs_or_refused(first: int) -> None:
    verdicts = [judge(generate(seed)) for seed in SEEDS[first : first + 12]]
    assert [v for v in verdicts if v.what in ("differs", "raw")] == []
    assert sum(v.what == "same" for v in verdicts) >= 3


def test_a_seed_is_a_program() -> None:
    assert generate(7) == generate(7) != generate(8)


def test_noise_of_huge_terms_fits_a_narrow_result() -> None:
    """The audit's noise on a sum of huge terms is of their size, which a result in Float16 has no room for."""
    assert judge(generate(702133)).what in ("same", "refused")
