"""`OpTable`: the numbers of every op, by op, by core, by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import traitlets

from tbuda_lab.core.files import csv_text
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.ops_frame import epoch_totals, op_columns
from tbuda_lab.widgets.pictures.fragments import table_html
from tbuda_lab.widgets.views.base import View


class OpTable(View):
    """One row per op, or per core.

    columns: ids of the columns shown, in that order (none: all of them); sort: the id of one, "-cycles" for the largest
    first; filter: a part of the name or type. group: "epoch" puts the ops of an epoch under a line with its slowest op,
    cores and balance. per_core: one row per core. fold_layers: one row for the same op of layers that repeat, where
    rows are neither grouped nor per core; None: from 200 ops on. The page sets them too.
    """

    kind = "table"
    frames_shown = ("ops", "checks", "edits")

    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    sort = traitlets.Unicode("").tag(sync=True)
    filter = traitlets.Unicode("").tag(sync=True)
    group = traitlets.Enum(("none", "epoch"), "none").tag(sync=True)
    per_core = traitlets.Bool(False).tag(sync=True)
    fold_layers = traitlets.Bool(None, allow_none=True).tag(sync=True)

    def to_rows(self) -> list[dict[str, Any]]:
        """All columns of the placement, one dict per op in schedule order; with `per_core` one per core, with its
        `core_row` and `core_col`. Raises `KeyError` before there is a placement."""
        columns = op_columns(self.hub.frames["ops"], self.per_core)
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def totals(self) -> list[dict[str, Any]]:
        """One dict per epoch: its slowest op, cycles, cores, balance. Raises `KeyError` before there is a placement."""
        return epoch_totals(self.hub.frames["ops"])

    def to_frame(self) -> np.ndarray:
        """The rows of `to_rows` as a structured NumPy array, a field per column.

        `pandas.DataFrame(table.to_frame())` makes a data frame of it; no such library is needed here. Raises `KeyError`
        before there is a placement.
        """
        columns = op_columns(self.hub.frames["ops"], self.per_core)
        count = len(next(iter(columns.values())))
        records = np.empty(count, dtype=[(key, column.dtype) for key, column in columns.items()])
        for key, column in columns.items():
            records[key] = column
        return records

    def to_csv(self) -> str:
        """The table as CSV with a header line."""
        rows = self.to_rows()
        return csv_text([list(rows[0]) if rows else [], *(row.values() for row in rows)])

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return table_html(frames, self.group == "epoch", self.per_core)
