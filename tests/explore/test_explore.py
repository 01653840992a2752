"""Explorations of a tiny model: devices by expression, rows, the file, resume, samplers, the front."""

import json
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab.cli import main
from tbuda_lab.core.compiler import cache as cache_module
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.epochsim.batch_time import batch_time
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.explore import front, parse_device, parse_objective, read, without_times
from tbuda_lab.core.explore import trial as trial_module
from tbuda_lab.core.explore.space import front_of
from tbuda_lab.core.explore.trial import Trial
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.explore import Explore, csv_of
from tests.explore.perceptron import SPACE, mlp, session, tiny_model


def test_every_point_has_a_row_that_a_compile_of_its_own_confirms(undisturbed: Path) -> None:
    trials = read(undisturbed).trials
    assert sorted(trials) == list(range(16))
    assert {t.state for t in trials.values()} == {"done", "refused"}
    for trial in trials.values():
        small, harvest = trial.point["device"] == "n150+grid=2x2", trial.point["harvest"]
        assert (trial.state == "refused") == (small and harvest == 3)
        if trial.state == "refused":
            assert "2 rows" in trial.reason["text"] and trial.reason["type"] == "InputError"
    base = session()
    one = next(t for t in trials.values() if t.point["microbatch"] == 4 and t.state == "done")
    opened = Explore.resume(base, undisturbed)
    try:
        result = opened.open(one.n).compile()
        again = compile_graph(base.trace(), opened.device_of(one.point), result.options, cache=False)
        assert one.numbers["cycles/input"] == batch_time(again, 4).per_input
        assert one.numbers["samples/s"] == pytest.approx(1e9 / one.numbers["cycles/input"])
        text = json.loads(opened.export(one.n))
        assert {r["target"] for r in text["overrides"] if r["kind"] == "op_size"} == set(result.placement.ops)
        first, second = [t.n for t in trials.values() if t.state == "done"][:2]
        assert opened.compare(first, second).limiter_cycles[0] > 0
    finally:
        opened.close()


