"""`SambaLoader`: batches of a data loader as named SambaTensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tbuda_lab.samba.tensor import SambaTensor


class SambaLoader:
    """Iterates over a torch data loader. names: of the tensors of a batch, in order."""

    def __init__(self, loader: Iterable[Any], names: Sequence[str]) -> None:
        self.loader, self.names = loader, tuple(names)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[SambaTensor, ...]]:
        for batch in self.loader:
            parts = batch if isinstance(batch, list | tuple) else (batch,)
            if len(parts) != len(self.names):
                raise ValueError(f"a batch has {len(parts)} tensors, {len(self.names)} names are given")
            yield tuple(SambaTensor(t, name=n, batch_dim=0) for t, n in zip(parts, self.names, strict=True))
