"""Several modules of one device as graphs of their own: programs, shared weights, caches between them, images."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab import pybuda
from tbuda_lab.core.errors import BatchError, InputError, ModelError, NotSupported, PipelineError, PlacementError
from tbuda_lab.core.netlist import check, dumps, loads
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.op_checks import check_ops
from tbuda_lab.pybuda import PyTorchModule, TTDevice
from tbuda_lab.pybuda.compiler_config import reset_warnings
from tbuda_lab.pybuda.subgraphs import Subgraphs

HEADS, SIZE, PLACES, STEP, STATES = 2, 32, 96, 32, 64
WIDTH = HEADS * SIZE


@pytest.fixture(autouse=True)
def settings() -> Iterator[Any]:
    pybuda.pybuda_reset()
    result = pybuda.config._get_global_compiler_config()
    result.compile_subgraphs = True
    result.default_df_override = pybuda.DataFormat.Float32
    yield result
    pybuda.pybuda_reset()


def device(*modules: Any, arch: Any = pybuda.BackendDevice.Wormhole_B0) -> TTDevice:
    return TTDevice("tt0", arch=arch, module=list(modules))


def ran(results: queue.Queue[Any]) -> list[torch.Tensor]:
    return [tensor.value() for tensor in results.get(timeout=1)]


def readers(result: Any) -> dict[str, set[str]]:
    """By queue the subgraphs whose ops read it, as the names of the netlist's graphs have them."""
    table: dict[str, set[str]] = {}
    for name, graph in result.netlist.graphs.items():
        for op in graph.ops.values():
            for port in op.inputs:
                table.setdefault(port.source, set()).add(name[:5])
    return table


# -- weights -----------------------------------------------------------------------------------------------------------
class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 64)


class Up(nn.Module):
    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers.first(x).relu()


class Through(Up):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers.first(x) * scale
        return self.layers.second(y), y


def test_two_modules_share_weights_and_have_a_program_each() -> None:
    torch.manual_seed(1)
    layers = Layers().eval()
    up, through = Up(layers), Through(layers)
    tt0 = device(PyTorchModule("up", up), PyTorchModule("through", through))
    x, scale = torch.randn(2, 32, 64), torch.randn(2, 32, 96)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=((x,), (x, scale)))
    result = tt0.result
    assert result is not None and not check(result.netlist)
    assert [p.name for p in result.netlist.programs] == ["run_fwd_0", "run_fwd_1"]
    assert [name[:5] for name in result.netlist.graphs] == ["fwd_0", "fwd_1"], "each begins an epoch of its own"
    text = dumps(result.netlist)
    assert dumps(loads(text)) == text
    read = readers(result)
    assert read["layers.first.weight"] == read["layers.first.bias"] == {"fwd_0", "fwd_1"}
    assert read["layers.second.weight"] == {"fwd_1"}
    weights = [q for q in result.netlist.queues.values() if q.type == "ram"]
    assert len(weights) == 4, "no weight lies there twice"

    a, b = torch.randn(2, 32, 64), torch.randn(2, 32, 64)
    with torch.no_grad():
        tt0.push_to_inputs(a)  # waits for subgraph 0 while the other one runs
        tt0.set_active_subgraph(1)
        tt0.push_to_inputs({"scale": scale, "x": b})
        pybuda.run_forward()
        for got, want in zip(ran(results), through(b, scale), strict=True):
            assert got.shape == want.shape and torch.allclose(got, want, atol=1e-5)
        tt0.set_active_subgraph(0)
        assert tt0.get_active_subgraph() == 0
        pybuda.run_forward()
        (got,) = ran(results)
        assert torch.allclose(got, up(a), atol=1e-5)


def test_equal_names_with_other_values_are_other_weights() -> None:
    torch.manual_seed(2)
    one, two = Up(Layers().eval()), Up(Layers().eval())
    tt0 = device(PyTorchModule("one", one), PyTorchModule("two", two))
    x = torch.randn(1, 32, 64)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=((x,), (x,)))
    with torch.no_grad():
        for number, module in enumerate((one, two)):
            tt0.set_active_subgraph(number)
            tt0.push_to_inputs(x)
            pybuda.run_forward()
            assert torch.allclose(ran(results)[0], module(x), atol=1e-5)
    result = tt0.result
    assert result is not None
    assert readers(result)["layers.first.weight"] == {"fwd_0"}
    assert readers(result)["two.layers.first.weight"] == {"fwd_1"}


