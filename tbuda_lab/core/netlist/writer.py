"""Text of scalars, lists and flow maps in a netlist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.schema import NoTms, Tm

# plain in flow context for libyaml, yaml-cpp and PyYAML alike
_PLAIN = re.compile(r"[A-Za-z0-9_$./][A-Za-z0-9_$./+\-*\\()^~=@]*\Z")


def name(text: str) -> str:
    """A name or enum word: plain where that is safe, else in double quotes."""
    return text if _PLAIN.match(text) and text not in scalars.NULLS else quote(text)


def quote(text: str) -> str:
    """Text in double quotes, with YAML's escapes for what is not printable."""
    return '"' + "".join(c if c.isprintable() and c not in '\\"' else _escape(c) for c in text) + '"'


def _escape(c: str) -> str:
    code = ord(c)
    if c in '\\"':
        return "\\" + c
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def value(item: Any) -> str:
    """Any plain value in flow style. Numbers in decimal; a fraction keeps its dot, as YAML 1.1 wants it."""
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float):
        return number(item)
    if isinstance(item, int):
        return str(item)
    if isinstance(item, Mapping):
        return flow_map((value(k), value(v)) for k, v in item.items())
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(value, item)) + "]"
    return name(str(item))


def literal(item: Any) -> str:
    """Like `value`, but a string that would read as a number, a truth or nothing is quoted."""
    if isinstance(item, str) and not isinstance(scalars.resolve(item), str):
        return quote(item)
    if isinstance(item, Mapping):
        return flow_map((literal(k), literal(v)) for k, v in item.items())
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(literal, item)) + "]"
    return value(item)


def number(item: float) -> str:
    """A float that every YAML reader takes for a float."""
    if item != item:
        return ".nan"
    if item in (float("inf"), -float("inf")):
        return ".inf" if item > 0 else "-.inf"
    text = repr(item)
    mantissa, mark, exponent = text.partition("e")
    if mark:
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+03d}"
    return text


def flow_map(pairs: Iterable[tuple[str, str]]) -> str:
    """A YAML map on one line."""
    return "{" + ", ".join(f"{key}: {text}" for key, text in pairs) + "}"


def flow_list(items: Iterable[str]) -> str:
    """A YAML list on one line."""
    return "[" + ", ".join(items) + "]"


def tms(items: Iterable[Tm]) -> str:
    """A TM list: `[broadcast: {r: 4}, hslice: 2, transpose]`, or the word that stands for none."""
    if isinstance(items, NoTms):
        return name(items.word) if items.word else "null"
    out = []
    for tm in items:
        if tm.name == "transpose":
            out.append("transpose")
        elif tm.name == "broadcast":
            out.append(f"broadcast: {flow_map((dim, str(n)) for dim, n in tm.args)}")
        elif tm.name == "pad":
            out.append(f"pad: {value(tm.args)}")
        else:
            out.append(f"{tm.name}: {value(tm.args[0])}")
    return flow_list(out)
