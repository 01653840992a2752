"""`open_tti`: a view of a TTI image, read only."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from html import escape
from pathlib import PurePosixPath
from typing import Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import ARCHS, BOARDS, load_device
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.netlistfile import netlist_frames
from tbuda_lab.core.netlist.image import Image, image_facts, read_image
from tbuda_lab.widgets.views.base import StaticView, View
from tbuda_lab.widgets.views.netlist_file import FileHub, twin

_FILES_SHOWN = 500


def open_tti(path: str | pathlib.Path, *, height: int = 0) -> ImageFile:
    """A view of a `*.tti` archive: manifest, files, and the netlist in it. Nothing is extracted, nothing unpickled.

    Raises `InputError` that says what is wrong with the file.
    """
    return ImageFile(path, height=height)


def board_of(image: Image) -> str | None:
    """The board or arch that an image of ours was compiled for, if its grid is that one's: what to draw it on."""
    ours = image.manifest.get("tbuda_lab")
    device = ours.get("device") if isinstance(ours, dict) else None
    name = device.get("name") if isinstance(device, dict) else None
    if name not in (*ARCHS, *BOARDS):
        return None
    spec = load_device(str(name))
    return str(name) if image.manifest.get("grid_size") == [spec.rows, spec.cols] else None


def image_frames(image: Image) -> list[Frame]:
    """What a view of an image shows: its facts, and what there is to say about its first netlist."""
    frames = []
    if image.netlists:
        name, text = next(iter(image.netlists.items()))
        netlist = netlists.loads(text, lenient=True, path=PurePosixPath(name).name)
        frames = netlist_frames(netlist, text, arch=board_of(image))
    facts: dict[str, Any] = {
        "facts": image_facts(image),
        "files": [[m.name, m.size] for m in image.members[:_FILES_SHOWN]],
        "more": max(0, len(image.members) - _FILES_SHOWN),
    }
    return [Frame("image", facts), *frames]


class ImageFile(View):
    """A TTI image on screen; see `open_tti`."""

    kind = "imagefile"

    def __init__(self, path: str | pathlib.Path, *, height: int = 0) -> None:
        self.image = read_image(path)
        self._open(FileHub(image_frames(self.image)), height)

    def static(self) -> StaticView:
        return StaticView(self._twin(self.hub.frames), repr(self))

    def __repr__(self) -> str:
        return f"ImageFile({pathlib.Path(self.image.path).name!r}: {len(self.image.members)} files)"

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>"
                       for what, value in frames["image"].meta["facts"])
        return f"<table>{rows}</table>" + (twin(frames) if "netlist" in frames else "<p>no netlist in this image</p>")


__all__ = ["ImageFile", "image_frames", "open_tti"]
