"""Ops that only the host makes: calls of torch, arithmetic of integers, table look-ups."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import Node, Shape, ShapeError, op
from tbuda_lab.core.ops.base import NdOp, need_rank, not_on_device, truth
from tbuda_lab.core.ops.binary import Binary
from tbuda_lab.core.ops.builder import Builder

INTEGER_CALLS = frozenset(
    {
        "acos",
        "argsort",
        "asin",
        "atan",
        "atan2",
        "bitwise_and",
        "bitwise_left_shift",
        "bitwise_not",
        "bitwise_or",
        "bitwise_right_shift",
        "bitwise_xor",
        "ceil",
        "div",
        "floor",
        "fmod",
        "frac",
        "gather",
        "index",
        "index_put",
        "isinf",
        "isnan",
        "isfinite",
        "masked_scatter",
        "prod",
        "cumprod",
        "remainder",
        "round",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "searchsorted",
        "sort",
        "topk",
        "trunc",
    }
)
"""Calls that the importers write for integers, among others."""

COMPLEX_CALLS = frozenset(
    {
        "_conj",
        "_fft_c2c",
        "_fft_c2r",
        "_fft_r2c",
        "abs",
        "add",
        "angle",
        "bmm",
        "cat",
        "clone",
        "complex",
        "conj_physical",
        "cos",
        "div",
        "exp",
        "expand",
        "flip",
        "imag",
        "linalg_eig",
        "linalg_eigvals",
        "log",
        "matmul",
        "mean",
        "mm",
        "mul",
        "neg",
        "permute",
        "polar",
        "pow",
        "real",
        "reciprocal",
        "reshape",
        "resolve_conj",
        "roll",
        "select",
        "sgn",
        "sin",
        "slice",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "sub",
        "sum",
        "tanh",
        "transpose",
        "unsqueeze",
        "view",
        "view_as_complex",
        "view_as_real",
    }
)
"""Calls that the torch importer writes for complex numbers."""

FALLBACK_CALLS = frozenset(
    {
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "_cdist_forward",
        "_embedding_bag",
        "_histogramdd_bin_edges",
        "_histogramdd_from_bin_cts",
        "_linalg_det",
        "_linalg_eigh",
        "_linalg_slogdet",
        "_linalg_solve_ex",
        "_linalg_svd",
        "_pdist_forward",
        "_trilinear",
        "_upsample_bicubic2d_aa",
        "_upsample_bilinear2d_aa",
        "acosh",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "addr",
        "affine_grid_generator",
        "all",
        "aminmax",
        "angle",
        "any",
        "as_strided",
        "as_strided_scatter",
        "asinh",
        "atanh",
        "avg_pool3d",
        "bucketize",
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "col2im",
        "copysign",
        "cosh",
        "count_nonzero",
        "cross",
        "cummax",
        "cummin",
        "diag_embed",
        "diagonal",
        "digamma",
        "dist",
        "embedding_bag",
        "erf",
        "erfc",
        "erfinv",
        "exp2",
        "expm1",
        "fake_quantize_per_channel_affine_cachemask",
        "fake_quantize_per_tensor_affine_cachemask",
        "fft_irfft",
        "fft_rfft",
        "flip",
        "floor_divide",
        "fmax",
        "fmin",
        "fractional_max_pool2d",
        "frexp",
        "gcd",
        "geqrf",
        "grid_sampler_2d",
        "grid_sampler_3d",
        "heaviside",
        "histc",
        "histogram",
        "hypot",
        "i0",
        "igamma",
        "igammac",
        "im2col",
        "index_add",
        "index_copy",
        "index_fill",
        "index_reduce",
        "isin",
        "kthvalue",
        "lcm",
        "ldexp",
        "lerp",
        "lgamma",
        "linalg_cholesky_ex",
        "linalg_cross",
        "linalg_householder_product",
        "linalg_inv_ex",
        "linalg_ldl_factor_ex",
        "linalg_ldl_solve",
        "linalg_lu",
        "linalg_lu_factor_ex",
        "linalg_lu_solve",
        "linalg_matrix_exp",
        "linalg_pinv",
        "linalg_qr",
        "linalg_solve_triangular",
        "linalg_vector_norm",
        "log10",
        "log1p",
        "log2",
        "logaddexp",
        "logaddexp2",
        "logcumsumexp",
        "logit",
        "lu_unpack",
        "masked_fill",
        "max",
        "max_pool1d_with_indices",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "max_unpool2d",
        "max_unpool3d",
        "median",
        "min",
        "mode",
        "mvlgamma",
        "nan_to_num",
        "nanmedian",
        "native_group_norm",
        "nextafter",
        "nll_loss_forward",
        "ormqr",
        "polar",
        "polygamma",
        "pow",
        "put",
        "reflection_pad3d",
        "renorm",
        "replication_pad3d",
        "roll",
        "rot90",
        "segment_reduce",
        "sgn",
        "sign",
        "signbit",
        "sinc",
        "sinh",
        "slogdet",
        "special_airy_ai",
        "special_bessel_j0",
        "special_bessel_j1",
        "special_bessel_y0",
        "special_bessel_y1",
        "special_chebyshev_polynomial_t",
        "special_chebyshev_polynomial_u",
        "special_chebyshev_polynomial_v",
        "special_chebyshev_polynomial_w",
        "special_entr",
        "special_erfcx",
        "special_hermite_polynomial_h",
        "special_hermite_polynomial_he",
        "special_i0e",
        "special_i1",
        "special_i1e",
        "special_laguerre_polynomial_l",
        "special_legendre_polynomial_p",
        "special_log_ndtr",
        "special_modified_bessel_i0",
        "special_modified_bessel_i1",
        "special_modified_bessel_k0",
        "special_modified_bessel_k1",
        "special_ndtri",
        "special_scaled_modified_bessel_k0",
        "special_scaled_modified_bessel_k1",
        "special_shifted_chebyshev_polynomial_t",
        "special_shifted_chebyshev_polynomial_u",
        "special_shifted_chebyshev_polynomial_v",
        "special_shifted_chebyshev_polynomial_w",
        "special_spherical_bessel_j0",
        "special_xlog1py",
        "special_zeta",
        "take",
        "take_along_dim",
        "tan",
        "trace",
        "triangular_solve",
        "tril",
        "triu",
        "unfold",
        "upsample_bicubic2d",
        "upsample_bilinear2d",
        "upsample_linear1d",
        "upsample_trilinear3d",
        "vander",
        "var_mean",
        "xlogy",
    }
)
"""Calls without a form for the device: models that make them are split (see `compiler.fallback`). All are functions of
tensors and numbers alone: they read no file, write nothing, and draw no random number."""

HOST_FORMS = frozenset(
    {
        "_adaptive_avg_pool2d",
        "_adaptive_avg_pool3d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
        "index",
        "linalg_vector_norm",
        "max",
        "max_pool1d_with_indices",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "min",
        "native_group_norm",
        "upsample_bilinear2d",
    }
)
"""Of these, calls that the device has a form for, and the host the rest of: other orders, sizes and places, indices of
what is largest."""

CALLS = INTEGER_CALLS | FALLBACK_CALLS | COMPLEX_CALLS
"""aten ops that a graph may name; a graph read from text can call nothing else."""


@op("host_call")
class HostCall(NdOp):
    """Result number `result` of aten.<call>: operand k stands where `arguments` holds "$k", other arguments are plain.

    `keywords`: (name, value) pairs. Truth values come out as 0.0 and 1.0. `complex_operands`: the numbers of operands
    that hold complex numbers, with a last dim of 2 for the real and the imaginary part; complex results come out so.
    `dtypes`: by operand the type that the model has there, "" for that of the value: a graph writes truth values, and
    whole numbers that the device has made, as floats.
    """

    call: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()
    result: int = 0
    complex_operands: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()

    host = True

    def _run(self, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if self.call not in CALLS:
            raise ShapeError(f"host_call knows no {self.call!r}")

        tensors = [
            torch.view_as_complex(x.float().contiguous()) if k in self.complex_operands else x
            for k, x in enumerate(operands)
        ]

        for k, name in enumerate(self.dtypes):
            if name:
                tensors[k] = tensors[k].to(getattr(torch, name))
        if self.call == "masked_scatter":  # truth values are 0.0 and 1.0 in a graph
            tensors[1] = tensors[1].bool()

        def fill(value: Any) -> Any:
            if isinstance(value, tuple):
                return [fill(v) for v in value]
            return tensors[int(value[1:])] if isinstance(value, str) and value.startswith("$") else value

        function = getattr(torch.ops.aten, self.call)
        out = function(*map(fill, self.arguments), **{k: fill(v) for k, v in self.keywords})
        chosen: torch.Tensor = out[self.result] if isinstance(out, tuple | list) else out
        return torch.view_as_real(chosen.resolve_conj()) if chosen.is_complex() else chosen

    def infer(self, *operands: Shape) -> Shape:
        """The shape torch gives; integer operands are tried where floats are refused (indices)."""
        text = ""  # of floats, which says most
        for kinds in itertools.product((torch.float32, torch.int64, torch.int32), repeat=min(3, len(operands))):
            for fill in (0, 1):  # whole numbers divide by no zero
                try:
                    dtypes = itertools.chain(kinds, itertools.repeat(kinds[-1]))
                    examples = [torch.full(s, fill, dtype=d) for s, d in zip(operands, dtypes, strict=False)]
                    return tuple(self._run(tuple(examples)).shape)
                except (RuntimeError, IndexError, TypeError, ZeroDivisionError) as error:
                    text = text or str(error).split("\n")[0]
        raise ShapeError(f"{self.call} of {', '.join(map(str, operands))}: {text}")

    def evaluate(self, *operands: torch.Tensor) -> torch.Tensor:
        """Raises `InputError` where torch refuses the values (an index beyond a dim, a division of integers by 0)."""
        try:
            y = self._run(operands)
        except NotImplementedError:  # of a tensor without values: who asks for shapes alone knows what to do
            raise
        except (IndexError, RuntimeError) as error:
            raise InputError(f"torch refuses what {self.call} is given: {str(error).splitlines()[0]}") from error
        return truth(y, operands[0]) if y.dtype == torch.bool else y

    def canonicalise(self, b: Builder, node: Node, *operands: str) -> str:
        raise not_on_device(node, f"the device has no {self.call}; it works on integers that inputs alone decide")


Tensor = torch.Tensor


class HostBinary(Binary):
    """Of two operands that broadcast, on the host only."""

    host = True

    def canonicalise(self, b: Builder, node: Node, x: str, y: str) -> str:
        raise not_on_device(node, "the device rounds no numbers; only integers that inputs alone decide are supported")


@op("remainder")
class Remainder(HostBinary):
    """a - b * floor(a / b): the sign is that of b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.remainder(a, b)


