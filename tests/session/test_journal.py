"""Session files: replay, lines that merge, and files from elsewhere that try things."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core import netlist
from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.formats import FIDELITIES, DataFormat
from tbuda_lab.core.overrides import FIRST, Each, Override
from tbuda_lab.core.session import (
    ChipBreak,
    ClearOp,
    EpochBreak,
    Optimise,
    PlaceOp,
    QueueChannel,
    ResizeOp,
    Session,
    SetOptions,
    SetOverride,
    SetUkt,
    StreamOp,
    journal,
)
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import JournalFile, command_data, command_of, parse_journal, read_journal
from tests.session.test_edits import matmuls


def test_a_session_comes_back_after_a_restart(bert, tmp_path):
    path = tmp_path / "a.buda.json"
    ops = matmuls(bert)
    bert.save(path)
    bert.apply(ResizeOp(ops[0], (1, 1)), source="drag")
    bert.apply(EpochBreak(ops[3]))
    bert.checkpoint("mine")
    with bert.transaction("two at once"):
        bert.apply(ResizeOp(ops[1], (1, 1)))
        bert.apply(SetUkt(ops[1], 1))
    bert.undo()
    bert.redo()
    bert.apply(ClearOp(ops[0]))
    bert.undo()
    again = Session.open(path, bert.model, bert.sample_inputs)
    assert again.overrides == bert.overrides or [(o.kind, o.target, o.value) for o in again.overrides] == [
        (o.kind, o.target, o.value) for o in bert.overrides
    ]
    assert [s.label for s in again.history] == [s.label for s in bert.history]
    assert [s.source for s in again.history] == ["drag", "code", "code"]
    assert [s.label for s in again.future] == [s.label for s in bert.future]
    assert again.checkpoints == ("mine",)
    assert netlist.dumps(again.compile().netlist) == netlist.dumps(bert.compile().netlist)
    again.redo()
    assert len(again.overrides) == len(bert.overrides) - 1
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_call_again_goes_on_where_the_journal_is(mlp, tmp_path):
    path = tmp_path / "edits.buda.json"
    op, other = matmuls(mlp)[:2]
    first = Session(mlp.model, mlp.sample_inputs, "n150", journal=path)
    first.apply(ResizeOp(op, (1, 1)), source="drag")
    first.checkpoint("A")
    again = Session(mlp.model, mlp.sample_inputs, "n150", journal=path)
    assert again.overrides == first.overrides and again.checkpoints == ("A",)
    again.apply(EpochBreak(other))
    assert [o.kind for o in Session.open(path, mlp.model, mlp.sample_inputs).overrides] == ["op_size", "epoch_break"]
    again.undo()
    assert again.undo() and again.overrides == ()
    path.write_text("not a journal")
    with pytest.raises(InputError):
        Session(mlp.model, mlp.sample_inputs, "n150", journal=path)
    assert path.read_text() == "not a journal"


def test_one_command_a_line_with_sorted_keys(mlp, tmp_path):
    path = mlp.save(tmp_path / "a.buda.json")
    lines = [path.read_text().splitlines()]
    for op in matmuls(mlp):
        mlp.apply(ResizeOp(op, (1, 1)))
        lines.append(path.read_text().splitlines())
    json.loads(path.read_text())
    for earlier, later in itertools.pairwise(lines):
        new = [x for x in later if x not in earlier]
        assert len(new) == 1 and '"resize"' in new[0]
    record = json.loads(next(x for x in lines[-1] if '"resize"' in x).strip(" ,"))
    assert list(record) == sorted(record) == ["do", "op", "size"]


@pytest.mark.parametrize("before", [0, 1])
def test_two_branches_merge_by_keeping_the_lines_of_both(traced, tmp_path, before):
    """git's own merge is the judge; `before`: commands there were when the branches parted."""
    graph, inputs = traced["mlp"]
    ops = [node.name for node in Session(graph, inputs, "e300").graph("lowered").ops]

    def edited(name: str, *edits) -> Session:
        path = tmp_path / name
        path.write_text((tmp_path / "base").read_text())
        session = Session.open(path, graph, inputs)
        session.apply(*edits)
        return session

    base = Session(graph, inputs, "e300")
    base.save(tmp_path / "base")
    if before:
        base.apply(EpochBreak(ops[1]))
    ours = edited("ours", ResizeOp(ops[0], (1, 1)))
    theirs = edited("theirs", ResizeOp(ops[2], (1, 1)), SetUkt(ops[0], 1))
    files = [str(tmp_path / n) for n in ("ours", "base", "theirs")]
    done = subprocess.run(["git", "merge-file", "--union", "-p", *files], capture_output=True, check=True)
    (tmp_path / "merged").write_bytes(done.stdout)
    merged = Session.open(tmp_path / "merged", graph, inputs)
    message = [s.label for s in (*base.history, *ours.history[before:], *theirs.history[before:])]
    assert [s.label for s in merged.history] == message and len(message) == before + 2
    merged.apply(EpochBreak(ops[2]))
    json.loads((tmp_path / "merged").read_text())  # written again it is plain JSON
    conflict = subprocess.run(["git", "merge-file", "-p", *files], capture_output=True)
    if conflict.returncode:
        (tmp_path / "conflict").write_bytes(conflict.stdout)
        with pytest.raises(InputError, match="merge"):
            Session.open(tmp_path / "conflict", graph, inputs)


