"""How a session begins: from the edits in a file, from a device image, for training."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import Diagnostic, InputError, ModelError, UnsupportedOp
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Module, PyTorchModule, from_pybuda, with_loss
from tbuda_lab.core.frontend.torch_model.audit import audit
from tbuda_lab.core.frontend.torch_model.training import train_tables
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import TRAINABLE
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.session.compiles import as_sample
from tbuda_lab.core.session.journal import read_journal
from tbuda_lab.core.session.training import pybuda_module

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.tti import LoadedImage, ModuleFacts

IMAGE_MODULES: weakref.WeakKeyDictionary[Session, tuple[ModuleFacts, ...]] = weakref.WeakKeyDictionary()
"""Sessions opened on images: the modules that the graph was traced from."""


def open_session(
    kind: type[Session], path: Path, model: Any = None, sample_inputs: Any = (), **settings: Any
) -> Session:
    """A session with the edits of a `*.buda.json` file or on the graph of a `*.tti` image; see `Session.open`."""
    if path.suffix.lower() == ".tti":
        if model is not None:
            raise InputError(f"{path} holds its model; leave the other one out, or open its edits with it")
        session = open_image(kind, path, **settings)
        if isinstance(sample_inputs, torch.Tensor) or len(sample_inputs):
            session.sample_inputs = as_sample(sample_inputs)
        return session
    if path.suffix in (".yaml", ".yml"):
        raise InputError(
            f"{path} is a netlist, and a session compiles a model; tbuda_lab.widgets.open_netlist shows it, "
            "`tbuda netlist run` runs it"
        )
    if model is None:
        raise InputError(f"{path} holds edits; give the model and its sample inputs as well")
    head = read_journal(path).header
    device = settings.pop("device", None) or load_device(head.device, harvested_rows=head.harvested_rows)
    return kind(model, sample_inputs, device, head.options, head.overrides, head.name, journal=path, **settings)


def open_image(
    kind: type[Session], path: Path, parameters: Mapping[str, Any] | None = None, **settings: Any
) -> Session:
    """A session on the graph of an image, with its device, options and overrides; see `Session.open`.

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
    graph = with_parameters(loaded.graph, {n: _array(v) for n, v in (parameters or {}).items()})
    missing = [n for n in loaded.missing if n not in (parameters or {})]
    if missing:
        raise InputError(
            f"{path} was written without weights: give them, parameters={{{missing[0]!r}: ..., ...}} "
            f"({len(missing)} tensors by name); tbuda_lab.widgets.open_tti shows it as it is"
        )
    device = settings.pop("device", None) or loaded.device
    sample = sample_of(graph, loaded.options.microbatch)
    session = kind(graph, sample, device, loaded.options, loaded.overrides, loaded.name, **settings)
    session.source = (str(path),)
    IMAGE_MODULES[session] = loaded.modules
    if device == loaded.device:
        _compare_once(session, loaded)
    return session


def _compare_once(session: Session, loaded: LoadedImage) -> None:
    """A note when the first compile does not give the netlist of the image: another version placed it."""

    def on_compile(result: CompileResult) -> None:
        stop()
        if session.unedited and netlists.dumps(result.netlist) != netlists.dumps(loaded.netlist):
            session.problems.append(
                Diagnostic(
                    "note",
                    loaded.name,
                    "image",
                    "this version places the model differently from the image",
                    "`tbuda run` runs the image as it is",
                )
            )

    stop = session.on("compiled", on_compile)


def _array(value: Any) -> np.ndarray:
    return value.detach().float().numpy() if isinstance(value, torch.Tensor) else np.asarray(value, np.float32)


def training_session(
    kind: type[Session],
    model: Any,
    sample_inputs: Any,
    loss: Any,
    sample_targets: Any,
    training: TrainingOptions,
    options: CompileOptions | None,
    **session: Any,
) -> Session:
    """A session on a model with a loss behind it; see `Session.for_training`."""
    inputs, targets = as_sample(sample_inputs), tuple(as_sample(sample_targets))
    modules = pybuda_module("model", model), pybuda_module("loss", loss)
    try:
        graph, sample, batch = _training_graph(*modules, inputs, targets, whole=False)
    except (UnsupportedOp, ModelError):
        graph, sample, batch = _training_graph(*modules, inputs, targets, whole=True)
    whole = dataclasses.replace(options or CompileOptions(), training=training, microbatch=batch)
    result = kind(graph, sample, options=whole, **session)
    result.runs.trains(*modules, inputs)
    return result


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
