"""PyBuda's API as its reference describes it: a walk through devices, the run API, formats and numerics, each step with
a value that comes from elsewhere (torch, the reference's own words, PyBuda's numbers)."""

import numpy as np
import pytest
import torch

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import PipelineError, TbudaError
from tbuda_lab.pybuda import BackendDevice, BackendType, DataFormat, MathFidelity, Tensor, TTDevice, VerifyConfig
from tbuda_lab.pybuda.op.eval import sparse_utils


class Net(pybuda.PyBudaModule):
    """exp(x w1) + x w2, which shows roundings large."""

    def __init__(self, name="net"):
        super().__init__(name)
        generator = torch.Generator().manual_seed(1)
        self.w1 = pybuda.Parameter(torch.rand(32, 32, generator=generator) / 2)
        self.w2 = pybuda.Parameter(torch.rand(32, 32, generator=generator))

    def forward(self, x):
        grown = pybuda.op.Exp("exp", pybuda.op.Matmul("mm1", x, self.w1))
        return pybuda.op.Add("add", grown, pybuda.op.Matmul("mm2", x, self.w2))

    def golden(self, x):
        return torch.exp(x @ self.w1.value()) + x @ self.w2.value()


X = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(2))


def error(got, want):
    return float((got - want).norm() / want.norm())


def run(**arguments):
    net = Net()
    device = TTDevice("tt0", module=net, **arguments)
    return error(device.run_forward((X,))[0], net.golden(X))


def test_numerics_of_device_types(monkeypatch):
    """PyBuda's golden ignores data formats unless it is told to quantise; other types round where the machine does."""
    exact, formats, machine = run(devtype=BackendType.Golden), run(), run(devtype=BackendType.Model)
    monkeypatch.setenv("TT_BACKEND_GOLDEN_QUANTIZE", "1")
    quantised = run(devtype=BackendType.Golden)
    assert exact < 1e-6
    assert quantised == formats > 1e-3
    assert machine > 1e-3 and machine != formats
    pybuda.set_configuration_options(default_df_override=DataFormat.Bfp2_b)
    assert run() > 10 * formats  # a format shows; monkeypatch has no part in devices without a type


def test_exact_runs_are_trained_exactly():
    """One SGD step on a Golden device is torch's to float32 rounding, in 16-bit formats."""
    net = Net()
    device = TTDevice(
        "tt0",
        devtype=BackendType.Golden,
        module=net,
        optimizer=pybuda.optimizers.SGD(learning_rate=0.01, device_params=True),
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("loss"))
    device.push_to_inputs(X)
    device.push_to_target_inputs(torch.zeros(1, 32, 32))
    weight = net.w1.value().clone().requires_grad_()
    (torch.exp(X @ weight) + X @ net.w2.value()).abs().mean().backward()
    expected = weight.detach() - 0.01 * weight.grad
    pybuda.run_training()
    checkpoint = device.get_parameter_checkpoint()
    assert sorted(checkpoint) == ["net.w1", "net.w2"]
    assert error(device.get_parameter_gradients()["net.w1"].value(), weight.grad) < 1e-5
    assert error(checkpoint["net.w1"].value(), expected) < 1e-6
    (listed,) = pybuda.get_parameter_checkpoint(device)
    assert torch.equal(listed["net.w1"].value(), checkpoint["net.w1"].value())


def test_first_inputs_with_the_microbatch_size():
    device = TTDevice("tt0", module=Net())
    device.push_to_inputs(torch.cat([X, X, X]))
    size, (first,) = device.get_first_inputs(peek=True)
    assert (size, first.shape) == (3, (3, 32, 32))
    assert device.get_first_inputs()[0] == 3
    with pytest.raises(TbudaError, match="no input has been pushed"):
        device.get_first_inputs()


