"""Models written as Python modules: imported, given weights, compiled and run; against torch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import ModelError
from tbuda_lab.pybuda.tvm_to_python import compile_tvm_to_python


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64)
        self.register_buffer("steps", torch.arange(64.0))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(nn.functional.gelu(self.first(x)) + self.steps / 64)
        return self.second(y) * mask, y.reshape(1, 32, 2, 32).transpose(1, 2)


def test_a_module_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    torch.manual_seed(0)
    model, x, mask = Model(), torch.randn(1, 32, 64), torch.rand(1, 32, 64)
    writers, inputs = compile_tvm_to_python(pybuda.PyTorchModule("m", model), "two layers", (x, mask))
    (writer,) = writers
    assert inputs == (x, mask) and writer.import_module_path() == "generated_modules.two_layers"
    kind = getattr(importlib.import_module(writer.import_module_path()), writer.class_name)
    module = kind("test_module")
    with pytest.raises(ModelError, match="no parameter"):
        module.process_framework_parameters(nn.Linear(2, 2))
    module.process_framework_parameters(model)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        module=module,
        optimizer=pybuda.SGD(0.5, parameters=module.get_parameters()),
    )
    assert {p.get_name() for p in module.get_parameters()} >= {"first.weight", "second.bias", "norm.weight"}
    result = pybuda.pybuda_compile(device, "two layers", x, mask, verify_cfg=pybuda.VerifyConfig())
    for have, want in zip(result.outputs, model(x, mask), strict=True):
        torch.testing.assert_close(have.value(), want.detach(), rtol=1e-2, atol=1e-3)
    assert compile_tvm_to_python(model, "1 class", (x, mask))[0][0].module_name == "model_1_class"
