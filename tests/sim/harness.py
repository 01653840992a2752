"""Runs a netlist on the executor and on the reference and compares every output."""

from __future__ import annotations

import numpy as np

from tbuda_lab.sim import Executor
from tests.sim.reference import Reference, full, pcc


def values_for(queue, rng, low=-1.0, high=1.0):
    shape = (queue.entries, *full(queue))
    if queue.df.is_raw:
        return rng.integers(0, 1 << 31, shape).astype(np.int32)
    if queue.df.is_integer:
        return rng.integers(0 if queue.df.name.startswith("U") else -20, 20, shape).astype(np.int32)
    return rng.uniform(low, high, shape).astype(np.float32)


def feeds_for(net, seed=0, low=-1.0, high=1.0, **arrays):
    rng = np.random.default_rng(seed)
    return {
        q.name: arrays.get(q.name, values_for(q, rng, low, high))
        for q in net.queues.values()
        if q.input == "HOST" and not q.alias
    }


def run(net, feeds, *, mode="golden", params=None, **options):
    """{queue: (n, t, R, C)} of all queues and rams that ops fill and nobody else reads."""
    executor = Executor(net, mode=mode, **options)
    for name, array in feeds.items():
        executor.push(name, array)
    executor.run(params=params)
    read = {p.source for g in net.graphs.values() for op in g.ops.values() for p in op.inputs}
    return {
        q.name: executor.pop_all(q.name)
        for q in net.queues.values()
        if q.input != "HOST" and (q.type == "ram" or q.name not in read)
    }, executor


def reference(net, feeds, params=None):
    reference = Reference(net)
    for name, array in feeds.items():
        if net.queues[name].type == "ram":
            for slot, entry in enumerate(array):
                reference.write(name, entry, slot)
        else:
            reference.push(name, array)
    with np.errstate(all="ignore"):
        reference.run(params)
    return reference


def check(net, *, seed=0, low=-1.0, high=1.0, params=None, rtol=2e-6, feeds=None, device=True, **arrays_of_queues):
    """The executor in golden mode agrees with the reference to float32 accuracy (one step of the output's format),
    and in device mode by correlation."""
    feeds = feeds if feeds is not None else feeds_for(net, seed, low, high, **arrays_of_queues)
    got, executor = run(net, feeds, params=params)
    expected = reference(net, feeds, params)
    assert got
    for name, arrays in got.items():
        queue = net.queues[name]
        assert len(arrays), f"nothing in {name}"
        for i, array in enumerate(arrays):
            correct = expected.read(name, i) if queue.type == "ram" else expected.pop(name)
            step = {"Float16_b": 2**-7, "Float16": 2**-10, "Bfp8": 2**-5, "Bfp8_b": 2**-5}.get(queue.df.name, 0)
            scale = max(1e-6, float(np.abs(correct[np.isfinite(correct)]).max(initial=0)))
            with np.errstate(invalid="ignore"):  # infinity less infinity; `same` takes equal ones
                off = np.abs(array - correct)
            exact = off <= rtol * np.abs(correct) + rtol * scale
            most = (step + rtol) * np.maximum(np.abs(correct), scale * step) + rtol * scale
            stepped = off <= most
            same = (array == correct) | (np.isnan(array) & np.isnan(correct))
            assert (exact | stepped | same).all(), (name, i, float(np.nanmax(off)))
            # a step is the exception: it needs a value within float32 error of a rounding boundary
            assert (exact | same).mean() > 0.98, (name, i, (exact | same).mean())
    if not device:
        return got, executor
    rough, _ = run(net, feeds, mode="device", params=params)
    for name, arrays in rough.items():
        assert pcc(arrays, got[name]) > 0.98, (name, pcc(arrays, got[name]))
    return got, executor
