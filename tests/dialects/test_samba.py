"""SambaFlow programs against the same training in torch."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab import samba
from tbuda_lab.core.diff import compare_sides, side_of_result
from tbuda_lab.core.epochsim import batch_time
from tbuda_lab.core.errors import InputError
from tbuda_lab.dialects.host_program import Collective, HostLoop, HostProgram, steps_of
from tbuda_lab.dialects.program import read_programs, run_cycles, schedules, sections_of
from tbuda_lab.dialects.replicas import MODES, SectionTime, makespan
from tbuda_lab.samba import utils
from tbuda_lab.samba.pef import read_pef
from tbuda_lab.samba.spatial import SpatialMappingError

BATCH, FEATURES, CLASSES = 16, 24, 10


class LogReg(torch.nn.Module):
    """(loss, logits), as the tutorials have it."""

    def __init__(self, hidden: int = 0) -> None:
        super().__init__()
        self.hidden = torch.nn.Linear(FEATURES, hidden) if hidden else torch.nn.Identity()
        self.lin_layer = torch.nn.Linear(hidden or FEATURES, CLASSES)
        self.criterion = torch.nn.CrossEntropyLoss()

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.lin_layer(torch.relu(self.hidden(inputs)))
        return self.criterion(out, targets), out


@pytest.fixture(autouse=True)
def fresh_session() -> None:
    samba.session.reset()


def inputs_of(seed: int = 0) -> list[samba.SambaTensor]:
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(BATCH, FEATURES, generator=generator)
    label = torch.randint(0, CLASSES, (BATCH,), generator=generator)
    return [
        samba.from_torch_tensor(image, name="image", batch_dim=0),
        samba.from_torch_tensor(label, name="label", batch_dim=0),
    ]


def model_and_reference(hidden: int = 0) -> tuple[LogReg, LogReg]:
    torch.manual_seed(1)
    model = LogReg(hidden)
    reference = LogReg(hidden)
    reference.load_state_dict(model.state_dict())
    return samba.from_torch_model_(model), reference  # type: ignore[return-value]


def same(model: LogReg, reference: LogReg) -> None:
    samba.session.to_cpu(model)
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("hidden", [0, 32])
def test_every_step_is_torchs(hidden: int) -> None:
    """Outputs before the update, gradients and weights after it, with numbers that change between runs."""
    model, reference = model_and_reference(hidden)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.0, momentum=0.0)
    outputs = utils.trace_graph(model, inputs_of(), optimizer)
    golden = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step, (lr, momentum, decay) in enumerate([(0.1, 0.9, 1e-2), (0.05, 0.5, 0.0)]):
        inputs = inputs_of(step)
        numbers = {"lr": lr, "momentum": momentum, "weight_decay": decay}
        golden.param_groups[0] |= numbers
        loss, logits = samba.session.run(inputs, outputs, hyperparam_dict=numbers)
        expected = reference(samba.to_torch(inputs[0]), samba.to_torch(inputs[1]))
        golden.zero_grad()
        expected[0].backward()
        torch.testing.assert_close(samba.to_torch(loss), expected[0].detach(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(samba.to_torch(logits), expected[1].detach(), rtol=1e-4, atol=1e-5)
        for a, b in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(a.sn_grad, b.grad, rtol=1e-4, atol=1e-6)
        golden.step()
    same(model, reference)


def test_adamw_with_a_norm_of_all_gradients() -> None:
    model, reference = model_and_reference()
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, max_grad_norm=0.05)
    outputs = utils.trace_graph(model, inputs_of(), optimizer)
    golden = torch.optim.AdamW(reference.parameters(), lr=0.01, betas=(0.9, 0.997), weight_decay=0.1)
    for step in range(2):
        inputs = inputs_of(step)
        samba.session.run(inputs, outputs)
        golden.zero_grad()
        reference(*map(samba.to_torch, inputs))[0].backward()
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
        assert norm > 0.05
        golden.step()
    same(model, reference)


def test_losses_are_the_last_outputs_unless_told() -> None:
    model, _ = model_and_reference()
    utils.trace_graph(model, inputs_of(), samba.optim.SGD(model.parameters()))
    assert samba.session.graphs["logreg"].losses == (0,)
    with pytest.raises(IndexError, match="2 outputs"):
        utils.trace_graph(model, inputs_of(), samba.optim.SGD(model.parameters()), loss_indices=[2])


def test_a_gradient_that_the_program_sets() -> None:
    model, reference = model_and_reference()
    outputs = utils.trace_graph(model, inputs_of(), samba.optim.SGD(model.parameters(), lr=0.0))
    utils.init_output_grads(outputs[:1], customized_tensors_dict={str(outputs[0].sn_name): torch.tensor(3.0)})
    samba.session.run(inputs_of(), outputs, section_types=["FWD", "BCKWD"])
    (3.0 * reference(*map(samba.to_torch, inputs_of()))[0]).backward()
    torch.testing.assert_close(model.lin_layer.weight.sn_grad, reference.lin_layer.weight.grad, rtol=1e-4, atol=1e-6)


def test_replicas_are_one_large_batch() -> None:
    """Two replicas of 16 samples take the step of one batch of 32: the mean of two means."""
    model, reference = model_and_reference()
    outputs = utils.trace_graph(model, inputs_of(), samba.optim.SGD(model.parameters(), lr=0.1))
    both = [torch.cat(pair) for pair in zip(*[map(samba.to_torch, inputs_of(k)) for k in (0, 1)], strict=True)]
    named = [samba.from_torch_tensor(t, name=n, batch_dim=0) for t, n in zip(both, ("image", "label"), strict=True)]
    samba.session.run(named, outputs, data_parallel=True, world_size=2)
    golden = torch.optim.SGD(reference.parameters(), lr=0.1)
    reference(*both)[0].backward()
    golden.step()
    same(model, reference)
    first, second = samba.session.replicas["logreg"]
    for name, weight in first.weights.items():
        assert (first.executor.read(weight.queue) == second.executor.read(weight.queue)).all(), name


def test_spatial_and_section_give_the_same_bits() -> None:
    results = []
    for mapping in ("section", "spatial"):
        model, _ = model_and_reference()
        outputs = utils.trace_graph(model, inputs_of(), None, mapping=mapping)
        results.append([samba.to_torch(t) for t in samba.session.run(inputs_of(), outputs)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert len(samba.session.graphs["logreg"].result.placement.epochs) == 1


def test_every_time_of_a_spatial_program_is_without_switches() -> None:
    """It is loaded once: session, timeline and comparison count what a run of it takes, as its summary does."""
    model, _ = model_and_reference(32)
    utils.trace_graph(model, inputs_of(), None, mapping="spatial")
    (traced,) = samba.session.graphs.values()
    assert traced.other_result is not None
    session = traced.program().session()
    time = session.time()
    assert time.cycles == run_cycles(session.compile()) == traced.mapping_cycles()["spatial"]
    assert time.parts["switch"] == 0 and all(epoch.bound != "switch" for epoch in time.epochs)
    assert session.timeline(time.batch).cycles == time.cycles
    section, spatial = (
        side_of_result(result, name, batch_time(result, time.batch))
        for name, result in (("section", traced.other_result), ("spatial", traced.result))
    )
    diff = compare_sides(section, spatial)
    assert [t * time.batch for t in diff.time] == list(map(traced.mapping_cycles().get, ("section", "spatial")))
    assert diff.notes == ("spatial is loaded once, before the first run; section switches epochs in every run.",)


def test_a_spatial_mapping_that_does_not_fit_says_what_it_lacks() -> None:
    model = samba.from_torch_model_(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(84)]))
    with pytest.raises(SpatialMappingError, match="needs at least 84 cores, there are 80"):
        utils.trace_graph(model, [samba.randn(32, 32, name="x", batch_dim=0)], mapping="spatial")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mapping": "spacial"}, "section, spatial"),
        ({"data_parallel_mode": "fast"}, "normal, inorder, optimal"),
    ],
)
def test_unknown_words(change: dict[str, str], message: str) -> None:
    model, _ = model_and_reference()
    with pytest.raises(ValueError, match=message):
        utils.trace_graph(model, inputs_of(), None, **change)  # type: ignore[arg-type]


def test_inputs_are_matched_by_name_and_shape() -> None:
    model, _ = model_and_reference()
    outputs = utils.trace_graph(model, inputs_of(), None)
    image, label = inputs_of()
    forward = samba.session.run([image, label], outputs)
    turned = samba.session.run([label, image], outputs)
    assert torch.equal(samba.to_torch(forward[1]), samba.to_torch(turned[1]))
    short = samba.from_torch_tensor(samba.to_torch(image)[:3], name="image", batch_dim=0)
    with pytest.raises(ValueError, match=r"'image'.*drop_last"):
        samba.session.run([short, label], outputs)
    with pytest.raises(ValueError, match="'image'"):
        samba.session.run([label], outputs)
    with pytest.raises(ValueError, match="section type"):
        samba.session.run([image, label], outputs, section_types=["forward"])


def test_a_pef_is_of_one_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = model_and_reference()
    optimizer = samba.optim.SGD(model.parameters())
    path = samba.session.compile(model, inputs_of(), optimizer, name="a", config_dict={"pef_name": "a"})
    assert path == "out/a/a.pef"
    utils.trace_graph(model, inputs_of(), optimizer, pef=path)
    other, _ = model_and_reference(hidden=32)
    with pytest.raises(InputError, match=r"a different graph") as refused:
        utils.trace_graph(other, inputs_of(), samba.optim.SGD(other.parameters()), pef=path)
    assert "hidden" in str(refused.value) or "relu" in str(refused.value)
    with pytest.raises(InputError, match="not a PEF"):
        utils.trace_graph(model, inputs_of(), pef=str(tmp_path / "none.pef"))


def test_the_host_program_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = model_and_reference()
    path = samba.session.compile(model, inputs_of(), samba.optim.SGD(model.parameters()), config_dict={})
    program = next(iter(read_pef(path).graphs.values())).host_program
    assert HostProgram.from_json(json.loads(json.dumps(program.to_json()))) == program
    assert [section for section, _ in program.steps][-1] == "opt"
    push: dict[str, Any] = {"step": "push", "tensor": "x"}
    deep = push
    for _ in range(300):
        deep = {"step": "loop", "count": 1, "body": [deep]}
    for wrong, text in (
        ({"step": "call", "fn": "os.system"}, "is one of push, run, .*, not 'call'"),
        ({"tensor": "x"}, "is one of push, run"),
        ({"step": "run"}, "lacks program"),
        ({**push, "more": 1}, "no field 'more'"),
        (3, "is a map, not int"),
        (deep, "nested too deeply"),
    ):
        with pytest.raises(InputError, match=text):
            HostProgram.from_json([wrong], nests=True)


def test_names_stay_with_tensors() -> None:
    tensor = samba.randn(4, 3, name="image", batch_dim=0).bfloat16().float()
    assert (tensor.sn_name, tensor.batch_dim, tensor.dtype) == ("image", 0, torch.float32)
    assert type(samba.to_torch(tensor)) is torch.Tensor
    model, _ = model_and_reference()
    assert model.lin_layer.weight.sn_name == "logreg__lin_layer__weight"
    assert isinstance(model.lin_layer.weight, samba.SambaParameter)
    assert not isinstance(torch.nn.Parameter(torch.zeros(1)), samba.SambaParameter)


def test_two_graphs_in_one_pef(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    modules = {"up": torch.nn.Linear(32, 64), "down": torch.nn.Linear(64, 32)}
    graphs = {}
    for name, module in modules.items():
        graphs[name] = samba.graph.FwdGraph(samba.from_torch_model(module), module, name)
        utils.trace_multigraph(graphs[name], samba.randn(8, module.in_features, name="x", batch_dim=0))
        samba.session.add_graph(graphs[name])
    with pytest.raises(RuntimeError, match="'up' is traced already"):
        utils.trace_multigraph(graphs["up"], samba.randn(8, 32, name="x", batch_dim=0))
    pef = samba.session.compile_multigraph(name="two", inference=True)
    samba.session.init_multigraph_runtime(pef)
    x = torch.randn(8, 32)
    (up,) = samba.session.run([samba.from_torch_tensor(x, name="x")], graph_name="up")
    torch.testing.assert_close(samba.to_torch(up), modules["up"](x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="graph_name"):
        samba.session.run([samba.from_torch_tensor(x, name="x")])


def test_graphs_by_their_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page on several graphs has it: a module is traced, and its inputs and outputs are a graph."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    modules = {"up": torch.nn.Linear(32, 64), "down": torch.nn.Linear(64, 32)}
    inputs = {name: samba.randn(8, m.in_features, name=f"{name}_in", batch_dim=0) for name, m in modules.items()}
    pef = ""
    for _ in range(2):  # once to compile, once to run
        samba.session.reset()
        outputs = {name: utils.trace_multigraph(samba.from_torch_model(m), inputs[name]) for name, m in modules.items()}
        for name in modules:
            samba.session.add_graph(samba.graph.FwdGraph(inputs[name], outputs[name], name=name))
        pef = pef or samba.session.compile_multigraph(name="two", inference=True)
    samba.session.init_multigraph_runtime(pef)
    for name, module in modules.items():
        (y,) = samba.session.run([inputs[name]], outputs[name], graph_name=name)
        torch.testing.assert_close(samba.to_torch(y), module(samba.to_torch(inputs[name])).detach())
    with pytest.raises(ValueError, match=r"one call of samba\.utils\.trace_multigraph"):
        samba.graph.FwdGraph(inputs["up"], samba.randn(8, 64), name="other")
    with pytest.raises(ValueError, match="start of a graph is its inputs up_in, not down_in"):
        samba.graph.FwdGraph(inputs["down"], outputs["up"], name="other")


@pytest.mark.parametrize("seed", range(8))
def test_modes_are_ordered(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def cycles() -> float:
        return float(torch.randint(1, 50, (1,), generator=generator))

    names = [f"w{k}" for k in range(5)]
    backward = [SectionTime("bckwd", cycles(), (name,)) for name in reversed(names)]
    sections = [SectionTime("fwd", cycles()), *backward, *[SectionTime("opt", cycles(), (name,)) for name in names]]
    sync: dict[str, Any] = {name: cycles() for name in names}
    normal, inorder, optimal = (makespan(sections, sync, mode) for mode in ("normal", "inorder", "optimal"))
    assert optimal <= inorder <= normal
    device = sum(s.cycles for s in sections)
    assert optimal >= device and normal == device + sum(sync.values())
    with pytest.raises(InputError, match="normal, inorder, optimal"):
        makespan(sections, sync, "fast")


class Deep(torch.nn.Module):
    """Linear layers so wide that the backward pass takes several sections."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(torch.relu(x))
        return self.loss(x, y)


