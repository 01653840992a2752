"""An ONNX model read node by node into a Graph."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp
from tbuda_lab.core.files import parse_json
from tbuda_lab.core.frontend.aten.call import AtenValue, CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import NOT_MAPPED, Calls, NotMapped, finish
from tbuda_lab.core.frontend.inputs import as_tensor
from tbuda_lab.core.frontend.onnx import read, schema
from tbuda_lab.core.frontend.onnx.node import TABLE, OnnxNode, Scope
from tbuda_lab.core.frontend.traced_module import takes_elements
from tbuda_lab.core.graph import Graph, Origin, ShapeError

PREVIEW = "ai.onnx.preview"
"""The domain of ops that the standard tries out; it defines them by others."""
SMALL = 16
"""Integer initialisers up to this many elements are shapes and axes; they are constants in any case."""
DEEPEST = 32
"""Calls of functions inside functions that are followed."""
MAX_EXPANDED = 16_384
"""Nodes that functions, branches and unrolled loops may come to, all together."""


def from_onnx(
    model: Any,
    sample_inputs: Any = None,
    *,
    name: str = "model",
    progress: Callable[[str], None] | None = None,
    whole: bool = False,
) -> Graph:
    """The nD graph of an ONNX model (a path, bytes or ModelProto).

    sample_inputs: tensors or arrays in the model's order, or a dict by input name; they give sizes that the model
    leaves open. A leading size that is open is the microbatch and becomes 1, unless the model mixes the elements of
    the samples (`traced_module.takes_elements`); any other open size needs sample inputs. whole: it is the samples'.
    Initialisers become parameters under their names, integer ones constants. Nodes keep the module path that torch's
    exporter stores, else that of their names. OUTPUT nodes are `<name>.output_<k>` with attrs "path", the model's own
    name. progress: as of `Calls`. Raises `ModelError` (no model, or one that cannot be read), `InputError` (sample
    inputs that do not fit) and `UnsupportedOp` (all ops without a form at once).
    """
    proto, folder = read.load(model)

    def trace(samples: Any, whole: bool) -> Graph:
        return _OnnxImporter(proto, folder, samples, Calls(Graph(name), progress), whole).run()

    graph = trace(sample_inputs, whole)
    if whole or sample_inputs is None or not opens_batch(proto):
        return graph
    samples = _by_name(sample_inputs, [entry.name for entry in given_inputs(proto.graph)])
    whole = not takes_elements(graph, tuple(samples.values()), lambda tensors: trace(tensors, True))
    return trace(sample_inputs, True) if whole else graph


def opens_batch(proto: Any) -> bool:
    """Whether the model leaves the leading size of an input open."""
    kinds = [entry.type.tensor_type for entry in given_inputs(proto.graph)]
    return any(len(kind.shape.dim) and not kind.shape.dim[0].HasField("dim_value") for kind in kinds)


def given_inputs(graph: Any) -> list[Any]:
    """The inputs of a graph that its caller gives."""
    stored = {t.name for t in graph.initializer}
    return [entry for entry in graph.input if entry.name not in stored]


class _OnnxImporter:
    def __init__(self, proto: Any, folder: Path | None, sample_inputs: Any, calls: Calls, whole: bool) -> None:
        self.proto, self.folder = read.modern(proto), folder
        self.calls = calls
        self.opset = read.opset_of(self.proto)
        self.functions = {(f.domain, f.name): f for f in self.proto.functions}
        self.samples, self.whole = sample_inputs, whole
        self.path: str = calls.graph.name
        self.expanded = 0

    def run(self) -> Graph:
        graph = self.proto.graph
        if graph.sparse_initializer:
            raise ModelError("the model has sparse initialisers; store them dense")
        scope = Scope(self.opset, {})
        self._leaves(graph, scope)
        self._nodes(graph.node, scope)
        if self.calls.findings:
            count = len(self.calls.findings)
            raise UnsupportedOp(f"{count} op{'s' * (count > 1)} of the model cannot be mapped", self.calls.findings)
        if not graph.output:
            raise ModelError("the model returns no tensor")
        self.calls.at(Origin())
        given: list[tuple[str, Any]] = []
        for output in graph.output:
            value = scope.find(output.name)
            several = isinstance(value, list)
            parts = value if several else [value]
            given += [(f"{output.name}[{k}]" if several else output.name, part) for k, part in enumerate(parts)]
        for k, (name, value) in enumerate(given):
            if not isinstance(value, AtenValue | FoldedValue):
                raise ModelError(f"output {name!r} is not a tensor; maps and empty options are not supported")
            self.calls.output(value, f"{self.calls.graph.name}.output_{k}", name)
        return finish(self.calls)

    # -- leaves ----------------------------------------------------------------------------------------------
    def _leaves(self, graph: Any, scope: Scope) -> None:
        stored = {t.name: t for t in graph.initializer}
        inputs = given_inputs(graph)
        counts = collections.Counter([t.name for t in graph.initializer] + [i.name for i in inputs])
        if twice := [name for name, count in counts.items() if count > 1]:
            raise ModelError(f"the model has two inputs or initialisers {twice[0]!r}")
        samples = _by_name(self.samples, [i.name for i in inputs])
        leaves = [leaf for entry in inputs for leaf in self._leaves_of(entry, samples, scope)]
        shapes = {name: _shape_of(name, kind, samples.get(name), self.whole) for name, kind in leaves}
        for name, kind in leaves:  # all shapes first, for an error leaves nothing behind
            value = self.calls.input(name, shapes[name], read.dtype_of(kind.elem_type))
            scope.kinds[name] = kind.elem_type
            if name in samples:
                node = self.calls.graph[value.name]
                leaf = node.name if not node.sources else node.sources[0]  # truth values are read through a cast
                self.calls.samples[leaf] = samples[name]
            sequence, _, place = name.partition("[")
            if place and isinstance(scope.values.get(sequence), list):
                scope.values[sequence].append(value)
            else:
                scope.values[name] = value
        for name, tensor in stored.items():
            scope.values[name] = self._initialiser(name, read.tensor_of(tensor, self.folder))
            scope.kinds[name] = tensor.data_type

    def _leaves_of(self, entry: Any, samples: dict[str, Any], scope: Scope) -> list[tuple[str, Any]]:
        """(name, tensor type) of the tensors that an input takes: of a sequence those of the sample, each by itself, of
        an option what it may hold. Raises `ModelError` for maps, and without samples for what says no length."""
        kind = entry.type
        if kind.WhichOneof("value") == "optional_type":
            kind = kind.optional_type.elem_type
            if entry.name in samples and samples[entry.name] is None:
                scope.values[entry.name] = None
                return []
        if kind.WhichOneof("value") == "tensor_type":
            return [(entry.name, kind.tensor_type)]
        if kind.WhichOneof("value") != "sequence_type" or entry.name not in samples:
            raise ModelError(
                f"input {entry.name!r} is a {entry.type.WhichOneof('value')}; only tensors have a form "
                "here, and sequences of them of which sample inputs say how long they are"
            )
        parts = samples.pop(entry.name)
        scope.values[entry.name] = []
        names = [f"{entry.name}[{k}]" for k in range(len(parts))]
        samples.update(zip(names, parts, strict=True))
        return [(name, kind.sequence_type.elem_type.tensor_type) for name in names]

    def _initialiser(self, name: str, tensor: torch.Tensor) -> AtenValue | FoldedValue:
        """Floats with dims are parameters; integers and single numbers say how, not what, and are constants."""
        self.calls.room.grow(8 * tensor.nbytes)
        if tensor.is_floating_point() and tensor.dim() > 0 and tensor.numel() > 1:
            self.calls.at(Origin(module=_module_of_parameter(name)))
            return self.calls.parameter(name, tensor)
        return FoldedValue(tensor, name)

    # -- nodes -----------------------------------------------------------------------------------------------
    def _nodes(self, nodes: Any, scope: Scope) -> None:
        if scope.depth:
            self.expanded += len(nodes)
            if self.expanded > MAX_EXPANDED:
                raise ModelError(f"functions and loops of the model come to more than {MAX_EXPANDED:,} nodes")
        for position, node in enumerate(nodes):
            if not scope.depth:
                self.calls.at_op(position, len(nodes))
            origin = _origin(node, position, scope.prefix)
            operands = [None if name == "" else scope.find(name) for name in node.input]
            results = self._node(node, operands, origin, scope)
            values = results if isinstance(results, tuple) else (results,)
            for k, name in enumerate(node.output):
                if name in scope.values:
                    raise ModelError(
                        f"{node.name or node.op_type} computes {name!r}, which another node, an input or "
                        "an initialiser gives"
                    )
                if name and node.op_type == "Cast":
                    scope.kinds[name] = next((int(a.i) for a in node.attribute if a.name == "to"), 0)
                if name:
                    scope.values[name] = _Lacking(k, origin) if k >= len(values) or values[k] is None else values[k]

    def _node(self, node: Any, operands: list[Any], origin: Origin, scope: Scope) -> Any:
        self.calls.at(origin)
        lacking = [v for v in operands if isinstance(v, _Lacking)]
        if lacking:
            self.calls.refuse(lacking[0].origin, f"its output {lacking[0].position} is not supported")
        if lacking or any(isinstance(v, NotMapped) for v in operands):
            return (NOT_MAPPED,) * len(node.output)
        try:
            function = self.functions.get((node.domain, node.op_type))
            attributes = self._attributes(node)
            if function is not None:
                return self._function(function, operands, attributes, origin, scope, node)
            key = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
            if node.domain not in ("", "ai.onnx", PREVIEW) and key not in TABLE:
                raise CannotMap(f"the op set {node.domain!r} is not known; store its functions in the model")
            one = OnnxNode(self.calls, node, operands, attributes, scope)
            if node.domain in ("", "ai.onnx"):
                schema.check(one)
                one.attributes.read.clear()  # what the check has asked for
            if key in CONTROL:
                return CONTROL[node.op_type](self, one, origin)
            if key in TABLE:
                result = TABLE[key](one)
                schema.refuse_unread(one)
                return result
            return self._by_definition(node, one, origin, scope)
        except (CannotMap, ShapeError) as error:
            self.calls.refuse(origin, str(error))
        except ModelError:
            raise
        except Exception as error:
            self.calls.refuse(origin, f"it is malformed ({type(error).__name__}: {error})")
        return (NOT_MAPPED,) * len(node.output)

    def _attributes(self, node: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for attribute in node.attribute:
            if attribute.type == read.onnx.AttributeProto.TENSOR:
                values[attribute.name] = read.tensor_of(attribute.t, self.folder)
            elif not attribute.ref_attr_name:
                value = read.onnx.helper.get_attribute_value(attribute)
                values[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return values

    def _function(
        self,
        function: Any,
        operands: list[Any],
        attributes: Mapping[str, Any],
        origin: Origin,
        scope: Scope,
        caller: Any = None,
    ) -> Any:
        """The body of a function that the model (or the standard) defines, with its attributes put in."""
        if scope.depth >= DEEPEST:
            raise ModelError(f"functions of the model call each other more than {DEEPEST} deep at {origin.module}")
        versions = [e.version for e in function.opset_import if e.domain in ("", "ai.onnx")]
        inner = Scope(versions[0] if versions else scope.opset, {}, None, origin.module, scope.depth + 1)
        for k, name in enumerate(function.input):
            inner.values[name] = operands[k] if k < len(operands) else None
            if caller is not None and k < len(caller.input) and scope.kind_of(caller.input[k]):
                inner.kinds[name] = scope.kind_of(caller.input[k])
        defaults = {a.name: read.onnx.helper.get_attribute_value(a) for a in function.attribute_proto}
        bound = {**defaults, **attributes}
        body = []
        for node in function.node:
            copy = read.onnx.NodeProto()
            copy.CopyFrom(node)
            selected = []
            for attribute in copy.attribute:
                if attribute.ref_attr_name:
                    value = bound.get(attribute.ref_attr_name)
                    if value is None:
                        continue
                    if isinstance(value, torch.Tensor):
                        value = read.proto_of(value)
                    attribute = read.onnx.helper.make_attribute(attribute.name, value)
                selected.append(attribute)
            copies = [read.onnx.AttributeProto.FromString(a.SerializeToString()) for a in selected]
            del copy.attribute[:]
            copy.attribute.extend(copies)
            body.append(copy)
        self._nodes(body, inner)
        return tuple(inner.values.get(name) for name in function.output)

    def _by_definition(self, node: Any, one: OnnxNode, origin: Origin, scope: Scope) -> Any:
        """An op without a translator that the standard defines by others."""
        try:
            domain = node.domain if node.domain == PREVIEW else ""
            version = 1 if domain else scope.opset
            found: Any = read.onnx.defs.get_schema(node.op_type, version, domain)
        except Exception:
            raise CannotMap(f"opset {scope.opset} has no op of this name") from None
        if found.has_function:
            function = found.function_body
        elif found.has_context_dependent_function:
            types = []
            for k, operand in enumerate(one.operands):
                if operand is None:
                    types.append(b"")
                    continue
                if isinstance(operand, list):
                    types.append(self._sequence_type(operand))
                    continue
                x = one.x(k)
                kind = read.element_type(self.calls.dtype(x))
                operand_type = read.onnx.helper.make_tensor_type_proto(kind, list(self.calls.shape(x)))
                types.append(operand_type.SerializeToString())
            text = found.get_context_dependent_function(node.SerializeToString(), types)
            function = read.onnx.FunctionProto.FromString(text)
        else:
            raise CannotMap("it has no translator")
        defaults = {
            name: read.onnx.helper.get_attribute_value(a.default_value)
            for name, a in found.attributes.items()
            if a.default_value.type
        }
        return self._function(function, one.operands, {**defaults, **one.attributes}, origin, scope, node)

    def _sequence_type(self, values: list[Any]) -> bytes:
        """The type of a sequence of tensors, as the standard's functions ask for it."""
        kind = read.element_type(self.calls.dtype(values[0]) if values else torch.float32)
        element = read.onnx.helper.make_tensor_type_proto(kind, None)
        return bytes(read.onnx.helper.make_sequence_type_proto(element).SerializeToString())

    # -- control flow ----------------------------------------------------------------------------------------
    def body(self, graph: Any, operands: list[Any], node: OnnxNode, origin: Origin, turn: str = "") -> list[Any]:
        """Values of a branch's or loop body's outputs for these operands."""
        prefix = f"{origin.module}.{turn}" if turn else origin.module
        scope = Scope(node.opset, {}, node.scope, prefix, node.scope.depth + 1)
        for tensor in graph.initializer:
            scope.values[tensor.name] = FoldedValue(read.tensor_of(tensor, self.folder), tensor.name)
        for entry, value in zip(graph.input, operands, strict=True):
            scope.values[entry.name] = value
        self._nodes(graph.node, scope)
        return [scope.find(output.name) for output in graph.output]


