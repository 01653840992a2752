"""Every test starts from the state after import."""

from collections.abc import Iterator

import pytest

import tbuda_lab as pybuda


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    pybuda.pybuda_reset()
    yield
    pybuda.pybuda_reset()