def test_generate_graph_and_what_belongs_to_it():
    net = Net()
    device = TTDevice("tt0", module=net)
    batch = torch.cat([X, 2 * X])
    graph, outputs, between, inputs, target = device.generate_graph(
        Tensor.create_from_torch(batch), return_intermediate=True, graph_name="g", verify_cfg=VerifyConfig()
    )
    assert graph.name == "g" and target is None and set(between) == {"exp", "mm1", "add", "mm2"}
    assert torch.allclose(outputs[0].value(), net.golden(batch))
    assert torch.allclose(between["mm2"].value(), X @ net.w2.value())
    assert torch.equal(inputs[0].value(), batch)
    traced = device.generate_graph(Tensor.create_from_torch(X), trace_only=True)[1][0]
    assert traced.shape == (1, 32, 32) and not traced.has_value()
    with pytest.raises(TbudaError, match="belong together"):
        device.generate_graph(X, target_tensors=[X])
    device.place_loss_module(pybuda.op.loss.L1Loss("loss"))
    _, losses, _, _, target = device.generate_graph(X, target_tensors=[X])
    assert torch.allclose(losses[0].value().reshape(()), (net.golden(X) - X).abs().mean())
    assert torch.equal(target.value(), X)


def test_numbers_and_json_of_enumerations():
    assert [f.value for f in MathFidelity] == [0, 2, 3, 4, 255]
    assert [f.passes for f in MathFidelity if f is not MathFidelity.Invalid] == [1, 2, 3, 4]
    for kind in (DataFormat, MathFidelity):
        for member in kind:
            assert kind.from_json(member.to_json()) is member and member.to_json() == member.name
    with pytest.raises(TbudaError):
        DataFormat.from_json("Float17")
    with pytest.raises(TbudaError, match="LoFi, HiFi2"):
        pybuda.set_configuration_options(math_fidelity=MathFidelity.Invalid)


def test_a_compile_without_a_backend_hands_back_the_reference():
    net = Net()
    device = TTDevice("tt0", devtype=BackendType.NoBackend, arch=BackendDevice.Wormhole_B0, module=net)
    result = pybuda.pybuda_compile(device, "g", Tensor.create_from_torch(X), verify_cfg=VerifyConfig())
    assert torch.allclose(result.outputs[0].value(), net.golden(X))
    with pytest.raises(TbudaError, match="only compiles"):
        device.run_forward((X,))


@pytest.mark.parametrize("stride", [(2, 2), (3, 2), (2, 5)])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (3, 3, 3, 3), (1, 6, 0, 4)])
def test_weights_of_a_convolution_over_phases(stride, padding):
    """A strided convolution is one of stride 1 over the image's phases."""
    generator = torch.Generator().manual_seed(3)
    image = torch.randn(1, 3, 13, 10, generator=generator, dtype=torch.float64)
    weights = torch.randn(4, 3, 5, 4, generator=generator, dtype=torch.float64)
    pad = torch.nn.functional.pad
    whole = pad(image, (0, -10 % stride[1], 0, -13 % stride[0]))
    phases = torch.cat(
        [whole[:, :, i :: stride[0], j :: stride[1]] for i in range(stride[0]) for j in range(stride[1])], dim=1
    )
    prestrided, sides = sparse_utils.calculate_conv2d_prestride_weights_and_padding(weights, 13, 10, stride, padding)
    want = torch.nn.functional.conv2d(pad(image, padding), weights, stride=stride)
    assert torch.allclose(torch.nn.functional.conv2d(pad(phases, sides), prestrided), want)


def test_a_parameter_is_true_and_golden_outputs_are_torch():
    """`if weights:` asks whether there are any; `torch.sum(results.golden_outputs[0])` is a number."""
    assert pybuda.Parameter(torch.zeros(2, 3)) and pybuda.Parameter(4, 4)
    net = Net()
    result = pybuda.pybuda_compile(TTDevice("tt0", module=net), "g", Tensor.create_from_torch(X))
    assert torch.isclose(torch.sum(result.golden_outputs[0]), net.golden(X).sum())


