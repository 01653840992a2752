"""The names that scripts written for PyBuda use exist, mean what they say, and cost nothing until they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import reduce

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.ops.evaluate import evaluate

SURFACE = {
    "": "PyBudaModule Parameter VerifyConfig PyTorchModule TTDevice CompilerConfig pybuda_compile Tensor op "
    "BackendType run_inference set_configuration_options CPUDevice TFModule initialize_pipeline "
    "run_forward CompileDepth DataFormat BackendDevice optimizers set_epoch_break MathFidelity SGD "
    "insert_nop run_backward get_parameter_gradients run_training set_chip_break detect_available_devices "
    "run_generate OnnxModule run_optimizer tensor error_raised set_device_pipeline verify AdamW LAMB LARS "
    "TTDeviceImage ci configure_mixed_precision get_intermediates_queue get_parameter_checkpoint "
    "get_tenstorrent_device is_silicon pybuda query run_schedulers shutdown tvm_to_python "
    "update_device_parameters Module DeviceMode override_op_size pybuda_reset torch_schedulers "
    "pybudaglobal config schedulers transformers torch_compile utils run module device cpudevice ttdevice "
    "op_repo compile Adam sync",
    "BackendDevice": "Grayskull Wormhole_B0 Blackhole",
    "BackendType": "Golden Silicon NoBackend Model Versim Emulation",
    "CompileDepth": "BUDA_GRAPH_PRE_PLACER PRE_LOWERING_PASS BACKEND_GOLDEN_VERIFY FULL GENERATE_INITIAL_GRAPH "
    "BALANCER_PASS POST_INITIAL_GRAPH_PASS POST_PATTERN_MATCHER CONSTEVAL_GRAPH GENERATE_NETLIST "
    "INIT_COMPILE AUTOGRAD POST_AUTOGRAD_PASS OPTIMIZED_GRAPH PRE_NETLIST_PASS",
    "DataFormat": "Float32 Float16_b Bfp8_b Int8 Float16 Bfp8 Bfp4_b UInt16 Bfp2 Bfp2_b Bfp4 Lf8 RawUInt16 RawUInt32 "
    "RawUInt8 Int32 Invalid",
    "MathFidelity": "HiFi4 HiFi3 HiFi2 LoFi",
    "Parameter": "create_from_torch",
    "TTDevice": "load_image place_module push_to_inputs compile_to_image get_device_config remove_modules",
    "TTDeviceImage": "load_from_disk save_to_disk create_image_from_device get_input_shapes get_target_shapes info",
    "Tensor": "create_from_torch",
    "_C": "DataFormat Float16_b MathFidelity NodeEpochType.Backward UnsupportedHWOpsError",
    "tti": "TTDeviceImage",
    "_C.backend_api": "BackendDevice BackendType DeviceMode.CompileOnly DeviceMode.CompileAndRun "
    "detect_available_silicon_devices get_output",
    "_C.balancer": "OpOverride",
    "_C.graph": "RuntimeTensorTransformType.Prestride",
    "_C.placer": "DRAMPlacementAlgorithm.CLOSEST DRAMPlacementAlgorithm.GREATEST_CAPACITY "
    "DRAMPlacementAlgorithm.ROUND_ROBIN",
    "ci": "create_symlink",
    "compile": "_get_global_compiler_config",
    "config": "_get_global_compiler_config override_op_size override_t_stream_shape override_t_stream_dir "
    "CompileDepth override_u_kt insert_fracture_group set_configuration_options configure_mixed_precision "
    "override_op_placement set_epoch_break PerfTraceLevel.VERBOSE override_dram_queue_placement "
    "_set_pybuda_override_veto CompilerConfig DataFormat insert_nop "
    "internal_override_output_buffer_multiplier override_input_buffer_multiplier "
    "override_multi_op_fracture_factor",
    "device": "Device",
    "module": "PyBudaModule PyTorchModule",
    "op": "Multiply Matmul Add Transpose Reshape Pad Clip nn LeakyRelu Relu Buffer Gelu Exp VStack HSlice "
    "HStack VSlice Softmax BudaPad Subtract Conv2d Sqrt Concatenate Reciprocal ReduceAvg SparseMatmul "
    "BudaUnpad PadTile Select Narrow Index Stack ReduceSum Constant Log Where Broadcast Identity "
    "Layernorm ReduceMax IndexCopy Repeat Resize2d Argmax Equal Greater GreaterEqual Heaviside Interleave "
    "Less LessEqual Max NotEqual BinaryStack Conv3d Dropout Embedding MaxPool3d Min PixelShuffle Pow "
    "Power Resize3d Abs Sigmoid Sine Cosine Tanh CumSum LogicalNot LogicalAnd Divide Tilize "
    "Conv2dTranspose MaxPool2d AvgPool2d MaxPool1d Batchnorm LogSoftmax AdvIndex Unsqueeze Squeeze "
    "DRAMQueue Quantize Dequantize Requantize BudaRequantize GroupedReduceAvg MaxPool2dModule",
    "op.eval": "compare_tensor_to_golden sparse_utils.conv2d_padding_to_canonical "
    "sparse_utils.calculate_conv2d_output_dimensions common.compare_tensor_to_golden "
    "sparse_utils.create_conv2d_sparse_picker_matrix "
    "create_flattened_padding_removal_sparse_picker_matrix create_reshape_flatten_sparse_picker_matrix "
    "sparse_utils.calculate_conv2d_prestride_weights_and_padding "
    "sparse_utils.calculate_conv2d_transpose_output_dimensions sparse_utils.can_conv2d_prestride "
    "does_prestriding_improve_perf",
    "op.loss": "CrossEntropyLoss L1Loss",
    "op.nn": "Layernorm Softmax Conv2dModule MaxPool2dModule Linear AvgPool2dModule ConvTranspose2dModule",
    "op.tm": "Transpose Select",
    "op_repo": "TensorShape OperatorDefinition OperatorParamNumber OperatorRepository ShapeCalculationContext "
    "OperatorParam pybuda_operator_repository pytorch_operator_repository datatypes.TensorShape",
    "optimizers": "SGD",
    "pybudaglobal": "TILE_DIM pybuda_reset get_devices",
    "query": "name_regex",
    "schedulers": "LearningRateScheduler",
    "tensor": "Tensor to_pt_tensors",
    "torch_schedulers": "TorchLearningRateScheduler",
    "transformers.pipeline": "pipeline",
    "ttdevice": "get_device_config",
    "tvm_to_python": "compile_tvm_to_python",
    "utils": "align_up_tile round_up_div",
    "verify": "verify_module VerifyConfig TestKind.INFERENCE TestKind.TRAINING TestKind.TRAINING_RECOMPUTE "
    "verify_module_pipeline config.TestKind config.VerifyConfig config.NebulaGalaxy.chip_ids config.DataFormat "
    "config.BackendDevice config.BackendType backend.verify_module utils",
    "run": "api.run_inference run_inference get_loss_queue",
}
NAMES = [f"{home}.{name}".lstrip(".") for home, names in SURFACE.items() for name in names.split()]


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str) -> None:
    assert reduce(getattr, name.split("."), pybuda) is not None


def test_the_import_loads_nothing_heavy() -> None:
    program = "import sys, tbuda_lab; print([m for m in ('torch', 'numpy', 'scipy') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


WAYS = [
    "import tbuda_lab as pybuda; pybuda.op.nn.Linear; pybuda.verify.config.VerifyConfig; pybuda.config.override_u_kt",
    "from tbuda_lab import PyBudaModule, TTDevice, pybuda; assert pybuda.TTDevice is TTDevice",
    "import tbuda_lab.pybuda.op\nfrom tbuda_lab.pybuda.verify.backend import verify_module\n"
    "from tbuda_lab.pybuda._C.backend_api import BackendType",
    "from tbuda_lab.pybuda.run.api import detect_available_devices; assert detect_available_devices() == []",
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
def test_ways_of_importing() -> None:
    """Each as the first import of the package: in a copy of a process that has torch alone."""
    program = (
        "import os, sys, torch, traceback\n"
        "assert not [m for m in sys.modules if m.startswith('tbuda_lab')]\n"
        "for i, statement in enumerate(sys.argv[1:]):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            exec(statement)\n"
        "        except BaseException:\n"
        "            traceback.print_exc(); os._exit(1)\n"
        "        os._exit(0)\n"
        "    print(i, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program, *WAYS], check=True, capture_output=True, text=True)
    assert answer.stdout.splitlines() == [f"{i} 0" for i in range(len(WAYS))], answer.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        pybuda.no_such_name  # noqa: B018
    assert "TTDevice" in dir(pybuda) and "op" in dir(pybuda)


A, B = torch.rand(1, 2, 32, 64) + 0.1, torch.rand(1, 2, 32, 64) + 0.1
IMAGE = torch.randn(1, 4, 8, 8)
OPS = {
    "Abs": (lambda o, a, b: o.Abs("", a), lambda a, b: a.abs()),
    "Add": (lambda o, a, b: o.Add("", a, b), lambda a, b: a + b),
    "Subtract": (lambda o, a, b: o.Subtract("", a, b), lambda a, b: a - b),
    "Divide": (lambda o, a, b: o.Divide("", a, b), lambda a, b: a / b),
    "Max": (lambda o, a, b: o.Max("", a, b), torch.maximum),
    "Heaviside": (lambda o, a, b: o.Heaviside("", a, b), torch.heaviside),
    "GreaterEqual": (lambda o, a, b: o.GreaterEqual("", a, b), lambda a, b: (a >= b).float()),
    "Where": (lambda o, a, b: o.Where("", o.Less("", a, b), a, b), torch.minimum),
    "Pow": (lambda o, a, b: o.Pow("", a, 3), lambda a, b: a**3),
    "Power": (lambda o, a, b: o.Power("", a, b), torch.pow),
    "Clip": (lambda o, a, b: o.Clip("", a, min=0.3, max=0.7), lambda a, b: a.clamp(0.3, 0.7)),
    "Relu": (lambda o, a, b: o.Relu("", a, 0.5, "min"), lambda a, b: torch.where(a >= 0.5, a, 0)),
    "Relu max": (lambda o, a, b: o.Relu("", a, 0.5, mode="max"), lambda a, b: a.clamp(0, 0.5)),
    "Argmax": (lambda o, a, b: o.Argmax("", a, dim=-1), lambda a, b: a.argmax(-1, keepdim=True).float()),
    "Argmax all": (lambda o, a, b: o.Argmax("", a), lambda a, b: a.argmax().float().reshape(1, 1, 1, 1)),
    "CumSum": (lambda o, a, b: o.CumSum("", a, axis=2), lambda a, b: a.cumsum(2)),
    "Matmul": (lambda o, a, b: o.Matmul("", a, o.Transpose("", b, -2, -1)), lambda a, b: a @ b.mT),
    "ReduceSum": (lambda o, a, b: o.ReduceSum("", a, dim=1), lambda a, b: a.sum(1, keepdim=True)),
    "ReduceMax": (
        lambda o, a, b: o.ReduceMax("", a, dim=-1, stride=16),
        lambda a, b: a.unflatten(-1, (4, 16)).amax(-1),
    ),
    "GroupedReduceAvg": (
        lambda o, a, b: o.GroupedReduceAvg("", a, -1, 4, True),
        lambda a, b: a.unflatten(-1, (4, 16)).mean(-1, keepdim=True).expand(1, 2, 32, 4, 16).flatten(-2),
    ),
    "HSlice": (lambda o, a, b: o.HSlice("", a, 2), lambda a, b: torch.stack(a.chunk(2, -1), 2).flatten(1, 2)),
    "HStack": (lambda o, a, b: o.HStack("", a), lambda a, b: torch.cat([a[:, :1], a[:, 1:]], -1)),
    "VSlice": (lambda o, a, b: o.VSlice("", a, 2), lambda a, b: a.reshape(1, 4, 16, 64)),
    "VStack": (lambda o, a, b: o.VStack("", a, 2), lambda a, b: a.reshape(1, 1, 64, 64)),
    "Index": (lambda o, a, b: o.Index("", a, 2, 3, -4, 2), lambda a, b: a[:, :, 3:-4:2]),
    "Index one": (lambda o, a, b: o.Index("", a, 2, -3), lambda a, b: a[:, :, -3:-2]),
    "Select": (
        lambda o, a, b: o.Select("", a, 3, (4, 8), stride=32),
        lambda a, b: torch.cat([a[..., 4:12], a[..., 36:44]], -1),
    ),
    "Select one": (lambda o, a, b: o.Select("", a, 1, 1), lambda a, b: a[:, 1:]),
    "Pad": (lambda o, a, b: o.Pad("", a, (1, 2, 3, 4)), lambda a, b: torch.nn.functional.pad(a, (1, 2, 3, 4))),
    "Pad last": (
        lambda o, a, b: o.Pad("", a, (1, 2), "replicate", channel_last=True),
        lambda a, b: torch.cat([a[:, :, :1], a, a[:, :, -1:], a[:, :, -1:]], 2),
    ),
    "Concatenate": (lambda o, a, b: o.Concatenate("", a, b, axis=-2), lambda a, b: torch.cat([a, b], -2)),
    "Stack": (lambda o, a, b: o.Stack("", a, b, axis=1), lambda a, b: torch.stack([a, b], 1)),
    "BinaryStack": (lambda o, a, b: o.BinaryStack("", a, b, -1), lambda a, b: torch.stack([a, b], -1).flatten(-2)),
    "Interleave": (
        lambda o, a, b: o.Interleave("", a, b, axis=-3, stride=1),
        lambda a, b: torch.stack([a, b], 2).flatten(1, 2),
    ),
    "Broadcast": (
        lambda o, a, b: o.Broadcast("", o.Index("", a, 1, 0, 1), 1, 3),
        lambda a, b: a[:, :1].expand(1, 3, 32, 64),
    ),
    "Repeat": (lambda o, a, b: o.Repeat("", a, [1, 2, 1, 1]), lambda a, b: a.repeat(1, 2, 1, 1)),
    "Narrow": (lambda o, a, b: o.Narrow("", a, -1, 3, 5, 64), lambda a, b: a[..., 3:8]),
    "PadTile": (
        lambda o, a, b: o.PadTile("", o.Index("", a, -1, 0, 40), -1, 40),
        lambda a, b: torch.nn.functional.pad(a[..., :40], (0, 24)),
    ),
    "BudaPad": (
        lambda o, a, b: o.BudaUnpad("", o.BudaPad("", a, (1, 2), 5.0), (33, 64), (1, 2)),
        lambda a, b: torch.nn.functional.pad(a, (0, 0, 0, 1), value=5.0),
    ),
    "Identity": (lambda o, a, b: o.Identity("", a, unsqueeze="unsqueeze", unsqueeze_dim=0), lambda a, b: a[None]),
    "Softmax": (lambda o, a, b: o.Softmax("", a, dim=-1, stable=True), lambda a, b: a.softmax(-1)),
    "Layernorm": (
        lambda o, a, b: o.Layernorm("", a, torch.ones(64), torch.zeros(64)),
        lambda a, b: torch.nn.functional.layer_norm(a, (64,)),
    ),
    "operators": (lambda o, a, b: 2 - (a * 3 + b) / 4 - 1 + 2 * a, lambda a, b: 2 - (a * 3 + b) / 4 - 1 + 2 * a),
    "Constant": (lambda o, a, b: o.Multiply("", a, o.Constant("", constant=2.5)), lambda a, b: a * 2.5),
    "SparseMatmul": (
        lambda o, a, b: o.SparseMatmul("", torch.eye(32).flip(0).to_sparse(), a),
        lambda a, b: a.flip(-2),
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_ops_trace_and_compute(name: str) -> None:
    """An op gives torch's answer twice: computed at once, and as a node of a traced graph."""
    ours, theirs = OPS[name]
    want = theirs(A, B)
    at_once = ours(pybuda.op, pybuda.Tensor.create_from_torch(A), pybuda.Tensor.create_from_torch(B)).value()
    torch.testing.assert_close(at_once, want, rtol=1e-5, atol=1e-5)

    class Module(pybuda.PyBudaModule):
        def forward(self, a: pybuda.Tensor, b: pybuda.Tensor) -> pybuda.Tensor:
            return ours(pybuda.op, a, b)

    from tbuda_lab.core.frontend import feeds, from_pybuda

    graph = from_pybuda(Module("module"), (A, B))
    (traced,) = evaluate(graph, feeds(graph, (A, B))).values()
    torch.testing.assert_close(traced, want, rtol=1e-5, atol=1e-5)


