"""Where chips are drawn: on a lattice in which links join neighbours, as far as there is one."""

from __future__ import annotations

import math
from collections.abc import Sequence

Link = tuple[int, int, int]


def positions(chips: Sequence[int], links: Sequence[Link]) -> dict[int, tuple[int, int]]:
    """(column, row) of every chip, distinct.

    Chips are numbered along rows; the width is the one in which the links are shortest, the most square one of equals.
    """
    count = len(chips)
    index = {chip: i for i, chip in enumerate(chips)}
    square = max(1, math.ceil(math.sqrt(count)))

    def cost(width: int) -> tuple[int, int, int]:
        length = 0
        for a, b, _ in links:
            (xa, ya), (xb, yb) = (divmod(index[c], width)[::-1] for c in (a, b))
            length += abs(xa - xb) + abs(ya - yb)
        return length, abs(width - square), width

    width = min(range(1, count + 1), key=cost) if links else min(count, square)
    return {chip: (i % width, i // width) for chip, i in index.items()}
