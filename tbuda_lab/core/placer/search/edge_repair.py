"""Rows for an op and all of its producers at once, where its edges from several of them are illegal.

An op on many cores that reads two ops on one core each needs both of them wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility

_OPTIONS = 6
"""Rows of the op that are tried."""


def repair_around(
    book: EdgeCompatibility, op: int, options: Sequence[int], others: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Rows to change so that one of `options` is legal for the op, none where that does not suffice. The first row of
    the op that works is taken, with the first row of each producer that is legal then.

    others: rows of its producers in the epoch, those that take the fewest cores first. The book is left as it was.
    """
    selected, given = {producer: book.rows[producer] for producer in others}, book.refusal
    for row in options[:_OPTIONS]:
        book.rows[op] = row
        for producer, theirs in others.items():
            del book.rows[producer]
            if book.check(producer, selected[producer]):
                book.rows[producer] = selected[producer]
                continue
            other_row = next((other for other in theirs if book.check(producer, other)), None)
            if other_row is None:
                break
            book.rows[producer] = other_row
        else:
            del book.rows[op]
            changed = {p: book.rows[p] for p in others if book.rows[p] != selected[p]}
            fits = book.check(op, row)
            book.rows.update(selected)
            if fits:
                return {**changed, op: row}
            continue
        del book.rows[op]
        book.rows.update(selected)
    book.refusal = given
    return {}
