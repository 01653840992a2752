"""Packages of ours under the names that other people's scripts import: `import pybuda` runs here unchanged.

`install("pybuda")` in a program or a notebook; `tbuda script FILE` for a file as it is; `pytest -p tbuda_lab.alias
--alias pybuda` for a test suite. Both names lead to the same module objects: nothing is loaded twice, and a class is
the same class by either name. Submodules follow: `import pybuda.op.nn`, `from pybuda._C.balancer import OpOverride`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from tbuda_lab.core.errors import Diagnostic, InputError, UnsupportedOp

PACKAGES: dict[str, tuple[str, ...]] = {
    "pybuda": ("tbuda_lab.pybuda",),
    "sambaflow": ("tbuda_lab", "tbuda_lab.samba.sambaflow"),
    "popxl": ("tbuda_lab.popxl",),
}
"""Foreign name -> our packages that stand for it. The first is the package itself; a submodule comes from the first of
them that has it."""


WITHOUT_FORM = {
    ("popxl", "cppimport"): (
        "a custom op in C++",
        "write it in Python: a class of popxl.CustomOp with evaluate, gradient and lower (docs/popxl.md)",
    )
}
"""By foreign name and a module that its programs import: what that would make, which nothing here can, and what would
work."""


WITH = {"popxl": ("tbuda_lab.popxl.environment", "answer_old_numpy_names")}
"""By foreign name what else its programs need: a function that gives it, and returns what takes it back."""
_ENDS: dict[str, Callable[[], None]] = {}


class ImportRefused(UnsupportedOp, ImportError):
    """A module whose use has no form here."""


class AliasFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers `import <foreign>[.sub]` with the module of ours; every other import passes by."""

    def __init__(self, foreign: str, packages: Sequence[str]) -> None:
        self.foreign = foreign
        self.packages = tuple(packages)
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def home_of(self, name: str) -> str | None:
        """The name by which our module of a foreign name is imported; None if there is none."""
        rest = name.removeprefix(self.foreign)
        for package in self.packages:
            try:
                if importlib.util.find_spec(package + rest) is not None:
                    return package + rest
            except ModuleNotFoundError:  # a parent of it is missing
                continue
        return None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.foreign and not fullname.startswith(self.foreign + "."):
            self._refuse(fullname)
            return None
        if self.home_of(fullname) is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def _refuse(self, fullname: str) -> None:
        """Raises `ImportRefused` for a module of `WITHOUT_FORM` that a program of ours imports."""
        known = WITHOUT_FORM.get((self.foreign, fullname))
        if known is not None and self.foreign in sys.modules:
            what, instead = known
            raise ImportRefused(
                f"{fullname} cannot be imported: {what} has no form here; {instead}",
                [Diagnostic("error", fullname, "import", f"{what} has no form here", instead)],
            )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        home = self.home_of(spec.name)
        assert home is not None
        module = importlib.import_module(home)
        if hasattr(module, "__path__") and type(module) is ModuleType:
            module.__class__ = _Package
        self._specs[spec.name] = module.__spec__  # the import system writes the foreign one over it
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has been executed under its own name; only its spec is given back."""
        spec = module.__spec__
        if spec is not None and spec.name in self._specs:
            module.__spec__ = self._specs.pop(spec.name)


class _Package(ModuleType):
    """A package that keeps a function of the name of one of its modules: `popxl.ops.call` stays what it is when
    `popxl.ops.call` is imported under the foreign name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and callable(self.__dict__.get(name))):
            super().__setattr__(name, value)


def install(name: str, packages: Sequence[str] | str | None = None) -> ModuleType:
    """Register our package and all its submodules under `name`, for the rest of the process; returns the package.

    packages: dotted names of ours, instead of those that PACKAGES knows for `name`. Calling it again changes nothing.
    Raises `InputError` for a name that is not known, and where another package has been imported by that name already.
    """
    homes = (packages,) if isinstance(packages, str) else tuple(packages or PACKAGES.get(name, ()))
    if not homes:
        raise InputError(f"no package here stands for {name!r}; known: {', '.join(PACKAGES)}")
    finder = next((f for f in sys.meta_path if isinstance(f, AliasFinder) and f.foreign == name), None)
    if finder is None or finder.packages != homes:
        if name in sys.modules:
            raise InputError(
                f"{name!r} has been imported already, from {_origin(sys.modules[name])}: "
                "install the alias first, in a new process or kernel"
            )
        finder = AliasFinder(name, homes)
        if finder.home_of(name) is None:
            raise InputError(f"{homes[0]} is not there to stand for {name!r}")
        sys.meta_path.insert(0, finder)
    package = importlib.import_module(name)
    if name in WITH and name not in _ENDS:
        home, function = WITH[name]
        _ENDS[name] = getattr(importlib.import_module(home), function)()
    return package


def available() -> tuple[str, ...]:
    """The foreign names of PACKAGES whose package is part of this installation."""
    return tuple(name for name, homes in PACKAGES.items() if AliasFinder(name, homes).home_of(name) is not None)


def uninstall(name: str) -> None:
    """Forget the alias: later imports of `name` find what they would have found without it."""
    _ENDS.pop(name, lambda: None)()
    sys.meta_path[:] = [f for f in sys.meta_path if not (isinstance(f, AliasFinder) and f.foreign == name)]
    for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
        del sys.modules[module]


def _origin(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or getattr(module, "__path__", None) or "memory")


# -- pytest plugin: pytest -p tbuda_lab.alias --alias pybuda -----------------------------------------------------------
def pytest_addoption(parser: Any) -> None:
    """`--alias NAME`, any number of times; without it, all packages that there are."""
    parser.addoption(
        "--alias",
        action="append",
        default=[],
        metavar="NAME",
        help="import our package by this foreign name (pybuda, sambaflow)",
    )


def pytest_load_initial_conftests(early_config: Any) -> None:
    """Before any conftest or test file is imported."""
    for name in early_config.known_args_namespace.alias or available():
        install(name)
