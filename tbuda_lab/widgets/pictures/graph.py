"""The graph of a stage as SVG, as the page draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from tbuda_lab.core.frames import Frame, place
from tbuda_lab.core.frames.layout import (
    HEADER,
    ITEM_ENTRY,
    ITEM_EXIT,
    ITEM_GROUP,
    ITEM_LANE,
    ITEM_NODE,
    LABEL_CHARS,
    GraphLayout,
)
from tbuda_lab.widgets.pictures.svg import FONT, change_paint, elide, family_paint, picture

WORDS = 24
"""Letters of what is said on an edge."""


def graph_svg(
    frame: Frame, opened: Iterable[int] | None = None, *, direction: str = "TB", show_tms: bool = False
) -> str:
    """A graph frame as SVG, with the given groups open (default: those a first view opens).

    direction: "TB" or "LR"; show_tms: what edges do to the tensors on them is written beside them. Nodes that a pass
    changed are marked where the frame says so.
    """
    layout = place(frame, set(frame.meta["open"] if opened is None else opened), direction, show_tms)
    edges = list(_segments(frame, layout, direction == "LR"))
    parts = [*_groups(frame, layout), _edges(frame, layout, edges, direction == "LR"), *_nodes(frame, layout)]
    parts += _words(frame, edges) if show_tms else []
    title = f"Graph of stage {frame.meta['stage']}"
    return picture(layout.size[0], layout.size[1], parts, title, wide=direction == "LR")


def _groups(frame: Frame, layout: GraphLayout) -> list[str]:
    labels, paths = frame.text("group_label"), frame.text("group_path")
    leaves = frame.columns["group_leaves"]
    parents = frame.columns["group_parent"].tolist()
    refs = frame.columns["item_ref"].tolist()
    shown = {int(g) for g in frame.columns["item_group"][layout.visible]}
    items = [i for i, k in enumerate(frame.columns["item_kind"].tolist()) if k == ITEM_GROUP and layout.visible[i]]

    def depth(group: int) -> int:
        return 0 if parents[group] < 0 else 1 + depth(parents[group])

    parts = [f"<g {FONT}>"]
    for i in sorted(items, key=lambda i: depth(refs[i])):
        x, y, w, h = layout.boxes[i]
        g = refs[i]
        title = f"<title>{escape(paths[g])}</title>"
        if g in shown:
            parts.append(
                f"<g>{title}<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' rx='8' fill='#5a7396' "
                f"fill-opacity='.08' stroke='#c3cddb'/><text x='{x + 9:.1f}' y='{y + HEADER / 2 + 5:.1f}' "
                f"font-size='10.5' font-weight='600' fill='#566376'>{escape(labels[g])}</text></g>"
            )
        else:
            parts.append(
                f"<g>{title}<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' rx='7' fill='#edf1f7' "
                f"stroke='#9aa8ba'/><text x='{x + w / 2:.1f}' y='{y + h / 2 - 2:.1f}' font-size='11' font-weight='600' "
                f"fill='#17202e' text-anchor='middle'>{escape(elide(labels[g], LABEL_CHARS))}</text><text "
                f"x='{x + w / 2:.1f}' y='{y + h / 2 + 12:.1f}' font-size='9.5' fill='#566376' text-anchor='middle'>"
                f"{int(leaves[g])} nodes</text></g>"
            )
    return [*parts, "</g>"]


_Segment = tuple[int, int, float, float, float, float]  # net, item at its end, from x, y to x, y


def _segments(frame: Frame, layout: GraphLayout, turned: bool) -> Iterator[_Segment]:
    c = frame.columns
    kind, ref, home = c["item_kind"].tolist(), c["item_ref"].tolist(), c["item_group"].tolist()
    shown = {int(g) for g in c["item_group"][layout.visible]}
    port = {(kind[i], home[i], ref[i]): i for i in range(len(kind)) if kind[i] in (ITEM_ENTRY, ITEM_EXIT)}
    box = layout.boxes
    for g, s, t, net in zip(*(c[f"seg_{k}"].tolist() for k in ("group", "source", "target", "net")), strict=True):
        if g not in shown or not layout.visible[s]:
            continue
        tail = port.get((ITEM_EXIT, ref[s], net), s) if kind[s] == ITEM_GROUP and ref[s] in shown else s
        head = port.get((ITEM_ENTRY, ref[t], net), t) if kind[t] == ITEM_GROUP and ref[t] in shown else t
        away = 0 if kind[tail] == ITEM_ENTRY else 1
        if turned:
            yield (
                net,
                t,
                box[tail][0] + away * box[tail][2],
                box[tail][1] + box[tail][3] / 2,
                box[t][0],
                box[head][1] + box[head][3] / 2,
            )
        else:
            yield (
                net,
                t,
                box[tail][0] + box[tail][2] / 2,
                box[tail][1] + away * box[tail][3],
                box[head][0] + box[head][2] / 2,
                box[t][1],
            )


def _edges(frame: Frame, layout: GraphLayout, edges: list[_Segment], turned: bool) -> str:
    d: list[str] = []
    for _, _, x0, y0, x1, y1 in edges:
        if turned:
            bend = max(8.0, abs(x1 - x0) / 2)
            d.append(f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}")
        else:
            bend = max(8.0, abs(y1 - y0) / 2)
            d.append(f"M{x0:.1f} {y0:.1f}C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}")
    box, length = layout.boxes, 2 if turned else 3
    for i, k in enumerate(frame.columns["item_kind"].tolist()):
        if k == ITEM_LANE and layout.visible[i] and box[i][length]:
            x, y, w, h = box[i]
            d.append(f"M{x:.1f} {y + h / 2:.1f}h{w:.1f}" if turned else f"M{x + w / 2:.1f} {y:.1f}v{h:.1f}")
    return f"<path d='{''.join(d)}' fill='none' stroke='#9aa8ba'/>"


def _words(frame: Frame, edges: list[_Segment]) -> list[str]:
    """The TMs of edges, on the middle of the piece that arrives at the consumer."""
    c = frame.columns
    kind, ref = c["item_kind"].tolist(), c["item_ref"].tolist()
    ends = zip(c["edge_source"].tolist(), c["edge_target"].tolist(), strict=True)
    moves_of_edge = dict(zip(ends, frame.text("edge_tms"), strict=True))
    parts = [f"<g {FONT} font-size='8.5' text-anchor='middle' fill='#3d4a5c'>"]
    for net, item, x0, y0, x1, y1 in edges:
        text = moves_of_edge.get((net, ref[item])) if kind[item] == ITEM_NODE else None
        if text:
            line = elide(text.replace("\n", " | "), WORDS)
            x, y = (x0 + x1) / 2, (y0 + y1) / 2
            wide = 4.7 * len(line) + 6
            parts.append(
                f"<g><title>{escape(text)}</title><rect x='{x - wide / 2:.1f}' y='{y - 6:.1f}' width='{wide:.1f}' "
                f"height='12' rx='3' fill='#fff' fill-opacity='.88'/><text x='{x:.1f}' y='{y + 3:.1f}'>{escape(line)}"
                "</text></g>"
            )
    return [*parts, "</g>"]


def _nodes(frame: Frame, layout: GraphLayout) -> list[str]:
    names, labels = frame.text("node_name"), frame.text("node_label")
    types, shapes = frame.text("node_type"), frame.text("node_shape")
    op_kind = list(frame.meta["kinds"]).index("op")
    change = frame.columns["node_change"].tolist() if "node_change" in frame.columns else None
    parts = [f"<g {FONT} text-anchor='middle'>"]
    kinds, refs = frame.columns["item_kind"].tolist(), frame.columns["item_ref"].tolist()
    for i in range(len(kinds)):
        if kinds[i] != ITEM_NODE or not layout.visible[i]:
            continue
        n = refs[i]
        x, y, w, h = layout.boxes[i]
        is_op = int(frame.columns["node_kind"][n]) == op_kind
        paint = family_paint(types[n] if is_op else "io") if change is None else change_paint(change[n])
        parts.append(
            f"<g><title>{escape(names[n])}</title><rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' "
            f"rx='{5 if is_op else h / 2:.0f}' fill='{paint.fill}' stroke='{paint.edge}'/>"
            f"<text x='{x + w / 2:.1f}' y='{y + h / 2 - 2:.1f}' font-size='11' font-weight='600' fill='{paint.text}'>"
            f"{escape(elide(labels[n], LABEL_CHARS))}</text>"
            f"<text x='{x + w / 2:.1f}' y='{y + h / 2 + 11:.1f}' font-size='9' fill='{paint.text}'>"
            f"{escape(elide(shapes[n], int((w - 10) / 4.9)))}</text></g>"
        )
    return [*parts, "</g>"]
