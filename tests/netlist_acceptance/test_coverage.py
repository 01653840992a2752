"""Every feature that the reader knows has a test that runs it."""

from __future__ import annotations

import importlib
import inspect
import typing

import pytest

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist import op_spec, schema
from tests.netlist_acceptance import coverage

KNOWN: dict[str, set[str]] = {
    "OP_TYPES": set(op_spec.OP_TYPES) - {"drainer"},
    "ATTRIBUTES": set(op_spec.ATTRIBUTES),
    "TMS": set(op_spec.TMS),
    "FORMATS": {f.name for f in DataFormat if f is not DataFormat.Invalid},
    "SETTINGS": set(op_spec.SETTING_FIELDS),
    "INSTRUCTIONS": {kind.__name__ for kind in typing.get_args(schema.Instruction)},
    "QUEUE_FIELDS": set(op_spec.QUEUE_FIELDS),
    "OP_FIELDS": set(op_spec.OP_FIELDS),
}


@pytest.mark.parametrize("table", KNOWN)
def test_every_feature_has_a_test(table: str) -> None:
    listed: dict[str, coverage.Test] = getattr(coverage, table)
    assert set(listed) == KNOWN[table]
    for feature, (file, name) in listed.items():
        module = importlib.import_module(f"tests.netlist_acceptance.{file}")
        test = getattr(module, name, None)
        assert inspect.isfunction(test), f"{feature}: there is no {file}.{name}"


MENTIONED = [
    (table, feature)
    for table in ("ATTRIBUTES", "TMS", "SETTINGS", "INSTRUCTIONS")
    for feature in sorted(getattr(coverage, table))
]


@pytest.mark.parametrize("table,feature", MENTIONED)
def test_the_test_speaks_of_its_feature(table: str, feature: str) -> None:
    """The file of the test writes the feature down; input0 to input7 count as one."""
    file, name = getattr(coverage, table)[feature]
    source = inspect.getsource(importlib.import_module(f"tests.netlist_acceptance.{file}"))
    word = "input" if feature.startswith("input") else feature
    assert word in source, f"{file}.{name} never mentions {feature}"
