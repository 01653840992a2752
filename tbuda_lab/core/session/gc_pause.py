"""Short work without Python's collector of cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """No collection inside.

    An answer makes many objects that live for milliseconds. Those that a collection meets count as old, and after a
    handful of answers everything a session holds is looked through, for a third of a second at 700 ops. Without a
    collection in between they are gone when the answer is.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
