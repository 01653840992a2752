"""Overrides as calls of PyBuda's `config` module, in the words that a person copies into a script."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.literals import python_comment, python_literal, shown_value
from tbuda_lab.core.options import FIRST, Each, Override, target_text
from tbuda_lab.core.overrideforms import misshapen

_MIXED: dict[str, tuple[str, type[DataFormat] | type[MathFidelity]]] = {
    "data_format": ("output_df", DataFormat), "math_fidelity": ("math_fidelity", MathFidelity),
}  # fmt: skip
"""Kinds that PyBuda sets by regular expressions of names: its keyword, and the type of the value."""
_PLAIN = ("op_size", "t_stream_dir", "t_stream_shape", "u_kt", "dram_parameters")
"""Kinds with a call of their own that takes a name and a value."""


def placement_python(op: str, value: dict[str, Any]) -> str:
    """A pin as a call, by keywords: PyBuda's own example by position does not fit its signature."""
    words = {"start": "start", "transpose": "transpose_op", "chip": "chip_id"}
    given = {word: value[k] for k, word in words.items() if value.get(k) is not None}
    return python_call("override_op_placement", op, **given)


def python_call(function: str, *arguments: Any, **keywords: Any) -> str:
    """A call of PyBuda's `config` module; every argument is a literal (see `python_literal`)."""
    words = [python_literal(value) for value in arguments]
    words += [f"{name}={python_literal(value)}" for name, value in keywords.items()]
    return f"pybuda.config.{function}({', '.join(words)})"


def override_python(override: Override) -> str:
    """An override as a call of PyBuda's `config` module; several names give one call each."""
    kind, target, value = override.kind, override.target, override.value
    comment = python_comment(f"{kind} of {target_text(target)}: {shown_value(value)}")
    try:
        return _calls(override) or comment
    except InputError:  # a value without a literal
        return comment


def _calls(override: Override) -> str:
    """The calls of an override; empty where PyBuda has none."""
    kind, target, value = override.kind, override.target, override.value
    if isinstance(target, Each) and target.names and value != FIRST:
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in target.names)
    if not isinstance(target, str | tuple) or misshapen(override):
        return ""
    if isinstance(target, tuple):
        if kind in ("epoch_break", "chip_break"):
            return python_call(f"set_{kind}", list(target))
        if kind == "schedule_constraint":
            return python_call("add_schedule_constraint", list(target))
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in target)
    if kind in ("epoch_break", "chip_break"):
        return python_call(f"set_{kind}", target)
    if kind == "op_placement":
        return placement_python(target, value)
    if kind == "queue_channel":
        names = {"channel": "channel", "chip": "chip_id"}
        given = {word: value[k] for k, word in names.items() if k in value}
        return python_call("override_dram_queue_placement", target, **given)
    if kind in ("insert_nop", "insert_queue"):
        return _edit_python(kind, target, {} if value is True else dict(value))
    if kind in _MIXED:
        word, known = _MIXED[kind]
        name = value.name if isinstance(value, known) else value
        if not isinstance(name, str) or name not in known.__members__:
            return ""
        return python_call("configure_mixed_precision", name_regex=re.escape(target), **{word: known[name]})
    if kind == "input_buffer_multiplier":
        if not isinstance(value, Mapping) or not all(isinstance(k, int) for k in value):
            return ""
        call = "override_input_buffer_multiplier"
        return "\n".join(python_call(call, target, k, multiplier=v) for k, v in sorted(value.items()))
    if kind == "output_buffer_multiplier":
        return python_call("internal_override_output_buffer_multiplier", target, multiplier=value)
    return python_call(f"override_{kind}", target, value) if kind in _PLAIN else ""


def named_python(override: Override, names: Sequence[str]) -> str:
    """The calls for a pattern or predicate once it is known which of `names` it matches."""
    if isinstance(override.target, (str, tuple)):
        return override_python(override)
    found = override.matches(names)
    if override.value == FIRST:
        found = found[:1]
    calls = [override_python(dataclasses.replace(override, target=name)) for name in found]
    title = python_comment(f"{override.kind} of {target_text(override.target)}, which matches {len(found)}:")
    return "\n".join([title, *calls])


def _edit_python(kind: str, source: str, value: dict[str, Any]) -> str:
    dest = value.get("dest")
    if dest is None:
        return python_comment(f"{kind} between {source} and all its readers")
    names = [dest] if isinstance(dest, str) else list(dest)
    if kind == "insert_nop":
        plain = {"hoist_tms": True, "nop_count": 1, "daisy_chain": False}
        given = {k: value[k] for k, v in plain.items() if value.get(k, v) != v}
        return python_call("insert_nop", source, names[0] if len(names) == 1 else names, **given)
    port = value.get("port")
    call = "pybuda.config._get_global_compiler_config().insert_queues.append"
    return "\n".join(f"{call}({python_literal((source, name, port))})" for name in names)
