"""How a session begins: from the edits in a file, from a device image, for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import Diagnostic, InputError, ModelError, UnsupportedOp
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule, from_pybuda, with_loss
from tbuda_lab.core.frontend.torch_model.audit import audit
from tbuda_lab.core.frontend.torch_model.training import train_tables
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session.compiles import as_sample
from tbuda_lab.core.session.journal import read_journal
from tbuda_lab.core.session.state import SessionState
from tbuda_lab.core.session.training import pybuda_module

if TYPE_CHECKING:
    from tbuda_lab.core.tti import LoadedImage


@dataclasses.dataclass(frozen=True)
class Opening:
    """What a session begins with, read from a file. journal: the file that its edits go on to; image: the device image
    that it was read from."""

    model: Any
    sample_inputs: Any
    device: str | DeviceSpec
    options: CompileOptions
    overrides: tuple[Override, ...]
    name: str
    journal: Path | None = None
    image: LoadedImage | None = None


def read_opening(
    path: Path,
    model: Any = None,
    sample_inputs: Any = (),
    device: str | DeviceSpec | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Opening:
    """The edits of a `*.buda.json` file or the graph of a `*.tti` image; see `Session.open`."""
    if path.suffix.lower() == ".tti":
        if model is not None:
            raise InputError(f"{path} holds its model; leave the other one out, or open its edits with it")
        opening = _read_image(path, device, parameters or {})
        if isinstance(sample_inputs, torch.Tensor) or len(sample_inputs):
            opening = dataclasses.replace(opening, sample_inputs=as_sample(sample_inputs))
        return opening
    if path.suffix in (".yaml", ".yml"):
        raise InputError(
            f"{path} is a netlist, and a session compiles a model; tbuda_lab.widgets.open_netlist shows it, "
            "`tbuda netlist run` runs it"
        )
    if parameters is not None:
        raise InputError(f"{path} holds edits; parameters are those of an image that was written without weights")
    if model is None:
        raise InputError(f"{path} holds edits; give the model and its sample inputs as well")
    head = read_journal(path).header
    device = device or load_device(head.device, harvested_rows=head.harvested_rows)
    return Opening(model, sample_inputs, device, head.options, head.overrides, head.name, path)


def _read_image(path: Path, device: str | DeviceSpec | None, parameters: Mapping[str, Any]) -> Opening:
    """The graph of an image, with its device, options and overrides.

    Raises `InputError` for an image without weights where `parameters` does not give them.
    """
    from tbuda_lab.core.tti import load_image
    from tbuda_lab.core.tti.loaded_image import with_parameters
    from tbuda_lab.core.tti.weights import sample_of

    loaded = load_image(path)
    if loaded.chain is not None:
        raise InputError(
            f"{path} is an image in sections, of which the host runs some: TTDevice.load_image and `tbuda "
            "run` run it; give the model itself to open it in a session"
        )
    graph = with_parameters(loaded.graph, {n: _array(v) for n, v in parameters.items()})
    missing = [n for n in loaded.missing if n not in parameters]
    if missing:
        raise InputError(
            f"{path} was written without weights: give them, parameters={{{missing[0]!r}: ..., ...}} "
            f"({len(missing)} tensors by name); tbuda_lab.widgets.open_tti shows it as it is"
        )
    sample = sample_of(graph, loaded.options.microbatch)
    opened = Opening(graph, sample, device or loaded.device, loaded.options, loaded.overrides, loaded.name)
    return dataclasses.replace(opened, image=loaded)


def note_other_placement(state: SessionState, loaded: LoadedImage) -> None:
    """A note when the first compile does not give the netlist of the image: another version placed it."""

    def on_compile(result: CompileResult) -> None:
        stop()
        unedited = state.request == state.history.first
        if unedited and netlists.dumps(result.netlist) != netlists.dumps(loaded.netlist):
            state.problems.append(
                Diagnostic(
                    "note",
                    loaded.name,
                    "image",
                    "this version places the model differently from the image",
                    "`tbuda run` runs the image as it is",
                )
            )

    stop = state.events.on("compiled", on_compile)


def _array(value: Any) -> np.ndarray:
    return value.detach().float().numpy() if isinstance(value, torch.Tensor) else np.asarray(value, np.float32)


@dataclasses.dataclass(frozen=True)
class TrainingOpening:
    """What a session that trains begins with: the graph of model and loss, a sample of what it reads, how many elements
    of a batch run one by one; modules: model, loss and sample inputs."""

    graph: Graph
    sample: dict[str, torch.Tensor]
    batch: int
    modules: tuple[Module, Module, Any]


def trace_training(model: Any, sample_inputs: Any, loss: Any, sample_targets: Any) -> TrainingOpening:
    """The graph of a model with a loss behind it; see `Session.for_training`."""
    inputs, targets = as_sample(sample_inputs), tuple(as_sample(sample_targets))
    modules = pybuda_module("model", model), pybuda_module("loss", loss)
    try:
        graph, sample, batch = _training_graph(*modules, inputs, targets, whole=False)
    except (UnsupportedOp, ModelError):
        graph, sample, batch = _training_graph(*modules, inputs, targets, whole=True)
    return TrainingOpening(graph, sample, batch, (*modules, inputs))


def _training_graph(
    model: Module, loss: Module, inputs: Any, targets: tuple[torch.Tensor, ...], whole: bool
) -> tuple[Graph, dict[str, torch.Tensor], int]:
    """The graph of a model and its loss, a sample by its inputs, and how many elements of a batch run one by one.

    whole: the batch is one element. Raises `UnsupportedOp` where the graph does not train as the modules do."""
    traced = from_pybuda(model, inputs, training=True, drops=True, whole=whole)
    feeds = frontend.feeds(traced, inputs)
    batch = sum(1 for _ in elements(traced, feeds))
    train_tables(traced, [n.name for n in traced.of_kind(NodeKind.PARAMETER) if n.attrs.get(TRAINABLE)], batch)
    graph, names = with_loss(traced, loss, targets)
    sample = {**feeds, **dict(zip(names, targets, strict=True))}
    if isinstance(model, PyTorchModule) and isinstance(loss, PyTorchModule):
        audit(model.module, loss.module, graph, sample, inputs, targets)
    return graph, sample, batch
