"""What a workbench is told besides what its views show: which of its docks are open, and which tab is in front."""

from __future__ import annotations

from typing import Any

import traitlets

MODES = ("split", "graph", "grid")
TABS = (
    "ops", "profile", "trace", "netlist", "overrides", "memory", "diff", "passes", "plots", "cluster",
    "program", "problems",
)  # fmt: skip


class DockLooks(traitlets.HasTraits):
    """Traits of the workbench, settable from Python and from the page alike.

    mode: above, graph and grid side by side ("split"), or "graph" or "grid" alone. docks: the rest of the arrangement,
    `{"tab": one of TABS, "inspector": whether it stands beside the tabs, "tall": whether the tabs have all the room and
    graph and grid are put away}`; what is left out when it is set stays as it is. The name is not `layout`, as every
    widget has a trait of that name already: the CSS of its box.
    """

    mode = traitlets.Enum(MODES, "split").tag(sync=True)
    docks = traitlets.Dict({"tab": TABS[0], "inspector": True, "tall": False}).tag(sync=True)

    @traitlets.validate("docks")
    def _arrangement(self, proposal: Any) -> dict[str, Any]:
        value: dict[str, Any] = {**self.docks, **proposal["value"]}
        unknown = sorted(set(value) - {"tab", "inspector", "tall"})
        if unknown:
            raise traitlets.TraitError(f"there is no dock {unknown[0]!r}; docks are 'tab', 'inspector' and 'tall'")
        if value["tab"] not in TABS:
            raise traitlets.TraitError(f"there is no tab {value['tab']!r}; there are {', '.join(TABS)}")
        for name in ("inspector", "tall"):
            if not isinstance(value[name], bool):
                raise traitlets.TraitError(f"{name!r} is True or False, not {value[name]!r}")
        return {name: value[name] for name in ("tab", "inspector", "tall")}
