"""Every op of the table in docs/popxl.md is there, and what the table says of it is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tbuda_lab.popxl import ops
from tbuda_lab.popxl.kinds import KINDS

TABLE = re.findall(
    r"^\| `ops\.([\w.]+)` \| (.+) \|$", (Path(__file__).parents[2] / "docs" / "popxl.md").read_text(), re.M
)


@pytest.mark.parametrize(("name", "where"), TABLE, ids=[name for name, _ in TABLE])
def test_an_op_of_the_table_is_there(name: str, where: str) -> None:
    found: object = ops
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found) and found.__doc__
    reasons = {kind.host_reason for kind in KINDS.values()} | {"integer encoding"}
    assert where.split(":")[0].split(",")[0].split(" ")[0] in ("grid", "host", "program", "decomposed", "no")
    if where.startswith("host: "):
        assert where.removeprefix("host: ") in reasons


def test_the_table_has_all_of_the_guide() -> None:
    assert len(TABLE) >= 133
