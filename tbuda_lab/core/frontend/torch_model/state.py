"""What a module keeps from one call to the next outside its buffers, and random numbers of Python and NumPy that its
answers depend on: found by calling copies of it, refused by name.

A trace is one call. An attribute, a list, a dict or a class attribute that a forward changes, and that a later call
reads, would stay what it was then; so would a weight that the first call sets, and a number that is drawn where the
tracer does not see it. Buffers are not looked at here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import Diagnostic, ModelError, TbudaError, UnsupportedOp
from tbuda_lab.core.frontend.eager import call, classes_kept, is_code, own_classes, own_copy, same, same_seeds
from tbuda_lab.core.frontend.inputs import BoundInputs
from tbuda_lab.core.frontend.large_values import LARGE as MOST_COPIED
from tbuda_lab.core.frontend.large_values import LARGEST, LargeValue, LargeValues
from tbuda_lab.core.frontend.provenance import foreign, function_line, raised_at, short_path
from tbuda_lab.core.frontend.torch_model import generators
from tbuda_lab.core.frontend.torch_model.outside import EPOCHS, Reading, Watch, absent, other_world

LOG = logging.getLogger("tbuda_lab.frontend")

Key = tuple[str, str]
"""A module's path, or the name of a class with a dot in front, and an attribute."""
Prints = dict[Key, Any]

SMALL, LARGE = 1 << 10, 1 << 18
"""Bytes up to which tensors are compared by value, and by a digest; larger ones by the digest of their sums."""
COLUMNS = 1021
"""Words of a row of sums: a prime, so that parts of a tensor that change places change them."""
DEPTH = 6
FAR = 1000
"""What is added to a number that a forward changes, to see whether its answers depend on it."""
_LAYOUT = frozenset({"stride", "is_contiguous", "as_strided", "storage_offset", "untyped_storage"})
_READS = frozenset({"numpy", "asarray", "array", "tolist", "data_ptr", "__array__"})
FEW = 64
"""Entries up to which a global container is looked at."""
_PLAIN = (bool, int, float, complex, str, bytes, torch.Tensor, np.ndarray)
_HELD = (list, tuple, dict, set, frozenset)
_ASKED: WeakKeyDictionary[torch.nn.Module, set[str]] = WeakKeyDictionary()
"""By module the variables of the environment that its forward asked for."""
_OWN = frozenset(vars(torch.nn.Module())) | {"_is_full_backward_hook", "_forward_hooks_always_called"}


@dataclasses.dataclass(frozen=True)
class FirstCall:
    """What a copy of a module returns for the sample when it is called first. outputs: its tensors in order; buffers:
    those that it has, afterwards, by name; microbatch: of the inputs."""

    outputs: list[torch.Tensor]
    buffers: dict[str, torch.Tensor]
    microbatch: int


def refuse_state(
    module: torch.nn.Module, bound: BoundInputs, mode: Callable[[torch.nn.Module], Any]
) -> FirstCall | None:
    """Call copies of a module on the sample, and raise `UnsupportedOp` where an answer depends on the calls before, by
    something else than buffers, naming what the forward changes and the line that does. mode: a context in which a copy
    is called. Modules that do not run are not looked at: None. Raises `ModelError` for one that cannot be copied."""
    if any(t.is_meta for t in [*module.parameters(), *module.buffers(), *(t for _, t in bound.leaves)]):
        return None
    probe = _Probe(module, bound, mode)
    with classes_kept(module):
        try:
            changed = probe.find()
            _ASKED[module] = probe.variables()
        except LargeValue as large:
            _refuse_size(large)
            return None
        except TbudaError:
            raise
        except Exception:  # it does not run eagerly: the trace says why
            return None
        if changed:
            raise _refusal(probe, changed)
        if probe.depends_on_draws():
            raise _random_refusal(probe)
        if reading := probe.read_from_outside():
            raise _outside_refusal(reading)
        if changed is not None:
            raise _refusal(probe, changed)
        if asked := probe.asks_for_layout():
            raise _layout_refusal(*asked)
    return probe.first


