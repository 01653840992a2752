"""The links of the NoCs over the static twin of a core grid, as `labextension/src/views/grid/links.ts` draws them."""

from __future__ import annotations

from html import escape

from tbuda_lab.core.frames import Frame
from tbuda_lab.widgets.pictures.graph import short
from tbuda_lab.widgets.pictures.palette import load_paint

CELL_W, CELL_H, STRIP = 74, 46, 18
LEGEND = 34
LANE = 0.42
"""How far beside the middle of a core its links run, in parts of it: NoC 0 below and right, NoC 1 above and left."""


def link_lines(links: Frame, top: dict[int, int], strips: dict[int, int], threshold: float) -> list[str]:
    """A line per link that carries `threshold` bytes per cycle or more; the busiest last, over the others.

    top: of every logical row; strips: of every harvested row, by its physical number.
    """
    c, meta = links.columns, links.meta
    middles = [k * CELL_W + CELL_W / 2 for k in range(len(meta["columns"]))]
    xs = _places(meta["columns"], meta["size"][0], middles, CELL_W)
    rows = {row: top[k] + CELL_H / 2 for k, row in enumerate(meta["rows"])}
    rows |= {row: y + STRIP / 2 for row, y in strips.items()}
    names = sorted(rows)
    ys = _places(names, meta["size"][1], [rows[r] for r in names], CELL_H)
    producers, consumers = links.text("flow_producer"), links.text("flow_consumer")
    parts = ["<g fill='none'>"]
    for k in range(c["link_noc"].size - 1, -1, -1):
        if c["link_bytes"][k] / max(1, meta["cycles"]) < threshold:
            continue
        noc, axis, x, y = (int(c[f"link_{n}"][k]) for n in ("noc", "axis", "x", "y"))
        load, users = float(c["link_load"][k]), meta["users"]
        most = int(c["use_flow"][k * users])
        step = -1 if noc else 1
        line = _line(xs, ys, axis, x, y, step)
        to = ((x + step) % len(xs), y) if axis == 0 else (x, (y + step) % len(ys))
        message = (
            f"NoC {noc}, ({x}, {y}) to ({to[0]}, {to[1]}): {short(float(c['link_bytes'][k]))}B per input, "
            f"{100 * load:.0f} %; most of it {producers[most]} → {consumers[most]}"
        )
        dash = " stroke-dasharray='6 3'" if noc else ""
        parts.append(
            f"<path d='{line}' stroke='{load_paint(load).edge}' stroke-width='{1 + 4 * min(1.0, load):.1f}'{dash}>"
            f"<title>{escape(message)}</title></path>"
        )
    return [*parts, "</g>"]


def _places(fixed: list[int], count: int, at: list[float], size: float) -> list[float]:
    """Where every node of an axis lies: workers in the middle of their cores, others on the edge between."""
    places = []
    for node in range(count):
        if node in fixed:
            places.append(at[fixed.index(node)])
        else:
            before = [p for n, p in zip(fixed, at, strict=True) if n < node]
            places.append(before[-1] + size / 2 if before else at[0] - size / 2)
    return places


def _line(xs: list[float], ys: list[float], axis: int, x: int, y: int, step: int) -> str:
    """From a node to the next; where the torus goes round, two stubs at the edges."""
    along = xs if axis == 0 else ys
    lane = step * LANE * (CELL_H if axis == 0 else CELL_W)
    across = (ys[y] if axis == 0 else xs[x]) + lane
    at = x if axis == 0 else y
    begin, end = along[at], along[(at + step) % len(along)]
    pieces = [(begin, end)]
    if not 0 <= at + step < len(along):
        pieces = [(begin, begin + 8 * step), (end - 8 * step, end)]
    return "".join(
        f"M{a:.1f} {across:.1f}H{b:.1f}" if axis == 0 else f"M{across:.1f} {a:.1f}V{b:.1f}" for a, b in pieces
    )


def link_legend(links: Frame, below: float) -> list[str]:
    """Under the grid, in `LEGEND` pixels: what the colours say, and that it is an estimate."""
    words = {"0": "all over NoC 0", "1": "all over NoC 1", "both": "each over its shorter NoC"}[links.meta["noc"]]
    parts = [f"<g font-size='10' fill='#566376' transform='translate(0 {below + 13})'>"]
    x = 0
    for load in (0.1, 0.4, 0.7, 1.0):
        parts.append(
            f"<path d='M{x} -4h18' stroke='{load_paint(load).edge}' stroke-width='{1 + 4 * load:.1f}'/>"
            f"<text x='{x + 22}'>{100 * load:.0f} %</text>"
        )
        x += 60
    text = f"{words}; NoC 0 → ↓ solid, NoC 1 ← ↑ dashed"
    return [*parts, f"<text x='{x}'>of what a link carries, estimated:</text><text y='14'>{text}</text></g>"]
