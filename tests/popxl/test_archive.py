"""Files of compiled programs: what is read gives the same bits as what was written; what lies is refused."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.core.errors import InputError
from tbuda_lab.popxl import archive, ops
from tests.tti.models import write_tar

Inputs = dict[Any, np.ndarray]


def training() -> tuple[popxl.Ir, Inputs]:
    """A step with labels, which the host encodes, and an update."""
    rng = np.random.default_rng(0)
    ir = popxl.Ir()
    ir.num_host_transfers = 2
    with ir.main_graph, popxl.in_sequence():
        images, labels = popxl.h2d_stream((4, 6), popxl.float32, name="images"), popxl.h2d_stream((4,), popxl.int32)
        w = popxl.variable(rng.standard_normal((6, 3)).astype(np.float32), name="w")

        def step(w: popxl.TensorByRef) -> None:
            x = ops.host_load(images)
            probs = ops.softmax(x @ w, -1)
            loss, slope = ops.nll_loss_with_softmax_grad(probs, ops.host_load(labels))
            ops.host_store(losses, loss)
            ops.scaled_add_(w, ops.transpose(x) @ slope, b=-0.1)

        losses = popxl.d2h_stream((), popxl.float32, name="losses")
        ops.repeat(ir.create_graph(step, w), 2, w)
    data = rng.standard_normal((2, 4, 6)).astype(np.float32)
    return ir, {images: data, labels: rng.integers(0, 3, (2, 4)).astype(np.int32)}


def sharded() -> tuple[popxl.Ir, Inputs]:
    """Replicas in groups, a sharded variable, one in a remote buffer, and a conditional that only some take."""
    ir = popxl.Ir(replication=4)
    group = ir.replica_grouping(stride=2, group_size=2)
    with ir.main_graph, popxl.in_sequence():
        data = np.arange(14, dtype=np.float32).reshape(2, 7)
        _, shard = popxl.replica_sharded_variable(data, name="sharded", replica_grouping=group)
        ops.add_(shard, popxl.constant(0.5))
        whole = ops.collectives.replicated_all_gather(shard, group=group)
        buffer = popxl.remote_buffer((7,), popxl.float32, 3)
        popxl.remote_variable(np.ones(7, np.float32), buffer, 2, name="far")
        ops.remote_store(buffer, 2, ops.remote_load(buffer, 2) + whole)
        condition = popxl.variable(np.array([True, False]), replica_grouping=group, name="condition")
        printed = ir.create_graph(lambda x: ops.fmod(x, popxl.constant(3.0)), whole)
        (y,) = ops.conditional(condition, printed, ir.create_graph(lambda x: x * 2.0, whole), [whole], [whole])
        ops.host_store(popxl.d2h_stream(y.shape, y.dtype, name="y"), y)
    return ir, {}


def host_alone() -> tuple[popxl.Ir, Inputs]:
    """Nothing of it is the grid's: 8-bit floats and integers of 64 bits."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        small = popxl.variable(np.float32([1, -2, 240]), popxl.float8_143, name="small")
        wide = popxl.variable(np.array([2**40, -5]), popxl.int64, name="wide", downcast=False)
        ops.add_(wide, wide)
        x = ops.cast_then_pow2scale(small, popxl.constant(1, popxl.int32), popxl.float16)
        ops.host_store(popxl.d2h_stream(x.shape, x.dtype, name="x"), x)
    return ir, {}


