"""Running torch.export so that failures become our typed errors with the user's line."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import Diagnostic, InputError, ModelError, TbudaError, UnsupportedOp, quantity
from tbuda_lab.core.frontend.aten import lookup
from tbuda_lab.core.frontend.eager import as_trained
from tbuda_lab.core.frontend.inputs import BoundInputs
from tbuda_lab.core.frontend.provenance import origin_of, raised_at
from tbuda_lab.core.frontend.torch_model.caches import NAMESPACE
from tbuda_lab.core.frontend.torch_model.dropouts import KeepDropouts
from tbuda_lab.core.frontend.torch_model.gradients import (
    KeepGradients,
    functions_kept,
    own_mode,
    parameters_hooked,
)

LOG = logging.getLogger("tbuda_lab.frontend")
_ONE = threading.RLock()
"""Held while torch traces: what `torch.export` and its decompositions set aside is the process's, not the thread's."""
SIZE = "aten::sym_size"
ITEM = "aten::_local_scalar_dense"
VALUE_FREE = {
    f"aten::{name}"
    for name in (
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "zero",
        "fill",
    )
}
"""Ops that use only the shape and type of their first operand, so their results are known at once."""
NEW_RESULTS = {
    f"aten::{name}"
    for name in (
        "batch_norm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "group_norm",
        "instance_norm",
        "layer_norm",
        "linear",
        "matmul",
        "max_pool1d",
        "max_pool2d",
        "scaled_dot_product_attention",
        "softmax",
        "log_softmax",
    )
}
"""Ops that torch writes with others and that never return an operand of theirs, as dropout does when nothing trains."""
IGNORED = {
    f"aten::{name}"
    for name in (
        "_assert_tensor_metadata",
        "_assert_scalar",
        "sym_constrain_range_for_size",
        "_linalg_check_errors",
    )
}
"""Checks that tracing with fixed shapes has already made."""
ASSERTS = "aten::_assert_async"


@contextlib.contextmanager
def evaluation(module: torch.nn.Module) -> Iterator[None]:
    """The module in eval mode for the time of the trace; every submodule's own mode comes back afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    set_evaluation(module)
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


def set_evaluation(module: torch.nn.Module) -> torch.nn.Module:
    """The module in eval mode; one that torch.export has made stays in the mode in which it was exported."""
    with contextlib.suppress(NotImplementedError):
        module.eval()
    return module


def traced_mode(
    module: torch.nn.Module, trains: bool = False, keeps_dropouts: bool = False
) -> contextlib.AbstractContextManager[None]:
    """The mode in which a module is traced: its own; where dropouts stand for what they do in training, eval mode."""
    if trains:
        return own_mode(module)
    return evaluation(module) if keeps_dropouts else contextlib.nullcontext()


_CHATTY = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


class _OfThreads:
    """Matches the warnings of some threads: stands for a message in a filter of `warnings`, which asks its `match`."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def match(self, _: str) -> bool:
        return threading.get_ident() in self.threads


_SILENT = _OfThreads()


def _print_unless_silent(*args: Any, **kwargs: Any) -> None:
    if threading.get_ident() not in _SILENT.threads:
        print(*args, **kwargs)


def _load_tracer() -> None:
    """torch's tracer, which is as large as torch itself and which nobody needs before the first trace. Where a trace
    fails it prints the graph so far to stderr: its own `print`, and only for our traces nothing."""
    from torch.export import _trace

    _trace.print = _print_unless_silent  # type: ignore[attr-defined]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without torch's own chatter about the trace: our errors say it in fewer words.

    Warnings of this thread alone are left out. What other threads warn of, and what anybody writes to stderr, goes
    where it always does.
    """
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    me, entry = threading.get_ident(), ("ignore", _SILENT, Warning, None, 0)
    outermost = me not in _SILENT.threads
    _SILENT.threads.add(me)
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters.insert(0, entry)
    try:
        yield
    finally:
        if outermost:
            _SILENT.threads.discard(me)
        if entry in filters:
            filters.remove(entry)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def register_outputs() -> None:
    """Makes the output classes of transformers known to torch, so that a trace sees the tensors in them. The library
    does it when a class is defined, but not while torch traces: whatever is imported during a trace stays unknown."""
    library = sys.modules.get("transformers.utils.generic")
    base, register = getattr(library, "ModelOutput", None), getattr(library, "_register_model_output_pytree_node", None)
    if base is None or register is None:
        return
    classes = list(base.__subclasses__())
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls not in pytree.SUPPORTED_NODES:
            register(cls)


