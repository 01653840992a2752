"""Runs a compiled model on the simulated device: host prologue, executor, host epilogue."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.bindings import InputBinding, OutputBinding, in_model_dtypes
from tbuda_lab.core.compiler.host_chain import HostChain, Stage
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.frontend.inputs import draw_masks, elements, fed_inputs, feeds_of
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import is_cache, keeps_state
from tbuda_lab.core.netlist.schema import Execute, Netlist
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.run_control import RunControl
from tbuda_lab.sim import Executor
from tbuda_lab.sim.arrays import held_too_large, queue_shape


class Runnable(Protocol):
    """What running needs of a compile; see `CompileResult`. An image that was loaded has it too."""

    @property
    def graph(self) -> Graph: ...
    @property
    def netlist(self) -> Netlist: ...
    @property
    def inputs(self) -> tuple[InputBinding, ...]: ...
    @property
    def outputs(self) -> tuple[OutputBinding, ...]: ...
    @property
    def parameters(self) -> Mapping[str, np.ndarray]: ...
    @property
    def device(self) -> DeviceSpec: ...
    def unrounded_parameters(self) -> dict[str, np.ndarray]: ...
    @property
    def options(self) -> CompileOptions: ...
    @property
    def chain(self) -> HostChain | None: ...


class Watcher(Protocol):
    """Who follows a run. Called in the thread that runs, so briefly."""

    def begins(self, runner: Runner, total: int) -> None:
        """`total` inputs are going to run."""

    def on_step(self, op: str, inputs: int) -> None:
        """An op has worked on so many more inputs."""

    def epoch_ended(self, graph: str) -> None:
        """The last graph of an epoch is done."""

    def waits(self) -> None:
        """The run is paused."""

    def ends(self) -> None:
        """The run is over, whether it came to its end or not."""


def fill_microbatch(result: Runnable, samples: Sequence[Any]) -> list[Any]:
    """Samples repeated, all of them each time, until their elements are a multiple of the microbatch. Raises
    `InputError` for samples that do not fit the model, and for a model without weights."""
    refuse_without_weights(result.graph)
    count = sum(1 for s in samples for _ in elements(result.graph, frontend.feeds(result.graph, s)))
    return list(samples) * (math.lcm(count, result.options.microbatch) // count if count else 1)


def refuse_without_weights(graph: Graph) -> None:
    """Raise `InputError` for a graph whose parameters have no values, as of a model on the meta device."""
    missing = [node.name for node in graph.of_kind(NodeKind.PARAMETER) if node.value is None]
    if missing:
        raise InputError(
            f"{graph.name!r} has no weights ({quantity(len(missing), 'parameter')}, such as {missing[0]!r}): it is "
            "placed, timed and shown, and cannot run; make the model on the CPU instead of the meta device, or give "
            "its weights"
        )


def refuse_large(result: Runnable) -> None:
    """Raise `InputError` for a model whose queues hold more than this machine has memory once a microbatch has gone
    through: the executor keeps every entry as float32."""
    count = result.options.microbatch
    sizes = {
        name: 4 * (queue.entries if queue.type == "ram" else min(count, queue.entries)) * math.prod(queue_shape(queue))
        for name, queue in result.netlist.queues.items()
        if not queue.alias
    }
    problem = held_too_large(sum(sizes.values()))
    if not problem:
        return
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:3]
    fix = "run it on a machine with more memory" if count < 2 else f"compile for fewer than {count} inputs at a time"
    what = f"a run of {result.graph.name!r} fills {quantity(len(sizes), 'queue')} for {quantity(count, 'input')}"
    raise InputError(
        f"{what}: {problem}",
        [Diagnostic("error", name, "memory", f"{sizes[name] / 1e9:.3g} GB", fix) for name in largest],
    )


class Runner:
    """One compiled model loaded on one simulated device. Parameters are written once; `run` may be called often.
    caches: whether the model writes rams that its next run reads; keeps_state: whether those are its own buffers.
    given: of a model of which the host runs a part, what the device was given for the first input of the last pass.

    Raises `InputError` for a model without weights, and for one whose queues do not fit this machine's memory."""

    def __init__(self, result: Runnable, mode: str = "golden") -> None:
        refuse_without_weights(result.graph)
        refuse_large(result)
        self.result = result
        self.mode = mode
        self._rounds = mode != "exact"
        self._inputs = fed_inputs(result.graph)
        self._ends: dict[str, tuple[tuple[InputBinding, ...], tuple[OutputBinding, ...]]] = {}
        self.caches = any(map(is_cache, result.graph.of_kind(NodeKind.PARAMETER)))
        self.keeps_state = keeps_state(result.graph)
        self.given: dict[str, torch.Tensor] = {}
        self._held = {} if result.chain is None else result.chain.held()
        # Golden mode is compared with float32: products are not cut to Tf32, as PyBuda's verification has it.
        self.executor = Executor(result.netlist, mode=mode, arch=result.device.arch, reread=False)
        values = result.unrounded_parameters() if mode == "exact" else result.parameters
        for queue, value in values.items():
            if queue in result.netlist.queues:
                self._write(queue, value)

    def _write(self, queue: str, value: np.ndarray) -> None:
        if self.result.netlist.queues[queue].type == "ram":
            self.executor.write(queue, value, slot=0)
        else:
            self.executor.push(queue, value)

    def ends(self, program: str) -> tuple[tuple[InputBinding, ...], tuple[OutputBinding, ...]]:
        """The inputs that a program of the netlist reads and the outputs that it fills. Raises `InputError`."""
        return program_ends(self.result, program)

    def run_program(
        self, program: str, feeds: Mapping[str, torch.Tensor], cancel: threading.Event | None = None
    ) -> dict[str, torch.Tensor]:
        """One input through one program (`run_fwd_0`: the prompt, `run_fwd_1`: a token); its outputs by name. What the
        program leaves in rams the next one finds there. feeds: the inputs that it reads, by name. Raises `InputError`
        for a missing input, a wrong shape, or a model that runs several inputs at a time.
        """
        (result,) = self.run_batch(program, [feeds], cancel)
        return result

    def run_batch(
        self, program: str, batch: Sequence[Mapping[str, torch.Tensor]], cancel: threading.Event | None = None
    ) -> list[dict[str, torch.Tensor]]:
        """As `run_program`, for as many inputs as the microbatch."""
        count = self.result.options.microbatch
        if count != len(batch):
            raise InputError(f"{program} is given {quantity(len(batch), 'input')}; this model runs {count} at a time")
        inputs, outputs = self.ends(program)
        sources = {source for b in inputs for source in b.sources}
        for feeds in batch:  # all of them before anything is pushed
            for name in sources:
                shape = self.result.graph[name].shape
                if name not in feeds or tuple(feeds[name].shape) != shape:
                    actual = tuple(feeds[name].shape) if name in feeds else "nothing"
                    raise InputError(f"{program} takes {name!r} of shape {shape}, not {actual}")
        for feeds in batch:
            for b in inputs:
                self.executor.push(b.queue, b.encode(feeds, self._rounds))
        self.executor.run(program, {"p_loop_count": 1}, cancel=cancel)
        popped = {b.name: [b.decode(self.executor.pop(b.queue)) for _ in batch] for b in outputs}
        return [{name: values[k] for name, values in popped.items()} for k in range(len(batch))]

    def run(
        self,
        samples: Sequence[Any],
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
        control: RunControl | None = None,
        watcher: Watcher | None = None,
    ) -> list[list[torch.Tensor]]:
        """Outputs of every sample, in order, in the model's own types. control: pauses and steps the run. watcher: is
        told how it goes.

        A sample is what the model's forward takes: a tensor, a sequence of tensors, or a mapping by argument. Dim 0
        may hold several elements; they run one by one and are joined again. Raises `InputError` for inputs that do
        not fit, or whose number is no multiple of the microbatch that the model was compiled for.
        """
        batches = [list(elements(self.result.graph, self._feed(s))) for s in samples]
        flat = [feed for batch in batches for feed in batch]
        microbatch = self.result.options.microbatch
        if len(flat) % microbatch:
            raise InputError(f"{quantity(len(flat), 'input')} given, the model runs {microbatch} at a time")
        rows: list[list[torch.Tensor]] = []
        stopped: Callable[[], bool] = cancel.is_set if cancel is not None else lambda: False
        if watcher is not None:
            watcher.begins(self, len(flat))

        def on_step(op: str, inputs: int) -> None:
            if watcher is not None:
                watcher.on_step(op, inputs)
            if control is not None:
                control.on_end("op")

        if watcher is not None or control is not None:
            self.executor.on_step = on_step
        try:
            while len(rows) < len(flat):
                several = self._at_once() * microbatch if control is None or control.free else microbatch
                rows += self._pass(flat[len(rows) : len(rows) + several], stopped, control, watcher)
                if progress is not None:
                    progress(len(rows), len(flat))
                if control is not None:
                    control.on_end("input")
        finally:
            self.executor.on_step = None
            if control is not None:
                control.reset()
            if watcher is not None:
                watcher.ends()
        chain = self.result.chain
        names = [b.name for b in self.result.outputs] if chain is None else chain.output_names
        results, begin = [], 0
        for batch in batches:
            joined = [join_elements(column) for column in zip(*rows[begin : begin + len(batch)], strict=True)]
            results.append(list(in_model_dtypes(self.result.graph, joined, names)))
            begin += len(batch)
        return results

    def _feed(self, sample: Any) -> dict[str, torch.Tensor]:
        """A sample by the names of the graph's inputs. Masks of dropouts are drawn, unless a mapping has them."""
        graph = self.result.graph
        masks = {n.name for n in graph.inputs}.difference(n.name for n in self._inputs)
        if not masks:
            return feeds_of(self._inputs, sample)
        given = {name: sample[name] for name in masks if name in sample} if isinstance(sample, Mapping) else {}
        rest = {k: v for k, v in sample.items() if k not in masks} if isinstance(sample, Mapping) else sample
        feed = feeds_of(self._inputs, rest)
        return feed | (given or draw_masks(graph, sum(1 for _ in elements(graph, feed))))

    def _pass(
        self,
        feeds: list[dict[str, torch.Tensor]],
        stopped: Callable[[], bool],
        control: RunControl | None,
        watcher: Watcher | None,
    ) -> list[list[torch.Tensor]]:
        """Passes of the program's loop, each for as many inputs as the microbatch: one, or several together."""

        waits = watcher.waits if watcher is not None else None
        asked = stopped if control is None else functools.partial(control.gate, stopped, waits)

        def on_end(_executes: int, graph: str) -> None:
            if watcher is not None:
                watcher.epoch_ended(graph)
            if control is not None:
                control.on_end("epoch")

        if self.result.chain is not None:
            return self._chain_pass(self.result.chain, feeds, on_end, asked)
        passes = len(feeds) // self.result.options.microbatch
        outputs = [b.queue for b in self.result.outputs]
        if passes == 1:
            for feed, times in _repeated(feeds):
                for binding in self.result.inputs:
                    self.executor.push(binding.queue, binding.encode(feed, self._rounds), times)
            self.executor.run(params={"p_loop_count": 1}, progress=on_end, cancel=asked)
            popped = [[self.executor.pop(queue) for _ in feeds] for queue in outputs]
        else:
            arrays = {b.queue: np.stack([b.encode(feed, self._rounds) for feed in feeds]) for b in self.result.inputs}
            streamed = self.executor.stream(arrays, outputs, {"p_loop_count": passes}, on_end, asked)
            popped = [list(each) for each in streamed]
        columns = [[b.decode(x) for x in each] for b, each in zip(self.result.outputs, popped, strict=True)]
        return [[column[i] for column in columns] for i in range(len(feeds))]  # also of a model that gives nothing

    def _chain_pass(
        self,
        chain: HostChain,
        feeds: list[dict[str, torch.Tensor]],
        on_end: Callable[[int, str], None],
        stopped: Callable[[], bool],
    ) -> list[list[torch.Tensor]]:
        """One pass of a model of which the host runs a part, for as many inputs as the microbatch: stage by stage."""
        batch = [dict(feed) for feed in feeds]
        self.given = {}
        kept: dict[str, torch.Tensor] = {}
        for stage in chain.stages:
            if stage.place == "host":
                for values in batch:
                    kept |= chain.run_host(stage, values, self._held)
                continue
            inputs, outputs = self._stage_ends(stage)
            for values in batch:
                fed = chain.feeds(stage, values)
                if values is batch[0]:
                    self.given |= fed
                for binding in inputs:
                    self.executor.push(binding.queue, binding.encode(fed, self._rounds))
            self.executor.run(stage.program, {"p_loop_count": 1}, progress=on_end, cancel=stopped)
            for values in batch:
                chain.take(stage, values, {b.name: b.decode(self.executor.pop(b.queue)) for b in outputs})
        self._held |= kept
        return [chain.outputs(values) for values in batch]

    def _stage_ends(self, stage: Stage) -> tuple[tuple[InputBinding, ...], tuple[OutputBinding, ...]]:
        """The queues of a device stage: those that it reads, and those that it fills."""
        if stage.program not in self._ends:
            self._ends[stage.program] = self.ends(stage.program)
        return self._ends[stage.program]

    def _at_once(self) -> int:
        """How many passes go through together."""
        if self.result.chain is not None or self.caches:
            return 1
        return self.executor.at_once([b.queue for b in self.result.inputs], [b.queue for b in self.result.outputs])


