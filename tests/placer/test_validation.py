"""What no placement can honour is refused before any candidate is made, everything at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tbuda_lab.core.compiler import compile_graph, pipeline
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError, PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import refuse_impossible, refuse_unknown
from tbuda_lab.core.placer.policies import policy
from tbuda_lab.core.session import Session
from tests.placer.graphs import encoder
from tests.placer.test_edits import traced

DEVICE = load_device("n300")
WRONG = (
    Override("grid", "l0.q", (1, 1)),
    Override("op_size", "l0.q", (3, 1)),
    Override("u_kt", "l0.q", 3),
    Override("op_placement", "l0.k", {"start": (8, 0)}),
    Override("op_placement", "l0.v", {"chip": 2}),
    Override("op_placement", "l0.up", {"transpose": 1}),
    Override("output_buffer_multiplier", "l0.q", 40_000),
    Override("queue_channel", "l0.q.w", {"channel": 6}),
    Override("queue_channel", "e2e_l0.q_0", {"chip": 9}),
    Override("schedule_constraint", ("l0.ctx", "l0.q")),
)


def refused(graph: Graph, records: Sequence[Override]) -> None:
    options = CompileOptions()
    refuse_impossible(graph, DEVICE, options, resolve(records, graph, DEVICE, options))


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(OverrideError) as caught:
        refused(encoder(1), WRONG)
    assert [d.where for d in caught.value.diagnostics] == [
        "l0.q",
        "l0.q",
        "l0.q",
        "l0.q",
        "l0.k",
        "l0.v",
        "l0.up",
        "l0.q.w",
        "e2e_l0.q_0",
        "l0.ctx",
    ]
    assert all(d.fix for d in caught.value.diagnostics)


@pytest.mark.parametrize("record", WRONG)
def test_each_alone_is_refused_and_the_others_are_not_asked(record: Override) -> None:
    with pytest.raises(OverrideError):
        refused(encoder(1), [record])


def test_what_can_be_had_is_not_refused() -> None:
    """Starts at the very edge: one core of the last row and column is left for a grid of 1x1, none for 2x1."""
    last = {"start": (DEVICE.rows - 1, DEVICE.cols - 1)}
    refused(encoder(1), [Override("op_placement", "l0.k", last)])
    both = [Override("op_placement", "l0.k", last), Override("op_size", "l0.k", (2, 1))]
    with pytest.raises(OverrideError, match="fits at"):
        refused(encoder(1), both)
    sized = Override("op_size", "l0.k", (1, 2))
    turned = {"start": (DEVICE.rows - 2, DEVICE.cols - 1), "transpose": True}
    refused(encoder(1), [sized, Override("op_placement", "l0.k", turned)])


def test_a_compile_stops_before_candidates_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("candidates were made")

    monkeypatch.setattr(pipeline, "op_models", never)
    with pytest.raises(OverrideError, match="no DRAM channel"):
        compile_graph(traced()[2], DEVICE, CompileOptions(), [Override("queue_channel", "up.weight", {"channel": 40})])


def test_names_of_policies_are_looked_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wrong name is told, before the graph is looked at."""
    monkeypatch.setattr(pipeline.passes, "run", lambda *_: pytest.fail("passes ran"))
    options = CompileOptions(
        balancer_policy="Ribbn", scheduler_policy="DFS", chip_placement_policy="SNAIL", dram_placement_algorithm="ANY"
    )
    with pytest.raises(PlacementError) as caught:
        compile_graph(traced()[2], DEVICE, options)
    assert [d.where for d in caught.value.diagnostics] == ["Ribbn", "DFS", "SNAIL", "ANY"]
    assert "SingleOpPerEpoch" in caught.value.diagnostics[0].fix and "CLOSEST" in caught.value.diagnostics[3].fix


@pytest.mark.parametrize("name", ["default", "DEFAULT", "", "optimal"])
def test_a_policy_is_known_in_any_case_wherever_it_is_looked_up(name: str) -> None:
    refuse_unknown(CompileOptions(balancer_policy=name))
    assert policy(name)[0] == "Optimal"


@pytest.mark.parametrize(
    ("direction", "pieces", "size", "message"),
    [
        ("n", (2, 1), None, "direction 'n'"),
        ("c", (2, 1), None, "direction 'c'"),
        ("r", (1, 2), None, "direction 'r'"),
        (None, (2, 1), (2, 1), "grid of 2x1"),
        ("c", (1, 8), (1, 8), "grid of 1x8"),
    ],
)
def test_overrides_that_could_each_be_had_alone(
    direction: str | None, pieces: tuple[int, int], size: tuple[int, int] | None, message: str
) -> None:
    """A stream that its direction or its grid leaves no room for: each is legal, both are not."""
    graph = encoder(1)
    settings = {"t_stream_shape": pieces, "t_stream_dir": direction, "op_size": size}
    records = [Override(kind, "l0.up", value) for kind, value in settings.items() if value is not None]
    for record in records:
        refused(graph, [record])
    with pytest.raises(OverrideError) as caught:
        refused(graph, records)
    assert [d.where for d in caught.value.diagnostics] == ["l0.up"] and message in caught.value.diagnostics[0].message


def test_no_model_is_placed_before_overrides_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even to find out what of it should be fused."""
    monkeypatch.setattr(pipeline, "decide", lambda *_: pytest.fail("the model was placed"))
    with pytest.raises(OverrideError):
        compile_graph(traced()[2], DEVICE, CompileOptions(), [Override("op_size", "up.matmul", (3, 1))])


@pytest.mark.parametrize(
    "record", [Override("op_size", "up.matmul", (3, 1)), Override("insert_nop", "up.matmul", {"dest": ("none",)})]
)
def test_a_session_opened_with_them_places_nothing_either(record: Override) -> None:
    model, x, _ = traced()
    started: list[str] = []
    session = Session(model, (x,), DEVICE, CompileOptions(), [record])
    session.on("stage", lambda name, fraction: started.append(name))
    with pytest.raises(OverrideError):
        session.compile()
    assert "lower" in started and not {"balance", "place"} & set(started)