def test_convolution_and_pooling_ops() -> None:
    weights, bias = torch.randn(6, 4, 3, 3), torch.randn(6)
    image = pybuda.Tensor.create_from_torch(IMAGE)
    conv = pybuda.op.Conv2d("c", image, weights, bias, stride=2, padding=[1, 1, 1, 1]).value()
    torch.testing.assert_close(conv, torch.nn.functional.conv2d(IMAGE, weights, bias, 2, 1))
    same = pybuda.op.Conv2d("c", image, weights, dilation=2).value()  # pads kernel // 2, as PyBuda does
    torch.testing.assert_close(same, torch.nn.functional.conv2d(IMAGE, weights, None, 1, 1, 2))
    last = pybuda.op.Conv2d("c", IMAGE.permute(0, 2, 3, 1), weights, channel_last=True).value()
    torch.testing.assert_close(last.permute(0, 3, 1, 2), torch.nn.functional.conv2d(IMAGE, weights, padding=1))
    pooled = pybuda.op.MaxPool2d("p", image, 3, stride=2, padding=1).value()
    torch.testing.assert_close(pooled, torch.nn.functional.max_pool2d(IMAGE, 3, 2, 1))
    means = pybuda.op.AvgPool2d("p", image, (2, 2), stride=2, padding=0).value()
    torch.testing.assert_close(means, torch.nn.functional.avg_pool2d(IMAGE, 2))
    line = torch.randn(1, 4, 10)
    torch.testing.assert_close(
        pybuda.op.MaxPool1d("p", line, 3, 2, 1).value(), torch.nn.functional.max_pool1d(line, 3, 2, 1)
    )
    resized = pybuda.op.Resize2d("r", image, [16, 16], method="bilinear").value()
    torch.testing.assert_close(resized, torch.nn.functional.interpolate(IMAGE, (16, 16), mode="bilinear"))


