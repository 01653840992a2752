"""Variables of the environment that PopXL programs are run with (chapter 17 of its guide): those that mean something
here work, of others a line says once that they do not."""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from tbuda_lab.dialects.replicas import INSTANCES, TOTAL

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")
CACHE = "TBUDA_CACHE"
WORKS = {
    "POPXL_LOG_LEVEL": "the least level of lines that are written",
    "POPART_LOG_LEVEL_POPXL": "as POPXL_LOG_LEVEL",
    "POPART_LOG_LEVEL": "as POPXL_LOG_LEVEL, where that is not set",
    "POPART_LOG_DEST": "where lines go: stdout, stderr, or a file",
    "POPART_LOG_CONFIG": "a JSON file with the level of each module, of which popxl's counts",
    "POPXL_CACHE_DIR": "the folder of placements, where TBUDA_CACHE says nothing",
    "POPART_CACHE_DIR": "as POPXL_CACHE_DIR",
    TOTAL: "replicas of `Ir(replication='popdist')`, all of them in this process",
    INSTANCES[0]: "the same number: a process is all instances",
    INSTANCES[1]: "1, for the same reason",
}
"""By variable what it says."""

_PREFIXES = ("POPART_", "POPXL_", "POPLAR_", "POPLIBS_", "POPDIST_")
_warned: set[str] = set()


def take_environment() -> None:
    """Before a program is compiled: keep placements where a variable asks for it, and say what has no meaning here."""
    folder = os.environ.get("POPXL_CACHE_DIR") or os.environ.get("POPART_CACHE_DIR")
    if folder:
        os.environ.setdefault(CACHE, folder)
    for name in sorted(os.environ):
        if name.startswith(_PREFIXES) and name not in WORKS and name not in _warned:
            _warned.add(name)
            log("WARN", f"{name} has no meaning on the simulated grid")


def log(level: str, text: str) -> None:
    """A line where the variables let it pass; WARN is the least by default."""
    least = _least()
    if least in LEVELS and LEVELS.index(level) < LEVELS.index(least):
        return
    line, target = f"[popxl] [{level}] {text}", os.environ.get("POPART_LOG_DEST", "stderr")
    if target in ("stdout", "stderr"):
        print(line, file=getattr(sys, target))
        return
    try:
        with open(target, "a", encoding="utf-8") as file:
            print(line, file=file)
    except OSError as error:
        print(f"{line} (POPART_LOG_DEST: {error})", file=sys.stderr)


def _least() -> str:
    """The least level of lines that are written."""
    named = (os.environ.get(name) for name in ("POPXL_LOG_LEVEL", "POPART_LOG_LEVEL_POPXL", "POPART_LOG_LEVEL"))
    return next(filter(None, named), None) or _configured() or "WARN"


def _configured() -> str:
    """The level that the file of POPART_LOG_CONFIG gives; "" for none, and for a file that cannot be read."""
    path = os.environ.get("POPART_LOG_CONFIG")
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            levels: Any = json.loads(file.read(1 << 16))
    except (OSError, ValueError):
        return ""
    level = levels.get("popxl", levels.get("all", "")) if isinstance(levels, dict) else ""
    return level if level in LEVELS else ""


# -- names of NumPy 1, which PopXL programs were written with ----------------------------------------------------------
_OLD_NAMES = {
    **{name: getattr(builtins, name) for name in ("str", "int", "float", "complex", "object")},
    "unicode": str,
    "float_": np.float64,
    "complex_": np.complex128,
    "string_": np.bytes_,
    "unicode_": np.str_,
    "product": np.prod,
    "cumproduct": np.cumprod,
    "alltrue": np.all,
    "sometrue": np.any,
    "round_": np.round,
    **dict.fromkeys(("Inf", "Infinity", "infty", "PINF"), np.inf),
    "NINF": -np.inf,
    "NaN": np.nan,
}
_OWN = (__name__.rpartition(".")[0], "popxl")


def answer_old_numpy_names(numpy: ModuleType = np) -> Callable[[], None]:
    """Let files that import popxl, and no others, find the names that NumPy 2 has no more; returns what ends it."""
    own = numpy.__dict__.get("__getattr__")

    def answer(name: str) -> Any:
        if name in _OLD_NAMES and _imports_popxl(sys._getframe(1).f_globals):
            if name not in _warned:
                _warned.add(name)
                log("WARN", f"np.{name} is a name of NumPy 1, which is answered in files that import popxl alone")
            return _OLD_NAMES[name]
        if own is None:
            raise AttributeError(f"module {numpy.__name__!r} has no attribute {name!r}")
        return own(name)

    def end() -> None:
        if numpy.__dict__.get("__getattr__") is answer:
            numpy.__dict__.pop("__getattr__")
            numpy.__dict__.update({} if own is None else {"__getattr__": own})

    numpy.__dict__["__getattr__"] = answer
    return end


def _imports_popxl(names: Mapping[str, Any]) -> bool:
    """Whether a file's globals have something of popxl."""
    homes = (
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in list(names.values())
    )
    return any(isinstance(home, str) and f"{home}.".startswith(tuple(f"{own}." for own in _OWN)) for home in homes)
