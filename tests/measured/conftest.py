"""A compiled perceptron."""

from __future__ import annotations

import pytest

from tbuda_lab.core.session import Session
from tests.session.models import perceptron


@pytest.fixture(scope="session")
def mlp() -> Session:
    model, inputs = perceptron()
    session = Session(model, inputs, "n150", name="mlp")
    session.compile()
    return session
