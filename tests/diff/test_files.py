"""Sides read from netlists and from folders of `tbuda compile`, and the command with its exit codes."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tbuda_lab.cli import main
from tbuda_lab.core import netlist
from tbuda_lab.core.diff import compare_sides, file_sides, side_of_result
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import ResizeOp, Session
from tests.session.models import perceptron

MODEL = """
from tests.session.models import perceptron
def make():
    return perceptron()
"""
OP = "first.matmul"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compiled folders, `wide` and `small` (one op put on a single core)."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "model.py").write_text(MODEL)
    target = f"{folder / 'model.py'}:make"
    assert main(["compile", target, "--device", "e300", "--out", str(folder / "wide")]) == 0
    more = ["--op-size", f"{OP}=1x1"]
    assert main(["compile", target, "--device", "e300", "--out", str(folder / "small"), *more]) == 0
    return folder


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*perceptron(), "e300")
    session.compile()
    return session


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """The cycles that the compiler wrote, read by other means."""
    with (folder / "netlist.cycles.csv").open() as stream:
        return {r["op"]: (int(r["kernel_cycles"]), int(r["limiter_cycles"])) for r in csv.DictReader(stream)}


def test_a_folder_says_what_the_compile_said(built: Path, session: Session) -> None:
    side, _ = file_sides(built / "wide", built / "small")
    expected = side_of_result(session.result, "wide")
    assert side.cycles_from == "cycles.csv" and side.name == "wide"
    assert side.ops == expected.ops and side.epochs == expected.epochs
    assert {n: (q.chip, q.location, q.channels) for n, q in side.queues.items()} == {
        n: (q.chip, q.location, q.channels) for n, q in expected.queues.items()
    }


def test_folders_differ_in_the_op_that_was_asked_for(built: Path) -> None:
    diff = compare_sides(*file_sides(built / "wide", built / "small"))
    change = next(c for c in diff.resized if c.op == OP)
    assert change.after.grid == (1, 1) != change.before.grid
    for state, folder in ((change.before, "wide"), (change.after, "small")):
        assert (state.cycles, state.limiter_cycles) == written(built / folder)[OP]
    assert not diff.added and not diff.removed and diff.slower > 0 and diff.notes == ()


def test_netlists_without_their_cycles_are_both_estimated(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_bytes((built / "wide" / "netlist.yaml").read_bytes())
    diff = compare_sides(*file_sides(built / "wide", copy))
    assert diff.changes == () and diff.slower == 0
    assert {diff.before.cycles_from, diff.after.cycles_from} == {"estimate"} and "estimates" in diff.notes[0]
    kernel = written(built / "wide")
    assert {op: s.cycles for op, s in diff.before.ops.items()} == pytest.approx(
        {op: k for op, (k, _) in kernel.items()}, rel=0.02
    )


def test_cycles_of_a_netlist_that_was_changed_are_not_used(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "edited"
    folder.mkdir()
    for name in ("netlist.yaml", "netlist.cycles.csv", "compile.json"):
        (folder / name).write_bytes((built / "wide" / name).read_bytes())
    assert file_sides(folder, built / "small")[0].cycles_from == "cycles.csv"
    text = (folder / "netlist.yaml").read_text()
    (folder / "netlist.yaml").write_text(text + "# by hand\n")
    assert file_sides(folder, built / "small")[0].cycles_from == "estimate"
    (folder / "compile.json").write_text("[]")
    assert file_sides(folder, built / "small")[0].cycles_from == "estimate"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "op,kernel\n",
        "op,kernel_cycles,limiter_cycles\na,1\n",
        "\0",
        "op,kernel_cycles,limiter_cycles\na,-1,2\n",
        "op,kernel_cycles,limiter_cycles\na,x,2\n",
    ],
)
def test_a_broken_table_of_cycles_is_refused(built: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "netlist.yaml").write_bytes((built / "wide" / "netlist.yaml").read_bytes())
    (tmp_path / "netlist.cycles.csv").write_text(text)
    with pytest.raises(InputError, match=r"netlist\.cycles\.csv"):
        file_sides(tmp_path, built / "small")


def test_an_op_moved_by_hand_is_found(built: Path, tmp_path: Path) -> None:
    n = netlist.load(built / "small" / "netlist.yaml")
    graph = next(g for g in n.graphs.values() if OP in g.ops)
    row, col = graph.ops[OP].grid_loc
    graph.ops[OP].grid_loc = (row + 1, col + 5)
    netlist.dump(n, tmp_path / "moved.yaml")
    diff = compare_sides(*file_sides(built / "small", tmp_path / "moved.yaml"))
    assert [(c.op, c.classes) for c in diff.changes] == [(OP, ("moved",))]
    assert diff.changes[0].after.start == (row + 1, col + 5)


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["diff", *map(str, words)])
    message = capsys.readouterr()
    return code, message.out, message.err


def test_exit_codes(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide, small = built / "wide", built / "small"
    code, out, err = run(capsys, wide, small)
    assert code == 0 and out.startswith("### wide → small") and not err
    share = 100 * compare_sides(*file_sides(wide, small)).slower
    assert run(capsys, wide, small, "--fail-if-slower", f"{share + 0.01}%")[0] == 0
    code, out, err = run(capsys, wide, small, "--fail-if-slower", f"{share - 0.01}%")
    assert code == 1 and out.startswith("### wide") and re.search(r"small is [\d.]+ % slower than wide", err)
    assert run(capsys, small, wide, "--fail-if-slower", "0%")[0] == 0
    assert run(capsys, wide, wide, "--fail-if-slower", "0")[0] == 0


def test_bad_input_is_exit_code_2(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = built / "wide"
    (tmp_path / "broken.yaml").write_text("graphs: [")
    (tmp_path / "empty").mkdir()
    for other in ("missing.yaml", "broken.yaml", "empty", "x" * 5_000):
        code, out, err = run(capsys, wide, tmp_path / other)
        assert code == 2 and out == "" and other in err and err.startswith("tbuda: ")
    assert run(capsys, "a", "b", "--session", wide)[0] == 2
    for share in ("-1%", "much", "nan", "inf%"):
        with pytest.raises(SystemExit) as refused:
            main(["diff", str(wide), str(wide), f"--fail-if-slower={share}"])
        assert refused.value.code == 2


def test_checkpoints_of_a_session_file(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "edits.buda.json"
    session = Session(*perceptron(), "e300", journal=journal)
    session.checkpoint("A")
    session.apply(ResizeOp(OP, (1, 1)))
    session.checkpoint("B")
    before = json.loads(journal.read_text())
    model = ["--session", str(journal), "--model", f"{built / 'model.py'}:make"]
    code, out, _ = run(capsys, "A", "B", *model)
    assert code == 0 and "### A → B" in out and OP in out
    assert run(capsys, "start", "now", *model)[1] == out.replace("### A → B", "### start → now")
    code, _, err = run(capsys, "A", "C", *model)
    assert code == 2 and "A, B, start, previous, now" in err
    assert json.loads(journal.read_text()) == before, "the file is only read"


def test_previous_is_the_step_before(session: Session) -> None:
    assert session.diff("previous").changes == () == session.diff("start").changes
    session.apply(ResizeOp(OP, (1, 1)))
    try:
        resized = {c.op: c for c in session.diff("previous").resized}  # others of its epoch may give up idle cores
        assert resized[OP].after.grid == (1, 1) and tuple(resized.values()) == session.diff("start").resized
    finally:
        session.undo()


def test_sides_of_a_session_are_compared_by_the_simulated_time(session: Session) -> None:
    """What every view calls the time of the model is what a comparison counts, and its epochs."""
    diff = session.diff("start", "now")
    assert diff.has_simulated_time and diff.time[1] == session.time().per_input
    assert [e.time for e in diff.after.epochs] == [e.cycles / diff.after.batch for e in session.time().epochs]
    assert f"| cycles per input, simulated | {diff.time[0]:,.0f} |" in diff.to_markdown()
