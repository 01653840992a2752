"""One attack: a file made of a seed is read, and what comes of it is judged by error, CPU time and memory."""

from __future__ import annotations

import dataclasses
import random
import resource
import shutil
import tempfile
import time
import traceback
from pathlib import Path

from tbuda_lab.core.errors import TbudaError
from tests.fuzz.subjects import Subject

MAX_SECONDS = 10.0
"""CPU of one file."""
MAX_BYTES = 1 << 30
"""Memory of one file beside what was there."""

CHANGES = (1, 1, 1, 2, 2, 3, 6, 12)
"""How many changes a file gets: mostly few, so that it comes past the first check."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a file. fault: empty, or what is wrong."""

    subject: str
    seed: int
    refused: bool
    seconds: float
    bytes: int
    fault: str = ""


def attack(subject: Subject, seed: int) -> Outcome:
    """Make the file of a seed, read it, clean up."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        rng = random.Random(f"{subject.name} {seed}")
        path = subject.make(rng, folder, rng.choice(CHANGES))
        before, began = peak(fresh=True), time.process_time()
        refused, fault = False, ""
        try:
            subject.read(path)
        except TbudaError as error:
            refused = True
            if not str(error).strip():
                fault = "an error without a text"
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__}: {str(error)[:100]!r} at {Path(place.filename).name}:{place.lineno}"
        seconds, size = time.process_time() - began, peak() - before
        if seconds > MAX_SECONDS:
            fault = fault or f"{seconds:.1f} s"
        if size > MAX_BYTES:
            fault = fault or f"{size >> 20} MiB"
        return Outcome(subject.name, seed, refused, seconds, size, fault)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def peak(fresh: bool = False) -> int:
    """Bytes that this process had in memory at most, of late if a call before asked to begin afresh.

    Linux forgets the highest mark on request, so that a file is not covered by a greater one before it; elsewhere the
    mark is that of the whole process.
    """
    try:
        if fresh:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