def _repeated(feeds: Sequence[dict[str, torch.Tensor]]) -> list[tuple[dict[str, torch.Tensor], int]]:
    """Feeds, and how many times each comes in a row: a microbatch is filled by repeating a sample."""
    rows: list[tuple[dict[str, torch.Tensor], int]] = []
    for feed in feeds:
        if rows and feed.keys() == rows[-1][0].keys() and all(_is_same(feed[k], rows[-1][0][k]) for k in feed):
            rows[-1] = rows[-1][0], rows[-1][1] + 1
        else:
            rows.append((feed, 1))
    return rows


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same memory, seen alike."""
    return a is b or (
        (a.data_ptr(), a.dtype, a.shape, a.stride()) == (b.data_ptr(), b.dtype, b.shape, b.stride()) and a.numel() > 0
    )


def program_ends(result: Runnable, program: str) -> tuple[tuple[InputBinding, ...], tuple[OutputBinding, ...]]:
    """The inputs that a program of a netlist reads and the outputs that it fills. Raises `InputError` where there is no
    such program."""
    netlist = result.netlist
    last = next((p for p in netlist.programs if p.name == program), None)
    if last is None:
        names = ", ".join(p.name for p in netlist.programs)
        raise InputError(f"there is no program {program!r}; there are {names}")
    executed = [netlist.graphs[i.graph] for i in last.instructions if isinstance(i, Execute)]
    ops = {op.name for graph in executed for op in graph.ops.values()}
    read = {port.source for graph in executed for op in graph.ops.values() for port in op.inputs}
    inputs = tuple(b for b in result.inputs if b.queue in read)
    return inputs, tuple(b for b in result.outputs if netlist.queues[b.queue].input in ops)


def join_elements(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Outputs of the elements of one sample, along dim 0; numbers become a vector."""
    if len(parts) == 1:
        return parts[0]
    return torch.cat(list(parts)) if parts[0].dim() else torch.stack(list(parts))
