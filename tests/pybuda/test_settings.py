"""Every option of the compiler configuration is read somewhere, or setting it says by name that it has no effect."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import tbuda_lab
import tbuda_lab as pybuda
from tbuda_lab.core.errors import NotSupported, PipelineError
from tbuda_lab.core.frontend.pybuda import Parameter, Tensor
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.pybuda import config, op
from tbuda_lab.pybuda.compile import pybuda_compile
from tbuda_lab.pybuda.compiler_config import ENVIRONMENT, NO_EFFECT, CompilerConfig
from tbuda_lab.pybuda.enums import CompileDepth, PerfTraceLevel
from tbuda_lab.pybuda.module import PyBudaModule, PyTorchModule
from tbuda_lab.pybuda.ttdevice import TTDevice

ROOT = Path(tbuda_lab.__file__).parent
X = torch.rand(1, 32, 64)


class Small(PyBudaModule):
    def __init__(self) -> None:
        super().__init__("small")
        self.w = Parameter(torch.ones(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        return op.Gelu("act", op.Matmul("mm", x, op.Exp("fold", self.w)))


def names_read() -> set[str]:
    """Attributes and strings (`effective("amp_level")`, override forms) that code reads, definitions left out."""
    names_read: set[str] = set()
    for path in ROOT.rglob("*.py"):
        if path.name in ("options.py", "settings.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                names_read.add(node.attr)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "effective":
                names_read.update(
                    a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
                )
    return names_read


def test_every_option_is_read_or_listed_as_without_effect() -> None:
    read = names_read()
    options = {f.name for f in dataclasses.fields(CompilerConfig)}
    assert not set(NO_EFFECT) - options, "listed, but there is no such option"
    assert not {name for name in options - set(NO_EFFECT) if name not in read}
    existing = {f.name for f in dataclasses.fields(CompileOptions)}
    assert not {name for name in existing if name not in read and name not in NO_EFFECT}
    assert {option for option, _ in ENVIRONMENT.values()} <= options | existing


OTHER: dict[str, Any] = {"graph_solver_self_cut_type": "Off", "backend_runtime_args": "x"}


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_setting_an_option_without_effect_is_said_by_name(name: str) -> None:
    settings = config._get_global_compiler_config()
    value = getattr(settings, name)
    changed: Any = OTHER.get(name)
    if changed is None:
        of_type = {bool: not value, int: 3, float: 3, str: "a", list: ["a"], set: {"a"}, dict: {"a": 1}}
        changed = of_type[type(value)]
    setattr(settings, name, changed)
    device = TTDevice("t", module=Small())
    with pytest.warns(UserWarning, match=f"{name} has no effect: "):
        device.compile_for_inputs((X,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TTDevice("u", module=Small()).compile_for_inputs((X,))  # once


@pytest.mark.parametrize("redirected", [True, False])
def test_a_forward_is_the_same_whether_it_is_redirected_or_not(redirected: bool) -> None:
    """PyBuda's calls the one that it replaces, so that nobody sees which it is; here it stays the module's own."""
    module = torch.nn.Linear(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped = PyTorchModule("m", module, redirect_forward=redirected)
    x = torch.randn(2, 4)
    assert torch.equal(wrapped(x), module(x)) and torch.equal(wrapped.forward(x), module.forward(x))
    assert copy.deepcopy(module).state_dict().keys() == module.state_dict().keys()


def test_other_subgraphs() -> None:
    with pytest.raises(NotSupported, match=r"set_active_subgraph\(1\) .* place each part on a TTDevice of its own"):
        TTDevice("tt0").set_active_subgraph(1)


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="no compiler option 'amp_levl'.*amp_level"):
        config._get_global_compiler_config().amp_levl = 1
    monkeypatch.setenv("PYBUDA_RIBBON2", "1")
    with pytest.warns(UserWarning, match="PYBUDA_RIBBON2 has no effect"):
        TTDevice("t", module=Small()).compile_for_inputs((X,))
    for wrong in ({"backend_opt_level": 9}, {"amp_level": 3}):
        with pytest.raises(PipelineError, match=next(iter(wrong))):
            pybuda.set_configuration_options(**wrong)
    monkeypatch.setenv("PYBUDA_COMPILE_DEPTH", "halfway")
    with pytest.raises(PipelineError, match="halfway"):
        TTDevice("u", module=Small()).compile_for_inputs((X,))


def test_values_set_on_the_object_are_held_to_what_there_is() -> None:
    """What `set_configuration_options` would refuse, and a mask of harvested rows, as attributes."""
    settings = config._get_global_compiler_config()
    settings.compile_depth = 15  # type: ignore[assignment]
    with pytest.raises(PipelineError, match="compile_depth is one of INIT_COMPILE"):
        TTDevice("tt0", module=Small()).run_forward((X,))
    settings.compile_depth = CompileDepth.FULL
    settings.fracture_groups = [([("mm", -1, 2)], [])]
    with pytest.raises(PipelineError, match="insert_fracture_group"):
        TTDevice("tt1", module=Small()).run_forward((X,))
    settings.fracture_groups = []
    settings.harvesting_mask = 1 << 11 | 1 << 1
    device = TTDevice("tt2", module=Small())
    device.run_forward((X,))
    assert device.get_device_config().get_harvested_cfg() == [2050]
    assert device.get_compiled_results().result.device.rows == 8


def test_there_is_no_third_amp_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBUDA_AMP_LEVEL", "3")
    with pytest.raises(PipelineError, match="amp_level is 0, 1 or 2, not 3"):
        TTDevice("tt0", module=Small()).run_forward((X,))


class OneOpEach(Small):
    """As Small, with an act that is a single op: gelu in Float32 is several."""

    def forward(self, x: Tensor) -> Tensor:
        return op.Sigmoid("act", op.Matmul("mm", x, op.Exp("fold", self.w)))


def test_a_chip_break_needs_another_chip() -> None:
    pybuda.set_chip_break("act")
    with pytest.warns(UserWarning, match="set_chip_break has no effect: device 'tt0' has one chip"):
        TTDevice("tt0", module=OneOpEach()).run_forward((X,))
    two = TTDevice("tt1", module=OneOpEach(), arch=pybuda.BackendDevice.Wormhole_B0, chip_ids=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two.run_forward((X,))
    assert {op.chip for op in two.get_compiled_results().result.placement.ops.values()} == {0, 1}


def test_a_chip_break_before_an_op_that_is_decomposed() -> None:
    """Gelu in Float32 is several ops; the name that the user gave it means the first of them."""
    pybuda.set_chip_break("act")
    two = TTDevice("tt1", module=Small(), arch=pybuda.BackendDevice.Wormhole_B0, chip_ids=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two.run_forward((X,))
    assert {op.chip for op in two.get_compiled_results().result.placement.ops.values()} == {0, 1}


@pytest.mark.parametrize("count", [-1, 1.5, "2"])
@pytest.mark.parametrize("call", ["run_inference", "run_forward", "run_generate"])
def test_counts_of_inputs_are_whole_numbers(call: str, count: Any) -> None:
    TTDevice("tt0", module=Small()).push_to_inputs(X)
    with pytest.raises(PipelineError, match=f"{call}: input_count is a whole number from 0"):
        getattr(pybuda, call)(input_count=count)


def test_stages_are_functions_that_name_the_next() -> None:
    """PyBuda's names in its order; what each leaves is what one compile to that depth has, and its graph means the same
    until it is lowered."""
    names = [
        "init_compile",
        "generate_initial_graph",
        "run_post_initial_graph_pass",
        "run_consteval_pass",
        "run_post_pattern_matcher",
        "run_optimization_pass",
        "run_autograd_pass",
        "run_post_autograd_pass",
        "run_pre_lowering_pass",
        "run_pre_placer_pass",
        "run_balancer_and_placer",
        "run_pre_netlist_pass",
        "generate_netlist",
        "run_backend_golden_verify",
    ]
    functions = [getattr(pybuda.compile, name) for name in names]
    assert [f.__name__ for f in functions] == names
    settings = CompilerConfig(match_subgraph_patterns=1)
    context = pybuda.compile.CompileContext(TTDevice("tt0", module=Small()), "small", (X,), settings)
    with pytest.raises(PipelineError, match="needs init_compile"):
        functions[1](context)
    depth, taken = CompileDepth.INIT_COMPILE, []
    while depth < CompileDepth.FULL:
        taken.append(depth)
        depth = functions[depth](context)
        if CompileDepth.GENERATE_INITIAL_GRAPH <= taken[-1] <= CompileDepth.PRE_LOWERING_PASS:
            assert context.graph is not None
            (feed,) = [node.name for node in context.graph.inputs]
            (value,) = evaluate(context.graph, {feed: X}).values()
            torch.testing.assert_close(value, torch.nn.functional.gelu(X @ torch.ones(64, 32).exp()))
        assert (context.netlist is None) == (taken[-1] < CompileDepth.GENERATE_NETLIST)
    assert taken == [d for d in CompileDepth if d not in (CompileDepth.AUTOGRAD, CompileDepth.FULL)]
    assert context.lowered_graph is not None and "mm" in context.lowered_graph
    assert context.results is not None and context.results.outputs[0].value().shape == (1, 32, 32)
    assert all(context.stages[name].report for name in ("generate_initial_graph", "balancer_pass", "generate_netlist"))
    with pytest.raises(PipelineError, match="comes before"):
        functions[3](context)


@pytest.mark.parametrize("depth", [CompileDepth.POST_PATTERN_MATCHER, CompileDepth.FULL])
def test_layers_that_repeat_are_found_where_they_are_asked_for(depth: CompileDepth) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
    other = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sigmoid())
    for parts, found in (((layer, layer), True), ((layer, other), False)):
        pybuda.pybuda_reset()
        device = TTDevice("tt0", module=pybuda.PyTorchModule("net", torch.nn.Sequential(*parts).eval()))
        settings = CompilerConfig(match_subgraph_patterns=2, compile_depth=depth)
        results = pybuda.pybuda_compile(device, "net", X, compiler_cfg=settings)
        match = results.pass_specific_output_kwargs["match_result"]
        assert match.is_subgraph_pattern_found == match.is_subgraph_loopable == found
    assert "match_result" not in pybuda.pybuda_compile(device, "net", X).pass_specific_output_kwargs


def test_a_compile_of_a_context_ends_where_the_depth_says() -> None:
    settings = CompilerConfig(compile_depth=CompileDepth.OPTIMIZED_GRAPH, enable_consteval=False)
    context = pybuda.compile.CompileContext(TTDevice("tt0", module=Small()), "small", (X,), settings)
    results = pybuda.compile.pybuda_compile_from_context(context)
    assert list(context.stages) == [
        "init_compile",
        "generate_initial_graph",
        "post_initial_graph_pass",
        "optimized_graph",
    ]
    assert results.netlist_filename is None and context.placed is None
    settings = CompilerConfig(enable_training=True, compile_depth=CompileDepth.AUTOGRAD)
    training = pybuda.compile.CompileContext(TTDevice("tt1", module=Small()), "small", (X,), settings)
    pybuda.compile.pybuda_compile_from_context(training)
    graph = training.stages["autograd"].graph
    assert graph is not None and any(op.name.startswith("bw_") for op in graph.ops)


@pytest.mark.parametrize("name", ["TT_BACKEND_OVERLAY_MAX_EXTRA_BLOB_SIZE", "LOGGER_LEVEL"])
def test_switches_of_the_backend_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.warns(UserWarning, match=f"{name} has no effect"):
        TTDevice("tt0", module=Small()).run_forward((X,))


def test_consteval_off_leaves_the_models_ops_on_the_device() -> None:
    folded = TTDevice("t", module=Small()).compile_for_inputs((X,))
    config._get_global_compiler_config().enable_consteval = False
    keep = TTDevice("u", module=Small()).compile_for_inputs((X,))
    assert "fold" not in folded.placement.ops and "fold" in keep.placement.ops


@pytest.mark.parametrize("depth", list(CompileDepth))
def test_compile_depth_stops_after_the_stage_of_that_name(depth: CompileDepth) -> None:
    results = pybuda_compile(TTDevice("t", module=Small()), "g", X, compiler_cfg=CompilerConfig(compile_depth=depth))
    names = [stage.name for stage in results.stages]
    assert names[min(depth, CompileDepth.BACKEND_GOLDEN_VERIFY)] == CompileDepth(min(depth, 13)).name.lower()
    if depth < CompileDepth.GENERATE_NETLIST:
        assert len(names) == depth + 1
        assert results.netlist_filename is None
    assert (results.lowered_graph is None) == (depth < CompileDepth.BUDA_GRAPH_PRE_PLACER)
    by_name = {stage.name: stage for stage in results.stages}
    if depth >= CompileDepth.CONSTEVAL_GRAPH:
        before, after = by_name["generate_initial_graph"].graph, by_name["consteval_graph"].graph
        assert before is not None and after is not None and "fold" in before.nodes
        assert by_name["post_initial_graph_pass"].report
    if depth >= CompileDepth.BUDA_GRAPH_PRE_PLACER:
        assert all(node.op.type.startswith("hw.") for node in results.lowered_graph.ops if node.op is not None)
    torch.testing.assert_close(
        results.golden_outputs[0], torch.nn.functional.gelu(X @ torch.full((64, 32), 2.718281828)), rtol=1e-4, atol=1e-4
    )


def test_a_compile_for_training_has_its_autograd_stage() -> None:
    settings = CompilerConfig(compile_depth=CompileDepth.BUDA_GRAPH_PRE_PLACER, enable_training=True)
    results = pybuda_compile(TTDevice("t", module=Small()), "g", X, compiler_cfg=settings)
    by_name = {stage.name: stage.graph for stage in results.stages}
    before, after = by_name["optimized_graph"], by_name["autograd"]
    assert before is not None and after is not None and len(after.ops) > len(before.ops)


def test_nothing_runs_below_the_depth_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBUDA_COMPILE_DEPTH", "balancer_pass")
    device = TTDevice("t", module=Small())
    with pytest.raises(PipelineError, match="compile_depth is BALANCER_PASS"):
        device.run_forward((X,))


def test_files_of_a_compile(tmp_path: Path) -> None:
    pybuda.set_configuration_options(backend_output_dir=str(tmp_path), performance_trace=PerfTraceLevel.VERBOSE)
    TTDevice("t", module=Small()).compile_for_inputs((X,))
    assert {p.name for p in tmp_path.iterdir()} == {
        "small_netlist.yaml",
        "small_netlist.cycles.csv",
        "small_perf.trace.json",
    }
    assert json.loads((tmp_path / "small_perf.trace.json").read_text())["traceEvents"]


def test_runtime_parameters_are_written_where_there_are_none_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    pybuda.set_configuration_options(
        harvested_rows=[1], backend_runtime_params_path=str(path), store_backend_db_to_yaml=True
    )
    rows = TTDevice("t", arch=pybuda.BackendDevice.Wormhole_B0).get_device_config().grid_size.r
    assert yaml.safe_load(path.read_text())["system-device0-harvesting_mask"] == 2
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(backend_runtime_params_path=str(path))
    assert TTDevice("t", arch=pybuda.BackendDevice.Wormhole_B0).get_device_config().grid_size.r == rows == 9


def test_microbatch_size_of_a_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prologue = {}
    for size in (1, 64):
        pybuda.pybuda_reset()
        device = TTDevice("t", module=Small())
        results = pybuda_compile(device, "g", X, microbatch_size=size)
        assert results.outputs[0].shape == (1, 32, 32) and results.result.options.microbatch == size
        assert results.netlist_filename is not None
        text = Path(results.netlist_filename).read_text()
        prologue[size] = text.count("prologue: true")
    assert prologue[64] >= prologue[1] == 1


def test_tiles_of_weights_are_filled_by_an_op_when_the_switch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matmul that fills the bias's tiles is merged into the op that reads it, which becomes a fused op."""

    class Shifted(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.bias = pybuda.Parameter(torch.full((1, 1), 0.25), requires_grad=False)

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return pybuda.op.Subtract("sub", x, self.bias)

    x = torch.rand(1, 1, 1, 64)
    op_types = []
    for value in ("0", "1"):
        pybuda.pybuda_reset()
        monkeypatch.setenv("PYBUDA_DISABLE_TILE_BROADCAST_CONSTEVAL", value)
        device = pybuda.TTDevice("t", module=Shifted("m"))
        (got,) = device.run_forward((x,))
        torch.testing.assert_close(got, x - 0.25, rtol=0, atol=1e-2)
        (graph,) = device.compile_for_inputs((x,)).netlist.graphs.values()
        op_types.append([op.type for op in graph.ops.values()])
    assert op_types == [["subtract"], ["fused_op", "nop"]]


def test_an_added_row_stays_an_op_when_the_switch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 96), torch.rand(1, 64, 64)
    op_types = []
    for value in ("0", "1"):
        pybuda.pybuda_reset()
        monkeypatch.setenv("PYBUDA_NO_FUSE_MATMUL_BIAS", value)
        device = pybuda.TTDevice("t", module=pybuda.PyTorchModule("m", Shifts(layer)))
        (got,) = device.run_forward((x,))
        assert float((got - torch.tanh(layer(x)).detach()).norm()) < 0.02 * float(got.norm())
        (graph,) = device.compile_for_inputs((x,)).netlist.graphs.values()
        op_types.append([op.type for op in graph.ops.values()])
    assert [types.count("matmul") for types in op_types] == [1, 1]
    assert len(op_types[1]) > len(op_types[0]) or "fused_op" in op_types[1]