class _Masked(torch.nn.Module):
    """Attention to what came before, of scores that are finite as long as its mask is known to be."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x)
        return (x @ x.transpose(-1, -2) + torch.triu(torch.full((32, 32), -1e4), 1)).softmax(-1) @ x


def test_a_trial_knows_the_constants_of_the_model(tmp_path: Path) -> None:
    """A mask decides which ops a softmax becomes: a trial comes to those of a compile of its own."""
    base = Session(_Masked().eval(), (torch.ones(1, 32, 32),), name="masked", cache=False)
    exploration = base.explore({"devices": ["n150"], "batch": [1, 4]}, out=tmp_path / "masked", cache=False)
    for trial in exploration.run():
        batch = trial.point["microbatch"]
        result = compile_graph(base.trace(), "n150", CompileOptions(microbatch=batch), cache=False)
        placement = json.loads((tmp_path / "masked" / "placements" / f"{trial.placement}.json").read_text())
        assert {r["target"] for r in placement["overrides"] if r["kind"] == "op_size"} == set(result.placement.ops)
        assert trial.numbers["cycles/input"] == batch_time(result, batch).per_input
    exploration.close()


def test_weights_do_not_enter_and_a_folder_of_another_model_is_refused(undisturbed: Path) -> None:
    text = (undisturbed / "graph.txt").read_text()
    assert len(text) < 5000 and "fill" not in text
    before = (undisturbed / "explore.jsonl").read_bytes()
    same = Explore.resume(session(seed=7), undisturbed)  # other weights
    same.close()
    with pytest.raises(InputError, match="another model"):
        session(width=32).explore(SPACE, out=undisturbed)
    with pytest.raises(InputError, match=r"another exploration .*space"):
        session().explore({"batch": [1]}, out=undisturbed)
    assert (undisturbed / "explore.jsonl").read_bytes() == before


def test_cancel_leaves_no_partial_row_and_the_rest_follows(undisturbed: Path, tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    from tbuda_lab.widgets.handlers.explore import Follower
    from tbuda_lab.widgets.pictures.explore import picture_of

    exploration = session().explore(SPACE, out=tmp_path / "c")
    third = threading.Event()
    exploration.on_change(lambda e: (third.set(), e.cancel()) if len(e.trials) == 3 else None)
    pictures: list[dict[str, Any]] = []
    exploration.on_change(Follower(lambda e: pictures.append(picture_of(e))))
    exploration.start()
    with pytest.raises(Cancelled):
        exploration.wait(60)
    assert third.is_set() and 3 <= len(exploration.trials) < 16
    assert pictures[0]["running"] and not pictures[-1]["running"]
    assert len(pictures[-1]["trials"]) == len(exploration.trials)
    exploration.close()
    with Path(tmp_path / "c" / "explore.jsonl").open("ab") as file:
        file.write(b'{"n": 5, "torn')
    again = Explore.resume(session(), tmp_path / "c")
    again.run()
    again.close()
    assert list(without_times(tmp_path / "c")) == list(without_times(undisturbed))


def test_two_clients_do_not_write_one_folder(tmp_path: Path) -> None:
    first = session().explore({"batch": [1]}, out=tmp_path / "x")
    with pytest.raises(InputError, match="at work there"):
        session().explore({"batch": [1]}, out=tmp_path / "x")
    first.close()


@pytest.mark.parametrize("sampler", ["random", "nsga2", "tpe"])
def test_samplers_are_exact_after_an_interruption(sampler: str, tmp_path: Path) -> None:
    if sampler != "random":
        pytest.importorskip("optuna")
    space = {
        "batch": [1, 2, 4, 8],
        "format": ["Float16_b", "Bfp8_b"],
        "fuse_biases": [True, False],
        "fidelity": ["LoFi", "HiFi2", "HiFi4"],
    }

    def explore(folder: Path, budget: int = 20) -> None:
        exploration = session().explore(space, out=folder, sampler=sampler, budget=budget, seed=3)
        exploration.run()
        exploration.close()

    explore(tmp_path / "a")
    lines = (tmp_path / "a" / "explore.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "explore.jsonl").write_text("".join(lines[:14]))
    explore(tmp_path / "b")
    assert list(without_times(tmp_path / "a")) == list(without_times(tmp_path / "b"))
    points = [json.dumps(json.loads(line)["point"], sort_keys=True) for line in lines[1:]]
    assert len(points) == len(set(points)) == 20


def test_pcc_is_that_of_a_run(tmp_path: Path) -> None:
    exploration = session().explore({"format": ["Float16_b", "Bfp2_b"]}, require=["pcc>=0.999"], out=tmp_path / "p")
    wide, narrow = exploration.run()
    assert wide.numbers["pcc"] > 0.999 > narrow.numbers["pcc"]
    comparison = exploration.open(0).verify()[0]
    assert wide.numbers["pcc"] == pytest.approx(comparison.pcc, abs=1e-6)
    assert [t.n for t in exploration.front()] == [0]
    exploration.close()


def test_a_point_opens_with_the_placement_of_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials have no weights; a session that has them finds what they placed, and is not traced again."""
    monkeypatch.setattr(cache_module, "LEAST_SECONDS", 0.0)
    monkeypatch.setenv(cache_module.VARIABLE, str(tmp_path / "kept"))
    own = Session(mlp(), (torch.ones(1, 64),), name="mlp")
    exploration = own.explore({"devices": ["n150"], "batch": [4]}, out=tmp_path / "x")
    exploration.run()
    before = {p.name for p in (tmp_path / "kept").glob("*.placement.json")}
    opened = exploration.open(0)
    traced: list[object] = []
    opened.on("stage", lambda name, _: traced.append(name) if name == "trace" else None)
    opened.compile()
    assert before == {p.name for p in (tmp_path / "kept").glob("*.placement.json")} and len(before) == 1
    assert not traced and opened.verify()[0].pcc > 0.99
    with pytest.raises(InputError, match="another model"):
        opened.trace_as(session())
    exploration.close()


def test_front_is_what_no_other_beats() -> None:
    rows = [(1, 5), (2, 4), (2, 5), (3, 1), (1, 5), (4, 1)]
    naive = [
        k
        for k, a in enumerate(rows)
        if not any(all(x <= y for x, y in zip(b, a, strict=True)) and b != a for b in rows)
    ]
    assert front_of(rows) == naive == [0, 1, 3, 4]
    assert front([], (parse_objective("chips"),)) == []


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("n150", "rows", 9),
        ("n300:1", "chips", (0,)),
        ("wormhole_b0:8", "links", 10),
        ("n150+harvest=2", "rows", 7),
        ("wormhole_b0+grid=4x5", "cols", 5),
        ("wormhole_b0+grid=12x9", "rows", 12),
        ("grayskull+l1=512k", "l1_size", 1 << 19),
        ("n150+clock=0.9G", "clock_hz", 900_000_000),
        ("n150+dram=x2", "dram_bytes_per_cycle", None),
    ],
)
def test_device_expressions(text: str, field: str, value: object) -> None:
    spec = parse_device(text)
    found = getattr(spec, field)
    if value is None:
        assert found == 2 * getattr(load_device("n150"), field)
    else:
        assert (len(found) if field == "links" else found) == value
    assert len({spec.physical_core(r, c) for r in range(spec.rows) for c in range(spec.cols)}) == spec.cores


