"""Placements from disk: the same bytes as without, for any kind of model, and nothing that a damaged file could do."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab.cli import main
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.types import Objective
from tbuda_lab.core.compiler import CompileResult, Pipeline, cache, pipeline
from tbuda_lab.core.compiler.cache import FORMAT, CompileCache, cache_folder, checksum
from tbuda_lab.core.compiler.request import Clock, Request
from tbuda_lab.core.compiler.result import check_netlist
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import Diagnostic, InputError, NetlistError
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import Outcome, fusing, place_and_repair
from tbuda_lab.core.placer.record import from_record, to_record
from tbuda_lab.core.session import Session
from tests.placer.test_merge_epochs import STREAMED
from tests.placer.test_merge_epochs import traced as turned
from tests.placer.test_stall_repair import crowded


class Branches(nn.Module):
    """Two ways of different length that meet: the short one has to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(128, 128) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.softmax(self.first(x), -1)
        return a + self.third(torch.relu(self.second(torch.nn.functional.gelu(a))))


class Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.deep = nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.Conv2d(32, 32, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        return torch.relu(self.deep(x) + x).mean((2, 3))


def graph(model: str = "plain") -> Graph:
    torch.manual_seed(0)
    module, samples = {
        "plain": small,
        "branches": lambda: (Branches(), (torch.zeros(1, 64, 128),)),
        "picture": lambda: (Picture(), (torch.zeros(1, 3, 32, 32),)),
    }[model]()
    return from_torch(module.eval(), samples, name=model)


def compiled(
    traced: Graph, folder: Path, device: str = "wormhole_b0", overrides: tuple[Override, ...] = (), **options: Any
) -> tuple[CompileResult, CompileCache]:
    cache = CompileCache(folder, least_seconds=0.0)
    request = Request(CompileOptions(**options), overrides, overrides)
    chips = 2 if device == "n300" else None
    stages = Pipeline(load_device(device, chips=chips), keep_epochs=False, cache=cache)
    return stages.compile(traced, request, Clock(None, None)), cache


def about(result: CompileResult) -> tuple[Any, ...]:
    """All that a placement is, as text and values."""
    placement = result.placement
    value = None if placement.report is None else placement.report.objective
    return (
        netlists.dumps(result.netlist),
        placement.report,
        value and value.bound,
        placement.diagnostics,
        placement.queues,
        placement.epochs,
        placement.ops,
        placement.input_buffers,
        placement.schedule,
        result.diagnostics,
    )


CASES: list[tuple[str, str, tuple[Override, ...], dict[str, Any]]] = [
    ("branches", "wormhole_b0", (), {}),
    ("branches", "grayskull", (), {"microbatch": 64}),
    ("branches", "wormhole_b0", (), {"balancer_policy": "Ribbon", "target_cycles": 2000}),
    ("branches", "wormhole_b0", (), {"optimise_steps": 20, "microbatch": 8}),
    ("branches", "n300", (), {}),
    ("picture", "wormhole_b0", (), {"microbatch": 8}),
    ("picture", "grayskull", (Override("epoch_break", "model.deep", True),), {}),
]


@pytest.mark.parametrize(("model", "device", "overrides", "options"), CASES)
def test_what_was_placed_before_is_the_same_again(
    model: str, device: str, overrides: tuple[Override, ...], options: dict[str, Any], tmp_path: Path
) -> None:
    traced = graph(model)
    if overrides:
        op = compiled(traced, tmp_path / "other", device)[0].placement.schedule[2]
        overrides = (Override("epoch_break", op, True), Override("op_size", op, (1, 1)))
    first, cache = compiled(traced, tmp_path, device, overrides, **options)
    assert cache.misses and not cache.hits
    again, cache = compiled(traced, tmp_path, device, overrides, **options)
    assert cache.hits and not cache.misses
    assert about(again) == about(first)


def test_inserted_nops_and_queues_are_the_same_again(tmp_path: Path) -> None:
    traced = graph("branches")
    start, _ = compiled(traced, tmp_path)
    source, reader = next((n.sources[0], n.name) for n in start.lowered.ops if n.sources[0] in start.placement.ops)
    overrides = (
        Override("insert_nop", source, {"dest": (reader,)}),
        Override("insert_queue", source, {"dest": (reader,)}),
    )
    for override in overrides:
        first, cache = compiled(traced, tmp_path, overrides=(override,))
        assert cache.misses
        again, cache = compiled(traced, tmp_path, overrides=(override,))
        assert cache.hits and not cache.misses
        assert about(again) == about(first) != about(start)


def test_a_session_goes_on_from_a_placement_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LEAST_SECONDS", 0.0)
    monkeypatch.setenv("TBUDA_CACHE", str(tmp_path))

    def edited() -> list[tuple[Any, ...]]:
        session = Session(graph("branches"), (torch.zeros(1, 64, 128),))
        states = [about(session.compile())]
        for op in session.compile().placement.schedule[1:4]:
            session.apply(Override("op_size", op, (1, 1)))
            states.append(about(session.compile()))
        return states

    first = edited()
    entries = sorted(tmp_path.iterdir())
    assert entries
    assert edited() == first
    assert sorted(tmp_path.iterdir()) == entries  # nothing was placed again


def test_other_numbers_in_parameters_find_the_same_placement(tmp_path: Path) -> None:
    traced = graph()
    compiled(traced, tmp_path)
    for node in traced:
        if node.value is not None and node.value.dtype.kind == "f":
            node.value = node.value + 1
    result, cache = compiled(traced, tmp_path)
    assert (cache.hits, cache.misses) == (2, 0)  # of the placement, and of the findings
    fresh = Pipeline(load_device("wormhole_b0")).compile(traced, Request(CompileOptions()), Clock(None, None))
    assert {k: v.tobytes() for k, v in result.parameters.items()} == {
        k: v.tobytes() for k, v in fresh.parameters.items()
    }


class Softmax(nn.Module):
    """An exponential that might run as one op with what comes before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.mT * 0.1, -1) @ x


def test_what_is_fused_is_decided_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LEAST_SHARE", 0.0)
    traced = from_torch(Softmax().eval(), (torch.zeros(1, 4, 128, 64),), name="softmax")
    first, cache = compiled(traced, tmp_path)
    assert cache.misses == 3 and any(
        p.trial_cycles for p in first.fused
    )  # of the decision, the placement, the findings
    monkeypatch.setattr(pipeline, "begin", None)
    again, cache = compiled(traced, tmp_path)
    assert (cache.hits, cache.misses) == (3, 0)
    assert about(again) == about(first) and again.fused == first.fused


@pytest.mark.parametrize(
    "record",
    [
        [],
        {},
        {"ends": []},
        {"ends": ["nobody"], "patterns": []},
        {"ends": 5, "patterns": []},
        {"ends": [], "patterns": [[1, 1, 0.5, None, False]]},
        {"ends": [], "patterns": [[1, 1, 0.5, None, 0]] * 2},
        {"ends": [], "patterns": [[1, 1, "much", None, False]] * 2},
        {"ends": [], "patterns": [[1, 1, 0.5, [1], False]] * 2},
    ],
)
def test_a_decision_on_fusing_is_checked_before_it_is_used(record: Any) -> None:
    options, device = CompileOptions(), load_device("wormhole_b0")
    traced = from_torch(Softmax().eval(), (torch.zeros(1, 4, 128, 64),), name="softmax")
    graph = passes.run(traced, options).graph
    lowered = lower(graph, device, options)
    assert fusing.has_undecided_groups(lowered, device, options)
    with pytest.raises(InputError):
        fusing.from_record(record, graph, lowered, device, options)


def test_anything_else_is_placed_anew(tmp_path: Path) -> None:
    traced = graph()
    compiled(traced, tmp_path)
    breaks = (Override("epoch_break", compiled(traced, tmp_path)[0].placement.schedule[1], True),)
    for changes in ({"microbatch": 2}, {"device": "grayskull"}, {"seed": 1}, {"overrides": breaks}):
        assert compiled(traced, tmp_path, **changes)[1].misses == 2, changes  # type: ignore[arg-type]
    assert compiled(graph("picture"), tmp_path)[1].misses == 2


@pytest.mark.parametrize("options", [{"time_budget": 5.0}, {"optimise_seconds": 0.01}])
def test_what_depends_on_time_is_not_kept(options: dict[str, Any], tmp_path: Path) -> None:
    compiled(graph(), tmp_path, **options)
    assert not list(tmp_path.iterdir())


def _entry(folder: Path) -> Path:
    (path,) = folder.glob("*.placement.json")
    return path


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "format", "binary", "huge number"])
def test_a_damaged_entry_is_none(damage: str, tmp_path: Path) -> None:
    traced = graph()
    first, _ = compiled(traced, tmp_path)
    path = _entry(tmp_path)
    good = path.read_bytes()
    bad = {
        "cut": good[: len(good) // 2],
        "flipped": good.replace(b'"epochs"', b'"epoqhs"'),
        "empty": b"",
        "format": b"2" + good[1:],
        "binary": b"\x80\x04\x95",
        "huge number": b"1 x\n" + b"9" * 5000,
    }[damage]
    path.write_bytes(bad)
    again, cache = compiled(traced, tmp_path)
    assert cache.misses == 1
    assert about(again) == about(first)
    assert path.read_bytes() == good  # written anew


def _set(*way: Any) -> Any:
    """A change of a record: the value at the end of a way of keys and numbers."""
    *keys, last, value = way

    def change(record: dict[str, Any]) -> None:
        for key in keys:
            record = record[key]
        record[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("graph", "0" * 64),
        _set("tables", 3),
        _set("order", []),
        _set("order", 0, "nobody"),
        _set("epochs", 0, 0, 0, 10**9),
        _set("epochs", 0, 0, 0, -1),
        _set("epochs", 0, 0, 0, True),
        _set("epochs", 0, 1, 0, [90, 0, False]),
        _set("epochs", 0, 1, 0, [0, -1, False]),
        _set("epochs", 0, 1, 0, [0, 0]),
        _set("epochs", []),
        _set("epochs", 0, [[0], [[0, 0, False]], 1, 1, 0.0]),
        _set("epochs", {"0": 1}),
        _set("epochs", 0, 4, "much"),
        _set("notes", [["error"]]),
        _set("pins", []),
        _set("objective", [1.0]),
        _set("objective", 5, 1 << 40),
        _set("needed", 1),
        _set("needed", -1),
        _set("needed", True),
        lambda record: record.pop("needed"),
        _set("bounds", [1]),
        _set("refusals", [[0, "1", "no"]]),
        _set("curve", [[0.5, 1]]),
        _set("edits", [{"kind": "insert_nop", "target": "nobody", "value": 5}]),
        _set("edits", [{}]),
        lambda record: record.pop("policy"),
        lambda record: record["epochs"][0][1].__setitem__(1, record["epochs"][0][1][0]),  # two ops on one core
    ],
)
def test_a_record_is_checked_before_it_is_used(change: Any, tmp_path: Path) -> None:
    traced = graph()
    first, _ = compiled(traced, tmp_path)
    path = _entry(tmp_path)
    record = json.loads(path.read_text().partition("\n")[2])
    assert first.placement.report is not None
    device, options = load_device("wormhole_b0"), CompileOptions()
    lowered = first.lowered
    assert from_record(record, lowered, first.placement.models, device, options).placement.ops == first.placement.ops
    change(record)
    with pytest.raises(InputError):
        from_record(record, lowered, first.placement.models, device, options)


@pytest.mark.parametrize(("kind", "needed"), [("nop", 1), ("queue", 0)])
def test_the_bound_of_a_record_is_that_of_the_same_graph(kind: str, needed: int) -> None:
    """With a nop without which an op fits no epoch, without a queue that makes the placement faster."""
    device, (lowered, overrides) = load_device("wormhole_b0"), crowded()
    options = CompileOptions(microbatch=4)
    if kind == "queue":
        options = CompileOptions(objective="throughput")
        overrides = STREAMED
        lowered = lower(passes.run(turned()[2], options).graph, device, options)
    constraints = resolve(overrides, lowered, device, options)
    models = op_models(lowered, device, options, constraints.choices)
    outcome = place_and_repair(lowered, models, device, options, constraints)
    assert len(outcome.edits) == 1 and outcome.edits[0].kind == f"insert_{kind}" and outcome.decisions.needed == needed
    record = json.loads(json.dumps(to_record(outcome, lowered, options)))
    again = from_record(record, lowered, models, device, options, constraints)
    first, second = _objective(outcome), _objective(again)
    assert 0.0 < second.bound == first.bound <= first.time
    assert again.decisions == outcome.decisions


def test_a_bound_is_worked_out_once(tmp_path: Path) -> None:
    traced = graph("picture")
    first, _ = compiled(traced, tmp_path, microbatch=4)
    entry = tmp_path / _entry(tmp_path).name.replace(".placement.", ".bound.")
    assert not entry.exists(), "nobody has asked"
    bound = _objective(first).bound
    assert entry.exists() and 0.0 < bound <= _objective(first).time
    for text, hit in ((entry.read_text(), 1), ("damaged", 0), (_signed("-1"), 0), (_signed('"x"'), 0)):
        entry.write_text(text)
        again, kept = compiled(traced, tmp_path, microbatch=4)
        hits = kept.hits
        assert _objective(again).bound == bound and kept.hits == hits + hit


def _objective(result: CompileResult | Outcome) -> Objective:
    assert result.placement.report is not None and result.placement.report.objective is not None
    return result.placement.report.objective


def _signed(body: str) -> str:
    return f"{FORMAT} {checksum(body)}\n{body}\n"


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    traced = graph()
    compiled(traced, tmp_path)
    size = _entry(tmp_path).stat().st_size
    first = _entry(tmp_path).name
    os.utime(_entry(tmp_path), (1, 1))
    compiled(traced, tmp_path, microbatch=2)
    second = next(p for p in tmp_path.glob("*.placement.json") if p.name != first)
    os.utime(second, (2, 2))
    compiled(traced, tmp_path)  # used again
    cache = CompileCache(tmp_path, most=int(2.5 * size), least_seconds=0.0)
    request = Request(CompileOptions(microbatch=3))
    Pipeline(load_device("wormhole_b0"), cache=cache).compile(traced, request, Clock(None, None))
    names = {p.name for p in tmp_path.glob("*.placement.json")}
    assert len(names) == 2 and first in names and second.name not in names


def test_a_netlist_that_was_checked_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = graph()
    warnings = [Diagnostic("warning", "fwd_0", "P1", "of the first check"), Diagnostic("note", "a", "b", "c", "d")]
    monkeypatch.setattr(pipeline, "check_netlist", lambda *_: list(warnings))
    compiled(traced, tmp_path)
    monkeypatch.setattr(pipeline, "check_netlist", lambda *_: [])
    again, _ = compiled(traced, tmp_path)
    assert set(warnings) <= set(again.diagnostics)
    breaks = (Override("epoch_break", again.placement.schedule[1], True),)
    for changes in ({"microbatch": 2}, {"device": "grayskull"}, {"overrides": breaks}):  # other netlists
        assert not set(warnings) & set(compiled(traced, tmp_path, **changes)[0].diagnostics)  # type: ignore[arg-type]


def test_a_netlist_with_errors_is_never_taken_for_a_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> list[Diagnostic]:
        raise NetlistError("broken", [Diagnostic("error", "a", "b", "c")])

    monkeypatch.setattr(pipeline, "check_netlist", refuse)
    for _ in range(2):
        with pytest.raises(NetlistError):
            compiled(graph(), tmp_path)
    assert not list(tmp_path.glob("*.findings.json"))


@pytest.mark.parametrize(
    "record",
    [
        {},
        5,
        ["note"],
        [["note", "a", "b", "c"]],
        [["error", "a", "b", "c", "d"]],
        [["note", "a", "b", "c", 5]],
        [["note", "a", "b", "c", "d", "e"]],
        [{"severity": "note"}],
    ],
)
def test_findings_are_looked_at_before_they_are_used(
    record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = graph()
    first, _ = compiled(traced, tmp_path)
    (path,) = tmp_path.glob("*.findings.json")
    body = json.dumps(record)
    path.write_text(f"{cache.FORMAT} {cache.checksum(body)}\n{body}\n")
    looked: list[object] = []
    monkeypatch.setattr(pipeline, "check_netlist", lambda *given: looked.append(given) or check_netlist(*given))
    assert about(compiled(traced, tmp_path)[0]) == about(first) and looked


def test_a_folder_that_cannot_be_written_to_keeps_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("taken")
    result, cache = compiled(graph(), file)
    assert cache.misses == 2 and result.placement.ops
    assert file.read_text() == "taken"


def test_what_is_no_file_is_passed_by(tmp_path: Path) -> None:
    """Where a pipe lies in the place of an entry, it is neither read nor written: either would wait for ever."""
    traced = graph()
    first, _ = compiled(traced, tmp_path)
    entries = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.unlink()
        os.mkfifo(path)
    again, pipes = compiled(traced, tmp_path)
    assert pipes.misses and not pipes.hits and about(again) == about(first)
    assert all(path.is_fifo() for path in entries)


def test_where_placements_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() is None  # so that tests leave nothing behind
    monkeypatch.setenv("TBUDA_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TBUDA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "tbuda-lab"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "tbuda-lab"


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cache, "LEAST_SECONDS", 0.0)
    monkeypatch.setenv("TBUDA_CACHE", str(tmp_path / "kept"))
    target = f"{Path(__file__)}:small"
    assert main(["compile", target, "--out", str(tmp_path / "a"), "--no-cache"]) == 0
    assert not (tmp_path / "kept").exists()
    assert main(["compile", target, "--out", str(tmp_path / "b")]) == 0
    assert len(list((tmp_path / "kept").iterdir())) == 3  # placement, findings of the check, and the bound
    assert main(["compile", target, "--out", str(tmp_path / "c")]) == 0
    texts = [(tmp_path / folder / "netlist.yaml").read_bytes() for folder in "abc"]
    assert texts[0] == texts[1] == texts[2]


def small() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """What the command line compiles."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).eval(), (torch.zeros(1, 32, 64),)


def test_fields_of_the_record_are_those_of_the_decisions() -> None:
    """A field that is added to the decisions has to be written and read."""
    from tbuda_lab.core.placer.state import Decisions

    names = {f.name for f in dataclasses.fields(Decisions)}
    assert names == {"segments", "policy", "notes", "objective", "curve", "bounds", "needed"}
