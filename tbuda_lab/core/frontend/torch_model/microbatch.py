"""Whether dim 0 of a model's inputs is a microbatch, told from the calls of torch that the model makes.

What mixes elements can be lost before it reaches an output of the sample: beside huge numbers, behind a comparison that
is never true. So every call is looked at alone. It is made again on random numbers in place of those that depend on the
inputs: with every element one place further, where its results have to be one place further; with all elements but one
drawn anew, where the results of that one have to stay; and on fewer (or more) elements, as the model run on so many
calls it, where the results have to be theirs. The model run on one element, as it is traced, has to answer the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.frontend.eager import classes_kept, own_copy, same_seeds
from tbuda_lab.core.frontend.inputs import BoundInputs

MOVES = frozenset(
    f"aten::{name}"
    for name in (
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "clone",
        "expand",
        "alias",
        "detach",
        "contiguous",
    )
)
"""Calls that torch makes for one number of elements and leaves out for another, as the layout in memory asks."""
UNINITIALISED = frozenset(f"aten::{name}" for name in ("empty", "empty_like", "new_empty", "empty_strided"))
FACTORIES = frozenset(f"aten::{name}" for name in ("new_zeros", "new_ones", "new_full", "new_empty"))
"""Calls whose results do not depend on the values of what they are given."""


class Mixed(Exception):
    """A call mixes elements, or how it treats them cannot be told."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the elements lie in a tensor: dim `dim`, of size outer * elements * inner."""

    dim: int
    outer: int
    inner: int

    def _by_elements(self, tensor: torch.Tensor) -> torch.Tensor:
        parts: torch.Tensor = tensor.unflatten(self.dim, (self.outer, -1, self.inner))  # type: ignore[no-untyped-call]
        return parts

    def further(self, tensor: torch.Tensor) -> torch.Tensor:
        """Every element one place further, the last one first."""
        return self._by_elements(tensor).roll(1, self.dim + 1).flatten(self.dim, self.dim + 2)

    def elements(self, tensor: torch.Tensor, at: Sequence[int]) -> torch.Tensor:
        """Some of the elements."""
        chosen = self._by_elements(tensor).index_select(self.dim + 1, torch.tensor(at))
        return chosen.flatten(self.dim, self.dim + 2)

    def one_kept(self, tensor: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
        """Numbers drawn anew, with element 0 of a tensor in place 1."""
        result = fresh.clone()
        self._by_elements(result).narrow(self.dim + 1, 1, 1).copy_(self._by_elements(tensor).narrow(self.dim + 1, 0, 1))
        return result


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of the run of another number of elements. operands: its arguments as a flat list; None for tensors that
    depend on the inputs."""

    name: str
    operands: list[Any]


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the calls of a run."""

    def __init__(self, module: torch.nn.Module, inputs: BoundInputs) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.stored = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}
        self.dependent = _Storages()
        for _, tensor in inputs.leaves:
            self.dependent.set(tensor, 1)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = pytree.tree_leaves((args, kwargs or {}))
        tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
        depends = any(self.dependent.get(t) for t in tensors) and function._schema.name not in FACTORIES
        if function._schema.name not in MOVES:
            self.calls.append(_Call(function._schema.name, list(map(self._kept, leaves))))
        out = function(*args, **(kwargs or {}))
        if function._schema.name in UNINITIALISED:
            out.zero_()
        if depends:
            for t in pytree.tree_leaves(out):
                if isinstance(t, torch.Tensor):
                    self.dependent.set(t, 1)
            for t in _written(function, args, kwargs or {}):
                self.dependent.set(t, 1)
        return out

    def _kept(self, value: Any) -> Any:
        """An argument as it is now, for later calls may write to it."""
        if not isinstance(value, torch.Tensor) or value.untyped_storage()._cdata in self.stored:
            return value
        return None if self.dependent.get(value) else value.clone()


