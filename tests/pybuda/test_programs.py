"""The two programs that PyBuda texts open with, and their older spelling: nothing is changed but the import line."""

from __future__ import annotations

import warnings

import pytest
import torch

import tbuda_lab as pybuda
import tbuda_lab.pybuda.op
from tbuda_lab import PyBudaModule, TTDevice
from tests.e2e.references import pcc


class BudaMatmul(PyBudaModule):
    def __init__(self, name):
        super().__init__(name)
        self.weights = pybuda.Parameter(1, 1, 32, 32, requires_grad=False)

    def forward(self, act):
        return pybuda.op.Matmul("matmul", act, self.weights)


class OlderMatmul(BudaMatmul):
    def forward(self, act):
        return pybuda.op.Matmul(self, "matmul", act, self.weights)


def test_the_matmul_program() -> None:
    tt0 = TTDevice("grayskull0")
    matmul = BudaMatmul("matmul0")
    tt0.place_module(matmul)
    act = torch.randn(1, 1, 32, 32)
    tt0.push_to_inputs(act)
    results = pybuda.run_inference(input_count=1)
    (output,) = results.get()
    assert isinstance(output, pybuda.Tensor)
    assert output.value().shape == (1, 1, 32, 32)
    assert pcc(act @ matmul.weights.value(), output.value()) > 0.9999
    assert tt0.arch is pybuda.BackendDevice.Grayskull
    assert results.empty()


def test_the_matmul_program_in_the_older_spelling() -> None:
    tt0 = TTDevice("grayskull0")
    lin0 = OlderMatmul("matmul0")
    tt0.place_module(lin0)
    act = torch.rand(1, 1, 32, 32)
    tt0.push_to_inputs(act)
    results = pybuda.run_inference(num_inputs=1, sequential=True)
    (output,) = results.get()
    assert pcc(act @ lin0.weights.value(), output.value()) > 0.9999


def test_both_spellings_give_one_netlist() -> None:
    texts = []
    for module in (BudaMatmul("matmul0"), OlderMatmul("matmul0")):
        device = TTDevice("tt0", module=module)
        result = device.compile_for_inputs((torch.rand(1, 1, 32, 32),))
        texts.append(tbuda_lab.core.netlist.dumps(result.netlist))
    assert texts[0] == texts[1]


def test_the_bert_program() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=2))  # all 12: tests/e2e/test_models.py
    module = pybuda.PyTorchModule("bert_encoder", model.encoder)
    with pytest.warns(UserWarning, match="silicon"):
        tt0 = pybuda.TTDevice(
            "tt0", module=module, arch=pybuda.BackendDevice.Wormhole_B0, devtype=pybuda.BackendType.Silicon
        )
    x = torch.randn(1, 128, 768)
    output_queue = pybuda.run_inference(inputs=[x])
    (output,) = output_queue.get()
    model.eval()
    with torch.no_grad():
        want = model.encoder(x).last_hidden_state
    assert output.value().shape == want.shape
    assert pcc(want, output.value()) >= 0.99
    results = tt0.get_compiled_results()
    assert results.result.device.arch == "wormhole_b0"
    assert pybuda.run_inference(inputs=[(x,)]) is output_queue  # a tuple for each input is as good as a bare tensor
    assert torch.equal(output_queue.get()[0].value(), output.value())
    assert tt0.get_compiled_results().result is results.result


def test_silicon_warns_once() -> None:
    with pytest.warns(UserWarning, match="simulated device") as caught:
        TTDevice("a", devtype=pybuda.BackendType.Silicon)
        TTDevice("b", devtype=pybuda.BackendType.Silicon)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TTDevice("c")
        TTDevice("d", devtype=pybuda.BackendType.Golden)
