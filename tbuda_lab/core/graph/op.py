"""The base of every operation and the registry by type name.

An op is a frozen dataclass: its fields are its attributes, its methods say what it means. The text parser
rebuilds ops from ``type`` and fields alone, so a field must be a plain value (bool, int, float, str, None, a
tuple of those) or a `Payload`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

Shape = tuple[int, ...]


class Payload:
    """An immutable integer array carried as an op attribute (row maps, picker coordinates).

    Equality and hash go by content, so ops that carry the same payload share one table of candidates.
    """

    __slots__ = ("array", "digest")

    def __init__(self, array: np.ndarray) -> None:
        frozen = np.ascontiguousarray(array)
        if frozen.dtype.kind not in "iu":
            raise TypeError(f"a payload holds integers, not {frozen.dtype}")
        frozen = frozen.copy()
        frozen.setflags(write=False)
        self.array = frozen
        digest = hashlib.sha256(f"{frozen.dtype.str}{frozen.shape}".encode())
        digest.update(frozen.data if frozen.size else b"")
        self.digest = digest.hexdigest()[:16]

    @classmethod
    def absent(cls, digest: str) -> Payload:
        """A payload known by its digest alone, as parsed from text that holds no arrays; its array is empty."""
        payload = cls(np.zeros(0, np.int64))
        payload.digest = digest
        return payload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Payload) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"@{self.digest}"


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation; subclasses add fields and `infer`. See `tbuda_lab.core.ops` for the nD set."""

    type: ClassVar[str] = ""

    def infer(self, *operands: Shape) -> Shape:
        """Shape of the result for these operand shapes; raises `ShapeError` naming what would be legal."""
        raise NotImplementedError(f"{type(self).__name__} defines no shape rule")

    def attributes(self) -> dict[str, Any]:
        """The fields that differ from their defaults, in order of declaration (what the printer shows)."""
        shown: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                shown[field.name] = value
        return shown


class ShapeError(ValueError):
    """Operand shapes that an op cannot take."""


REGISTRY: dict[str, type[Op]] = {}
_O = TypeVar("_O", bound=type[Op])


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def op(type_name: str) -> Callable[[_O], _O]:
    """Class decorator: freeze the class as a dataclass and register it under its type name."""

    def register(cls: _O) -> _O:
        frozen: _O = dataclasses.dataclass(frozen=True)(cls)  # type: ignore[assignment]  # it returns cls itself
        frozen.type = type_name
        if type_name in REGISTRY:
            raise ValueError(f"op type {type_name!r} is registered twice")
        REGISTRY[type_name] = frozen
        return frozen

    return register


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """NumPy's broadcasting rule on shapes. Raises `ShapeError` where two sizes differ and neither is 1, and for more
    dims than NumPy broadcasts."""
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*(tuple(s) for s in shapes)))
    except ValueError:
        text = ", ".join(str(tuple(s)) for s in shapes)
        raise ShapeError(f"shapes {text} do not broadcast: sizes must be equal or 1, aligned at the right") from None
    except RuntimeError as error:
        raise ShapeError(f"shapes of {max(map(len, shapes))} dims do not broadcast: {error}") from None
