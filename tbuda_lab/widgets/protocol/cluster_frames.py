"""The chips of a placement, made when a page wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.clusterframe import cluster_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.lazy_frames import makes


@makes("cluster")
def _cluster(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [cluster_frame(session.compile(), session.rev)]