def weights_of_modes(model: torch.nn.Module, inputs: list[samba.SambaTensor]) -> list[list[torch.Tensor]]:
    """By data-parallel mode the weights after two runs on two replicas of one netlist."""
    start = copy.deepcopy(model.state_dict())
    (traced,) = samba.session.graphs.values()
    results = []
    for mode in MODES:
        model.load_state_dict(start)
        for optimizer in traced.optimizers:
            optimizer.state.clear()
        samba.session.to_rdu(model)
        traced.data_parallel_mode = mode
        for _ in range(2):
            samba.session.run(inputs, data_parallel=True, world_size=2)
        samba.session.to_cpu(model)
        results.append([p.detach().clone() for p in model.parameters()])
    return results


def test_modes_differ_in_time_and_not_in_a_bit() -> None:
    """A program of several backward sections, which complete gradients one after the other, and several updates."""
    torch.manual_seed(2)
    model = samba.from_torch_model_(Deep(512, 1024, 1024, 1024, 1024, 10))

    def given(batch: int) -> list[samba.SambaTensor]:
        return [samba.randn(batch, 512, name="x", batch_dim=0), samba.randint(10, (batch,), name="y", batch_dim=0)]

    optimizer = samba.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    utils.trace_graph(model, given(32), optimizer, data_parallel_mode="optimal")
    (traced,) = samba.session.graphs.values()
    kinds = [s.kind for s in sections_of(traced.result)]
    assert kinds.count("bckwd") > 1 and kinds.count("opt") > 1
    for reduce_on_device in (False, True):
        cycles = {mode: p.cycles for mode, p in schedules(traced.result, 2, reduce_on_device).items()}
        assert cycles["optimal"] < cycles["inorder"] < cycles["normal"]
    means = [step.tensors for step in steps_of(traced.host_program()) if isinstance(step, Collective)]
    assert len(means) > 1 and "layers.4.weight" in means[0] and "layers.0.weight" in means[-1]
    normal, inorder, optimal = weights_of_modes(model, given(64))
    for weights in (inorder, optimal):
        assert all(torch.equal(a, b) for a, b in zip(normal, weights, strict=True))


