"""Models as Python modules on disk: what scripts that call `compile_tvm_to_python` import and place on a device.

The class in the file reads the traced graph beside it (text) and its constants (`.npz`); weights come from the model by
`process_framework_parameters`. Nothing is evaluated but ops of the graph.
"""

from __future__ import annotations

import dataclasses
import importlib
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.files import atomic_text, bounded_text, make_folder, read_npz
from tbuda_lab.core.frontend.pybuda import Module, Parameter, PyTorchModule, Tensor, apply, open_model
from tbuda_lab.core.graph import Graph, NodeKind, parse_graph, print_graph
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.graph.text import array_table
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.tti.weights import without_weights
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.module import PyBudaModule
from tbuda_lab.pybuda.stage import as_inputs
from tbuda_lab.sim.files import write_archive

FOLDER = Path("generated_modules")


class GraphModule(PyBudaModule):
    """A module whose forward is a graph in a file. Subclasses name it; parameters have no values at first."""

    graph_file: ClassVar[Path]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        graph = read_graph(self.graph_file)
        object.__setattr__(self, "_graph", graph)
        for node in graph.of_kind(NodeKind.PARAMETER):
            trained = bool(node.attrs.get(TRAINABLE, True))
            self.add_parameter(node.name, Parameter(*node.shape, requires_grad=trained, name=node.name))

    def process_framework_parameters(self, model: torch.nn.Module | None = None) -> None:
        """Take the weights of the model that the file was written from, by their names. Raises `ModelError` for a model
        that lacks one."""
        if not isinstance(model, torch.nn.Module):
            raise ModelError(f"process_framework_parameters takes a torch.nn.Module, not {type(model).__name__}")
        values = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        missing = [p.get_name() for p in self.get_parameters() if p.get_name() not in values]
        if missing:
            raise ModelError(f"the model has no parameter {missing[0]!r}; it has {', '.join(values)}")
        for parameter in self.get_parameters():
            parameter.set_value(values[parameter.get_name()].detach())

    def forward(self, *inputs: Any) -> Any:
        graph: Graph = self.__dict__["_graph"]
        if len(inputs) != len(graph.inputs):
            raise ModelError(f"{self.get_name()!r} takes {len(graph.inputs)} inputs, not {len(inputs)}")
        values: dict[str, Any] = {node.name: x for node, x in zip(graph.inputs, inputs, strict=True)}
        for node in graph.topological():
            if node.kind is NodeKind.PARAMETER:
                values[node.name] = self.get_parameter(node.name)
            elif node.kind is NodeKind.CONSTANT:
                assert node.value is not None
                values[node.name] = Tensor.create_from_torch(torch.from_numpy(node.value.copy()), constant=True)
            elif isinstance(node.op, NdOp):
                values[node.name] = apply(node.name, node.op, *(values[s] for s in node.sources))
        results = [values[node.sources[0]] for node in graph.outputs]
        return results[0] if len(results) == 1 else results


MAX_BYTES = 256 << 20
"""Of a graph's text."""


def read_graph(path: Path) -> Graph:
    """A graph and the values of its constants. Raises `GraphSyntaxError`, and `InputError` for files that cannot be
    read and bad arrays."""
    arrays = read_npz(path.with_suffix(".npz"))
    text = bounded_text(path, MAX_BYTES, "is not the graph of a module")
    return parse_graph(text, {name: np.asarray(value) for name, value in arrays.items()})


@dataclasses.dataclass(frozen=True)
class ModuleWriter:
    """A file that was written. class_name: of the class in it; path: of the file."""

    module_name: str
    class_name: str
    path: Path

    def import_module_path(self) -> str:
        """What `importlib.import_module` takes, with the working folder on `sys.path`."""
        return ".".join(self.path.with_suffix("").parts)


def compile_tvm_to_python(
    framework_mod: Module | torch.nn.Module,
    graph_name: str,
    inputs: Sequence[Any],
    module_name: str | None = None,
    compiler_cfg: Any = None,
    verify_cfg: Any = None,
    input_names: Sequence[str] = (),
) -> tuple[list[ModuleWriter], Sequence[Any]]:
    """Trace a model (by our own front end) and write it as `generated_modules/<module_name>.py`, with a class in it.

    Returns the files that were written, here always one, and the inputs. compiler_cfg: instead of the global one.
    input_names: rename nothing; the graph keeps the names of the forward's arguments. Raises as tracing does.
    """
    wrapped = PyTorchModule(graph_name, framework_mod) if isinstance(framework_mod, torch.nn.Module) else framework_mod
    module = open_model(wrapped, graph_name)
    with config.using(compiler_cfg):
        sample: Any = inputs if isinstance(inputs, Mapping) else as_inputs(tuple(inputs))
        graph = frontend.from_pybuda(module, sample, training=True)
    stem = _identifier(module_name or graph_name)
    name = "".join(part.capitalize() for part in stem.split("_")) or "Model"
    path = FOLDER / f"{stem}.py"
    make_folder(path.parent)
    bare = without_weights(graph)
    arrays = array_table(bare)
    write_archive(path.with_suffix(".npz"), arrays)
    with atomic_text(path.with_suffix(".graph")) as text:
        text.write(print_graph(bare))
    with atomic_text(path) as text:
        text.write(_SOURCE.format(graph=path.with_suffix(".graph").name, name=name))
    importlib.invalidate_caches()
    return [ModuleWriter(stem, name, path)], inputs


_SOURCE = '''"""A model as a module of its own; its graph is in {graph}."""

from pathlib import Path

from tbuda_lab.pybuda.tvm_to_python import GraphModule


class {name}(GraphModule):
    graph_file = Path(__file__).with_name("{graph}")
'''


def _identifier(text: str) -> str:
    """A name as the name of a Python module."""
    stem = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower()[:100] or "model"
    return f"model_{stem}" if stem[0].isdigit() or keyword.iskeyword(stem) else stem


__all__ = ["GraphModule", "ModuleWriter", "compile_tvm_to_python"]
