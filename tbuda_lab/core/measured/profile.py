"""Types of a measured profile: ops as they ran, with shapes, formats, memory and times, whatever their file."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.errors import Diagnostic, quantity
from tbuda_lab.core.measured.devices import Devices
from tbuda_lab.core.measured.op_codes import OTHER, group_of

TILE = 32
OUTLIER_NS = 1e9
"""Above this an op's time is taken for a slip of two time bases: about 1,764 s are added where they differ."""

_BITS = {
    "BFLOAT16": 16,
    "FLOAT32": 32,
    "BFLOAT8_B": 8.5,
    "BFLOAT4_B": 4.5,
    "BFLOAT2_B": 2.5,
    "UINT32": 32,
    "INT32": 32,
    "UINT16": 16,
    "UINT8": 8,
    "FLOAT16": 16,
    "INT8": 8,
}
INCOMPLETE = ("profile-row", "profile-rows", "profile-event", "profile-replays", "profile-device")
"""Rules of findings that say that ops of the run are missing, or are not what ran once."""
ARCH_CLOCK = {"wormhole_b0": 1.0, "blackhole": 1.35, "grayskull": 1.2}
"""Cycles per ns of an arch's cores."""
ARCH_DRAM = {"wormhole_b0": 200.0, "blackhole": 400.0, "grayskull": 100.0}
"""Bytes per ns of one chip's DRAM."""


@dataclasses.dataclass(frozen=True)
class MeasuredTensor:
    """An operand or result. shape: logical, (w, z, y, x); padded: as it is stored; memory: as the file says it; known:
    False where the file has no size that can be read, and all sizes are 0."""

    shape: tuple[int, ...]
    padded: tuple[int, ...]
    layout: str = ""
    datatype: str = ""
    memory: str = ""
    known: bool = True

    @property
    def elements(self) -> int:
        """Elements that are stored, padding included."""
        return math.prod(self.padded)

    @property
    def bytes(self) -> float:
        """Bytes that are stored."""
        return self.elements * _BITS.get(self.datatype, 16) / 8

    @property
    def tiles(self) -> int:
        """32x32 tiles that hold it."""
        *lead, rows, cols = self.padded
        return math.prod(lead) * -(-rows // TILE) * -(-cols // TILE)

    @property
    def in_dram(self) -> bool:
        return "L1" not in self.memory

    @property
    def sharded(self) -> bool:
        return "SHARDED" in self.memory


UNKNOWN = MeasuredTensor((0,) * 4, (0,) * 4, known=False)
"""Stands where an operand's size cannot be read, so that those behind it keep their places."""


@dataclasses.dataclass(frozen=True)
class MeasuredOp:
    """One op as it ran on one device.

    name: unique in the profile; code: as the file has it; row: its line in the file; time: ns, None where the file has
    none; gap: ns before it; repeats: how many runs of a trace `time` is the median of. ideal, compute, bandwidth: the
    vendor's own roofline, ns, 0 where there is none. section: the text of the mark before it. facts: of its attributes,
    what is known by name.
    """

    name: str
    code: str
    kind: str
    row: int
    time: float | None
    device: int = 0
    gap: float = 0.0
    cores: int = 0
    available: int = 0
    fidelity: str = ""
    inputs: tuple[MeasuredTensor, ...] = ()
    outputs: tuple[MeasuredTensor, ...] = ()
    ideal: float = 0.0
    compute: float = 0.0
    bandwidth: float = 0.0
    section: str = ""
    call: int = 0
    trace: str = ""
    replay: str = ""
    repeats: int = 1
    outlier: bool = False
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def group(self) -> str:
        return group_of(self.kind)

    @property
    def sized(self) -> bool:
        """Whether it has operands, and all their sizes and those of its results are known."""
        return bool(self.inputs) and not self.unread

    @property
    def unread(self) -> bool:
        """Whether a size of an operand or result could not be read."""
        return any(not t.known for t in (*self.inputs, *self.outputs))

    @property
    def fact(self) -> dict[str, str]:
        return dict(self.facts)

    @property
    def measurement(self) -> float | None:
        """ns; None where there is no time, and for an outlier, whose time is none."""
        return None if self.outlier else self.time

    @property
    def duration(self) -> float:
        """ns that count in sums: 0 where there is no `measurement`."""
        return self.measurement or 0.0

    @property
    def signature(self) -> tuple[object, ...]:
        """What runs of one op have in common."""
        return (self.code, tuple((t.shape, t.datatype) for t in (*self.inputs, *self.outputs)))

    @property
    def shape_text(self) -> str:
        """ "1x19x768 · 768x768 → 1x19x768"."""
        words = [" · ".join(map(_shape_text, self.inputs)), " · ".join(map(_shape_text, self.outputs))]
        return " → ".join(w for w in words if w)


def _shape_text(tensor: MeasuredTensor) -> str:
    if not tensor.known:
        return "?"
    shape = list(tensor.shape)
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    return "x".join(map(str, shape))


def size_text(shapes: Mapping[str, tuple[int, ...]], name: str) -> str:
    """ "768x768"; "missing" for a name that there is not."""
    return "x".join(map(str, shapes[name])) or "one number" if name in shapes else "missing"


@dataclasses.dataclass(frozen=True)
class MeasuredProfile:
    """A file's ops in order. source: "ops_perf", "trace" (ours) or "chrome"; findings: what could not be read, by row;
    signposts: (place in `ops`, text); arch: "" where the file does not say it; columns: those that the file had;
    arch_row: the first that says `arch`, 0 where none does; parameters, model_inputs: shapes of a model's by name, of
    our own traces; clocks: columns that times are of; host_ops: left out, as the host ran them."""

    name: str
    source: str
    ops: tuple[MeasuredOp, ...]
    findings: tuple[Diagnostic, ...] = ()
    signposts: tuple[tuple[int, str], ...] = ()
    arch: str = ""
    rows: int = 0
    columns: tuple[str, ...] = ()
    arch_row: int = 0
    parameters: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    model_inputs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    clocks: tuple[str, ...] = ()
    host_ops: int = 0
    parts: bool = False

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted({op.device for op in self.ops}))

    @property
    def total(self) -> float:
        """ns of all ops of `sequence`."""
        return sum(op.duration for op in self.sequence())

    @property
    def gaps(self) -> tuple[Diagnostic, ...]:
        """Findings because of which `total` is not that of one whole run. Ops without a time are not among them."""
        return tuple(f for f in self.findings if f.rule in INCOMPLETE)

    @property
    def typed(self) -> float:
        """Share of ops whose kind is known."""
        return sum(op.kind != OTHER for op in self.ops) / max(1, len(self.ops))

    def sequence(self) -> tuple[MeasuredOp, ...]:
        """The ops of one run in order. Of devices that run the same ops each op has the time of the slowest; ops of
        devices that run others are all among them (`Devices`)."""
        return Devices(self.ops, self.parts).run()

    def by(self, *fields: str) -> list[tuple[tuple[str, ...], int, float]]:
        """(values of fields, ops, ns), most time first. fields: names of `MeasuredOp`, e.g. "kind", "section"."""
        totals: dict[tuple[str, ...], list[float]] = collections.defaultdict(list)
        for op in self.sequence():
            totals[tuple(str(getattr(op, f)) for f in fields)].append(op.duration)
        rows = [(key, len(times), float(np.sum(times))) for key, times in totals.items()]
        return sorted(rows, key=lambda row: (-row[2], row[0]))


