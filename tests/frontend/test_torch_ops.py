"""Every mapped aten op: the imported graph, evaluated op by op, gives what torch gives."""

from __future__ import annotations

import functools
from unittest import mock

import pytest
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.frontend import aten, feeds, from_torch
from tbuda_lab.core.frontend.aten.host import mapping_of
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops.evaluate import evaluate
from tests.frontend.ops_zoo import CASES, Fn


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


Imported = tuple[torch.nn.Module, Graph, frozenset[object]]


@functools.cache
def imported(number: int) -> Imported:
    """The module of a case, its graph, and the mappings that were looked up on the way."""
    _, function, inputs = CASES[number]
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    for buffer_name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5) if "var" in buffer_name else buffer.uniform_(-0.5, 0.5)
    reached: set[object] = set()

    def watched(target: object) -> object:
        mapping = mapping_of(target)
        reached.add(mapping)
        return mapping

    with mock.patch("tbuda_lab.core.frontend.torch_model.importer.mapping_of", watched):
        return module, from_torch(module, inputs), frozenset(reached)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[c[0] for c in CASES])
def test_import_agrees_with_torch(number: int) -> None:
    inputs = CASES[number][2]
    module, graph, _ = imported(number)
    want = _eager(module, inputs)
    got = list(evaluate(graph, feeds(graph, inputs)).values())
    assert len(got) == len(want)
    for w, g in zip(want, got, strict=True):
        assert tuple(g.shape) == tuple(w.shape)
        torch.testing.assert_close(g.float(), w.float(), rtol=1e-5, atol=2e-5)


def test_every_mapping_is_exercised() -> None:
    """The cases above reach every mapping function, so a new one needs a case."""
    reached = {mapping for number in range(len(CASES)) for mapping in imported(number)[2]}
    missing = sorted(name for name, function in aten.TABLE.items() if function not in reached)
    functions = {aten.TABLE[name] for name in missing}
    unreached = sorted({f.__qualname__ for f in functions if f not in reached})
    assert not unreached, missing
