"""AMP levels, lighter weights and configure_mixed_precision: what each rule did is said, and numbers still hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.netlist.schema import NetOp
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.enums import BackendDevice, BackendType
from tbuda_lab.pybuda.module import PyTorchModule
from tbuda_lab.pybuda.ttdevice import TTDevice


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.a, self.n, self.b = torch.nn.Linear(64, 96), torch.nn.LayerNorm(96), torch.nn.Linear(96, 32)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.1)
            self.n.weight.add_(1.0)

    def forward(self, x: torch.Tensor) -> Any:
        return self.b(torch.softmax(self.n(self.a(x)), -1))


X = torch.randn(1, 64, 64, generator=torch.Generator().manual_seed(6))


Found = tuple[dict[str, NetOp], dict[str, str], dict[str, str], float]


def run(arch: BackendDevice = BackendDevice.Grayskull) -> Found:
    """Ops, formats of queues, report by op, and correlation with torch under device numerics."""
    net = Net().eval()
    device = TTDevice("t", module=PyTorchModule("m", net), arch=arch, devtype=BackendType.Model)
    (got,) = device.run_forward((X,))
    netlist = device.compile_for_inputs((X,)).netlist
    ops = {name: o for graph in netlist.graphs.values() for name, o in graph.ops.items()}
    report: dict[str, str] = {}
    for name, line in device.get_compiled_results().precision_report:
        report[name] = f"{report.get(name, '')} {line}"
    pcc = float(np.corrcoef(got.numpy().ravel(), net(X).detach().numpy().ravel())[0, 1])
    return ops, {name: q.df.name for name, q in netlist.queues.items()}, report, pcc


def test_level_1_and_2() -> None:
    config._get_global_compiler_config().amp_level = 1
    ops, queues, report, pcc = run()
    assert (ops["a.matmul"].out_df, ops["a.matmul"].math_fidelity) == (DataFormat.Bfp8_b, "HiFi2")
    assert queues["a.weight"] == "Bfp8_b" and "AMP 1: products in 8-bit blocks" in report["a.matmul"]
    assert queues["m.output_0"] == "Float16_b" and pcc > 0.995
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(amp_level=2)
    ops, queues, report, pcc = run()
    assert ops["a.matmul"].out_df is DataFormat.Bfp8 and queues["a.weight"] == "Bfp8" and pcc > 0.995
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(amp_level=0)
    assert run()[2] == {}


def test_a_level_takes_the_family_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBUDA_AMP_LEVEL", "2")
    pybuda.set_configuration_options(default_df_override=DataFormat.Float16_b)
    assert run()[0]["a.matmul"].out_df is DataFormat.Bfp8_b


@pytest.mark.parametrize(
    ("level", "df", "fidelity", "least"),
    [
        (1, "Bfp8_b", "HiFi2", 0.995),
        (2, "Bfp4_b", "HiFi2", 0.9),
        (3, "Bfp4_b", "LoFi", 0.9),
    ],
)
def test_light_weights(level: int, df: str, fidelity: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBUDA_AMP_LIGHT", str(level))
    ops, queues, _, pcc = run()
    assert (queues["a.weight"], ops["b.matmul"].math_fidelity) == (df, fidelity) and pcc > least


def test_all_arguments_of_configure_mixed_precision() -> None:
    config.configure_mixed_precision(
        op_type="matmul",
        name_regex="a.*",
        accumulate_df=DataFormat.Float16_b,
        intermediate_df=DataFormat.Float16_b,
        output_df=DataFormat.Bfp8_b,
        math_fidelity=MathFidelity.LoFi,
        input_df={1: [DataFormat.Bfp4_b, True]},
    )
    config.configure_mixed_precision(name_regex=r"b\.matmul", input_parameter_indices_to_optimize=[(1, 2)])
    ops, queues, report, _ = run(BackendDevice.Wormhole_B0)
    a, b = ops["a.matmul"], ops["b.matmul"]
    assert (a.acc_df, a.intermed_df, a.out_df, a.math_fidelity) == (
        DataFormat.Float16_b,
        DataFormat.Float16_b,
        DataFormat.Bfp8_b,
        "LoFi",
    )
    assert queues["a.weight"] == "Bfp4_b" and queues["b.weight"].startswith("Bfp2") and b.math_fidelity == "HiFi3"
    assert "configure_mixed_precision(op_type=matmul, name_regex=a.*)" in report["a.matmul"]


def test_properties_in_a_list_are_rules_too() -> None:
    """`CompilerConfig.amp_properties`, with a later entry that wins."""
    properties = config._get_global_compiler_config().amp_properties
    properties.append(
        pybuda._C.AMPNodeProperties(
            op_type="matmul",
            name_regex_match=r"[ab]\.matmul",
            math_fidelity=MathFidelity.LoFi,
            output_df=DataFormat.Bfp8_b,
            input_df={1: [DataFormat.Bfp8_b, True]},
        )
    )
    properties.append(pybuda._C.AMPNodeProperties(name_regex_match=r"b\.matmul", math_fidelity=MathFidelity.HiFi2))
    ops, queues, report, _ = run(BackendDevice.Wormhole_B0)
    assert (ops["a.matmul"].out_df, ops["a.matmul"].math_fidelity) == (DataFormat.Bfp8_b, "LoFi")
    assert (ops["b.matmul"].out_df, ops["b.matmul"].math_fidelity) == (DataFormat.Bfp8_b, "HiFi2")
    assert queues["a.weight"] == queues["b.weight"] == "Bfp8_b"
    assert "AMPNodeProperties(op_type=matmul" in report["a.matmul"]
    with pytest.raises(PipelineError, match="AMPNodeProperties selects ops"):
        pybuda._C.AMPNodeProperties(output_df=DataFormat.Bfp8_b)


def test_what_cannot_be_is_refused_or_said() -> None:
    with pytest.warns(UserWarning, match="Quantize"):
        config.configure_mixed_precision(op_type="matmul", output_df=DataFormat.Int8, accumulate_df=DataFormat.Float32)
    (rule,) = config._get_global_compiler_config().amp_properties
    assert (rule.output_df, rule.accumulate_df) == (None, DataFormat.Float32)
    with pytest.raises(PipelineError, match=r"pairs .*\[\(1, 8\)\]"):
        config.configure_mixed_precision(op_type="matmul", input_parameter_indices_to_optimize=[1])  # type: ignore
    with pytest.raises(PipelineError, match="8, 4 or 2"):
        config.configure_mixed_precision(op_type="matmul", input_parameter_indices_to_optimize=[(1, 5)])
    config.configure_mixed_precision(op_type="matmul", accumulate_df=DataFormat.Float32)
    assert "grayskull has no Float32 there" in run()[2]["a.matmul"]


def test_operands_of_a_splice_keep_one_format() -> None:
    class Glued(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cat((x, y), dim=-1)

    config.configure_mixed_precision(op_type="splice", input_df={1: [DataFormat.Bfp8, True]})
    device = TTDevice("t", module=PyTorchModule("m", Glued()))
    x, y = torch.randn(1, 1, 32, 32), torch.randn(1, 1, 32, 1)
    torch.testing.assert_close(device.run_forward((x, y))[0], torch.cat((x, y), -1), rtol=0.01, atol=0.02)
    assert "a splice joins operands of one format" in device.get_compiled_results().precision_report[0][1]


def test_rules_for_a_part_of_training_and_for_sums_of_gradients() -> None:
    """Each selector reaches the ops that it names, and the others keep their formats."""
    for words, reached in (
        ({"epoch_type": "Backward"}, "bwd"),
        ({"is_gradient_op": True}, "bwd"),
        ({"epoch_type": "forward"}, "fwd"),
    ):
        pybuda.pybuda_reset()
        config.configure_mixed_precision(op_type="matmul", math_fidelity=MathFidelity.LoFi, **words)
        config._get_global_compiler_config().enable_training = True
        device = TTDevice("t", module=PyTorchModule("m", torch.nn.Linear(64, 32)), arch=BackendDevice.Wormhole_B0)
        graphs = device.compile_for_inputs((X,)).netlist.graphs
        cheap = {
            name: graph[:3]
            for graph, g in graphs.items()
            for name, o in g.ops.items()
            if o.type == "matmul" and o.math_fidelity == "LoFi"
        }
        assert cheap and set(cheap.values()) == {reached}
        if "is_gradient_op" in words:
            sums = [o for g in graphs.values() for o in g.ops.values() if o.gradient_op]
            assert set(cheap) <= {operand.source for o in sums for operand in o.inputs}
    with pytest.raises(PipelineError, match="epoch_type is one of forward, backward, optimizer"):
        config.configure_mixed_precision(epoch_type="Sideways", math_fidelity=MathFidelity.LoFi)