def test_checkpoints_come_back_with_their_states(bert, tmp_path):
    """After a kernel restart: every checkpoint compiles to what it was, wherever undo and redo went meanwhile."""
    path = bert.save(tmp_path / "a.buda.json")
    ops = matmuls(bert)
    bert.apply(ResizeOp(ops[0], (1, 1)))
    bert.checkpoint("A")
    bert.apply(EpochBreak(ops[2]))
    bert.checkpoint("B")
    bert.undo()
    bert.undo()
    bert.apply(ResizeOp(ops[1], (1, 1)))
    again = Session.open(path, bert.model, bert.sample_inputs)
    assert again.checkpoints == ("A", "B") and not again.future
    for a, b in (("A", "B"), ("A", "now"), ("B", "now")):
        assert again.diff(a, b) == bert.diff(a, b)
    assert bert.diff("A", "B").changes


def test_predicates_are_journaled_by_the_names_they_match(mlp, tmp_path):
    path = mlp.save(tmp_path / "a.buda.json")
    mlp.apply(Override("epoch_break", re.compile(re.escape(matmuls(mlp)[1]))))
    again = Session.open(path, mlp.model, mlp.sample_inputs)
    assert again.overrides[0].target == Each((matmuls(mlp)[1],))


def last_two(session: Session) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, matmuls(session)[-2:])))


