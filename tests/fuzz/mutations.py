"""Changes to files: of the values in plain data, of text by its structure, of bytes. All follow from a seed."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml

ODD: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    3,
    31,
    2**31,
    2**63,
    -(2**70),
    10**9,
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    -0.0,
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
    "../../etc/passwd",
    "a\nb",
    "1-1",
    "9-9",
    "999999-1",
    "grayskull",
    "matmul",
    "Float32",
    "Int8",
    "RawUInt32",
    "'; import os #",
    "x" * 3000,
    [],
    {},
    [[]],
    [0],
    [1, 2],
    [1, 2, 3],
    [-1, -1],
    ["x", "x"],
    [10**6, 10**6],
    [2**62, 2**62],
    [0, 2**70],
    {"r": 2},
    {"z": -1},
    {"a": {"b": [1]}},
    {"input_0": 2},
    {"chip": 0},
    {"harvest_mask": -1},
    [{"broadcast": {"r": 2}}],
    [{"hslice": 0}],
    [{"vstack": 3}, "transpose"],
    [{"pad": [1, 1, 0.5]}],
    [["a"]],
    [0, 10**6],
    [32, 32],
    [16, 32],
]
KEYS = ("t", "type", "grid_loc", "attributes", "dram", "input_0_tms", "input_9_pad", "kind", "target", "value", "zz")
PIECES = (
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
    "(",
    ")",
    "&a ",
    "*a",
    "!!",
    "!!int x",
    "!!timestamp 2020-99-99",
    "2020-99-99",
    "0",
    "-1",
    "9" * 30,
    "1e999",
    "\t",
    "#",
    "'",
    '"',
    "\\",
    "\\x",
    "$",
    "\0",
    "\u2028",
    "é",
    "<<: *a",
    "input_0_tms: [broadcast: {r: 2}], ",
    "[" * 200,
    "{a: " * 200,
    "fill",
    "packed",
    "= float32 fill 0.0",
    "nan",
    "|",
)


class NoAliases(yaml.CSafeDumper):
    """Writes shared values out, each time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def paths(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places of a plain structure."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [at, *(p for key in keys for p in paths(node[key], (*at, key)))]


def mutate(data: Any, rng: random.Random) -> None:
    """One small change somewhere: another value, a lost or doubled element, two swapped ones, a renamed key."""
    places = paths(data)[1:]
    if not places:
        return
    *before, key = rng.choice(places)
    parent = data
    for step in before:
        parent = parent[step]
    kind = rng.randrange(7)
    if kind <= 2:
        parent[key] = copy.deepcopy(rng.choice(ODD))
    elif kind == 3:
        del parent[key]
    elif kind == 4 and isinstance(parent, dict):
        parent[rng.choice(KEYS)] = parent.pop(key)
    elif kind == 5 and isinstance(parent[key], int) and not isinstance(parent[key], bool):
        parent[key] = parent[key] * rng.choice((-1, 2, 1000, 2**20, 2**40)) + rng.choice((-1, 0, 1))
    else:
        value = data
        for step in rng.choice(places):
            value = value[step]
        parent[key] = copy.deepcopy(value)


def mutated(data: Any, rng: random.Random, changes: int) -> Any:
    """A copy of plain data after some changes."""
    data = copy.deepcopy(data)
    for _ in range(changes):
        if isinstance(data, dict | list):
            mutate(data, rng)
    return data


def mutated_text(text: str, rng: random.Random, changes: int) -> str:
    """A text with pieces put in, taken away, doubled, and numbers changed."""
    for _ in range(changes):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        kind = rng.randrange(8)
        if kind == 0:
            text = text[:at] + text[min(end, at + rng.randrange(1, 60)) :]
        elif kind == 1:
            text = text[:at] + text[at : min(end, at + 200)] * rng.choice((2, 3, 20)) + text[min(end, at + 200) :]
        elif kind == 2:
            digits = [i for i in range(at, min(len(text), at + 300)) if text[i].isdigit()]
            if digits:
                i = rng.choice(digits)
                text = text[:i] + rng.choice(("0", "-1", "9" * 9, "3500000000", "1e9", "x")) + text[i + 1 :]
        else:
            piece = rng.choice((*PIECES, text[at : min(end, at + 80)]))
            text = text[:at] + piece + text[min(at + rng.randrange(4), len(text)) :]
    return text


def mutated_bytes(data: bytes, rng: random.Random, changes: int) -> bytes:
    """Bytes with bits turned, pieces lost, doubled or overwritten, and numbers of four bytes made large."""
    out = bytearray(data)
    for _ in range(changes):
        if not out:
            break
        at, kind = rng.randrange(len(out)), rng.randrange(6)
        if kind <= 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at] = rng.randrange(256)
        elif kind == 3:
            out[at : at + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"))
        elif kind == 4:
            del out[at : at + rng.randrange(1, 100)]
        else:
            out[at:at] = out[at : at + rng.randrange(1, 400)]
    return bytes(out)
