"""`torch.compile(model, backend="tbuda")`: each graph that torch captures runs on the simulated device."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError, ModelError, TbudaError, UnsupportedOp
from tbuda_lab.core.formats import parse_format
from tbuda_lab.core.frontend import from_any
from tbuda_lab.core.frontend.inputs import elements, feeds
from tbuda_lab.core.frontend.torch_model.state import fingerprint
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import join_elements
from tbuda_lab.core.session import Session

SETTINGS = ("device", "df", "options", "name")
_graphs: weakref.WeakKeyDictionary[torch.fx.GraphModule, CompiledGraph] = weakref.WeakKeyDictionary()


def tbuda(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Callable[..., Any]:
    """The backend: called by torch for every graph between two breaks.

    options (of torch.compile): "device" (default "wormhole_b0"), "df" (data format, default Float16_b), "options"
    (`CompileOptions`), "name". Weights are bound once; every combination of input shapes is compiled when it is first
    seen and kept. Inference only: results carry no gradient. Raises the compiler's typed errors at the first call.
    """
    merged = {**settings, **(options or {})}
    unknown = sorted(set(merged) - set(SETTINGS))
    if unknown:
        raise InputError(f"backend tbuda has no option {unknown[0]!r}; it has {', '.join(SETTINGS)}")
    result = CompiledGraph(graph_module, **merged)
    _graphs[graph_module] = result
    return result


def sessions() -> list[Session]:
    """Sessions of all graphs that the backend compiled and torch still holds, oldest first: for `BringUp(session)`."""
    return [session for graph in list(_graphs.values()) for session in graph.sessions()]


class CompiledGraph:
    """One captured graph: a session for each combination of input shapes."""

    def __init__(
        self,
        graph_module: torch.fx.GraphModule,
        device: Any = "wormhole_b0",
        df: str | None = None,
        options: CompileOptions | None = None,
        name: str = "graph",
    ) -> None:
        if options is not None and not isinstance(options, CompileOptions):
            raise InputError("the option 'options' takes a CompileOptions")
        if df is not None:
            options = CompileOptions(default_df_override=parse_format(df))
        self._module, self._device, self._options, self._name = graph_module, device, options, name
        self._places = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        self._compiled: dict[tuple[Any, ...], tuple[Runs, tuple[Any, ...]]] = {}

    def sessions(self) -> list[Session]:
        """Of the graphs of which the device runs a part."""
        return [runs for runs, _ in self._compiled.values() if isinstance(runs, Session)]

    def reports(self) -> list[str]:
        """Where each compiled graph runs: a line, or one per section."""
        lines = []
        for runs, _ in self._compiled.values():
            chain = runs.compile().chain if isinstance(runs, Session) else None
            if isinstance(runs, HostRunner):
                lines.append(f"{self._name}, {runs.report()}")
            elif chain is not None:
                lines.append(f"{self._name}\n{chain.report()}")
            else:
                lines.append(f"{self._name}, device: {len(runs.trace().ops)} ops")
        return lines

    def __call__(self, *args: Any) -> Any:
        """The graph's outputs, as torch's own code would return them."""
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            warnings.warn(
                "backend tbuda infers: its results carry no gradient; call the model under torch.no_grad()",
                stacklevel=2,
            )
        with torch.no_grad():
            inputs = [a for k, a in enumerate(args) if not self._is_weight(k, a)]
            tensors = [a for a in inputs if isinstance(a, torch.Tensor)]
            key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in inputs)
            key += tuple((id(a), fingerprint(a)) for k, a in enumerate(args) if self._is_weight(k, a))
            if key not in self._compiled:
                self._compiled[key] = self._compile(args, tensors)
            runs, template = self._compiled[key]
            if not tensors:
                return template
            results = iter(runs.run([tuple(tensors)])[0])
            return tuple(next(results).to(value) if isinstance(value, torch.dtype) else value for value in template)

    def _is_weight(self, position: int, value: Any) -> bool:
        """Whether an argument is a weight: a parameter or buffer of the module that torch compiles."""
        return isinstance(value, torch.Tensor) and (
            isinstance(value, nn.Parameter) or bool(_name_of(self._places[position]))
        )

    def _compile(self, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> tuple[Runs, tuple[Any, ...]]:
        bound = {k: a for k, a in enumerate(args) if self._is_weight(k, a)}
        module = _BoundGraph(self._module, args, bound, [_name_of(p) or p.name for p in self._places])
        with torch.no_grad():
            returned = module(*tensors)
        if not tensors:
            return HostRunner(Graph(self._name)), tuple(returned)  # of weights alone: computed once
        try:
            runs = self._runs(module, tensors)
        except TbudaError as error:
            raise type(error)(f"torch.compile with backend tbuda: {error}", error.diagnostics) from error
        template = tuple(v.dtype if isinstance(v, torch.Tensor) else v for v in returned)
        if any(not isinstance(v, torch.Tensor | int | float | bool | None) for v in pytree.tree_leaves(list(returned))):
            raise ModelError("the captured graph returns something that is not a tensor or number")
        return runs, template

    def _runs(self, module: nn.Module, tensors: list[torch.Tensor]) -> Runs:
        """A session; the host alone for a graph of which the device has no op."""
        session = Session(module, tuple(tensors), self._device, options=self._options, name=self._name)
        try:
            session.compile()
        except UnsupportedOp as error:
            if nothing_for_device(error):
                return HostRunner(from_any(module, tuple(tensors), name=self._name))
            raise
        return session


class HostRunner:
    """A graph of which the device runs nothing. Reals are of 64 bits, so that whole numbers beside them stay whole."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, samples: Sequence[Any]) -> list[list[torch.Tensor]]:
        """Outputs of every sample, in order, in the types of the model's."""
        results = []
        for sample in samples:
            feeding = elements(self.graph, feeds(self.graph, sample))
            parts = [list(evaluate(self.graph, e, torch.float64).values()) for e in feeding]
            columns = [join_elements(column) for column in zip(*parts, strict=True)]
            kinds = [getattr(torch, str(n.attrs.get("dtype", "float32"))) for n in self.graph.outputs]
            results.append([value.to(kind) for value, kind in zip(columns, kinds, strict=True)])
        return results

    def report(self) -> str:
        """A line: that the host runs it, and its ops."""
        return f"host: {', '.join(n.name for n in self.graph.ops) or 'no ops'}"


