"""The load of every link of an epoch, and who makes it.

load = bytes per input over a link / limiter cycles of the epoch / bytes per cycle of a link (32,
placement.md#device-limits). An estimate: netlists assign no NoC, and the backend's router may spread pipes otherwise.
It limits nothing; limiter cycles count half of a link's peak per operand (placement.md#limiter-cycles).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.analysis.noc.transfers import transfers_of
from tbuda_lab.core.balancer.types import Epoch
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device.noc import X, hops, link_bytes
from tbuda_lab.core.errors import InputError

NOCS = ("0", "1", "both")
"""Which NoC carries the transfers; both: each goes where its way is shorter, on NoC 0 where they are equal."""

Node = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class NocFlow:
    """Bytes per input from a producer to a consumer (ops or queues), wherever they go."""

    producer: str
    consumer: str
    bytes: float


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """A link: its NoC, the nodes (x, y) it joins, bytes per input, the share of its bandwidth asked, and the flows over
    it with their bytes, largest first."""

    noc: int
    start: Node
    end: Node
    bytes: float
    load: float
    flows: tuple[NocFlow, ...]


@dataclasses.dataclass(frozen=True)
class LinkMap:
    """Links of a chip in an epoch. by_flow: (flows, NoC, axis, y, x) bytes per input over the link that leaves a node;
    cycles: of the epoch per input; capacity: bytes per cycle of a link; left_out: bytes per input to and from the host
    and other chips, which are on no link here."""

    epoch: int
    chip: int
    noc: str
    flows: tuple[tuple[str, str], ...]
    by_flow: np.ndarray
    moved: np.ndarray  # (flows,) bytes per input
    cycles: int
    capacity: float
    left_out: float

    @property
    def bytes(self) -> np.ndarray:
        """(NoC, axis, y, x) bytes per input over every link."""
        total: np.ndarray = self.by_flow.sum(axis=0)
        return total

    @property
    def load(self) -> np.ndarray:
        """(NoC, axis, y, x) share of every link's bandwidth that is asked for."""
        share: np.ndarray = self.bytes / max(1, self.cycles) / self.capacity
        return share

    def busiest(self, n: int = 10) -> list[LinkUse]:
        """The n links with most bytes, and who uses them."""
        total = self.bytes
        order = np.argsort(-total, axis=None, kind="stable")[:n]
        return [self.use(*(int(i) for i in np.unravel_index(k, total.shape))) for k in order if total.flat[k] > 0]

    def use(self, noc: int, axis: int, y: int, x: int) -> LinkUse:
        """One link."""
        rows, columns = self.by_flow.shape[-2:]
        step = -1 if noc else 1
        end = ((x + step) % columns, y) if axis == X else (x, (y + step) % rows)
        here = self.by_flow[:, noc, axis, y, x]
        order = [int(k) for k in np.argsort(-here, kind="stable") if here[k] > 0]
        flows = tuple(NocFlow(*self.flows[k], float(here[k])) for k in order)
        total = float(here.sum())
        return LinkUse(noc, (x, y), end, total, total / max(1, self.cycles) / self.capacity, flows)


def link_map(result: CompileResult, epoch: int, noc: str = "both") -> LinkMap:
    """What the links carry in an epoch. Raises `InputError` for an epoch or NoC that there is not."""
    chip = _epoch(result, epoch).chip
    if noc not in NOCS:
        raise InputError(f"no NoC {noc!r}; there are {', '.join(NOCS)}")
    matches, size = transfers_of(result, epoch), result.device.noc_size
    ways = [hops(n, matches.source, matches.target[n], size) for n in (0, 1)]
    second = ways[1] < ways[0] if noc == "both" else np.full(len(matches.bytes), noc == "1")
    count = max(1, len(matches.flows))
    parts = []
    for number, mine in enumerate((~second, second)):
        parts.append(
            link_bytes(
                number, matches.source[mine], matches.target[number][mine], matches.bytes[mine], size,
                    matches.flow[mine], count
            )
        )
    by_flow = np.stack(parts, axis=1)[: len(matches.flows)]
    report = result.placement.report
    cycles = result.placement.epoch_cycles[epoch] if report is None else report.epochs[epoch].limiter_cycles
    return LinkMap(
        epoch, chip, noc, matches.flows, by_flow,
        np.bincount(matches.flow, weights=matches.bytes, minlength=len(matches.flows)), int(cycles),
        float(result.device.noc_bytes_per_cycle), matches.left_out,
    )  # fmt: skip


def sibling(result: CompileResult, epoch: int, chip: int) -> int:
    """The epoch that runs on a chip at the same time as another. Raises `InputError` where the chip rests then."""
    temporal = _epoch(result, epoch).temporal
    together = {e.chip: e.index for e in result.placement.epochs if e.temporal == temporal}
    if chip not in together:
        busy = ", ".join(map(str, sorted(together)))
        raise InputError(f"chip {chip} has no ops beside epoch {epoch}; chips that have some: {busy}")
    return together[chip]


def _epoch(result: CompileResult, epoch: int) -> Epoch:
    epochs = result.placement.epochs
    if not 0 <= epoch < len(epochs):
        raise InputError(f"there is no epoch {epoch}; there are {len(epochs)}")
    return epochs[epoch]