def test_ops_of_an_output_fuse_before_a_nop():
    """The chain behind the matmul is one fused op with two steps; what untilizes is a nop, as in PyBuda."""
    device = TTDevice("tt0", module=Net())
    pybuda.config._get_global_compiler_config().manual_fuse(["exp", "add"])
    device.run_forward((X,))
    lowered = device.get_compiled_results().lowered_graph
    assert lowered.get_fused_ops() == [(2, [["exp", "add"]])]
    ops = device.result.netlist.graphs["fwd_0_0_temporal_epoch_0"].ops
    assert ops["_fused_op_0_output_nop_0"].untilize_output and not ops["_fused_op_0"].untilize_output


@pytest.mark.parametrize("names", ["(", ["exp", "add("], [3], ["a{9999999999}"]])
def test_fusing_by_hand_takes_patterns(names):
    """What is none is refused by the call that gives it, and no part of it stays."""
    config = pybuda.config._get_global_compiler_config()
    with pytest.raises(PipelineError, match="manual_fuse takes patterns of op names"):
        config.manual_fuse(names)
    assert config.op_names_manual_fuse == []


def test_constants_keep_their_names_in_the_netlist():
    """`input_<operand>_<op>`, folded on the way or not, and what a sparse product reads; as netlists of PyBuda."""

    class Three(pybuda.PyBudaModule):
        def forward(self, x):
            stacked = pybuda.op.Stack("stack0", torch.ones(1, 32, 32), x, axis=1)
            picked = pybuda.op.SparseMatmul("smm1", torch.eye(64).to_sparse(), torch.ones(1, 64, 32))
            return stacked, pybuda.op.SparseMatmul("smm2", torch.eye(32).to_sparse(), x), picked

    device = TTDevice("tt0", module=Three("three"))
    device.run_forward((X,))
    names = set(device.result.netlist.queues)
    assert {"input_0_stack0", "lc.input_tensor.smm2.0"} <= names
    with pytest.raises(TbudaError, match="backend_cluster_descriptor_path"):
        pybuda.set_configuration_options(device_config="galaxy")


def test_pickers_of_rows():
    rows = torch.arange(12.0)[:, None]
    picked = sparse_utils.create_flattened_padding_removal_sparse_picker_matrix(12, 1, 3, 4) @ rows
    assert picked[:6, 0].tolist() == [1, 2, 5, 6, 9, 10]
    spread = sparse_utils.create_reshape_flatten_sparse_picker_matrix(3, 12, 4) @ rows[:3]
    assert spread[:, 0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]


def test_operator_repositories_describe_operands():
    torch_ops = pybuda.op_repo.pytorch_operator_repository
    assert torch_ops.get_by_name("conv2d").full_name == "torch.nn.Conv2d"
    for repository in (torch_ops, pybuda.op_repo.pybuda_operator_repository):
        for op in repository.operators:
            assert 1 <= op.input_num_range.operands_min <= op.input_num_range.operands_max


@pytest.mark.parametrize(
    "call",
    [
        lambda x: pybuda.op.Resize2d("r", x, (16, 16), extrapolation_value=1.0),
        lambda x: pybuda.op.Transpose("t", x, 2, 3, z_dim_slice=1),
        lambda x: pybuda.op.Transpose("t", x, 2, 3, out_dtype=torch.float16),
        lambda x: pybuda.op.DRAMQueue("q", x, num_entries=4),
        lambda x: pybuda.op.Conv2d("c", x, [x, x]),
    ],
)
def test_arguments_without_a_form_are_refused(call):
    with pytest.raises(NotImplementedError, match="is not supported; "):
        call(Tensor.create_from_torch(torch.rand(1, 4, 8, 8)))


def test_coordinates_of_chips_point_to_the_cluster_descriptor():
    with pytest.raises(TbudaError, match="backend_cluster_descriptor_path"):
        TTDevice("tt0", chip_ids=[(0, 0), (1, 0)])