def _refuse_size(large: LargeValue) -> None:
    """Raises `UnsupportedOp` for a value that no device holds. One that only this machine should not hold several times
    is traced, with a warning: neither what the module keeps nor its answers are looked at."""
    where, _ = raised_at(large)
    if large.size > LARGEST:
        text = f"{large.op}: a value of {large.size:,} elements; {LARGEST:,} are the most"
        found = Diagnostic("error", where or "forward", "size", text, "cut it into several inputs or calls")
        raise UnsupportedOp("the model makes a value that no device holds", [found])
    LOG.warning(
        "%s at %s makes %s elements: neither are the trace's answers compared with the module's own, nor is what the "
        "module keeps from call to call looked for",
        large.op,
        where or "forward",
        f"{large.size:,}",
    )


def _refusal(probe: _Probe, changed: list[Key]) -> UnsupportedOp:
    findings = []
    for key in changed:
        path, name = key
        what = f"parameter {name!r}" if key in probe.weights else f"attribute {name!r}"
        where = f" of class {path[1:]}" if path[:1] == "." else f" of module {path!r}" if path else ""
        findings.append(
            Diagnostic(
                "error",
                probe.line(key) or path or name,
                "state",
                f"{what}{where} is changed by the forward and read by later calls",
                "call the model once before it is compiled"
                if key in probe.weights
                else "register a buffer and write to it, or make it an input and an output of the model",
            )
        )
    if not findings:
        name, text = type(probe.module).__name__, "a second call on the same inputs gives another answer"
        findings.append(Diagnostic("error", name, "state", text, "keep nothing outside the module from call to call"))
    return UnsupportedOp("the model keeps something from one call to the next", findings)


def _random_refusal(probe: _Probe) -> UnsupportedOp:
    where = probe.line_of_draw() or type(probe.module).__name__
    text = "random numbers of Python or NumPy inside the model: those of the trace would stay"
    found = Diagnostic("error", where, "unsupported", text, "draw them outside and pass them as an input")
    return UnsupportedOp("the model's answers depend on random numbers that cannot be traced", [found])


def _outside_refusal(reading: Reading) -> UnsupportedOp:
    text = f"{reading.source.name} inside the model: what it gave the trace would stay"
    found = Diagnostic(
        "error", reading.where or "forward", "unsupported", text, "read it outside and pass it as an input"
    )
    return UnsupportedOp("the model's answers depend on what it reads from outside", [found])


def _layout_refusal(name: str, where: str) -> UnsupportedOp:
    text = f"{name} of an input, whose values in another order in memory give another answer"
    found = Diagnostic("error", where or "forward", "unsupported", text, "take .contiguous() of the inputs first")
    return UnsupportedOp("the model's answers depend on how its inputs lie in memory", [found])


