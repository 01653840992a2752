"""Device images of a session: `export_tti`, the export of that name, and opening a session on an image."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.session.exports import ExportSetting, Kind, register

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.tti import Loaded, ModuleFacts

_opened: weakref.WeakKeyDictionary[Session, tuple[ModuleFacts, ...]] = weakref.WeakKeyDictionary()
"""Sessions opened on images: the modules that the graph was traced from."""

_sizes: dict[int, tuple[weakref.ref[CompileResult], dict[bool, int]]] = {}


def export_tti(
    session: Session, path: str | Path, *, weights: bool = True, dump_format: str = "default", name: str = ""
) -> None:
    """Write a device image: netlist, weights, the traced graph and what it was compiled for, in one archive, which
    `TTDevice.load_image`, `tbuda run` and `Session.open` take without the model. Compiles what is not compiled.

    weights: without them whoever opens it gives them. dump_format: tensors as "default" (.npy) or "backend" (raw
    numbers). name: of the device image; the session's by default. Raises `OutputError`.
    """
    from tbuda_lab.core.tti import loaded_of, model_facts, write_image

    result = session.compile()
    title = name or session.name
    modules = _opened.get(session) or model_facts(session.model, title, result.graph)
    loaded = loaded_of(result, title, modules)
    write_image(path, loaded, weights=weights, dump_format=dump_format)


def preview_tti(session: Session, *, weights: bool = True, dump_format: str = "default", name: str = "") -> str:
    """The device and about how large the archive will be."""
    device = session.device
    chips = f"{len(device.chips)} chips" if len(device.chips) > 1 else "1 chip"
    on = f"for {device.name}: {chips} of {device.rows} x {device.cols} cores"
    result = session.result
    if result is None or session.stale:
        return f"{on}; its size is known when the model is compiled"
    size = _size(result, weights)
    return f"{on}; about {_bytes(size)}" + ("" if weights else ", without weights")


def _size(result: CompileResult, weights: bool) -> int:
    from tbuda_lab.core.tti import image_size

    for gone in [key for key, (ref, _) in _sizes.items() if ref() is None]:
        del _sizes[gone]
    existing = _sizes.setdefault(id(result), (weakref.ref(result), {}))[1]
    if weights not in existing:
        existing[weights] = image_size(result, weights=weights)
    return existing[weights]


def _bytes(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size / 1000:.0f} kB"


def open_image(
    kind: type[Session], path: Path, parameters: Mapping[str, Any] | None = None, **settings: Any
) -> Session:
    """A session on the graph of an image, with its device, options and overrides; see `Session.open`."""
    from tbuda_lab.core.tti import load_image
    from tbuda_lab.core.tti.loaded import given
    from tbuda_lab.core.tti.sample import sample_of

    loaded = load_image(path)
    graph = given(loaded.graph, {n: _array(v) for n, v in (parameters or {}).items()})
    missing = [n for n in loaded.missing if n not in (parameters or {})]
    if missing:
        raise InputError(f"{path} was written without weights: give them, parameters={{{missing[0]!r}: ..., ...}} "
                         f"({len(missing)} tensors by name); tbuda_lab.widgets.open_tti shows it as it is")
    device = settings.pop("device", None) or loaded.device
    sample = sample_of(graph, loaded.options.microbatch)
    session = kind(graph, sample, device, loaded.options, loaded.overrides, loaded.name, **settings)
    session.source = (str(path),)
    _opened[session] = loaded.modules
    if device == loaded.device:
        _compare_once(session, loaded)
    return session


def _compare_once(session: Session, loaded: Loaded) -> None:
    """A note when the first compile does not give the netlist of the image: another version placed it."""

    def compiled(result: CompileResult) -> None:
        stop()
        if session.unedited and netlists.dumps(result.netlist) != netlists.dumps(loaded.netlist):
            session.problems.append(Diagnostic(
                "note", loaded.name, "image", "this version places the model in another way than the image has it",
                "`tbuda run` runs the image as it is"))

    stop = session.on("compiled", compiled)


def _array(value: Any) -> np.ndarray:
    return value.detach().float().numpy() if isinstance(value, torch.Tensor) else np.asarray(value, np.float32)


register(
    Kind(
        "tti", "TTI", "the compiled model in one archive, which runs without the model", ".tti",
        "session.export_tti({})", export_tti,
        (
            ExportSetting("name", "", "name of the device image; empty: the session's"),
            ExportSetting("weights", True, "weights included"),
            ExportSetting("dump_format", "default", "tensors as .npy (default) or as raw numbers (backend)",
                    ("default", "backend")),
        ),
        preview_tti,
    )
)  # fmt: skip