_OF_VALUES = (torch.SymInt, torch.SymFloat, torch.SymBool)
_TENSOR = "return the tensor itself, without item(), int() or float()"


@contextlib.contextmanager
def tensors_only(module: torch.nn.Module, gradients: KeepGradients | None = None) -> Iterator[None]:
    """Objects that a forward returns beside tensors (a key-value cache, say) are left out, with one warning. Tensors
    with hooks are what stands for them."""

    def keep_tensors(_: torch.nn.Module, __: Any, output: Any) -> Any:
        leaves, spec = pytree.tree_flatten(output)
        if gradients is not None:
            leaves = [gradients.current(v) for v in leaves]
            output = pytree.tree_unflatten(leaves, spec)
        numbers = [k for k, v in pytree.tree_flatten_with_path(output)[0] if isinstance(v, _OF_VALUES)]
        if numbers:
            paths = ", ".join(pytree.keystr(k) or "the output" for k in numbers)
            found = Diagnostic(
                "error", f"output {paths}", "unsupported", "a Python number of a tensor's value", _TENSOR
            )
            raise UnsupportedOp("the model returns numbers that depend on its inputs beside tensors", [found])
        foreign = [type(v).__name__ for v in leaves if not isinstance(v, torch.Tensor | int | float | str | None)]
        if not foreign:
            return output
        LOG.warning(
            "outputs of type %s hold no tensors that can be traced and are left out", ", ".join(sorted(set(foreign)))
        )
        result = [v if isinstance(v, torch.Tensor | int | float | str | None) else None for v in leaves]
        return pytree.tree_unflatten(result, spec)

    handle = module.register_forward_hook(keep_tensors)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def reported_calls(module: torch.nn.Module, progress: Callable[[str], None] | None) -> Iterator[None]:
    """`progress` is called at every call of a submodule in this thread, and may raise. The hook is torch's global one:
    a hook of the modules themselves would change the way through modules that look for hooks."""
    if progress is None:
        yield
        return
    me, names = threading.get_ident(), {m: name for name, m in module.named_modules()}
    calls = 0

    def before_call(submodule: torch.nn.Module, _: Any) -> None:
        nonlocal calls
        if threading.get_ident() == me and submodule in names:
            calls += 1
            name = names[submodule]
            progress(f"call {calls} of a module, {name}" if name else f"call {calls} of a module")

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before_call)
    try:
        yield
    finally:
        handle.remove()


def export(
    module: torch.nn.Module,
    inputs: BoundInputs,
    progress: Callable[[str], None] | None = None,
    keeps_dropouts: bool = False,
    trains: bool = False,
) -> ExportedProgram:
    """Trace with fixed shapes into functional aten calls, as many of them as possible ops that our table maps.

    One thread traces at a time, others wait. Raises `ModelError` for control flow that depends on data and for code
    that cannot be traced, `InputError` for inputs that the model refuses; both name the user's line. progress: is
    called with how far it is, and may raise `Cancelled`. keeps_dropouts: dropouts are calls that stay (`KeepDropouts`).
    The module is in the mode of `traced_mode`. trains: with what its code says about gradients
    (`KeepGradients`); dropouts stay.
    """
    _load_tracer()
    register_outputs()
    with _ONE, torch.set_grad_enabled(trains), quiet():
        try:
            with _as_it_is_traced(module, progress, keeps_dropouts, trains):
                program = torch.export.export(module, inputs.args, inputs.kwargs, strict=False)
        except TbudaError:
            raise
        except RuntimeError as error:
            if ".numpy() is not supported" not in str(error):
                raise _explain(error, inputs) from error
            with _as_it_is_traced(module, progress, keeps_dropouts, trains):
                program = _through_numpy(module, inputs, error)
        except Exception as error:
            raise _explain(error, inputs) from error
        try:
            return functional(program)
        except (RuntimeError, NotImplementedError, AssertionError) as error:  # torch cannot take apart what it traced
            raise _explain(error, inputs) from error


