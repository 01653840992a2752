"""Small YAML files, read without trust: plain data only, limited in size, never code."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from tbuda_lab.core.errors import InputError, UnknownDevice

_LIMIT = 4 << 20
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged(name: str) -> dict[str, Any]:
    """A YAML map of this package's data folder."""
    text = resources.files("tbuda_lab.core.device").joinpath("data", name).read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, Loader=_Loader)
    return found


def read_map(path: Path, what: str) -> dict[str, Any]:
    """The YAML map in a user's file; raises `UnknownDevice` if there is none and `InputError` if it isn't a map."""
    try:
        if path.stat().st_size > _LIMIT:
            raise InputError(f"{path}: a {what} is a few kilobytes, this file has more than {_LIMIT >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnknownDevice(f"{path}: cannot read the {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a {what}: the file is not text") from error
    try:
        found = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not a {what}: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path}: not a {what}: expected a map at the top")
    return found
