"""What the pictures share: an SVG with a title, texts that fit, and the light palette of
`labextension/src/views/theme.ts`."""

from __future__ import annotations

import dataclasses
import math
import re
from html import escape

from tbuda_lab.core.frames import Frame

FONT = "font-family='system-ui,sans-serif'"


def picture(width: float, height: float, parts: list[str], title: str, *, wide: bool = False) -> str:
    """An SVG of parts on white ground. wide: it keeps its width, for a box that scrolls."""
    hatch = (
        "<defs><pattern id='h' width='7' height='7' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'>"
        "<rect width='7' height='7' fill='#eceff3'/><path d='M0 0V7' stroke='#c9ced7' stroke-width='3'/></pattern>"
        "</defs>"
    )
    style = f"max-width:{'none' if wide else '100%'};height:auto;background:#fff"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' "
        f"style='{style}' role='img' aria-label='{escape(title, True)}'>"
        f"{hatch}{''.join(parts)}</svg>"
    )


def check_epoch(ops: Frame, epoch: int) -> None:
    """Raises `IndexError` for an epoch that a placement frame has not."""
    count = ops.columns["epoch_cycles"].size
    if not 0 <= epoch < count:
        raise IndexError(f"there is no epoch {epoch}; there are {count}")


def short_name(name: str) -> str:
    """The last two parts of a dotted name; a decomposed op shows its original (or its module) and its step."""
    if ".dc." in name:
        stem, step = name.split(".dc.", 1)[0], name.rsplit(".dc.", 1)[1]
        words = [part for part in step.split(".") if not part.isdigit()]
        owners = stem.split(".")
        repeats = bool(words) and words[0].startswith(owners[-1]) and len(owners) > 1
        return ".".join([owners[-2] if repeats else owners[-1], *words])
    return ".".join(name.split(".")[-2:])


def distinct_names(names: list[str]) -> list[str]:
    """Short names that tell the ops of an epoch apart: where two are the same, with the parts before that differ."""
    found = [short_name(name) for name in names]
    groups: dict[str, list[int]] = {}
    for i, short_ in enumerate(found):
        groups.setdefault(short_, []).append(i)
    for short_, group in groups.items():
        if len(group) == 1:
            continue
        parts = {i: names[i].replace(".dc.", ".").split(".") for i in group}
        most = max(map(len, parts.values()))
        labels = {i: ".".join(p) for i, p in parts.items()}
        for count in (3, _PARTS):
            if len({tuple(p[-count:]) for p in parts.values()}) == len(group):
                labels = {i: ".".join(p[-count:]) for i, p in parts.items()}
                break
        else:
            for at in range(most):
                if len({p[at] if at < len(p) else None for p in parts.values()}) == len(group):
                    labels = {
                        i: ".".join(p[max(0, at - 1) if p[at : at + 1] and p[at].isdigit() else at : at + 1])
                        + f"…{short_}"
                        for i, p in parts.items()
                    }
                    break
        for i in group:
            found[i] = labels[i]
    return found


_PARTS = 4  # of a name, before the middle of it is left out


def fitting(full: str, room: int, told: bool = True) -> str:
    """The fullest form of a short name that fits, cut if need be: all of it, or the last part alone where that is no
    other op's, too (`told`)."""
    return full if len(full) <= room else elide((full.partition(".")[2] if told else "") or full, room)


def elide(text: str, room: int) -> str:
    """Cut in the middle, so that the head and the end of a name stay readable."""
    if len(text) <= room:
        return text
    if room < 2:
        return ""
    tail = -(-(room - 1) * 6 // 10)
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def short(value: float) -> str:
    """12345678 -> "12.3M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.0f}{unit}" if value / size >= 100 else f"{value / size:.1f}{unit}"
    return f"{value:.0f}"


def size_text(size: float) -> str:
    """1234567 -> "1.18 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size:.0f} B"


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
