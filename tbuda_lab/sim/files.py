"""A netlist from a file, its inputs and outputs in .npz archives."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import Diagnostic, InputError, OutputError
from tbuda_lab.core.files import atomic_file, read_npz
from tbuda_lab.sim.arrays import Array, misfit, shape_text
from tbuda_lab.sim.executor import Executor
from tbuda_lab.sim.io import QueueIo, ViewIo

MAX_STEPS = 10_000_000
"""Instructions and inputs that a program of a file may run: minutes even where a step is a single tile."""

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can hold


def run_file(
    path: str | Path,
    inputs: str | Path,
    outputs: str | Path,
    *,
    mode: str = "golden",
    arch: str | None = None,
    params: Mapping[str, int] | None = None,
    seed: int = 0,
    max_steps: int | None = MAX_STEPS,
) -> list[str]:
    """Runs all programs of a netlist file in file order; returns the names of the outputs written.

    The host takes outputs as they come, so that an output queue never fills.

    inputs: an .npz with one array (n, t, R, C) for each queue and ram the host feeds, float32, int32 for integer
    formats and raw words (tile after tile). A queue may be given more entries than it holds: the rest follows as
    programs pop. Rams that ops write may be given initial contents; arrays of other names are not used.
    outputs: an .npz with what is in each queue that ops fill and no op reads, oldest first, and all slots of each ram
    that ops write. Written to a temporary name and renamed.
    max_steps: instructions and inputs after which a program is taken for one without end; None: no limit.

    Raises `InputError` listing what is expected when an array is missing or has the wrong shape, `OutputError` when
    the result cannot be written, and what `netlist.load` and `Executor` raise.
    """
    try:
        executor = Executor(netlists.load(path), mode=mode, arch=arch, seed=seed)
        feed(executor, read_npz(inputs, _names_of(executor).__contains__))
        for name, io in executor.io.items():
            if isinstance(io, QueueIo) and not io.from_host and not io.readers:
                executor.listen(name)
        executor.run(params=params, max_steps=max_steps)
        collected = collect(executor)
        write_archive(outputs, collected)
    except MemoryError:
        raise misfit(
            str(path),
            "memory",
            "its tensors do not fit the host's memory",
            "run it with fewer inputs, or where there is more memory",
        ) from None
    return list(collected)


def expected_inputs(executor: Executor) -> dict[str, bool]:
    """Queues and rams that may be fed -> whether they must be: those that the host feeds and an op reads, unless an
    op writes the same memory through another view."""
    expected_inputs = {}
    written = {io.base.spec.name for io in executor.io.values() if isinstance(io, ViewIo) and not io.from_host}
    for name, io in executor.io.items():
        if io.from_host:
            expected_inputs[name] = bool(io.readers) and not isinstance(io, ViewIo) and name not in written
        elif not isinstance(io, QueueIo):
            expected_inputs[name] = False
    return expected_inputs


def feed(executor: Executor, arrays: Mapping[str, Array]) -> None:
    """Hands arrays to the queues and rams of their names; an instance of a multi-instance queue takes the array of
    the name before the suffix if it has none of its own. Raises `InputError` naming all that is missing or wrong."""
    expected = expected_inputs(executor)
    problems = []
    chosen: dict[str, Array] = {}
    for name, needed in expected.items():
        array = arrays.get(name)
        if array is None and name not in executor.original.queues:
            array = arrays.get(name.rpartition(".")[0])
        io = executor.io[name]
        shape = f"(n, {shape_text(io.shape)[1:]} {'int32' if io.df.is_integer or io.df.is_raw else 'float32'}"
        if array is None:
            if needed:
                problems.append(Diagnostic("error", name, "input", f"missing; {io.spec.type} of {io.df}, {shape}"))
            continue
        if array.ndim != 4 or array.shape[1:] != io.shape or not len(array):
            problems.append(
                Diagnostic("error", name, "input", f"has shape {array.shape}; {io.spec.type} of {io.df} takes {shape}")
            )
        elif not isinstance(io, QueueIo) and len(array) > io.entries:
            problems.append(Diagnostic("error", name, "input", f"has {len(array)} entries; the ram has {io.entries}"))
        chosen[name] = array
    if problems:
        raise InputError("the inputs do not fit the netlist", problems)
    for name in sorted(chosen, key=lambda n: isinstance(executor.io[n], ViewIo)):  # views after their bases
        executor.feed(name, chosen[name])


def _names_of(executor: Executor) -> set[str]:
    """Names of arrays that the host may give: of queues and rams, and of those whose instances they are."""
    names = expected_inputs(executor)
    return {*names, *(name.rpartition(".")[0] for name in names)}


def collect(executor: Executor) -> dict[str, Array]:
    """What a host would read after the programs: {name: (n, t, R, C)}."""
    return {
        name: executor.pop_all(name)
        for name, io in executor.io.items()
        if not io.from_host and not (isinstance(io, QueueIo) and io.readers)
    }


_MAX_NAME = 60_000
"""Bytes; a zip has two for their number."""


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_archive(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Writes an .npz under a temporary name and renames it; equal arrays give equal bytes. Raises `OutputError`."""
    with atomic_file(path) as result, zipfile.ZipFile(result, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():  # not np.savez: a queue may be called "file", and it writes the time
            if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME or not _is_text(name):
                raise OutputError(
                    f"cannot write {path}: {name[:80]!r} is no name of an array in an archive: it has "
                    f"at most {_MAX_NAME} bytes, no zero and no half characters"
                )
            member = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
