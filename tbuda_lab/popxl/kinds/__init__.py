"""What every kind of op calculates."""

from tbuda_lab.popxl.kinds import elementwise as elementwise
from tbuda_lab.popxl.kinds import moves as moves
from tbuda_lab.popxl.kinds import picking as picking
from tbuda_lab.popxl.kinds import products as products
from tbuda_lab.popxl.kinds import reductions as reductions
from tbuda_lab.popxl.kinds import updates as updates

from tbuda_lab.popxl.kinds import gradients as gradients  # isort: skip - of all the others
from tbuda_lab.popxl.kinds.table import (
    FLOATS_ONLY,
    INPLACE,
    KINDS,
    UPDATES,
    VIEWS,
    WITH_LABELS,
    Ground,
    Kind,
    NotOnGrid,
    calculates_as,
)

__all__ = [
    "FLOATS_ONLY",
    "INPLACE",
    "KINDS",
    "UPDATES",
    "VIEWS",
    "WITH_LABELS",
    "Ground",
    "Kind",
    "NotOnGrid",
    "calculates_as",
]
