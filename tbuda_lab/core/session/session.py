"""The interactive face of the compiler: one model, one device, one current result. Views talk to nothing below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import exports, images
from tbuda_lab.core.session.journal import Journal, read_journal, replay
from tbuda_lab.core.session.training import Trains
from tbuda_lab.core.session.working import EVENTS, GRAPH_STAGES, as_sample

__all__ = ["EVENTS", "GRAPH_STAGES", "Session", "as_sample"]


class Session(Trains):
    """Traces, compiles, runs, verifies and edits one model on one simulated device.

    model: a torch module (or a PyBuda module, an ONNX model or its file, which need no sample inputs where they
    declare all shapes); sample_inputs: a tensor or a tuple of them, dim 0 the microbatch.
    keep_epochs: edits are placed into the epochs there are (`optimise` chooses all anew); False places the whole model
    anew after every edit. journal: a `*.buda.json` file to which every edit is written; the edits
    that it holds are taken over, so that a notebook run again after a restart goes on where it was.

    `result` is the last good compile. After an edit it stays until the next one is done; `stale` is True meanwhile.

    Events (`on`): "stage"(name, fraction), "compiled"(result), "run"(done, total), "ran"(outputs),
    "problem"(diagnostic), "edited"(label) after every change of options or overrides, undo and redo included,
    "stale"(bool), "live"(LiveStep) at most four times a second while it runs, "checked"(OpChecks), "verified"
    (list of Comparison), "trained"(TrainingStep) after every step of `train`. Listeners run in the thread that works.
    """

    @classmethod
    def open(cls, path: str | Path, model: Any = None, sample_inputs: Any = (), **settings: Any) -> Session:
        """A session with the edits of a `*.buda.json` file, which goes on to be its journal. Nothing is compiled.

        A `*.tti` image needs no model: the session works on the graph in it, and its inputs are made up
        (`sample_inputs` instead of them). settings: `keep_epochs`, `device` (instead of the file's); for an image also
        `parameters`, by name, where it was written without weights. Raises `InputError` naming file, line and fault. A
        netlist has no model to compile: `widgets.open_netlist` shows one, `tbuda netlist run` runs one. An image of
        another program has none either: `widgets.open_tti` shows it.
        """
        if Path(path).suffix.lower() == ".tti":
            if model is not None:
                raise InputError(f"{path} holds its model; leave the other one out, or open its edits with it")
            session = images.open_image(cls, Path(path), **settings)
            if isinstance(sample_inputs, torch.Tensor) or len(sample_inputs):
                session.sample_inputs = as_sample(sample_inputs)
            return session
        if Path(path).suffix in (".yaml", ".yml"):
            raise InputError(
                f"{path} is a netlist, and a session compiles a model; tbuda_lab.widgets.open_netlist shows it, "
                "`tbuda netlist run` runs it"
            )
        if model is None:
            raise InputError(f"{path} holds edits; give the model and its sample inputs as well")
        file = read_journal(Path(path))
        head = file.header
        device = settings.pop("device", None) or load_device(head.device, harvested_rows=head.harvested_rows)
        session = cls(model, sample_inputs, device, head.options, head.overrides, head.name, **settings)
        replay(session._history, file.actions)
        session._journal = Journal(Path(path), session._header())
        return session

    # -- exports -----------------------------------------------------------------------------------------------
    def export(self, what: str, path: str | Path | None = None, **settings: Any) -> exports.Export:
        """An export that can be looked at (`cli`, `python`, `note`) before `write()` does it. Kinds: `EXPORTS`.

        Raises `InputError` for an unknown kind or setting.
        """
        return exports.plan(self, what, path, **settings)

    def export_netlist(self, path: str | Path, **settings: Any) -> Path:
        """Write the netlist; see `exports.export_netlist`. Returns the path."""
        return self.export("netlist", path, **settings).write()

    def export_overrides(self, path: str | Path, form: str = "python") -> Path:
        """Write the overrides as "python" or "json", or "both" beside each other. Returns the path."""
        return self.export("overrides", path, form=form).write()

    def export_table(self, path: str | Path) -> Path:
        """Write one line per op as CSV; see `exports.export_table`. Returns the path."""
        return self.export("table", path).write()

    def export_tti(self, path: str | Path, **settings: Any) -> Path:
        """Write a device image (`weights`, `dump_format`, `name`); see `images.export_tti`. Returns the path."""
        return self.export("tti", path, **settings).write()

    def export_trace(self, path: str | Path, batch: int = 8) -> Path:
        """Write what happens over `batch` inputs as Chrome trace JSON. Returns the path."""
        return self.export("trace", path, batch=batch).write()
