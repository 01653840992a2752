"""Every mapped aten op: the imported graph, evaluated op by op, gives what torch gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.frontend import aten, feeds, from_torch
from tbuda_lab.core.ops.evaluate import evaluate
from tests.frontend.ops_zoo import CASES, Fn


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(("name", "function", "inputs"), CASES, ids=[c[0] for c in CASES])
def test_import_agrees_with_torch(
    name: str, function: Callable[..., object] | torch.nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    for buffer_name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5) if "var" in buffer_name else buffer.uniform_(-0.5, 0.5)
    graph = from_torch(module, inputs)
    want = _eager(module, inputs)
    got = list(evaluate(graph, feeds(graph, inputs)).values())
    assert len(got) == len(want)
    for w, g in zip(want, got, strict=True):
        assert tuple(g.shape) == tuple(w.shape)
        torch.testing.assert_close(g.float(), w.float(), rtol=1e-5, atol=2e-5)


def test_every_mapping_is_exercised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases above reach every mapping function, so a new one needs a case."""
    reached: set[object] = set()

    def watched(target: object) -> object:
        found = aten.lookup(target)
        reached.add(found)
        return found

    monkeypatch.setattr("tbuda_lab.core.frontend.torch_model.importer.lookup", watched)
    for _, function, inputs in CASES:
        from_torch(function if isinstance(function, torch.nn.Module) else Fn(function), inputs)
    missing = sorted(name for name, function in aten.TABLE.items() if function not in reached)
    functions = {aten.TABLE[name] for name in missing}
    unreached = sorted({f.__qualname__ for f in functions if f not in reached})
    assert not unreached, missing