@dataclasses.dataclass(frozen=True)
class _Lacking:
    """An output without a form (indices of a pooling, say): an error only where something reads it."""

    position: int
    origin: Origin


def _if(importer: _OnnxImporter, n: OnnxNode, origin: Origin) -> Any:
    """A known condition picks its branch; of an unknown one both are computed, and every result is chosen."""
    condition = n.x()
    no_tensors = any(o.type.WhichOneof("value") != "tensor_type" for o in n.attr("then_branch").output)
    decided = n.calls.decided(condition) if isinstance(condition, AtenValue) and no_tensors else None
    if decided is not None:
        condition = n.constant(decided)
    if isinstance(condition, FoldedValue):
        branch = n.attr("then_branch" if bool(condition.tensor.reshape(-1)[0]) else "else_branch")
        return tuple(importer.body(branch, [], n, origin))
    yes = importer.body(n.attr("then_branch"), [], n, origin, "then")
    no = importer.body(n.attr("else_branch"), [], n, origin, "else")
    if any(not isinstance(v, AtenValue | FoldedValue) for v in yes + no):
        raise CannotMap("its branches return no tensors, and which one is taken depends on an input")
    if any(n.calls.shape(a) != n.calls.shape(b) for a, b in zip(yes, no, strict=True)):
        decided = n.calls.decided(condition)
        if decided is not None:
            return tuple(yes if bool(decided.reshape(-1)[0]) else no)
        raise CannotMap("its branches differ in shape, and which one is taken depends on an input")
    return tuple(n.aten.where(condition, a, b) for a, b in zip(yes, no, strict=True))


