"""Profiles in the form of TT-Metal's profiler, written here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

DIMS = "WZYX"
HEAD = (
    "OP CODE",
    "OP TYPE",
    "GLOBAL CALL COUNT",
    "DEVICE ID",
    "DEVICE ARCH",
    "ATTRIBUTES",
    "MATH FIDELITY",
    "CORE COUNT",
    "AVAILABLE WORKER CORE COUNT",
    "OP TO OP LATENCY [ns]",
    "DEVICE KERNEL DURATION [ns]",
    "DEVICE KERNEL DURATION PER CORE MAX [ns]",
)
TAIL = ("METAL TRACE ID", "METAL TRACE REPLAY SESSION ID", "PM IDEAL [ns]")


def tensor_columns(name: str, old: bool = False) -> list[str]:
    dims = [f"{name}_{d}" if old else f"{name}_{d}_PAD[LOGICAL]" for d in DIMS]
    return [*dims, f"{name}_LAYOUT", f"{name}_DATATYPE", f"{name}_MEMORY"]


def op(
    code: str, time: Any, inputs: Sequence[Sequence[int]] = (), output: Sequence[int] = (), **cells: Any
) -> dict[str, Any]:
    """One row. Shapes are logical; the last two sizes are padded to whole tiles."""
    row = {
        "OP CODE": code,
        "OP TYPE": "tt_dnn_device",
        "DEVICE ID": 0,
        "DEVICE ARCH": "blackhole",
        "MATH FIDELITY": "HiFi4",
        "CORE COUNT": 8,
        "AVAILABLE WORKER CORE COUNT": 64,
        "DEVICE KERNEL DURATION [ns]": time,
        "PM IDEAL [ns]": 1,
    }
    tensors = [(f"INPUT_{k}", s) for k, s in enumerate(inputs)] + ([("OUTPUT_0", output)] if output else [])
    for name, shape in tensors:
        whole = (1,) * (4 - len(shape)) + tuple(shape)
        for k, (d, size) in enumerate(zip(DIMS, whole, strict=True)):
            padded = -(-size // 32) * 32 if k > 1 else size
            row[f"{name}_{d}_PAD[LOGICAL]"], row[f"{name}_{d}"] = f"{padded}[{size}]", size
        row |= {f"{name}_LAYOUT": "TILE", f"{name}_DATATYPE": "BFLOAT16", f"{name}_MEMORY": "DEV_0_DRAM_INTERLEAVED"}
    return row | {k.replace("_", " ").upper() if k.islower() else k: v for k, v in cells.items()}


def signpost(text: str) -> dict[str, Any]:
    return {"OP CODE": text, "OP TYPE": "signpost"}


def table(rows: Iterable[dict[str, Any]], inputs: int = 3, old: bool = False, without: Sequence[str] = ()) -> str:
    """The text of a file; `without`: columns that it does not have."""
    names = [
        *HEAD,
        *(c for k in range(inputs) for c in tensor_columns(f"INPUT_{k}", old)),
        *tensor_columns("OUTPUT_0", old),
        *TAIL,
    ]
    names = [n for n in names if n not in without]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, extrasaction="ignore")
    writer.writeheader()
    for number, row in enumerate(rows):
        writer.writerow({"GLOBAL CALL COUNT": 1024 * (number + 1), **row})
    return stream.getvalue()


def perceptron_rows(times: Sequence[float] = (9000.0, 1500.0, 7000.0)) -> list[dict[str, Any]]:
    """What TTNN would run for the perceptron of the session's tests: two products with bias and an activation."""
    first, act, second = times
    return [
        op("TilizeWithValPaddingDeviceOperation", 2500, [(128, 256)], (128, 256)),
        op("MatmulDeviceOperation", first, [(128, 256), (256, 512), (1, 512)], (128, 512)),
        op("UnaryDeviceOperation", act, [(128, 512)], (128, 512)),
        op("MatmulDeviceOperation", second, [(128, 512), (512, 128), (1, 128)], (128, 128)),
    ]