class Shifts(torch.nn.Module):
    """tanh(x W + b), the sum an op of its own."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.layer.weight.T + self.layer.bias)


def test_paddings_say_of_ops_whether_their_rows_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = CompilerConfig(paddings={"b.matmul": False, "a.matmul": True})
    options = settings.options()
    assert (options.op_names_pad, options.op_names_dont_pad) == (("a.matmul",), ("b.matmul",))
    assert options.enable_row_padding
    monkeypatch.setenv("PYBUDA_DISABLE_PADDING_PASS", "1")
    assert not settings.options().enable_row_padding
    settings.paddings = {"a.matmul": 2}  # type: ignore[dict-item]
    with pytest.raises(PipelineError, match="paddings says of an op by name whether its rows are padded"):
        settings.options()


class Remembers(torch.nn.Module):
    """Keeps what it made in an attribute that nobody reads, as attention layers do for their users."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.score = torch.softmax(self.layer(x), -1)
        return self.score * x


@pytest.mark.parametrize("depth", [CompileDepth.BUDA_GRAPH_PRE_PLACER, CompileDepth.FULL])
def test_what_tracing_leaves_in_an_attribute_stops_no_comparison(depth: CompileDepth) -> None:
    model, x = Remembers().eval(), torch.randn(1, 32, 64)
    results = pybuda_compile(
        TTDevice("t", module=PyTorchModule("m", model)),
        "g",
        Tensor.create_from_torch(x),
        compiler_cfg=CompilerConfig(compile_depth=depth),
    )
    expected = torch.softmax(torch.nn.functional.linear(x, model.layer.weight, model.layer.bias), -1) * x
    torch.testing.assert_close(results.golden_outputs[0], expected.detach())
