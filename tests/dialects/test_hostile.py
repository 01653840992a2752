"""PEFs that lie: refused by a typed error that names the file, before anything large is made or run."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.dialects import program
from tbuda_lab.dialects.program import HostProgramRun, read_programs
from tbuda_lab.samba.pef import read_pef
from tests.fuzz.compiled import pef
from tests.tti.models import write_tar

Graph = dict[str, Any]
RECORD, TEXT = program.MEMBER, "unzipped_tti/net.graph"


def written(folder: Path, edit: Callable[[Graph], Any], text: tuple[str, str] = ("", "")) -> Path:
    """The good PEF with its only graph edited, and a piece of the graph's text replaced."""
    files = dict(pef())
    record = json.loads(files[RECORD])
    edit(record["graphs"][0])
    files[RECORD] = json.dumps(record).encode()
    if text[0]:
        assert text[0] in files[TEXT].decode()
        files[TEXT] = files[TEXT].decode().replace(*text).encode()
    return write_tar(folder / "x.pef", files)


def step(word: str, **fields: Any) -> Callable[[Graph], Any]:
    return lambda graph: graph.update(host_program=[{"section": "fwd", "step": word, **fields}])


def trained(**fields: Any) -> Callable[[Graph], Any]:
    return lambda graph: graph["program"]["training"].update(fields)


INF = float("inf")
PUSH = {"step": "push", "tensor": "x"}
LIES: dict[str, Callable[[Graph], Any]] = {
    "turns without end": step("loop", count=INF, body=[PUSH]),
    "turns that take for ever": step("loop", count=10**15, body=[PUSH]),
    "turns below nothing": step("loop", count=-5, body=[PUSH]),
    "loops in loops": step("loop", count=2, body=[{"step": "loop", "count": 2, "body": [PUSH]}]),
    "a body that is none": step("loop", count=2, body=3),
    "a number that is none": step("run", program="p", params={"a": INF}),
    "a name that is none": step("push", tensor=["x"]),
    "names that are none": step("collective", tensors="x"),
    "losses that are none": lambda graph: graph["program"].update(losses=[INF]),
    "a norm that is none": trained(max_grad_norm=float("nan")),
    "a huge norm": trained(max_grad_norm=int("9" * 400)),
    "an optimizer that is none": trained(per_weight=[["layer.weight", "magic", [["learning_rate", 0.1]], []]]),
    "an optimizer without its numbers": trained(per_weight=[["layer.weight", "sgd", [["momentum", 0.1]], []]]),
    "a huge batch": lambda graph: graph["program"]["options"].update(microbatch=10**9),
}


@pytest.mark.parametrize("what", LIES)
def test_a_record_that_lies_is_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.pef is not a PEF"):
        read_programs(written(tmp_path, LIES[what]))


@pytest.mark.parametrize("fields", [{"spatial_batches": INF}, {"name": ["x"]}, {"host_program": [3]}, {"inputs": 1}])
def test_what_a_trace_reads_is_refused_too(fields: Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.pef: .*samba\.json is not the record of a PEF"):
        read_pef(written(tmp_path, lambda graph: graph.update(fields)))


@pytest.mark.parametrize("word", ["push", "pop", "store"])
def test_names_that_the_graph_does_not_have_stop_the_run(word: str, tmp_path: Path) -> None:
    region = {"region": "r"} if word == "store" else {}
    program = read_programs(written(tmp_path, step(word, tensor="nobody", **region)))[0]
    with pytest.raises(InputError, match="'nobody'"):
        HostProgramRun(program, program.session().compile()).step()


def test_weights_are_not_made_up_without_end(tmp_path: Path) -> None:
    """A line of text asks for 20 GB of values."""
    more = "  offset = parameter", "  z = parameter : (50000, 50000) = float32 #0\n  offset = parameter"
    with pytest.raises(InputError, match=r"random values of 'z' of shape 50000x50000 would take 18\.6 GiB"):
        read_programs(written(tmp_path, lambda graph: None, more))


def test_one_file_is_not_read_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs may name the same file, which is not read once for each of thousands."""
    monkeypatch.setattr(program, "REREAD", 1 << 16)
    path = written(tmp_path, lambda graph: None)
    assert len(read_programs(path)) == 1 + ("other_mapping" in json.loads(pef()[RECORD])["graphs"][0])
    files = dict(pef())
    record = json.loads(files[RECORD])
    record["graphs"] *= 200
    files[RECORD] = json.dumps(copy.deepcopy(record)).encode()
    monkeypatch.setattr(program, "REREAD", -2 * len(files[RECORD]) + (1 << 16))
    with pytest.raises(InputError, match="once more would take"):
        read_programs(write_tar(tmp_path / "x.pef", files))
