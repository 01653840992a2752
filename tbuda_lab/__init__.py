"""A compiler for grids of Tensix cores, and the PyBuda API on top of it: `import tbuda_lab as pybuda`.

The names of the PyBuda API live in `tbuda_lab.pybuda`. They are looked up there on first use, so that importing the
package, or a part of its core, loads nothing else.
"""

from __future__ import annotations

import importlib
from typing import Any

from tbuda_lab._version import __version__ as __version__


def __getattr__(name: str) -> Any:
    if name == "pybuda" or not name.startswith("__"):
        api = importlib.import_module("tbuda_lab.pybuda")
        if name == "pybuda":
            return api
        try:
            return getattr(api, name)
        except AttributeError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("tbuda_lab.pybuda").__all__})