@op("floor_divide")
class FloorDivide(HostBinary):
    """The largest integer that is no larger than a / b."""

    def evaluate(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.floor_divide(a, b)


@op("embedding")
class Embedding(NdOp):
    """Rows of table (entries, width) at integer indices of any shape: indices.shape + (width,).

    Only training sees the rest: the row at `padding` (-1: none) has no gradient; `by_frequency`: that of a row is
    divided by how often its index occurs. `evaluate` raises `InputError` for an index that the table does not have.
    """

    padding: int = -1
    by_frequency: bool = False

    host = True

    def infer(self, table: Shape, indices: Shape) -> Shape:
        need_rank(table, 2, "embedding's table")
        return (*indices, table[1])

    def result_dtype(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> torch.dtype:
        return dtypes[0]

    def evaluate(self, table: Tensor, indices: Tensor) -> Tensor:
        _refuse_outside(indices, table.shape[0])
        padding = None if self.padding < 0 else self.padding
        return torch.nn.functional.embedding(
            indices.to(torch.int64), table, padding, scale_grad_by_freq=self.by_frequency
        )

    def canonicalise(self, b: Builder, node: Node, table: str, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")


@op("one_hot")
class OneHot(NdOp):
    """Integer indices of any shape as rows of `entries` numbers, 1 at the index and 0 elsewhere: indices.shape +
    (entries,). The row of an index equal to `padding` (-1: none) is zero.

    `evaluate` raises `InputError` for an index outside 0 .. entries - 1.
    """

    entries: int
    padding: int = -1

    host = True

    def infer(self, indices: Shape) -> Shape:
        return (*indices, self.entries)

    def result_dtype(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> torch.dtype:
        return torch.float32

    def evaluate(self, indices: Tensor) -> Tensor:
        _refuse_outside(indices, self.entries)
        rows = (indices.to(torch.int64).unsqueeze(-1) == torch.arange(self.entries)).to(torch.float32)
        return rows * (indices != self.padding).unsqueeze(-1) if self.padding >= 0 else rows

    def canonicalise(self, b: Builder, node: Node, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")


@op("check_indices")
class CheckIndices(NdOp):
    """Indices as they are. `evaluate` raises `InputError` for one outside 0 .. entries - 1: the products that look up
    by indices would find nothing there, where the framework raises."""

    entries: int

    host = True

    def infer(self, indices: Shape) -> Shape:
        return indices

    def result_dtype(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> torch.dtype:
        return dtypes[0]

    def evaluate(self, indices: Tensor) -> Tensor:
        _refuse_outside(indices, self.entries)
        return indices

    def canonicalise(self, b: Builder, node: Node, indices: str) -> str:
        return indices


@op("assertion")
class Assertion(NdOp):
    """A value as it is, of which the model asserts something. Operands: the value, the condition. `evaluate` raises
    `InputError` with the model's text where the condition does not hold."""

    text: str

    host = True

    def infer(self, value: Shape, condition: Shape) -> Shape:
        return value

    def result_dtype(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> torch.dtype:
        return dtypes[0]

    def evaluate(self, value: Tensor, condition: Tensor) -> Tensor:
        if not bool(condition.all()):
            raise InputError(self.text)
        return value

    def canonicalise(self, b: Builder, node: Node, value: str, condition: str) -> str:
        raise not_on_device(node, "what a model asserts is looked at by the host")


def _refuse_outside(indices: Tensor, entries: int) -> None:
    if indices.numel():
        least, most = (int(end) for end in torch.aminmax(indices))
        if least < 0 or most >= entries:
            raise InputError(f"indices from {least} to {most} into a table of {entries} rows")


@op("embedding_bag")
class EmbeddingBag(NdOp):
    """Rows of table (entries, width), those of each bag made one: (bags, width).

    Operands: table, integer indices of any shape. `starts`: where each bag begins among the flattened indices; the last
    one ends with them. mode: "sum" | "mean" | "max". Indices equal to `padding` (-1: none) do not count. An empty bag
    is zero.
    """

    starts: tuple[int, ...]
    mode: str = "mean"
    padding: int = -1

    host = True

    def infer(self, table: Shape, indices: Shape) -> Shape:
        need_rank(table, 2, "embedding_bag's table")
        return (len(self.starts), table[1])

    def evaluate(self, table: Tensor, indices: Tensor) -> Tensor:
        return torch.nn.functional.embedding_bag(
            indices.to(torch.int64).flatten(),
            table,
            torch.tensor(self.starts),
            mode=self.mode,
            padding_idx=None if self.padding < 0 else self.padding,
        )

    def canonicalise(self, b: Builder, node: Node, table: str, indices: str) -> str:
        raise not_on_device(node, "its indices are computed on the device; only look-ups by model inputs are supported")
