"""A dialect's program in the workbench: a PEF, a traced model, an Ir; its graphs, sections and replicas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tbuda_lab import popxl, samba
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.dialects.program import read_programs, schedules, sections_of
from tbuda_lab.popxl import ops
from tbuda_lab.samba import utils
from tbuda_lab.widgets import BringUp, ProgramView
from tests.widgets.test_labcomm import Pipe


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.loss = torch.nn.Linear(32, 32), torch.nn.MSELoss()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.layer(x), y)


def sample() -> list[samba.SambaTensor]:
    return [samba.randn(4, 32, name=name, batch_dim=0) for name in ("x", "y")]


def write_pef(folder: Path, name: str) -> str:
    """Compile the small model for training into a PEF without tracing it. Returns its path."""
    samba.session.reset()
    model = samba.from_torch_model_(Small())
    config = {"output_folder": str(folder), "pef_name": name}
    pef = samba.session.compile(model, sample(), samba.optim.SGD(model.parameters(), lr=0.1), config_dict=config)
    return pef


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, torch.nn.Module]:
    """A PEF of a spatial mapping, and its model after a run on two replicas."""
    folder = tmp_path_factory.mktemp("pef")
    samba.session.reset()
    model = samba.from_torch_model_(Small())
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    config = {"output_folder": str(folder), "pef_name": "small", "mapping": "spatial"}
    pef = samba.session.compile(model, sample(), optimizer, config_dict=config)
    outputs = utils.trace_graph(model, sample(), optimizer, pef=pef, data_parallel_mode="inorder")
    both = [samba.from_torch_tensor(torch.randn(8, 32), name=n, batch_dim=0) for n in ("x", "y")]
    samba.session.run(both, outputs, data_parallel=True, world_size=2)
    return pef, model


def test_the_workbench_opens_a_pef_and_both_its_placements(program: tuple[str, torch.nn.Module]) -> None:
    work = BringUp(program[0]).wait(120)
    meta = work.hub.frames["program"].meta
    assert [g["title"] for g in meta["graphs"]] == ["small (spatial)", "small (section)"]
    assert [s["kind"] for s in meta["sections"]] == ["fwd", "bckwd", "opt"]
    assert [s["step"] for s in meta["steps"] if s["step"] == "run"] == ["run"] * 3
    messages = [p.message for p in work.session.problems if p.rule == "program"]
    assert messages[0] == "the file has no weights: weights and inputs are random"
    assert "is faster" in messages[1] and len(messages) == 2  # and the same netlist
    first = work.session
    work.choose_graph("small (section)")
    work.wait(120)
    assert work.session is not first and work.hub.frames["program"].meta["mapping"] == "section"
    assert [p.message for p in work.session.problems if p.rule == "program"] == messages
    work.choose_graph("small (spatial)")
    assert work.session is first
    with pytest.raises(InputError, match="there are small"):
        work.choose_graph("other")


def test_a_traced_model_opens_with_its_replicas(program: tuple[str, torch.nn.Module]) -> None:
    view = ProgramView(program[1])
    view.hub.wait(120)
    meta = view.hub.frames["program"].meta
    assert (meta["replicas"], meta["mode"]) == (2, "inorder")
    assert (
        meta["timelines"]["optimal"]["cycles"]
        <= meta["timelines"]["inorder"]["cycles"]
        <= meta["timelines"]["normal"]["cycles"]
    )
    assert len(meta["timelines"]["normal"]["link"]) == 2  # weight and bias
    html = view.static().html
    assert "2 replicas" in html and "bckwd" in html and "mean of 2 gradients" in html
    with pytest.raises(InputError, match="no host program"):
        ProgramView(torch.nn.Linear(2, 2))


def test_a_program_of_a_file_trains_in_the_workbench(program: tuple[str, torch.nn.Module]) -> None:
    """Steps of the host program on made-up weights, as torch does them; Run is a step more."""
    work = BringUp(program[0]).wait(120)
    assert work.session.result is not None and work.session.training_steps == ()  # compiled alone
    traced = read_programs(program[0])[0]
    weights = {n.name: torch.tensor(n.value, requires_grad=True) for n in traced.graph.of_kind(NodeKind.PARAMETER)}
    optimizer, losses = torch.optim.SGD(weights.values(), lr=0.1), []
    for rate in (0.1, 0.1, 0.3):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(
            torch.nn.functional.linear(traced.sample["x"], weights["layer.weight"], weights["layer.bias"]),
            traced.sample["y"],
        )
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    work.run_program(2)
    work.wait(120)
    work.hub.start()  # the page's Run
    work.wait(120)
    steps = work.session.training_steps
    assert [s.loss for s in steps] == pytest.approx(losses, rel=1e-4)
    assert steps[-1].loss < steps[0].loss and steps[0].learning_rate == pytest.approx(0.1)
    assert list(work.hub.frames["training"].columns["loss"]) == [s.loss for s in steps]
    work.run_program(1, lr=0.5)
    work.wait(120)
    assert work.session.training_steps[-1].learning_rate == pytest.approx(0.5)
    work.run_program(1, speed=0.5)
    with pytest.raises(InputError, match="the program sets no speed; it sets lr"):
        work.wait(120)
    with pytest.raises(InputError, match="no host program"):
        BringUp(torch.nn.Linear(32, 32), torch.randn(1, 32), start=False).run_program()


def test_times_of_the_modes_come_of_the_placement(program: tuple[str, torch.nn.Module]) -> None:
    """normal: all sections, and twice the bytes of the gradients over the host's link."""
    session = BringUp(program[0]).wait(120).session
    result = session.result
    assert result is not None
    device = sum(s.cycles for s in sections_of(result))
    plans = schedules(result, replicas=2)
    moved = 2 * 4 * (32 * 32 + 32) / result.device.pcie_bytes_per_cycle
    assert plans["normal"].cycles == pytest.approx(device + moved)
    ring = schedules(result, replicas=2, reduce_on_device=True)
    assert ring["normal"].cycles == pytest.approx(device + 4 * (32 * 32 + 32) / result.device.eth_bytes_per_cycle)
    assert schedules(result, replicas=1)["normal"].cycles == pytest.approx(device)