def test_the_modes_as_a_program_asks_for_them_give_the_same_bits() -> None:
    """Each traced anew: inorder and optimal place ops in another order than normal."""
    results = []
    for mode in MODES:
        model, _ = model_and_reference(hidden=32)
        outputs = utils.trace_graph(
            model, inputs_of(), samba.optim.SGD(model.parameters(), lr=0.1), data_parallel_mode=mode
        )
        both = [samba.from_torch_tensor(torch.cat([samba.to_torch(t)] * 2), name=t.sn_name) for t in inputs_of()]
        samba.session.run(both, outputs, data_parallel=True, world_size=2, data_parallel_mode=mode)
        samba.session.to_cpu(model)
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for weights in results[1:] for a, b in zip(results[0], weights, strict=True))


def test_a_section_compile_says_which_mapping_is_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"output_folder": str(tmp_path), "pef_name": "a"}
    model, _ = model_and_reference()
    pef = samba.session.compile(model, inputs_of(), config_dict=config)
    printed = capsys.readouterr().out
    section, spatial = read_programs(pef)
    assert (section.mapping, spatial.mapping) == ("section", "spatial")
    times = {p.mapping: run_cycles(p.session().compile()) for p in (section, spatial)}
    faster = min(times, key=times.__getitem__)
    spatial_time, section_time = times["spatial"], times["section"]
    text = f"spatial takes {spatial_time:,.0f} cycles per run, by sections {section_time:,.0f}: {faster} is faster"
    assert text in printed and section.notes[-1] == spatial.notes[-1] == text
    large = samba.from_torch_model_(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(84)]))
    pef = samba.session.compile(large, [samba.randn(32, 32, name="x", batch_dim=0)], config_dict=config)
    assert (
        "a spatial mapping does not fit: a spatial mapping needs at least 84 cores, there are 80"
        in capsys.readouterr().out
    )
    assert [p.mapping for p in read_programs(pef)] == ["section"]


