"""What the tests of this folder share."""

from pathlib import Path

import pytest

from tests.explore.perceptron import SPACE, session


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exploration of all 16 points."""
    folder = tmp_path_factory.mktemp("explore") / "grid"
    exploration = session().explore(SPACE, out=folder)
    exploration.run()
    exploration.close()
    return folder