def test_no_text_of_a_table_is_a_formula() -> None:
    plan = types.SimpleNamespace(space=types.SimpleNamespace(axes={"device": ["=1+1"]}))
    refused = Trial(0, "k", {}, "refused", {"type": "@SUM", "text": "x"}, {}, "", "1")
    done = Trial(1, "k", {"device": "=1+1"}, "done", None, {"cycles": -2.5}, "", "1")
    lines = csv_of(plan, [refused, done]).splitlines()  # type: ignore[arg-type]
    assert lines == ["n,key,state,reason,device,cycles", '0,k,refused,\'@SUM: x,null,""', '1,k,done,"",\'=1+1,-2.5']


def test_command_explores_goes_on_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    space = ["--devices", "n150:1,n150+dram=x0.25", "--batches", "1,8", "--objective", "cycles/input"]
    assert main(["explore", tiny_model(tmp_path), *space, "--out", a, "--csv", str(tmp_path / "t.csv")]) == 0
    out = capsys.readouterr().out
    assert out.count("n150") >= 4 and "tbuda compile" in out
    assert (tmp_path / "t.csv").read_text().count("\n") == 5
    assert main(["explore", a, "--check", a, "--fail-if-slower", "3%"]) == 0
    assert main(["explore", a, "--batches", "2"]) == 1
    slow = Path(b)
    slow.mkdir()
    rows = (Path(a) / "explore.jsonl").read_text().splitlines()
    half = [json.loads(row) for row in rows[1:]]
    for row in half:
        row["numbers"]["cycles/input"] *= 0.9
    (slow / "explore.jsonl").write_text("\n".join([rows[0], *map(json.dumps, half)]) + "\n")
    capsys.readouterr()
    assert main(["explore", a, "--check", b, "--fail-if-slower", "3%"]) == 1
    assert "4 of 4 points" in capsys.readouterr().err


def test_the_picture_has_every_trial_and_answers_clicks(undisturbed: Path, tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    from tbuda_lab.widgets import ExploreView
    from tbuda_lab.widgets.pictures.explore import write_explore_page

    page = write_explore_page(undisturbed, tmp_path / "p.html").read_text()
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "") and "<circle" in page
    exploration = Explore.resume(session(), undisturbed)
    view = ExploreView(exploration)
    assert [t["n"] for t in view.picture["trials"]] == list(range(16))
    assert {t["reason"]["type"] for t in view.picture["trials"] if t["state"] == "refused"} == {"InputError"}
    first = next(t for t in view.picture["trials"] if t["state"] == "done")
    view.receive({"do": "open", "n": first["n"]})
    assert view.opened is not None and view.opened.device.name == first["point"]["device"]
    view.receive({"do": "open", "n": 99})
    assert "no trial" in view.message
    view.receive({"do": "dance"})
    assert "unknown" in view.message
    view.close()
    exploration.close()


def test_the_tab_begins_follows_opens_and_exports(tmp_path: Path) -> None:
    """What a page asks of a session's hub, and what it hears."""
    pytest.importorskip("anywidget")
    from tbuda_lab.widgets.handlers.session_hub import hub_of, hubs
    from tbuda_lab.widgets.protocol import dispatch

    heard: list[dict[str, Any]] = []
    over = threading.Event()

    class Page:
        """A view that keeps what it is told."""

        def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
            heard.append(message)
            over.set()

        def selection_changed(self, selection: dict[str, Any]) -> None: ...

        def wants(self, key: str) -> bool:
            return False

    page, own = Page(), session()
    hub = hub_of(own)

    def ask(**content: Any) -> dict[str, Any]:
        """The answer to a message."""
        heard.clear()
        dispatch(hub, page, content)
        while not any(m["type"] == "edited" for m in heard):
            assert over.wait(60)
            over.clear()
        return next(m for m in heard if m["type"] == "edited")

    assert "nothing was explored" in ask(type="explore_open", n=0)["text"]
    assert "no number of a trial" in ask(type="explore", batches="1", objectives="speed")["text"]
    assert not ask(type="explore", devices="n151")["ok"] and not ask(type="explore", batches="x")["ok"]
    assert not ask(type="explore", batches="1", budget="many")["ok"] and not ask(type="explore")["ok"]
    assert ask(type="explore", devices="n150,n150+grid=2x2", batches="1,4", harvest="0,3")["ok"]
    exploration = own.exploration
    assert exploration is not None and len(exploration.wait(120)) == 8
    picture = hub.frame("explore").meta["picture"]
    assert [t["n"] for t in picture["trials"]] == list(range(8)) and picture["progress"]["done"] == 8
    assert not picture["running"]
    first = next(t["n"] for t in picture["trials"] if t["state"] == "done")
    assert ask(type="explore_open", n=first)["ok"]
    opened = next(m["session"] for m in heard if m["type"] == "explore_opened")
    its = next(h for h in hubs() if h.id == opened)
    its.wait(60)
    assert its.session.device.name == picture["trials"][first]["point"]["device"]
    assert its.session.compile().placement.ops
    assert ask(type="explore_compare", a=first, b=first + 1)["ok"] and hub.frame("diff") is not None
    for what, name in (("csv", "explore.csv"), ("overrides", f"trial-{first}.json")):
        assert ask(type="explore_export", what=what, n=first)["ok"] and (exploration.folder / name).is_file()
    assert not ask(type="explore_export", what="../x")["ok"] and not ask(type="explore_open", n=99)["ok"]
    assert not ask(type="explore_open", n="0")["ok"] and ask(type="explore_cancel")["ok"]
    exploration.close()


