"""What the parts of a session share: its history, what is kept of compiles, what is at work, and the locks."""

from __future__ import annotations

import dataclasses
import threading

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pipeline import LruCache, Pipeline
from tbuda_lab.core.events import Events
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import Journal

EVENTS = ("stage", "compiled", "run", "ran", "problem", "edited", "stale", "live", "checked", "verified", "trained")
RESULTS_KEPT = 32


@dataclasses.dataclass
class SessionState:
    """The state of one session.

    history: options and overrides, and the steps to them. pipeline: the compiler with what it keeps. results: of the
    last requests, by their key. journal: the file that edits are written to. traced: the nD graph. runner: that of the
    current result, unless it works. ran: the result that was run last. cancel: set to stop what works now. worker: the
    background compile. names: what overrides by pattern have been matched with. work_lock: held while stages run.
    edit_lock: held for moments only.
    """

    history: History
    pipeline: Pipeline
    results: LruCache = dataclasses.field(default_factory=lambda: LruCache(RESULTS_KEPT))
    events: Events = dataclasses.field(default_factory=lambda: Events(*EVENTS))
    journal: Journal | None = None
    traced: Graph | None = None
    runner: Runner | None = None
    ran: CompileResult | None = None
    cancel: threading.Event = dataclasses.field(default_factory=threading.Event)
    worker: threading.Thread | None = None
    names: tuple[str, ...] = ()
    work_lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
    edit_lock: threading.RLock = dataclasses.field(default_factory=threading.RLock)
