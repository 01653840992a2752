"""Two graphs that should calculate the same: which op of the second is the first that does not.

Values of ops that both have are compared. A difference alone proves nothing: a pass may move a factor from one op to
the next. So an op is blamed only if the outputs come right once its value is replaced by the reference. What is
between it and the right values before it is what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.graph import TILE, Graph, GraphError, Node, NodeKind
from tbuda_lab.core.graph.phases import evaluation_order
from tbuda_lab.core.ops.evaluate import ancestors

Tensor = torch.Tensor
Values = Mapping[str, Tensor]
_MOST_PROOFS = 8  # suspects for which the rest of the graph is evaluated once more


class NoValueError(Exception):
    """An op of a graph that cannot be calculated, which is a fault of its stage. op: its name."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(f"{op}: {reason}")
        self.op, self.reason = op, reason


class GraphRun:
    """Every value of a graph, and the values again after some of them are replaced.

    step: a node's value of the values of its operands, None where it is not known; size: the shape that an op's value
    should have, by what the graph says of it.
    """

    def __init__(
        self,
        graph: Graph,
        step: Callable[[Node, Values], Tensor | None],
        size: Callable[[Node], tuple[int, ...]],
    ) -> None:
        self.graph, self._step, self._size = graph, step, size
        self.order = evaluation_order(graph)
        self.place = {node.name: k for k, node in enumerate(self.order)}
        self.users = graph.users()
        self.values: dict[str, Tensor] = {}
        for node in self.order:
            try:
                value = self.value_of(node, self.values)
            except NoValueError as error:
                if node.kind is NodeKind.INPUT and not self.users.get(node.name):
                    continue  # an argument that nothing reads
                self._blame_size(error)
                raise
            if value is not None:
                self.values[node.name] = value

    def _blame_size(self, error: NoValueError) -> None:
        """Lays an op that cannot be calculated to one before it that gives another shape than it should."""
        before = ancestors(self.graph, error.op)
        name = next((n for n in self.values if n in before and self.other_size(n)), "")
        if name:
            error.op, error.reason = name, f"{self.other_size(name)} ({error.op}: {error.reason})"

    def other_size(self, name: str) -> str:
        """That an op gives another shape than the graph says; "" where it does not."""
        node, value = self.graph[name], self.values.get(name)
        if node.kind is not NodeKind.OP or value is None or tuple(value.shape) == self._size(node):
            return ""
        return f"its value is of shape {tuple(value.shape)}, by its graph it is of {self._size(node)}"

    def value_of(self, node: Node, values: Values) -> Tensor | None:
        """A node's value of others; None where it is not known. Raises `NoValueError` where torch refuses."""
        if not all(s in values for s in node.sources):
            return None
        try:
            return self._step(node, values)
        except (TbudaError, GraphError, RuntimeError, ValueError, TypeError, IndexError) as error:
            raise NoValueError(node.name, str(error).partition("\n")[0]) from error

    def replaced(self, forced: Values) -> dict[str, Tensor]:
        """The values that change where those of `forced` are replaced."""
        changed = dict(forced)
        overlay = _Over(changed, self.values)
        first = min((self.place[n] for n in forced), default=0)
        for node in self.order[first + 1 :]:
            if node.name not in forced and any(s in changed for s in node.sources):
                value = self.value_of(node, overlay)
                if value is not None:
                    changed[node.name] = value
        return changed


class _Over(Mapping[str, Tensor]):
    """One mapping over another."""

    def __init__(self, top: Values, below: Values) -> None:
        self.top, self.below = top, below

    def __getitem__(self, name: str) -> Tensor:
        return self.top[name] if name in self.top else self.below[name]

    def __contains__(self, name: object) -> bool:
        return name in self.top or name in self.below

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter({**self.below, **self.top})

    def __len__(self) -> int:
        return len(set(self.below) | set(self.top))


def relative_error(expected: Tensor, got: Tensor) -> float:
    """Length of the difference over that of what is expected; inf where one has NaN or infinities that the other has
    not. Of scores behind a finite mask that of what the mask leaves, if it is larger: -10,000 hides all else. Of whole
    numbers and truth values, such as indices, the share that differs, less `TIES`.
    """
    if not expected.is_floating_point():
        return max(0.0, differing_share(expected, got) - TIES)
    a, b = (_floats(t) for t in (expected, got))
    error = _relative(a, b)
    rest = unmasked(a)
    return error if rest is None else max(error, _relative(a[rest], b[rest]))


