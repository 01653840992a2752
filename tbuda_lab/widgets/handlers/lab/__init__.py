"""What the kernel says to JupyterLab beside the widgets: its sessions, their commands, and documents in tabs.

One comm target, `tbuda_lab.session`, is registered when `tbuda_lab.widgets` is imported in a kernel. ipywidgets has no
part in it, so a document needs no notebook. A page opens a comm and says what it wants to see; each kind has its
opener. The messages are listed in docs/ui-testing.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.widgets.handlers.lab.kernel_comm import Comm, hear_beside_cells

TARGET = "tbuda_lab.session"


Opener = Callable[[Comm, Mapping[str, Any]], None]

_beacon: Any = None


def register() -> bool:
    """Register the target in this process's kernel; True when there is one. A second call changes nothing.

    A comm of that name is kept, closed to everybody: a page that lists the comms of a kernel sees from it, without
    running code there, that this kernel has sessions to tell about.
    """
    global _beacon
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return False
    if _beacon is None:
        import comm

        manager = comm.get_comm_manager()
        manager.register_target(TARGET, on_open)
        _beacon = comm.create_comm(target_name=TARGET, primary=False)
        manager.register_comm(_beacon)
    return True


def on_open(comm: Comm, message: Mapping[str, Any]) -> None:
    """A page has opened a comm: `data["open"]` says for what. After a refusal the page closes it.

    (A close from here would make JupyterLab report an unknown comm: it doesn't know ours, see `comm.ts`.)
    """
    hear_beside_cells(comm)
    data = message["content"]["data"]
    try:
        kind = data.get("open") if isinstance(data, Mapping) else None
        opener = _openers().get(str(kind))
        if opener is None:
            raise InputError(f"nothing can be opened as {kind!r}; known: {', '.join(_openers())}")
        opener(comm, data)
    except TbudaError as error:
        comm.send({"type": "failed", "text": str(error), "kind": type(error).__name__})


def _openers() -> Mapping[str, Opener]:
    from tbuda_lab.widgets.handlers.lab.documents import (
        open_image,
        open_journal,
        open_netlist,
        open_profile,
        open_program,
        open_view,
    )
    from tbuda_lab.widgets.handlers.lab.sessions import open_sessions

    return {
        "sessions": open_sessions,
        "view": open_view,
        "netlist": open_netlist,
        "image": open_image,
        "journal": open_journal,
        "program": open_program,
        "profile": open_profile,
    }
