"""Where an op of an exported program came from: module path, class, aten op, line of the user's code."""

from __future__ import annotations

import functools
import os
import re
import site
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from tbuda_lab.core.graph import Origin

_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def short_path(path: str) -> str:
    """A path that reads the same on every machine where it can: inside a package or under the working directory.

    Code of a notebook's cell lies in a temporary file named after the process; it is called "In[3]", as the cell is.
    """
    return _cell(path) or _inside(path)


def _cell(path: str) -> str:
    """ "In[3]" for the code of a cell of the running IPython; empty for any other file, and without IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(path)
    return str(named[1]) if named else ""


@functools.cache
def _inside(path: str) -> str:
    roots = [os.getcwd(), *sys.path, *site.getsitepackages()]
    inside = [os.path.relpath(path, root) for root in roots if root and path.startswith(os.path.abspath(root) + os.sep)]
    return min(inside, key=len) if inside else path


def foreign(path: str) -> bool:
    """True for frames that are neither torch's, this importer's nor Python's own: the user's code or a model library's.
    Installed packages may lie below Python's own library."""
    if path.startswith((_TORCH, PACKAGE, "<")) or path == "":
        return False
    return not path.startswith(_PYTHON) or f"{os.sep}site-packages{os.sep}" in path


def user_line(stack_trace: str | None) -> str:
    """The innermost frame outside torch, as "file.py:123"; torch's own layer where the model has no other code."""
    return user_line_of(_FRAME.findall(stack_trace or ""))


def user_line_of(every: Sequence[tuple[str, object]]) -> str:
    """`user_line` of (path, line) of each frame, the outermost first."""
    frames = [(path, line) for path, line in every if foreign(path)] or every
    return f"{short_path(frames[-1][0])}:{frames[-1][1]}" if frames else ""


def calling_line() -> str:
    """ "file.py:123" of the innermost frame outside torch and this package that is running; "" where there is none."""
    frames = [f for f in traceback.extract_stack() if foreign(f.filename)]
    return f"{short_path(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def function_line(function: object) -> str:
    """ "file.py:123" where a function begins; "" for one that Python does not know the code of."""
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def raised_at(error: BaseException, trace: TracebackType | None = None) -> tuple[str, str]:
    """("file.py:123", source text) of the innermost frame of an exception that lies outside torch and this package."""
    frames = [f for f in traceback.extract_tb(trace or error.__traceback__) if foreign(f.filename)]
    if not frames:
        return "", ""
    return f"{short_path(frames[-1].filename)}:{frames[-1].lineno}", frames[-1].line or ""


def origin_of(meta: dict[str, Any], target: object) -> Origin:
    """Origin of an fx node from its metadata."""
    stack = meta.get("nn_module_stack") or {}
    path, cls = "", ""
    for entry in stack.values():
        path, cls = str(entry[0]), str(entry[1])
    cls = cls.rsplit(".", 1)[-1].rstrip("'>")
    name = str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
    return Origin(_plain(path), cls, name, user_line(meta.get("stack_trace")))


def _plain(path: str) -> str:
    """A module path without the decoration that export gives to repeated calls ("layer@1") and to its root."""
    return re.sub(r"@\d+", "", re.sub(r"^L(__self__|\['\w+'\])", "", path).lstrip("."))
