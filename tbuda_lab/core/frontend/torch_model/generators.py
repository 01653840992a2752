"""Generators of random numbers that the tracer does not see: Python's and NumPy's own, and those that a model holds."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

KINDS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
COMMON: list[Any] = [vars(random)["_inst"], vars(np.random.mtrand)["_rand"]]
"""Python's and NumPy's own."""
SEEDS = {
    random.Random: (906, 2447, 676, 3179, 1505, 3525, 218, 3724),
    np.random.RandomState: (1146, 1989, 1468, 1897, 1626, 3750, 952, 1272),
    np.random.Generator: (1004, 2791, 3546, 1684, 2919, 2331, 2965, 2966),
    torch.Generator: (3578, 3235, 211, 1821, 2127, 998, 3937, 2164),
}
"""Seeds that begin with 0.001, 0.999, 0.03, 0.97, 0.12, 0.88, 0.3 and 0.7 of what a generator can give (NumPy's: of
`default_rng`), so that a number which is only compared falls on either side."""
DRAWS = 8


def state(generator: Any) -> Any:
    """Where a generator stands, as something that can be compared."""
    found = _get(generator)
    if isinstance(found, torch.Tensor):
        return found.numpy().tobytes()
    if isinstance(found, dict):
        return repr(found)
    return tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in found)


def _get(generator: Any) -> Any:
    if isinstance(generator, random.SystemRandom):
        return ()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state()


def reseed(generator: Any, draw: int) -> None:
    """Other numbers than it would give, the ones of draw 0 to 7."""
    seed = next(seeds[draw] for kind, seeds in SEEDS.items() if isinstance(generator, kind))
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    else:
        generator.seed(seed)


@contextlib.contextmanager
def kept(generators: Iterable[Any]) -> Iterator[None]:
    """Generators are afterwards where they were."""
    saved = [(g, _get(g)) for g in generators]
    try:
        yield
    finally:
        for generator, before in saved:
            if isinstance(generator, np.random.Generator):
                generator.bit_generator.state = before
            elif isinstance(generator, random.Random):
                if before:
                    generator.setstate(before)
            else:
                generator.set_state(before)
