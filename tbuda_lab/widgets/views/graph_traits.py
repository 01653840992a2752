"""What a graph view is told besides its graph: what it searches, which groups are open, values to paint nodes by."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import traitlets

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.coordinates import DIRECTIONS
from tbuda_lab.core.frames.frame import Strings


class GraphTraits(traitlets.HasTraits):
    """Traits of the graph view, settable from Python.

    query: what its search looks for, a regular expression on names and types; the page sets it when somebody types.
    depth: how many levels of groups are open, 0 for none; None: those that a first view opens. collapsed: module paths
    of groups that are closed besides. The page sets both when somebody opens or closes groups, for the stage in front.

    pass_name: the pass after which the graph is shown, as in `PassTrace.labels`, with what it changed marked; "" for
    the stages. direction: "TB" from top to bottom, "LR" from left to right. show_tms: tensor manipulations are written
    on their edges. viewport: the point in the middle of the view and the scale, (x, y, scale) in units of the graph, or
    () while it fits itself; the page sets it when the picture rests.
    """

    query = traitlets.Unicode("").tag(sync=True)
    depth = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)
    collapsed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    pass_name = traitlets.Unicode("").tag(sync=True)
    direction = traitlets.Enum(DIRECTIONS, "TB").tag(sync=True)
    show_tms = traitlets.Bool(False).tag(sync=True)
    viewport = traitlets.Tuple().tag(sync=True, echo_update=False)

    @traitlets.validate("viewport")
    def _three_numbers(self, proposal: Any) -> tuple[float, ...]:
        value = tuple(proposal["value"])
        if value and (len(value) != 3 or not all(_finite(v) for v in value) or value[2] <= 0):
            raise traitlets.TraitError(f"a viewport is (x, y, scale) with a scale above 0, or (), not {value}")
        return tuple(float(v) for v in value)


def _finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def opened(frame: Frame, depth: int | None, collapsed: Iterable[str]) -> list[int]:
    """Numbers of the groups of a graph frame that are open, as `GraphTraits` says; the graph itself, 0, always is."""
    closed = set(collapsed)
    paths, parents = frame.text("group_path"), frame.columns["group_parent"].tolist()
    first = set(frame.meta["open"])

    def level(group: int) -> int:
        deep = 0
        while group > 0:
            group, deep = parents[group], deep + 1
        return deep

    wanted = (g for g in range(1, len(paths)) if (g in first if depth is None else level(g) <= depth))
    return [0, *(g for g in wanted if paths[g] not in closed)]


def overlay_frame(values: Mapping[str, float], name: str, scale: tuple[float, float] | None) -> Frame:
    """Values by node name, with the range that the colours go over (default: from the least to the largest).

    Raises `InputError` for a value that is no finite number and for a range that is not ascending.
    """
    bad = [n for n, v in values.items() if not _finite(v)]
    if bad:
        raise InputError(f"the value of {bad[0]} is {values[bad[0]]!r}; leave out nodes that have no finite value")
    low, high = scale or (min(values.values(), default=0.0), max(values.values(), default=0.0))
    if not (math.isfinite(low) and math.isfinite(high)) or (scale is not None and low >= high):
        raise InputError(f"a scale goes from a smaller finite number to a larger one, not from {low} to {high}")
    strings = Strings()
    columns = {
        "overlay_name": strings.column(values),
        "overlay_value": np.array([float(v) for v in values.values()], dtype="<f8"),
    }
    return Frame("overlay", {"name": name, "low": float(low), "high": float(high)}, columns, strings.table)
