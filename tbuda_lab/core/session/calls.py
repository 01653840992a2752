"""Overrides as calls of PyBuda's `config` module, in the words that a person copies into a script."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tbuda_lab.core.options import FIRST, Each, Override, target_text
from tbuda_lab.core.overrideforms import misshapen

_MIXED = {"data_format": ("output_df", "DataFormat"), "math_fidelity": ("math_fidelity", "MathFidelity")}
"""Kinds that PyBuda sets by regular expressions of names: its keyword, and where the value comes from."""
_PLAIN = ("op_size", "t_stream_dir", "t_stream_shape", "u_kt", "dram_parameters")
"""Kinds with a call of their own that takes a name and a value."""


def placement_python(op: str, value: dict[str, Any]) -> str:
    """A pin as a call, by keywords: PyBuda's own example by position does not fit its signature."""
    words = {"start": "start", "transpose": "transpose_op", "chip": "chip_id"}
    given = ", ".join(f"{word}={value[k]!r}" for k, word in words.items() if value.get(k) is not None)
    return f"pybuda.config.override_op_placement({op!r}, {given})"


def override_python(override: Override) -> str:
    """An override as a call of PyBuda's `config` module; several names give one call each."""
    kind, target, value = override.kind, override.target, override.value
    if isinstance(target, tuple):
        if kind in ("epoch_break", "chip_break"):
            return f"pybuda.config.set_{kind}({list(target)!r})"
        if kind == "schedule_constraint":
            return f"pybuda.config.add_schedule_constraint({list(target)!r})"
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in target)
    if isinstance(target, Each) and target.names and value != FIRST:
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in target.names)
    if not isinstance(target, str) or misshapen(override):
        return f"# {kind} of {target_text(target)}: {value!r}"
    if kind in ("epoch_break", "chip_break"):
        return f"pybuda.config.set_{kind}({target!r})"
    if kind == "op_placement":
        return placement_python(target, value)
    if kind == "queue_channel":
        names = {"chip": "chip_id", "channel": "channel"}
        words = ", ".join(f"{names[k]}={v!r}" for k, v in sorted(value.items()))
        return f"pybuda.config.override_dram_queue_placement({target!r}, {words})"
    if kind == "insert_nop" or kind == "insert_queue":
        return _edit_python(kind, target, dict(value))
    if kind in _MIXED:
        word, kinds = _MIXED[kind]
        words = f"name_regex={re.escape(target)!r}, {word}=pybuda.{kinds}.{value}"
        return f"pybuda.config.configure_mixed_precision({words})"
    if kind == "input_buffer_multiplier" and isinstance(value, Mapping) and all(isinstance(k, int) for k in value):
        call = "pybuda.config.override_input_buffer_multiplier"
        return "\n".join(f"{call}({target!r}, {k}, multiplier={v})" for k, v in sorted(value.items()))
    if kind == "output_buffer_multiplier":
        return f"pybuda.config.internal_override_output_buffer_multiplier({target!r}, multiplier={value!r})"
    if kind not in _PLAIN:  # no call has it
        return f"# {kind} of {target}: {value!r}"
    return f"pybuda.config.override_{kind}({target!r}, {value!r})"


def named_python(override: Override, names: Sequence[str]) -> str:
    """The calls for a pattern or predicate once it is known which of `names` it matches."""
    if isinstance(override.target, (str, tuple)):
        return override_python(override)
    found = override.matches(names)
    if override.value == FIRST:
        found = found[:1]
    calls = [override_python(dataclasses.replace(override, target=name)) for name in found]
    return "\n".join([f"# {override.kind} of {target_text(override.target)}, which matches {len(found)}:", *calls])


def _edit_python(kind: str, source: str, value: dict[str, Any]) -> str:
    dest = value.get("dest")
    if dest is None:
        return f"# {kind} between {source!r} and all its readers"
    names = [dest] if isinstance(dest, str) else list(dest)
    if kind == "insert_nop":
        plain = {"hoist_tms": True, "nop_count": 1, "daisy_chain": False}
        words = "".join(f", {k}={value[k]!r}" for k, v in plain.items() if value.get(k, v) != v)
        return f"pybuda.config.insert_nop({source!r}, {(names[0] if len(names) == 1 else names)!r}{words})"
    port = value.get("port")
    call = "pybuda.config._get_global_compiler_config().insert_queues.append"
    return "\n".join(f"{call}(({source!r}, {name!r}, {port!r}))" for name in names)
