"""A slice of `python -m tests.emitted`: a training on two chips and a session of edits are clean, and a fault of every
kind is found in them."""

from __future__ import annotations

from tests.emitted.compiles import jobs
from tests.emitted.faults import KINDS
from tests.emitted.sweep import seeded_faults, sweep


def test_netlists_of_a_training_and_of_edits_are_clean_and_faults_in_them_are_found() -> None:
    wanted = ("training small n300 at 32 adam", "edits perceptron grayskull", "mlp mesh at 64")
    some = [job for job in jobs(("mlp",), edits=2) if job.name in wanted]
    assert len(some) == len(wanted)
    checked = list(sweep(some))
    assert len(checked) >= 4 and not [text for c in checked for text in c.errors]
    bases = [(c.netlist, c.device) for c in checked if c.netlist is not None]
    results = list(seeded_faults(bases, len(KINDS)))
    assert {planted.kind for planted, _ in results} == set(KINDS)
    assert not [(planted.kind, planted.names) for planted, errors in results if not errors]
