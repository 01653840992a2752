"""The calls of a forward, recorded on tensors that have only shapes: what `torch.export` comes to for most models, in a
third of the time and without its modules (0.7 s to import).

Whatever needs more than that is not recorded but left to `torch.export`: values that decide, tensors that the module
holds beside parameters and buffers, attributes that the forward sets, autocast, higher-order calls, shared submodules,
graphs that torch captured and that say where their calls come from.
"""

from __future__ import annotations

import contextlib
import operator
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch._dispatch.python import enable_python_dispatcher, no_python_dispatcher
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.frontend.inputs import BoundInputs
from tbuda_lab.core.frontend.torch_model.program import Leaf, Program, tensors_of, warn_of
from tbuda_lab.core.frontend.torch_model.provenance import PLACE, Place, calling_line
from tbuda_lab.core.frontend.torch_model.shapes import result_of

_PLAIN = torch.Tensor, torch.nn.Parameter, torch.nn.Buffer
_NUMBERS = bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format
_OF_TORCH = torch.fx.GraphModule, torch.jit.ScriptModule
_LEFT_OUT = frozenset(
    {
        torch.ops.aten.lift_fresh.default,  # a tensor of numbers in the forward
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.is_nonzero.default,
        torch.ops.aten.item.default,
        torch.ops.aten.embedding_bag.default,  # other results on another device
        torch.ops.aten.embedding_bag.padding_idx,
    }
)


class _NotRecorded(Exception):
    """The forward does something that is left to `torch.export`."""


def record(module: torch.nn.Module, inputs: BoundInputs) -> Program | None:
    """The calls of the forward in order; None where `torch.export` has to trace it. The module is as before.

    What a call gives is in its node's `meta["val"]`, where it comes from in `meta[PLACE]`. Raises `Cancelled` where a
    hook does.
    """
    try:
        with _unchanged(module):
            return _Recorder(module, inputs).run()
    except Cancelled:
        raise
    except Exception:  # torch.export meets it again, and says what it is
        return None


class _Shaped(torch.Tensor):
    """A tensor of the trace: shape, strides, type and device of `meta`'s, and no values."""

    meta: torch.Tensor
    recorder: _Recorder
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def of(meta: torch.Tensor, recorder: _Recorder, requires_grad: bool = False) -> _Shaped:
        """The tensor of a trace for one on the meta device."""
        if meta.layout is not torch.strided or meta.is_conj() or meta.is_neg() or meta.is_quantized:
            raise _NotRecorded
        result: _Shaped = torch.Tensor._make_wrapper_subclass(
            _Shaped, meta.shape, meta.stride(), meta.storage_offset(), dtype=meta.dtype, device=recorder.device,
            requires_grad=requires_grad,
        )  # fmt: skip
        result.meta, result.recorder = meta, recorder
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:  # by torch itself, of what a call has just made
            return args[0].recorder.again(args[0])
        return args[0].recorder.leave() if args else NotImplemented