def _loop(importer: _OnnxImporter, n: OnnxNode, origin: Origin) -> Any:
    """A loop whose count and condition are known, unrolled."""
    limit = 4096
    count = n.scalar(0, "trip count", limit + 1)
    if n.opt(0) is None and n.opt(1) is None:
        raise CannotMap("it has neither a count nor a condition")
    condition = n.opt(1)
    state, body = list(n.operands[2:]), n.attr("body")
    scans: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    turn = 0
    while turn < count:
        if isinstance(condition, AtenValue):
            decided = n.calls.decided(condition)
            if decided is None:
                raise CannotMap("how often it runs depends on an input")
            condition = n.constant(decided)
        if condition is not None and not bool(condition.tensor.reshape(-1)[0]):
            break
        if turn == limit:
            raise CannotMap(f"it runs more than {limit} times")
        first = [n.constant(torch.tensor(turn)), condition or n.constant(torch.tensor(True))]
        results = importer.body(body, first + state, n, origin, str(turn))
        condition, state = results[0], results[1 : 1 + len(state)]
        for collected, value in zip(scans, results[1 + len(state) :], strict=True):
            collected.append(value)
        turn += 1
    if scans and not turn:
        raise CannotMap("it runs never and returns what its turns computed: an empty tensor")
    return (*state, *(n.aten.stack(values, 0) for values in scans))


