"""One layer of each real model: compiled, its netlist written and read back, and run by two readers that share no code.

One is the executor. The other is `tests/sim/reference.py`, which goes through programs instruction by instruction, ops
tile by tile, and decodes sparse encodings word by word from the bit widths of the format; the encoder is the
compiler's. Both agree with each other to float32's accuracy, and with torch as well as the formats allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from bench.models.resnet50 import Bottleneck
from bench.models.yolov5 import C3, Conv
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.sim import Executor
from tests.e2e.references import eager, pcc
from tests.models.calibrate import calibrate
from tests.models.mobilenet_v2 import InvertedResidual
from tests.models.resnet18 import BasicBlock
from tests.models.unet import double_conv
from tests.sim.reference import Reference


def bert() -> nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    config = BertConfig(hidden_size=64, num_attention_heads=2, intermediate_size=96, attn_implementation="eager")
    return BertLayer(config)


def gpt2() -> nn.Module:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    config = GPT2Config(n_embd=64, n_head=2, n_inner=96, use_cache=False, attn_implementation="eager")
    return GPT2Block(config, layer_idx=0)


class Up(nn.Module):
    """A level of a U-Net: down, up, beside what was there."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.pool = double_conv(3, 8), nn.MaxPool2d(2)
        self.low, self.up = double_conv(8, 16), nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = self.down(x)
        return torch.cat([high, self.up(self.low(self.pool(high)))], 1)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "bert": (bert, (1, 32, 64)),
    "gpt2": (gpt2, (1, 32, 64)),
    "resnet18": (lambda: BasicBlock(16, 32, 2), (1, 16, 8, 8)),
    "resnet50": (lambda: Bottleneck(16, 8, 2), (1, 16, 8, 8)),
    "mobilenet_v2": (lambda: InvertedResidual(8, 8, 1, 4), (1, 8, 8, 8)),
    "yolov5": (lambda: nn.Sequential(Conv(8, 16, 3, 2), C3(16, 16, 1)), (1, 8, 8, 8)),
    "unet": (Up, (1, 3, 8, 8)),
}


def same_fields(net: netlists.Netlist, text: str) -> None:
    """What a YAML library reads of a netlist is what our reader read."""
    data = yaml.safe_load(text)
    assert set(data["queues"]) == set(net.queues) and set(data["graphs"]) == set(net.graphs)

    def blocking(one: Any) -> dict[str, Any]:
        return {
            "t": one.blocking.t,
            "mblock": list(one.blocking.mblock),
            "ublock": list(one.blocking.ublock),
            "ublock_order": one.blocking.order,
            "grid_size": list(one.grid_size),
        }

    for name, queue in net.queues.items():
        fields = {
            "type": queue.type,
            "input": queue.input,
            "entries": queue.entries,
            "loc": queue.loc,
            "target_device": queue.target_device,
            "df": queue.df.name,
            **blocking(queue),
        }
        assert {key: data["queues"][name].get(key) for key in fields} == fields, name
    for graph, op in net.ops():
        written = data["graphs"][graph.name][op.name]
        fields = {
            "type": op.type,
            "inputs": [i.source for i in op.inputs],
            "in_df": [i.df.name for i in op.inputs],
            "grid_loc": list(op.grid_loc or ()),
            "out_df": op.out_df.name,
            **blocking(op),
        }
        assert {key: written.get(key) for key in fields} == fields, op.name
        for port, operand in enumerate(op.inputs):
            tms = written.get(f"input_{port}_tms", [])
            assert [t if isinstance(t, str) else next(iter(t)) for t in tms] == [t.name for t in operand.tms or ()]


@pytest.mark.e2e
@pytest.mark.parametrize("arch", ["wormhole_b0", "grayskull"])
@pytest.mark.parametrize("name", LAYERS)
def test_two_readers_of_one_layer(name: str, arch: str) -> None:
    make, shape = LAYERS[name]
    torch.manual_seed(7)
    module, x = make().eval().requires_grad_(False), torch.randn(shape)
    if len(shape) == 4:
        calibrate(module, shape[1:], seed=7)
    df = DataFormat.Float32 if arch == "wormhole_b0" else DataFormat.Float16_b
    result = Session(module, (x,), arch, CompileOptions(default_df_override=df)).compile()
    text = netlists.dumps(result.netlist)
    net = netlists.loads(text)
    same_fields(net, text)
    kinds = {op.type for _, op in net.ops()}
    assert "matmul" in kinds and (len(shape) < 4 or any(op.attributes.get("identity") for _, op in net.ops()))

    one, other = Executor(net, mode="golden", arch=arch), Reference(net, arch)
    for queue, value in result.parameters.items():
        if queue in net.queues and net.queues[queue].type == "ram":
            one.write(queue, value, slot=0)
            other.write(queue, value)
        elif queue in net.queues:
            one.push(queue, value)
            other.push(queue, value)
    feed = {result.graph.inputs[0].name: x}
    for binding in result.inputs:
        one.push(binding.queue, binding.encode(feed))
        other.push(binding.queue, binding.encode(feed))
    one.run(params={"p_loop_count": 1})
    with np.errstate(all="ignore"):
        other.run({"$p_loop_count": 1})
    (output,) = result.outputs
    first, second = one.pop(output.queue), np.asarray(other.pop(output.queue), np.float32)
    got, read = output.decode(first).float(), output.decode(second).float()
    # operands are cut to Tf32, where float32 and float64 may fall on two sides of a boundary
    step = 2**-9 if df is DataFormat.Float32 else 2**-6
    torch.testing.assert_close(got, read, rtol=step, atol=step * float(read.abs().max()))
    assert pcc(got, read) > 0.99999
    assert pcc(eager(module, (x,)), got) > 0.999
