"""Valid netlists with keys lost, doubled, renamed, and values of other kinds and sizes: exit code 0 or 1, the element
named, no traceback, nothing half-written."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tbuda_lab.core import netlist
from tests.fuzz.mutations import ODD, NoAliases, mutate, paths
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import command

BASES = [
    netlist.dumps(make())
    for make in (
        b.unary,
        b.binary,
        b.matmul_bias,
        b.identity,
        b.reduce,
        b.gradient,
        b.fused_chain,
        b.splice,
        b.two_chips,
        b.depthwise,
        b.untilized,
    )
]
HARD: list[Any] = [*ODD, 1e300, 2**40, "😀", "a" * 5000, [0] * 2000, {"type": "nop"}, [1000, 1], 1_000_000, "\u0000"]


def disturb(data: Any, chance: random.Random) -> None:
    """A change of `mutate`, or a hard value, or an item of a list once more."""
    places = paths(data)[1:]
    kind = chance.randrange(3)
    if kind == 0 or not places:
        mutate(data, chance)
        return
    where = chance.choice(places)
    parent = data
    for key in where[:-1]:
        parent = parent[key]
    if kind == 1 or not isinstance(parent, list):
        parent[where[-1]] = copy.deepcopy(chance.choice(HARD))
    else:
        parent.insert(chance.randrange(len(parent) + 1), copy.deepcopy(chance.choice(parent)))


@pytest.mark.parametrize("seed", range(80))
def test_mutated_netlists(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(seed)
    text = chance.choice(BASES)
    data = yaml.load(text, yaml.CSafeLoader)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if isinstance(data, (dict, list)) and len(paths(data)) > 1:
            disturb(data, chance)
    file = tmp_path / "n.yaml"
    file.write_text(yaml.dump(data, Dumper=NoAliases, sort_keys=False, allow_unicode=True), encoding="utf-8")
    feeds = {}
    for q in netlist.loads(text).queues.values():
        if q.input == "HOST":
            z, r, c = q.blocking.tiles(q.grid_size)
            feeds[q.name] = np.zeros((1, z, 32 * r, 32 * c), np.int32 if q.df.is_raw else np.float32)
    np.savez(tmp_path / "in.npz", **feeds)
    for words in (
        ["check"],
        ["check", "--profile", "strict"],
        ["show"],
        ["roundtrip", "--out", tmp_path / "again.yaml"],
        ["run", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"],
    ):
        code = command("netlist", words[0], file, *words[1:])
        message = capfd.readouterr().err
        assert code in (0, 1) and "Traceback" not in message
        if code == 1:
            lines = [line for line in message.splitlines() if line.strip()]
            assert lines
            if words[0] == "check":
                assert all(line.startswith(f"{file}:") and ": error: " in line for line in lines)
    assert {p.name for p in tmp_path.iterdir()} <= {"n.yaml", "in.npz", "again.yaml", "out.npz"}