class _Recorder:
    """Records one call of a module."""

    def __init__(self, module: torch.nn.Module, inputs: BoundInputs) -> None:
        self.module, self.inputs = module, inputs
        self.names: dict[torch.nn.Module, str] = {}
        for name, submodule in module.named_modules(remove_duplicate=False):
            compiled = type(submodule).__module__.startswith("torch._dynamo")
            if submodule in self.names or compiled or isinstance(submodule, _OF_TORCH):
                raise _NotRecorded
            self.names[submodule] = name
        self.graph = torch.fx.Graph()
        self.device: torch.device | None = None
        self.held: dict[int, _Shaped] = {}  # by the id of a tensor that is not of the trace
        self.shaped: dict[int, _Shaped] = {}  # by the id of its meta tensor
        self.nodes: dict[int, torch.fx.Node] = {}  # by the id of a tensor of the trace
        self.replaced: list[_Shaped] = []  # alive, so that nothing else gets their ids
        self.stack: list[tuple[str, str]] = []  # path and class of the modules that are being called
        self.left = False

    def leave(self) -> NoReturn:
        """Stop, for there is something that is left to `torch.export`; whatever the forward catches."""
        self.left = True
        raise _NotRecorded

    def run(self) -> Program:
        """The program. Raises `_NotRecorded`, or anything that the forward raises."""
        leaves, swapped = self._stored()
        flat, spec = pytree.tree_flatten((self.inputs.args, self.inputs.kwargs))
        passed = []
        for value in flat:
            given = isinstance(value, torch.Tensor)
            if given and id(value) in self.held:
                raise _NotRecorded
            passed.append(self._stand_in(value) if given else value)
            leaves.append(Leaf(given=True) if given else Leaf(value=value))
            self._placeholder(passed[-1])
        args, kwargs = pytree.tree_unflatten(passed, spec)
        with self._traced(swapped):
            returned, foreign = tensors_of(self.module(*args, **kwargs))
        results, out_spec = pytree.tree_flatten(returned)
        named = {re.sub(r"[^a-z0-9]+", "_", path.lower()).strip("_") for path, _ in self.inputs.leaves}
        if self.left or any(node.name in named for node in self.graph.nodes):  # torch.export names those apart
            raise _NotRecorded
        self.graph.output(tuple(self._operand(value) for value in results))
        for node in reversed(self.graph.nodes):
            if node.target is torch.ops.aten.detach.default and not node.users:
                self.graph.erase_node(node)
        warn_of(foreign)
        return Program(self.graph, tuple(leaves), (True,) * len(results), out_spec)

    # -- leaves ----------------------------------------------------------------------------------------------
    def _stored(self) -> tuple[list[Leaf], list[tuple[dict[str, Any], str, _Shaped]]]:
        """Leaves for parameters and buffers, parameters first, and what stands for each in its module."""
        parameters: list[tuple[str, torch.Tensor, _Shaped]] = []
        buffers: list[tuple[str, torch.Tensor, _Shaped]] = []
        swapped = []
        for submodule, prefix in self.names.items():
            for held, among in ((submodule._parameters, parameters), (submodule._buffers, buffers)):
                for name, tensor in held.items():
                    if tensor is not None:
                        stand_in = self._stand_in(tensor)
                        swapped.append((held, name, stand_in))
                        among.append((f"{prefix}.{name}" if prefix else name, tensor, stand_in))
        leaves = []
        for target, tensor, stand_in in (*parameters, *buffers):
            self._placeholder(stand_in)
            leaves.append(Leaf(target=target, tensor=tensor.detach(), stored=True))
        return leaves, swapped

    def _stand_in(self, tensor: torch.Tensor) -> _Shaped:
        """A tensor of the trace for one that is not; the same one for the same one."""
        if id(tensor) in self.held:
            return self.held[id(tensor)]
        plain = type(tensor) in _PLAIN and tensor.layout is torch.strided and not tensor.is_inference()
        if not plain or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            raise _NotRecorded
        self.device = self.device or tensor.device
        if tensor.device != self.device or self.device.type not in ("cpu", "meta"):
            raise _NotRecorded
        meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        result = self.held[id(tensor)] = self._shape(meta, tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            result._is_param = True
        return result

    def _shape(self, meta: torch.Tensor, requires_grad: bool = False) -> _Shaped:
        result = self.shaped[id(meta)] = _Shaped.of(meta, self, requires_grad)
        return result

    def again(self, tensor: _Shaped) -> _Shaped:
        """Another tensor of the trace in the place of one."""
        result = self._shape(tensor.meta)
        self.nodes[id(result)] = self.nodes[id(tensor)]
        self.replaced.append(tensor)
        return result

    def _placeholder(self, value: Any) -> None:
        node = self.graph.placeholder(f"arg{len(self.graph.nodes)}_1")
        node.meta["val"] = value.meta if isinstance(value, _Shaped) else value
        if isinstance(value, _Shaped):
            self.nodes[id(value)] = node

    # -- the call --------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _traced(self, swapped: list[tuple[dict[str, Any], str, _Shaped]]) -> Iterator[None]:
        """While the forward is called: its module holds tensors of the trace, and says that it is being exported."""
        flags = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
        stored = [(held, name, held[name]) for held, name, _ in swapped]
        with _portable(), self._places(), enable_python_dispatcher(), _Functions(self), _Calls(self):
            try:
                torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True
                for held, name, stand_in in swapped:
                    held[name] = stand_in
                yield
            finally:
                torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = flags
                for (held, name, tensor), (_, _, stand_in) in zip(stored, swapped, strict=True):
                    self.left |= held.get(name) is not stand_in
                    held[name] = tensor

    @contextlib.contextmanager
    def _places(self) -> Iterator[None]:
        """Follows which submodule is being called in this thread."""
        me, names, stack = threading.get_ident(), self.names, self.stack

        def before(submodule: torch.nn.Module, _: Any) -> None:
            if submodule in names and threading.get_ident() == me:
                stack.append((names[submodule], type(submodule).__name__))

        def after(submodule: torch.nn.Module, _: Any, __: Any) -> None:
            if submodule in names and threading.get_ident() == me:
                stack.pop()

        handles = [
            torch.nn.modules.module.register_module_forward_pre_hook(before),
            torch.nn.modules.module.register_module_forward_hook(after, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _operand(self, value: Any) -> Any:
        """What stands for an operand in the graph."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.nodes:
                raise _NotRecorded
            return self.nodes[id(value)]
        if isinstance(value, list | tuple):
            return type(value)(self._operand(v) for v in value)
        if value is None or isinstance(value, _NUMBERS):
            return value
        raise _NotRecorded

    def _metas(self, value: Any) -> Any:
        """An operand without values: on the meta device."""
        if isinstance(value, _Shaped):
            return value.meta
        if isinstance(value, list | tuple):
            return type(value)(self._metas(v) for v in value)
        if isinstance(value, torch.device):
            if value != self.device:
                raise _NotRecorded
            return torch.device("meta")
        return value

    def called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of torch: its result, which is recorded."""
        if not isinstance(target, torch._ops.OpOverload) or target in _LEFT_OUT or torch.is_autocast_enabled("cpu"):
            raise _NotRecorded
        if torch.fx.traceback.has_preserved_node_meta():  # a captured graph says where its calls come from
            raise _NotRecorded
        operands = self._operand(args), {key: self._operand(value) for key, value in kwargs.items()}
        node = self.graph.create_node(
            "call_function", target, *operands, self.graph._target_to_str(target.overloadpacket.__name__)
        )
        metas, named = self._metas(args), {key: self._metas(value) for key, value in kwargs.items()}
        if not node.all_input_nodes:  # makes a tensor
            if named.get("device") is None and self.device != torch.get_default_device():
                raise _NotRecorded
            named["device"] = torch.device("meta")
        writes = target._schema.is_mutable
        before = [_form(v) for v in metas] if writes else []
        with no_python_dispatcher():
            plain = result_of(target, metas, named) if self.device == torch.device("cpu") else None
            result = target(*metas, **named) if plain is None else plain
        if writes and [_form(v) for v in metas] != before:
            raise _NotRecorded
        path, cls = self.stack[-1]
        return self._result(result, node, Place(path, cls, calling_line(sys._getframe(1))))

    def _result(self, meta: Any, node: torch.fx.Node, place: Place) -> Any:
        """The tensors of the trace for what a call on the meta device gives."""
        node.meta["val"], node.meta[PLACE] = meta, place
        if isinstance(meta, torch.Tensor):
            if meta.device.type != "meta":
                raise _NotRecorded
            result = self.shaped[id(meta)] if id(meta) in self.shaped else self._shape(meta)
            self.nodes[id(result)] = node
            return result
        if isinstance(meta, list | tuple):
            return type(meta)(
                self._result(part, self.graph.create_node("call_function", operator.getitem, (node, at)), place)
                for at, part in enumerate(meta)
            )
        if meta is not None:
            raise _NotRecorded  # a number
        return None


@contextlib.contextmanager
def _portable() -> Iterator[None]:
    """Without kernels of one machine, as `torch.export` traces: calls do not say that they may use them."""
    backends = torch.backends.mkldnn, torch.backends.nnpack, torch.backends.cudnn
    before = [backend.set_flags(False) for backend in backends]
    try:
        yield
    finally:
        for backend, flags in zip(backends, before, strict=True):
            backend.set_flags(*flags)


def _form(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else None


class _Calls(ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives every call to a recorder before torch takes it apart. Of the base class it only has its rank."""

    def __init__(self, recorder: _Recorder) -> None:
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)  # type: ignore[no-untyped-call]
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.enter_stack = []
        self.recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper around `__torch_dispatch__` that it asks for imports `torch._dynamo`

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return func(*args, **(kwargs or {}))
        try:
            return self.recorder.called(func, args, kwargs or {})
        except Exception:
            self.recorder.left = True  # even if the forward catches it
            raise


class _Functions(TorchFunctionMode):
    """Stops at what is no call of an op: indices that are values, gradients in the forward."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch._C._set_grad_enabled and args[0]:  # off it is already
            self.recorder.leave()
        picks = func is torch.Tensor.__getitem__
        if picks and any(isinstance(i, torch.Tensor) and not i.dim() for i in _indices(args[1])):
            self.recorder.leave()
        return func(*args, **(kwargs or {}))


def _indices(index: Any) -> list[Any]:
    """Everything that an index or its slices are made of."""
    items = list(index) if isinstance(index, tuple) else [index]
    return [part for i in items for part in ((i.start, i.stop, i.step) if isinstance(i, slice) else (i,))]


@contextlib.contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Raises `_NotRecorded` where a module's attributes are others afterwards. They are the old ones in any case."""
    before = [(m, dict(m.__dict__), _containers(m)) for m in module.modules()]

    def changed() -> bool:
        return any(
            m.__dict__.keys() != attributes.keys()
            or any(m.__dict__[name] is not value for name, value in attributes.items())
            or any(not _same(held, copy) for held, copy in containers)
            for m, attributes, containers in before
        )

    def restore() -> None:
        for m, attributes, containers in before:
            m.__dict__.clear()
            m.__dict__.update(attributes)
            for held, copy in containers:
                if _same(held, copy):
                    continue
                held.clear()
                held.extend(copy) if isinstance(held, list) else held.update(copy)

    try:
        yield
    except BaseException:
        if changed():
            restore()
        raise
    if changed():
        restore()
        raise _NotRecorded


def _containers(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    return [(v, v.copy()) for v in module.__dict__.values() if isinstance(v, list | dict | set)]


def _same(held: Any, copy: Any) -> bool:
    """Whether a container holds the same objects."""
    if len(held) != len(copy):
        return False
    if isinstance(held, set):
        return bool(held == copy)
    if isinstance(held, dict):
        return all(a is b and held[a] is copy[b] for a, b in zip(held, copy, strict=True))
    return all(a is b for a, b in zip(held, copy, strict=True))