class _Probe:
    """Calls of copies of one module."""

    def __init__(self, module: torch.nn.Module, bound: BoundInputs, mode: Callable[[torch.nn.Module], Any]) -> None:
        self.module, self.bound, self.mode = module, bound, mode
        self.weights: set[Key] = set()
        self.first: FirstCall | None = None
        self._large_values = LargeValues()
        self._draws, self._shared = False, _shared_generators(module)
        self._watches: list[Watch] = []
        self._second: list[torch.Tensor] | None = None

    def _fresh(self) -> torch.nn.Module:
        own = own_copy(self.module)
        if own is None:
            text = "Python cannot copy it (copy.deepcopy), so that nothing tells whether its trace answers as it does"
            raise ModelError(f"{type(self.module).__name__}: {text}; give it a __deepcopy__ that does")
        return own

    def _call(self, module: torch.nn.Module, bound: BoundInputs) -> list[torch.Tensor]:
        drawn = [*self._shared, *_own_generators(module)]
        with same_seeds(), generators.kept(self._shared), self.mode(module), torch.no_grad(), self._large_values:
            before = list(map(generators.state, drawn))
            returned = call(module, bound)
            self._draws |= list(map(generators.state, drawn)) != before
        return [leaf.clone() for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]

    def find(self) -> list[Key] | None:
        """What makes answers depend on the calls before; None where nothing does."""
        own = self._fresh()
        before, weights, buffers = prints(own), _weights(own), _buffers(own)
        first = self._watched_call(own)
        self.first = FirstCall(first, {n: b.clone() for n, b in own.named_buffers()}, self.bound.microbatch)
        once = [key for key, value in prints(own).items() if before.get(key, _NOTHING) != value]
        self.weights = {key for key, value in _weights(own).items() if weights.get(key) != value}
        if self.weights:
            return sorted(self.weights)
        self._second = second = self._watched_call(own)
        writes = _buffers(own) != buffers
        if not once:
            return None if writes or same(first, second) else []
        after = prints(own)
        changed = sorted({*once, *(key for key in after if before.get(key, _NOTHING) != after[key])})
        if writes:
            self._take_buffers(own, other := self._fresh())
            return None if same(self._call(own, self.bound), self._call(other, self.bound)) else changed
        if not same(first, second):
            return changed
        return changed if self._depends(own, first, changed) else None

    def _take_buffers(self, source: torch.nn.Module, target: torch.nn.Module) -> None:
        buffers = dict(target.named_buffers())
        for name, buffer in source.named_buffers():
            if name in buffers:
                buffers[name].copy_(buffer)

    def _depends(self, own: torch.nn.Module, first: list[torch.Tensor], changed: list[Key]) -> bool:
        """Whether what has changed shows after a call on other inputs, or where numbers are far off."""
        other = _others(self.bound)
        if not same(self._call(own, other), self._call(self._fresh(), other)):
            return True
        if not same(self._call(own, self.bound), first):
            return True
        layers = dict(own.named_modules())
        for path, name in changed:
            value = vars(layers[path]).get(name) if path in layers else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                object.__setattr__(layers[path], name, value + FAR)
        return not same(self._call(own, self.bound), first)

    def depends_on_draws(self) -> bool:
        """Whether an answer is another one with other numbers of Python's and NumPy's generators. A few are tried: a
        number that is drawn and only compared (as for layers left out at random) shows in some of them alone."""
        if not self._draws or self.first is None:
            return False
        for draw in range(generators.DRAWS):
            own = self._fresh()
            with generators.kept(self._shared), contextlib.suppress(Exception):
                for generator in (*self._shared, *_own_generators(own)):
                    generators.reseed(generator, draw)
                if not same(self._call(own, self.bound), self.first.outputs):
                    return True
        return False

    def _watched_call(self, module: torch.nn.Module) -> list[torch.Tensor]:
        with Watch() as watch:
            self._watches.append(watch)
            return self._call(module, self.bound)

    def variables(self) -> set[str]:
        """Names of the environment that were asked for."""
        return {name for watch in self._watches for name in watch.variables}

    def asks_for_layout(self) -> tuple[str, str] | None:
        """What the model asks for of the memory of tensors, and the line where its function begins, if its answer is
        another one for inputs whose last two dims lie the other way round."""
        names = ((n, f) for f in _reached(self.module) for n in sorted(_LAYOUT & _names_in(f.__code__)))
        name, function = next(names, ("", None))
        if self.first is None or function is None:
            return None
        moved = self.bound.map(lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t)
        try:
            own = self._fresh()
            with same_seeds(), self.mode(own), torch.no_grad():
                returned = own(*moved.args, **moved.kwargs)
        except Exception:  # torch refuses them, and says so
            return None
        values = [t for t in pytree.tree_leaves(returned) if isinstance(t, torch.Tensor)]
        return None if same(values, self.first.outputs) else (name, function_line(function))

    def read_from_outside(self) -> Reading | None:
        """The first source outside the model that an answer depends on: a clock, the system's random numbers, files."""
        first, second = self._watches
        readings = [r for r in first.readings.values() if not r.source.lasting]
        readings += [r for r in second.readings.values() if r.source.lasting]
        return next((r for r in readings if any(self._shows(r, epoch) for epoch in range(EPOCHS))), None)

    def _shows(self, reading: Reading, epoch: int) -> bool:
        """Whether an answer is another one when a source gives something else, or is kept where no other can be put."""
        own, wanted = self._fresh(), self.first.outputs if self.first else []
        if reading.source.lasting:
            self._call(own, self.bound)
            wanted = self._second or []
        with other_world(reading, own, epoch), Watch() as watch:
            try:
                differs = not same(self._call(own, self.bound), wanted)
            except Exception as error:
                differs = not reading.source.lasting or (
                    reading.source.other is absent and isinstance(error, FileNotFoundError)
                )
        return differs or reading.source.name in watch.readings

    def line_of_draw(self) -> str:
        """ "file.py:123" of the first line outside torch that draws from a generator."""
        own = self._fresh()
        drawn = [*self._shared, *_own_generators(own)]
        return self._first_line(own, lambda: list(map(generators.state, drawn)))

    def line(self, key: Key) -> str:
        """ "file.py:123" of the first line outside torch that changes a value."""
        own = self._fresh()
        return self._first_line(own, lambda: _print_of(own, key))

    def _first_line(self, own: torch.nn.Module, look_at: Callable[[], Any]) -> str:
        """The first line outside torch after which `look_at` gives something else while `own` is called."""
        found: list[str] = []
        last = look_at()
        lines: dict[FrameType, int] = {}

        def look(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if found or not foreign(frame.f_code.co_filename):
                return None
            now = look_at()
            if now != last:
                last = now
                at = lines.get(frame, frame.f_lineno)
                found.append(f"{short_path(frame.f_code.co_filename)}:{at}")
            lines[frame] = frame.f_lineno
            return look

        tracing = sys.gettrace()
        sys.settrace(look)
        try:
            with contextlib.suppress(Exception):
                self._call(own, self.bound)
        finally:
            sys.settrace(tracing)
        return found[0] if found else ""


_NOTHING = object()


def _others(bound: BoundInputs) -> BoundInputs:
    """Inputs of other values: floats are spread and turned round, whole numbers in another order."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():  # those of 8 bits have no arithmetic
            return (0.5 - 2 * (tensor.float() if tensor.element_size() == 1 else tensor)).to(tensor.dtype)
        return tensor.flatten().flip(0).reshape(tensor.shape)

    return bound.map(other)


def _weights(module: torch.nn.Module) -> dict[Key, Any]:
    """By parameter where it lies and how often it was written."""
    named = dict(module.named_parameters())
    return {(n.rpartition(".")[0], n.rpartition(".")[2]): _print_weight(p) for n, p in named.items()}


def _print_weight(tensor: torch.Tensor) -> Any:
    """Where it lies, how often it was written, and what it is."""
    return tensor.untyped_storage()._cdata, writes(tensor), fingerprint(tensor)


def writes(tensor: torch.Tensor) -> int:
    """How often a tensor was written, as far as torch counts."""
    return 0 if torch.nn.parameter.is_lazy(tensor) or tensor.is_inference() else tensor._version


def fingerprint(tensor: torch.Tensor) -> bytes | None:
    """What tells a tensor from another of its type and shape: its bytes, their digest, or that of their sums by columns
    as whole numbers, which takes 0.12 s for 10^9 bytes. None where there are none, as while torch traces."""
    if tensor.is_meta or isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided or not tensor.numel():
        return None
    numbers = tensor.detach().resolve_conj().resolve_neg()
    if numbers.numel() > MOST_COPIED and 0 in numbers.stride():  # one number for many places
        numbers = numbers[tuple(slice(1) if step == 0 else slice(None) for step in numbers.stride())]
        numbers = numbers.clone(memory_format=torch.contiguous_format)
    stored = (numbers.int_repr() if numbers.is_quantized else numbers).cpu().flatten().contiguous()
    size = stored.numel() * stored.element_size()
    if size > LARGE:  # summed by torch: what `numpy` is given is copied where it was lazily cloned
        rows = size // (8 * COLUMNS)
        octets = stored.view(torch.uint8)
        whole, rest = octets[: rows * 8 * COLUMNS], octets[rows * 8 * COLUMNS :].clone()
        words = (whole if whole.storage_offset() % 8 == 0 else whole.clone()).view(torch.int64).reshape(rows, COLUMNS)
        return hashlib.blake2b(words.sum(0).numpy().tobytes() + rest.numpy().tobytes(), digest_size=16).digest()
    data = stored.view(torch.uint8).numpy()
    return data.tobytes() if size <= SMALL else hashlib.blake2b(data.data, digest_size=16).digest()


def _buffers(module: torch.nn.Module) -> list[Any]:
    return [(name, writes(b), fingerprint(b)) for name, b in module.named_buffers()]


def refuse_lazy(module: torch.nn.Module) -> None:
    """Raises `ModelError` for a module with weights or buffers that its first call is to make, or that are sparse."""
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise ModelError(
                f"{name!r} of a lazy module has no shape yet; call the model once on a sample of its inputs first"
            )
        if tensor.layout is not torch.strided:
            raise ModelError(
                f"{name!r} of the model is of layout {tensor.layout}; make it dense with .to_dense() first"
            )


def refuse_script(module: Any) -> None:
    """Raises `ModelError` for TorchScript: its code is torch's, and nothing is left to trace."""
    if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise ModelError(
            "a TorchScript module (torch.jit.script, trace, load or freeze) cannot be traced; give the nn.Module that "
            "it was made from, an ExportedProgram of torch.export, or an ONNX file of torch.onnx.export"
        )
    parts = module.named_modules() if isinstance(module, torch.nn.Module) else ()
    inner = next((name for name, part in parts if isinstance(part, torch.jit.ScriptModule)), None)
    if inner is not None:
        raise ModelError(
            f"submodule {inner!r} is a TorchScript module, which cannot be traced; put the nn.Module "
            "there that it was made from"
        )


def contents(module: torch.nn.Module) -> Prints:
    """What a module answers by beside its inputs, as values that can be compared: weights, buffers,
    attributes, its layers, their hooks and functions, what these hold and the globals that they read, and, where it was
    traced, the variables of the environment that it asked for. They tell whether it was changed since it was traced, by
    whatever way (`weight.data.mul_(2)` is none that torch counts). Raises `ModelError` as `refuse_lazy` does."""
    refuse_lazy(module)
    stored = [*module.named_parameters(), *module.named_buffers()]
    tensors = {("", name): _print(tensor) for name, tensor in stored}
    asked: Prints = {("environment", name): os.environ.get(name) for name in sorted(_ASKED.get(module, ()))}
    return prints(module) | tensors | _code(module) | _globals(module) | asked


def _globals(module: torch.nn.Module) -> Prints:
    """By file and name, the plain values, tensors, small containers and context variables that functions of a model
    read from their files; by function its code, its defaults, and what it holds of the functions around it."""
    reached = _reached(module)
    values: Prints = {(f"globals of {file}", name): _print_small(v) for file, name, v in _read_globals(reached)}
    for at, function in enumerate(reached):
        around = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        held = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *around)
        values[f"function {at}", function.__qualname__] = function.__code__, tuple(map(_print_small, held))
    return values


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _print_small(value: Any) -> Any:
    """As `_print`, of what a program may change between runs; others by their type."""
    if isinstance(value, ContextVar):
        return _print_small(value.get(None))
    small = isinstance(value, _PLAIN) or (isinstance(value, _HELD) and len(value) <= FEW)
    return _print(value, 2) if small else type(value).__name__