def aggregate_replays(
    ops: Sequence[MeasuredOp], name: str, cut: bool = False
) -> tuple[tuple[MeasuredOp, ...], list[Diagnostic]]:
    """Repeated runs of a captured trace as one: the median time by place in the trace, outliers left out.

    Runs are told apart by (device, trace, replay session). A last run that ends early is left out, and a finding says
    so. Where the runs of a trace differ otherwise they stay as they are, which is a finding, too. name: of the file;
    cut: its last row is not whole, so that the last op may have lost its shapes.
    """
    runs: dict[tuple[int, str], dict[str, list[int]]] = {}
    for at, op in enumerate(ops):
        if op.trace and op.replay:
            runs.setdefault((op.device, op.trace), {}).setdefault(op.replay, []).append(at)
    merged: dict[int, MeasuredOp] = {}
    gone: set[int] = set()
    findings: list[Diagnostic] = []
    for (device, trace), replays in runs.items():
        lanes = list(replays.values())
        if len(lanes) < 2:
            continue

        def note(rule: str, text: str, where: str = f"{name}, device {device}, trace {trace}") -> None:
            findings.append(Diagnostic("warning", where, rule, text))

        runs_text, first, last = quantity(len(lanes), "run"), lanes[0], lanes[-1]
        early = _ends_early([ops[i] for i in last], [ops[i] for i in first], cut and last[-1] == len(ops) - 1)
        whole = lanes[:-1] if early else lanes
        signatures = [ops[i].signature for i in first]
        if any([ops[i].signature for i in lane] != signatures for lane in whole[1:]):
            note("profile-replays", f"its {runs_text} are not of the same ops; they are not joined")
            continue
        for places in zip(*whole, strict=True):
            merged[places[0]] = _joined([ops[i] for i in places])
            gone.update(places[1:])
        if early:
            gone.update(last)
            note(
                "profile-replay-cut", f"the last of its {runs_text} has {len(last)} of {len(first)} ops; it is left out"
            )
    if cut and merged and not (ops[-1].trace and ops[-1].replay) and ops[-2].replay:
        gone.add(len(ops) - 1)
        text = f"{ops[-1].code[:60]} lost the run that it is of; it is left out"
        findings.append(Diagnostic("warning", f"{name}, row {ops[-1].row}", "profile-replay-cut", text))
    return tuple(merged.get(i, op) for i, op in enumerate(ops) if i not in gone), findings


def _ends_early(run: Sequence[MeasuredOp], other: Sequence[MeasuredOp], cut: bool) -> bool:
    """Whether a run is the other up to a place. cut: of its last op only the code is sure."""
    sure = len(run) - cut
    alike = all(a.signature == b.signature for a, b in zip(run[:sure], other, strict=False))
    if cut:
        return alike and len(run) <= len(other) and run[-1].code == other[sure].code
    return alike and len(run) < len(other)


def _joined(runs: Sequence[MeasuredOp]) -> MeasuredOp:
    good = [op.time for op in runs if op.time is not None and not op.outlier]
    times = good or [op.time for op in runs if op.time is not None]
    return dataclasses.replace(
        runs[0],
        time=float(np.median(times)) if times else None,
        gap=float(np.median([op.gap for op in runs])),
        repeats=len(runs),
        outlier=not good and bool(times),
    )
