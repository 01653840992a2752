"""Two linear layers that learn digits, the program of chapter 15 of PopXL's guide: torch's accuracy after the same
training, and what a step takes. `bench/training/popxl_mnist.py` is the program, and prints the numbers."""

from __future__ import annotations

from bench.training import popxl_mnist as mnist


def test_digits_are_told_as_torch_tells_them_after_the_same_training() -> None:
    ours, theirs, off = mnist.trained(seed=0, epochs=2)
    assert theirs > 0.8, "training taught torch's twin nothing"
    assert abs(ours - theirs) <= 0.01
    assert off < 1e-3


def test_a_step_is_few_segments_and_takes_no_longer_than_pybuda_s() -> None:
    step = mnist.step()
    assert 1 <= step.segments <= 3
    assert 0 < step.cycles <= 1.5 * step.pybuda_cycles