Runs = Session | HostRunner


def nothing_for_device(error: UnsupportedOp) -> bool:
    """Whether a model was refused because with CPU fallback every op of it is the host's."""
    return bool(error.diagnostics) and all(d.rule == "cpu-fallback" for d in error.diagnostics)


def depends_on_data(error: TbudaError) -> bool:
    """Whether a model cannot be traced because its path, or a shape in it, depends on the values of tensors."""
    return any(
        d.rule == "data-dependent control flow" or "depends on the values of a tensor" in d.message
        for d in error.diagnostics
    )


class BrokenModel:
    """A torch module whose path depends on data: torch runs it, and every graph between two breaks runs on the device.

    The host decides the path. Graphs are compiled when they are first reached, once per combination of shapes.
    Inference only.
    """

    def __init__(self, module: nn.Module, device: DeviceSpec, options: CompileOptions) -> None:
        self.graphs: list[CompiledGraph] = []
        self._device, self._options = device, options
        self._module = torch.compile(module, backend=self._backend, dynamic=False)

    def _backend(self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> CompiledGraph:
        compiled = CompiledGraph(graph_module, self._device, None, self._options, f"graph_{len(self.graphs)}")
        self.graphs.append(compiled)
        return compiled

    def run(self, inputs: Any) -> list[torch.Tensor]:
        """Tensors of what the module returns, in order. Raises the compiler's typed errors."""
        with torch.no_grad():
            try:
                returned = self._module(**inputs) if isinstance(inputs, Mapping) else self._module(*inputs)
            except torch._dynamo.exc.BackendCompilerFailed as error:
                if isinstance(error.inner_exception, TbudaError):
                    raise error.inner_exception from error
                raise
        return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]

    def report(self) -> str:
        """Where each graph runs; what stands between them is the host's."""
        return "\n".join(line for graph in self.graphs for line in graph.reports())


class _BoundGraph(nn.Module):
    """The captured graph with its weights as parameters under their names, and numbers put in."""

    def __init__(
        self, graph: torch.fx.GraphModule, args: tuple[Any, ...], bound: Mapping[int, torch.Tensor], names: list[str]
    ) -> None:
        super().__init__()
        self.__dict__["_graph"] = graph
        self._fixed = {k: a for k, a in enumerate(args) if k not in bound and not isinstance(a, torch.Tensor)}
        self._count = len(args)
        self._where = {k: names[k] for k in bound}
        for k, value in bound.items():
            *path, leaf = names[k].split(".")
            owner: nn.Module = self
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, nn.Module())
                owner = owner._modules[part]  # type: ignore[assignment]
            if isinstance(value, nn.Parameter):
                owner.register_parameter(leaf, value)
            else:
                owner.register_buffer(leaf, value)

    def forward(self, *inputs: torch.Tensor) -> Any:
        constants = {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }
        remaining = iter(inputs)
        full = []
        for k in range(self._count):
            if k in self._where:
                full.append(constants[self._where[k]])
            elif k in self._fixed:
                full.append(self._fixed[k])
            else:
                full.append(next(remaining))
        with torch.fx.traceback.preserve_node_meta():  # module paths and lines of the model that torch captured
            return torch.fx.Interpreter(self.__dict__["_graph"]).run(*full)


_PART = re.compile(
    r"(?:_modules|_parameters|_buffers)(?:'\])?\['([^']+)'\]"  # also __dict__['_modules']['a'], of modules that have a
    r"|\.(?!_modules|_parameters|_buffers|__dict__)(\w+)|\[(\d+)\]"  # __getattr__ of their own
)


def _name_of(node: torch.fx.Node) -> str:
    """The dotted name of the weight that a placeholder stands for; empty for an input of the call."""
    argument = node.meta.get("grapharg")
    source = getattr(argument, "source", None) or getattr(node, "_dynamo_source", None)
    text = getattr(source, "name", "")
    text = text() if callable(text) else str(text)
    if re.search(r"_(?:parameters|buffers)(?:'\])?\[", text):
        return ".".join(next(p for p in m.groups() if p) for m in _PART.finditer(text))
    return ""
