"""Scalars as the backend's YAML library reads them: by the type that the field wants, not by how they look."""

from __future__ import annotations

import math
import re

INT = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)\Z")
FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\Z")
NULLS = frozenset(("", "~", "null", "Null", "NULL"))
BOOLS = {
    spelled: value
    for words, value in ((("y", "yes", "true", "on"), True), (("n", "no", "false", "off"), False))
    for word in words
    for spelled in (word, word.upper(), word.capitalize())
}
TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_SPECIAL_FLOATS = {
    sign + spelled: value
    for spelled, number in ((".inf", float("inf")), (".Inf", float("inf")), (".INF", float("inf")))
    for sign, value in (("", number), ("+", number), ("-", -number))
}
NAN = float("nan")  # one object, so that two loads of a file compare equal
_SPECIAL_FLOATS.update({".nan": NAN, ".NaN": NAN, ".NAN": NAN})


def parse_int(text: str, bits: int = 32) -> int:
    """A decimal, 0x or octal integer that fits `bits` bits, signed or not. Raises ValueError."""
    match = INT.match(text)
    if not match or len(text) > 24:
        raise ValueError(f"{clip(text)} is not an integer")
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    value = int(digits, base) * (-1 if match[1] == "-" else 1)
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise ValueError(f"{clip(text)} does not fit {bits} bits")
    return value


def parse_float(text: str) -> int | float:
    """A number; whole numbers stay int so that they are written back as they were. Raises ValueError."""
    if INT.match(text):
        return parse_int(text, 64)
    if text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[text]
    if not FLOAT.match(text):
        raise ValueError(f"{clip(text)} is not a number")
    return float(text)


def parse_bool(text: str) -> bool:
    """A boolean in any spelling of YAML 1.1. Raises ValueError."""
    if text not in BOOLS:
        raise ValueError(f"{clip(text)} is not true or false")
    return BOOLS[text]


def parse_value(text: str, bits: int = 64) -> int | float | bool | str:
    """A scalar of a program: an immediate (whole number, fraction, true, false) or else the name of a variable.

    Raises ValueError for a whole number that does not fit `bits` bits."""
    if text in TRUTHS:
        return TRUTHS[text]
    if INT.match(text) and len(text) <= 24:
        return parse_int(text, bits)
    if FLOAT.match(text) and len(text) <= 64 and math.isfinite(float(text)):
        return float(text)
    return text


def resolve(text: str) -> int | float | bool | str | None:
    """A plain scalar of a section that only passes through, by YAML's core rules."""
    if text in NULLS:
        return None
    if text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[text]
    return parse_value(text, 128)  # as many bits as 24 characters can have


def clip(text: str) -> str:
    """A short quotation of what was read, for messages."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
