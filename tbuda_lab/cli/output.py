"""Writing results: all of them or none of them.

Text tables for the terminal: of a compile, and of outputs beside those of torch.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.errors import OutputError, quantity
from tbuda_lab.core.files import temporary_folder

if TYPE_CHECKING:
    import torch

    from tbuda_lab.core.compiler import CompileResult
    from tbuda_lab.core.epochsim import BatchTime
    from tbuda_lab.core.verification import Comparison


def _refusal(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"cannot write {path}: {reason}; give a folder that exists or can be made, and is writable")


@contextmanager
def output_folder(path: Path, results: Collection[str] = ()) -> Iterator[Path]:
    """A fresh temporary folder beside `path`, which takes its place as a whole when the block ends without an error.

    Entered before the work starts, so that an unwritable place is refused at once. What else lies in `path` stays, but
    for `results`: files of those names are of an earlier run, and two runs never mix. A folder that cannot be moved
    (one that a shell stands in, or a mount) gets the files one by one. Raises `OutputError`, also for a full disk.
    """
    path = Path(os.path.realpath(path))
    new_folders: list[Path] = []
    try:
        if path.exists() and not path.is_dir():
            raise OutputError(f"cannot write {path}: it is a file; give a folder")
        parent = path.parent
        missing = [p for p in (parent, *parent.parents) if not p.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            new_folders.append(folder)
        if path.exists() and not os.access(path, os.W_OK):
            raise OutputError(f"cannot write {path}: permission denied; give a folder that is writable")
        room = contextlib.ExitStack()
        temporary = room.enter_context(temporary_folder(path))
    except OSError as error:
        _remove_empty(new_folders)
        raise _refusal(path, error) from None
    try:
        try:
            yield temporary
        except OSError as error:
            if error.errno in _DISK or (error.filename and temporary in Path(str(error.filename)).parents):
                raise _refusal(path, error) from error
            raise  # of some file that the block has to do with
        try:
            temporary.chmod(0o777 & ~_umask())
            _swap(temporary, path, results)
        except OSError as error:
            raise _refusal(path, error) from None
        new_folders.clear()
    finally:
        room.close()
        _remove_empty(new_folders)


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def _swap(new: Path, path: Path, results: Collection[str]) -> None:
    """Put a folder in the place of another; what only the old one has goes along, but for `results`."""
    cwd = Path.cwd()
    if path == cwd or path in cwd.parents or path.is_mount():
        for name in results:
            if not (new / name).exists() and (path / name).is_file():
                (path / name).unlink()
        _into(new, path)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        for number in itertools.count():
            old = aside / str(number)
            if path.exists():
                path.rename(old)
            try:
                new.rename(path)
            except OSError as error:
                if error.errno in _TAKEN:  # another run was faster; the last one stays
                    continue
                if old.exists():
                    old.rename(path)
                raise
            break
        for old in sorted(aside.iterdir()):
            for name in results:
                if (old / name).is_file():
                    (old / name).unlink()
            _along(old, path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _along(old: Path, new: Path) -> None:
    """Move what `new` has not from `old` to it."""
    for entry in old.iterdir():
        target = new / entry.name
        if not target.exists() and not target.is_symlink():
            entry.rename(target)
        elif entry.is_dir() and target.is_dir() and not entry.is_symlink():
            _along(entry, target)


def _into(new: Path, path: Path) -> None:
    """Move the files of `new` over those of `path`."""
    for file in sorted(new.rglob("*")):
        if file.is_file():
            target = path / file.relative_to(new)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_empty(folders: list[Path]) -> None:
    for folder in reversed(folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def epoch_table(result: CompileResult, times: BatchTime | None = None) -> str:
    """One line per epoch: when it runs, chip, ops, cores used, cycles per input, what bounds it, and its slowest op.
    times: of a batch; by default of the one that it is compiled for, simulated."""
    from tbuda_lab.core.epochsim import batch_time, epoch_limits

    placement, device = result.placement, result.device
    times = batch_time(result, result.options.microbatch) if times is None else times
    total = device.rows * device.cols
    numbers = f"{'epoch':>5s} {'runs':>5s} {'chip':>4s} {'ops':>4s} {'cores':>9s} {'cycles':>10s}"
    header = f"{numbers}  {'bound by':20s} slowest op"
    lines = [header, "-" * len(header)]
    for epoch, time, limit in zip(placement.epochs, times.epochs, epoch_limits(placement, times), strict=True):
        cores = sum(int(np.prod(placement.ops[op].size)) for op in epoch.ops)
        lines.append(
            f"{epoch.index:5d} {epoch.temporal:5d} {epoch.chip:4d} {len(epoch.ops):4d} {cores:4d}/{total:<4d} "
            f"{time.cycles / times.batch:10,.0f}  {limit.bound.words:20s} {limit.slowest}"
        )
    return "\n".join(lines)


def modelled_cycles(result: CompileResult) -> int:
    """Kernel cycles per input: the slowest op of each epoch, epochs of one temporal number side by side on chips."""
    from tbuda_lab.core.frames.ops_frame import total_cycles

    placement = result.placement
    return int(total_cycles([epoch.temporal for epoch in placement.epochs], placement.epoch_cycles))


def summary(result: CompileResult) -> str:
    """What was compiled for what, and the modelled speed: first what a batch takes in the simulator of epochs, which is
    the time that every view shows."""
    from tbuda_lab.core.epochsim import batch_time

    device = result.device
    cycles = modelled_cycles(result)
    value = result.placement.report.objective if result.placement.report is not None else None
    took = []
    if value is not None:
        times = batch_time(result, value.inputs)
        parts, several = times.parts, len(device.chips) > 1
        waiting = parts["fill"] + parts["stall"]
        together, bound = ("epochs of all chips: ", "") if several else ("", f"; lower bound {value.bound:,.0f}")
        took = [
            f"modelled: {times.per_input:,.0f} cycles per input in a batch of {times.batch}, "
            f"{device.clock_hz / max(1.0, times.per_input):,.1f} inputs/s at {device.clock_hz / 1e9:.2f} GHz "
            f"({together}slowest ops {parts['steady']:,.0f}, filling and waiting {waiting:,.0f}, "
            f"switches of epochs {parts['switch']:,.0f}{bound})"
        ]
    chips = "" if len(device.chips) == 1 else f", {len(device.chips)} chips"
    epochs = len(result.placement.epochs)
    lines = [
        f"{quantity(len(result.placement.ops), 'op')} on {device.name} ({device.arch}, {device.rows}x{device.cols} "
        f"cores{chips}) in {quantity(epochs, 'epoch')}",
        *took,
        f"kernels alone: {cycles:,} cycles per input, {device.clock_hz / max(1, cycles):,.1f} inputs/s",
    ]
    lines += [str(diagnostic) for diagnostic in result.diagnostics if diagnostic.severity != "note"]
    notes = sum(diagnostic.severity == "note" for diagnostic in result.diagnostics)
    if notes:
        lines.append(f"{quantity(notes, 'note')} of what was inserted or repaired, with nothing to be done about")
    return "\n".join(lines)


def compare_outputs(
    names: Sequence[str], got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], bar: float
) -> bool:
    """Print one line per output; whether all of them pass."""
    from tbuda_lab.core.verification import compare_tensors

    rows = [compare_tensors(name, theirs, ours) for name, ours, theirs in zip(names, got, expected, strict=True)]
    return print_comparisons(rows, got, bar)


def print_comparisons(rows: Sequence[Comparison], got: Sequence[torch.Tensor], bar: float) -> bool:
    """One line per comparison, those of outputs first; whether all of them pass."""
    from tbuda_lab.core.verification import MAX_RELATIVE

    print(f"{'output':24s} {'shape':>16s} {'PCC':>9s} {'max error':>10s} {'largest':>10s} {'relative':>9s}")
    for k, row in enumerate(rows):
        shape = "x".join(map(str, got[k % len(got)].shape))
        print(f"{row.name:24s} {shape:>16s} {row.pcc:9.6f} {row.max_abs:10.3g} {row.scale:10.3g} {row.relative:9.2g}")
    passed = all(row.passes(bar) for row in rows)
    lowest, largest = min((r.pcc for r in rows), default=1.0), max((r.relative for r in rows), default=0.0)
    print(
        f"{'pass' if passed else 'FAIL'}: lowest PCC against the model itself is {lowest:.6f}, the bar is {bar}; "
        f"largest error is {largest:.2g} of the largest value, the bar is {MAX_RELATIVE}"
    )
    rules = {row.name: row.rule for row in rows if row.rule}
    for name, rule in rules.items():
        print(f"{name}: the machine's own arithmetic explains it ({rule}); see docs/numbers.md")
    if len(rows) > len(got):
        print("the model's second answer to the same inputs is another one: it keeps something from run to run")
    return passed
