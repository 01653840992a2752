"""Compile options as words of a command line: `--set name=value`."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from typing import Any

from tbuda_lab.core.errors import InputError

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_settings(words: Iterable[str]) -> dict[str, Any]:
    """Options by name. Each word is NAME=VALUE; later ones win. Raises `InputError` for a name or value that no
    option has."""
    from tbuda_lab.core.options import CompileOptions

    fields = {field.name: field for field in dataclasses.fields(CompileOptions)}
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"--set {word}: write NAME=VALUE, e.g. microbatch=64")
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=3, cutoff=0.4) or sorted(fields)
            raise InputError(f"--set {word}: there is no option {name!r}; near it: {', '.join(near)}")
        settings[name] = _value(word, str(fields[name].type), text.strip())
    return settings


def _value(word: str, kind: str, text: str) -> Any:
    """The value of a field whose type is written as `kind`."""
    from tbuda_lab.core.formats import MathFidelity, parse_format

    kinds = [part.strip() for part in kind.split("|")]
    if "None" in kinds and text.lower() in ("none", ""):
        return None
    try:
        if kinds[0].startswith("tuple"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if kinds[0] == "bool":
            return _TRUTH[text.lower()]
        if kinds[0] == "DataFormat":
            return parse_format(text)
        if kinds[0] == "MathFidelity":
            return MathFidelity[text]
        return {"int": int, "float": float}.get(kinds[0], str)(text)
    except (KeyError, ValueError):
        raise InputError(f"--set {word}: {text!r} is no {' or '.join(kinds)}") from None
