"""Sessions that are compiled once for all tests that only ask."""

from __future__ import annotations

import pytest

from tbuda_lab.core.graph import Graph
from tbuda_lab.core.session import Session
from tests.session.models import encoder, perceptron


def _traced(make) -> tuple[Graph, tuple]:
    model, inputs = make()
    return Session(model, inputs, "e300").trace(), inputs


@pytest.fixture(scope="session")
def traced():
    """Graphs by name: a session opened on a graph need not trace again."""
    return {"mlp": _traced(perceptron), "encoder": _traced(encoder)}


@pytest.fixture
def mlp(traced) -> Session:
    graph, inputs = traced["mlp"]
    session = Session(graph, inputs, "e300", name="mlp")
    session.compile()
    return session


@pytest.fixture
def bert(traced) -> Session:
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300", name="encoder")
    session.compile()
    return session


@pytest.fixture(scope="session")
def shared(traced) -> Session:
    """An encoder for questions only; a test that edits must undo."""
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300", name="encoder")
    session.compile()
    return session