@pytest.mark.parametrize("program", [training, sharded, host_alone])
def test_a_program_that_is_read_gives_the_same_bits(
    program: Callable[[], tuple[popxl.Ir, Inputs]], tmp_path: Path
) -> None:
    ir, inputs = program()
    session = popxl.Session(ir, "ipu_model")
    session.save(tmp_path / "first.popxl")
    given = {stream.tensor_id: value for stream, value in inputs.items()}
    with session:
        runs = [session.run(inputs) for _ in range(2)]
    session.save(tmp_path / "second.popxl")
    opened = popxl.open_program(tmp_path / "first.popxl")
    for run in runs:
        got = opened.run(given)
        assert {s.tensor_id for s in run} == set(got)
        assert all(got[s.tensor_id].tobytes() == value.tobytes() for s, value in run.items())
    variables = opened.variables()
    for v in ir.main_graph.variables:
        assert variables[v.id].tobytes() == session.get_tensor_data(v).tobytes()
    later = popxl.open_program(tmp_path / "second.popxl")  # with what the runs have left
    assert all(later.variables()[name].tobytes() == value.tobytes() for name, value in variables.items())
    for wrong in ({"nobody": np.zeros(2)}, {name: value[..., :1] for name, value in given.items()}):
        if wrong:
            with pytest.raises(InputError, match="takes"):
                opened.run(wrong)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("popxl") / "x.popxl"
    popxl.Session(sharded()[0], "ipu_model").save(path)
    with tarfile.open(path) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def saved(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record["saved"].update(fields)


def first(what: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
    """Of the first slot, variable, buffer or stream."""
    return lambda r: (r["saved"][what] if what == "slots" else r["saved"]["interface"][what])[0].update(fields)


LIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another version": (saved(version=2), "version 2"),
    "a mode that there is not": (saved(mode="magic"), "mode 'magic'"),
    "more than it has": (saved(more=1), "no field 'more'"),
    "a type that there is not": (first("slots", dtype="int128"), "int128"),
    "a huge slot": (first("slots", shape=[1 << 20, 1 << 20]), "would take"),
    "a slot below nothing": (first("slots", shape=[-1]), "below 0"),
    "a ram that there is not": (first("slots", rams=["nobody"]), "ram 'nobody'"),
    "data that are not there": (first("slots", initial="nobody.npy"), "'nobody.npy' that it names is not there"),
    "a huge buffer": (first("buffers", entries=1 << 40), "would take"),
    "a huge stream": (first("streams", shape=[1 << 40]), "would take"),
    "replicas without end": (lambda r: r["saved"]["interface"].update(replicas=1 << 20), "replicas"),
    "no transfers": (lambda r: r["saved"]["interface"].update(transfers=0), "0 transfers"),
    "groups of other replicas": (first("variables", assignment=[0, 0, 1]), "none of 4 replicas"),
    "groups that are unequal": (first("variables", assignment=[0, 0, 0, 1]), "none of 4 replicas"),
    "an entry that there is not": (first("variables", remote=[1, 99]), "no entry of a remote buffer"),
    "data of nobody": (saved(data=[["nobody", "array0.npy"]]), "'nobody', which is no variable"),
    "steps that are none": (lambda r: r["steps"].update(main=[{"step": "call"}]), "is one of push"),
    "a kind of the host's that there is not": (
        lambda r: r["steps"].update(
            main=[{"step": "host_op", "kind": "os.system", "ins": [], "outs": [], "attrs": "{}"}]
        ),
        "cannot calculate os.system",
    ),
    **{
        f"{what} beyond what its slots hold": (
            lambda r, kind=kind, attrs=attrs: r["steps"].update(
                main=[{"step": "host_op", "kind": kind, "ins": [], "outs": [], "attrs": attrs}]
            ),
            text,
        )
        for what, kind, attrs, text in (
            ("a shape", "RandomNormal", '{"shape": [65536, 65536]}', r"RandomNormal has shape \[65536, 65536\]"),
            ("rows", "OneHotRows", '{"size": 1e12}', "OneHotRows has size"),
            ("numbers inside numbers", "MaskWords", '{"shape": [[[99999], 2]]}', "MaskWords has shape"),
            ("a form of another op", "Resize", '{"of": {"scales": [NaN]}}', "Resize|not JSON|NaN"),
        )
    },
    "attributes that are no map": (
        lambda r: r["steps"].update(main=[{"step": "host_op", "kind": "Abs", "ins": [], "outs": [], "attrs": "[1]"}]),
        "attributes of Abs are a map",
    ),
    "no weights_out": (lambda r: r["steps"].pop("weights_out"), "weights_in, main, weights_out"),
    "no record": (lambda r: r.clear(), "saved, steps and program"),
}


@pytest.mark.parametrize("what", LIES)
def test_a_file_that_lies_is_refused(what: str, files: dict[str, bytes], tmp_path: Path) -> None:
    edit, text = LIES[what]
    record = json.loads(files[archive.MEMBER])
    edit(record)
    path = write_tar(tmp_path / "x.popxl", {**files, archive.MEMBER: json.dumps(record).encode()})
    with pytest.raises(InputError, match=rf"x\.popxl is not a PopXL program: .*{text}"):
        popxl.open_program(path)
