"""What `samba.utils` calls: tracing, gradients of outputs, comparisons, measuring."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.dialects.program import schedules
from tbuda_lab.samba.session import SESSION
from tbuda_lab.samba.tensor import SambaTensor, plain
from tbuda_lab.samba.tracing import trace


def trace_graph(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    optim: Any = None,
    init_output_grads: bool = True,
    loss_indices: Sequence[Any] | None = None,
    pef: str = "",
    mapping: str = "section",
    data_parallel_mode: str = "normal",
    transfer_device: bool = True,
) -> tuple[SambaTensor, ...]:
    """Trace a model for `session.run`; returns the output tensors, which are `model.output_tensors`, too.

    optim: one optimizer, several or none. init_output_grads: whether the gradients by the losses are ones unless
    `sn_grad` is set. loss_indices: positions of the outputs at which the backward pass begins; by default those from
    which no other output is calculated. pef: a compiled PEF, which must be of this graph. mapping: "section" or
    "spatial". transfer_device: whether the model's parameters go to the device at once. Raises `IndexError` for a loss
    that is not an output, `ValueError` for an unknown mapping or mode, `InputError` for a foreign PEF.
    """
    traced: tuple[SambaTensor, ...] = SESSION.trace(
        model, inputs, optim, init_output_grads, loss_indices, pef, mapping, data_parallel_mode, transfer_device
    )
    return traced


def trace_multigraph(
    graph: Any,
    inputs: Any,
    optimizers: Any = None,
    init_output_grads: bool | None = None,
    mapping: str = "",
    trace_prefix: str | None = None,
) -> tuple[SambaTensor, ...]:
    """Trace one of several graphs; once for each. graph: a module, whose inputs and outputs `FwdGraph` takes, or a
    `FwdGraph` of a module. trace_prefix: begins the names of its ops. Raises `ValueError` for optimizers: several
    graphs are for inference; `RuntimeError` for a graph that is traced already."""
    if optimizers:
        raise ValueError("several graphs are for inference: trace_multigraph takes no optimizers")
    if init_output_grads:
        raise ValueError("several graphs are for inference: there are no gradients that init_output_grads could set")
    tensors = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    if isinstance(graph, torch.nn.Module):
        name = trace_prefix or type(graph).__name__.lower()
        own = trace(graph, tensors, mapping=mapping, name=name, prefix=trace_prefix)
        for output in own.outputs:
            output.__dict__["traced_graph"] = own
        return own.outputs
    if graph.is_traced:
        raise RuntimeError(f"graph {graph.name!r} is traced already: make another FwdGraph of its module")
    graph.traced = trace(graph.module, tensors, mapping=mapping, name=graph.name, prefix=trace_prefix)
    outputs: tuple[SambaTensor, ...] = graph.traced.outputs
    return outputs


def init_output_grads(
    output_tensors: Sequence[Any],
    unspecified_tensor_grad: Sequence[str] = (),
    customized_tensors_dict: Mapping[str, torch.Tensor] | None = None,
    is_variable_batch_size: bool = False,
) -> None:
    """Set the gradients by outputs: the given ones by name, for all others ones of the output's shape.

    output_tensors: SambaTensors or their names. unspecified_tensor_grad: names whose gradients are ones, too.
    is_variable_batch_size: a gradient may have another batch size than the output that was traced. Raises `KeyError`
    for a name that is not an output, `ValueError` for a gradient of another shape.
    """
    tensors = [t if isinstance(t, SambaTensor) else SESSION.get_tensors_by_name([t])[0] for t in output_tensors]
    byname = {t.sn_name: t for t in tensors}
    custom = dict(customized_tensors_dict or {})
    unknown = [n for n in (*custom, *unspecified_tensor_grad) if n not in byname]
    if unknown:
        raise KeyError(f"no outputs {', '.join(unknown)}; there are {', '.join(map(str, byname))}")
    for name, tensor in byname.items():
        gradient = plain(custom[name]) if name in custom else torch.ones(tensor.shape)
        axis = tensor.batch_dim
        shape = [s for k, s in enumerate(gradient.shape) if not (is_variable_batch_size and k == axis)]
        own = [s for k, s in enumerate(tensor.shape) if not (is_variable_batch_size and k == axis)]
        if shape != own:
            shapes = f"shape {tuple(gradient.shape)}, the output {tuple(tensor.shape)}"
            raise ValueError(f"the gradient by {name!r} has {shapes}")
        tensor.sn_grad = gradient


def set_seed(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def get_file_dir(path: str) -> str:
    """The folder of a file."""
    return os.path.dirname(os.path.abspath(path))


def assert_close(a: Any, b: Any, name: str = "", threshold: float = 3e-3, visualize: bool = False) -> None:
    """Raises `AssertionError` where the largest difference exceeds `threshold` times the largest value of `b`."""
    first, second = plain(a).to(torch.float64), plain(b).to(torch.float64)
    if first.shape != second.shape:
        raise AssertionError(f"{name}: shapes {tuple(first.shape)} and {tuple(second.shape)}")
    worst = float((first - second).abs().max()) if first.numel() else 0.0
    scale = max(1e-12, float(second.abs().max())) if second.numel() else 1.0
    if visualize:
        print(f"{name}: largest difference {worst:.3g}, {worst / scale:.3g} of the largest value")
    if worst > threshold * scale:
        raise AssertionError(f"{name}: differs by {worst / scale:.3g} of its largest value, more than {threshold:g}")


def measure_performance(
    model: Any,
    inputs: Sequence[Any],
    batch_size: int = 1,
    num_iterations: int = 10,
    min_duration: float = 0.0,
    run_graph_only: bool = False,
    n_chips: int = 1,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
    **others: Any,
) -> dict[str, float]:
    """Run the traced graph and print samples per second: as the devices would take by the model of time, and as this
    simulation takes.

    batch_size: samples of one run on one replica. With `data_parallel` the replicas of the session's world size run
    side by side and synchronise gradients in the mode that the graph was traced for. run_graph_only: outputs and
    gradients are brought back all the same; it changes nothing. Returns cycles of a run, samples per second of both
    kinds, and the cycles of all three modes where the graph trains.
    """
    if n_chips != 1 or run_graph_only or others:
        names = [*(["n_chips"] if n_chips != 1 else []), *(["run_graph_only"] if run_graph_only else []), *others]
        warnings.warn(f"measure_performance: no effect here: {', '.join(sorted(names))}", stacklevel=2)
    if not SESSION.graphs:
        raise RuntimeError("nothing is traced: call samba.utils.trace_graph first")
    traced = next(iter(SESSION.graphs.values()))
    count = int(SESSION.settings.get("world_size") or 1) if data_parallel else 1
    plans = schedules(traced.result, count, reduce_on_rdu)
    turns = traced.spatial_batches
    cycles = plans[traced.data_parallel_mode].cycles * turns
    clock = float(traced.result.device.clock_hz)
    start, runs = time.perf_counter(), 0
    while runs < max(1, num_iterations) or time.perf_counter() - start < min_duration:
        SESSION.run(list(inputs), traced.outputs, data_parallel=data_parallel, reduce_on_rdu=reduce_on_rdu)
        runs += 1
    seconds = (time.perf_counter() - start) / runs
    samples = batch_size * count
    result = {
        "cycles": cycles,
        "device_samples_per_second": samples * clock / max(1.0, cycles),
        "simulated_samples_per_second": samples / seconds,
    }
    if traced.trains:
        result |= {f"cycles_{mode}": plan.cycles * turns for mode, plan in plans.items()}
    print(
        f"latency: {cycles / clock * 1e6:.2f} us ({cycles:,.0f} cycles), samples_per_sec: "
        f"{result['device_samples_per_second']:.1f} on the device by the model of time, "
        f"{result['simulated_samples_per_second']:.1f} in this simulation"
    )
    if traced.trains and count > 1:
        modes = ", ".join(f"{mode} {plan.cycles * turns:,.0f}" for mode, plan in plans.items())
        print(f"cycles of {count} replicas by data-parallel mode: {modes}")
    return result