def test_to_rdu_takes_new_weights_to_an_inference_graph() -> None:
    """Weights, biases and statistics that the compile has folded; changed in place, as programs do."""
    torch.manual_seed(5)
    model = samba.from_torch_model_(
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(144, 5),
        ).eval()
    )
    x = samba.randn(2, 1, 8, 8, name="x", batch_dim=0)
    outputs = utils.trace_graph(model, [x])

    def differs() -> float:
        (result,) = samba.session.run([x], outputs)
        return float((samba.to_torch(result) - model(samba.to_torch(x))).detach().abs().max())

    assert differs() < 1e-5
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
        model[1].running_mean.add_(1.0)  # type: ignore[operator]
    assert differs() > 0.1  # the device has the old ones
    samba.session.to_rdu(model)
    assert differs() < 1e-5


def test_to_rdu_takes_what_no_optimizer_has() -> None:
    """A layer that is frozen, in a graph that trains the other."""
    model, reference = model_and_reference(hidden=32)
    outputs = utils.trace_graph(model, inputs_of(), samba.optim.SGD(model.lin_layer.parameters(), lr=0.1))
    with torch.no_grad():
        for one in (model, reference):
            one.hidden.weight.mul_(-2.0)  # type: ignore[operator]
    samba.session.to_rdu(model)
    samba.session.run(inputs_of(), outputs)
    reference(*map(samba.to_torch, inputs_of()))[0].backward()
    torch.optim.SGD(reference.lin_layer.parameters(), lr=0.1).step()
    same(model, reference)


