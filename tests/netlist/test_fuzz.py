"""No input makes reader, checker, writer or the text view raise anything but a typed error."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.netlist.check import ARCHS, RULES
from tests.netlist import builders as b

BASES = (b.unary, b.binary, b.matmul_bias, b.identity, b.reduce, b.gradient, b.fused_chain, b.splice, b.two_chips)
TEXTS = [b.text(make()) for make in BASES]
ODD: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    2**31,
    2**63,
    -(2**70),
    1.5,
    float("nan"),
    float("inf"),
    "",
    "~",
    "$x",
    "HOST",
    "op0",
    "x",
    "g",
    "transpose",
    "None",
    "0x10",
    "1e400",
    "é\u2028",
    [],
    {},
    [[]],
    [0],
    [1, 2],
    [1, 2, 3],
    [-1, -1],
    ["x", "x"],
    {"r": 2},
    {"z": -1},
    [{"broadcast": {"r": 2}}],
    [{"hslice": 0}],
    [{"vstack": 3}, "transpose"],
    [{"pad": [1, 1, 0.5]}],
    {"input_0": 2},
    [["a"]],
    {"a": {"b": [1]}},
    "Float32",
    "Int8",
    "RawUInt32",
    [0, 10**6],
    [32, 32],
    [16, 32],
    10**9,
    [10**6, 10**6],
]
budget = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def survives(text: str) -> None:
    """Reads, checks for every arch, shows, and rewrites what can be read."""
    try:
        n = netlist.loads(text, lenient=True)
    except NetlistError:
        return
    for arch in (None, *ARCHS, "toaster"):
        for finding in netlist.check(n, arch, "strict"):
            assert finding.rule in RULES or finding.rule[0] in "YQDGOFP", finding
            assert "\n" not in finding.text("file.yaml") and finding.message and finding.fix, finding
    netlist.show(n)
    if not n.problems:
        again = netlist.loads(netlist.dumps(n))
        assert again == n
        assert netlist.dumps(again) == netlist.dumps(n)


def paths(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a plain structure."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [at, *(p for key in keys for p in paths(node[key], (*at, key)))]


def mutate(data: Any, rng: random.Random) -> None:
    """One small change somewhere: another value, a lost or doubled element, two swapped ones, a renamed key."""
    where = rng.choice(paths(data)[1:])
    parent = data
    for key in where[:-1]:
        parent = parent[key]
    key = where[-1]
    kind = rng.randrange(6)
    if kind <= 2:
        parent[key] = copy.deepcopy(rng.choice(ODD))
    elif kind == 3:
        del parent[key]
    elif kind == 4 and isinstance(parent, dict):
        parent[str(rng.choice(("t", "type", "grid_loc", "attributes", "dram", "input_0_tms", "input_9_pad", "zz")))] = (
            parent.pop(key)
        )
    else:
        other = rng.choice(paths(data)[1:])
        value = data
        for step in other:
            value = value[step]
        parent[key] = copy.deepcopy(value)


class NoAliases(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@budget
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, 6))
def test_mutated_structure(text: str, seed: int, changes: int) -> None:
    rng = random.Random(seed)
    data = yaml.load(text, yaml.CSafeLoader)
    for _ in range(changes):
        if isinstance(data, (dict, list)) and len(paths(data)) > 1:
            mutate(data, rng)
    survives(yaml.dump(data, Dumper=NoAliases, sort_keys=False))


@budget
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, 8))
def test_mutated_text(text: str, seed: int, changes: int) -> None:
    rng = random.Random(seed)
    for _ in range(changes):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        piece = rng.choice(
            [
                "",
                "-",
                ":",
                " ",
                "\n",
                "{",
                "}",
                "[",
                "]",
                ",",
                "&a ",
                "*a",
                "!!",
                "0",
                "-1",
                "\t",
                "#",
                "'",
                '"',
                "$",
                "\0",
                "\ud800",
                "é",
                "input_0_tms: [broadcast: {r: 2}], ",
                text[at : min(end, at + 80)],
            ]
        )
        text = text[:at] + piece + text[min(at + rng.randrange(4), len(text)) :]
    survives(text)


@budget
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    survives(text)


@pytest.mark.parametrize(
    "text",
    [
        "&a [*a]",
        "devices: &a {arch: *a}",
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b ["
        + ",".join(["*a"] * 9)
        + "]\n"
        + "\n".join(f"{c}: &{c} [{','.join(['*' + p] * 9)}]" for p, c in zip("bcdefgh", "cdefghi", strict=True)),
        "[" * 5000,
        "{" * 3000 + "}" * 3000,
        "queues: " + "[" * 900 + "]" * 900,
        "? [a, b]\n: 1",
        "queues: {? {a: 1} : {type: queue}}",
        "--- \n--- \n",
        "\ufeffdevices: {arch: grayskull}",
        "devices: !!python/object/apply:os.system [ls]",
        "devices: {arch: grayskull}\nqueues: {<<: {a: 1}}",
        "x: !!timestamp 2020-99-99",
        "test-config: {big: -1180591620717411303424, long: 123456789012345678901234567890}",
        "x: 2020-99-99\ny: .nan\nz: 0o9\nw: 1_000\nv: 12:30:45",
    ],
)
def test_hostile_text(text: str) -> None:
    survives(text)


def test_the_name_of_a_missing_file_is_told(tmp_path: Any) -> None:
    for path in (tmp_path / "no.yaml", tmp_path, "a\0b"):
        with pytest.raises(NetlistError):
            netlist.load(path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"devices: \xff\xfe")
    with pytest.raises(NetlistError, match="byte 9"):
        netlist.load(binary)