class Scaled(pybuda.PyBudaModule):
    def __init__(self, name: str, weight: Any, factor: float) -> None:
        super().__init__(name)
        self.weight, self.factor = weight, factor

    def forward(self, x: Any) -> Any:
        product = pybuda.op.Matmul("product", x, self.weight)
        return pybuda.op.Multiply("scaled", product, pybuda.op.Constant("factor", constant=self.factor))


def test_modules_of_the_api_share_a_parameter() -> None:
    torch.manual_seed(3)
    value = torch.randn(64, 32)
    weight = pybuda.Parameter(value)
    tt0 = device(Scaled("a", weight, 2.0), Scaled("b", weight, -1.0))
    x = torch.randn(1, 32, 64)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=((x,), (x,)))
    tt0.set_active_subgraph(1)
    tt0.push_to_inputs(x)
    pybuda.run_forward()
    assert torch.allclose(ran(results)[0], -x @ value, atol=1e-4)


# -- caches ------------------------------------------------------------------------------------------------------------
class Core(nn.Module):
    """The layers of an encoder and of a decoder with attention to itself and to the encoder."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("encode", "q", "k", "v", "cross_q", "cross_k", "cross_v"):
            self.add_module(name, nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 96)


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(1, x.shape[1], HEADS, SIZE).transpose(1, 2)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any = 0.0) -> torch.Tensor:
    y = (heads(q) @ k.transpose(-1, -2) / SIZE**0.5 + mask).softmax(-1) @ v
    return y.transpose(1, 2).reshape(1, q.shape[1], WIDTH)


class Part(nn.Module):
    def __init__(self, core: Any) -> None:
        super().__init__()
        self.core = core


class Encoder(Part):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.core.encode(x).relu()


class FirstDecoder(Part):
    """Makes the keys and values of the encoder's states too."""

    def forward(self, x: Any, mask: Any, states: Any, past_k: Any, past_v: Any) -> tuple[torch.Tensor, ...]:
        core = self.core
        k, v = torch.cat([past_k, heads(core.k(x))], -2), torch.cat([past_v, heads(core.v(x))], -2)
        y = x + attended(core.q(x), k, v, mask)
        cross_k, cross_v = heads(core.cross_k(states)), heads(core.cross_v(states))
        return core.head(y + attended(core.cross_q(y), cross_k, cross_v)), k, v, cross_k, cross_v


class Decoder(Part):
    def forward(
        self, x: Any, mask: Any, past_k: Any, past_v: Any, cross_k: Any, cross_v: Any
    ) -> tuple[torch.Tensor, ...]:
        core = self.core
        k, v = torch.cat([past_k, heads(core.k(x))], -2), torch.cat([past_v, heads(core.v(x))], -2)
        y = x + attended(core.q(x), k, v, mask)
        return core.head(y + attended(core.cross_q(y), cross_k, cross_v)), k, v


def parts() -> tuple[Encoder, FirstDecoder, Decoder]:
    torch.manual_seed(4)
    core = Core().eval()
    for parameter in core.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.2
    return Encoder(core), FirstDecoder(core), Decoder(core)


def empty(places: int) -> torch.Tensor:
    return torch.zeros(1, HEADS, places, SIZE)


def samples() -> tuple[tuple[torch.Tensor, ...], ...]:
    x, mask = torch.randn(1, STEP, WIDTH), torch.zeros(1, 1, STEP, PLACES + STEP)
    states = torch.randn(1, STATES, WIDTH)
    past = (empty(PLACES), empty(PLACES))
    return (states,), (x, mask, states, *past), (x, mask, *past, empty(STATES), empty(STATES))