@contextlib.contextmanager
def _masks_not_read() -> Iterator[None]:
    """torch's transformer layers without their look at the values of a mask: where it is causal they say so to
    attention, beside the mask, which says the same."""
    kind = torch.nn.modules.transformer
    detect = kind._detect_is_causal_mask
    kind._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        kind._detect_is_causal_mask = detect


@contextlib.contextmanager
def _as_it_is_traced(
    module: torch.nn.Module, progress: Callable[[str], None] | None, keeps_dropouts: bool, trains: bool
) -> Iterator[None]:
    """The mode of the module, and the modes of torch that look at its calls."""
    gradients = KeepGradients() if trains else None
    contexts: list[contextlib.AbstractContextManager[Any]] = [
        as_trained(),
        _masks_not_read(),
        traced_mode(module, trains, keeps_dropouts),
        tensors_only(module, gradients),
        reported_calls(module, progress),
    ]
    if trains or keeps_dropouts:
        contexts.append(KeepDropouts(not trains))
    if gradients is not None:
        contexts += [functions_kept(gradients), parameters_hooked(module, gradients), gradients]
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _through_numpy(module: torch.nn.Module, inputs: BoundInputs, error: Exception) -> ExportedProgram:
    """The trace of a forward that calls NumPy on its tensors: the strict mode reads the code, and knows NumPy's calls
    as torch's. Raises as `export` does, about the first error, where it cannot either."""
    try:
        return torch.export.export(module, inputs.args, inputs.kwargs, strict=True)
    except Exception:
        raise _explain(error, inputs) from error


def functional(program: ExportedProgram) -> ExportedProgram:
    """Rewrite in-place ops, and decompose what our table lacks where torch knows how; no work if neither occurs.

    Calls without an input or parameter of the model among their operands are not looked at: the importer makes them.
    torch traces the whole program once more for a decomposition, so plain in-place ops are rewritten here instead.
    """
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    for module in modules:
        _drop_checks(module.graph)
        _refuse_recurrent_dropouts(module.graph)
        _refuse_shared_writes(module.graph)
    if len(modules) == 1:
        graph = program.graph_module.graph
        if _writing(graph):
            for node in graph.find_nodes(op="call_function", target=torch.ops.aten.dropout.default):
                if node.args[2:3] == (False,):  # returns the tensor itself, which torch's own rewriting forgets
                    node.replace_all_uses_with(node.args[0])
                    graph.erase_node(node)
        for node in _in_place(graph):
            _out_of_place(node)
    changing = _changing(program) if len(modules) == 1 else None
    targets = {
        node.target
        for module in modules
        for node in module.graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and (changing is None or node in changing)
    }
    mutable = [t for t in targets if t._schema.is_mutable]
    unmapped = [
        t
        for t in targets
        if not lookup(t)
        and not t._schema.is_mutable
        and t._schema.name not in IGNORED | {SIZE}
        and t.namespace != NAMESPACE
    ]
    if not mutable and not unmapped:
        return program
    decompositions = _decompositions()
    table = {t: decompositions[t] for t in decompositions if lookup(t) is None} if unmapped else {}
    if mutable:  # what is left whole hides that its results share the memory of an operand
        table |= {t: decompositions[t] for t in targets if t in decompositions and _hides_views(t)}
    return _decomposed(program, table)


