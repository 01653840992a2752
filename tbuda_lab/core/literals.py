"""Values as Python source: literals that parse back to what they were, and comments that stay on one line.

What is written into a script comes from session files, models and their names, which anybody may have made. Therefore a
value is written by its type, never by `str` or a format string, and what has no literal is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity

_MAX_DEPTH = 50
_MAX_BITS = 12_000  # Python reads no decimal number of more than 4,300 digits; hexadecimal ones of any length


def python_literal(value: Any) -> str:
    """The source text of a literal that equals `value` when Python reads it.

    Plain values and tuples, lists, sets, and mappings of them; numbers of NumPy become Python's. Infinity is written as
    `1e999`, which reads as such; a data format or fidelity by its name, `pybuda.DataFormat.Float16_b`. Raises
    `InputError` for anything else, NaN among it: it has no literal.
    """
    return _literal(value, 0)


def _literal(value: Any, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise InputError(f"a value of more than {_MAX_DEPTH} levels cannot be written as Python")
    if isinstance(value, (DataFormat, MathFidelity)):
        return f"pybuda.{type(value).__name__}.{value.name}"
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, bytes):
        return bytes.__repr__(value)
    if isinstance(value, int):
        return hex(value) if value.bit_length() > _MAX_BITS else int.__repr__(value)
    if isinstance(value, float) and not math.isnan(value):
        return float.__repr__(value).replace("inf", "1e999")
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_literal(k, depth + 1)}: {_literal(v, depth + 1)}" for k, v in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, (tuple, list, set, frozenset)):
        return _sequence(value, depth)
    raise InputError(f"a value of type {type(value).__name__} cannot be written as Python")


def _sequence(value: tuple[Any, ...] | list[Any] | set[Any] | frozenset[Any], depth: int) -> str:
    items = [_literal(item, depth + 1) for item in value]
    if isinstance(value, list):
        return f"[{', '.join(items)}]"
    if isinstance(value, tuple):
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    items.sort()  # the same text in every run
    text = f"{{{', '.join(items)}}}" if items else "set()"
    return f"frozenset({text})" if isinstance(value, frozenset) else text


def python_comment(text: str) -> str:
    """`# text` on one line: whatever ends a line or cannot be printed stands as an escape."""
    return "# " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown_value(value: Any) -> str:
    """A value for a comment or message: its literal, or the name of its type where it has none."""
    try:
        return python_literal(value)
    except InputError:
        return f"<{type(value).__name__}>"
