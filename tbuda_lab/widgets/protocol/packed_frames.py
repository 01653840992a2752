"""Frames on their way to a page: packed once for all views, compressed for pages that can inflate.

A compressed frame is one deflated text in pieces: the length of its header as a little-endian uint32, the header as
JSON, blanks up to a multiple of eight, the columns. Names repeat so much that a graph of 1,000 ops goes in an eighth of
its size, in less time than its header takes as JSON.
"""

from __future__ import annotations

import json
import struct
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

from tbuda_lab.core.frames import Frame

CHUNK = 512 * 1024
"""Bytes of one message at most."""
WORTH = 16 * 1024
"""Bytes from which a frame is compressed."""
LEVEL = 1  # the higher ones take four times as long for a fifth less


class _Content:
    """What is sent of a frame, made once: undo comes back to placements whose frames were sent before."""

    def __init__(self, frame: Frame) -> None:
        self.header, self.buffer = frame.pack()
        self._deflated: bytes | None = None

    @property
    def deflated(self) -> bytes:
        if self._deflated is None:
            header = json.dumps(self.header, ensure_ascii=False, separators=(",", ":")).encode()
            head = struct.pack("<I", len(header)) + header
            self._deflated = zlib.compress(b"".join((head, b" " * (-len(head) % 8), self.buffer)), LEVEL)
        return self._deflated


_CONTENTS: dict[int, _Content] = {}
"""By id of the frame, as long as there is the frame."""


def _content(frame: Frame) -> _Content:
    entry = _CONTENTS.get(id(frame))
    if entry is None:
        weakref.finalize(frame, _CONTENTS.pop, id(frame), None).atexit = False
        entry = _CONTENTS[id(frame)] = _Content(frame)
    return entry


def same(a: Frame, b: Frame) -> bool:
    """Whether two frames would be sent as the same bytes."""
    one, other = _content(a), _content(b)
    return one.header == other.header and one.buffer == other.buffer


class Packed:
    """A frame as it is sent, with its revision."""

    def __init__(self, frame: Frame, rev: int) -> None:
        self.key, self.rev = frame.key, rev
        self._content = _content(frame)

    def messages(self, inflates: bool) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """(message, buffers), piece by piece; compressed where it is worth it and the page inflates."""
        content = self._content
        if not inflates or len(content.buffer) < WORTH:
            yield from self._pieces(content.buffer, {"header": content.header}, {})
        else:
            yield from self._pieces(content.deflated, {}, {"deflated": True})

    def _pieces(
        self, data: bytes, first: dict[str, Any], all_: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        count = max(1, -(-len(data) // CHUNK))
        for index in range(count):
            message = {"type": "frame", "key": self.key, "rev": self.rev, "chunk": [index, count], **all_}
            yield message | (first if index == 0 else {}), [data[index * CHUNK : (index + 1) * CHUNK]]