class _Storages:
    """A number for every storage that has one, as long as it lives."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Any, int]] = {}

    def get(self, tensor: torch.Tensor) -> int:
        found = self._kept.get(tensor.untyped_storage()._cdata)
        return found[1] if found is not None and not found[0].expired() else 0

    def set(self, tensor: torch.Tensor, value: int) -> None:
        storage = tensor.untyped_storage()
        self._kept[storage._cdata] = (StorageWeakRef(storage), value)  # type: ignore[no-untyped-call]


def _written(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call writes to."""
    result = []
    for k, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[k] if k < len(args) else kwargs.get(argument.name)
            result += [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    return result


class _Elements(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every call of a run of all elements; see the head of this file. strides: by storage how far apart two
    elements lie in it. calls: those of the run of other elements, `at`, as far as both runs make the same ones."""

    def __init__(self, inputs: BoundInputs, calls: list[_Call], at: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size, self.strides, self.calls, self.at = inputs.microbatch, _Storages(), iter(calls), at
        self.aligned = True
        self.generator = torch.Generator().manual_seed(7)
        self.numbers = torch.randn(10_007, generator=self.generator)  # a prime: elements begin at different places
        self.numbers[::3] *= 1e-9

    def begin(self, inputs: BoundInputs) -> None:
        """Mark what the model is given."""
        for tensor in inputs.of_batch():
            self.strides.set(tensor, max(tensor.stride(0), 1))

    def place(self, tensor: torch.Tensor) -> Place | None:
        """Where the elements lie in a tensor; None where it has none. Raises `Mixed` for some of them alone."""
        step = self.strides.get(tensor)
        if not step or not tensor.numel():
            return None
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            inner = step // stride if 0 < stride <= step and step % stride == 0 else 0
            offset = tensor.storage_offset()
            begins = offset // step % self.size == 0 and (inner == 1 or offset % step < stride)
            if size > 1 and inner and size % (inner * self.size) == 0 and begins:
                return Place(dim, size // (inner * self.size), inner)
        raise Mixed("a part of the elements")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name
        leaves, spec = pytree.tree_flatten((args, kwargs))
        places = {id(t): self.place(t) for t in leaves if isinstance(t, torch.Tensor)}
        other = self._other(name)
        marked = any(places.values())
        written = _written(function, args, kwargs)
        known = _known_place(function, leaves, places, written, other) if marked else None
        only_checks = not function._schema.returns and not written  # as `_linalg_check_errors` does
        looked = marked and known is None and name not in FACTORIES and not only_checks
        again = self._again(function, leaves, spec, places, other) if looked else None
        out = function(*args, **kwargs)
        if name in UNINITIALISED:
            out.zero_()
        if known is not None:
            self._mark(out, known(out))
        if again is None:
            return out
        results = [*_tensors(out), *written]
        if not results or any(len(a) != len(results) for a in again if a is not None):
            raise Mixed("its results depend on the elements")
        hints = [p for p in places.values() if p is not None]
        for k, result in enumerate(results):
            moved = k < len(results) - len(written) or torch.Tag.inplace_view in function.tags
            own = None if moved else places.get(id(result))
            of_it = [a[k] if a is not None else None for a in again]
            found = self._find(result, of_it, hints, own, torch.Tag.pointwise in function.tags)
            if found is not None:
                self._mark(result, found)
        return out

    def _other(self, name: str) -> _Call | None:
        """The call of the other run that stands for this one."""
        if name in MOVES or not self.aligned:
            return None
        found = next(self.calls, None)
        self.aligned = found is not None and found.name == name
        return found if self.aligned else None

    def _again(
        self, function: Any, leaves: list[Any], spec: Any, places: dict[int, Place | None], other: _Call | None
    ) -> list[list[torch.Tensor] | None]:
        """The results of a call on random numbers: as they are, one place further, with one element kept, and of the
        elements of the other run (None where that call is not known)."""
        for whole in (self._drawn, torch.clone):
            operands = _Operands(leaves, places, whole, function._schema.is_mutable)
            try:
                ways = [operands.drawn()] if _is_view(function) else [operands.drawn(), *operands.others()]
                results: list[list[torch.Tensor] | None] = [self._results(function, way, spec) for way in ways]
                break
            except (RuntimeError, IndexError, ValueError):
                if whole is torch.clone:
                    raise
        some = operands.some(other, self.at) if other is not None else None
        results += [None] * (3 - len(results))
        return [*results, self._results(function, some, spec) if some is not None else None]

    def _results(self, function: Any, leaves: list[Any], spec: Any) -> list[torch.Tensor]:
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        if torch.Tag.nondeterministic_seeded in function.tags:
            torch.manual_seed(7)
        out = function(*args, **kwargs)
        return [*_tensors(out), *_written(function, args, kwargs)]

    def _drawn(self, tensor: torch.Tensor) -> torch.Tensor:
        """Random numbers that lie in memory as a tensor does: floats around 0, a third of them small, beside which
        small differences show; whole numbers of 0 and 1, which any table has."""
        size = _span(tensor)
        begin = int(torch.randint(len(self.numbers), (), generator=self.generator))
        numbers = self.numbers.roll(-begin).repeat(1 + size // len(self.numbers))[:size]
        if not (tensor.is_floating_point() or tensor.is_complex()):
            numbers = numbers > 0
        return numbers.to(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def _find(
        self,
        result: torch.Tensor,
        again: list[torch.Tensor | None],
        hints: list[Place],
        own: Place | None,
        pointwise: bool,
    ) -> Place | None:
        """Where the elements lie in a result; None where it depends on none. own: where they lie in what a call has
        written to; pointwise: every number is made of its own operands alone. Raises `Mixed`."""
        first, further, kept, some = again
        assert first is not None
        if not result.numel():
            return None
        if further is None or kept is None:  # a view: where it lies tells
            place = self.place(result)
            if place is None or (some is not None and not torch.equal(place.elements(first, self.at), some)):
                raise Mixed("it depends on their number")
            return place
        if first.shape != further.shape or first.shape != kept.shape:
            raise Mixed("the shape of its results depends on the elements")
        own = self.place(result) if own is None else own
        constant = own is None and _is_close(first, further, pointwise) and _is_close(first, kept, pointwise)
        known = [own] if own is not None else self._first_guesses(result, hints)
        others: Iterable[Place] = () if constant or own is not None else self._places(result)
        for place in itertools.chain(known, others):
            if (
                _is_close(place.further(first), further, pointwise)
                and _is_close(place.elements(first, [0]), place.elements(kept, [1]), pointwise)
                and (some is None or _is_close(place.elements(first, self.at), some, pointwise))
            ):
                return place
        if constant and not self.strides.get(result):
            return None
        raise Mixed("its results mix the elements")

    def _first_guesses(self, result: torch.Tensor, hints: list[Place]) -> list[Place]:
        """Places of the operands, counted from the left, that a result can have."""
        fits = [p for p in hints if p.dim < result.dim()]
        return [p for p in dict.fromkeys(fits) if result.shape[p.dim] == p.outer * self.size * p.inner]

    def _places(self, result: torch.Tensor) -> Iterator[Place]:
        """All that a shape can have."""
        for dim, size in enumerate(result.shape):
            rest = size // self.size if size % self.size == 0 else 0
            for part in range(1, math.isqrt(rest) + 1):
                for outer in {part, rest // part} if rest % part == 0 else ():
                    yield Place(dim, outer, rest // outer)

    def _mark(self, result: torch.Tensor, place: Place) -> None:
        step, known = result.stride(place.dim) * place.inner, self.strides.get(result)
        if step == 0 or known not in (0, step):
            raise Mixed("its results lie otherwise in memory")
        if not known:
            self._rest_is_alike(result, step)
            self.strides.set(result, step)

    def _rest_is_alike(self, result: torch.Tensor, step: int) -> None:
        """Of what a call writes to a part of, the other parts must not tell one element from another."""
        storage = result.untyped_storage()
        count = storage.nbytes() // result.element_size()
        if result.numel() == count:
            return
        flat = torch.empty(0, dtype=result.dtype).set_(storage)
        covered = torch.zeros(count, dtype=torch.bool)
        covered.as_strided(result.shape, result.stride(), result.storage_offset()).fill_(True)
        if count % (step * self.size):
            raise Mixed("its results lie otherwise in memory")
        place = Place(0, count // (step * self.size), step)
        if not bool(((flat == place.further(flat)) | covered | place.further(covered)).all()):
            raise Mixed("a part of its results depends on the place")


ROWS = {"aten::mm": (0,), "aten::addmm": (1,), "aten::convolution": (0,), "aten::bmm": (0, 1)}
"""Calls that treat dim 0 of these operands as elements, if the others have none: no need to try."""


def _known_place(
    function: Any,
    leaves: list[Any],
    places: dict[int, Place | None],
    written: list[torch.Tensor],
    other: _Call | None,
) -> Callable[[torch.Tensor], Place] | None:
    """Where the elements lie in the result of a call that by its kind treats them one by one, if the run of another
    number of elements gives it the same besides; None where that has to be tried."""
    if other is None or len(other.operands) != len(leaves) or len(function._schema.returns) != 1:
        return None
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    marked = [(t, p) for t in tensors if (p := places[id(t)]) is not None]
    for mine, its in zip(leaves, other.operands, strict=True):
        if isinstance(mine, torch.Tensor):
            if places[id(mine)] is None and not _is_same(mine, its):
                return None
        elif type(mine) is not type(its) or mine != its:
            return None
    name = function._schema.name
    if name in ROWS:
        rows = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor) and places[id(v)] is not None]
        place = marked[0][1]
        fits = tuple(rows) == ROWS[name] and {p for _, p in marked} == {place} and place.dim == 0
        return (
            (lambda out: place) if fits and (name in ("aten::mm", "aten::addmm") or place == Place(0, 1, 1)) else None
        )
    if torch.Tag.pointwise not in function.tags or any(places[id(t)] is None for t in written):
        return None
    behind = {dataclasses.replace(p, dim=p.dim - t.dim()) for t, p in marked}
    place = next(iter(behind))
    if len(behind) > 1 or any(t.dim() >= -place.dim and t.shape[place.dim] > 1 for t in tensors if not places[id(t)]):
        return None
    return lambda out: dataclasses.replace(place, dim=place.dim + out.dim())


def _is_same(a: torch.Tensor, b: Any) -> bool:
    if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
        return False
    where = [(t.untyped_storage()._cdata, t.storage_offset(), t.stride()) for t in (a, b)]
    return where[0] == where[1] or torch.equal(a, b)


class _Operands:
    """The arguments of a call with random numbers for the tensors that have elements."""

    def __init__(
        self,
        leaves: list[Any],
        places: dict[int, Place | None],
        drawn: Callable[[torch.Tensor], torch.Tensor],
        writes: bool,
    ) -> None:
        self.leaves, self.places, self.writes = leaves, places, writes
        self.kept = [drawn(v) if self._place(v) is not None else v for v in leaves]
        self.fresh = [drawn(v) if self._place(v) is not None else v for v in leaves]
        first: dict[int, int] = {}
        for k, leaf in enumerate(leaves):  # what is given twice is drawn once
            at = first.setdefault(id(leaf), k) if isinstance(leaf, torch.Tensor) else k
            self.kept[k], self.fresh[k] = self.kept[at], self.fresh[at]

    def _place(self, value: Any) -> Place | None:
        return self.places[id(value)] if isinstance(value, torch.Tensor) else None

    def _each(self, change: Callable[[Place, torch.Tensor, torch.Tensor], torch.Tensor]) -> list[Any]:
        made: dict[int, Any] = {}
        for leaf, kept, fresh in zip(self.leaves, self.kept, self.fresh, strict=True):
            if not isinstance(leaf, torch.Tensor) or id(leaf) in made:
                continue
            place = self._place(leaf)
            if place is not None:
                values = change(place, kept, fresh)
                own = self.writes or values.stride() != leaf.stride()
                made[id(leaf)] = _as_laid_out(values, leaf) if own else values
            else:
                made[id(leaf)] = _as_laid_out(leaf, leaf) if self.writes else leaf
        return [made[id(v)] if isinstance(v, torch.Tensor) else v for v in self.leaves]

    def drawn(self) -> list[Any]:
        return self._each(lambda place, kept, fresh: kept)

    def others(self) -> list[list[Any]]:
        """With every element one place further, and with one element kept."""
        return [
            self._each(lambda place, kept, fresh: place.further(kept)),
            self._each(lambda place, kept, fresh: place.one_kept(kept, fresh)),
        ]

    def some(self, other: _Call, at: Sequence[int]) -> list[Any] | None:
        """Some elements, as the run of so many calls it; None where that run has other tensors."""
        if len(other.operands) != len(self.leaves):
            return None
        result: list[Any] = []
        for leaf, kept, operand in zip(self.leaves, self.kept, other.operands, strict=True):
            place = self._place(leaf)
            if place is not None:
                result.append(place.elements(kept, at))
            elif isinstance(leaf, torch.Tensor) and not isinstance(operand, torch.Tensor):
                return None
            else:
                result.append(operand.clone() if self.writes and isinstance(operand, torch.Tensor) else operand)
        return result


def _as_laid_out(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A copy of values that lies in memory as another tensor of the same shape does."""
    flat = torch.zeros(_span(like), dtype=values.dtype)
    result = flat.as_strided(like.shape, like.stride())
    for dim, stride in enumerate(like.stride()):  # numbers that are repeated are written once
        if stride == 0 and like.shape[dim] > 1:
            result, values = result.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    result.copy_(values)
    return flat.as_strided(like.shape, like.stride())


def _span(tensor: torch.Tensor) -> int:
    """Numbers from the first to the last one of a tensor in memory."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _is_view(function: Any) -> bool:
    """Whether the results of a call are parts of its operands, none of which it writes to."""
    aliases = [r.alias_info for r in function._schema.returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def _tensors(returned: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def _is_close(a: torch.Tensor, b: torch.Tensor, pointwise: bool = False) -> bool:
    """Equal but for the rounding of one op: of each number by itself, or of the largest one for a sum of several."""
    if a.shape != b.shape:
        return False
    if torch.equal(a, b) or not a.numel():
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    near = 64 * torch.finfo(a.dtype).eps
    largest = float(a.abs().max())
    if not pointwise and math.isfinite(largest):
        return bool((a - b).abs().max() <= near * largest)
    finite = a[a.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=near, atol=0.0 if pointwise else near * largest, equal_nan=True)


def elementwise_in_batch(module: torch.nn.Module, bound: BoundInputs, mode: Callable[[torch.nn.Module], Any]) -> bool:
    """Whether dim 0 of the inputs is a microbatch: no call of the model mixes it, and all outputs have it in dim 0.

    A model that mixes along dim 0 is traced on all of it; so is one of which this cannot be told. mode: a context in
    which a copy of the module is called.
    """
    own = own_copy(module)
    module = module if own is None else own
    at = [0, 1] if bound.microbatch > 2 else [0, 1, 0]  # no run of one: torch calls some ops otherwise for a size of 1
    one, other, whole = (b.map(_own_tensor) for b in (bound.cut(), bound.elements(at), bound))
    before = [(id(b), b._version) for b in module.buffers()]
    with mode(module), torch.no_grad(), classes_kept(module), same_seeds():
        try:
            alone = _tensors(module(*one.args, **one.kwargs))
            with _Calls(module, other) as calls:
                module(*other.args, **other.kwargs)
            with _Elements(whole, calls.calls, at) as elements:
                elements.begin(whole)
                outputs = _tensors(module(*whole.args, **whole.kwargs))
            if before != [(id(b), b._version) for b in module.buffers()] or len(outputs) != len(alone):
                return False  # what it keeps is of the whole batch
            return elements.aligned and all(
                _has_elements(elements, o, a) and _is_near(o[:1], a) for o, a in zip(outputs, alone, strict=True)
            )
        except Exception:
            return False


def _own_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with memory of its own, that a model may write to."""
    return tensor.clone(memory_format=torch.contiguous_format)


def _has_elements(elements: _Elements, whole: torch.Tensor, alone: torch.Tensor) -> bool:
    """Whether dim 0 of an output is the microbatch."""
    if whole.dim() == 0 or whole.shape[0] != elements.size or alone.shape != (1, *whole.shape[1:]):
        return False
    if not whole.numel():
        return True
    place = elements.place(whole)
    return place == Place(0, 1, 1) or (place is None and _is_close(whole, alone.expand_as(whole)))


def _is_near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for the rounding of many ops."""
    finite = a[a.isfinite()].double().abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-4 * (largest + 1e-6), equal_nan=True)