def test_a_pef_is_a_document_and_the_page_chooses_its_graph(
    program: tuple[str, torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(program[0])
    monkeypatch.chdir(path.parent)
    pipe = Pipe(open="program", path=path.name)
    pipe.say(type="hello", have={})

    def mapping() -> str:
        frame = pipe.frames().get("program")
        return "" if frame is None else str(frame.meta["mapping"])

    pipe.until(lambda: mapping() == "spatial")
    pipe.say(type="graph", title="small (section)")
    pipe.until(lambda: mapping() == "section")
    pipe.say(type="graph", title="none")
    assert "no graph 'none'" in pipe.of("refused")[-1]["text"]


def test_a_damaged_pef_is_refused(program: tuple[str, torch.nn.Module], tmp_path: Path) -> None:
    data = Path(program[0]).read_bytes()
    for name, bad in (
        ("cut", data[: len(data) // 2]),
        ("none", b""),
        ("text", b"graph"),
        ("step", data.replace(b'"step": "push"', b'"step": "exec"')),
        ("device", data.replace(b'"device": "wormhole_b0"', b'"device": "wormhole_xx"')),
        ("graph", data.replace(b"matmul(", b"matmux(")),
    ):
        path = tmp_path / f"{name}.pef"
        path.write_bytes(bad)
        with pytest.raises(InputError, match="not a PEF"):
            read_programs(path)


def test_an_ir_opens_with_its_graphs_segments_and_streams() -> None:
    """What runs where and why, by op and call site; what cut the segments, and the epoch of each."""
    ir = popxl.Ir(2)
    with ir.main_graph, popxl.in_sequence():
        stream = popxl.h2d_stream((3, 4), popxl.float32, "in")
        x, v = ops.host_load(stream), popxl.variable(np.ones((3, 4), np.float32), name="v")
        layer = ir.create_graph(lambda x, v: ops.tanh(x) * v, x, v)
        (y,) = ops.call(layer, x, v)
        floored = ops.floor(y)
        total = ops.collectives.replicated_all_reduce(ops.exp(floored))
        out = popxl.d2h_stream(total.shape, total.dtype, "out")
        ops.host_store(out, total)
    session = popxl.Session(ir, "ipu_model")
    view = ProgramView(session)
    view.hub.wait(120)
    meta = view.hub.frames["program"].meta
    record = meta["record"]
    assert meta["replicas"] == record["replicas"] == 2 and [s["ops"] for s in record["segments"]] == [2, 1]
    assert [s["cut"] for s in record["segments"]][1] == "Floor" and [s["epoch"] for s in record["segments"]] == [0, 1]
    main, called = record["graphs"]
    told = {o["type"]: (o["runs"], o["why"], o["segments"]) for o in (*main["ops"], *called["ops"])}
    assert told["Floor"] == ("host", "rounding", []) and told["Tanh"][::2] == ("grid", [0])
    assert told["Exp"][::2] == ("grid", [1]) and told["Call"][0] == "called"
    assert [(s["name"], s["way"]) for s in record["streams"]] == [("in", "from the host"), ("out", "to the host")]
    assert record["variables"][0]["name"] == "v"
    assert [o["calls"] for o in main["ops"] if o["type"] == "Call"] == [[called["id"]]]
    html = view.static().html
    assert "rounding" in html and "segment 1" in html and "exchange" in html


def test_an_ir_is_drawn_with_a_group_for_each_call() -> None:
    """Call sites, turns and branches are groups, also of one op; what runs an op stands with it; the workbench shows
    the Ir and leaves the run to its Session."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, v = (popxl.variable(np.ones((3, 4), np.float32), name=n) for n in "xv")
        layer = ir.create_graph(lambda x, v: ops.tanh(x) * v, x, v)
        one = ir.create_graph(lambda x: ops.exp(x), x)
        (y,) = ops.call(layer, x, v)
        (y,) = ops.call(layer, y, v)
        (y,) = ops.repeat(one, 3, y)
        inside = ir.create_graph(lambda x: ops.call(one, x + x)[0], x)
        (y,) = ops.conditional(ops.greater(ops.sum(y), popxl.constant(0.0)), one, inside, [y], [y])
        out = popxl.d2h_stream(y.shape, y.dtype, "out")
        ops.host_store(out, ops.floor(y))
    session = popxl.Session(ir, "ipu_model")
    work = BringUp(session).wait(120)
    frame = work.hub.frames["irgraph"]
    groups = [path.rsplit("_", 1)[-1] for path in frame.text("group_path")[1:]]
    assert groups == ["subgraph(0)", "subgraph(0) #2", "subgraph(1) × 3", "subgraph(1)", "subgraph(3)", "subgraph(1)"]
    words = [said.split(" ")[0] for said in frame.text("group_class")[1:]]
    assert words == ["Call", "Call", "Loop", "If", "If", "Call"]
    places = [frame.meta["places"][k] for k in frame.columns["node_place"]]
    by_name = dict(zip(frame.text("node_name"), places, strict=True))
    assert by_name["floor_out"] == "host" and by_name["HostStore"] == "program" and by_name["x"] == "variable"
    homes = [h for h, op in zip(frame.columns["node_group"], frame.text("node_op"), strict=True) if op == "exp_out"]
    assert homes == [3, 4, 6]
    assert "Floor" in ProgramView(work.session).static().html
    assert work.session.run() == [[]]  # nothing comes out of its parts
    work.hub.start()
    with pytest.raises(InputError, match="its Session runs it"):
        work.wait(120)
