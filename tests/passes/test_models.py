"""What the passes promise about whole models, and that they keep what the models compute."""

from __future__ import annotations

import collections

import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph, NodeKind, print_graph
from tbuda_lab.core.ops.evaluate import evaluate, run_recipe
from tests.models import bert, gpt2, mobilenet_v2, resnet18, unet

Sample = tuple[Graph, Graph, dict[str, torch.Tensor]]


def prepare(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Sample:
    traced = from_torch(module, inputs)
    return traced, passes.run(traced).graph, {n.name: x for n, x in zip(traced.inputs, inputs, strict=True)}


def types(graph: Graph) -> collections.Counter[str]:
    return collections.Counter(node.op.type for node in graph.ops if node.op is not None)


def same(sample: Sample, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    with torch.no_grad():
        eager = module(*inputs)
    while not isinstance(eager, torch.Tensor):
        eager = eager[0]
    result = next(iter(evaluate(sample[1], sample[2]).values()))
    torch.testing.assert_close(result, eager, rtol=1e-4, atol=1e-4)


def test_bert_keeps_no_reshape_and_splits_heads_by_slices() -> None:
    module, inputs = bert.make_model(layers=2)
    sample = prepare(module, inputs)
    count = types(sample[1])
    assert count["reshape"] == 0
    assert count["add"] == 2 * 6 + 1, "the one makes NaN of an infinite row of the first softmax"
    assert (count["hslice"], count["transpose"], count["hstack"], count["matmul"]) == (6, 2, 2, 2 * 8)
    assert sum(len(n.inputs) == 3 for n in sample[1].ops if n.op is not None and n.op.type == "matmul") == 2 * 6
    same(sample, module, inputs)


def test_gpt2_splits_the_wide_matmul_and_leaves_look_ups_to_the_host() -> None:
    module, inputs = gpt2.make_model(layers=1, sequence=64)
    sample = prepare(module, inputs)
    passed = sample[1]
    count = types(passed)
    assert not {"index", "splice", "reshape", "embedding", "tanh", "pow"} & set(count)
    assert count["gelu"] == 1 and count["matmul"] == 3 + 2 + 3
    (tokens,) = passed.inputs
    assert tokens.attrs["host"] and tokens.recipe is not None
    assert [n.name for n in tokens.recipe.inputs] == [n.name for n in sample[0].inputs]
    query = next(n for n in passed.of_kind(NodeKind.PARAMETER) if n.name == "h.0.attn.c_attn.weight")
    assert query.shape == (768, 768)
    same(sample, module, inputs)


@pytest.mark.parametrize("make", [resnet18, mobilenet_v2, unet], ids=["resnet18", "mobilenet_v2", "unet"])
def test_images_stay_in_rows_layout(make: object) -> None:
    module, inputs = make.make_model()  # type: ignore[attr-defined]
    sample = prepare(module, inputs)
    assert not {"reshape", "transpose", "to_rows", "from_rows", "multiply"} & set(types(sample[1]))
    same(sample, module, inputs)


def test_recipes_fold_new_weights_as_the_compile_did() -> None:
    module, inputs = unet.make_model()
    traced, passed, _ = prepare(module, inputs)
    originals = {n.name: torch.from_numpy(n.value) for n in traced.of_kind(NodeKind.PARAMETER) if n.value is not None}
    folded = [n for n in passed.of_kind(NodeKind.PARAMETER) if n.recipe is not None]
    assert folded
    for node in folded:
        assert node.recipe is not None and node.value is not None
        torch.testing.assert_close(run_recipe(node.recipe, originals), torch.from_numpy(node.value.copy()))
    assert {n.name for n in folded} & set(originals)


def test_the_traced_graph_is_left_alone_and_passes_are_reported() -> None:
    module, inputs = bert.make_model(layers=1, sequence=32)
    traced = from_torch(module, inputs)
    text = print_graph(traced)
    seen: list[str] = []
    result = passes.run(traced, on_pass=lambda step, report, graph: seen.append(step.name), snapshots=True)
    assert print_graph(traced) == text
    assert seen == [step.name for step in passes.PIPELINE] == [report.name for report in result.reports]
    assert len(result.snapshots) == len(seen) and print_graph(result.snapshots[-1]) == print_graph(result.graph)
    assert all(step.doc for step in passes.PIPELINE)

    def stop(*_: object) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        passes.run(traced, on_pass=stop)
