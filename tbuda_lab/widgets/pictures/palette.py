"""Colours of the static twins: the light palette of `labextension/src/views/theme.ts`."""

from __future__ import annotations

import dataclasses
import math
import re


@dataclasses.dataclass(frozen=True)
class Paint:
    fill: str
    edge: str
    text: str


_FAMILIES = (
    (215, r"matmul|linear|conv|depthwise"),
    (168, r"add|subtract|multiply|divide|maximum|minimum|power|heaviside|greater|less|equal|not_equal|logical|where"),
    (32, r"exp|log|sqrt|reciprocal|sigmoid|tanh|gelu|relu|lrelu|leaky|abs|sine|cosine|erf|pow|clip|cast"),
    (285, r"reduce|argmax|cumsum|softmax|log_softmax|layernorm|batchnorm|group_norm|max_pool|avg_pool|adaptive"),
    (130, r"io|input|output|queue|embedding"),
)
_CHANGES = ((215, 8), (145, 52), (36, 78), (4, 68))  # same, added, changed, removed: hue and strength
_LOAD = ((236, 239, 243), (249, 233, 207), (247, 205, 142), (240, 154, 80), (203, 66, 18))


def family_paint(op_type: str) -> Paint:
    """Colour by kind of op."""
    for hue, pattern in _FAMILIES:
        if re.match(pattern, op_type):
            return Paint(f"hsl({hue} 66% 88%)", f"hsl({hue} 48% 46%)", "#17202e")
    return Paint("hsl(220 12% 88%)", "hsl(220 8% 46%)", "#17202e")


def change_paint(change: int) -> Paint:
    """Colour by what a pass did to a node, an index of `passframes.CHANGES`; what it left alone is grey."""
    hue, strength = _CHANGES[change]
    fill, edge = (82, 38) if change else (95, 72)
    return Paint(f"hsl({hue} {strength}% {fill}%)", f"hsl({hue} {strength}% {edge}%)", "#17202e")


def load_paint(load: float) -> Paint:
    """Colour by load in 0..1: quiet to hot."""
    at = min(1.0, max(0.0, load)) * (len(_LOAD) - 1)
    low = min(len(_LOAD) - 2, int(at))
    rgb = [round(a + (at - low) * (b - a)) for a, b in zip(_LOAD[low], _LOAD[low + 1], strict=True)]
    edge = [round(0.68 * c) for c in rgb]
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    css = ["rgb({} {} {})".format(*c) for c in (rgb, edge)]
    return Paint(css[0], css[1], _text_on(luminance))


def delta_paint(share: float | None) -> Paint:
    """Colour by change of cycles, as a share of those before: blue for fewer over grey to orange for more, in full at a
    factor of two."""
    strength = min(1.0, abs(share or 0.0))
    hue, light = 28 if (share or 0) > 0 else 212, 92 - 26 * strength
    colour = f"hsl({hue} {78 * math.sqrt(strength):.0f}% "
    return Paint(f"{colour}{light:g}%)", f"{colour}{light - 28:g}%)", "#17202e")


def _text_on(ground: float) -> str:
    """The text colour that reads best on a ground of that luminance; soft black where there is contrast to spare."""
    white, black = 1.05 / (ground + 0.05), (ground + 0.05) / 0.05
    return "#ffffff" if black < white else "#17202e" if black > 9 else "#000000"