def _reached(module: torch.nn.Module) -> list[FunctionType]:
    """The functions of a model: of its classes, in its attributes and hooks, and those of the same packages that they
    read from their files."""
    classes = [value for kind in own_classes(module) for value in vars(kind).values()]
    layers = [v for layer in module.modules() for v in (*_hooks(layer), *vars(layer).values()) if is_code(v)]
    reached = [f for value in (*classes, *layers) for f in _functions_of(value)]
    seen = set(map(id, reached))
    for function in reached:  # which grows
        package = (function.__module__ or "").partition(".")[0]
        for name in sorted(_names_in(function.__code__)):
            value = function.__globals__.get(name)
            if not isinstance(value, FunctionType) or id(value) in seen:
                continue
            if (value.__module__ or "").partition(".")[0] == package:
                seen.add(id(value))
                reached.append(value)
    return reached


def reads_under_handlers(module: torch.nn.Module) -> bool:
    """Whether a function that handles exceptions takes values of tensors to Python, which the tracer refuses."""
    return any(f.__code__.co_exceptiontable and _READS & _names_in(f.__code__) for f in _reached(module))


def _read_globals(functions: Iterable[FunctionType]) -> Iterator[tuple[Any, str, Any]]:
    """(file, name, value) of what functions read from their files beside functions."""
    for function in functions:
        for name in _names_in(function.__code__):
            value = function.__globals__.get(name, _NOTHING)
            if value is not _NOTHING and not isinstance(value, FunctionType):
                yield function.__globals__.get("__name__"), name, value