def _scan(importer: _OnnxImporter, n: OnnxNode, origin: Origin) -> Any:
    """A scan, unrolled along its axes."""
    body, count = n.attr("body"), int(n.attr("num_scan_inputs"))
    state, scanned = list(n.operands[: len(n.operands) - count]), n.operands[len(n.operands) - count :]
    outputs = len(body.output) - len(state)
    axes = n.attr("scan_input_axes") or [0] * count
    backward = n.attr("scan_input_directions") or [0] * count
    out_axes = n.attr("scan_output_axes") or [0] * outputs
    out_backward = n.attr("scan_output_directions") or [0] * outputs
    length = n.calls.shape(scanned[0])[axes[0]]
    scans: list[list[Any]] = [[] for _ in range(outputs)]
    for turn in range(length):
        parts = [
            n.aten.select(x, axis, length - 1 - turn if back else turn)
            for x, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        results = importer.body(body, state + parts, n, origin, str(turn))
        state = results[: len(state)]
        for collected, value in zip(scans, results[len(state) :], strict=True):
            collected.append(value)
    stacked = [
        n.aten.stack(values[::-1] if back else values, axis)
        for values, axis, back in zip(scans, out_axes, out_backward, strict=True)
    ]
    return (*state, *stacked)


CONTROL = {"If": _if, "Loop": _loop, "Scan": _scan}


# -- inputs and names ----------------------------------------------------------------------------------------
def _by_name(samples: Any, names: list[str]) -> dict[str, Any]:
    """Sample inputs by name: a tensor, a list of them for a sequence, None for an option without a value."""
    if samples is None:
        return {}
    if isinstance(samples, Mapping):
        unknown = [k for k in samples if k not in names]
        if unknown:
            raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(names)}")
        return {k: _sample(v) for k, v in samples.items()}
    given = list(samples) if isinstance(samples, tuple | list) else [samples]
    if len(given) == len(names):
        return dict(zip(names, map(_sample, given), strict=True))
    flat = [as_tensor(v) for v in pytree.tree_leaves(given)]
    flat = [v for v in flat if isinstance(v, torch.Tensor)]
    if not flat:
        return {}
    if len(flat) != len(names):
        raise InputError(f"{len(flat)} sample inputs for a model of {len(names)}: {', '.join(names)}")
    return dict(zip(names, flat, strict=True))


