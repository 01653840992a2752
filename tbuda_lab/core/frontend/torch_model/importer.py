"""The exported program read call by call into a Graph."""

from __future__ import annotations

import functools
import logging
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import HOST_FIX, Diagnostic, InputError, ModelError, UnsupportedOp
from tbuda_lab.core.frontend import large_values
from tbuda_lab.core.frontend.aten import AtenValue, Call, CannotMap, FoldedValue, lookup
from tbuda_lab.core.frontend.aten.call import (
    RANDOM,
    VALUES_DECIDE,
    Mapping,
    by_name,
    known_empty,
    known_if_empty,
    known_shape,
)
from tbuda_lab.core.frontend.aten.host import complex_call, has_host_form, host_call, host_instead, mapping_of
from tbuda_lab.core.frontend.eager import classes_kept, own_copy
from tbuda_lab.core.frontend.emitter import Emitter, as_array
from tbuda_lab.core.frontend.inputs import PLAIN, BoundInputs, bind, dtype_name
from tbuda_lab.core.frontend.provenance import origin_of, user_line
from tbuda_lab.core.frontend.torch_model.audit import audit_answers
from tbuda_lab.core.frontend.torch_model.caches import NAMESPACE, Caches
from tbuda_lab.core.frontend.torch_model.export import (
    ASSERTS,
    IGNORED,
    ITEM,
    SIZE,
    VALUE_FREE,
    evaluation,
    export,
    quiet,
    register_outputs,
    traced_mode,
)
from tbuda_lab.core.frontend.torch_model.handled import TracerErrors, refuse_handled
from tbuda_lab.core.frontend.torch_model.microbatch import elementwise_in_batch
from tbuda_lab.core.frontend.torch_model.state import reads_under_handlers, refuse_lazy, refuse_script, refuse_state
from tbuda_lab.core.graph import Graph, NodeKind, Origin, ShapeError
from tbuda_lab.core.graph.phases import CACHE, ROLE, WRITES
from tbuda_lab.core.ops import Assertion, Cast, HostCall, Reshape, StopGradient

LOG = logging.getLogger("tbuda_lab.frontend")


class _Poison:
    """The result of a call that could not be mapped: its readers are skipped, so that one trace names every gap."""


POISON = _Poison()
UNWRITTEN = {
    f"aten::{name}"
    for name in ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
}
"""Calls that give memory as it is."""
ONE_KIND = {
    f"aten::{name}"
    for name in (
        "linear",
        "matmul",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "conv1d",
        "conv2d",
        "convolution",
        "conv_transpose2d",
    )
}
"""Ops whose tensors must all be floats, or all integers."""
INLINED = {"wrap_with_set_grad_enabled": 2, "wrap_with_autocast": 5}
"""Higher-order calls that only wrap a region: the number of leading arguments before the region's own operands,
the region itself included."""


