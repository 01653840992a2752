"""The state of a compiled graph under PyBuda's names: the fields of an image's manifest as attributes."""

from __future__ import annotations

from typing import Any


class CompiledGraphState:
    """`ordered_input_names`, `ordered_parameter_node_names`, `netlist_filename`, ...: see
    docs/design/netlist-format.md#devicejson."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = dict(fields)
        for name in ("ordered_input_shapes", "ordered_target_shapes"):
            self._fields.setdefault(name, [])

    def __getattr__(self, name: str) -> Any:
        fields: dict[str, Any] = self.__dict__.get("_fields", {})  # a copy is asked before it has any
        if not name.startswith("_") and name in fields:
            return fields[name]
        raise AttributeError(f"the state of a compiled graph has no {name!r}; it has {', '.join(fields)}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})