def test_fields_of_training_are_named_in_inference():
    with pytest.warns(UserWarning, match="VerifyConfig.scale_loss has no effect: it belongs to a training test_kind"):
        pybuda.verify.verify_module(Net(), [(1, 32, 32)], VerifyConfig(scale_loss=2.0))


class Numpy(torch.nn.Module):
    """A forward that goes through NumPy and back."""

    def forward(self, x):
        twice = torch.from_numpy(np.concatenate((x, x), axis=-1))
        return torch.cat((x, x), -1) * 2 + twice


def test_a_forward_that_calls_numpy():
    device = TTDevice("tt0", module=pybuda.PyTorchModule("numpy", Numpy()))
    assert error(device.run_forward((X,))[0], torch.cat((X, X), -1) * 3) < 0.01


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_whose_beginnings_are_an_input(mode):
    torch.manual_seed(1)
    model = torch.nn.EmbeddingBag(10, 32, mode=mode)
    places, begins = torch.arange(9, dtype=torch.int32) % 10, torch.tensor([0, 4, 4], dtype=torch.int32)

    class Bags(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = model

        def forward(self, indices, offsets):
            return torch.relu(self.bags(indices, offsets))

    device = TTDevice("tt0", module=pybuda.PyTorchModule("bags", Bags()))
    assert error(device.run_forward((places, begins))[0], torch.relu(model(places, begins))) < 0.01
    later = torch.tensor([0, 2, 7], dtype=torch.int32)
    assert error(device.run_forward((places, later))[0], torch.relu(model(places, later))) < 0.01


def test_dim_0_of_a_sum_with_a_matrix_is_no_microbatch():
    """One row and a square parameter give as many rows as all of them do: the rows are no elements."""

    class Rows(pybuda.PyBudaModule):
        def __init__(self):
            super().__init__("rows")
            self.square = pybuda.Parameter(torch.rand(64, 64, generator=torch.Generator().manual_seed(3)))

        def forward(self, x):
            return pybuda.op.Add("add", pybuda.op.ReduceSum("sum", x, dim=-1), self.square)

    module = Rows()
    x = torch.rand(64, 64)
    (have,) = TTDevice("tt0", module=module).run_forward((x,))
    assert have.shape == (64, 64)
    assert error(have, x.sum(-1, keepdim=True) + module.square.value()) < 0.01


def test_the_host_answers_by_the_names_for_each_framework():
    model = torch.nn.Linear(4, 3)
    device = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("linear", model))
    x = torch.rand(1, 4)
    (have,) = device.cpueval_forward_pt([x])
    torch.testing.assert_close(have, model(x).detach())
    assert pybuda.CPUDevice.forward_pt is pybuda.CPUDevice.forward
    assert pybuda.CPUDevice.compile_for_pt is pybuda.CPUDevice.compile_for


def test_backward_of_a_torch_module_on_the_host():
    """Two calls add up, as torch's gradients do."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh())
    module, x, gradient = pybuda.PyTorchModule("m", net), torch.randn(3, 8), torch.randn(3, 4)
    want = torch.autograd.grad(net(x), net[0].weight, gradient)[0]
    for _ in range(2):
        module.backward((module.forward(x), gradient))
    torch.testing.assert_close(net[0].weight.grad, 2 * want)
    with pytest.raises(TbudaError, match="takes pairs"):
        module.backward(gradient)


def test_fused_ops_have_numbers_and_what_is_named_stays_an_op():
    """`_fused_op_0` may be sized by its number, as in PyBuda; the name of an op inside means that op alone."""
    for name, expected in (("_fused_op_0", {"_fused_op_0": (1, 1)}), ("add", {"add": (1, 1)})):
        pybuda.pybuda_reset()
        device = TTDevice("tt0", module=Net())
        pybuda.config.override_op_size(name, (1, 1))
        device.run_forward((X,))
        placed = device.result.placement.ops
        assert {op: placed[op].size for op in expected} == expected
        assert ("add" in placed) == (name == "add")