def from_torch(
    module: torch.nn.Module,
    sample_inputs: Any,
    *,
    kwargs: dict[str, Any] | None = None,
    name: str = "model",
    progress: Callable[[str], None] | None = None,
    dropouts: list[Origin] | None = None,
    drops: Callable[[Origin], bool] | None = None,
    trains: bool = False,
    whole: bool = False,
) -> Graph:
    """The nD graph of a torch module, traced in the mode that it is in on one element of the microbatch.

    Dim 0 of the inputs is the microbatch, unless the model mixes along it (see `microbatch.py`).

    sample_inputs: a tensor, a tuple of positional inputs, or a dict of keyword inputs (any order). INPUT nodes follow
    the forward's order with attrs "dtype" and "argument"; PARAMETER nodes bear the state dict's dotted names, tied
    weights once; OUTPUT nodes are `<name>.output_<k>` with attrs "path", the output's place in the returned structure.
    progress: is called with how far it is ("op 113 of 337"), often, and may raise `Cancelled` to stop it.
    dropouts: gets the places of dropouts, which do nothing in eval mode. drops: which of them multiply by a mask, a
    further INPUT node with `attrs[DROPOUT]` (see `inputs.draw_masks`). trains: in the mode that the module is in, with
    all that its code says about gradients. whole: the microbatch is one element.
    Raises `ModelError` (cannot be traced), `InputError` (inputs that do not fit), `UnsupportedOp` (all ops without a
    mapping at once).
    """
    if isinstance(module, torch.export.ExportedProgram):
        module = module.module()
    refuse_script(module)
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"from_torch takes a torch.nn.Module, not {type(module).__name__}; wrap a function in a Module"
        )
    refuse_lazy(module)
    bound = bind(module.forward, sample_inputs, kwargs)
    mode = functools.partial(traced_mode, trains=trains, keeps_dropouts=drops is not None)
    with quiet():  # it calls the module a few times: what that warns of is not said as often
        register_outputs()
        first = refuse_state(module, bound, mode)
    with classes_kept(module):  # the trace calls a copy: what forward writes stays out of the user's module
        try:
            own = own_copy(module, shares=True)
            copy = module if own is None else own  # one that is empty is false
            with TracerErrors() as errors:
                graph, found, traced = _trace(copy, bound, name, progress, drops, trains, whole)
            if errors.seen or reads_under_handlers(module):
                refuse_handled(module, traced, mode, lambda own: export(own, traced, None, drops is not None, trains))
        except (UnsupportedOp, ModelError) as error:
            if trains or not any(layer.training for layer in module.modules()):
                raise
            hint = f"{str(error).splitlines()[0]}; the model is in training mode: call .eval() on it for inference"
            raise type(error)(hint, error.diagnostics) from error
    if first is not None and not trains:
        with quiet():
            audit_answers(graph, module, traced, first, mode)
            if bound.microbatch > traced.microbatch:
                last = bound.microbatch - 1
                audit_answers(graph, module, bound.cut(last), first, mode, last)
    if dropouts is not None:
        dropouts += found
    return graph


def _trace(
    module: torch.nn.Module,
    bound: BoundInputs,
    name: str,
    progress: Callable[[str], None] | None,
    drops: Callable[[Origin], bool] | None,
    trains: bool,
    whole: bool,
) -> tuple[Graph, list[Origin], BoundInputs]:
    """The graph, the places of dropouts, and the inputs that it was traced on; see `from_torch`."""
    mode = evaluation if trains else functools.partial(traced_mode, keeps_dropouts=drops is not None)
    if not whole and bound.microbatch > 1 and elementwise_in_batch(module, bound, mode):
        bound = bound.cut()
    importer = _TorchImporter(export(module, bound, progress, drops is not None, trains), bound, name, progress)
    importer.emit.drops, importer.emit.keeps_stops = drops, trains
    return importer.run(), importer.emit.dropouts, bound