def _decomposed(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """`run_decompositions`, but torch is not told to take apart composite ops the way in which it does of itself: it
    would register each of 500 for nine backends, twice, which takes longer than the trace of a small program."""
    inside: Any = sys.modules[type(program).__module__]
    collect = getattr(inside, "_collect_all_valid_cia_ops", None)
    composite = collect() if collect is not None else frozenset()  # other versions of torch have no such function
    inside._collect_all_valid_cia_ops = lambda: composite - table.keys()
    try:
        left = {op: parts for op, parts in table.items() if op not in composite}
        decomposed: ExportedProgram = program.run_decompositions(left)
    finally:
        inside._collect_all_valid_cia_ops = collect
    return decomposed


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """How torch takes its ops apart: making the table goes through every op that it has, so it is made once."""
    table = torch.export.default_decompositions()
    return {op: table[op] for op in table}


RECURRENT = {f"aten::{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}


def _refuse_recurrent_dropouts(graph: torch.fx.Graph) -> None:
    """Raises `UnsupportedOp` for recurrent layers that drop values between their layers: what torch decomposes them to
    leaves that out."""
    findings = []
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in RECURRENT:
            names = [argument.name for argument in node.target._schema.arguments]
            given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
            if given["train"] and given["dropout"] and given["num_layers"] > 1:
                origin = origin_of(node.meta, node.target)
                where = f"{origin.module or '(root module)'} ({origin.location})"
                text = f"{node.target}: the dropout between its layers draws random numbers"
                fix = "dropout=0, or .eval() on the layer"
                findings.append(Diagnostic("error", where, "unsupported op", text, fix))
    if findings:
        raise UnsupportedOp(f"{quantity(len(findings), 'recurrent layer')} of the model drops values", findings)


def _refuse_shared_writes(graph: torch.fx.Graph) -> None:
    """Raises `UnsupportedOp` for in-place calls on expanded tensors: what torch makes of them adds up what the places
    of one element in memory are given."""
    findings = []
    for node in _writing(graph):
        written = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if isinstance(written, torch.Tensor) and any(
            step == 0 and size > 1 for step, size in zip(written.stride(), written.shape, strict=True)
        ):
            origin = origin_of(node.meta, node.target)
            where = f"{origin.module or '(root module)'} ({origin.location})"
            text = f"{node.target}: several places of what it writes are one in memory"
            findings.append(Diagnostic("error", where, "unsupported op", text, "clone() the tensor before"))
    if findings:
        raise UnsupportedOp("the model writes to expanded tensors", findings)


def _drop_checks(graph: torch.fx.Graph) -> None:
    """Take out the checks of `IGNORED`, and the numbers that they alone read: `item()` of a tensor and Python's
    arithmetic with it; calls that failed, which have no value and which the model went on from, too."""
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node.users:
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            schema = node.target._schema
            failed = bool(schema.returns) and not schema.is_mutable and node.meta.get("val") is None
            drop = failed or schema.name in IGNORED | {ITEM}
        else:
            drop = not isinstance(node.target, torch._ops.HigherOrderOperator)
        if drop:
            graph.erase_node(node)


def _changing(program: ExportedProgram) -> set[torch.fx.Node]:
    """Calls whose results depend on what the model is given or has stored, or that write to a tensor."""
    calls: set[torch.fx.Node] = set()
    for node in program.graph_module.graph.nodes:
        writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        blank = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name in VALUE_FREE
        operands = node.all_input_nodes[1:] if blank else node.all_input_nodes
        if node.op == "placeholder" or writes or any(n in calls for n in operands):
            calls.add(node)
    return calls


def _writing(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The calls that write to a tensor, in order."""
    return [
        node
        for node in graph.nodes
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target._schema.is_mutable
    ]


def _in_place(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """The same; empty where one of them needs more than a call of its plain form."""
    writing = _writing(graph)
    return writing if all(_plain_form(node, set(writing)) is not None for node in writing) else []


def _plain_form(node: torch.fx.Node, writing: set[torch.fx.Node]) -> torch._ops.OpOverload | None:
    """The op that returns what an in-place call writes. None unless our table has it, nothing else has a view of the
    tensor, and the result has the same shape and type. writing: the other in-place calls."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    schema, written = target._schema, node.args[0] if node.args else None
    packet = getattr(torch.ops.aten, schema.name.split("::")[-1].removesuffix("_"), None)
    plain = getattr(packet, target._overloadname, None)
    if not isinstance(written, torch.fx.Node) or not schema.name.endswith("_") or lookup(plain) is None:
        return None
    if any(a.is_write for a in schema.arguments[1:]) or len(schema.returns) != 1:
        return None
    if not _makes_new(written, writing) or any(not _makes_new(user, writing) for user in written.users):
        return None
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    if not all(isinstance(v, torch.Tensor) for v in values) or len({getattr(v, "dtype", None) for v in values}) > 1:
        return None
    assert isinstance(plain, torch._ops.OpOverload)
    return plain


def _makes_new(node: torch.fx.Node, writing: set[torch.fx.Node]) -> bool:
    """Whether the result of a call shares memory with nothing else, in-place calls of a tensor that is new apart."""
    if node.op == "output":
        return True
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(str(target._name), "CompositeImplicitAutograd")
    if composite and target._schema.name not in NEW_RESULTS:
        return False
    return node in writing or all(r.alias_info is None for r in target._schema.returns)


def _hides_views(target: torch._ops.OpOverload) -> bool:
    """Whether an op may give views of its operands, as `meshgrid` does, and its schema says nothing of it."""
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(str(target._name), "CompositeImplicitAutograd")
    aliases = any(r.alias_info is not None for r in target._schema.returns)
    return composite and not aliases and not target._schema.is_mutable and target._schema.name not in NEW_RESULTS


def _out_of_place(node: torch.fx.Node) -> None:
    """Makes an in-place call its plain form; what reads the tensor afterwards reads the result."""
    plain, written = _plain_form(node, {node}), node.args[0]
    assert plain is not None and isinstance(written, torch.fx.Node)
    later = set()
    after = node.next
    while after.op != "root":
        later.add(after)
        after = after.next
    node.target = plain
    written.replace_all_uses_with(node, delete_user_cb=lambda user: user in later)


def _explain(error: Exception, inputs: BoundInputs) -> Exception:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode  # loaded when torch traces

    where, line = raised_at(error)
    at = f" at {where}" if where else ""
    code = f": `{line.strip()}`" if line else ""
    root: BaseException | None = error
    while root is not None:
        if isinstance(root, GuardOnDataDependentSymNode) or "data-dependent" in str(root)[:200]:
            finding = Diagnostic(
                "error",
                where or "forward",
                "data-dependent control flow",
                f"the path taken depends on the value of a tensor{code}",
                "compute both sides and choose with torch.where, or decide outside the model",
            )
            return ModelError(f"the model cannot be traced{at}", [finding])
        root = root.__cause__
    shapes = ", ".join(f"{path} {tuple(t.shape)} {t.dtype}" for path, t in inputs.leaves)
    text = (str(error).strip() or type(error).__name__).split("\n")[0]
    if isinstance(error, RuntimeError | ValueError | IndexError) and _is_shape_complaint(text):
        return InputError(f"the model refuses these inputs{at}{code}: {text}; traced with {shapes}")
    return ModelError(f"the model cannot be traced{at}{code}: {type(error).__name__}: {text}; traced with {shapes}")


def _is_shape_complaint(text: str) -> bool:
    words = (
        "shape",
        "reduction dim",
        "size",
        "dimension",
        "dim ",
        "expected",
        "must match",
        "dtype",
        "scalar type",
        "out of range",
        "channels",
    )
    return any(word in text.lower() for word in words)
