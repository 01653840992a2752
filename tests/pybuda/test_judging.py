"""Verification that can fail: both measures, every field of a VerifyConfig, passes and ops, runs that are judged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.passes import Report
from tbuda_lab.core.passes.canonical import RemoveNoOps
from tbuda_lab.pybuda import op
from tbuda_lab.pybuda.enums import DeviceMode
from tbuda_lab.pybuda.judging import NO_EFFECT, judge
from tbuda_lab.pybuda.module import PyBudaModule
from tbuda_lab.pybuda.pipeline import initialize_pipeline, run_inference
from tbuda_lab.pybuda.ttdevice import TTDevice
from tbuda_lab.pybuda.verify.backend import VerifyConfig, verify_module

SHAPES = [(1, 32, 64)]


class Roots(PyBudaModule):
    def __init__(self) -> None:
        super().__init__("roots")

    def forward(self, x: Tensor) -> Tensor:
        return op.Gelu("act", op.Sqrt("root", x))


def test_both_measures_must_hold() -> None:
    golden = torch.linspace(1, 2, 100)
    cfg = VerifyConfig()
    assert judge("none is small enough", golden, golden, VerifyConfig(atol=-1.0)).reason == "the error is too large"
    assert judge("same", golden, golden + 0.01, cfg).reason == ""
    offset = judge("offset", golden, golden + 1.0, cfg)
    assert offset.pcc == pytest.approx(1.0)
    assert offset.relative == pytest.approx(0.5)
    assert offset.reason == "the error is too large"
    noise = golden + 0.15 * torch.tensor([1.0, -1.0] * 50)
    both = judge("noise", golden, noise, VerifyConfig(relative_atol=0.01))
    assert "correlation below 0.99 and the error is too large" in str(both) and both.allowed == pytest.approx(0.01)
    assert judge("noise", golden, noise, VerifyConfig(pcc=0.8)).reason == ""
    assert judge("truth", golden > 1.5, golden > 1.4, cfg).reason == "10 truth values differ"
    assert "shape" in judge("shape", golden, golden[:50], cfg).reason
    assert judge("dtype", golden, golden + 1.0, VerifyConfig(atol={torch.float32: 2.0})).reason == ""
    assert "says no" in judge("asked", golden, golden, VerifyConfig(golden_compare_callback=lambda a, b: False)).reason


def test_a_config_that_no_result_can_meet_fails() -> None:
    impossibles: tuple[dict[str, Any], ...] = ({"pcc": 1.1}, {"relative_atol": 1e-9})
    for impossible in impossibles:
        with pytest.raises(AssertionError, match="correlation"):
            verify_module(Roots(), SHAPES, VerifyConfig(**impossible))
        pybuda.pybuda_reset()
    verify_module(Roots(), SHAPES, VerifyConfig(pcc=1.1, verify_last=False))
    verify_module(Roots(), SHAPES, VerifyConfig.disabled())


def test_a_run_is_judged_when_it_is_asked_to_be() -> None:
    device = TTDevice("tt0", module=Roots())
    device.push_to_inputs(torch.rand(1, 32, 64))
    run_inference(_verify_cfg=VerifyConfig())
    device.push_to_inputs(torch.rand(1, 32, 64))
    with pytest.raises(AssertionError, match="graph input 1 output 0"):
        run_inference(_verify_cfg=VerifyConfig(pcc=2.0))


def test_arguments_of_the_run_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TBUDA_OUTPUT_DIR")
    device = TTDevice("tt0", module=Roots())
    device.push_to_inputs(torch.rand(1, 32, 64))
    run_inference(_perf_trace=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["roots_netlist.yaml", "roots_perf.trace.json"]
    initialize_pipeline(training=False, sample_inputs=(torch.rand(1, 32, 64),), _device_mode=DeviceMode.CompileOnly)
    with pytest.raises(RuntimeError, match="only compiles"):
        device.run_forward((torch.rand(1, 32, 64),))
    with pytest.raises(RuntimeError, match="belong to training"):
        initialize_pipeline(training=False, sample_inputs=(torch.rand(1, 32, 64),), microbatch_count=2)


def test_every_pass_and_op_is_compared_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    verify_module(Roots(), SHAPES, VerifyConfig(verify_all=True))
    pybuda.pybuda_reset()
    original = RemoveNoOps.apply

    def wrong(self: Any, graph: Graph) -> Report:
        """A pass that loses an op."""
        report = original(self, graph)
        for node in graph.topological():
            if node.name == "act" and "root" in graph.nodes:
                node.inputs = graph["root"].inputs
        graph.prune()
        return report

    monkeypatch.setattr(RemoveNoOps, "apply", wrong)
    with pytest.raises(AssertionError, match="after pass remove_noops"):
        verify_module(Roots(), SHAPES, VerifyConfig(verify_each_buda_pass=True, verify_last=False))


def test_fields_that_change_something(tmp_path: Path) -> None:
    verify_module(Roots(), SHAPES, VerifyConfig(dump_tensors_path=str(tmp_path), graph_name="g", epoch_breaks=["act"]))
    golden = np.load(tmp_path / "g_input_0_output_0.golden.npy", allow_pickle=False)
    assert np.abs(golden - np.load(tmp_path / "g_input_0_output_0.calculated.npy", allow_pickle=False)).max() < 0.02
    pybuda.pybuda_reset()
    (device,) = verify_module(Roots(), SHAPES, VerifyConfig(golden_ignore_df_precision=False))
    assert isinstance(device, TTDevice) and device.numerics == "device"


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_fields_without_effect_say_so(name: str) -> None:
    plain = getattr(VerifyConfig(), name)
    changed: dict[str, Any] = {name: not plain}
    cfg = dataclasses.replace(VerifyConfig(enabled=False), **changed)
    with pytest.warns(UserWarning, match=f"VerifyConfig.{name} has no effect"):
        verify_module(Roots(), SHAPES, cfg)


def test_every_field_is_used_or_listed() -> None:
    import tbuda_lab.pybuda.judging as compare
    import tbuda_lab.pybuda.judging as judging
    import tbuda_lab.pybuda.verify.backend as verify

    text = "".join(Path(str(m.__file__)).read_text(encoding="utf-8") for m in (compare, judging, verify))
    trains = {
        "scale_loss",
        "optimizer",
        "scheduler",
        "epochs",
        "steps",
        "accumulation_steps",
        "checkpoint_interval",
        "waive_gradient_errors",
        "enable_input_gradient_checking",
        "enable_parameter_gradient_checking",
        "microbatch_size",
        "microbatch_count",
    }
    fields = {f.name for f in dataclasses.fields(VerifyConfig)} - trains - set(NO_EFFECT)
    assert not {n for n in fields if f"cfg.{n}" not in text and f'"{n}"' not in text}
