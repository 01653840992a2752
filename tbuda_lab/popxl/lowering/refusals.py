"""What no Session is made of: a program may be written so, and what it means cannot be kept."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Op
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.kinds import FLOATS_ONLY, UPDATES, WITH_LABELS, calculates_as
from tbuda_lab.popxl.utils import product


def refuse_larger_than(device: DeviceSpec, ir: Ir) -> None:
    """Raises `popart_exception` naming the first tensor that the DRAM of the device does not hold."""
    most = sum(device.dram_end(c) - device.dram_start(c) for c in range(device.dram_channels))
    for graph in ir._graphs.values():
        for op in graph._ops:
            for t in op.outputs:
                size = t.nelms * np.dtype(t.dtype.as_numpy()).itemsize
                if size > most:
                    raise popart_exception(
                        f"{op.where()}: tensor {t.id!r} of shape {t.shape} takes {size:,} bytes, and {device.name} has "
                        f"{most:,} of DRAM"
                    )


def refuse_types(ir: Ir) -> None:
    """Raises `popart_exception` naming the first op of floats that is given whole numbers, or labels that are none."""
    for graph in ir._graphs.values():
        for op in graph._ops:
            kind = calculates_as(op.kind)
            first = op.inputs[0] if kind in FLOATS_ONLY else None
            if first is not None and (first.dtype.is_int or first.dtype is dtypes.bool):
                raise popart_exception(f"{op.where()}: takes floats, and {first.id!r} is {first.dtype}; cast it")
            if kind in WITH_LABELS and not op.inputs[1].dtype.is_int:
                labels = op.inputs[1]
                raise popart_exception(f"{op.where()}: labels {labels.id!r} hold whole numbers, not {labels.dtype}")
            if kind in UPDATES:
                _refuse_fractions(op)


def _refuse_fractions(op: Op) -> None:
    """Raises `popart_exception` for an update of whole numbers by terms that are none."""
    t, factor = op.inputs[0], op.attrs["numbers"].get("f")
    if t.dtype.is_floating_point:
        return
    for name, x in zip(op.attrs["inputs"], op.inputs, strict=True):
        if name in ("X", "f") and x.dtype.is_floating_point:
            raise popart_exception(f"{op.where()}: {t.id!r} is {t.dtype}, and {x.id!r} {x.dtype}; cast one of them")
    if op.attrs.get("mode", "add") not in ("add", "square"):
        raise popart_exception(f"{op.where()}: parts of {t.id!r}, which is {t.dtype}, are no whole numbers; cast it")
    if factor is not None and factor != int(factor):
        raise popart_exception(f"{op.where()}: {t.id!r} is {t.dtype}, and {factor} is no whole number; cast it")


def refuse_parts(ir: Ir) -> None:
    """Raises `popart_exception` naming the first dynamic update whose new part has not the elements of the old one."""
    for graph in ir._graphs.values():
        for op in graph._ops:
            if calculates_as(op.kind) != "DynamicUpdate":
                continue
            t, new, part = op.inputs[0], op.inputs[2], list(op.inputs[0].shape)
            for axis, size in zip(op.attrs["axes"], op.attrs["sizes"], strict=True):
                part[axis] = size
            if new.nelms != product(part):
                raise popart_exception(
                    f"{op.where()}: the part of {t.id!r} is {tuple(part)}, and {new.id!r} has shape {new.shape}"
                )


def refuse_misfits(ir: Ir) -> None:
    """Raises `popart_exception` naming the first variable that is no entry of its remote buffer, nor shards of it."""
    for v in ir.main_graph.variables:
        if v._remote is None:
            continue
        buffer, entry = v._remote
        shape = v.shape if v._shards == 1 and buffer.tensor_shape == v.shape else (-(-v.nelms // v._shards),)
        if shape != buffer.tensor_shape or v.dtype is not buffer.tensor_dtype:
            parts = f"{v._shards} shards of {shape}" if v._shards > 1 else "one entry"
            raise popart_exception(
                f"variable {v.id!r} of shape {v.shape}, {v.dtype!r}, is to be {parts} of a remote buffer, whose entries"
                f" (this is {entry}) have shape {buffer.tensor_shape}, {buffer.tensor_dtype!r}"
            )
