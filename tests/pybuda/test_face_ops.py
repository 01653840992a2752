"""Ops and modules whose conventions are PyBuda's own: "same" padding, volumes, names of parameters, shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError, ModelError, PipelineError
from tbuda_lab.core.frontend.pybuda import Parameter, PyBudaModule, Tensor
from tbuda_lab.pybuda import op
from tbuda_lab.pybuda.enums import RuntimeTensorTransformType
from tbuda_lab.pybuda.module import PyBudaModule as Placed
from tbuda_lab.pybuda.op.eval import sparse_utils
from tbuda_lab.pybuda.op.eval.sparse_utils import conv2d_padding_to_canonical
from tbuda_lab.pybuda.ttdevice import TTDevice


class Calls(Placed):
    function: Callable[..., Any]

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        super().__init__(name)
        self.__dict__["function"] = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def value(x: torch.Tensor) -> Tensor:
    return Tensor.create_from_torch(x)


X = torch.randn(1, 4, 5, 6, 7, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("kernel", "dilation", "pads"),
    [(3, 1, [1, 1, 1, 1]), (3, 2, [1, 1, 1, 1]), (4, 1, [2, 1, 2, 1]), ((2, 5), 1, [2, 2, 1, 0])],
)
def test_same_padding_of_convolutions_is_pybudas(kernel: Any, dilation: int, pads: list[int]) -> None:
    assert conv2d_padding_to_canonical("same", kernel) == pads
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    weights, image = torch.randn(2, 4, *sizes), X[:, :, 0]
    want = functional.conv2d(functional.pad(image, pads), weights, dilation=dilation)
    got = op.Conv2d("c", value(image), value(weights), padding="same", dilation=dilation).value()
    torch.testing.assert_close(got, want)


def test_same_padding_of_pools_is_half_a_kernel_on_every_side() -> None:
    image = torch.rand(1, 2, 16, 16)
    want = functional.max_pool2d(image, 2, 2, padding=1)
    assert want.shape[-1] == 9
    torch.testing.assert_close(op.MaxPool2d("p", value(image), 2, 2).value(), want)
    torch.testing.assert_close(
        op.AvgPool2d("p", value(image), 2, 2).value(), functional.avg_pool2d(image, 2, 2, padding=1)
    )
    weights = torch.randn(2, 3, 4, 4)
    want = functional.conv_transpose2d(image, weights, padding=2)
    torch.testing.assert_close(op.Conv2dTranspose("t", value(image), value(weights)).value(), want)
    with pytest.raises(ModelError, match="padding is"):
        op.Conv2d("c", value(image), value(torch.ones(1, 2, 3, 3)), padding="valid")


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("what", ["conv", "pool", "nearest", "linear"])
def test_volumes(what: str, last: bool) -> None:
    weights, bias = torch.randn(6, 2, 3, 2, 3), torch.randn(6)
    calls: dict[str, tuple[Callable[[Any], Tensor], torch.Tensor]] = {
        "conv": (
            lambda x: op.Conv3d("c", x, value(weights), value(bias), (2, 1, 2), 1, 1, 2, last),
            functional.conv3d(X, weights, bias, (2, 1, 2), 1, 1, 2),
        ),
        "pool": (
            lambda x: op.MaxPool3d("p", x, (2, 3, 2), 2, (1, 1, 0), channel_last=last),
            functional.max_pool3d(X, (2, 3, 2), 2, (1, 1, 0)),
        ),
        "nearest": (
            lambda x: op.Resize3d("r", x, (10, 3, 14), channel_last=last),
            functional.interpolate(X, (10, 3, 14)),
        ),
        "linear": (
            lambda x: op.Resize3d("r", x, (10, 12, 7), "linear", channel_last=last),
            functional.interpolate(X, (10, 12, 7), mode="trilinear"),
        ),
    }
    call, want = calls[what]
    got = call(value(X.movedim(1, -1) if last else X)).value()
    torch.testing.assert_close(got.movedim(-1, 1) if last else got, want, rtol=1e-4, atol=1e-5)


def test_a_volume_runs_on_the_device() -> None:
    device = TTDevice("tt0", module=Calls("m", lambda x: op.MaxPool3d("p", x, 2, 2, 0)))
    (got,) = device.run_forward((X,))
    torch.testing.assert_close(got, functional.max_pool3d(X, 2, 2), rtol=0, atol=0.02)


def test_index_copy() -> None:
    x, rows = torch.arange(18.0).reshape(6, 3), torch.full((3, 3), -1.0) * torch.tensor([[1.0], [2.0], [3.0]])
    index = torch.tensor([4, 0, 4])
    got = op.IndexCopy("i", value(x), value(index), value(rows), 0).value()
    want = x.clone()
    want[0], want[4] = rows[1], rows[2]
    assert torch.equal(got, want)
    with pytest.raises(ModelError, match="places"):
        op.IndexCopy("i", value(x), value(torch.tensor([6, 0, 1])), value(rows), 0)


@pytest.mark.parametrize("dim", [0, -2, -1])
def test_index_copy_takes_its_places_from_an_input(dim: int) -> None:
    class Copies(PyBudaModule):
        def forward(self, x: Any, index: Any, rows: Any) -> Any:
            return op.IndexCopy("copy", x, index, rows, dim)

    x = torch.randn(6, 6, 6)
    rows, index = torch.randn([2 if d == dim % 3 else 6 for d in range(3)]), torch.tensor([4, 1])
    (got,) = TTDevice("tt0", module=Copies("m")).run_forward((x, index, rows))
    torch.testing.assert_close(got, x.index_copy(dim, index, rows), rtol=0.01, atol=0.02)
    with pytest.raises(ModelError, match=r"2 slices along dim"):
        TTDevice("tt1", module=Copies("m")).run_forward((x, index, x))


def test_buda_pad_fills_tiles_only_where_it_pads() -> None:
    x = torch.ones(1, 40, 50)
    assert op.BudaPad("p", value(x), (0, 0)).shape == (1, 40, 50)
    padded = op.BudaPad("p", value(x), (1, 0), 7.0).value()
    assert padded.shape == (1, 96, 50) and float(padded[0, 63].sum()) == 0.0 and float(padded[0, 64, 0]) == 7.0


def test_dim_0_is_a_microbatch_only_where_the_outputs_have_it() -> None:
    vector = TTDevice("v", module=Calls("cut", lambda x: op.Index("i", x, 0, 8, 40)))
    x = torch.rand(64)
    torch.testing.assert_close(vector.run_forward((x,))[0], x[8:40], rtol=0, atol=0.01)
    y = torch.rand(4, 64)
    folded = TTDevice("f", module=Calls("fold", lambda t: op.Reshape("r", t, (1, 2, 2, 64))))
    torch.testing.assert_close(folded.run_forward((y,))[0], y.reshape(1, 2, 2, 64), rtol=0, atol=0.01)
    each = TTDevice("e", module=Calls("each", lambda t: op.Sqrt("s", t)))
    assert each.run_forward((y,))[0].shape == (4, 64) and each.result is not None
    assert (each.result.options.microbatch, folded.result.options.microbatch) == (4, 1)  # type: ignore[union-attr]


def test_names_of_parameters_and_constants() -> None:
    class Named(PyBudaModule):
        def __init__(self) -> None:
            super().__init__("m")
            self.gains = {"g1": Parameter(2, 2), "g2": Parameter(3, 0)}
            self.add_parameter("z", Parameter(2), prepend_name=True)
            self.add_constant("c", prepend_name=True, shape=(2,))

    module = Named()
    assert module.get_parameter("g2") is module.gains["g2"] and module.gains["g2"].fill().numel() == 0
    assert module.get_parameter("z") is module.get_parameter("m.z")
    assert torch.equal(module.get_constant("c").value(), torch.zeros(2))
    module.set_constant("m.c", torch.ones(2))
    assert torch.equal(module.get_constant("c").value(), torch.ones(2))


def test_torch_modules_have_buffers_and_take_parameters() -> None:
    module = pybuda.PyTorchModule("t", torch.nn.BatchNorm2d(3))
    module.add_parameter("extra", Parameter(torch.ones(2)), prepend_name=True)
    matches = {p.get_name(): p.requires_grad for p in module.get_parameters()}
    assert matches["running_mean"] is False and matches["weight"] is True and "extra" in matches


def test_a_tapout_queue_has_what_the_op_gives() -> None:
    module = Calls("m", lambda x: op.Exp("last", op.Sqrt("root", x)))
    handle = module.insert_tapout_queue_for_op("root", 0)
    x = torch.rand(1, 32, 64)
    TTDevice("tt0", module=module)
    torch.testing.assert_close(module.run(x)[0].value(), x.sqrt().exp(), rtol=0.02, atol=0.02)
    retained = pybuda.get_intermediates_queue().get_nowait()[handle].value()
    torch.testing.assert_close(retained[0], x.sqrt(), rtol=0.02, atol=0.02)
    with pytest.raises(RuntimeError, match="one output"):
        module.insert_tapout_queue_for_op("root", 1)


def test_tapout_queues_of_ops_that_passes_fold_or_take_apart() -> None:
    """A relu and a bias would go into the matmul, whose name then stands for other numbers; a softmax becomes several
    ops."""
    weights = torch.randn(64, 64, generator=torch.Generator().manual_seed(4)) / 8

    def forward(x: Tensor) -> Tensor:
        product = op.Matmul("product", x, Parameter(weights, name="w"))
        moved = op.Add("moved", product, Parameter(torch.ones(64), name="b"))
        return op.Reshape("last", op.Softmax("soft", op.Relu("relu", moved), dim=-1), (1, 32, 128))

    module = Calls("m", forward)
    x = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(5))
    want = {"product": x @ weights, "moved": x @ weights + 1, "relu": (x @ weights + 1).relu()}
    want["soft"] = want["relu"].softmax(-1)
    handles = {name: module.insert_tapout_queue_for_op(name) for name in want}
    tt0 = TTDevice("tt0", module=module)
    tt0.push_to_inputs(x)
    out = pybuda.run_inference().get()
    assert len(out) == 1 and out[0].value().shape == (2, 32, 128)
    retained = pybuda.get_intermediates_queue().get_nowait()
    for name, value in want.items():
        torch.testing.assert_close(retained[handles[name]].value()[:, 0], value, rtol=0.02, atol=0.02)
    with pytest.raises(NotImplementedError, match="in an image"):
        tt0.compile_to_image("never.tti", sample_inputs=[x])


def test_shapes_in_tiles() -> None:
    shape = value(torch.ones(2, 33, 64)).shape
    assert (shape.w, shape.z, shape.r, shape.c, shape.rt, shape.ct, shape.volume()) == (1, 2, 33, 64, 2, 2, 4224)


def test_dropout_drops_by_its_seed() -> None:
    x = torch.rand(1, 3, 40, 33)
    dropped = op.Dropout("d", value(x), p=0.4, training=True, seed=3).value()
    mask = dropped != 0
    torch.testing.assert_close(dropped, torch.where(mask, x / 0.6, 0.0))
    assert abs(float(mask.float().mean()) - 0.6) < 0.03
    assert torch.equal(mask, op.Dropout("d", value(x), p=0.4, seed=3).value() != 0)
    assert not torch.equal(mask, op.Dropout("d", value(x), p=0.4, seed=4).value() != 0)
    assert torch.equal(op.Dropout("d", value(x), p=0.4, training=False).value(), x)
    with pytest.raises(PipelineError, match="probability"):
        op.Dropout("d", value(x), p=1.0)


def test_average_pool_with_a_divisor() -> None:
    x = X[:, :, 0]
    got = op.AvgPool2d("p", value(x), 3, stride=1, padding=1, divisor_override=7).value()
    torch.testing.assert_close(got, functional.avg_pool2d(x, 3, 1, 1, divisor_override=7))
    with pytest.raises(PipelineError, match="divisor_override"):
        op.AvgPool2d("p", value(x), 3, divisor_override=0)


def test_transpose_takes_the_arguments_of_generated_code() -> None:
    x = X[:, :, 0]
    got = op.Transpose("", value(x), dim0=-3, dim1=-1, z_dim_slice=7, out_dtype=torch.float32).value()
    assert torch.equal(got, x.transpose(-3, -1))
    with pytest.raises(NotImplementedError, match="z_dim_slice=3"):
        op.Transpose("", value(x), dim0=-3, dim1=-1, z_dim_slice=3)


def test_a_parameter_without_a_value_has_none() -> None:
    weight = Parameter(3, 4)
    assert weight.value() is None and not weight.has_value()
    weight.set_value(torch.ones(3, 4))
    assert torch.equal(weight.value(), torch.ones(3, 4))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
@pytest.mark.parametrize(
    ("what", "reference"),
    [
        (lambda x: op.Matmul("mm", x, torch.full((32, 16), 0.5)), lambda x: x @ torch.full((32, 16), 0.5)),
        (lambda x: op.ReduceAvg("avg", op.Add("add", x, x), -1), lambda x: (x + x).mean(-1, True)),
        (lambda x: op.Softmax("soft", op.Transpose("t", x, -1, -2), dim=-1), lambda x: x.mT.softmax(-1)),
        (lambda x: op.Gelu("gelu", x), functional.gelu),
    ],
    ids=["matmul", "average", "softmax", "gelu"],
)
def test_inputs_of_integers_are_floats_to_ops_of_floats(
    what: Callable[..., Any], reference: Callable[..., torch.Tensor], dtype: torch.dtype
) -> None:
    x = torch.randint(-8, 8, (1, 32, 32), generator=torch.Generator().manual_seed(5), dtype=dtype)
    device = TTDevice("t", module=Calls("m", what))
    device.push_to_inputs(x)
    (output,) = pybuda.run_inference().get()
    torch.testing.assert_close(output.value(), reference(x.float()), rtol=0.02, atol=0.02)


def test_an_index_outside_the_table_is_refused_with_the_table_s_size() -> None:
    device = TTDevice("t", module=Calls("m", lambda x: op.Embedding("look", torch.ones(50, 32), x)))
    device.push_to_inputs(torch.tensor([[3, 50]]))
    with pytest.raises(InputError, match="from 3 to 50 into a table of 50 rows"):
        pybuda.run_inference().get()


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride"),
    [
        (3, (8, 8), (3, 3), 2),
        (3, (42, 42), (7, 7), 3),
        (7, (18, 15), (7, 7), 2),
        (3, (16, 16), (3, 3), 1),
        (64, (16, 16), (3, 3), 2),
        (32, (8, 8), (1, 1), 2),
        (3, (16, 12), (3, 3), (2, 1)),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_whether_the_host_cuts_an_image_is_known_before_the_compile(
    channels: int, size: tuple[int, int], kernel: tuple[int, int], stride: Any, enabled: bool
) -> None:
    """As the compile does it, seen in what the host does to the input and in the strides of the device's ops."""
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(enable_conv_prestride=enabled)
    pads = conv2d_padding_to_canonical("same", kernel)
    weights = torch.randn(31, channels, *kernel)
    x = torch.randn(1, channels, *size)
    strides = stride if isinstance(stride, tuple) else (stride, stride)
    expected = sparse_utils.can_conv2d_prestride(x.shape, weights.shape, strides, 1, 1, pads, False, True)
    assert not sparse_utils.can_conv2d_prestride(x.shape, weights.shape, strides, 1, 1, pads, False, False)
    assert enabled or not expected
    module = nn.Conv2d(channels, 31, kernel, stride, bias=False).eval()
    module.weight.data.copy_(weights)
    placed = pybuda.PyTorchModule("conv", nn.Sequential(nn.ZeroPad2d(pads), module))
    device = TTDevice("tt0", devtype=pybuda.BackendType.Golden, module=placed)
    device.push_to_inputs(x)
    (result,) = pybuda.run_inference().get()
    torch.testing.assert_close(result.value(), module(functional.pad(x, pads)), rtol=1e-3, atol=1e-3)
    state = pybuda.TTDeviceImage.create_image_from_device(device).compiled_graph_state
    (transform,) = state.ordered_input_runtime_tensor_transforms
    assert (transform.type is RuntimeTensorTransformType.Prestride) == expected
    if expected:
        assert (transform.stride_height, transform.stride_width) == strides
        assert transform.original_shape == list(x.shape)
    pybuda.shutdown()
    pybuda.pybuda_reset()
