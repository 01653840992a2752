"""`pybuda.ci`: helpers of PyBuda's own test runs."""

from __future__ import annotations

import os


def create_symlink(target: str, link: str, *, remove_existing: bool = False) -> None:
    """Make `link` point to `target`; an existing link stays unless `remove_existing`."""
    if os.path.islink(link):
        if not remove_existing:
            return
        os.unlink(link)
    os.symlink(target, link)


__all__ = ["create_symlink"]
