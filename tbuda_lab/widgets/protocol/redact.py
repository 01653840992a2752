"""Frames for readers who may see how a model is placed, but not what it is.

What is not known to be harmless is taken out: a string stays only if it is a word of the compiler (a type, a format, a
pass) or a bare number. Names become numbers that are the same in every frame, so that views stay linked.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame

WHAT = ("nothing", "names", "shapes", "both")
LEFT_OUT = "(left out)"

_WORDS = (
    "op_type", "op_df", "op_fidelity", "op_stream", "op_limiter", "node_type", "node_df", "queue_kind", "queue_df",
    "queue_what", "step_name", "step_label", "step_doc", "severity", "rule",
)  # fmt: skip
"""Columns whose strings are the compiler's own words."""
_META = (
    "kinds", "locations", "classes", "totals", "device", "arch", "stage", "side", "pass", "label", "noc", "doc",
    "verdict", "options", "channels", "directions", "grid_a", "grid_b",
)  # fmt: skip
_KEPT = ("start", "now", "previous")
_SHAPES = (
    "op_t", "op_mblock_m", "op_mblock_n", "op_ublock_r", "op_ublock_c", "op_m_k", "op_u_kt", "op_buf_size_mb",
    "op_l1_input", "op_l1_output", "op_l1_param", "op_l1_intermed", "op_l1_total",
)  # fmt: skip
_SIZES = re.compile(r"\d+(?:\s*[x×,]\s*\d+)+|(?<=[\[(=])\d+")
_NUMBERS = re.compile(r"[\d\s()\[\]x×,.:-]*")


def redacted(frames: Sequence[Frame], what: str) -> list[Frame]:
    """The frames without names, without shapes, or without both; the text of the netlist goes in any case.

    Without shapes: no tensor shapes, blocks, bytes, no page of memory and no loads of links. Raises `InputError` for
    another word.
    """
    if what not in WHAT:
        raise InputError(f"redact is one of {', '.join(WHAT)}, not {what!r}")
    if what == "nothing":
        return list(frames)
    names, shapes = what in ("names", "both"), what in ("shapes", "both")
    gone = {"netlist", *(["memory"] if shapes else [])}
    rename = _Renaming(frames, names, shapes)
    return [rename.frame(f) for f in frames if f.key not in gone and not (shapes and f.key.startswith("links:"))]


class _Renaming:
    def __init__(self, frames: Iterable[Frame], names: bool, shapes: bool) -> None:
        self.names, self.shapes = names, shapes
        self.harmless = {"", *_KEPT}
        self.given: dict[str, str] = {}
        for frame in frames:
            for column in _WORDS:
                if column in frame.columns:
                    self.harmless.update(frame.text(column))
            for key in ("kinds", "locations", "classes"):
                self.harmless.update(map(str, frame.meta.get(key, ())))

    def string(self, text: str) -> str:
        if text in self.harmless:
            return text
        if self.shapes and _SIZES.search(text):
            if not self.names:
                return _SIZES.sub("…", text)
            return LEFT_OUT
        if not self.names or _NUMBERS.fullmatch(text):
            return text
        if ".py" in text or " " in text or "=" in text:
            return LEFT_OUT
        return self.given.setdefault(text, f"name{len(self.given) + 1}")

    def meta(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, dict):
            return {k: v if k in _META else self.meta(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.meta(v) for v in value]
        return value

    def frame(self, frame: Frame) -> Frame:
        columns = dict(frame.columns)
        if self.shapes:
            columns |= {k: np.zeros_like(v) for k, v in columns.items() if k in _SHAPES}
        strings = tuple(self.string(s) for s in frame.strings)
        return dataclasses.replace(frame, strings=strings, columns=columns, meta=self.meta(frame.meta))