ASKED = {
    "a break before each": lambda s: Override("epoch_break", last_two(s)),
    "a break before the first": lambda s: Override("epoch_break", last_two(s), FIRST),
    "a format that one op cannot have": lambda s: Override("data_format", lambda name: "matmul" in name, "Bfp8_b"),
    "a channel": lambda s: Override("queue_channel", re.compile(r".*matmul\.weight.*|.*weight"), {"channel": 1}),
    "nothing": lambda s: Override("epoch_break", lambda name: False),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_a_pattern_asks_for_is_the_same_after_a_restart(mlp, tmp_path, what):
    """By the names it matched, each for itself: in the session file, in exported overrides, and after further edits."""
    mlp.apply(ASKED[what](mlp))
    expected = netlist.dumps(mlp.compile().netlist)
    mlp.export_overrides(tmp_path / "o.json", form="json")
    path = mlp.save(tmp_path / "a.buda.json")
    again = Session.open(path, mlp.model, mlp.sample_inputs)
    assert netlist.dumps(again.compile().netlist) == expected
    again.checkpoint("later")
    again.apply(ResizeOp(matmuls(again)[0], (1, 1)))
    third = Session.open(path, mlp.model, mlp.sample_inputs)
    assert third.overrides[0] == again.overrides[0]
    third.undo()
    assert netlist.dumps(third.compile().netlist) == expected
    other = Session(mlp.model, mlp.sample_inputs, "e300", name="mlp")
    other.load_overrides(tmp_path / "o.json")
    assert netlist.dumps(other.compile().netlist) == expected
    with pytest.raises(InputError, match="a string or a Path, not NoneType"):
        other.load_overrides(None)


def test_patterns_that_were_there_before_the_file_are_in_it(mlp, tmp_path):
    """Those a session was opened with, and those that are undone while it is saved."""
    graph, inputs = mlp.model, mlp.sample_inputs
    one, two = matmuls(mlp)[-2:]
    overrides = (Override("epoch_break", re.compile(re.escape(one))),)
    path = tmp_path / "a.buda.json"
    session = Session(graph, inputs, "e300", overrides=overrides, name="mlp", journal=path)
    session.apply(ResizeOp(two, (1, 1)))
    assert Session.open(path, graph, inputs).overrides[0].target == Each((one,))
    saved = Session(graph, inputs, "e300", name="mlp")
    saved.apply(Override("epoch_break", lambda name: name == two))
    saved.undo()
    again = Session.open(saved.save(tmp_path / "b.buda.json"), graph, inputs)
    again.redo()
    assert again.overrides[0].target == Each((two,))


def test_queues_between_epochs_are_known_when_the_file_is_written(mlp, tmp_path):
    graph, inputs, first = mlp.model, mlp.sample_inputs, matmuls(mlp)[1]
    session = Session(graph, inputs, "e300", overrides=[Override("epoch_break", first)], name="mlp")
    session.apply(Override("queue_channel", re.compile("e2e_.*"), {"channel": 3}))
    path = session.save(tmp_path / "a.buda.json")
    expected = netlist.dumps(session.compile().netlist)
    names = [q.name for q in session.compile().placement.queues.values() if q.name.startswith("e2e_")]
    again = Session.open(path, graph, inputs)
    assert names and again.overrides[-1].target == Each(tuple(names))
    assert netlist.dumps(again.compile().netlist) == expected


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
small = st.integers(0, 9)
pairs = st.tuples(st.integers(1, 9), st.integers(1, 9))
commands = st.one_of(
    st.builds(ResizeOp, names, pairs),
    st.builds(PlaceOp, names, st.tuples(small, small), st.none() | st.booleans(), st.none() | small),
    st.builds(EpochBreak, names, st.booleans()),
    st.builds(ChipBreak, names, st.booleans()),
    st.builds(StreamOp, names, st.sampled_from(["n", "r", "c"]), st.none() | pairs),
    st.builds(SetUkt, names, st.integers(1, 99)),
    st.builds(QueueChannel, names, small, st.none() | small),
    st.builds(ClearOp, names, st.sampled_from([(), ("op_size",), ("u_kt", "op_placement")])),
    st.just(Optimise()),
    st.builds(
        SetOptions,
        seed=small,
        balancer_policy=names,
        default_df_override=st.sampled_from(DataFormat),
        default_math_fidelity=st.sampled_from(FIDELITIES),
        target_cycles=st.none() | small,
    ),
    st.builds(
        SetOverride,
        st.builds(
            Override,
            st.just("input_buffer_multiplier"),
            names,
            st.dictionaries(small, st.integers(1, 9)),
            st.just("file"),
        ),
    ),
    st.builds(SetOverride, st.builds(Override, st.just("op_size"), st.lists(names).map(tuple), pairs, st.just("file"))),
    st.builds(
        SetOverride,
        st.builds(Override, st.just("op_size"), st.lists(names).map(tuple).map(Each), pairs, st.just("file")),
    ),
)


@given(commands)
def test_commands_survive_the_file(command):
    data = json.loads(json.dumps(command_data(command, lambda o: ())))
    assert command_of(data.pop("do"), data) == command


HEAD = '"format": "tbuda-session 1", "device": "n150"'


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ('{"do": "resize", "op": "a", "size": [1, 1]},\n{"do": "import os"}', 3, "unknown command"),
        ('{"do": "resize", "op": "a"}', 2, "lacks size"),
        ('{"do": "resize", "op": "a", "size": [1, 1], "eval": "1"}', 2, "no field 'eval'"),
        ('{"do": "resize", "op": ["a"], "size": [1, 1]}', 2, "resize.op is text"),
        ('{"do": "resize", "op": "a", "size": [0, 1]}', 2, "size"),
        ('{"do": "override", "kind": "shell", "target": "a", "value": 1}', 2, "unknown override"),
        ('{"do": "options", "set": {"seed": "x"}}', 2, "seed"),
        ('{"do": "options", "set": {"default_df_override": "__class__"}}', 2, "default_df_override"),
        ('{"do": "restore"}', 2, "unknown command"),
        ('{"do": "break", "op": "a", "op": "b"}', 2, "'op' occurs twice"),
        ('{"do": "break", "op": "a", "by": {"name": "x"}}', 2, "by is not text"),
        ('{"do": "begin", "label": ["x"]}', 2, "label is not text"),
        ('{"do": "undo", "steps": 3}', 2, "no field 'steps'"),
        ('{"do": "begin"}', 2, "begin"),
        ('{"do": "end"}', 2, "end"),
        ("<<<<<<< HEAD", 2, "not JSON"),
        ("[" * 100_000, 2, ""),
        ("3", 2, "not a command"),
    ],
)
def test_errors_name_the_line(body, line, says):
    with pytest.raises(InputError) as refused:
        parse_journal(f'{{{HEAD}, "commands": [\n{body}\n]}}', "x.buda.json")
    assert f"x.buda.json:{line}:" in str(refused.value) and says in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "tbuda-session 2", "device": "n150"}',
        '{"format": "tbuda-session 1"}',
        '{"format": "tbuda-session 1", "device": "../../etc/device.yaml"}',
        f"{{{HEAD}}} trailing",
        f'{{{HEAD}, "name": 3}}',
        f'{{{HEAD}, "optoins": {{"microbatch": 2}}}}',
        f'{{{HEAD}, "options": {{"microbatch": 2, "microbatch": 3}}}}',
        f'{{{HEAD}, "options": {{"nope": 1}}}}',
        f'{{{HEAD}, "overrides": [{{"kind": "op_size"}}]}}',
        f'{{{HEAD}, "harvested_rows": ["a"]}}',
    ],
)
def test_files_that_are_none(text):
    with pytest.raises(InputError):
        parse_journal(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    for candidate in (text, f'{{{HEAD}, "commands": [{text}]}}'):
        try:
            file = parse_journal(candidate)
        except TbudaError:
            continue
        assert isinstance(file, JournalFile)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError):
        read_journal(tmp_path / "none.buda.json")
    (tmp_path / "b.buda.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_journal(tmp_path / "b.buda.json")


def test_a_file_of_many_commands_is_read_once_and_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are not counted anew for each command: the text is searched for its line ends once."""
    head = (
        '{"format": "tbuda-session 1", "device": "n150", "harvested_rows": null, "name": "x", "options": {}, '
        '"overrides": [], "commands": [\n'
    )
    lines = [json.dumps({"do": "resize", "op": f"op{i}", "size": [1, 1]}) for i in range(300)]

    class Counted(str):
        counts = 0

        def count(self, *args: Any) -> int:
            Counted.counts += 1
            return super().count(*args)

    text = Counted(head + ",\n".join(lines) + "\n]}\n")
    assert len(journal.parse_journal(text).actions) == 300
    assert Counted.counts == 0
    broken = head + ",\n".join([*lines, "{]"]) + "\n]}\n"
    with pytest.raises(InputError, match="session:302"):
        journal.parse_journal(broken)
    monkeypatch.setattr(journal, "MAX_COMMANDS", 299)
    with pytest.raises(InputError, match="more than 299 commands"):
        journal.parse_journal(text)


def test_steps_that_would_hold_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step keeps its states: a hundred steps on one op hold a hundred overrides, on a hundred ops 5,050."""

    def replayed(ops: int) -> int:
        lines = [{"do": "resize", "op": f"op{i % ops}", "size": [1, 1]} for i in range(100)]
        text = json.dumps({"format": "tbuda-session 1", "device": "n150", "commands": lines})
        file = journal.parse_journal(text)
        return len(journal.replay(History(Request(file.header.options)), file.actions))

    monkeypatch.setattr(journal, "MAX_HELD", 1000)
    assert replayed(1) == replayed(10) == 100
    with pytest.raises(InputError, match=r"step 45 of 100: .* more than 1,000 overrides, 45 of them"):
        replayed(100)
