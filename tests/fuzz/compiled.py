"""Files of compiles that are attacked: PEFs, placements kept on disk, models in ONNX and TFLite."""

from __future__ import annotations

import functools
import json
import os
import random
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult, Pipeline, cache
from tbuda_lab.core.compiler.cache import CompileCache
from tbuda_lab.core.compiler.request import Clock, Request
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.dialects.host_program import steps_of
from tbuda_lab.dialects.program import read_programs
from tbuda_lab.samba.pef import read_pef
from tests.fuzz.mutations import mutated, mutated_bytes, mutated_text
from tests.tti.models import files_of, pair, write_tar


# -- PEFs --------------------------------------------------------------------------------------------------------------
@functools.cache
def pef() -> dict[str, bytes]:
    """The files of the PEF of a small network that trains, spatial, with a loop."""
    from tbuda_lab import samba

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(32, 8)
            self.register_buffer("offset", torch.arange(32.0))
            self.loss = torch.nn.CrossEntropyLoss()

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            scores = self.layer(x + self.offset)
            return self.loss(scores, y), scores

    torch.manual_seed(2)
    model = samba.from_torch_model_(Net())
    sample = (samba.randn(2, 32, name="x", batch_dim=0), samba.randint(8, (2,), name="y", batch_dim=0))
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    config = {"mapping": "spatial", "num_spatial_batches": 2, "pef_name": "net"}
    with tempfile.TemporaryDirectory() as folder:
        path = samba.SambaSession().compile(model, sample, optimizer, config_dict={**config, "output_folder": folder})
        return files_of(Path(path))


def pef_file(rng: random.Random, folder: Path, changes: int) -> Path:
    files = dict(pef())
    kind = rng.randrange(6) if changes else 6
    if kind <= 2:
        name = next(n for n in files if n.endswith("samba.json"))
        files[name] = json.dumps(mutated(json.loads(files[name]), rng, changes)).encode()
    elif kind <= 4:
        name = rng.choice(sorted(n for n in files if n.endswith((".graph", ".json", ".yaml"))))
        files[name] = mutated_text(files[name].decode(), rng, changes).encode("utf-8", "surrogatepass")
    path = write_tar(folder / "file.pef", files)
    if kind == 5:
        path.write_bytes(mutated_bytes(path.read_bytes(), rng, changes))
    return path


def read_program(path: Path) -> object:
    """The record, and the graphs as the workbench opens them, with all that their host programs say."""
    pef, programs = read_pef(path), read_programs(path)
    return pef, [(p.session(), list(steps_of(p.host_program)), p.host_program.to_json()) for p in programs]


# -- placements --------------------------------------------------------------------------------------------------------
@functools.cache
def lowered_and_records() -> tuple[Any, CompileResult, dict[str, tuple[str, Any]]]:
    """A graph, its compile, and what the cache holds of it: by kind (placement, findings) file name and record."""
    graph = frontend.from_any(*pair())
    with tempfile.TemporaryDirectory() as folder:
        result = _placed(graph, Path(folder))
        records = {
            path.name.split(".")[1]: (path.name, json.loads(path.read_text().partition("\n")[2]))
            for path in Path(folder).iterdir()
        }
    return graph, result, records


def _placed(graph: Any, folder: Path) -> CompileResult:
    pipeline = Pipeline(load_device("n150"), keep_epochs=False, cache=CompileCache(folder, least_seconds=0.0))
    return pipeline.compile(graph, Request(CompileOptions()), Clock(None, None))


def entry_file(kind: str, rng: random.Random, folder: Path, changes: int) -> Path:
    """An entry whose checksum is right, of a name that will be looked for. kind: "placement" or "findings"."""
    name, record = lowered_and_records()[2][kind]
    body = json.dumps(mutated(record, rng, changes), separators=(",", ":"))
    data = f"{cache.FORMAT} {cache.checksum(body)}\n{body}\n".encode()
    path = folder / name
    path.write_bytes(mutated_bytes(data, rng, changes) if rng.randrange(6) == 0 else data)
    return path


placement_file = functools.partial(entry_file, "placement")
findings_file = functools.partial(entry_file, "findings")


def read_placement(path: Path) -> object:
    graph = lowered_and_records()[0]
    return _placed(graph, path.parent)


# -- models of other frameworks ----------------------------------------------------------------------------------------
@functools.cache
def onnx_model() -> Any:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)

    def held(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["g"], transB=1, alpha=0.5),
        helper.make_node("Slice", ["g", "begin", "end", "axis"], ["s"]),
        helper.make_node("Concat", ["s", "g"], ["k"], axis=1),
        helper.make_node("Softmax", ["k"], ["y"], axis=-1),
    ]
    whole = {"shape": [1, -1], "begin": [0], "end": [4], "axis": [1]}
    arrays = [held("w", 4, 2, 3, 3), held("v", 8, 64), held("b", 8)]
    arrays += [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in whole.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12])],
        arrays,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnx_file(rng: random.Random, folder: Path, changes: int) -> Path:
    from google.protobuf import json_format

    path, model = folder / "file.onnx", onnx_model()
    if changes and rng.randrange(4):
        data = mutated(json_format.MessageToDict(model), rng, changes)
        try:
            model = json_format.ParseDict(data, type(model)(), ignore_unknown_fields=True)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError):
            changes = max(changes, 1)  # not of the schema: bytes are changed instead
        else:
            changes = 0
    path.write_bytes(mutated_bytes(model.SerializeToString(), rng, changes))
    return path


def tflite_file(rng: random.Random, folder: Path, changes: int) -> Path:
    path = folder / "file.tflite"
    path.write_bytes(mutated_bytes(tflite_model(), rng, changes))
    return path


@functools.cache
def tflite_model() -> bytes:
    from tests.frontend.test_tflite_models import Writer, r

    writer = Writer()
    writer.tensor("x", (1, 6, 6, 4))
    writer.stored("w", r(8, 3, 3, 4))
    writer.stored("b", r(8))
    writer.tensor("c", (1, 6, 6, 8))
    writer.tensor("y", (1, 6, 6, 8))
    conv: Mapping[str, Any] = {"Padding": 0, "StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
    steps = [("CONV_2D", ["x", "w", "b"], "c", "Conv2DOptions", dict(conv)), ("RELU", ["c"], "y", "", {})]
    return writer.write(steps, ["y"])


def read_model(path: Path) -> object:
    """The graph that a model file is traced to; what it asks of inputs is made up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape = (1, 2, 8, 8) if path.suffix == ".onnx" else (1, 6, 6, 4)
        return frontend.from_any(os.fspath(path), (torch.zeros(shape),))
