"""No input makes reader, checker, writer or the text view raise anything but a typed error."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.netlist.check import ARCHS, RULES
from tests.fuzz.mutations import NoAliases, mutated, mutated_text
from tests.netlist import builders as b

BASES = (b.unary, b.binary, b.matmul_bias, b.identity, b.reduce, b.gradient, b.fused_chain, b.splice, b.two_chips)
TEXTS = [b.text(make()) for make in BASES]
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


@budget
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, 6))
def test_mutated_structure(text: str, seed: int, changes: int) -> None:
    data = mutated(yaml.load(text, yaml.CSafeLoader), random.Random(seed), changes)
    survives(yaml.dump(data, Dumper=NoAliases, sort_keys=False))


@budget
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, 8))
def test_mutated_text(text: str, seed: int, changes: int) -> None:
    survives(mutated_text(text, random.Random(seed), changes))


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
