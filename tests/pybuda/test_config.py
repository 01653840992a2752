"""Options and overrides reach the compiler, and those that cannot say so."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core import netlist
from tbuda_lab.core.errors import OutputError, PipelineError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.pybuda import config, enums
from tbuda_lab.pybuda.compiler_config import CompilerConfig


class Chain(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(torch.randn(64, 64) / 8)

    def forward(self, a: pybuda.Tensor) -> pybuda.Tensor:
        first = pybuda.op.Matmul("mm0", a, self.weights)
        second = pybuda.op.Exp("exp0", first)
        return pybuda.op.Matmul("mm1", second, self.weights)


X = torch.randn(1, 1, 128, 64) * 0.1


def compiled() -> object:
    device = pybuda.TTDevice("tt0", module=Chain("chain"))
    device.compile_for_inputs((X,))
    return device.get_compiled_results()


def ops_of(results: object) -> dict[str, object]:
    return results.pass_specific_output_kwargs["placer_solution"].name_to_op_placement


def test_op_size() -> None:
    pybuda.override_op_size("mm0", (2, 1))
    results = compiled()
    placed = results.result.placement.ops["mm0"]
    assert placed.size == (2, 1)


def test_epoch_breaks_by_name_predicate_and_list() -> None:
    pybuda.set_epoch_break("exp0")
    placed = ops_of(compiled())
    assert placed["mm0"].epoch_id < placed["exp0"].epoch_id
    pybuda.pybuda_reset()
    pybuda.set_epoch_break(pybuda.query.name_regex("exp.*") | pybuda.query.op_type("matmul"))
    placed = ops_of(compiled())
    assert len({placed[name].epoch_id for name in ("mm0", "exp0", "mm1")}) == 3
    pybuda.pybuda_reset()
    pybuda.config._get_global_compiler_config().place_on_new_epoch(["exp0"])
    placed = ops_of(compiled())
    assert placed["mm0"].epoch_id < placed["exp0"].epoch_id


def test_lists_of_lists_break_before_the_first_of_each() -> None:
    pybuda.set_epoch_break([["exp0"], ["mm1", "exp0"]])
    records = config._get_global_compiler_config().overrides
    assert [r.target for r in records] == [("exp0",), ("mm1", "exp0")]
    with pytest.raises(PipelineError, match="names and predicates"):
        pybuda.set_epoch_break([3])


def test_readers_of_a_nop_by_predicate() -> None:
    pybuda.insert_nop("mm0", pybuda.query.name_regex("e.p0"))
    results = compiled()
    assert "buffer_0_mm0_exp0" in ops_of(results)
    pybuda.pybuda_reset()
    pybuda.insert_nop("mm0", pybuda.query.name_regex("nothing"))
    with pytest.raises(PipelineError, match="no op of the model"):
        compiled()


@pytest.mark.parametrize("policy", ["default", "Ribbon", "NLP"])
def test_place_on_one_row(policy: str) -> None:
    pybuda.set_configuration_options(place_on_one_row=True, balancer_policy=policy)
    placed = compiled().result.placement.ops.values()
    assert placed and all(op.size[0] == 1 for op in placed)
    pybuda.set_configuration_options(place_on_one_row=False)
    assert any(op.size[0] > 1 for op in compiled().result.placement.ops.values()) or policy == "NLP"


def test_op_placement() -> None:
    pybuda.config.override_op_placement("mm0", start=(3, 3))
    start = ops_of(compiled())["mm0"].placed_cores.start
    assert (start.row, start.col) == (3, 3)


def test_an_override_of_an_op_that_is_not_there_is_a_warning() -> None:
    pybuda.override_op_size("no_such_op", (1, 1))
    with pytest.warns(UserWarning, match="no_such_op: op_size addresses no op"):
        diagnostics = compiled().result.diagnostics
    assert any("no_such_op" in str(d) and d.severity == "warning" for d in diagnostics)


def test_a_predicate_that_no_op_fulfils_is_quoted_in_the_warning() -> None:
    pybuda.config.configure_mixed_precision(op_type="nope", output_df=pybuda.DataFormat.Bfp8_b)
    with pytest.warns(UserWarning, match=r"\(type nope\): data_format addresses no op"):
        plain = compiled()
    pybuda.set_epoch_break(pybuda.query.op_type("nope").negate() & pybuda.query.op_type("nope"))
    with pytest.warns(UserWarning, match=r"not \(type nope\)\) and \(type nope\): epoch_break"):
        assert ops_of(compiled()).keys() == ops_of(plain).keys()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pybuda.override_op_size("mm0", "ab"), "rows, columns"),
        (lambda: pybuda.override_op_size("mm0", (1.5, 2)), "rows, columns"),
        (lambda: config.override_t_stream_shape("mm0", 4), "rows, columns"),
        (lambda: config.override_dram_queue_placement("e2e_mm0_0"), "chip_id, channel"),
        (lambda: pybuda.set_configuration_options(dram_placement_algorithm="NEAREST"), "CLOSEST"),
    ],
)
def test_calls_that_make_no_sense_are_refused_at_once(call, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        call()


def test_a_dram_algorithm_by_name() -> None:
    pybuda.set_configuration_options(dram_placement_algorithm="CLOSEST")
    assert config._get_global_compiler_config().options().dram_placement_algorithm == "CLOSEST"


def test_reset_forgets_overrides() -> None:
    pybuda.override_op_size("mm0", (2, 1))
    pybuda.pybuda_reset()
    assert config._get_global_compiler_config().overrides == []


def test_a_changed_option_compiles_again() -> None:
    device = pybuda.TTDevice("tt0", module=Chain("chain"))
    first = device.compile_for_inputs((X,))
    assert device.compile_for_inputs((X + 1,)) is first
    pybuda.set_configuration_options(default_df_override=DataFormat.Float16)
    second = device.compile_for_inputs((X,))
    assert second is not first and second.options.data_format is DataFormat.Float16


def test_options_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    pybuda.set_configuration_options(
        balancer_policy="Ribbon",
        accumulate_df=DataFormat.Float16_b,
        math_fidelity=pybuda.MathFidelity.HiFi4,
        enable_t_streaming=False,
        dram_placement_algorithm=pybuda.DRAMPlacementAlgorithm.CLOSEST,
    )
    config.add_cpu_fallback_ops(["softmax"])
    options = config._get_global_compiler_config().options(microbatch=4)
    assert options.balancer_policy == "Ribbon" and options.default_accumulate_df is DataFormat.Float16_b
    assert options.default_math_fidelity is pybuda.MathFidelity.HiFi4 and not options.enable_t_streaming
    assert options.dram_placement_algorithm == "CLOSEST" and options.microbatch == 4
    assert options.cpu_fallback_ops == ("embedding", "softmax")
    monkeypatch.setenv("PYBUDA_DEFAULT_DF", "Bfp8_b")
    monkeypatch.setenv("PYBUDA_NO_SUCH_SWITCH", "1")
    assert config._get_global_compiler_config().options().data_format is DataFormat.Bfp8_b


def test_options_without_effect_say_so() -> None:
    with pytest.warns(UserWarning, match="enable_device_tilize has no effect"):
        pybuda.set_configuration_options(enable_device_tilize=True)


def test_harvested_rows_shrink_the_grid() -> None:
    full = pybuda.ttdevice.get_device_config()
    pybuda.set_configuration_options(harvested_rows=[1, 11])
    cut = pybuda.ttdevice.get_device_config()
    assert (full.grid_size.r, cut.grid_size.r) == (10, 8)
    assert cut.get_harvested_cfg() == [(1 << 1) | (1 << 11)]
    assert pybuda.TTDevice("tt0").spec.rows == 8


def test_records_become_overrides() -> None:
    settings = config.CompilerConfig()
    settings.balancer_op_override("mm0", "u_kt", 2)
    settings.balancer_op_override("mm0", "t_stream_dir", "r")
    config._set_global_compiler_config(settings)
    config.override_t_stream_shape("mm0", (2, 1))
    config.override_input_buffer_multiplier("mm0", 1, multiplier=2)
    config.override_dram_queue_placement("e2e_mm0_0", channel=3)
    config.override_dram_parameters("mm0", True)
    from tbuda_lab.core.frontend import from_pybuda

    result = settings.resolve_overrides(from_pybuda(Chain("chain"), X))
    assert [(o.kind, o.target, o.value) for o in result] == [
        ("u_kt", "mm0", 2),
        ("t_stream_dir", "mm0", "r"),
        ("t_stream_shape", "mm0", (2, 1)),
        ("input_buffer_multiplier", "mm0", {1: 2}),
        ("queue_channel", "e2e_mm0_0", {"channel": 3}),
        ("dram_parameters", "mm0", True),
    ]


def test_predicates() -> None:
    from tbuda_lab.core.frontend import from_torch

    graph = from_torch(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), (torch.randn(1, 8),))
    query = pybuda.query
    assert query.layer_regex("1").names(graph) == ("1.relu",)
    assert query.op_type("matmul").names(graph) == ("0.matmul",)
    assert (query.layer_regex("0") & query.op_type("matmul").negate()).names(graph) == ("0.transpose",)
    again = query.NodePredicateBuilder.from_json(query.name_regex("0.*").to_json())
    assert again == query.name_regex("0.*") and len(again.names(graph)) == 2


NO_VALUES: list[Any] = [object(), 2.5j, b"x", [object()], {1: object()}, "\0"]


@pytest.mark.parametrize("name", sorted(inspect.signature(config.set_configuration_options).parameters))
def test_a_setting_of_another_type_is_refused_when_it_is_made(name: str) -> None:
    """No option takes an object, a complex number or bytes; what is taken for a list, a dict or a text is that."""
    refused = []
    for value in NO_VALUES:
        pybuda.pybuda_reset()
        try:
            config.set_configuration_options(**{name: value})
        except PipelineError as error:
            assert name in str(error) or f"default_{name}" in str(error) or "configuration" in str(error)
            refused.append(value)
    assert refused[:3] == NO_VALUES[:3]
    taken = [type(value) for value in NO_VALUES if not any(value is no for no in refused)]
    assert taken in ([], [str])


@pytest.mark.parametrize("name", sorted(f.name for f in dataclasses.fields(CompilerConfig)))
def test_an_attribute_of_another_type_is_refused_by_the_compile(name: str) -> None:
    settings = CompilerConfig()
    setattr(settings, name, object())
    with pytest.raises(PipelineError, match=name):
        settings.options()


@pytest.mark.parametrize(
    "kind",
    [
        DataFormat,
        MathFidelity,
        enums.BackendType,
        enums.BackendDevice,
        enums.DeviceMode,
        enums.CompileDepth,
        enums.PerfTraceLevel,
        enums.DRAMPlacementAlgorithm,
    ],
)
def test_members_of_enumerations_convert_to_numbers(kind: Any) -> None:
    assert [int(member) for member in kind] == [member.value for member in kind]
    assert [kind(int(member)) for member in kind] == list(kind)
    assert list(range(10))[kind(1 if 1 in kind._value2member_map_ else 0)] in (0, 1)


@pytest.mark.parametrize("folder", ["/proc/no", "{file}", "{file}/below", "a\0b"])
def test_a_folder_for_results_that_cannot_be_made(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    config.set_configuration_options(backend_output_dir=folder.format(file=tmp_path / "file"))
    device = pybuda.TTDevice("t", module=pybuda.PyTorchModule("m", nn.Linear(32, 32).eval()))
    device.push_to_inputs(torch.ones(1, 32))
    with pytest.raises(OutputError, match="cannot make the folder"):
        pybuda.run_inference()


class Unread(pybuda.PyBudaModule):
    """A module with a parameter that its forward never reads."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.read, self.unread = (pybuda.Parameter(torch.ones(64, 64)) for _ in range(2))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("mm", x, self.read)


