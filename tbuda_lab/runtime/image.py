"""Device images (TTI files): saved compiles. Not supported; the classes say so."""

from __future__ import annotations

from typing import Any

from tbuda_lab.runtime.errors import not_supported

_INSTEAD = "keep the netlist (get_compiled_results().netlist_filename) and compile the model again"


class TTDeviceImage:
    """Raises `NotSupported`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise not_supported("TTDeviceImage", _INSTEAD)

    @staticmethod
    def load_from_disk(*_: Any, **__: Any) -> TTDeviceImage:
        raise not_supported("TTDeviceImage.load_from_disk", _INSTEAD)

    def save_to_disk(self, *_: Any, **__: Any) -> None:
        raise not_supported("TTDeviceImage.save_to_disk", _INSTEAD)