def test_gradients_of_outputs_are_of_a_part_or_of_the_whole_batch() -> None:
    """init_output_grads: customised, left open, of another batch size; and names and shapes that do not fit."""
    model, reference = model_and_reference()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    outputs = utils.trace_graph(model, inputs_of(), optimizer, init_output_grads=False, loss_indices=[0, 1])
    names = [str(t.sn_name) for t in outputs]
    with pytest.raises(ValueError, match=f"set sn_grad of output '{names[0]}'"):
        samba.session.run(inputs_of(), outputs)
    wide = torch.randn(2 * BATCH, CLASSES, generator=torch.Generator().manual_seed(3))
    with pytest.raises(ValueError, match="has shape"):
        utils.init_output_grads(outputs, [names[0]], {names[1]: wide})
    with pytest.raises(KeyError, match="other"):
        utils.init_output_grads(outputs, ["other"])
    utils.init_output_grads(outputs, [names[0]], {names[1]: wide}, is_variable_batch_size=True)
    with pytest.raises(ValueError, match=rf"gradient by '{names[1]}' has shape \(32, 10\)"):
        samba.session.run(inputs_of(), outputs)
    both = [torch.cat([samba.to_torch(a), samba.to_torch(b)]) for a, b in zip(inputs_of(1), inputs_of(2), strict=True)]
    inputs = [samba.from_torch_tensor(t, name=n, batch_dim=0) for t, n in zip(both, ("image", "label"), strict=True)]
    samba.session.run(inputs, outputs, data_parallel=True, world_size=2)
    total = torch.zeros(())
    for part in range(2):  # each replica's own half of the gradient; the replicas' mean
        rows = slice(part * BATCH, (part + 1) * BATCH)
        loss, logits = reference(both[0][rows], both[1][rows])
        total = total + (loss + (logits * wide[rows]).sum()) / 2
    total.backward()
    torch.optim.SGD(reference.parameters(), lr=0.1).step()
    same(model, reference)