def differing_share(expected: Tensor, got: Tensor) -> float:
    """Share of whole numbers or truth values that are others; 0 where there are none."""
    other = expected.reshape(-1) != got.reshape(-1).to(expected.dtype)
    return float(other.double().mean()) if other.numel() else 0.0


def _floats(value: Tensor) -> npt.NDArray[np.floating]:
    """Flat. Squares of integers would overflow, and NumPy has no bfloat16."""
    plain = value.dtype in (torch.float32, torch.float64, torch.float16)
    return (value if plain else value.double()).detach().reshape(-1).numpy()


_LARGEST = torch.finfo(torch.bfloat16).max
TIES = 0.01
"""Share of indices that may differ: of values that are equal but for float32's noise either may be the largest."""
MASK, APART = 1e3, 64.0
"""Numbers of at least this size that are all within a factor of 2, and so many times larger than all others, are a
mask's: of scores, `finfo.min` or -10,000 and what was added to it."""


def unmasked(values: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_] | None:
    """Where no mask lies; None where there is none, or nothing else."""
    size = np.abs(values)
    largest = size.max(initial=0.0)
    if not MASK <= largest < np.inf:
        return None
    rest = size < largest / 2
    return rest if 0 < size.max(initial=0.0, where=rest) <= largest / APART else None


