"""The run loop: what is pushed, what is run, when it is compiled, and what is refused."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError, ModelError, TbudaError
from tbuda_lab.pybuda import compiled_device as devices
from tests.e2e.references import pcc


class TwoInputs(pybuda.PyBudaModule):
    """Two inputs, two outputs, weights, scalars, an automatic name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(torch.eye(64) * 0.5 + 0.01)

    def forward(self, a: pybuda.Tensor, b: pybuda.Tensor) -> tuple[pybuda.Tensor, pybuda.Tensor]:
        product = pybuda.op.Matmul("mm", a, self.weights)
        return pybuda.op.Add("sum", product, b), pybuda.op.Relu("", product - 0.25)


def answer(a: torch.Tensor, b: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    product = a @ weights
    return product + b, torch.relu(product - 0.25)


A, B = torch.randn(1, 1, 32, 64), torch.randn(1, 1, 32, 64)


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one for every compile."""
    compiles: list[str] = []
    real = devices.compile_with_fallback

    def counted(graph, *args, **kwargs):
        compiles.append(graph.name)
        return real(graph, *args, **kwargs)

    monkeypatch.setattr(devices, "compile_with_fallback", counted)
    return compiles


def check(outputs: list[pybuda.Tensor], a: torch.Tensor, b: torch.Tensor, module: TwoInputs) -> None:
    expected = answer(a, b, module.weights.value())
    assert len(outputs) == len(expected)
    for got, want in zip(outputs, expected, strict=True):
        assert got.value().shape == want.shape
        assert pcc(want, got.value()) > 0.999


@pytest.mark.parametrize(
    "push",
    [
        lambda d: d.push_to_inputs(A, B),
        lambda d: d.push_to_inputs((A, B)),
        lambda d: d.push_to_inputs([A, B]),
        lambda d: d.push_to_inputs({"b": B, "a": A}),
        lambda d: d.push_to_inputs(pybuda.Tensor.create_from_torch(A), B),
    ],
    ids=["separate", "tuple", "list", "dict", "Tensor"],
)
def test_ways_of_pushing(push) -> None:
    module = TwoInputs("two")
    tt0 = pybuda.TTDevice("tt0", module=module)
    push(tt0)
    check(pybuda.run_inference().get(), A, B, module)


@pytest.mark.parametrize("inputs", [[(A, B)], [{"b": B, "a": A}], [[A, B]]], ids=["tuple", "dict", "list"])
def test_inputs_of_run_inference(inputs: list[object]) -> None:
    module = TwoInputs("two")
    check(pybuda.run_inference(module, inputs=inputs).get(), A, B, module)


def test_a_second_run_compiles_nothing_and_answers_on_the_first_queue(compiles: list[str]) -> None:
    module = TwoInputs("two")
    first = pybuda.run_inference(module, inputs=[(A, B)])
    second = pybuda.run_inference(module, inputs=[(A + 1, B), (A + 2, B)])
    assert second is first and compiles == ["two"]
    for shift in range(3):
        check(first.get(), A + shift, B, module)


def test_outputs_go_to_the_given_queue() -> None:
    mine: queue.Queue[list[pybuda.Tensor]] = queue.Queue()
    module = TwoInputs("two")
    assert pybuda.run_inference(module, inputs=[(A, B)], output_queue=mine) is mine
    check(mine.get_nowait(), A, B, module)


def test_inputs_that_are_asked_for_run_as_they_arrive() -> None:
    module = TwoInputs("two")
    tt0 = pybuda.TTDevice("tt0", module=module)
    tt0.push_to_inputs(A, B)
    results = pybuda.run_inference(input_count=3)
    assert results.qsize() == 1
    tt0.push_to_inputs(A + 1, B)
    tt0.push_to_inputs(A + 2, B)
    assert results.qsize() == 3
    tt0.push_to_inputs(A + 3, B)  # not asked for
    assert results.qsize() == 3
    for shift in range(3):
        check(results.get(), A + shift, B, module)


def test_sequential_runs_what_is_there() -> None:
    module = TwoInputs("two")
    tt0 = pybuda.TTDevice("tt0", module=module)
    tt0.push_to_inputs(A, B)
    tt0.push_to_inputs(A + 1, B)
    results = pybuda.run_inference(input_count=0, _sequential=True)
    assert results.qsize() == 2
    tt0.push_to_inputs(A, B)
    assert results.qsize() == 2


def test_initialize_pipeline_and_run_forward(compiles: list[str]) -> None:
    module = TwoInputs("two")
    tt0 = pybuda.TTDevice("tt0", module=module)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(A, B))
    assert compiles == ["two"] and results.empty()
    for shift in range(2):
        tt0.push_to_inputs(A + shift, B)
    pybuda.run_forward(input_count=2)
    for shift in range(2):
        check(results.get(), A + shift, B, module)
    assert compiles == ["two"]


def test_initialize_pipeline_takes_the_first_pushed_input() -> None:
    module = TwoInputs("two")
    tt0 = pybuda.TTDevice("tt0", module=module)
    tt0.push_to_inputs(A, B)
    results = pybuda.initialize_pipeline(training=False)
    pybuda.run_forward()
    check(results.get(), A, B, module)


def test_microbatch() -> None:
    a, b = torch.randn(3, 1, 32, 64), torch.randn(3, 1, 32, 64)
    module = TwoInputs("two")
    results = pybuda.run_inference(module, inputs=[(a, b), (b, a)])
    check(results.get(), a, b, module)
    check(results.get(), b, a, module)
    with pytest.raises(RuntimeError, match="Batch size mismatch"):
        pybuda.run_inference(module, inputs=[(A, B)])
    assert pybuda.error_raised()


@pytest.mark.parametrize("state", ["waiting", "compiled", "image"])
def test_another_microbatch_is_refused_as_it_is_pushed(state: str, tmp_path: Path) -> None:
    """At the line that gives it, before anything runs; the inputs before it stay."""
    device = pybuda.TTDevice("tt0", module=TwoInputs("two"))
    a, b = torch.randn(2, 1, 32, 64), torch.randn(2, 1, 32, 64)
    if state == "compiled":
        device.run_forward((a, b))
    elif state == "image":
        device = pybuda.TTDevice.load_image(device.compile_to_image(str(tmp_path / "two.tti"), sample_inputs=(a, b)))
    device.push_to_inputs(a, b)
    for batch in (1, 3):
        with pytest.raises(RuntimeError, match=f"Batch size mismatch .* 2 and {batch}"):
            device.push_to_inputs(torch.randn(batch, 1, 32, 64), torch.randn(batch, 1, 32, 64))
    with pytest.raises(RuntimeError, match="Batch size mismatch"):
        device.push_to_inputs({"a": A, "b": B})
    device.push_to_inputs(b, a)
    results = pybuda.run_inference(input_count=2)
    check(results.get(), a, b, TwoInputs("golden"))
    check(results.get(), b, a, TwoInputs("golden"))


def test_host_and_device_in_one_pipeline() -> None:
    torch.manual_seed(0)
    first, last = nn.Embedding(30, 64), nn.Sequential(nn.Linear(64, 8), nn.Dropout(0.5))
    middle = nn.Linear(64, 64)
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("first", first))
    pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("middle", middle))
    pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("last", last))
    tokens = torch.randint(0, 30, (1, 32))
    cpu0.push_to_inputs(tokens)
    (output,) = pybuda.run_inference().get()
    want = last.eval()(middle(first(tokens))).detach()
    assert pcc(want, output.value()) > 0.999


def test_modules_in_a_chain_on_one_device() -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64), nn.GELU())
    tt0 = pybuda.TTDevice("tt0")
    tt0.place_module([pybuda.PyTorchModule("one", one), pybuda.PyTorchModule("two", two)])
    x = torch.randn(1, 32, 64)
    (output,) = pybuda.run_inference(inputs=[x]).get()
    assert pcc(two(one(x)).detach(), output.value()) > 0.999


def test_new_weights_are_taken_up() -> None:
    module = TwoInputs("two")
    pybuda.run_inference(module, inputs=[(A, B)]).get()
    module.set_parameter("weights", torch.eye(64) * 3)
    check(pybuda.run_inference(module, inputs=[(A, B)]).get(), A, B, module)
    (checkpoint,) = pybuda.get_parameter_checkpoint()
    assert torch.equal(checkpoint["two.weights"].value(), torch.eye(64) * 3)
    pybuda.update_device_parameters(parameters=[{"two.weights": torch.eye(64)}])
    check(pybuda.run_inference(module, inputs=[(A, B)]).get(), A, B, module)
    torch_module = nn.Linear(64, 64)
    device = pybuda.TTDevice("tt1", module=pybuda.PyTorchModule("linear", torch_module))
    before = device.run_forward((A,))[0]
    with torch.no_grad():
        torch_module.weight.mul_(-1)
        torch_module.bias.mul_(-1)
    torch.testing.assert_close(device.run_forward((A,))[0], -before, rtol=0.02, atol=0.02)


def test_run_of_one_module() -> None:
    module = TwoInputs("two")
    check(list(module.run(A, B)), A, B, module)
    assert pybuda.pybudaglobal.get_devices() == [] and module.get_device() is None


def test_integers_go_to_the_host() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 32))
    tokens = torch.randint(0, 50, (1, 32), dtype=torch.int32)
    (output,) = pybuda.run_inference(pybuda.PyTorchModule("tokens", model), inputs=[tokens]).get()
    assert pcc(model(tokens).detach(), output.value()) > 0.999


def test_a_script_runs_again_in_the_same_process() -> None:
    for name in ("two", "two", "three"):  # what running a cell of a notebook again does
        module = TwoInputs(name)
        device = pybuda.TTDevice("tt0", module=module)
        device.push_to_inputs(A, B)
        check(pybuda.run_inference().get(timeout=60), A, B, module)
        pybuda.shutdown()
        assert pybuda.get_tenstorrent_device() is device
    other = TwoInputs("other")
    check(pybuda.run_inference(other, inputs=[(A, B)]).get(timeout=60), A, B, other)


def test_devices_run_again_after_shutdown(compiles: list[str]) -> None:
    module = TwoInputs("two")
    device = pybuda.TTDevice("tt0", module=module)
    for _ in range(2):
        device.push_to_inputs(A, B)
        check(pybuda.run_inference().get(timeout=60), A, B, module)
        pybuda.shutdown()
    assert compiles == ["two"]


def test_inputs_that_no_run_would_reach_are_refused() -> None:
    pybuda.TTDevice("tt0", module=TwoInputs("two"))
    pybuda.TTDevice("tt1", module=TwoInputs("again")).push_to_inputs(A, B)
    with pytest.raises(RuntimeError, match=r"'tt1'.*begins with 'tt0'.*shutdown"):
        pybuda.run_inference()


def test_compiled_results(tmp_path: Path) -> None:
    pybuda.set_configuration_options(backend_output_dir=str(tmp_path))
    module = TwoInputs("two")
    pybuda.run_inference(module, inputs=[(A, B)])
    device = pybuda.get_tenstorrent_device()
    assert device is not None
    results = device.get_compiled_results()
    text = Path(results.netlist_filename).read_text()
    assert results.netlist_filename == str(tmp_path / "two_netlist.yaml") and "mm" in text
    solution = results.pass_specific_output_kwargs["placer_solution"]
    placed = solution.name_to_op_placement["mm"]
    assert placed.epoch_id == solution.epoch_id("mm") == 0
    assert placed.placed_cores.start.row >= 0
    assert "mm" in results.initial_graph and "mm" in results.lowered_graph


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pybuda.run_inference(), "no device"),
        (lambda: (pybuda.TTDevice("tt0"), pybuda.run_inference()), "place_module"),
        (lambda: (pybuda.TTDevice("tt0", module=TwoInputs("m")), pybuda.run_inference(_sequential=True)), "push_to_"),
        (lambda: pybuda.run_inference(TwoInputs("m"), inputs=[(A, B)] * 2, input_count=3), "input_count"),
        (lambda: pybuda.CPUDevice("cpu0", module=TwoInputs("m")), "PyTorch"),
        (lambda: pybuda.TTDevice("tt0", module=[TwoInputs("m"), None]), "NoneType"),
        (lambda: pybuda.TTDevice("tt0", module=[TwoInputs("m"), TwoInputs("m")]), "unique"),
        (lambda: pybuda.PyTorchModule("m", lambda x: x), "torch.nn.Module"),
        (lambda: pybuda.set_device_pipeline([TwoInputs("m")]), "devices only"),
        (lambda: pybuda.TTDevice("tt0", num_chips=2, chip_ids=[0]), "num_chips"),
        (lambda: TwoInputs("m").get_parameter("w"), "weights"),
        (lambda: TwoInputs("m").get_constant("c"), "constant"),
        (lambda: pybuda.set_configuration_options(device_config="abacus"), "gs_e150"),
    ],
)
def test_misuse_is_a_runtime_error_of_ours(call, says: str) -> None:
    with pytest.raises(RuntimeError, match=says) as caught:
        call()
    assert isinstance(caught.value, TbudaError)


@pytest.mark.parametrize("inputs", [[(A,)], [(A, B, B)], [(A, B[..., :32])], [{"a": A, "c": B}], [(A, B.long())]])
def test_inputs_that_do_not_fit(inputs: list[object]) -> None:
    module = TwoInputs("two")
    pybuda.run_inference(module, inputs=[(A, B)])
    with pytest.raises(TbudaError) as caught:
        pybuda.run_inference(module, inputs=inputs)
    assert isinstance(caught.value, InputError | ModelError)


def test_a_forward_that_looks_at_values() -> None:
    class Looks(pybuda.PyBudaModule):
        def forward(self, a: pybuda.Tensor) -> pybuda.Tensor:
            if a.value().sum() > 0:
                return a
            return a + 1

    with pytest.raises(ModelError, match="no value"):
        pybuda.run_inference(Looks("looks"), inputs=[A])


def test_a_bad_shape_names_the_op_and_the_line() -> None:
    class Bad(pybuda.PyBudaModule):
        def forward(self, a: pybuda.Tensor) -> pybuda.Tensor:
            return pybuda.op.Matmul("bad", a, a)

    with pytest.raises(ModelError, match=r"'bad'.*test_pipeline\.py:\d+"):
        pybuda.run_inference(Bad("module"), inputs=[A])
