"""What several tests of views start from."""

from __future__ import annotations

import pytest

from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import Hub
from tests.session.models import perceptron


@pytest.fixture
def hub() -> Hub:
    """The hub of a compiled perceptron, for a test of its own."""
    session = Session(*perceptron(), "n150", name="mlp")
    session.compile()
    return Hub(session)
