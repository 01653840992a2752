"""A session: one model, one device, the edits made to its placement, and everything that can be asked about it."""

from tbuda_lab.core.diff import Diff, OpChange
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import (
    COMMANDS,
    ChipBreak,
    ClearOp,
    Constrain,
    EpochBreak,
    FormatOp,
    Optimise,
    PlaceOp,
    Preload,
    QueueChannel,
    Reorder,
    ResizeOp,
    SetOptions,
    SetOverride,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session.compiles import GRAPH_STAGES, REACHED
from tbuda_lab.core.session.edits import GRAMMAR
from tbuda_lab.core.session.explain import OpCard, Reasons
from tbuda_lab.core.session.exports import EXPORTS, Export, ExportKind, ExportSetting
from tbuda_lab.core.session.islands import Islands
from tbuda_lab.core.session.legal import LEGAL, LegalTable, ReasonText, ShapeReason
from tbuda_lab.core.session.records import OverrideRecord
from tbuda_lab.core.session.session import Session
from tbuda_lab.core.session.state import EVENTS
from tbuda_lab.core.session.suggest import Suggestion
from tbuda_lab.core.session.whatif import WhatIf, diff_results

__all__ = [
    "COMMANDS",
    "EVENTS",
    "EXPORTS",
    "GRAMMAR",
    "GRAPH_STAGES",
    "LEGAL",
    "REACHED",
    "ChipBreak",
    "ClearOp",
    "Command",
    "Constrain",
    "Diff",
    "EpochBreak",
    "Export",
    "ExportKind",
    "ExportSetting",
    "FormatOp",
    "Islands",
    "LegalTable",
    "OpCard",
    "OpChange",
    "Optimise",
    "OverrideRecord",
    "PlaceOp",
    "Preload",
    "QueueChannel",
    "ReasonText",
    "Reasons",
    "Reorder",
    "ResizeOp",
    "Session",
    "SetOptions",
    "SetOverride",
    "SetUkt",
    "ShapeReason",
    "StreamOp",
    "Suggestion",
    "WhatIf",
    "diff_results",
]
