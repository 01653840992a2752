"""JAX primitives of linear algebra, of Fourier transforms and of complex numbers, as calls that the host makes."""

from __future__ import annotations

from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.jax_model.primitives import Equation, translates


@translates("cholesky")
def cholesky(e: Equation) -> Any:
    return e.aten.linalg_cholesky_ex(e.x())[0]


@translates("lu")
def lu(e: Equation) -> Any:
    """Both factors in one matrix, the swaps of rows (from 0), and the order of rows that they make."""
    packed, swaps, _ = e.aten.linalg_lu_factor_ex(e.x())
    rows = e.shape()[-2]
    turned = e.aten.transpose(e.aten.linalg_lu(e.x())[0], -2, -1)
    column = e.calls.constant(torch.arange(rows, dtype=torch.float32).reshape(rows, 1))
    order = e.aten.squeeze(e.aten.matmul(turned, column), -1)
    return packed, e.aten.sub(swaps, 1), e.aten._to_copy(order, dtype=torch.int32)


@translates("triangular_solve")
def triangular_solve(e: Equation) -> Any:
    p, a = e.params, e.x(0)
    if p["transpose_a"]:
        a = e.aten.transpose(a, -2, -1)
    return e.aten.linalg_solve_triangular(
        a, e.x(1), upper=p["lower"] == p["transpose_a"], left=p["left_side"], unitriangular=p["unit_diagonal"]
    )


@translates("qr")
def qr(e: Equation) -> Any:
    if e.params.get("pivoting"):
        raise CannotMap("a QR with pivots; leave them out")
    return e.aten.linalg_qr(e.x(), "complete" if e.params["full_matrices"] else "reduced")


@translates("svd")
def svd(e: Equation) -> Any:
    if e.params.get("subset_by_index") is not None:
        raise CannotMap("some of the singular values; take all and slice them")
    u, s, v = e.aten._linalg_svd(e.x(), bool(e.params["full_matrices"]), True)
    return (s, u, v) if e.params["compute_uv"] else s


@translates("eigh")
def eigh(e: Equation) -> Any:
    """Vectors and values of a symmetric matrix; vectors are known up to their sign."""
    if e.params.get("subset_by_index") is not None:
        raise CannotMap("some of the eigenvalues; take all and slice them")
    values, vectors = e.aten._linalg_eigh(e.x(), "L" if e.params["lower"] else "U", True)
    return vectors, values


@translates("fft")
def fft(e: Equation) -> Any:
    """Over the last dims; only the transform back divides by the number of elements."""
    kind, lengths = int(e.params["fft_type"]), [int(n) for n in e.params["fft_lengths"]]
    rank = len(e.shape())
    dims = list(range(rank - len(lengths), rank))
    if kind == 2:
        return e.aten._fft_r2c(e.x(), dims, 0, True)
    if kind == 3:
        return e.aten._fft_c2r(e.x(), dims, 2, lengths[-1])
    return e.aten._fft_c2c(e.x(), dims, 0 if kind == 0 else 2, kind == 0)


@translates("complex")
def complex_(e: Equation) -> Any:
    return e.aten.complex(e.x(0), e.x(1))


@translates("real", "imag")
def part(e: Equation) -> Any:
    pairs = e.aten.view_as_real(e.x())
    return e.aten.select(pairs, -1, 0 if e.kind == "real" else 1)


@translates("conj")
def conj(e: Equation) -> Any:
    if e.dtype().is_complex:
        return e.aten.conj_physical(e.x())
    return e.aten.complex(e.x(), e.aten.mul(e.x(), 0.0))
