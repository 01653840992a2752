"""What a core grid is told besides its placement: the epoch, what becomes of ops in the way, the pipes it draws."""

from __future__ import annotations

import traitlets


class GridLooks(traitlets.HasTraits):
    """Traits of views with a core grid, settable from Python and from the page alike.

    epoch: the one shown. displacement: what becomes of ops where another is dropped: "free" (it takes the nearest free
    place), "push" (others make room), "swap" (an op of the same size changes places with it) or "evict" (they go to the
    next epoch). show_pipes: the edges between ops of the epoch, "none", those of the "selected" ops, or "all";
    link_threshold: bytes per cycle below which they are left out. noc: what the links of the two NoCs would carry if
    all went over NoC "0", over "1", or over the shorter way ("both"), an estimate; "none" draws no links;
    `link_threshold` holds for them too. show_critical: the ops whose work and waits decide when the epoch ends are lit,
    with the edges between them. chip: the one whose epochs are shown, None for all. chips_per_row: above 0, all
    chips of the time shown are drawn beside each other, that many in a row.
    """

    epoch = traitlets.Int(0, min=0).tag(sync=True)
    displacement = traitlets.Enum(("free", "push", "swap", "evict"), "free").tag(sync=True)
    show_pipes = traitlets.Enum(("none", "selected", "all"), "none").tag(sync=True)
    link_threshold = traitlets.Float(0.0, min=0.0).tag(sync=True)
    noc = traitlets.Enum(("none", "0", "1", "both"), "none").tag(sync=True)
    show_critical = traitlets.Bool(False).tag(sync=True)
    chip = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)
    chips_per_row = traitlets.Int(0, min=0, max=64).tag(sync=True)
