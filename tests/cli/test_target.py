"""FILE.py:FUNCTION: what is found, and what is said when it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tbuda_lab.cli.target import changed_settings, load_target, read_settings
from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.formats import MathFidelity
from tbuda_lab.core.options import CompileOptions


def write(folder: Path, text: str) -> str:
    (folder / "model.py").write_text(text)
    return str(folder / "model.py")


def test_module_inputs_and_seed(tmp_path: Path) -> None:
    (tmp_path / "helper_of_the_user.py").write_text("WIDTH = 4\n")
    file = write(
        tmp_path,
        "from helper_of_the_user import WIDTH\ndef make_model(seed=0):\n    return ('module', WIDTH), [seed]\n",
    )
    assert load_target(f"{file}:make_model").inputs == (0,)
    target = load_target(f"{file}:make_model", seed=7)
    assert (target.module, target.inputs, target.name) == (("module", 4), (7,), "model")


@pytest.mark.parametrize(
    ("text", "function", "message"),
    [
        ("def make(): return 1\n", "make_model", "no function 'make_model'; it has make"),
        ("x = 1\n", "make_model", "it has none"),
        ("def make_model(): return 1\n", "make_model", r"returned int: expected FILE.py:FUNCTION"),
        ("def make_model(): return 1, 2\n", "make_model", r"returned tuple: expected"),
        (
            "def make_model():\n    x = 1\n    raise ValueError('no weights')\n",
            "make_model",
            r"model\.py:3: make_model\(\) raised ValueError: no weights",
        ),
        ("import no_such_package_anywhere\n", "make_model", r"model\.py:1: importing it raised ModuleNotFoundError"),
        ("def make_model(:\n", "make_model", r"model\.py:1: importing it raised SyntaxError"),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, text: str, function: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_target(f"{write(tmp_path, text)}:{function}")


@pytest.mark.parametrize("text", ["model.py", ":make_model", "missing.py:make_model", "a.py:not a name", ""])
def test_refusals_of_the_text(text: str) -> None:
    with pytest.raises(ModelError, match=r"expected FILE\.py:FUNCTION"):
        load_target(text)


def test_words_say_what_options_differ_and_are_read_again() -> None:
    before = CompileOptions(microbatch=64)
    after = CompileOptions(
        microbatch=64,
        fuse_reduces=True,
        op_parts=(("a.b", 2), ("c", 3)),
        op_names_dont_pad=("x", "y"),
        op_rows=(("z", 9),),
        optimise_steps=7,
        default_math_fidelity=MathFidelity.LoFi,
    )
    words = changed_settings(before, after)
    assert "op_parts=a.b:2,c:3" in words and "microbatch=64" not in words and "fuse_reduces=true" in words
    assert dataclasses.replace(before, **read_settings(words)) == after
    for wrong in ("op_parts=a", "op_parts=a:b"):
        with pytest.raises(InputError, match="NAME:NUMBER"):
            read_settings([wrong])
