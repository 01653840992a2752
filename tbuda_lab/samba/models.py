"""Models as `trace_graph` takes them: ONNX models as modules, and modules whose dropout is active in training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.ops.evaluate import evaluate


class OnnxModel(torch.nn.Module):
    """An ONNX ModelProto with its float initialisers as parameters, under their own names.

    Training changes the parameters; `write_back` puts them into the ModelProto.
    """

    def __init__(self, proto: Any, inputs: Sequence[Any] | None = None) -> None:
        """Raises `ModelError`, `UnsupportedOp` as `from_onnx` does."""
        super().__init__()
        self.proto = proto
        self.input_order = [
            i.name for i in proto.graph.input if i.name not in {t.name for t in proto.graph.initializer}
        ]
        graph = frontend.from_onnx(proto, list(inputs) if inputs is not None else None, name="onnx")
        self._named = {
            node.name: torch.nn.Parameter(torch.from_numpy(node.value.copy()))
            for node in graph.of_kind(NodeKind.PARAMETER)
            if node.value is not None
        }

    def named_parameters(self, *arguments: Any, **settings: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Initialisers by name; names have dots and slashes as the file has them."""
        yield from self._named.items()

    def in_order(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Named inputs in the model's order: by name where all names are the model's, else as they are."""
        byname = {getattr(t, "sn_name", None): t for t in inputs}
        if set(byname) == set(self.input_order) and len(inputs) == len(self.input_order):
            return tuple(byname[name] for name in self.input_order)
        return tuple(inputs)

    def graph(self, inputs: Sequence[torch.Tensor], name: str) -> Graph:
        """The nD graph, with the parameters as they are now."""
        graph = frontend.from_onnx(self.proto, list(inputs), name=name)
        for key, parameter in self._named.items():
            graph[key].value = parameter.detach().numpy().copy()
        return graph

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The same calculation in torch, input by input of the model."""
        graph = self.graph(inputs, "onnx")
        feed = dict(zip((n.name for n in graph.inputs), inputs, strict=True))
        outputs = tuple(evaluate(graph, feed).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def write_back(self) -> None:
        """Put the parameters into the ModelProto's initialisers."""
        from onnx import numpy_helper

        for tensor in self.proto.graph.initializer:
            if tensor.name in self._named:
                value = self._named[tensor.name].detach().numpy()
                tensor.CopyFrom(numpy_helper.from_array(value.astype(numpy_helper.to_array(tensor).dtype), tensor.name))


def is_onnx(model: Any) -> bool:
    """Whether it is a ModelProto."""
    return type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx")


@contextlib.contextmanager
def _same_buffers(model: torch.nn.Module) -> Iterator[None]:
    """A forward pass in between leaves the model's buffers, such as running statistics, as they were."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


DROPOUTS = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d)


class WithMasks(torch.nn.Module):
    """A model whose dropouts multiply by masks that come as further inputs, in the order in which they are called.

    The host draws a mask as torch does: zeros with probability p, else 1 / (1 - p). So a run may change p, and equal
    seeds of torch's generator give torch's own masks.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        for shared in ("_modules", "_parameters", "_buffers"):  # names stay those of the model
            self.__dict__[shared] = getattr(model, shared)
        self.__dict__["inner"] = model
        self._dropping = [m for m in model.modules() if isinstance(m, DROPOUTS) and m.p > 0 and m.training]
        self.calls: list[tuple[torch.nn.Module, torch.Size]] = []
        with self._instead(lambda module, x: self._note(module, x)), torch.no_grad(), _same_buffers(model):
            model.forward(*inputs)

    def _note(self, module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        self.calls.append((module, x.shape))
        return x

    @contextlib.contextmanager
    def _instead(self, act: Any) -> Iterator[None]:
        """Dropout modules do something else for a while."""
        for module in self._dropping:
            module.forward = lambda x, module=module: act(module, x)  # type: ignore[method-assign,misc]
        try:
            yield
        finally:
            for module in self._dropping:
                del module.forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        count = len(self.calls)
        masks = iter(inputs[len(inputs) - count :])
        with self._instead(lambda _, x: x * next(masks)):
            return self.__dict__["inner"].forward(*inputs[: len(inputs) - count])

    def draw(self, p: float | None) -> list[torch.Tensor]:
        """New masks; p: of all of them, None for each module's own. Raises `InputError` for no probability."""
        if p is not None and not 0 <= p < 1:
            raise InputError(f"a dropout probability is at least 0 and less than 1, not {p}")
        masks = []
        for module, shape in self.calls:
            kind = type(module)
            masks.append(kind(p=module.p if p is None else p).train()(torch.ones(shape)))
        return masks


class _Dropping(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether torch draws masks of dropouts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drew: bool = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drew |= any(word in str(func) for word in ("dropout", "bernoulli"))
        return func(*args, **(kwargs or {}))


def drops_by_function(model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a forward pass drops elements elsewhere than in modules of `DROPOUTS`: by a function, which is not in the
    graph. torch's generator is left as it was."""
    if not model.training:
        return False
    masks = WithMasks(model, inputs)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _same_buffers(model), _Dropping() as mode:
        masks.forward(*inputs, *(torch.ones(shape) for _, shape in masks.calls))
        drew: bool = mode.drew
    return drew


def drops(model: torch.nn.Module) -> bool:
    """Whether dropout is active in a model."""
    return any(isinstance(m, DROPOUTS) and m.p > 0 and m.training for m in model.modules())
