"""Opens a profile of any known form."""

from __future__ import annotations

from pathlib import Path

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.measured.ops_perf import read_ops_perf
from tbuda_lab.core.measured.profile import MeasuredProfile
from tbuda_lab.core.measured.trace_json import read_trace

FORMS = "TT-Metal's ops_perf_results*.csv, a trace of `tbuda export trace`, or a trace of Chrome or Perfetto as JSON"


def read_profile(path: str | Path) -> MeasuredProfile:
    """The ops of a measured run: of a CSV of TT-Metal's profiler, or of a trace as JSON (ours, Chrome's, Perfetto's).

    What can be read is kept, what cannot be stands in `findings` with its row. Raises `InputError` naming file and row
    for a file that holds none.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"a profile is the path of a file, not {type(path).__name__}; it is {FORMS}")
    file = Path(path)
    try:
        with file.open("rb") as stream:
            head = stream.read(4096)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error}") from error
    if head.startswith(b"\x1f\x8b") or b"\0" in head:
        raise InputError(f"{file.name} is no text; a profile is {FORMS}")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        return read_trace(file)
    return read_ops_perf(file)
