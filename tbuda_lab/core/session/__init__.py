"""A session: one model, one device, the edits made to its placement, and everything that can be asked about it."""

from tbuda_lab.core.session.session import EVENTS, GRAPH_STAGES, Session

__all__ = ["EVENTS", "GRAPH_STAGES", "Session"]