class _TorchImporter:
    def __init__(
        self, program: ExportedProgram, bound: BoundInputs, name: str, progress: Callable[[str], None] | None = None
    ) -> None:
        self.program, self.progress = program, progress
        self.bound = bound
        self.graph = Graph(name)
        self.emit = Emitter(self.graph)
        self.caches = Caches(self.graph)
        self.rams: dict[str, str] = {}
        """By buffer that the forward writes the node of its ram."""
        self.asserted: list[tuple[str, str]] = []
        """Conditions that the model asserts, each with what is said where it does not hold."""
        self.findings: list[Diagnostic] = []
        self.deferred: list[Diagnostic] = []
        """Ops that only the host has, on what the device computes: named with the gaps, if there are any."""

    def run(self) -> Graph:
        values = self._run_region(self.program.graph_module, self._leaves())
        if self.findings:
            self.findings += self.deferred
            count = len(self.findings)
            raise UnsupportedOp(f"{count} op{'s' * (count > 1)} of the model cannot be mapped", self.findings)
        self._outputs(values)
        self.caches.close()
        _drop_unread_constants(self.graph)
        return self.graph

    # -- leaves ----------------------------------------------------------------------------------------------
    def _leaves(self) -> list[Any]:
        """A value for every placeholder: inputs, parameters (tied ones once), buffers and constants."""
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        specs = self.program.graph_signature.input_specs
        user = iter(self.bound.leaves)
        values: list[Any] = []
        tied: dict[tuple[Any, ...], AtenValue] = {}
        inputs_first: list[tuple[int, Any, Any]] = []
        for position, (node, spec) in enumerate(zip(placeholders, specs, strict=True)):
            values.append(None)
            if spec.kind is InputKind.USER_INPUT:
                inputs_first.append((position, node, spec))
        for position, node, spec in inputs_first:
            if isinstance(spec.arg, ConstantArgument):
                values[position] = spec.arg.value
                continue
            if not isinstance(node.meta.get("val"), torch.Tensor):
                values[position] = node.meta.get("val")
                continue
            path, tensor = next(user)
            values[position] = self._input(path, tensor)
        if self.bound.plain and self.graph.inputs:
            self.graph.inputs[0].attrs[PLAIN] = [list(pair) for pair in self.bound.plain]
        written = {str(t) for t in self.program.graph_signature.buffers_to_mutate.values()}
        for position, spec in enumerate(specs):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                keeps = str(spec.target) in written
                values[position] = self._stored_value(str(spec.target), spec.persistent, {} if keeps else tied, keeps)
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                values[position] = FoldedValue(self.program.constants[str(spec.target)], str(spec.target))
            elif spec.kind in (InputKind.CUSTOM_OBJ, InputKind.TOKEN):
                values[position] = None  # a random generator, say; the op that draws from it is refused
            elif spec.kind is not InputKind.USER_INPUT:
                raise ModelError(f"the model needs an input of kind {spec.kind.name}, which is not supported")
        return values

    def _input(self, path: str, tensor: torch.Tensor) -> AtenValue:
        name = self.emit.leaf(NodeKind.INPUT, path, tensor.shape, dtype=dtype_name(tensor), argument=path)
        if tensor.dtype == torch.bool:
            self.emit.scope = ""
            name = self.emit.op(Cast("bool"), name, name=self.graph.unique(f"{name}.cast"))
        self.emit.made[name] = tensor.dtype
        return AtenValue(name, tensor.dtype)

    def _stored_value(
        self, target: str, persistent: bool | None, tied: dict[tuple[Any, ...], AtenValue], keeps: bool = False
    ) -> AtenValue | FoldedValue:
        """A parameter or buffer. Buffers of integers or truth values are constants: nobody trains them. On the meta
        device they have no values, and none that matter to where ops are placed: zeros stand for them. keeps: the
        forward writes it, so it is a ram."""
        source = self.program.constants if persistent is False else self.program.state_dict
        tensor = source[target]
        has_data = tensor.device.type != "meta" and not isinstance(tensor, torch._subclasses.FakeTensor)
        if not tensor.is_floating_point() and not keeps:
            return FoldedValue(tensor if has_data else torch.zeros(tuple(tensor.shape), dtype=tensor.dtype), target)
        key = (tensor.data_ptr() if has_data else id(tensor), tuple(tensor.shape), tuple(tensor.stride()))
        if key in tied and tensor.numel():
            return tied[key]
        value = _kept_array(tensor) if has_data and keeps else as_array(tensor) if has_data else None
        self.emit.origin = Origin(module=target.rpartition(".")[0])
        name = self.emit.leaf(NodeKind.PARAMETER, target, tensor.shape, value)
        if keeps:
            self.graph[name].attrs |= {ROLE: CACHE, "dtype": dtype_name(tensor)}
            self.rams[target] = name
            self.emit.made[name] = tensor.dtype
        tied[key] = AtenValue(name, tensor.dtype)
        return tied[key]

    # -- calls -----------------------------------------------------------------------------------------------
    def _run_region(self, module: torch.fx.GraphModule, arguments: list[Any]) -> list[Any]:
        """Values of the outputs of one graph module for these values of its placeholders."""
        values: dict[torch.fx.Node, Any] = {}
        incoming = iter(arguments)
        for at, node in enumerate(module.graph.nodes):
            if self.progress is not None and node.op == "call_function":
                self.progress(f"op {at} of {len(module.graph.nodes)}")
            if node.op == "placeholder":
                values[node] = next(incoming)
            elif node.op == "get_attr":
                attribute = operator.attrgetter(str(node.target))(module)
                values[node] = FoldedValue(attribute, node.name) if isinstance(attribute, torch.Tensor) else attribute
            elif node.op == "call_function":
                values[node] = self._call(
                    node, *pytree.tree_map_only(torch.fx.Node, values.get, (node.args, node.kwargs))
                )
            elif node.op == "output":
                returned = pytree.tree_map_only(torch.fx.Node, values.get, node.args[0])
                return list(returned) if isinstance(returned, tuple | list) else [returned]
        return []

    def _call(self, node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = node.target
        if target is operator.getitem:
            return self._item(node, args[0], args[1])
        wrapped = INLINED.get(getattr(target, "__name__", ""))
        if wrapped is not None:
            region = next(a for a in args[:wrapped] if isinstance(a, torch.fx.GraphModule))
            results = self._run_region(region, list(args[wrapped:]))
            return [self._stop(v) for v in results] if wrapped == 2 and args[0] is False else results
        if getattr(target, "__name__", "") == "with_effects":  # (token, op, arguments): an op that must keep its order
            return self._effect(node, *args[1:])
        name = target._schema.name if isinstance(target, torch._ops.OpOverload) else ""
        if name == ASSERTS:
            return self._assert(node, *args)
        if name in IGNORED:
            return None
        if name == SIZE:
            return self._size(*args)
        if name in VALUE_FREE:
            args = (self._blank(node.all_input_nodes[0]), *args[1:])
        args, kwargs = pytree.tree_map_only(AtenValue, functools.partial(known_if_empty, self.graph), (args, kwargs))
        leaves = pytree.tree_leaves((args, kwargs))
        poisoned = any(isinstance(v, _Poison) for v in leaves)
        if isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE and not lookup(target):
            if poisoned:
                return POISON
            cached = self.caches.call(name.rpartition("::")[2], *(v.name for v in args))
            return AtenValue(cached, node.meta["val"].dtype)
        if not poisoned and not any(isinstance(v, AtenValue) for v in leaves):
            return self._fold(node, target, args, kwargs)
        if not isinstance(target, torch._ops.OpOverload) and poisoned:
            return POISON  # Python's own arithmetic on a size that no op gave
        self.emit.origin = origin_of(node.meta, target)
        self.emit.scope = self.emit.origin.module
        mapping = complex_call if _is_complex(node, leaves) else mapping_of(target)
        if mapping is None:
            return self._refuse(node, _why_unmapped(node, target))
        if poisoned:
            if mapping in (host_call, complex_call):
                self.deferred.append(self._finding(node, "only the host implements it"))
            return POISON
        assert isinstance(target, torch._ops.OpOverload)
        if target._schema.name in ONE_KIND:
            self._check_kinds(target, leaves)
        meta = node.meta["val"]
        if isinstance(meta, torch.Tensor) and (known := known_empty(meta, node.name)) is not None:
            return known
        return self._mapped(node, mapping, Call(target, by_name(target, args, kwargs), meta, self.emit))

    def _mapped(self, node: torch.fx.Node, mapping: Mapping, call: Call) -> Any:
        """What the ops give that a call is made of; the host makes it where they cannot and it can."""
        host_has_it = has_host_form(call)
        count = len(self.graph.nodes)
        try:
            try:
                result = mapping(call)
            except (CannotMap, ShapeError) as error:
                if not host_has_it or str(error) == VALUES_DECIDE:
                    raise
                result = host_instead(call, count)
            if host_has_it and isinstance(result, tuple) and any(result[k] is None for k in _used_items(node)):
                result = host_instead(call, count)  # its indices
        except (CannotMap, ShapeError) as error:
            return self._refuse(node, str(error))
        entry = self.graph.nodes.get(result) if isinstance(result, str) else None
        first = entry or self.graph.nodes.get(next((r for r in result if r), "") if isinstance(result, tuple) else "")
        if call.counts():
            self.emit.mark_sums(count, result, node.meta["val"])
        if first is not None and isinstance(first.op, HostCall):
            self.deferred.append(self._finding(node, "only the host implements it"))
        return self._result(node, result)

    def _effect(self, node: torch.fx.Node, op: Any, *args: Any) -> Any:
        """An op that torch keeps in its order for what it does beside its result."""
        name = op._schema.name if getattr(op, "_schema", None) is not None else ""
        if name in IGNORED:
            return ("token",)
        if name == ASSERTS:
            self._assert(node, *args)
            return ("token",)
        self.emit.origin = origin_of(node.meta, op)
        return self._refuse(node, "it does more than compute its result")

    def _size(self, x: Any, dim: int) -> Any:
        if isinstance(x, _Poison):
            return POISON
        return int((self.graph[x.name].shape if isinstance(x, AtenValue) else x.tensor.shape)[dim])

    def _stop(self, value: Any) -> Any:
        """A value that leaves a region without gradients."""
        if not (self.emit.keeps_stops and isinstance(value, AtenValue) and value.dtype.is_floating_point):
            return value
        return AtenValue(self.emit.op(StopGradient(), value.name), value.dtype)

    def _blank(self, source: torch.fx.Node) -> FoldedValue:
        """A tensor of the right shape and type, for an op that reads nothing else of it."""
        meta = source.meta["val"]
        return FoldedValue(torch.zeros(known_shape(meta) or (), dtype=meta.dtype), source.name)

    def _fold(self, node: torch.fx.Node, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call whose operands are all known is made now, by torch itself."""
        if _is_random(target):
            self.emit.origin = origin_of(node.meta, target)
            return self._refuse(node, RANDOM)
        plain_args, plain_kwargs = pytree.tree_map_only(FoldedValue, lambda f: f.tensor, (args, kwargs))
        if isinstance(plain_kwargs.get("device"), torch.device):  # a model on the meta device makes its constants too
            plain_kwargs = {**plain_kwargs, "device": torch.device("cpu")}
        if problem := large_values.problem_of_constant(large_values.elements(node.meta.get("val"))):
            self.emit.origin = origin_of(node.meta, target)
            return self._refuse(node, f"{problem}: make it smaller, or an input of the model")
        result = target(*plain_args, **plain_kwargs)
        if isinstance(target, torch._ops.OpOverload) and target._schema.name in UNWRITTEN:
            result = result.zero_()  # what happens to lie there would come into the netlist
        origin = origin_of(node.meta, target)
        label = f"{origin.module}.{node.name}" if origin.module else node.name
        return pytree.tree_map_only(torch.Tensor, lambda t: FoldedValue(t, label), result)

    def _item(self, node: torch.fx.Node, values: Any, position: int) -> Any:
        if isinstance(values, _Poison):
            return POISON
        item = values[position]
        if item is None and node.users:
            self.emit.origin = origin_of(
                node.meta, node.args[0].target if isinstance(node.args[0], torch.fx.Node) else ""
            )
            return self._refuse(
                node, f"its output {position} (indices or statistics) is not supported; only output 0 is"
            )
        return item

    def _check_kinds(self, target: torch._ops.OpOverload, operands: list[Any]) -> None:
        """Raise `InputError` for integers among the floats of a product: torch refuses them when the model runs."""
        dtypes = [
            v.dtype if isinstance(v, AtenValue) else v.tensor.dtype
            for v in operands
            if isinstance(v, AtenValue | FoldedValue)
        ]
        if len({d.is_floating_point for d in dtypes}) > 1:
            origin = self.emit.origin
            raise InputError(
                f"{target} at {origin.location or origin.module} multiplies "
                f"{' and '.join(sorted(map(str, set(dtypes))))}; "
                "give the inputs of the model the dtype of its weights"
            )

    def _result(self, node: torch.fx.Node, result: Any) -> Any:
        """Node names as values with torch's dtypes; the shapes we inferred must be torch's."""
        meta = node.meta["val"]
        if isinstance(meta, tuple | list) and not isinstance(result, tuple):
            result = (result,)  # what else torch returns is for its own backward (log_sigmoid_forward)
        if isinstance(result, tuple):
            return tuple(
                self._check_value(node, r, m) if r is not None else known_empty(m, node.name)
                for r, m in zip(result, meta, strict=False)
            )
        return self._check_value(node, result, meta)

    def _check_value(self, node: torch.fx.Node, name: str, meta: torch.Tensor) -> AtenValue:
        ours, theirs = tuple(self.graph[name].shape), known_shape(meta)
        if theirs is not None and meta.is_complex():
            theirs = *theirs, 2
        if theirs is not None and ours != theirs and math.prod(ours) == math.prod(theirs):
            name, ours = self.emit.op(Reshape(theirs), name), theirs  # a number beside a tensor of one element
        if theirs is not None and ours != theirs:
            raise ModelError(
                f"{node.target} at {self.emit.origin.location}: mapped to shape {ours}, torch says {theirs}"
            )
        name = self.emit.typed(name, meta.dtype)
        return AtenValue(name, meta.dtype)

    def _refuse(self, node: torch.fx.Node, reason: str) -> _Poison:
        self.findings.append(self._finding(node, reason))
        return POISON

    def _finding(self, node: torch.fx.Node, reason: str) -> Diagnostic:
        origin = self.emit.origin
        where = origin.module or "(root module)"
        at = f" ({origin.location})" if origin.location else ""
        message = f"{origin.source_op or node.target}: {reason}"
        return Diagnostic("error", f"{where}{at}", "unsupported op", message, _advice(origin.source_op))

    # -- rams ------------------------------------------------------------------------------------------------
    def _is_own(self, target: str) -> bool:
        """Whether a buffer shares its memory with no other buffer or parameter, which its writes would change too."""
        stored = {**self.program.state_dict, **self.program.constants}
        tensors = {n: t for n, t in stored.items() if isinstance(t, torch.Tensor) and t.device.type != "meta"}
        if target not in tensors or isinstance(tensors[target], torch._subclasses.FakeTensor):
            return True
        start = tensors[target].untyped_storage().data_ptr()
        return all(n == target or t.untyped_storage().data_ptr() != start for n, t in tensors.items())

    def _write(self, target: str, value: Any, node: torch.fx.Node) -> None:
        """The OUTPUT that stands for what a buffer is after the forward. Raises `UnsupportedOp` for another shape."""
        ram = self.graph[self.rams[target]]
        line = user_line(node.meta.get("stack_trace"))
        self.emit.origin = Origin(target.rpartition(".")[0], source_op="buffer", location=line or "")
        if isinstance(value, FoldedValue):
            name, dtype = self.emit.constant(value.tensor, self.graph.unique(value.label)), value.tensor.dtype
        else:
            name, dtype = value.name, value.dtype
        if self.graph[name].shape != ram.shape:
            finding = Diagnostic(
                "error",
                line or target,
                "state",
                f"{target!r} of shape {ram.shape} becomes {self.graph[name].shape}",
                "a buffer of one shape",
            )
            raise UnsupportedOp(f"the model writes another shape to {target}", [finding])
        wanted = getattr(torch, str(ram.attrs["dtype"]))
        if dtype != wanted and not (dtype.is_floating_point and wanted.is_floating_point):
            name = self.emit.op(Cast(str(ram.attrs["dtype"])), name)
        self.emit.output(name, f"{ram.name}.write", dtype=ram.attrs["dtype"])
        self.graph[f"{ram.name}.write"].attrs[WRITES] = ram.name
        self.graph[f"{ram.name}.write"].origin = self.emit.origin

    # -- outputs ---------------------------------------------------------------------------------------------
    def _assert(self, node: torch.fx.Node, condition: Any, text: str = "") -> None:
        """Keep what the model asserts of values; `_outputs` hands them through it."""
        line = user_line(node.meta.get("stack_trace"))
        text = f"the model asserts something of these inputs that is not so{f': {text}' if text else ''} ({line})"
        if isinstance(condition, FoldedValue):
            if not bool(condition.tensor.all()):
                raise InputError(text)
        elif isinstance(condition, AtenValue):
            if self.emit.keeps_stops:
                what = Diagnostic("error", line or node.name, "assertion", "a step of the host within a training step")
                raise UnsupportedOp("a training cannot assert anything of values; assert it of the inputs", [what])
            self.asserted.append((condition.name, text))

    def _outputs(self, values: list[Any]) -> None:
        specs = self.program.graph_signature.output_specs
        returned = next(n for n in self.program.graph.nodes if n.op == "output").args[0]
        changed = {k: str(s.target) for k, s in enumerate(specs) if s.kind is OutputKind.USER_INPUT_MUTATION}
        written = {k: str(s.target) for k, s in enumerate(specs) if s.kind is OutputKind.BUFFER_MUTATION}
        changed |= {k: target for k, target in written.items() if self.emit.keeps_stops or not self._is_own(target)}
        if changed:
            fix = "return the new value as an output"
            findings = [
                Diagnostic(
                    "error",
                    user_line(returned[k].meta.get("stack_trace")) or name,
                    "state",
                    f"{name!r} is written to by the forward",
                    fix,
                )
                for k, name in changed.items()
            ]
            raise UnsupportedOp(f"the model writes to {', '.join(changed.values())} while it runs; {fix}", findings)
        for k, target in written.items():
            self._write(target, values[k], returned[k])
        selected = [v for v, s in zip(values, specs, strict=True) if s.kind is OutputKind.USER_OUTPUT]
        paths = _output_paths(self.program.call_spec.out_spec, len(selected))
        plain = [f"{path} = {v!r}" for v, path in zip(selected, paths, strict=True) if isinstance(v, int | float | str)]
        if plain:
            LOG.warning(
                "what the model returns beside tensors is that of the trace, and no run gives it: %s", ", ".join(plain)
            )
        count = 0
        for value, path in zip(selected, paths, strict=True):
            if isinstance(value, FoldedValue):
                value = AtenValue(self.emit.constant(value.tensor, self.graph.unique(value.label)), value.tensor.dtype)
            if isinstance(value, AtenValue):
                if value.dtype.is_complex:
                    raise UnsupportedOp(
                        f"output {path or count} of the model is complex; return torch.view_as_real of it instead"
                    )
                dtype, name = str(value.dtype).removeprefix("torch."), value.name
                while self.asserted:
                    condition, text = self.asserted.pop()
                    name = self.emit.op(Assertion(text), name, condition)
                self.emit.output(name, f"{self.graph.name}.output_{count}", path=path, dtype=dtype)
                count += 1
        if count == 0:
            raise ModelError("the model returns no tensor")


def _used_items(node: torch.fx.Node) -> list[int]:
    """Which outputs of an op with several are read."""
    read = [user.args[1] for user in node.users if user.target is operator.getitem and user.users]
    return [index for index in read if isinstance(index, int)]


def _is_complex(node: torch.fx.Node, operands: list[Any]) -> bool:
    """Whether a call reads or makes complex numbers."""
    results = [t for t in pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]
    values = [v.dtype for v in operands if isinstance(v, AtenValue)]
    values += [v.tensor.dtype for v in operands if isinstance(v, FoldedValue)]
    return any(dtype.is_complex for dtype in [*values, *(t.dtype for t in results)])


def _why_unmapped(node: torch.fx.Node, target: Any) -> str:
    """Why a call that no mapping knows cannot be placed."""
    if isinstance(target, torch._ops.OpOverload) and target._schema.name == ITEM:
        return "item(), int() or float() makes a Python number of a tensor's value; go on with the tensor itself"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "control flow of torch; compute both sides and choose with torch.where, or unroll the loop"
    if getattr(target, "__module__", "").startswith("torch._functorch"):
        return "torch.vmap calls a function over a dim; write the dim into its ops"
    made = [t for t in pytree.tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)]
    if any(known_shape(t) is None for t in made):
        return VALUES_DECIDE
    return RANDOM if _is_random(target) else "Unsupported op"


def _kept_array(tensor: torch.Tensor) -> np.ndarray:
    """What a ram holds at first: a copy, for the buffer is the user's."""
    return as_array(tensor).copy() if tensor.is_floating_point() else tensor.detach().cpu().numpy().copy()


def _is_random(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _output_paths(spec: pytree.TreeSpec | None, count: int) -> list[str]:
    """The place of every output in what forward returns: "", "[1]", "['last_hidden_state']"."""
    if spec is None or spec.num_leaves != count:
        return [f"[{k}]" for k in range(count)]
    tree = pytree.tree_unflatten(list(range(count)), spec)
    try:
        keyed = pytree.tree_flatten_with_path(tree)[0]
    except Exception:
        return [f"[{k}]" for k in range(count)]
    return [pytree.keystr(path) for path, _ in keyed] if len(keyed) == count else [f"[{k}]" for k in range(count)]


def _drop_unread_constants(graph: Graph) -> None:
    users = graph.users()
    for node in graph.of_kind(NodeKind.CONSTANT):
        if not users[node.name]:
            graph.remove(node.name)


def _advice(source_op: str) -> str:
    if source_op.startswith("higher_order"):
        return HOST_FIX.replace("it with supported ops", "the branch with torch.where")
    return HOST_FIX