class UnreadInTorch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read, self.unread = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.read(x)


@pytest.mark.parametrize("module", [Unread("m"), pybuda.PyTorchModule("m", UnreadInTorch().eval())])
def test_parameters_that_no_graph_reads(module: Any) -> None:
    device = pybuda.TTDevice("tt0", module=module)
    assert len(device.get_parameters()) == 2  # nothing was traced yet
    device.compile_for_inputs((torch.ones(1, 32, 64),))
    assert len(device.get_parameters()) == 1 and "unread" not in device.get_parameters()[0].get_name()
    assert len(device.get_parameters(ignore_unused_parameters=False)) == 2


def test_a_device_by_another_configuration(tmp_path: Path) -> None:
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0)
    params = tmp_path / "params.yaml"
    params.write_text("system-device0-harvesting_mask: 2050\n")
    other = CompilerConfig(backend_runtime_params_path=str(params))
    assert device.get_device_config(other).grid_size.r == device.get_device_config().grid_size.r - 2
    assert device.get_device_config(compiler_cfg=CompilerConfig(backend_device_descriptor_path="e150")).arch_name == (
        "grayskull"
    )
    assert device.get_device_config().get_harvested_cfg() == [0]


def test_a_netlist_lies_where_the_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyBuda leaves it: `NAME_netlist.yaml`. Where nothing can be written the script goes on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TBUDA_OUTPUT_DIR")
    name = "of/../any name"
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule(name, nn.Linear(32, 32).eval()))
    device.push_to_inputs(torch.ones(1, 32))
    pybuda.run_inference()
    (path,) = tmp_path.iterdir()
    assert netlist.check(netlist.load(path)) == [] and path.name.endswith("_netlist.yaml")
    assert Path(device.get_compiled_results().netlist_filename).resolve() == path
    pybuda.shutdown()
    monkeypatch.setenv("TBUDA_OUTPUT_DIR", "/proc/none")
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", nn.Linear(32, 32).eval()))
    device.push_to_inputs(torch.ones(1, 32))
    with pytest.warns(UserWarning, match="the netlist is not written"):
        assert pybuda.run_inference().get()
