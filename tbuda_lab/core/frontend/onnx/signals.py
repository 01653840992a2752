"""ONNX ops on signals: Fourier transforms, the weights of a mel filter bank, running products."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.onnx import read
from tbuda_lab.core.frontend.onnx.elementwise import as_dtype
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates
from tbuda_lab.core.frontend.onnx.shapes import axis_of


def _fourier(n: OnnxNode, x: Tensor, axis: int, inverse: bool, onesided: bool) -> Tensor:
    """x with a last dim of 1 (real numbers) or 2 (complex ones) transformed along `axis`; complex, in the same form."""
    size, last = n.calls.shape(x)[axis], len(n.calls.shape(x)) - 1
    real = n.aten.select(x, last, 0)
    if n.calls.shape(x)[last] == 1:
        imaginary: Tensor = n.constant(torch.zeros(n.calls.shape(real), dtype=n.calls.dtype(x)))
    else:
        imaginary = n.aten.select(x, last, 1)
    y = n.aten._fft_c2c(n.aten.complex(real, imaginary), [axis], 2 if inverse else 0, not inverse)
    y = n.aten.view_as_real(y)
    return n.aten.slice(y, axis, 0, size // 2 + 1) if onesided else y  # type: ignore[no-any-return]


@translates("DFT")
def discrete_fourier_transform(n: OnnxNode) -> Any:
    """Of x (..., n, ..., 1 or 2) along an axis, cut or filled with zeros to a length that is given."""
    x, rank = n.x(), n.rank()
    given = n.attr("axis", 1) if n.opset < 20 else int(n.scalar(2, "axis", -2))
    axis, inverse, onesided = axis_of(given, rank), bool(n.attr("inverse", 0)), bool(n.attr("onesided", 0))
    size = n.shape()[axis]
    length = int(n.scalar(1, "length", 0))
    if inverse and onesided:  # the other half of the spectrum mirrors the one that is given; the result is real
        full = length or 2 * (size - 1)
        at = np.arange(full)
        mirrored = at > full // 2
        source = np.where(mirrored, full - at, at)
        if source.max() >= size:
            raise CannotMap(f"a one-sided spectrum of {size} values for {full}")
        sign = torch.ones(full, 2)
        sign[torch.from_numpy(mirrored), 1] = -1.0
        places = [1] * rank
        places[axis], places[-1] = full, 2
        whole = n.aten.mul(
            n.aten.index_select(x, axis, n.constant(torch.from_numpy(source))), n.constant(sign.reshape(places))
        )
        return n.aten.slice(_fourier(n, whole, axis, True, False), rank - 1, 0, 1)
    if length and length < size:
        x = n.aten.slice(x, axis, 0, length)
    elif length > size:
        x = n.aten.constant_pad_nd(x, [0, 0] * (rank - 1 - axis) + [0, length - size], 0.0)
    return _fourier(n, x, axis, inverse, onesided)


@translates("STFT")
def short_time_fourier_transform(n: OnnxNode) -> Any:
    """Of a signal (batch, n, 1 or 2): (batch, frames, bins, 2)."""
    batch, size, parts = n.shape()
    step = int(n.scalar(1, "frame_step"))
    window = n.opt(2)
    length = int(n.scalar(3, "frame_length", 0)) or (n.calls.shape(window)[0] if window is not None else size)
    frames = 1 + (size - length) // step
    at = (np.arange(frames)[:, None] * step + np.arange(length)[None]).reshape(-1)
    cut = n.reshape(n.aten.index_select(n.x(), 1, n.constant(torch.from_numpy(at))), (batch, frames, length, parts))
    if window is not None:
        cut = n.aten.mul(cut, n.reshape(window, (1, 1, length, 1)))
    return _fourier(n, cut, 2, False, bool(n.attr("onesided", 1)))


@translates("MelWeightMatrix")
def mel_weight_matrix(n: OnnxNode) -> Any:
    """Triangles of equal width on the mel scale, 2595 log10(1 + f / 700): (bins of the spectrum, bands)."""
    bands, length, rate = (int(n.scalar(k, "number")) for k in range(3))
    low, high = (float(n.scalar(k, "edge")) for k in (3, 4))
    kind = read.dtype_of(n.attr("output_datatype", 1))
    ends = [2595 * float(np.log10(1 + f / 700)) for f in (low, high)]
    mels = ends[0] + np.arange(bands + 2) * ((ends[1] - ends[0]) / (bands + 2))  # as the standard's reference steps
    bins = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate).astype(int)
    weights = np.zeros((length // 2 + 1, bands), np.float64)
    for band in range(bands):
        left, top, right = bins[band : band + 3]
        if left == top:
            weights[top, band] = 1
        for k in range(left, top + 1):
            if top > left:
                weights[k, band] = (k - left) / (top - left)
        for k in range(top, right):
            if right > top:
                weights[k, band] = (right - k) / (right - top)
    return n.constant(torch.from_numpy(weights).to(kind))


@translates("CumProd")
def running_product(n: OnnxNode) -> Any:
    axis, x = axis_of(int(n.scalar(1, "axis")), n.rank()), n.x()
    backward = bool(n.attr("reverse", 0))
    x = n.aten.flip(x, [axis]) if backward else x
    if n.attr("exclusive", 0):  # the product of those before
        shape = [1 if d == axis else s for d, s in enumerate(n.shape())]
        before = n.aten.slice(x, axis, 0, n.shape()[axis] - 1)
        x = n.aten.cat([n.constant(torch.ones(shape, dtype=n.dtype())), before], axis)
    y = as_dtype(n, n.aten.cumprod(x, axis), n.dtype())
    return n.aten.flip(y, [axis]) if backward else y


@translates("Det")
def determinant(n: OnnxNode) -> Any:
    return n.aten._linalg_det(n.x())[0]
