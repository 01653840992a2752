"""Running torch.export so that failures become our typed errors with the user's line."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, ModelError
from tbuda_lab.core.frontend.aten import lookup
from tbuda_lab.core.frontend.inputs import BoundInputs
from tbuda_lab.core.frontend.torch_model.caches import NAMESPACE
from tbuda_lab.core.frontend.torch_model.provenance import raised_at

LOG = logging.getLogger("tbuda_lab.frontend")
_ONE = threading.RLock()
"""Held while torch traces: what `torch.export` and its decompositions set aside is the process's, not the thread's."""
SIZE = "aten::sym_size"
IGNORED = {
    f"aten::{name}"
    for name in ("_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size",
                 "_linalg_check_errors")
}  # fmt: skip
"""Checks that tracing with fixed shapes has already made."""


@contextlib.contextmanager
def evaluation(module: torch.nn.Module) -> Iterator[None]:
    """The module in eval mode for the time of the trace; every submodule's own mode comes back afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


_CHATTY = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without torch's own chatter about the trace: our errors say it in fewer words.

    What the model itself writes to stderr comes out afterwards, when the trace succeeds.
    """
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    text = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(text):
            warnings.simplefilter("ignore")
            yield
        sys.stderr.write(text.getvalue())
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def tensors_only(module: torch.nn.Module) -> Iterator[None]:
    """Objects that a forward returns beside tensors (a key-value cache, say) are left out, with one warning."""

    def keep_tensors(_: torch.nn.Module, __: Any, output: Any) -> Any:
        leaves, spec = pytree.tree_flatten(output)
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
def telling(module: torch.nn.Module, told: Callable[[str], None] | None) -> Iterator[None]:
    """`told` hears of every call of a submodule in this thread, and may raise. The hook is torch's global one: one of
    the modules themselves would take other ways through those that look for hooks."""
    if told is None:
        yield
        return
    me, names = threading.get_ident(), {m: name for name, m in module.named_modules()}
    calls = 0

    def called(submodule: torch.nn.Module, _: Any) -> None:
        nonlocal calls
        if threading.get_ident() == me and submodule in names:
            calls += 1
            told(f"call {calls} of a module, {names[submodule]}" if names[submodule] else f"call {calls} of a module")

    handle = torch.nn.modules.module.register_module_forward_pre_hook(called)
    try:
        yield
    finally:
        handle.remove()


def export(
    module: torch.nn.Module, inputs: BoundInputs, told: Callable[[str], None] | None = None
) -> ExportedProgram:
    """Trace with fixed shapes into functional aten calls, as many of them as possible ops that our table maps.

    One thread traces at a time, others wait. Raises `ModelError` for control flow that depends on data and for code
    that cannot be traced, `InputError` for inputs that the model refuses; both name the user's line. told: hears how
    far it is, and may raise `Cancelled`.
    """
    with _ONE, evaluation(module), tensors_only(module), telling(module, told), torch.no_grad(), quiet():
        try:
            program = torch.export.export(module, inputs.args, inputs.kwargs, strict=False)
        except Cancelled:
            raise
        except Exception as error:
            raise _explain(error, inputs) from error
        return functional(program)


def functional(program: ExportedProgram) -> ExportedProgram:
    """Rewrite in-place ops, and decompose what our table lacks where torch knows how; no work if neither occurs."""
    targets = {
        node.target
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
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
    table = {}
    if unmapped:
        decompositions = torch.export.default_decompositions()
        for target in decompositions:
            if lookup(target) is None:
                table[target] = decompositions[target]
    decomposed: ExportedProgram = program.run_decompositions(table)
    return decomposed


def _explain(error: Exception, inputs: BoundInputs) -> Exception:
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