def _shared_generators(module: torch.nn.Module) -> list[Any]:
    """Generators of random numbers that a module shares with its copies: Python's, NumPy's and global ones."""
    values = (value for _, _, value in _read_globals(_reached(module)))
    return [*generators.COMMON, *(v for v in _flat(values) if isinstance(v, generators.KINDS))]


def _own_generators(module: torch.nn.Module) -> list[Any]:
    """Those that it holds in attributes."""
    values = (v for layer in module.modules() for n, v in vars(layer).items() if n not in _OWN)
    return [v for v in _flat(values) if isinstance(v, generators.KINDS)]


def _flat(values: Iterable[Any]) -> list[Any]:
    return pytree.tree_leaves([v for v in values if isinstance(v, (*generators.KINDS, list, tuple, dict))])


def _functions_of(value: Any) -> list[FunctionType]:
    """The functions behind an attribute of a class."""
    if isinstance(value, property):
        return [f for f in (value.fget, value.fset) if isinstance(f, FunctionType)]
    inner = getattr(value, "__func__", value)
    inner = getattr(inner, "__wrapped__", inner)
    return [inner] if isinstance(inner, FunctionType) else []


@functools.lru_cache(maxsize=4096)
def _names_in(code: CodeType) -> frozenset[str]:
    """Names that code and the functions in it look up outside themselves."""
    inner = [_names_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*inner)