def _saturated(values: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """With infinity for what is as large as bfloat16 goes: a mask of -inf or `finfo.min` is that on the machine."""
    return np.where(np.abs(values) >= _LARGEST, np.copysign(np.inf, values), values)


def _relative(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> float:
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities, which are looked at below
        difference = a - b
        length, off = float(np.sqrt(np.vdot(a, a))), float(np.sqrt(np.vdot(difference, difference)))
    if not (np.isfinite(length) and np.isfinite(off)):
        a, b = _saturated(a), _saturated(b)
        finite = np.isfinite(a) & np.isfinite(b)
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        a, difference = a[finite].astype(np.float64), a[finite].astype(np.float64) - b[finite].astype(np.float64)
        length, off = float(np.sqrt(a @ a)), float(np.sqrt(difference @ difference))
    return off / length if length > 1e-30 else off


class StageSearch:
    """One stage. run: its graph; known: reference values of ops by name, in the form of the run's values (`view` takes
    of a value what is compared); outputs: names of `known` that decide whether it is right; beyond: by op the value
    after the activation that it should have taken over, which is no op of its own here."""

    def __init__(
        self,
        run: GraphRun,
        known: Values,
        outputs: Sequence[str],
        tolerance: float,
        view: Callable[[str, Tensor], Tensor] = lambda _, value: value,
        force: Callable[[str, Tensor], Tensor] = lambda _, value: value,
        beyond: Values | None = None,
    ) -> None:
        self.run, self.tolerance, self._view, self._force = run, tolerance, view, force
        self.beyond = beyond or {}
        self.known = {n: v for n, v in known.items() if n in run.values}
        self.outputs = [n for n in outputs if n in self.known]
        self.errors = {n: relative_error(v, view(n, run.values[n])) for n, v in self.known.items()}

    def wrong(self) -> list[str]:
        return [n for n in self.outputs if not self.errors[n] <= self.tolerance]

    def blame(self) -> tuple[str, tuple[str, ...]]:
        """(op, ops that it stands for) of the first wrong one; ("", ()) where the outputs are right.

        Suspects are ops that are wrong by themselves, with the reference for what they read: one evaluation of the
        graph tells them all. Of several, few and in the order of the graph, each is put to the proof; one alone has it:
        with its value that of the reference, all behind it are right.
        """
        wrong = self.wrong()
        if not wrong:
            return "", ()
        reached = self._reached(wrong)
        sized = next((n for n in self.run.place if n in reached and self.run.other_size(n)), "")
        if sized:
            return sized, (sized,)
        own = self._own_errors(reached)
        suspects = [n for n, error in own.items() if not error <= self.tolerance] or list(own)
        tried = suspects[:_MOST_PROOFS] if len(suspects) > 1 else []
        name = next((n for n in tried if self._heals({n: self.known[n]}, wrong)), (suspects or wrong)[0])
        region = self._region(name)
        lost = self._without_activation(region, wrong)
        return (lost, (lost,)) if lost else (name, region)

    def _without_activation(self, region: Sequence[str], wrong: Sequence[str]) -> str:
        """Of what the ops of a region read, the one that is right before its activation and heals all behind it; ""."""
        for name in {s: None for n in region for s in self.run.graph[n].sources}:
            value = self.beyond.get(name)
            if value is None or relative_error(value, self._view(name, self.run.values[name])) <= self.tolerance:
                continue
            if self._heals({name: value}, wrong):
                return name
        return ""

    def _own_errors(self, reached: set[str]) -> dict[str, float]:
        """Of every known node that was reached, producers first, its error where all known values before it are those
        of the reference."""
        errors: dict[str, float] = {}
        reference: dict[str, Tensor] = {}
        overlay = _Over(reference, self.run.values)
        for node in self.run.order:
            name = node.name
            if name not in reached:
                continue
            value = self.run.value_of(node, overlay) if any(n in reference for n in node.sources) else None
            if name not in self.known:
                if value is not None:
                    reference[name] = value
                continue
            again = self.errors[name] if value is None else relative_error(self.known[name], self._view(name, value))
            errors[name] = again
            if not self._right(name):
                reference[name] = self._force(name, self.known[name])
        return errors

    def _heals(self, values: Values, wrong: Sequence[str]) -> bool:
        """Whether all outputs are right with these values in place of what their ops gave."""
        forced = {n: self._force(n, value) for n, value in values.items()}
        try:
            changed = self.run.replaced(forced)
        except NoValueError:  # of another shape than what follows takes
            return False
        return all(
            relative_error(self.known[o], self._view(o, changed[o])) <= 10 * self.tolerance
            for o in wrong
            if o in changed
        ) and all(o in changed for o in wrong)

    def _right(self, name: str) -> bool:
        return name in self.known and self.errors[name] <= self.tolerance

    def _reached(self, wrong: Sequence[str]) -> set[str]:
        """Nodes from which a wrong output is reached over values that are wrong, or not known to be right."""
        reached, stack = set(wrong), list(wrong)
        while stack:
            for source in self.run.graph[stack.pop()].sources:
                if source not in reached and not self._right(source):
                    reached.add(source)
                    stack.append(source)
        return reached

    def _region(self, name: str) -> tuple[str, ...]:
        """The op and those between it and the values before it that are right. A known one that is not may be so
        rightly, as the sum before a factor that a pass has moved, or be what is wrong."""
        seen, stack = {name}, [name]
        while stack:
            for source in self.run.graph[stack.pop()].sources:
                node = self.run.graph[source]
                if source not in seen and node.kind is NodeKind.OP and not self._right(source):
                    seen.add(source)
                    stack.append(source)
        return tuple(sorted(seen, key=self.run.place.__getitem__))


def first_tile(expected: np.ndarray, got: np.ndarray, share: float = 0.01) -> tuple[int, int, int] | None:
    """(z, row, column) of the first 32x32 tile that is off by more than `share` of the largest wanted magnitude, of
    tensors whose leading dimensions are slices."""
    a, b = np.atleast_2d(np.asarray(expected)), np.atleast_2d(np.asarray(got))
    a, b = a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:])
    finite = np.isfinite(a)
    scale = float(np.abs(a).max(initial=0.0, where=finite))
    with np.errstate(invalid="ignore", over="ignore"):
        off = ~(np.abs(a - b) <= max(share * scale, 1e-9))
    if not finite.all():
        off &= ~(np.isnan(a) & np.isnan(b)) & ~(a == b)  # infinities less themselves are NaN
    rows = np.add.reduceat(off, range(0, off.shape[1], TILE), axis=1, dtype=np.int32)
    tiles = np.argwhere(np.add.reduceat(rows, range(0, off.shape[2], TILE), axis=2))
    if not len(tiles):
        return None
    return int(tiles[0, 0]), int(tiles[0, 1]), int(tiles[0, 2])