def _sample(value: Any) -> Any:
    return [as_tensor(v) for v in value] if isinstance(value, list | tuple) else as_tensor(value)


def _shape_of(name: str, kind: Any, sample: Any, whole: bool) -> list[int]:
    """The shape of an input: open sizes from the sample, an open leading one 1, unless the sample is taken whole."""
    if sample is not None and not isinstance(sample, torch.Tensor):
        raise InputError(f"input {name!r} is a tensor, not a {type(sample).__name__}")
    declared: list[int | str] = []
    for d in kind.shape.dim:
        declared.append(int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?")
    if not kind.HasField("shape"):
        if sample is None:
            raise InputError(f"the model says no shape for its input {name!r}; give sample inputs")
        return list(sample.shape)
    if sample is not None and sample.dim() != len(declared):
        raise InputError(f"input {name!r} has shape {tuple(sample.shape)}; the model declares {declared}")
    shape: list[int] = []
    for axis, size in enumerate(declared):
        if isinstance(size, int):
            if sample is not None and int(sample.shape[axis]) not in (size,) and not (axis == 0 and size == 1):
                raise InputError(f"input {name!r} has shape {tuple(sample.shape)}; the model declares {declared}")
            shape.append(size)
        elif axis == 0 and len(declared) > 1 and not (whole and sample is not None):
            shape.append(1)
        elif sample is not None:
            shape.append(int(sample.shape[axis]))
        else:
            raise InputError(
                f"input {name!r} has the open size {size!r} at dim {axis}; give sample inputs of the wanted size"
            )
    if math.prod(shape) > 2**33:
        raise ModelError(f"input {name!r} has the impossible shape {shape}")
    return shape


def _module_of_parameter(name: str) -> str:
    return name.rpartition(".")[0].replace("/", ".").replace("::", ".").strip(".")


def _origin(node: Any, position: int, prefix: str) -> Origin:
    """Module path and class from what torch's exporter stores, else the path in the node's name."""
    facts = {p.key: p.value for p in node.metadata_props}
    path, kind = "", ""
    scopes = _strings(facts.get("pkg.torch.onnx.name_scopes", ""))
    if scopes:
        classes = _strings(facts.get("pkg.torch.onnx.class_hierarchy", ""))
        named = [(s, c) for s, c in zip(scopes[:-1], classes or scopes, strict=False) if s]
        path, kind = (named[-1][0], named[-1][1].rsplit(".", 1)[-1]) if named else ("", "")
    else:
        path = ".".join(p for p in node.name.split("/")[:-1] if p)
    module = ".".join(p for p in (prefix, path) if p)
    label = node.name or f"node {position}"
    return Origin(module, kind, f"onnx.{node.op_type}", label)


def _strings(text: str) -> list[str]:
    """The list of strings that a metadata entry holds, written as Python or JSON would write it."""
    try:
        value = parse_json(text.replace("'", '"'), "metadata") if text else []
    except InputError:
        return []
    return [str(v) for v in value] if isinstance(value, list) else []
