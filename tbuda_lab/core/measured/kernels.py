"""A second, named table of kernels: what ops take that run one at a time, from and to DRAM ("ttnn"), in ns.

It stands beside the cycle model of Buda's pipelined kernels (`core.cost`), and nothing of the two is ever mixed. An op
takes `start + max(compute, data)`: `compute` its products on the multipliers of its cores; `data` the sum of what
moves: bytes of DRAM of the whole chip, tiles that one core reads and writes, bytes that stay in L1, tiles whose rows
are gathered from several. Each has one coefficient in a kernel (`COEFFICIENTS`). A kernel without runs of its own takes
those of its kind, a kind those of its group, a group those of all ops.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.errors import InputError, UnknownDevice
from tbuda_lab.core.files import yaml_map
from tbuda_lab.core.measured.profile import ARCH_CLOCK, ARCH_DRAM, TILE, MeasuredOp, MeasuredProfile, MeasuredTensor

F64 = npt.NDArray[np.float64]

COEFFICIENTS = ("start", "compute", "dram", "write", "read", "l1", "gather")
"""start: ns; compute and dram: times what the machine could do at best; write, read and gather: cycles a tile on one
core; l1: times 48 bytes a cycle and core."""
PRIOR = np.array([800.0, 1.25, 1.2, 270.0, 270.0, 1.0, 2000.0])
"""What is assumed before any run is seen: a launch below a microsecond, 80 % of the multiplier, 83 % of the DRAM, a
tile's read or write at the latency of one small transfer, a gather of 32 rows at 60 cycles each."""
TILE_CYCLES = 16.0  # of one 32x32x32 product in one pass of the multiplier
L1_BYTES = 48.0  # a cycle, core to core
_PASSES = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
_PARTIAL = ("embedding", "cache", "slice", "slice_write")
_REACH = 2.0  # within this factor of what was seen an estimate is no extrapolation
_FEWEST = 2  # different ops that make a kernel known


@dataclasses.dataclass(frozen=True)
class Machine:
    """The chip of a profile. clock: cycles per ns; dram: bytes per ns."""

    arch: str
    clock: float
    dram: float


def machine_of(arch: str) -> Machine:
    """Raises `UnknownDevice`. "" is taken for blackhole, which the public profiles without a name of their chip are."""
    name = arch or "blackhole"
    if name not in ARCH_CLOCK:
        raise UnknownDevice(f"no machine for profiles of {arch!r}; there are {', '.join(ARCH_CLOCK)}")
    return Machine(name, ARCH_CLOCK[name], ARCH_DRAM[name])


def profile_machine(profile: MeasuredProfile) -> Machine:
    """The machine that a profile says it is of. Raises `UnknownDevice` with file, row and column."""
    try:
        return machine_of(profile.arch)
    except UnknownDevice as error:
        raise UnknownDevice(f"{profile.name}, row {profile.arch_row}, column 'DEVICE ARCH': {error}") from error


def kernel_keys(op: MeasuredOp) -> tuple[str, str, str, str]:
    """From the general to the particular: "", group, kind, kernel ("matmul.2d")."""
    program = op.fact.get("program", "")
    variant = ""
    if op.kind == "matmul":
        variant = next((name for word, name in _MATMULS if word in program), "simple")
    elif op.inputs and op.inputs[0].sharded:
        variant = "sharded"
    return "", op.group, op.kind, f"{op.kind}.{variant}" if variant else op.kind


_MATMULS = (("DRAMSharded", "dram_sharded"), ("1D", "1d"), ("Minimal", "minimal"), ("Cast", "2d"), ("Reuse", "2d"))


def _tiles(tensor: MeasuredTensor) -> float:
    return tensor.bytes / (2 * TILE * TILE) if tensor.layout == "ROW_MAJOR" else float(tensor.tiles)


