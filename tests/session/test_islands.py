"""Islands of the search: what they find is a placement of options, and the same on any number of workers."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest
import torch

from tbuda_lab.cli import main
from tbuda_lab.core import netlist
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.epochsim.batch_time import batch_time
from tbuda_lab.core.errors import InputError, NotSupported
from tbuda_lab.core.options import CompileOptions, OptimizerOptions, TrainingOptions
from tbuda_lab.core.session import Islands, Session
from tests.placer.test_objective import model


def searched(workers: int) -> tuple[Session, tuple[tuple[int, float], ...]]:
    """Three islands, two rounds of ten steps."""
    _, inputs, graph = model()
    session = Session(graph, inputs, "grayskull", CompileOptions(microbatch=8), cache=False)
    return session, session.optimise(steps=10, islands=Islands(3, rounds=2, workers=workers))


in_process = functools.cache(lambda: searched(0))


def test_what_islands_find_is_a_placement_of_options_and_never_worse() -> None:
    session, curve = in_process()
    result = session.compile()
    assert all(b[1] <= a[1] for a, b in itertools.pairwise(curve)) and curve[-1][0] == 20
    assert curve[-1][1] < curve[0][1], "nothing was found: the test says nothing"
    assert session.options.optimise_steps == 10 and session.options.optimise_rounds[0].startswith("0/")
    again = compile_graph(model()[2], "grayskull", session.options, cache=False)
    assert again.placement.ops == result.placement.ops
    assert batch_time(again, 8).per_input == curve[-1][1] == batch_time(result, 8).per_input
    session.undo()
    assert session.options == CompileOptions(microbatch=8)
    session.redo()
    assert session.options.optimise_rounds


def test_rounds_are_searches_that_go_on_from_one_another() -> None:
    """A round is another search by its name; two are never worse than the first, and draw other steps."""
    graph = model()[2]
    times = {}
    for names in ((), ("a",), ("b",), ("a", "b")):
        options = CompileOptions(microbatch=8, optimise_steps=8, optimise_rounds=names)
        report = compile_graph(graph, "grayskull", options, cache=False).placement.report
        assert report is not None and report.curve[-1][0] == 8 * max(1, len(names))
        times[names] = report.curve[-1][1]
    assert times["a", "b"] <= times["a",] and len(set(times.values())) > 1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_make_no_difference(workers: int) -> None:
    pytest.importorskip("distributed")
    session, curve = searched(workers)
    plain, expected = in_process()
    assert curve == expected and session.options == plain.options
    assert netlist.dumps(session.compile().netlist) == netlist.dumps(plain.compile().netlist)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seconds": 1.0, "islands": Islands(2)}, "search by steps"),
        ({"steps": 0, "islands": Islands(2)}, "one step or more"),
        ({"islands": Islands(2)}, "search by steps"),
    ],
)
def test_islands_without_steps_are_refused(settings: dict[str, object], message: str) -> None:
    session = Session(torch.nn.Linear(32, 32), (torch.ones(1, 32),), "grayskull")
    with pytest.raises(InputError, match=message):
        session.optimise(**settings)  # type: ignore[arg-type]


def test_numbers_and_options_that_mean_nothing_are_refused() -> None:
    for wrong in ({"count": 0}, {"rounds": -1}, {"workers": True}):
        with pytest.raises(InputError, match="are a number from"):
            Islands(**wrong)
    with pytest.raises(InputError, match="option"):
        CompileOptions(optimise_rounds=("0/0",))
    training = TrainingOptions(OptimizerOptions("sgd"))
    options = CompileOptions(training=training)
    session = Session(torch.nn.Linear(32, 32), (torch.ones(1, 32),), "wormhole_b0", options)
    with pytest.raises(NotSupported, match="trains"):
        session.optimise(steps=2, islands=Islands(2))


def test_the_command_searches_by_islands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(64, 64).eval(), (torch.ones(1, 64),)\n"
    )
    target, out = f"{tmp_path / 'tiny.py'}:make", ["--out", str(tmp_path / "out")]
    assert main(["tune", target, "--rounds", "2", *out]) == 1
    assert "give --islands N" in capsys.readouterr().err
    assert main(["tune", target, "--islands", "2", "--rounds", "1", "--steps", "3", *out]) == 0
    assert "3 steps" in capsys.readouterr().out
