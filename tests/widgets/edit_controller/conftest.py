"""A perceptron, compiled anew for every test."""

from __future__ import annotations

from typing import Any

import pytest

from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import Hub
from tests.session.models import perceptron


@pytest.fixture(scope="module")
def graph() -> tuple[Any, Any]:
    model, inputs = perceptron()
    return Session(model, inputs, "e300").trace(), inputs


@pytest.fixture
def hub(graph: tuple[Any, Any]) -> Hub:
    session = Session(*graph, "e300", name="mlp")
    session.compile()
    return Hub(session)
