"""`model.py:make_model` or `model.onnx`: find the user's file, load it, call the function, check what it returns.

Compile options as words of a command line: `--set name=value`. Device images, and tensors of a file.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.files import read_npz

if TYPE_CHECKING:
    import torch

    from tbuda_lab.core.options import CompileOptions

EXPECTED = "expected FILE.py:FUNCTION, where FUNCTION returns (module, tuple of sample inputs), or FILE.onnx"


@dataclasses.dataclass(frozen=True)
class Target:
    """A user's model: where it was found, the module and its sample inputs."""

    file: Path
    function: str
    module: Any
    inputs: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.file.stem


def is_model_file(file: str | Path) -> bool:
    """Whether it has the name of a model in a file of its own, such as ONNX's."""
    from tbuda_lab.core.frontend.pybuda.foreign import SUFFIXES  # needs torch, which --help does without

    return Path(file).suffix.lower() in SUFFIXES


def is_image(target: str) -> bool:
    """Whether it names a device image."""
    return target.lower().endswith(".tti")


def split_target(text: str) -> tuple[Path, str]:
    """("model.py", "make_model") of "model.py:make_model", ("model.onnx", "") of a model file.

    Raises `ModelError` when the file is not there.
    """
    if is_model_file(text):
        if not Path(text).is_file():
            raise ModelError(f"{text} does not exist or is not a file: {EXPECTED}")
        return Path(text), ""
    path, separator, function = text.rpartition(":")
    if not separator or not path or not function.isidentifier():
        raise ModelError(f"{text!r} is not a model: {EXPECTED}")
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"{file} does not exist or is not a file: {EXPECTED}")
    return file, function


def load_target(text: str, *, seed: int | None = None) -> Target:
    """Import the file (its folder is importable, as with `python FILE.py`) and call the function.

    seed: passed on when the function has a parameter of that name. Raises `ModelError`, which names the user's line
    when the user's code raised.
    """
    file, function = split_target(text)
    if not function:
        from tbuda_lab.core.frontend import open_model

        module = open_model(file, file.stem)
        return Target(file, "", module, module.sample_inputs())
    folder = file.resolve().parent
    # The command line's own folder has a `profile`, which would stand before Python's, and torch's tracer reads that.
    if str(folder) not in sys.path and folder != Path(__file__).resolve().parent:
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"tbuda_user_{file.stem}", file.resolve())
    if spec is None or spec.loader is None:
        raise ModelError(f"{file} is not a Python file: {EXPECTED}")
    user_module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = user_module  # dataclasses and pickling of user classes look the module up
    loader = spec.loader
    _call(file, lambda: loader.exec_module(user_module), "importing it")
    make = getattr(user_module, function, None)
    if not callable(make):
        functions = [n for n, v in vars(user_module).items() if inspect.isfunction(v) and v.__module__ == spec.name]
        raise ModelError(f"{file} has no function {function!r}; it has {', '.join(functions) or 'none'}; {EXPECTED}")
    keywords = {"seed": seed} if seed is not None and "seed" in inspect.signature(make).parameters else {}
    result = _call(file, lambda: make(**keywords), f"{function}()")
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], (tuple, list))):
        raise ModelError(f"{file}:{function}() returned {type(result).__name__}: {EXPECTED}")
    return Target(file, function, result[0], tuple(result[1]))


def _call(file: Path, action: Callable[[], Any], what: str) -> Any:
    try:
        return action()
    except Exception as error:
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}"
        else:
            frames = traceback.extract_tb(error.__traceback__)
            mine = [f for f in frames if Path(f.filename).resolve() == file.resolve()]
            place = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else str(file)
        raise ModelError(f"{place}: {what} raised {type(error).__name__}: {error}") from error


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


def changed_settings(before: CompileOptions, after: CompileOptions) -> tuple[str, ...]:
    """The words, NAME=VALUE, that make options of others, as far as words can say them."""
    from tbuda_lab.core.options import options_changed

    return tuple(f"{name}={_text(value)}" for name, value in options_changed(before, after).items())


def _text(value: Any) -> str:
    """A value as `_value` reads it."""
    if isinstance(value, tuple):
        return ",".join(part if isinstance(part, str) else f"{part[0]}:{part[1]}" for part in value)
    return str(value).lower() if isinstance(value, bool) else str(getattr(value, "name", value))


def _value(word: str, kind: str, text: str) -> Any:
    """The value of a field whose type is written as `kind`."""
    from tbuda_lab.core.formats import MathFidelity, parse_format

    kinds = [part.strip() for part in kind.split("|")]
    if "None" in kinds and text.lower() in ("none", ""):
        return None
    try:
        if kinds[0].startswith("tuple[tuple[str, int]"):
            pairs = (part.rpartition(":") for part in text.split(",") if part.strip())
            return tuple(sorted((name.strip(), int(parts)) for name, _, parts in pairs))
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
        expected = "NAME:NUMBER,..." if kinds[0].startswith("tuple[tuple") else " or ".join(kinds)
        raise InputError(f"--set {word}: {text!r} is not {expected}") from None


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The arrays of an .npz as tensors. Raises `InputError`."""
    import torch

    result = {}
    for name, array in read_npz(path).items():
        try:
            result[name] = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: {name!r} holds {array.dtype}, a type that torch does not have") from error
    return result
