"""The interactive face of the compiler: one model, one device, one current result. Views talk to nothing below it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import STAGES, CompileResult, compile_graph
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import Cancelled, Diagnostic, TbudaError
from tbuda_lab.core.events import Events
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions, Override
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.verification import Comparison, compare

GRAPH_STAGES = ("traced", "passed", "lowered")
EVENTS = ("stage", "compiled", "run", "ran", "problem")


class Session:
    """Traces, compiles, runs and verifies one model on one simulated device.

    model: a torch module (or a PyBuda module); sample_inputs: a tensor or a tuple of them, dim 0 the microbatch.
    Events (`on`): "stage"(name, fraction), "compiled"(result), "run"(done, total), "ran"(outputs),
    "problem"(diagnostic). Listeners run in the thread that works.
    """

    def __init__(
        self,
        model: Any,
        sample_inputs: Any,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
        overrides: Sequence[Override] = (),
        name: str = "model",
    ) -> None:
        self.model = model
        self.sample_inputs = (sample_inputs,) if isinstance(sample_inputs, torch.Tensor) else tuple(sample_inputs)
        self.device = device if isinstance(device, DeviceSpec) else load_device(device)
        self.options = options or CompileOptions()
        self.overrides = tuple(overrides)
        self.name = name
        self.rev = 0
        self.result: CompileResult | None = None
        self.timings: dict[str, float] = {}
        self.problems: list[Diagnostic] = []
        self._traced: Graph | None = None
        self._runner: Runner | None = None
        self._events = Events(*EVENTS)
        self._cancel = threading.Event()
        self._lock = threading.RLock()

    # -- events and control ------------------------------------------------------------------------------------
    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages in the order in which "stage" events report them."""
        return ("trace", *STAGES, "run")

    def on(self, event: str, listener: Callable[..., None]) -> Callable[[], None]:
        """Add a listener; returns a function that removes it."""
        return self._events.on(event, listener)

    def cancel(self) -> None:
        """Stop a running compile or run at the next safe point; it raises `Cancelled`, the last result stays."""
        self._cancel.set()

    # -- stages ------------------------------------------------------------------------------------------------
    def trace(self) -> Graph:
        """The nD graph of the model; traced once."""
        with self._lock:
            if self._traced is None:
                self._events.emit("stage", "trace", 0.0)
                start = time.perf_counter()
                self._traced = frontend.from_any(self.model, self.sample_inputs, name=self.name)
                self.timings["trace"] = time.perf_counter() - start
                self._events.emit("stage", "trace", 1.0)
            return self._traced

    def compile(self) -> CompileResult:
        """Compile with the current options and overrides, unless done already. Raises the stages' typed errors."""
        with self._lock:
            self._cancel.clear()
            if self.result is None:
                graph = self._guarded(self.trace)
                result = self._guarded(
                    lambda: compile_graph(
                        graph,
                        self.device,
                        self.options,
                        self.overrides,
                        on_stage=lambda stage, fraction: self._events.emit("stage", stage, fraction),
                        cancel=self._cancel,
                    )
                )
                self.timings |= result.timings
                self.result = result
                self._runner = None
                self.rev += 1
                self.problems = list(result.diagnostics)
                self._events.emit("compiled", result)
            return self.result

    def _guarded(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Cancelled:
            raise
        except TbudaError as error:
            self.problems = list(error.diagnostics) or [
                Diagnostic("error", self.name, type(error).__name__, str(error))
            ]
            for problem in self.problems:
                self._events.emit("problem", problem)
            raise

    def graph(self, stage: str = "lowered") -> Graph:
        """The graph after a stage: "traced", "passed" or "lowered"."""
        if stage == "traced":
            return self.trace()
        if stage not in GRAPH_STAGES:
            raise KeyError(f"no stage {stage!r}; known: {', '.join(GRAPH_STAGES)}")
        result = self.compile()
        return result.passed if stage == "passed" else result.lowered

    def run(self, inputs: Sequence[Any] | None = None, mode: str = "golden") -> list[list[torch.Tensor]]:
        """Run samples on the simulated device (default: the sample inputs); outputs per sample, in order."""
        with self._lock:
            result = self.compile()
            if self._runner is None or self._runner.mode != mode:
                self._runner = Runner(result, mode)
            samples = [self.sample_inputs] if inputs is None else list(inputs)
            self._events.emit("stage", "run", 0.0)
            start = time.perf_counter()
            outputs = self._guarded(
                lambda: self._runner.run(  # type: ignore[union-attr]
                    samples, progress=lambda done, total: self._events.emit("run", done, total), cancel=self._cancel
                )
            )
            self.timings["run"] = time.perf_counter() - start
            self._events.emit("stage", "run", 1.0)
            self._events.emit("ran", outputs)
            return list(outputs)

    def verify(self, inputs: Any = None, mode: str = "golden") -> list[Comparison]:
        """Run one sample on the device and in torch (float32, eager) and compare every output."""
        sample = self.sample_inputs if inputs is None else inputs
        sample = (sample,) if isinstance(sample, torch.Tensor) else tuple(sample)
        got = self.run([sample], mode)[0]
        wanted = frontend.reference(self.model, sample)
        return [
            compare(f"output {i}", w.detach().float().numpy(), g.detach().float().numpy())
            for i, (w, g) in enumerate(zip(wanted, got, strict=True))
        ]

    # -- editing -----------------------------------------------------------------------------------------------
    def apply(self, *overrides: Override) -> None:
        """Add overrides; the next `compile` honours them."""
        with self._lock:
            self.overrides = (*self.overrides, *overrides)
            self.result = None

    def configure(self, **changes: Any) -> None:
        """Change options by name (see `CompileOptions`); the next `compile` uses them."""
        with self._lock:
            self.options = dataclasses.replace(self.options, **changes)
            self.result = None
