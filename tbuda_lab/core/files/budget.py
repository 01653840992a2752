"""What a file says of sizes is checked here before anything of that size is made."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tbuda_lab.core.errors import InputError


class Budget:
    """Bytes that everything a file states may take, all together; `name` of the file stands in errors."""

    def __init__(self, name: str, most: int) -> None:
        self.name, self.most, self.left = name, most, most

    def take(self, size: int, what: str) -> None:
        """Raises `InputError` where `size` bytes for `what` are more than is left."""
        if size < 0 or size > self.left:
            raise InputError(f"{self.name}: {what} would take {size_text(size)}; {size_text(self.left)} of "
                             f"{size_text(self.most)} are left for what is in this file")
        self.left -= size

    def grow(self, size: int) -> None:
        """Allow as many bytes more."""
        self.most, self.left = self.most + size, self.left + size

    def take_array(self, shape: Sequence[int], itemsize: int, what: str) -> None:
        """As `take`, for an array of that shape."""
        if any(n < 0 for n in shape):
            raise InputError(f"{self.name}: {what} has the shape {shape_text(shape)}, with sizes below 0")
        self.take(math.prod(shape) * itemsize, f"{what} of shape {shape_text(shape)}")


def unpacked_most(packed: int, ratio: int, small: int) -> int:
    """Bytes that `packed` bytes may unpack to: `ratio` times as many, but `small` ones always."""
    return max(small, ratio * packed)


def size_text(size: int) -> str:
    """A number of bytes in words."""
    if abs(size) >= 1 << 80:
        return f"2^{size.bit_length() - 1} bytes"
    for bits, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(size) >= 1 << bits:
            return f"{size / (1 << bits):.1f} {unit}"
    return f"{size} bytes"


def shape_text(shape: Sequence[int]) -> str:
    """A shape, however long, for messages."""
    text = "x".join(size if len(size := hex(n) if n.bit_length() > 64 else str(n)) <= 24 else "..." for n in shape[:8])
    return (text or "()") + (" and so on" if len(shape) > 8 else "")
