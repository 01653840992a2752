"""A short attack on every kind of file; the long one is `make fuzz`. Seeds are fixed, so each run does the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.files import parse_yaml
from tests.fuzz.attack import attack
from tests.fuzz.subjects import SUBJECTS

SHORT = {"netlist": 60, "image": 25, "placement": 20, "findings": 20}
"""Files in a short run, of kinds that take longer; of the others `FEW`."""
FEW = 80
TAKEN = ("netlist", "placement", "findings")
"""What is never refused: netlists are read leniently there, and what is damaged in the cache is made anew."""
FOUND = {"session": (431,), "placement": (32, 368)}
"""Seeds of the long run that once found something."""


@pytest.mark.parametrize("name", SUBJECTS)
def test_good_files_are_read(name: str, tmp_path: Path) -> None:
    """Else nothing that is made of them would come far."""
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = SUBJECTS[name].make(random.Random(seed), folder, 0)
        assert SUBJECTS[name].read(path) is not None


@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    matches = [attack(SUBJECTS[name], seed) for seed in (*range(SHORT.get(name, FEW)), *FOUND.get(name, ()))]
    assert [(o.seed, o.fault) for o in matches if o.fault] == []
    assert any(o.refused for o in matches) or name in TAKEN


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates().map(str)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=10,
)


@given(PLAIN, st.sampled_from([n for n in SUBJECTS if n not in ("image", "npz", "csv", "placement", "findings")]))
@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_plain_data_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: object, name: str) -> None:
    import json

    path = tmp_path_factory.mktemp("any") / "file.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        SUBJECTS[name].read(path)
    except TbudaError as error:
        assert str(error)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_text_is_yaml_or_refused(text: str) -> None:
    try:
        parse_yaml(text, "any.yaml")
    except TbudaError as error:
        assert "any.yaml" in str(error)