def product_tiles(op: MeasuredOp) -> int:
    """32x32x32 products of an op: of a matmul or convolution, of both products of attention; 0 of others."""
    i, result = op.inputs, op.outputs[:1]
    if op.kind in ("matmul", "conv") and len(i) > 1 and result:
        inner = i[0].padded[-1] if op.kind == "matmul" else i[1].padded[-2]
        return result[0].tiles * -(-inner // TILE)
    if op.kind == "attention" and len(i) > 2:
        q, k, v = i[:3]
        heads = math.prod(q.padded[:-2])
        lengths = -(-q.padded[-2] // TILE) * -(-k.padded[-2] // TILE)
        return heads * lengths * -(-(q.padded[-1] + v.padded[-1]) // TILE)
    return 0


def features(op: MeasuredOp, machine: Machine) -> F64:
    """By coefficient what an op has of it, in ns; with `COEFFICIENTS` of 1 each the machine at its best."""
    cores = max(1, op.cores)
    i, o = list(op.inputs), list(op.outputs[:1])
    dram = sum(t.bytes for t in i + o if t.in_dram)
    l1 = max((t.bytes for t in i + o if not t.in_dram), default=0.0)
    read = sum(_tiles(t) for t in i if not t.sharded)
    write = sum(_tiles(t) for t in o if not t.sharded)
    if op.kind == "matmul" and len(i) > 1:
        write = float(sum(t.tiles for t in o))
        read = 0.0 if i[0].sharded else float(max(i[0].tiles, -(-i[0].padded[-1] // TILE) * cores))
    elif op.kind == "conv":
        read = 0.0
    elif op.kind == "embedding":  # of its table it reads a row for each result
        dram, read = 2 * sum(t.bytes for t in o), write
    elif op.kind == "cache" and i:  # it writes its last operand into a place of the first
        dram, read = 2 * i[-1].bytes, _tiles(i[-1])
        write = read
    elif op.kind in ("slice", "slice_write") and i and o:
        part = min((*i, *o), key=lambda t: t.bytes)
        once = op.kind == "slice" and o[0].sharded
        dram, read = part.bytes * (1 if once else 2), _tiles(part)
        write = read
    elif op.kind == "copy" and len(i) > 1:  # its result is also listed as an operand
        dram, read = dram / 1.5, read / 2
    return np.array(
        [
            1.0,
            product_tiles(op) / cores * _PASSES.get(op.fidelity, 4) * TILE_CYCLES / machine.clock,
            dram / machine.dram,
            math.ceil(write / cores) / machine.clock,
            math.ceil(read / cores) / machine.clock,
            l1 / cores / L1_BYTES / machine.clock,
            math.ceil(_gathers(op) / cores) / machine.clock,
        ]
    )


def _gathers(op: MeasuredOp) -> float:
    """Tiles of the result whose rows come from several tiles."""
    if op.kind not in ("transpose", "permute", "reshape") or not op.inputs or not op.outputs:
        return 0.0
    before, after = op.inputs[0], op.outputs[0]
    moves = op.fact.get("dim", "") not in ("WH", "CN") if op.kind == "transpose" else True
    if op.kind == "reshape" and before.shape[-2:] == after.shape[-2:]:
        moves = False
    return float(after.tiles) if moves else 0.0


def duration(coefficients: F64, rows: F64) -> F64:
    """ns of ops with these `features`, (n, 7)."""
    result: F64 = coefficients[0] + np.maximum(coefficients[1] * rows[:, 1], rows[:, 2:] @ coefficients[2:])
    return result


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Coefficients of one key. ops: runs that they were fitted to, of `different` shapes; left_out: median relative
    error on files that were left out of the fit (NaN where the key stands in one file only); low, high: of `features`,
    what was seen."""

    key: str
    coefficients: tuple[float, ...]
    ops: int
    different: int
    left_out: float
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Estimate:
    """ns of an op, the kernel that says so, and "" or why it is an extrapolation."""

    time: float
    kernel: str
    extrapolated: str


@dataclasses.dataclass(frozen=True)
class KernelTable:
    """Kernels by key, under a name. files: profiles that they were fitted to; errors: (group, ops, median relative
    error on files left out); archs: of those profiles, () where that is not known."""

    name: str
    kernels: Mapping[str, Kernel]
    files: tuple[str, ...] = ()
    errors: tuple[tuple[str, int, float], ...] = ()
    archs: tuple[str, ...] = ()

    def estimate(self, op: MeasuredOp, machine: Machine, work: F64 | None = None) -> Estimate:
        """What an op takes on a machine. work: its `features` there, if they are known already."""
        own = kernel_keys(op)
        kernel = next(self.kernels[key] for key in reversed(own) if key in self.kernels)
        row = features(op, machine) if work is None else work
        time = float(duration(np.array(kernel.coefficients), row[None])[0])
        why = self._why_extrapolated(kernel, own, row)
        if self.archs and machine.arch not in self.archs:
            why = f"no run on {machine.arch} was measured{why and '; '}{why}"
        return Estimate(time, kernel.key, why)

    def _why_extrapolated(self, kernel: Kernel, own: Sequence[str], row: F64) -> str:
        if kernel.key != own[3]:
            return f"no run of a {own[3]} was measured" + (f"; {kernel.key} stands for it" if kernel.key else "")
        if kernel.different < _FEWEST:
            return f"only one {kernel.key} was measured"
        low, high = np.array(kernel.low), np.array(kernel.high)
        beyond = (row > _REACH * np.maximum(high, 1e-9)) | (row * _REACH < low)
        beyond[[0, *np.flatnonzero((row == 0) & (low == 0))]] = False
        names = [COEFFICIENTS[k] for k in np.flatnonzero(beyond)]
        return f"{', '.join(names)} beyond what was measured" if names else ""


def bounds_of(op: MeasuredOp, machine: Machine, work: F64 | None = None) -> dict[str, float]:
    """The roofline of an op, ns each: "compute" at the peak of its cores, "dram" at the chip's bandwidth, "noc" at what
    its cores can take in. work: its `features` there, if they are known already."""
    cores = max(1, op.cores)
    row = features(op, machine) if work is None else work
    if op.kind in _PARTIAL:  # of its operands it touches a part alone, which its features count
        moved = float(row[2]) * machine.dram
    elif op.kind == "copy" and len(op.inputs) > 1:  # its result is also listed as an operand
        moved = op.inputs[0].bytes
    else:
        moved = sum(t.bytes for t in (*op.inputs, *op.outputs[:1]))
    return {"compute": float(row[1]), "dram": float(row[2]), "noc": moved / cores / L1_BYTES / machine.clock}


def dump_kernels(table: KernelTable) -> str:
    """The text of a table; `load_kernels` reads it back."""
    lines = [
        "# What ops take that run one at a time, from and to DRAM: start + max(compute, data), see",
        "# tbuda_lab/core/measured/kernels.py. Written by `tbuda calibrate --profile`; left_out: median relative error",
        "# on profiles that were left out of the fit.",
        f"kernels: {table.name}",
        f"coefficients: [{', '.join(COEFFICIENTS)}]",
        "files: [" + ", ".join(f"'{_plain(f)}'" for f in table.files) + "]",
        "archs: [" + ", ".join(f"'{_plain(a)}'" for a in table.archs) + "]",
        "errors:",
        *(f"  - {{group: '{g}', ops: {n}, left_out: {_number(e)}}}" for g, n, e in table.errors),
        "fits:",
    ]
    for key, k in sorted(table.kernels.items()):
        lines.append(f"  - {{key: '{key}', ops: {k.ops}, different: {k.different}, left_out: {_number(k.left_out)},")
        for name in ("coefficients", "low", "high"):
            values = ", ".join(f"{v:.6g}" for v in getattr(k, name))
            title, end = "values" if name == "coefficients" else name, "}" if name == "high" else ","
            lines.append(f"     {title}: [{values}]{end}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "null" if math.isnan(value) else f"{value:.4f}"


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isprintable() and c != "'")[:200]


def load_kernels(path: Path) -> KernelTable:
    """A table that `tbuda calibrate --profile` wrote. Raises `InputError` for another file."""
    data = yaml_map(path, "table of kernels")
    if not isinstance(data.get("fits"), list) or data.get("coefficients") != list(COEFFICIENTS):
        raise InputError(f"{path}: not a table of kernels: it has fits, and coefficients {', '.join(COEFFICIENTS)}")
    kernels = {}
    for entry in data["fits"]:
        try:
            kernel = Kernel(
                str(entry["key"]),
                _values(entry["values"]),
                int(entry["ops"]),
                int(entry["different"]),
                math.nan if entry["left_out"] is None else _finite(entry["left_out"]),
                _values(entry["low"]),
                _values(entry["high"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: not a kernel: {str(entry)[:200]}") from error
        kernels[kernel.key] = kernel
    if "" not in kernels:
        raise InputError(f"{path}: a table of kernels has one for all ops, with the key ''")
    files, archs = (tuple(map(str, v)) if isinstance(v := data.get(k), list) else () for k in ("files", "archs"))
    name = str(data.get("kernels", "kernels"))[:40]
    return KernelTable(name, kernels, files, _errors(data.get("errors")), archs)


def _errors(entries: Any) -> tuple[tuple[str, int, float], ...]:
    good = (
        [e for e in entries if isinstance(e, dict) and isinstance(e.get("left_out"), int | float)]
        if isinstance(entries, list)
        else []
    )
    return tuple((str(e.get("group")), int(e.get("ops", 0)), float(e["left_out"])) for e in good)


def _values(entry: Any) -> tuple[float, ...]:
    values = tuple(_finite(v) for v in entry)
    if len(values) != len(COEFFICIENTS) or min(values) < 0:
        raise ValueError(f"{entry} are not {len(COEFFICIENTS)} numbers")
    return values


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


@functools.cache
def packaged_kernels() -> KernelTable:
    """The table that comes with the package, fitted to public profiles (docs/measured.md)."""
    with resources.as_file(resources.files(__package__).joinpath("data", "ttnn.yaml")) as path:
        return load_kernels(path)
