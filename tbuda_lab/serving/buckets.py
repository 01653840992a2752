"""Models for inputs of several sizes: each size is padded to the next of a few that are compiled when first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

Sizes = Mapping[str, Mapping[int, Sequence[int]]]
Key = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]


class BucketedModel:
    """A torch model for sizes that vary.

    sizes: for an input's name the dims that vary and their buckets, {"input_ids": {1: (32, 64, 128)}}; dims with equal
    buckets grow together. padding: the value that fills an input up (0 where none is named): a model whose result
    depends on filled places takes a mask that is 0 there. The batch, dim 0, needs no bucket: a session takes any.
    Dims of the outputs that grow with the buckets are cut back. Sizes of one bucket share its placement.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        sizes: Sizes,
        padding: Mapping[str, float] | None = None,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
    ) -> None:
        if not sizes or any(0 in dims for dims in sizes.values()):
            raise InputError("buckets are for dims after the first; the first is the batch and may have any size")
        for name, dims in sizes.items():
            for dim, buckets in dims.items():
                if not buckets or list(buckets) != sorted({int(n) for n in buckets}) or buckets[0] < 1:
                    raise InputError(f"buckets of dim {dim} of {name!r} are sizes in rising order, not {buckets}")
        self.model, self.sizes, self.padding = model, sizes, dict(padding or {})
        self.device, self.options = device, options
        self.sessions: dict[Key, Session] = {}
        """Sessions by the names, padded shapes (without the batch) and types of the inputs."""

    def run(self, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Outputs for named inputs. Raises `InputError` for a size above its largest bucket or of a fixed dim."""
        missing = [name for name in self.sizes if name not in inputs]
        if missing:
            raise InputError(f"input {missing[0]!r} has buckets and is not given")
        filled: dict[str, torch.Tensor] = {}
        real: dict[tuple[int, ...], tuple[int, int]] = {}
        for name, tensor in inputs.items():
            pads = [0] * (2 * tensor.dim())
            for dim, buckets in self.sizes.get(name, {}).items():
                if dim >= tensor.dim():
                    raise InputError(f"input {name!r} has no dim {dim}; its shape is {tuple(tensor.shape)}")
                size = int(tensor.shape[dim])
                bucket = next((b for b in buckets if b >= size), None)
                if bucket is None or size < 1:
                    raise InputError(f"dim {dim} of {name!r} has size {size}; buckets reach from 1 to {buckets[-1]}")
                pads[2 * (tensor.dim() - dim) - 1] = bucket - size
                if real.setdefault(tuple(buckets), (bucket, size)) != (bucket, size):
                    raise InputError(f"dim {dim} of {name!r} has size {size}; it grows with a dim of another size")
            filled[name] = torch.nn.functional.pad(tensor, pads, value=self.padding.get(name, 0))
        key = tuple((name, tuple(t.shape[1:]), t.dtype) for name, t in sorted(filled.items()))
        if key not in self.sessions:
            self.sessions[key] = Session(self.model, filled, self.device, options=self.options)
        results = list(self.sessions[key].run([filled])[0])
        if all(bucket == size for bucket, size in real.values()):
            return results
        grows = self._growing(key)
        for bucket, size in real.values():
            for k, dim in ((k, d) for k, dims in enumerate(grows) for d in dims):
                if results[k].shape[dim] == bucket:
                    results[k] = results[k].narrow(dim, 0, size)
        return results

    def _growing(self, key: Key) -> list[list[int]]:
        """For each output the dims whose size another bucket would change: torch is asked with inputs of one more."""
        grown = []
        for name, shape, dtype in key:
            more = [n + (d + 1 in self.sizes.get(name, {})) for d, n in enumerate(shape)]
            grown.append((name, tuple(more), dtype))
        return [
            [d for d in range(1, len(a)) if a[d] != b[d]]
            for a, b in zip(self._shapes(key), self._shapes(tuple(grown)), strict=True)
        ]

    def _shapes(self, key: Key) -> list[tuple[int, ...]]:
        inputs = {name: torch.zeros(1, *shape, dtype=dtype) for name, shape, dtype in key}
        with torch.no_grad():
            returned = self.model(**inputs)
        leaves = torch.utils._pytree.tree_leaves(returned)
        return [tuple(t.shape) for t in leaves if isinstance(t, torch.Tensor)]