def test_sparse_picker_of_a_convolution_tap() -> None:
    """Pickers of all taps, times the weights, give the convolution."""
    utils = pybuda.op.eval.sparse_utils
    padding = utils.conv2d_padding_to_canonical("same", (3, 3))
    assert padding == [1, 1, 1, 1]
    assert utils.calculate_conv2d_output_dimensions(8, 8, (3, 3), 2, padding) == (4, 4)
    weights = torch.randn(6, 4, 3, 3)
    rows = IMAGE[0].flatten(1).T
    total = torch.zeros(16, 6)
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            picker = utils.create_conv2d_sparse_picker_matrix(8, 8, dy, dx, 3, 3, 2, padding)
            total += (picker @ rows) @ weights[:, :, dy + 1, dx + 1].T
    want = torch.nn.functional.conv2d(IMAGE, weights, stride=2, padding=1)[0].flatten(1).T
    torch.testing.assert_close(total, want, rtol=1e-4, atol=1e-4)


def test_what_is_not_supported_says_so() -> None:
    from tbuda_lab.core.errors import TbudaError

    with pytest.raises(NotImplementedError, match="not supported") as caught:
        pybuda.op.DRAMQueue("q", A, num_entries=4)
    assert isinstance(caught.value, TbudaError)


def test_operator_repositories() -> None:
    repo = pybuda.op_repo.pybuda_operator_repository
    assert len(repo.operators) == 44
    for operator in repo.operators:
        assert reduce(getattr, operator.full_name.split(".")[1:], pybuda) is not None, operator.full_name
    for operator in pybuda.op_repo.pytorch_operator_repository.operators:
        assert reduce(getattr, operator.full_name.split(".")[1:], torch) is not None
    assert repo.get_by_name("matmul").input_num == 2
    with pytest.raises(KeyError, match="no_such"):
        repo.get_by_name("no_such")
