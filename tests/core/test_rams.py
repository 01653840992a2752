"""Rams that programs write: a write is in the netlist, or its op is refused by name, whatever stands before it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.compiler.fallback import compile_with_fallback
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.core.graph.phases import CACHE, PHASE, ROLE, WRITES, forward_part
from tbuda_lab.core.ops.binary import Add, Multiply
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.conv import Conv2d
from tbuda_lab.core.ops.host import HostCall
from tbuda_lab.core.ops.tm import Index, Reshape
from tbuda_lab.core.ops.unary import Buffer, Exp
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner

SHAPE = (1, 4, 8, 8)
FLOAT = CompileOptions(default_df_override=DataFormat.Float32)
Make = Callable[[Builder, str, str], str]
"""Makes what is written of an input and what the ram held."""


def _sorted(b: Builder, x: str) -> str:
    return b.op(HostCall("sort", ("$0", -1)), x)


def _conv_of_ram(b: Builder, x: str, ram: str) -> str:
    """Weights of a convolution are rearranged by the host, which a ram that programs write would not be."""
    weights = b.op(Index(2, 0, 3), b.op(Index(3, 0, 3), b.op(Reshape((4, 1, 8, 8)), ram)))
    return b.op(Conv2d(padding=(1, 1, 1, 1), groups=4), x, weights)


Oracle = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""What is written, by torch."""
KEPT: dict[str, tuple[Make, Oracle]] = {
    "a sum with what it held": (lambda b, x, ram: b.op(Add(), x, ram), lambda x, held: x + held),
    "a function of what it held": (lambda b, x, ram: b.op(Exp(), ram), lambda x, held: held.exp()),
    "what it held": (lambda b, x, ram: b.op(Buffer(), ram), lambda x, held: held),
    "an input": (lambda b, x, ram: b.op(Buffer(), x), lambda x, held: x),
}
BEHIND_HOST: dict[str, tuple[Make, Oracle]] = {
    "the host's op": (lambda b, x, ram: _sorted(b, b.op(Add(), x, ram)), lambda x, held: (x + held).sort(-1)[0]),
    "an op behind the host's": (
        lambda b, x, ram: b.op(Add(), _sorted(b, b.op(Exp(), x)), ram),
        lambda x, held: x.exp().sort(-1)[0] + held,
    ),
    "the host's op of the ram": (lambda b, x, ram: _sorted(b, ram), lambda x, held: held.sort(-1)[0]),
    "a convolution by what it held": (
        _conv_of_ram,
        lambda x, held: functional.conv2d(x, held.reshape(4, 1, 8, 8)[..., :3, :3], None, 1, 1, 1, 4),
    ),
}
DOORS = {
    "a graph": lambda graph, options: compile_graph(graph, "wormhole_b0", options),
    "sections": lambda graph, options: compile_with_fallback(graph, load_device("wormhole_b0"), options),
    "without the host": lambda graph, options: compile_graph(graph, "wormhole_b0", options, chains=False),
}


def _graph(make: Make, parts: int) -> Graph:
    """An input, a ram, its write, and an output; of two parts the later one reads the ram and gives the output."""
    graph = Graph("rams")
    graph.add(Node("x", NodeKind.INPUT, SHAPE, attrs={"dtype": "float32"}))
    held = np.linspace(-1, 1, int(np.prod(SHAPE)), dtype=np.float32).reshape(SHAPE)
    graph.add(Node("ram", NodeKind.PARAMETER, SHAPE, value=held, attrs={ROLE: CACHE}))
    b = Builder(graph, Origin(location="model.py:7", source_op="the op"))
    written = make(b, "x", "ram")
    graph.add(Node("ram.write", NodeKind.OUTPUT, SHAPE, inputs=(Edge(written),), attrs={WRITES: "ram"}))
    read = b.op(Multiply(), "ram" if parts == 2 else written, b.constant(2.0))
    graph.add(Node("rams.output_0", NodeKind.OUTPUT, SHAPE, inputs=(Edge(read),)))
    if parts == 2:
        graph["ram.write"].attrs[PHASE], graph["rams.output_0"].attrs[PHASE] = forward_part(0), forward_part(1)
    return graph


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", BEHIND_HOST)
def test_a_write_of_several_parts_behind_an_op_of_the_host_is_refused_by_name(name: str, door: str) -> None:
    graph = _graph(BEHIND_HOST[name][0], 2)
    with pytest.raises(UnsupportedOp) as error:
        DOORS[door](graph, FLOAT)
    assert "model.py:7" in str(error.value)


def test_without_the_host_it_is_refused_in_one_part_too() -> None:
    for make, _ in BEHIND_HOST.values():
        with pytest.raises(UnsupportedOp) as error:
            DOORS["without the host"](_graph(make, 1), FLOAT)
        assert "model.py:7" in str(error.value)


def test_an_op_that_is_named_is_the_hosts() -> None:
    named = CompileOptions(default_df_override=DataFormat.Float32, cpu_fallback_ops=("add",))
    result = DOORS["sections"](_graph(KEPT["a sum with what it held"][0], 1), named)
    assert [stage.place for stage in result.chain.stages] == ["device", "host", "device"]


@pytest.mark.parametrize("name", [*KEPT, *BEHIND_HOST])
def test_a_write_is_in_the_netlist(name: str) -> None:
    make, wanted = (KEPT | BEHIND_HOST)[name]
    graph = _graph(make, 1)
    held = torch.from_numpy(graph["ram"].value.copy())
    result = DOORS["a graph" if name in KEPT else "sections"](graph, FLOAT)
    assert result.netlist.queues["ram"].input != "HOST"
    runner, x = Runner(result, "exact"), torch.linspace(0, 1, 256).reshape(SHAPE)
    for _ in range(2):
        held = wanted(x, held)
        ((output,),) = runner.run([x])
        torch.testing.assert_close(output, 2 * held, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            torch.from_numpy(runner.executor.read("ram")[:, :8, :8]), held[0], rtol=1e-5, atol=1e-5
        )
