"""Frames on their way to a page: packed once for all views, compressed for pages that can inflate.

A compressed frame is one deflated text in pieces: the length of its header as a little-endian uint32, the header as
JSON, blanks up to a multiple of eight, the columns. Names repeat so much that a graph of 1,000 ops goes in an eighth of
its size, in less time than its header takes as JSON.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from tbuda_lab.core.frames import Frame

CHUNK = 512 * 1024
"""Bytes of one message at most."""
WORTH = 16 * 1024
"""Bytes from which a frame is compressed."""
LEVEL = 1  # the higher ones take four times as long for a fifth less


class Packed:
    """A frame as it is sent, with its revision."""

    def __init__(self, frame: Frame, rev: int) -> None:
        self.key, self.rev = frame.key, rev
        self.header, self.buffer = frame.pack()
        self._deflated: bytes | None = None

    def messages(self, inflates: bool) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """(message, buffers), piece by piece; compressed where it is worth it and the page inflates."""
        if not inflates or len(self.buffer) < WORTH:
            yield from self._pieces(self.buffer, {"header": self.header}, {})
            return
        if self._deflated is None:
            header = json.dumps(self.header, ensure_ascii=False, separators=(",", ":")).encode()
            head = struct.pack("<I", len(header)) + header
            self._deflated = zlib.compress(b"".join((head, b" " * (-len(head) % 8), self.buffer)), LEVEL)
        yield from self._pieces(self._deflated, {}, {"deflated": True})

    def _pieces(
        self, data: bytes, first: dict[str, Any], all_: dict[str, Any]
    ) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        count = max(1, -(-len(data) // CHUNK))
        for index in range(count):
            message = {"type": "frame", "key": self.key, "rev": self.rev, "chunk": [index, count], **all_}
            yield message | (first if index == 0 else {}), [data[index * CHUNK : (index + 1) * CHUNK]]