def test_batches_of_a_spatial_run_are_steps(tmp_path: Path) -> None:
    """num_spatial_batches=2: one run takes two batches, with an update after each; the PEF holds the loop."""
    model, reference = model_and_reference()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    config = {"output_folder": str(tmp_path), "pef_name": "two", "mapping": "spatial", "num_spatial_batches": 2}
    pef = samba.session.compile(model, inputs_of(), optimizer, config_dict=config)
    (step,) = next(iter(read_pef(pef).graphs.values())).host_program.steps
    assert isinstance(step[1], HostLoop) and step[1].count == 2
    outputs = utils.trace_graph(model, inputs_of(), optimizer, pef=pef)
    batches = [inputs_of(1), inputs_of(2)]
    both = [
        samba.from_torch_tensor(torch.cat([samba.to_torch(a), samba.to_torch(b)]), name=a.sn_name, batch_dim=0)
        for a, b in zip(*batches, strict=True)
    ]
    losses, logits = samba.session.run(both, outputs)
    golden = torch.optim.SGD(reference.parameters(), lr=0.1)
    for turn, batch in enumerate(batches):
        loss, expected = reference(*map(samba.to_torch, batch))
        golden.zero_grad()
        loss.backward()
        golden.step()
        torch.testing.assert_close(samba.to_torch(losses)[turn], loss.detach(), rtol=1e-4, atol=1e-6)
        part = samba.to_torch(logits)[turn * BATCH : (turn + 1) * BATCH]
        torch.testing.assert_close(part, expected.detach(), rtol=1e-4, atol=1e-5)
    same(model, reference)
    with pytest.raises(ValueError, match="spatial"):
        samba.session.compile(model, inputs_of(), optimizer, config_dict={**config, "mapping": "section"})
