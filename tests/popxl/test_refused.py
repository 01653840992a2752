"""Bad programs: each is refused by type with what is wrong, where it is written or where it runs, and leaves nothing
half attached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import ops

HERE = Path(__file__).name
Case = tuple[Callable[[popxl.Ir], Any], int, type[Exception], str]


def ones(*shape: int, dtype: Any = np.float32) -> popxl.Variable:
    return popxl.variable(np.ones(shape, dtype))


def buffer() -> popxl.RemoteBuffer:
    return popxl.remote_buffer((2,), popxl.float32, 2)


def image() -> popxl.Variable:
    return ones(1, 1, 5, 5)


def graph(ir: popxl.Ir, function: Callable[..., Any], *inputs: popxl.Tensor) -> popxl.Graph:
    return ir.create_graph(function, *inputs)


def circle(ir: popxl.Ir) -> None:
    """Two graphs that call each other."""
    first, second = ir.create_empty_graph("first"), ir.create_empty_graph("second")
    for caller, called in ((first, second), (second, first)):
        with caller:
            ops.call(called)


def twice(ir: popxl.Ir) -> None:
    """A product of a tensor by itself: both gradients by it."""
    x = ones(2)
    square = graph(ir, lambda a, b: a * b, x, x)
    grads = popxl.transforms.autodiff(square)
    call = ops.call_with_info(square, x, x)
    back = ops.call_with_info(grads.graph, ones(2), inputs_dict=grads.inputs_dict(call))
    grads.fwd_parent_ins_to_grad_parent_outs(call, back)


FOREIGN = popxl.Ir().create_graph(ops.relu, popxl.TensorSpec((2,), popxl.float32))


WRITTEN: dict[str, Case] = {
    "shapes of a product": (lambda ir: ones(2, 3) @ ones(2, 3), 1, popxl.popart_exception, "cannot be multiplied"),
    "types of a sum": (lambda ir: ones(2) + ones(2, dtype=np.int32), 1, popxl.popart_exception, "different types"),
    "a fraction as a size": (lambda ir: ops.reshape(ones(2, 3), (3.0, 2)), 1, TypeError, "no whole number"),
    "an entry behind the last": (lambda ir: ops.remote_load(buffer(), 2), 1, ValueError, "2 entries, and none at 2"),
    "an entry before the first": (lambda ir: ops.remote_load(buffer(), -1), 1, ValueError, "none at -1"),
    "a variable behind the last": (
        lambda ir: popxl.remote_variable(np.ones(2, np.float32), buffer(), 2), 1, ValueError, "none at 2"),
    "a stride that does not divide": (lambda ir: ir.replica_grouping(stride=3), 8, ValueError, "3 does not divide"),
    "a size that does not divide": (
        lambda ir: ir.replica_grouping(stride=2, group_size=3), 8, ValueError, "groups of 3 with stride 2"),
    "a fraction as a stride": (lambda ir: ir.replica_grouping(stride=2.0), 8, TypeError, "integer"),  # type: ignore[arg-type]
    "groups of another Ir": (
        lambda ir: popxl.variable(np.ones(2, np.float32), replica_grouping=popxl.Ir(2).replica_grouping()),
        4, ValueError, "of 2 replicas, the Ir has 4"),
    "a collective without a stride": (
        lambda ir: ops.collectives.replicated_all_reduce(
            ones(2), "add", ir.replica_grouping_from_assignments([0, 1, 1, 0])),
        4, NotImplementedError, "one stride"),
    "a word of no collective": (
        lambda ir: ops.collectives.replicated_all_reduce(ones(2), "sum"), 2, ValueError, "op is one of add"),
    "no transfers": (lambda ir: setattr(ir, "num_host_transfers", 0), 1, ValueError, "from 1 on, not 0"),
    "half a transfer": (lambda ir: setattr(ir, "num_host_transfers", 2.5), 1, TypeError, "integer"),
    "a scale of 8-bit floats": (
        lambda ir: popxl.variable(np.ones(2, np.float32), popxl.float8_143, log2_scale=32), 1, ValueError, "-32 to 31"),
    "integers as 8-bit floats": (
        lambda ir: popxl.variable(np.ones(2, np.int32), popxl.float8_152), 1, TypeError, "floating-point data"),
    "a cast to 8-bit floats": (lambda ir: ops.cast(ones(2), popxl.float8_152), 1, TypeError, "pow2scale"),
    "a repeat below nothing": (lambda ir: ops.repeat(graph(ir, ops.relu, ones(2)), -1, ones(2)), 1, ValueError, ">= 0"),
    "half a repeat": (lambda ir: ops.repeat(graph(ir, ops.relu, ones(2)), 1.5, ones(2)), 1, TypeError, "integer"),  # type: ignore[arg-type]
    "a repeat that grows": (
        lambda ir: ops.repeat(graph(ir, lambda x: ops.concat([x, x]), ones(2)), 2, ones(2)),
        1, popxl.popart_exception, r"concat_out' is .* of shape \(4,\), and .*/x'"),
    "a condition of two": (
        lambda ir: ops.conditional(
            ones(2), graph(ir, ops.relu, ones(2)), graph(ir, ops.relu, ones(2)), [ones(2)], [ones(2)]),
        1, popxl.popart_exception, "one bool"),
    "a call without an input": (
        lambda ir: ops.call(graph(ir, lambda x, y: x + y, ones(2), ones(2)), ones(2)), 1, ValueError,
        "Not enough inputs .* lacks .*/y"),
    "calls in a circle": (circle, 1, ValueError, "'second_.*' would call itself: .* calls 'first_.*' calls 'second_"),
    "a call of what is no graph": (lambda ir: ops.call(ops.relu, ones(2)), 1, TypeError, "is function: make one"),  # type: ignore[arg-type]
    "a graph of another Ir": (lambda ir: ops.call(FOREIGN, ones(2)), 1, ValueError, "belongs to another Ir"),
    "a repeat of another Ir's": (lambda ir: ops.repeat(FOREIGN, 2, ones(2)), 1, ValueError, "another Ir"),
    "an offset of two": (
        lambda ir: ops.remote_load(buffer(), ones(2, dtype=np.uint32)), 1, ValueError, "one whole number: 't'"),
    "a grouping as a type": (
        lambda ir: popxl.variable([1.0], ir.replica_grouping()), 1, ValueError, "no dtype for ReplicaGrouping"),  # type: ignore[arg-type]
    "an axis twice": (lambda ir: ops.sum(ones(2, 3), [1, -1]), 1, ValueError, "an axis of 't' stands twice"),
    "nothing as an operand": (lambda ir: ones(2) + None, 1, ValueError, "holds no numbers"),
    "a word as an operand": (lambda ir: ones(2) + "1", 1, ValueError, "holds no numbers"),
    "half an element": (lambda ir: popxl.h2d_stream((1.5, 2), popxl.float32), 1, TypeError, "integer"),
    "less than no elements": (lambda ir: popxl.d2h_stream((-1, 2), popxl.float32), 1, ValueError, "a size is 0 at"),
    "a buffer of half elements": (lambda ir: popxl.remote_buffer((1.5,), popxl.float32), 1, TypeError, "integer"),  # type: ignore[arg-type]
    "a type that there is not": (lambda ir: popxl.h2d_stream((2,), "floaty"), 1, ValueError, "no dtype for 'floaty'"),  # type: ignore[arg-type]
    "an IPU below the first": (lambda ir: popxl.ipu(-1).__enter__(), 1, ValueError, "counted from 0"),
    "a number that int32 does not have": (
        lambda ir: popxl.constant([1, 2**40]), 1, ValueError, "1099511627776 does not fit int32"),
    "a sign that uint8 does not have": (
        lambda ir: ones(2, dtype=np.uint8) + -1, 1, ValueError, "-1 does not fit uint8"),
    "no number as a whole one": (
        lambda ir: popxl.variable([1.0, np.nan], popxl.int32), 1, ValueError, "nan does not fit int32"),
    "a fraction next to whole numbers": (
        lambda ir: ones(2, dtype=np.int32) * 1.5, 1, ValueError, "1.5 is no whole number, and 't' is int32"),
    "a fraction of whole numbers": (
        lambda ir: ops.scaled_add(ones(2, dtype=np.int32), ones(2, dtype=np.int32), b=0.5),
        1, popxl.popart_exception, "b = 0.5 is no whole number"),
    "a fraction as a bound of whole numbers": (
        lambda ir: ops.clip(ones(2, dtype=np.int32), max=2.5), 1, popxl.popart_exception, "max = 2.5 is no whole"),
    "what is left of nothing": (lambda ir: ops.increment_mod(ones(2), 1.0, 0.0), 1, ValueError, "division by 0"),
    "a stride of 0": (lambda ir: ops.conv(image(), image(), (0, 1)), 1, ValueError, r"strides are from 1 on, not \(0"),
    "a dilation of 0": (lambda ir: ops.conv(image(), image(), dilation=(1, 0)), 1, ValueError, "dilations are from 1"),
    "pads below 0": (
        lambda ir: ops.conv_transpose(image(), image(), padding=(-1, 0, 0, 0)), 1, ValueError, "pads are from 0 on"),
    "no groups": (lambda ir: ops.conv(image(), image(), groups=0), 1, ValueError, "groups are from 1 on"),
    "pads twice": (
        lambda ir: ops.conv(image(), image(), padding=(1, 1, 1, 1), pad_type="same_upper"), 1, ValueError,
        "pad_type='same_upper' says what the padding is"),
    "pads of a pool twice": (
        lambda ir: ops.max_pool(image(), (2, 2), padding=(1, 1, 1, 1), auto_pad="valid"), 1, ValueError,
        "auto_pad='valid'"),
    "a pool that stands still": (lambda ir: ops.max_pool(image(), (2, 2), (0, 1)), 1, ValueError, "strides are from 1"),
    "a window of nothing": (lambda ir: ops.average_pool(image(), (0, 2)), 1, ValueError, "windows are from 1 on"),
    "strides of both ends": (
        lambda ir: ops.max_pool(image(), (2, 2), (1, 1, 1, 1)), 1, popxl.popart_exception, "strides has 2 entries"),
    "a window of padding": (
        lambda ir: ops.max_pool(image(), (2, 2), padding=(3, 0, 0, 0)), 1, popxl.popart_exception,
        "a window of spatial dim 0 begins at -3, and has nothing of the 5 pixels"),
    "a window behind the image": (
        lambda ir: ops.average_pool(image(), (1, 1), (3, 3), ceil_mode=True), 1, popxl.popart_exception,
        "begins at 6, .* or ceil_mode=False"),
    "more than all memory": (
        lambda ir: ops.matmul(ones(2, 2), ones(2, 2), available_memory_proportion=7.0), 1, ValueError, "at most 1"),
    "more than all memory for a conv": (
        lambda ir: ops.conv(image(), image(), available_memory_proportions=[2.0]), 1, ValueError, "at most 1, not 2"),
    "parts of a sum of no type": (
        lambda ir: ops.conv(image(), image(), partials_types=["int"]), 1, ValueError, "float16 or float32, not 'int'"),
    "a product of floats as integers": (
        lambda ir: ops.matmul(ones(2, 2), ones(2, 2), output_type=popxl.int32), 1, ValueError, "cast the product"),
    "whole random numbers": (
        lambda ir: ops.random_normal(ones(2, dtype=np.uint32), (2,), dtype=popxl.int32), 1, ValueError, "not .*int32"),
    "parts of less than nothing": (
        lambda ir: ops.split(ones(4), [5, -1]), 1, popxl.popart_exception, r"parts of \[5, -1\]"),
    "a copy on no IPU": (lambda ir: ops.ipu_copy(ones(2), -1, 0), 1, ValueError, "counted from 0"),
    "places of nothing": (
        lambda ir: ops.scatter_reduce(ones(2, 2), ones(2, dtype=np.int32), "sum", axis_size=0), 1, ValueError,
        "axis_size is from 1 on"),
    "half an axis": (lambda ir: ops.sum(ones(2), 0.5), 1, TypeError, "axis: 0.5 is no whole number"),  # type: ignore[arg-type]
    "no axis": (lambda ir: ops.softmax(ones(2), None), 1, TypeError, "axis: None is no whole"),  # type: ignore[arg-type]
    "half a part": (lambda ir: ops.split(ones(2), 0.5), 1, TypeError, "splits: 0.5"),  # type: ignore[arg-type]
    "half a slice": (lambda ir: ops.slice(ones(2), 0.5), 1, TypeError, "slice: start: 0.5"),  # type: ignore[arg-type]
    "one tensor to join": (lambda ir: ops.concat(ones(2)), 1, TypeError, "a list of tensors, not Variable"),  # type: ignore[arg-type]
    "a size as a shape": (lambda ir: ops.init(2, popxl.float32), 1, TypeError, "a tuple of sizes, not 2"),  # type: ignore[arg-type]
    "a stride for two dims": (
        lambda ir: ops.conv(image(), image(), 2), 1, popxl.popart_exception, "2 entries .* not 1"),  # type: ignore[arg-type]
    "an operand behind the last": (
        lambda ir: ops.call_with_info(graph(ir, ops.relu, ones(2)), ones(2)).parent_input(1), 1, IndexError, "no 1"),
    "a result before the first": (
        lambda ir: ops.call_with_info(graph(ir, ops.relu, ones(2)), ones(2)).parent_output(-1), 1, IndexError, "no -1"),
    "digits below none": (lambda ir: ops.print_tensor(ones(2), digits=-1), 1, ValueError, "digits is from 0 on"),
    "an option that there is not": (lambda ir: popxl.options(format=1), 1, TypeError, "no option format; there"),
    "a gradient that there is not": (
        lambda ir: popxl.transforms.autodiff(graph(ir, lambda a, b: a * 2.0, ones(2), ones(2))), 1,
        popxl.popart_exception, "no gradient flows from '.*mul_out' to '.*b': leave it out of grads_required"),
    "gradients from nothing": (
        lambda ir: popxl.transforms.autodiff(graph(ir, ops.relu, ones(2)), grads_provided=[]), 1,
        popxl.popart_exception, "from no outputs to '.*t'"),
    "gradients of what is no graph": (
        lambda ir: popxl.transforms.autodiff(ones(2)), 1, TypeError, "of a graph, not of Variable"),  # type: ignore[arg-type]
    "gradients by what is no tensor": (
        lambda ir: popxl.transforms.autodiff(graph(ir, ops.relu, ones(2)), grads_required=[1]),  # type: ignore[list-item]
        1, TypeError, "one of grads_required is int"),
    "an operand that a call has twice": (twice, 1, popxl.popart_exception, "'t' is given twice .* sum of two"),
    "a call of another shape": (
        lambda ir: ops.call(graph(ir, ops.relu, ones(2)), ones(3)), 1, popxl.popart_exception, r"of shape \(2,\)"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRITTEN)
def test_a_program_is_refused_where_it_is_written(what: str) -> None:
    write, replicas, error, text = WRITTEN[what]
    ir = popxl.Ir(replicas)
    with ir.main_graph, pytest.raises(error, match=text):
        write(ir)


PLACED: dict[str, tuple[Callable[[], Any], str]] = {
    "a product": (lambda: ops.matmul(ones(2, 3), ones(2, 3)), "ops.matmul of 't', 't__t0'"),
    "an operator": (lambda: ones(2, 3) @ ones(2, 3), "ops.matmul of 't', 't__t0'"),
    "names that the text has": (lambda: ones(2) + ones(3), "ops.add,"),
    "several in a list": (lambda: ops.concat([ones(2, 3), ones(2, 4)]), "ops.concat of 't', 't__t0'"),
    "an update": (lambda: ops.var_updates.accumulate_(ones(2), ones(3)), "ops.var_updates.accumulate_ of 't__t0'"),
    "an op that is made of another": (
        lambda: ops.layer_norm(ones(2, 4), ones(3), ones(4)), "ops.layer_norm of 't', 't__t0', 't__t1'"),
    "a collective": (
        lambda: ops.collectives.replicated_all_reduce(ones(2), "sum"), "ops.collectives.replicated_all_reduce of 't'"),
    "an index": (lambda: ones(2)["a"], "an index of 't'"),
    "an operand that is no tensor": (lambda: ones(2) + "a", "an operand of 't'"),
    "a diagonal": (lambda: ones(2, 3).diag(), "diag of 't'"),
    "a stream": (lambda: popxl.h2d_stream((-1,), popxl.float32), "popxl.h2d_stream"),
    "a buffer": (lambda: popxl.remote_buffer((2,), popxl.float32, 0), "popxl.remote_buffer"),
    "a variable": (lambda: popxl.variable("a"), "popxl.variable"),
    "a gradient graph": (lambda: popxl.transforms.autodiff(ones(2)), "transforms.autodiff of 't'"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("what", PLACED)
def test_a_refusal_names_op_tensors_and_line_once(what: str) -> None:
    write, place = PLACED[what]
    with popxl.Ir(2).main_graph, pytest.raises((popxl.popart_exception, ValueError, TypeError)) as refused:
        write()
    text = str(refused.value)
    assert text.count(HERE) == 1 and f"({place}" in text and text.endswith(")"), text


def _store(t: popxl.Tensor) -> None:
    ops.host_store(popxl.d2h_stream(t.shape, t.dtype), t)


RUNS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "loads behind the last entry": (
        lambda: _store(ops.remote_load(buffer(), popxl.variable(np.uint32(5)))), "RemoteLoad", "none at 5"),
    "stores before the first": (
        lambda: ops.remote_store(buffer(), popxl.variable(np.int32(-1)), ones(2)), "RemoteStore", "none at -1"),
    "elements behind the last": (
        lambda: _store(ops.scatter(ones(4), popxl.variable(np.array([9], np.int32)), ones(1))), "Scatter",
        "index 9 is out of bounds"),
    "a part behind the last": (
        lambda: _store(ops.dynamic_slice(ones(4), popxl.variable(np.array([3], np.uint32)), [0], [2], True)),
        "DynamicSlice", "2 elements from 3 on are not among the 4 of axis 0"),
    "a part before the first": (
        lambda: _store(ops.dynamic_update(ones(4), popxl.variable(np.array([-1], np.int32)), ones(2), [0], [2], True)),
        "DynamicUpdate", "2 elements from -1 on"),
    "a label of no class": (
        lambda: _store(ops.nll_loss(ones(2, 3), popxl.variable(np.array([0, 3], np.int32)), ignore_index=-1)), "Nll",
        "label 3 is none of the 3 classes, and ignore_index is -1"),
    "sums of 8-bit floats": (
        lambda: _store(popxl.variable(np.ones(2, np.float32), popxl.float8_143)
                       + popxl.variable(np.ones(2, np.float32), popxl.float8_143)), "Add", "float8_143"),
}  # fmt: skip


@pytest.mark.parametrize("what", RUNS)
def test_what_goes_wrong_in_a_run_names_the_op_and_its_line(what: str) -> None:
    write, kind, text = RUNS[what]
    ir = popxl.Ir()
    with ir.main_graph:
        write()
        v = popxl.variable(np.zeros(2, np.float32))
        ops.add_(v, popxl.constant(1.0))
    session = popxl.Session(ir, "ipu_model")
    with pytest.raises(popxl.popart_exception, match=f"{kind} .*{HERE}:.*{text}"), session:
        session.run()
    assert not session.is_attached
    np.testing.assert_array_equal(session.get_tensor_data(v), [0, 0])


GIVEN: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a list of inputs": ([np.ones(2, np.float32)], None, TypeError, "inputs are given by stream"),
    "other types": (np.ones(2, np.int32), None, ValueError, "takes .*float32, not int32"),
    "what is no number": ("ab", None, ValueError, "'load': 'ab' holds no numbers"),
    "an output that is no array": (np.ones(2, np.float32), [0.0, 0.0], TypeError, "takes 'store', not list"),
    "an output of whole numbers": (
        np.ones(2, np.float32), np.zeros(2, np.int32), ValueError, "gives .*float32, which int32 does not hold"),
    "an output that is kept": (
        np.ones(2, np.float32), np.broadcast_to(np.float32(0), (2,)), ValueError, "'store' is read-only"),
}  # fmt: skip


@pytest.mark.parametrize("what", GIVEN)
def test_a_run_takes_and_gives_what_its_streams_are(what: str) -> None:
    given, taken, error, text = GIVEN[what]
    ir = popxl.Ir()
    with ir.main_graph:
        load, store = popxl.h2d_stream((2,), popxl.float32, "load"), popxl.d2h_stream((2,), popxl.float32, "store")
        ops.host_store(store, ops.host_load(load))
    inputs = given if isinstance(given, list) else {load: given}
    outputs = {store: np.zeros(2, np.float32) if taken is None else taken}
    with popxl.Session(ir, "ipu_model") as session, pytest.raises(error, match=text):
        session.run_with_outputs(inputs, outputs)  # type: ignore[arg-type]


def test_one_number_is_of_its_stream_s_type() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        load, store = popxl.h2d_stream((), popxl.int32), popxl.d2h_stream((), popxl.int32)
        ops.host_store(store, ops.host_load(load))
    with popxl.Session(ir, "ipu_model") as session:
        assert session.run({load: 3})[store] == 3
        for wrong in (1.5, np.float32(1.5), 2**40):
            with pytest.raises(ValueError, match="h2d_stream"):
                session.run({load: wrong})


def test_a_session_writes_variables_of_its_own_ir() -> None:
    irs = [popxl.Ir(), popxl.Ir()]
    variables = []
    for ir in irs:
        with ir.main_graph:
            variables.append(ones(2))
            _store(variables[-1] * 2.0)
    session = popxl.Session(irs[0], "ipu_model")
    with pytest.raises(ValueError, match="another Ir"):
        session.write_variable_data(variables[1], np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="of an Ir, not of Graph"):
        popxl.Session(irs[0].main_graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "sharded"), [(3, False), (9, True)])
def test_a_variable_that_does_not_fit_its_buffer_is_refused_by_name(size: int, sharded: bool) -> None:
    ir = popxl.Ir(4)
    with ir.main_graph:
        store = popxl.remote_replica_sharded_variable if sharded else popxl.remote_variable
        far = buffer()
        store(np.ones(size, np.float32), far, name="far")
        _store(ops.remote_load(far, 0))
    with pytest.raises(popxl.popart_exception, match=rf"variable 'far' of shape \({size},\).* have shape \(2,\)"):
        popxl.Session(ir, "ipu_model")


TYPES: dict[str, tuple[Callable[[], Any], str]] = {
    "an exponential": (lambda: ops.exp(ones(2, dtype=np.int32)), "Exp .*takes floats, and 't' is .*int32; cast"),
    "in place": (lambda: ops.gelu_(ones(2, dtype=np.uint32)), "GeluInplace .*takes floats, and 't' is .*uint32"),
    "truth": (lambda: ops.tanh(ones(2, dtype=np.bool_)), "Tanh .*takes floats, and 't' is .*bool"),
    "a softmax": (lambda: ops.softmax(ones(2, dtype=np.int32), 0), "Softmax .*takes floats"),
    "a mean": (lambda: ops.mean(ones(2, dtype=np.int32)), "ReduceMean .*takes floats"),
    "a fraction added up": (
        lambda: ops.var_updates.accumulate_(ones(2, dtype=np.int32), ones(2, dtype=np.int32), 0.5),
        "Accumulate .*'t' is .*int32, and 0.5 is no whole number",
    ),
    "floats added up": (
        lambda: ops.var_updates.accumulate_square_(ones(2, dtype=np.int32), ones(2)),
        "Accumulate .*'t' is .*int32, and 't__t0' .*float32",
    ),
    "a factor that is a float": (
        lambda: ops.var_updates.accumulator_scale_(ones(2, dtype=np.int32), ones()),
        "AccumulatorScale .*'t' is .*int32, and 't__t0' .*float32",
    ),
    "rows of floats": (
        lambda: ops.var_updates.sparse_accumulate_(
            ones(2, 2, dtype=np.int32), ones(1, 2, dtype=np.int32), ones(1, dtype=np.int32), 0, 0.5
        ),
        "PopartSparseAccumulate .*0.5 is no whole number",
    ),
    "a mean added up": (
        lambda: ops.var_updates.accumulate_mean_(ones(2, dtype=np.int32), ones(2, dtype=np.int32), 1.0),
        "Accumulate .*are no whole numbers",
    ),
    "an optimizer": (
        lambda: ops.var_updates.adam_updater(ones(2, dtype=np.int32), ones(2, dtype=np.int32)),
        "AdamUpdater .*takes floats, and 't' is .*int32",
    ),
    "a part of another size": (
        lambda: ops.dynamic_update(ones(4, 2), ones(1, dtype=np.uint32), ones(3, 2), [0], [2], True),
        r"DynamicUpdate .*the part of 't' is \(2, 2\), and 't__t1' has shape \(3, 2\)",
    ),
    "labels": (lambda: ops.nll_loss(ones(2, 3), ones(2)), "Nll .*labels 't__t.*' hold whole numbers, not .*float32"),
}


@pytest.mark.parametrize("what", TYPES)
def test_floats_and_whole_numbers_are_not_taken_for_each_other(what: str) -> None:
    """A program may be written so; what it means cannot be kept, so there is no session of it."""
    write, text = TYPES[what]
    ir = popxl.Ir()
    with ir.main_graph:
        _store(write())
    with pytest.raises(popxl.popart_exception, match=f"{HERE}:.*{text.partition('.*')[2]}") as refused:
        popxl.Session(ir, "ipu_model")
    assert str(refused.value).startswith(text.partition(" ")[0])


def test_what_no_device_holds_is_refused_before_it_is_made() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        _store(ops.init((200_000, 200_000), popxl.float32, init_type="zero") + ones(1, 1))
    with pytest.raises(popxl.popart_exception, match=rf"Init .*{HERE}:.*takes 160,000,000,000 bytes"):
        popxl.Session(ir, "ipu_model")


def test_what_finds_no_place_is_told_by_op_and_line() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        wide = popxl.variable(np.ones((32, 40_000), np.float32), name="wide")
        _store(ops.softmax(wide, 1))
    with pytest.raises(popxl.popart_exception, match=rf"no legal candidate[\s\S]*Softmax 'softmax_out' .*{HERE}:"):
        popxl.Session(ir, "ipu_model")
    with ir.main_graph:  # no session holds it
        ones(2) + 1.0


def test_sessions_stand_inside_each_other_and_a_bad_run_leaves_them_good() -> None:
    def made() -> tuple[popxl.Session, Any, Any, popxl.Variable]:
        ir = popxl.Ir()
        with ir.main_graph, popxl.in_sequence():
            stream, v = popxl.h2d_stream((2,), popxl.float32), ones(2)
            out = popxl.d2h_stream((2,), popxl.float32)
            ops.host_store(out, ops.host_load(stream) + v)
            ops.var_updates.accumulate_(v, v)
        return popxl.Session(ir, "ipu_model"), stream, out, v

    (outer, stream, out, v), (inner, other, second, _) = made(), made()
    zeros = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="nothing is given"), outer:
        outer.run()
    assert not outer.is_attached
    with outer:
        with outer, inner:
            assert inner.run({other: zeros})[second].tolist() == [1, 1]
            assert outer.run({stream: zeros})[out].tolist() == [1, 1]
        assert outer.is_attached and not inner.is_attached
        for wrong in ({other: zeros}, {stream: zeros.astype(np.complex64)}, {stream: "abc"}, {stream: np.zeros(3)}):
            with pytest.raises(ValueError):
                outer.run(wrong)
        assert outer.run({stream: zeros})[out].tolist() == [2, 2]
    assert outer.get_tensor_data(v).tolist() == [4, 4]