def test_the_command_of_a_point_compiles_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    assert (
        main(["compile", tiny_model(tmp_path), "--device", "n150+grid=2x2+harvest=1", "--out", out, "--no-cache"]) == 0
    )
    assert "1x2 cores" in capsys.readouterr().out
    assert main(["compile", tiny_model(tmp_path), "--device", "n150:2", "--chips", "2", "--out", out]) == 1


def test_neither_dask_nor_optuna_is_loaded() -> None:
    code = (
        "import sys, tbuda_lab, tbuda_lab.core.session, tbuda_lab.cli\n"
        "print([m for m in ('dask', 'distributed', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "[]"


def test_grid_random_and_resume_work_without_dask_and_optuna(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dask", "distributed", "optuna"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    for name in [m for m in sys.modules if m.startswith("tbuda_lab.core.explore.dask_")]:
        monkeypatch.delitem(sys.modules, name)
    rows = (undisturbed / "explore.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "explore.jsonl").write_text("".join(rows[:7]))
    exploration = Explore.resume(session(), tmp_path / "grid")
    exploration.run()
    exploration.close()
    assert list(without_times(tmp_path / "grid")) == list(without_times(undisturbed))
    some = session().explore(SPACE, sampler="random", budget=3, out=tmp_path / "random")
    assert len(some.run()) == 3
    some.close()
    wrong: list[dict[str, Any]] = [
        {"engine": 2},
        {"engine": "tcp://127.0.0.1:9"},
        {"sampler": "nsga2"},
        {"sampler": "tpe"},
    ]
    for k, settings in enumerate(wrong):
        asked = session().explore(SPACE, out=tmp_path / str(k), **settings)
        with pytest.raises(InputError, match=r"install tbuda-lab\[explore\]"):
            asked.run()
        asked.close()


def test_rows_of_another_version_stay_and_do_not_count(undisturbed: Path, tmp_path: Path) -> None:
    text = (undisturbed / "explore.jsonl").read_text().splitlines()
    old = [line.replace('"version": "', '"version": "0.0.') for line in text[:4]]
    (tmp_path / "explore.jsonl").write_text("\n".join(old) + "\n")
    exploration = Explore.resume(session(), tmp_path)
    assert len(exploration.stale) == 3 and not exploration.trials
    exploration.run()
    exploration.close()
    record = read(tmp_path)
    assert len(record.stale) == 3 and len(record.trials) == 16
    fresh = [line for line in without_times(tmp_path) if '"version": "0.0.' not in line]
    assert fresh == list(without_times(undisturbed))


def test_a_change_of_a_file_that_compiles_makes_another_version(tmp_path: Path) -> None:
    """The version of a copy of the package: with other times it is the same, with another line another one."""
    package = Path(trial_module.__file__).parents[2]
    copy = tmp_path / "tbuda_lab"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__", "static", "labextension"))
    code = "from tbuda_lab.core.explore.trial import version; print(version())"

    def version_there() -> str:
        done = subprocess.run(
            [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout.strip()

    assert version_there() == trial_module.version()
    with (copy / "core" / "placer" / "steps.py").open("a") as file:
        file.write("# another line\n")
    assert version_there() != trial_module.version()


def test_a_worker_with_other_files_refuses_the_task() -> None:
    task = trial_module.Task(0, {}, {}, version="0.0.1+abc").text()
    with pytest.raises(InputError, match=r"a worker has tbuda_lab .*0\.0\.1\+abc: give both the same"):
        trial_module.run_text(task, "", None, threading.Event())
