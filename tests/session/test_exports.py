"""What a session writes: read back by somebody else, and said in three ways that agree."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path

import pytest

import tbuda_lab.widgets
import tbuda_lab.widgets.handlers.exports  # adds report and image
from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.session import EXPORTS, ResizeOp, Session
from tbuda_lab.core.tti import image_size


def _resized(session: Session) -> str:
    op = next(name for name in session.compile().placement.ops if session.legal(name).legal[1:])
    size = next(s for s in session.legal(op).legal if s != session.legal(op).grid)
    session.apply(ResizeOp(op, size))
    return op


def test_the_netlist_on_disk_is_the_netlist(mlp: Session, tmp_path: Path) -> None:
    path = mlp.export_netlist(tmp_path / "a.netlist.yaml", validate=True)
    assert netlist.dumps(netlist.load(path)) == netlist.dumps(mlp.compile().netlist) == path.read_text()
    with (tmp_path / "a.netlist.cycles.csv").open() as file:
        assert {row["op"] for row in csv.DictReader(file)} == set(mlp.compile().placement.ops)
    mlp.export_netlist(tmp_path / "b.yaml", cycles=False)
    assert not (tmp_path / "b.cycles.csv").exists()


def test_the_table_has_every_op_and_tells_which_was_asked_for(mlp: Session, tmp_path: Path) -> None:
    op = _resized(mlp)
    with mlp.export_table(tmp_path / "ops.csv").open() as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    placement = mlp.compile().placement
    assert list(rows) == list(placement.schedule)
    assert placement.report is not None
    for name, row in rows.items():
        spot = placement.ops[name]
        assert (int(row["epoch"]), int(row["row"]), int(row["col"])) == (spot.epoch, *spot.start)
        kernel, limiter, what = placement.report.op_limiters[name]
        assert (int(row["cycles"]), int(row["limiter_cycles"]), row["limiter"]) == (kernel, limiter, what)
        assert row["overrides"] == ("op_size" if name == op else "")


def test_parquet_has_the_columns_of_the_csv(mlp: Session, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    result = parquet.read_table(mlp.export_table(tmp_path / "ops.parquet"))
    with mlp.export_table(tmp_path / "ops.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert result.column_names == list(rows[0])
    assert [{k: str(v) for k, v in row.items()} for row in result.select(["name", "epoch", "type"]).to_pylist()] == [
        {k: row[k] for k in ("name", "epoch", "type")} for row in rows
    ]


def test_parquet_without_pyarrow_says_what_to_install(
    mlp: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OutputError, match=r"tbuda_lab\[parquet\]"):
        mlp.export_table(tmp_path / "ops.parquet")
    assert not list(tmp_path.iterdir())


def test_overrides_as_json_and_as_python(mlp: Session, tmp_path: Path) -> None:
    op = _resized(mlp)
    path = mlp.export_overrides(tmp_path / "o.py", form="both")
    assert "pybuda.config.override_op_size(" in path.read_text() and op in path.read_text()
    compile(path.read_text(), "o.py", "exec")
    records = json.loads((tmp_path / "o.json").read_text())["overrides"]
    assert records == [{"kind": "op_size", "target": op, "value": list(mlp.overrides[0].value)}]


def test_the_trace_is_chrome_json(mlp: Session, tmp_path: Path) -> None:
    events = json.loads(mlp.export_trace(tmp_path / "t.json", batch=2).read_text())["traceEvents"]
    ran = {(e["args"]["op"], e["args"]["input"]) for e in events if e.get("cat") == "op"}
    assert ran == {(op, i) for op in mlp.compile().placement.ops for i in range(2)}


def test_pictures(mlp: Session, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    for view in ("grid", "graph"):
        path = tbuda_lab.widgets.export_image(mlp, tmp_path / f"{view}.svg", view=view)
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    with pytest.raises(InputError, match="there are 0 to"):
        mlp.export("image", tmp_path / "no.svg", epoch=99).write()


@pytest.mark.parametrize("what", ["netlist", "overrides", "table", "trace", "image", "tti"])
def test_the_python_line_does_the_same(mlp: Session, tmp_path: Path, what: str) -> None:
    mlp.export(what, tmp_path / "a").write()
    line = mlp.export(what, tmp_path / "b").python
    eval(line, {"session": mlp, "tbuda_lab": tbuda_lab})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_command_line_says_where_the_model_and_the_edits_are(mlp: Session, tmp_path: Path) -> None:
    plain = mlp.export("trace", "t.json", batch=3)
    assert shlex.split(plain.cli)[:4] == ["tbuda", "export", "trace", "MODEL.py:FUNCTION"]
    assert "--device e300" in plain.cli and plain.cli.endswith("--out t.json --batch 3") and "MODEL.py" in plain.note
    mlp.source = ("m.py:make", "--device", "e300")
    assert mlp.export("netlist", "n.yaml", cycles=False).cli == (
        "tbuda export netlist m.py:make --device e300 --out n.yaml --no-cycles"
    )
    _resized(mlp)
    assert "--edits SESSION.buda.json" in mlp.export("table", "t.csv").cli
    assert "session.save" in mlp.export("table", "t.csv").note
    mlp.save(tmp_path / "s.buda.json")
    after = mlp.export("table", "t.csv")
    assert f"m.py:make --edits {tmp_path / 's.buda.json'}" in after.cli and not after.note


def test_what_does_not_fit_is_refused_before_anything_is_written(mlp: Session, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are: netlist"):
        mlp.export("elf")
    with pytest.raises(InputError, match="no setting 'form'; it has: cycles, validate"):
        mlp.export("netlist", form="json")
    with pytest.raises(InputError, match="python, json, both"):
        mlp.export("overrides", form="yaml")
    with pytest.raises(InputError, match="a whole number"):
        mlp.export("trace", batch=True)
    with pytest.raises(OutputError):
        mlp.export_table(tmp_path / "none" / "t.csv")
    assert not list(tmp_path.iterdir())


def test_every_kind_has_a_command_with_the_same_settings() -> None:
    from tbuda_lab.cli.app import build_parser

    parser = build_parser()
    for kind in EXPORTS.values():
        words = ["export", kind.name, "m.py:f"]
        settings = vars(parser.parse_args(words))
        expected = {s.name: None if s.only else s.default for s in kind.settings}  # None: not given, so not refused
        assert {s.name: settings[s.name] for s in kind.settings} == expected
        for setting in kind.settings:
            if isinstance(setting.default, bool):
                flag = "--" + ("no-" if setting.default else "") + setting.name
                assert vars(parser.parse_args([*words, flag]))[setting.name] is not setting.default


def test_an_image_is_said_in_three_ways(mlp: Session, tmp_path: Path) -> None:
    mlp.compile()
    plan = mlp.export("tti", tmp_path / "a.tti", weights=False, dump_format="backend", name="other")
    assert plan.cli.endswith("--name other --no-weights --dump-format backend")
    assert plan.python.endswith("name='other', weights=False, dump_format='backend')")
    assert "e300" in plan.preview and "without weights" in plan.preview
    for weights in (True, False):
        path = mlp.export_tti(tmp_path / "b.tti", weights=weights)
        assert abs(image_size(mlp.compile(), weights=weights) / path.stat().st_size - 1) < 0.25
    with pytest.raises(InputError, match="one of default, backend"):
        mlp.export("tti", tmp_path / "c.tti", dump_format="pickle")
    with pytest.raises(InputError, match="holds its model"):
        Session.open(tmp_path / "b.tti", mlp.model, mlp.sample_inputs)
