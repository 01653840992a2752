"""`sambaflow.sambacollections`: a set that remembers the order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableSet
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class OrderedSet(MutableSet[T]):
    """A set whose elements come in the order in which they were first added. Tensors count by identity."""

    def __init__(self, elements: Iterable[T] = ()) -> None:
        self._elements: dict[T, None] = dict.fromkeys(elements)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[T]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, value: T) -> None:
        self._elements[value] = None

    def discard(self, value: T) -> None:
        self._elements.pop(value, None)

    def update(self, *others: Iterable[T]) -> None:
        """Add all elements of others."""
        for other in others:
            self._elements.update(dict.fromkeys(other))

    def union(self, *others: Iterable[T]) -> OrderedSet[T]:
        """A new set with the elements of others behind its own."""
        result = OrderedSet(self)
        result.update(*others)
        return result

    def __repr__(self) -> str:
        return f"OrderedSet({list(self._elements)!r})"