def decode(tt0: TTDevice, results: queue.Queue[Any], tolerance: float) -> list[torch.Tensor]:
    """Encode, then three steps of 32 tokens, the first by the one decoder, the others by the other; each as torch has
    them with the cache in its hands. Returns the caches then."""
    encoder, first, later = parts()
    source = torch.randn(1, STATES, WIDTH)
    past = [empty(PLACES), empty(PLACES)]
    cross: tuple[torch.Tensor, ...] = ()
    tt0.set_active_subgraph(0)
    tt0.push_to_inputs(source)
    pybuda.run_forward()
    (states,) = ran(results)
    with torch.no_grad():
        want_states = encoder(source)
        assert torch.allclose(states, want_states, atol=tolerance)
        for step in range(PLACES // STEP):
            x = torch.randn(1, STEP, WIDTH)
            mask = torch.full((1, 1, STEP, PLACES + STEP), -1e4)
            mask[..., : STEP * step] = mask[..., PLACES:] = 0
            tt0.set_active_subgraph(min(1 + step, 2))
            tt0.push_to_inputs([x, mask, states] if step == 0 else [x, mask])
            pybuda.run_generate(input_count=1, write_index=step)
            wanted = first(x, mask, want_states, *past) if step == 0 else later(x, mask, *past, *cross)
            cross = wanted[3:] if step == 0 else cross
            (got,) = ran(results)
            assert got.shape == (1, STEP, 96) and float(wanted[0].std()) > 1
            assert float((got - wanted[0]).abs().max()) <= tolerance * float(wanted[0].abs().max())
            for cache, new in zip(past, wanted[1:3], strict=True):
                cache[:, :, STEP * step : STEP * (step + 1)] = new[:, :, PLACES:]
    return [*past, *cross]


def cached_device(settings: Any, arch: Any = pybuda.BackendDevice.Wormhole_B0) -> tuple[TTDevice, queue.Queue[Any]]:
    settings.enable_link_past_cache_ios = True
    tt0 = device(*(PyTorchModule(type(part).__name__, part) for part in parts()), arch=arch)
    return tt0, pybuda.initialize_pipeline(training=False, sample_inputs=samples())


def test_an_encoder_and_two_decoders_share_caches_of_keys_and_values(settings: Any) -> None:
    tt0, results = cached_device(settings)
    decode(tt0, results, 1e-5)
    decode(tt0, results, 1e-5)  # from the beginning, over what is there
    result = tt0.result
    assert result is not None and not check(result.netlist)
    text = dumps(result.netlist)
    assert dumps(loads(text)) == text
    queues, written_by = result.netlist.queues, {}
    for name, graph in result.netlist.graphs.items():
        written_by |= {op: name[:5] for op in graph.ops}
    for kind in ("past_k", "past_v"):
        first, later = queues[kind], queues[f"Decoder.{kind}"]
        assert later.alias == kind and later.buffers == first.buffers
        assert (written_by[first.input], written_by[later.input]) == ("fwd_1", "fwd_2"), "two views of one ram"
    for kind in ("cross_k", "cross_v"):
        assert written_by[queues[kind].input] == "fwd_1" and readers(result)[kind] == {"fwd_2"}
    weights = [n for n, q in queues.items() if q.input == "HOST" and "weight" in n]
    assert len(weights) == 8, "the decoders' weights lie there once"
    assert [e.direction for e in result.placement.epochs] == ["fwd", "fwd_1", "fwd_2"]


def test_grayskull_shares_them_too(settings: Any) -> None:
    settings.default_df_override = None
    tt0, results = cached_device(settings, pybuda.BackendDevice.Grayskull)
    decode(tt0, results, 0.05)
    assert tt0.result is not None and not check(tt0.result.netlist)


def test_a_cache_has_one_chip(settings: Any) -> None:
    settings.enable_link_past_cache_ios, settings.default_df_override = True, None
    modules = [PyTorchModule(type(part).__name__, part) for part in parts()]
    TTDevice("tt0", arch=pybuda.BackendDevice.Grayskull, num_chips=3, module=modules)
    with pytest.raises(PlacementError, match=r"cache 'past_k' in one place(.|\n)*in chip it differs.*take one chip"):
        pybuda.initialize_pipeline(training=False, sample_inputs=samples())


def test_every_op_of_the_subgraphs_is_checked_against_torch(settings: Any) -> None:
    tt0, _ = cached_device(settings)
    result = tt0.result
    assert result is not None
    flat = Subgraphs(result.graph, "tt0").sample(samples())
    checks = check_ops(Runner(result), flat)
    assert not checks.unchecked
    assert all(c.comparison.max_abs <= 1e-5 * max(1.0, c.comparison.scale) for c in checks.ops)


def test_caches_begin_anew_with_what_is_given(settings: Any) -> None:
    tt0, results = cached_device(settings)
    _, _, later = parts()
    _, _, (x, mask, *_) = samples()
    past = [torch.randn(1, HEADS, PLACES, SIZE) for _ in range(2)]
    cross = [torch.randn(1, HEADS, STATES, SIZE) for _ in range(2)]
    tt0.set_active_subgraph(2)
    tt0.push_to_inputs((x, mask, *past, *cross))
    tt0.push_to_inputs((x, mask))
    pybuda.run_generate(input_count=2, write_index=1)  # the second input one row of tiles further
    with torch.no_grad():
        want, k, v = later(x, mask, *past, *cross)
        assert torch.allclose(ran(results)[0], want, atol=1e-4)
        for cache, new in zip(past, (k, v), strict=True):
            cache[:, :, STEP : 2 * STEP] = new[:, :, PLACES:]
        assert torch.allclose(ran(results)[0], later(x, mask, *past, *cross)[0], atol=1e-4)
    tt0.push_to_inputs((x, mask))
    with pytest.raises(PipelineError, match="has 96 places; 32 from 96 on"):
        pybuda.run_generate(input_count=1, write_index=3)


def test_an_image_of_subgraphs_runs_without_the_model(settings: Any, tmp_path: Path) -> None:
    """With a subgraph that rotates the caches."""
    settings.enable_link_past_cache_ios = settings.rotate_past_cache_params = True
    tt0 = device(*(PyTorchModule(type(part).__name__, part) for part in parts()))
    image = tt0.compile_to_image(img_path=tmp_path / "parts.tti", sample_inputs=samples())
    state = image.compiled_graph_state
    by_name = dict(zip(state.ordered_input_names, state.ordered_input_subgraph_indices, strict=True))
    assert (by_name["states"], by_name["mask"], by_name["Decoder.mask"]) == (1, 1, 2)
    assert state.ordered_output_subgraph_indices == [0, 1, 2] and state.has_cache_buffers
    pybuda.pybuda_reset()
    loaded = TTDevice.load_image(img_path=tmp_path / "parts.tti")
    results = pybuda.initialize_pipeline(training=False)
    *past, cross_k, cross_v = decode(loaded, results, 1e-4)
    loaded.set_active_subgraph(3)
    pybuda.run_generate(input_count=0)
    loaded.set_active_subgraph(2)
    x, mask = torch.randn(1, STEP, WIDTH), torch.zeros(1, 1, STEP, PLACES + STEP)
    mask[..., :STEP] = -1e4  # what stood second, and now stands first
    loaded.push_to_inputs(x, mask)
    pybuda.run_generate(input_count=1)
    with torch.no_grad():
        rolled = [cache.roll(-STEP, 2) for cache in past]
        want = parts()[2](x, mask, *rolled, cross_k, cross_v)[0]
        unmoved = parts()[2](x, mask, *past, cross_k, cross_v)[0]
    assert torch.allclose(ran(results)[0], want, atol=1e-3) and not torch.allclose(want, unmoved, atol=0.1)
    with pytest.raises(PipelineError, match="4 subgraphs"):
        loaded.set_active_subgraph(4)


def test_a_session_of_subgraphs_says_which_epoch_is_whose(settings: Any, tmp_path: Path) -> None:
    settings.enable_link_past_cache_ios = True
    tt0 = device(*(PyTorchModule(type(part).__name__, part) for part in parts()))
    tt0.compile_to_image(img_path=tmp_path / "parts.tti", sample_inputs=samples())
    session, result = Session.open(tmp_path / "parts.tti"), tt0.result
    assert result is not None and dumps(session.compile().netlist) == dumps(result.netlist)
    assert session.frames.get("ops").meta["directions"] == ["fwd", "fwd_1", "fwd_2"]
    assert session.time().cycles > 0
    for _ in range(2):  # caches begin anew
        verified = session.verify()
        assert len(verified) == 3 and all(each.pcc > 0.9999 for each in verified), "what goes into rams is no output"


class Counts(nn.Module):
    def forward(self, x: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, total + x


class Reads(nn.Module):
    def forward(self, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return total - y


def test_an_output_of_one_subgraph_is_the_input_of_another(settings: Any) -> None:
    """`loopback_outputs`: {input: (subgraph, output)}; the sum goes into the first one's own input as well."""
    settings.loopback_outputs = {"total": (0, 1)}
    tt0 = device(PyTorchModule("counts", Counts()), PyTorchModule("reads", Reads()))
    x, start = torch.randn(1, 32, 64), torch.randn(1, 32, 64)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=((x, start), (x, start)))
    total = start
    for _ in range(2):
        a, y = torch.randn(1, 32, 64), torch.randn(1, 32, 64)
        tt0.set_active_subgraph(0)
        tt0.push_to_inputs(a)
        pybuda.run_forward()
        total = total + a
        (doubled,) = ran(results)
        assert torch.allclose(doubled, a * 2)
        tt0.set_active_subgraph(1)
        tt0.push_to_inputs(y)
        pybuda.run_forward()
        assert torch.allclose(ran(results)[0], total - y, atol=1e-5)
    assert tt0.result is not None and not check(tt0.result.netlist)


# -- refusals ----------------------------------------------------------------------------------------------------------
def test_what_subgraphs_cannot_do_is_refused(settings: Any) -> None:
    counts, reads = PyTorchModule("counts", Counts()), PyTorchModule("reads", Reads())
    tt0 = device(counts, reads)
    x = torch.randn(1, 32, 64)
    with pytest.raises(PipelineError, match="2 subgraphs, from 0 on, and no 2"):
        tt0.set_active_subgraph(2)
    tt0.push_to_inputs(x, x)
    with pytest.raises(PipelineError, match="initialize_pipeline"):
        pybuda.run_forward()
    tt0.shutdown_device()
    with pytest.raises(ModelError, match="2 subgraphs take as many sample inputs, not 1"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((x, x),))
    settings.loopback_outputs = {"sum": 1}
    with pytest.raises(ModelError, match="loopback_outputs names 'sum'; the subgraphs take x, total, y, total"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((x, x), (x, x)))
    settings.loopback_outputs = {"total": (0, 2)}
    with pytest.raises(ModelError, match="subgraph 0 has 2 outputs, none is 2"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((x, x), (x, x)))
    settings.loopback_outputs = {"total": (0, 0)}
    with pytest.raises(ModelError, match="does not depend on"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((x, x), (x, x)))
    settings.loopback_outputs = {"total": (0, 1)}
    two = torch.randn(2, 32, 64)
    with pytest.raises(NotSupported, match=r"a microbatch of 2 with caches .*one by one"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((two, two), (two, two)))
    settings.loopback_outputs = {}
    pybuda.initialize_pipeline(training=False, sample_inputs=((x, x), (x, x)))
    tt0.push_to_inputs(x)
    with pytest.raises(InputError, match="subgraph 0 of device 'tt0' takes 2 inputs"):
        pybuda.run_forward()
    tt0.push_to_inputs(two, two)
    with pytest.raises(BatchError, match="compiled for a microbatch of 1, not 2"):
        pybuda.run_forward()
    settings.enable_training = True
    with pytest.raises(NotSupported, match=r"training of subgraphs .*inference of subgraphs works"):
        pybuda.initialize_pipeline(training=False, sample_inputs=((x, x), (x, x)))
    settings.enable_training = False
    with pytest.raises(NotSupported, match="pybuda_compile of a device with subgraphs"):
        pybuda.pybuda_compile(tt0, "all", x, x)


def test_options_that_find_nothing_to_do_say_so(settings: Any) -> None:
    x = torch.randn(1, 32, 64)
    settings.enable_link_past_cache_ios = True
    device(PyTorchModule("up", Up(Layers().eval())))
    with pytest.warns(UserWarning, match="finds no cache: .*loopback_outputs names caches"):
        pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    pybuda.pybuda_reset()
    reset_warnings()
    pybuda.config._get_global_compiler_config().enable_link_past_cache_ios = True
    device(PyTorchModule("up", Up(Layers().eval())))
    with pytest.warns(UserWarning, match="caches are linked where compile_subgraphs is True as well"):
        pybuda.initialize_pipeline(training=False, sample_inputs=(x,))


def test_a_decoder_alone_keeps_its_caches(settings: Any) -> None:
    settings.enable_link_past_cache_ios = True
    _, _, later = parts()
    tt0 = device(PyTorchModule("decoder", later))
    _, _, (x, mask, *past) = samples()
    cross = [torch.randn(1, HEADS, STATES, SIZE) for _ in range(2)]
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x, mask, *past[:2], *cross))
    assert [node.name for node in Subgraphs(tt0.result.graph, "tt0").caches] == ["past_k", "past_v"]  # type: ignore[union-attr]
    past = [p.clone() for p in past[:2]]
    for step in range(2):
        tt0.push_to_inputs((x, mask, *cross))
        pybuda.run_generate(input_count=1, token_id=16 * step + 5)  # rows that begin between tiles
        with torch.no_grad():
            want, *new = later(x, mask, *past, *cross)
        assert torch.allclose(ran(results)[0], want, atol=1e-4)
        for cache, rows in zip(past, new, strict=True):
            cache[:, :, 16 * step + 5 : 16 * step + 5 + STEP] = rows[:, :, PLACES:]
