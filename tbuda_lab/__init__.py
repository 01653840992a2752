"""A compiler for grids of Tensix cores, and the PyBuda API on top of it: `import tbuda_lab as pybuda`.

The names of the PyBuda API live in `tbuda_lab.pybuda`. They are looked up there on first use, so that importing the
package, or a part of its core, loads nothing else.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tbuda_lab._version import __version__ as __version__

API_MODULES = (
    "_C",
    "ci",
    "compile",
    "config",
    "cpudevice",
    "device",
    "module",
    "op",
    "op_repo",
    "optimizers",
    "parameter",
    "pybudaglobal",
    "query",
    "run",
    "schedulers",
    "tensor",
    "torch_compile",
    "torch_schedulers",
    "transformers",
    "ttdevice",
    "tti",
    "tvm_to_python",
    "utils",
    "verify",
)
"""Of the PyBuda API. Scripts import them as `tbuda_lab.op`, too, and get the same module objects."""


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


def _alias_modules() -> None:
    from tbuda_lab.alias import AliasFinder

    there = {finder.foreign for finder in sys.meta_path if isinstance(finder, AliasFinder)}
    sys.meta_path.extend(
        AliasFinder(f"{__name__}.{name}", (f"{__name__}.pybuda.{name}",))
        for name in API_MODULES
        if f"{__name__}.{name}" not in there
    )


_alias_modules()