def _hooks(layer: torch.nn.Module) -> tuple[Any, ...]:
    return *layer._forward_pre_hooks.values(), *layer._forward_hooks.values()


def _code(module: torch.nn.Module) -> Prints:
    """By layer its class, its mode, its hooks, and the functions that it holds in place of those of its class."""
    code: Prints = {}
    for path, layer in module.named_modules():
        own = tuple((name, id(value)) for name, value in vars(layer).items() if is_code(value))
        code[path, "code"] = type(layer), layer.training, tuple(map(id, _hooks(layer))), own
    return code


def prints(module: torch.nn.Module) -> Prints:
    """What modules and their classes hold beside parameters, buffers and modules, as values that can be compared."""
    values: Prints = {}
    for path, layer in module.named_modules():
        compiled = type(layer).__module__.startswith("torch._dynamo")  # what it keeps is torch's
        for name, value in vars(layer).items() if not compiled else ():
            if name not in _OWN:
                values[path, name] = _print(value)
    for kind in own_classes(module):
        for name, value in vars(kind).items():
            if not name.startswith("__") and not is_code(value):
                values[f".{kind.__name__}", name] = _print(value)
    return values


def _print_of(module: torch.nn.Module, key: Key) -> Any:
    path, name = key
    if path.startswith("."):
        kind = next(k for k in own_classes(module) if k.__name__ == path[1:])
        return _print(vars(kind).get(name))
    layer = dict(module.named_modules())[path]
    value = vars(layer).get(name, layer._parameters.get(name))
    return _print_weight(value) if isinstance(value, torch.nn.Parameter) else _print(value)


def _print(value: Any, depth: int = DEPTH) -> Any:
    """Something that is equal where the value is the same."""
    if isinstance(value, torch.Tensor):
        return "tensor", tuple(value.shape), value.dtype, fingerprint(value)
    if isinstance(value, np.ndarray):
        return "array", value.shape, str(value.dtype), value.tobytes() if value.dtype != object else len(value)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value).__name__, repr(value)
    if depth == 0 or isinstance(value, torch.nn.Module | ModuleType) or is_code(value):
        return type(value).__name__
    if isinstance(value, Mapping):
        return "mapping", tuple((_print(k, depth - 1), _print(v, depth - 1)) for k, v in list(value.items()))
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, tuple(_print(v, depth - 1) for v in list(value))
    if isinstance(value, set | frozenset):
        return "set", frozenset(repr(v) for v in value)
    inner = getattr(value, "__dict__", None)
    if isinstance(inner, dict):
        return type(value).__name__, tuple((k, _print(v, depth - 1)) for k, v in list(inner.items()))
    return type(value).__name__
