"""Passes as pairs of text: the graph before, the graph after. Both must also compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, parse_graph, print_graph, verify
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes import PIPELINE, Pass
from tbuda_lab.core.passes.canonical import Decompose, TameConstants
from tbuda_lab.core.passes.fracture import Fracture

PAIRS = sorted((Path(__file__).parent / "pairs").glob("*.txt"))
VARIANTS: dict[str, Pass] = {
    "decompose": Decompose(),
    "decompose:keep_index_pad": Decompose(keep=("index", "pad")),
    "fracture:columns_rows_inner": Fracture(
        CompileOptions(fracture_groups=(("w", (-1,), (3,)), ("z", (-2,), (2,)), ("v", (-2,), (2,))))
    ),
    "tame_constants": TameConstants(),
    "tame_constants:integers": TameConstants(integers=True),
    "tame_constants:float16": TameConstants(CompileOptions(default_df_override=DataFormat.Float16)),
}
BY_NAME: dict[str, Pass] = {step.name: step for step in PIPELINE} | VARIANTS


def feeds(graph: Graph) -> dict[str, torch.Tensor]:
    """Random tensors for the inputs; integers small enough for any table in the pairs."""
    generator = torch.Generator().manual_seed(7)
    feeds = {}
    for node in graph.inputs:
        if node.attrs["dtype"].startswith("int"):
            feeds[node.name] = torch.randint(0, 2, node.shape, generator=generator)
        else:
            feeds[node.name] = torch.randn(node.shape, generator=generator)
    return feeds


@pytest.mark.parametrize("path", PAIRS, ids=lambda p: p.stem)
def test_text_before_and_after(path: Path) -> None:
    head, _, body = path.read_text().partition("\n")
    before, after = body.split("=>\n")
    names = head.removeprefix("// passes: ").split()
    graph = parse_graph(before)
    verify(graph)
    values = feeds(graph)
    expected = evaluate(graph, values)
    for step in PIPELINE if names == ["pipeline"] else [BY_NAME[name] for name in names]:
        step.apply(graph)
        verify(graph, after=step.name)
    assert print_graph(graph, origins=False) == after
    result = evaluate(graph, values)
    assert list(result) == list(expected)
    for name, value in expected.items():
        if path.stem != "tame_constants":
            torch.testing.assert_close(result[name], value, rtol=1e-5, atol=1e-5)


def test_every_pass_of_the_pipeline_has_a_pair() -> None:
    named = {word.partition(":")[0] for path in PAIRS for word in path.read_text().partition("\n")[0].split()[2:]}
    assert {step.name for step in PIPELINE} <= named | {"share_equal"}
