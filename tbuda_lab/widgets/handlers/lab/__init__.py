"""What the kernel says to JupyterLab beside the widgets: its sessions, their commands, and documents in tabs.

One comm target, `tbuda_lab.session`, is registered when `tbuda_lab.widgets` is imported in a kernel. ipywidgets has no
part in it, so a document needs no notebook. The messages are listed in docs/ui-testing.md.
"""

from tbuda_lab.widgets.handlers.lab.target import TARGET, register

__all__ = ["TARGET", "register"]
