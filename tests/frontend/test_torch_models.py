"""Models of real size: imported whole, equal to torch, and every node says where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import feeds, from_torch, reference
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests import models
from tests.frontend.ops_zoo import Fn


def check(module: nn.Module, inputs: tuple[torch.Tensor, ...] | dict[str, torch.Tensor]) -> Graph:
    """Import, evaluate, compare with torch (error relative to the largest magnitude); the graph."""
    graph = from_torch(module, inputs)
    module.eval()
    with torch.no_grad():
        answer = module(**inputs) if isinstance(inputs, dict) else module(*inputs)
    want = [leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor)]
    got = list(evaluate(graph, feeds(graph, inputs)).values())
    assert [tuple(g.shape) for g in got] == [tuple(w.shape) for w in want]
    for w, g in zip(want, got, strict=True):
        assert float((w - g).abs().max()) <= 1e-5 * float(w.abs().max())
    return graph


@pytest.mark.parametrize("name", models.NAMES)
def test_models_of_the_zoo(name: str) -> None:
    graph = check(*models.make(name))
    for node in graph.ops:
        assert node.origin.source_op.startswith("aten.")
        assert node.origin.location.rpartition(":")[2].isdigit()


def test_bert_with_an_attention_mask_and_token_ids() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(num_hidden_layers=2, hidden_size=128, num_attention_heads=4, intermediate_size=256)
    mask = torch.ones(1, 32, dtype=torch.int64)
    mask[:, 20:] = 0
    # Keyword order differs from the forward's on purpose.
    graph = check(transformers.BertModel(config).eval(), {"attention_mask": mask, "input_ids": torch.arange(32)[None]})
    assert [(n.name, n.attrs["dtype"]) for n in graph.inputs] == [("input_ids", "int64"), ("attention_mask", "int64")]
    assert [n.attrs["path"] for n in graph.outputs] == ["['last_hidden_state']", "['pooler_output']"]
    assert [n.name for n in graph.outputs] == ["model.output_0", "model.output_1"]


def test_llama_with_shared_key_heads() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=1,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=100,
        use_cache=False,
    )
    check(transformers.LlamaModel(config), (torch.arange(16)[None],))


def test_tied_weights_are_stored_once() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64, use_cache=False)
    module = transformers.GPT2LMHeadModel(config).eval()
    graph = check(module, (torch.arange(8)[None],))
    names = [n.name for n in graph.of_kind(NodeKind.PARAMETER)]
    assert "transformer.wte.weight" in names and "lm_head.weight" not in names
    assert len(names) == len({p.data_ptr() for p in module.parameters()})


def test_a_cache_in_the_output_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64)
    graph = from_torch(transformers.GPT2Model(config).eval(), (torch.arange(8)[None],))
    assert len(graph.outputs) == 1
    assert "DynamicCache" in caplog.text


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.dense(x)) + x.sin()  # the line that origins must name


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Inner()
        self.second = Inner()
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) * self.scale


def test_an_output_class_that_was_defined_during_a_trace_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers does not register its output classes while torch traces, nor later within a trace."""
    generic = pytest.importorskip("transformers.utils.generic")
    with monkeypatch.context() as tracing:
        tracing.setattr(torch.compiler, "is_compiling", lambda: True)

        @dataclasses.dataclass
        class Scores(generic.ModelOutput):  # type: ignore[misc, name-defined]
            best: torch.Tensor | None = None
            hidden: torch.Tensor | None = None
            all: torch.Tensor | None = None

    assert Scores not in pytree.SUPPORTED_NODES
    graph = from_torch(Fn(lambda x: Scores(best=x.tanh(), all=x + 1)), (torch.randn(1, 8),))
    assert [n.attrs["path"] for n in graph.outputs] == ["['best']", "['all']"]


def test_origins_and_names() -> None:
    graph = from_torch(Outer(), (torch.randn(1, 16),))
    lines = Path(__file__).read_text().split("\n")
    line = next(i for i, text in enumerate(lines, 1) if "the line that origins" in text)
    relu = graph["second.relu"]
    assert (relu.origin.module, relu.origin.module_class) == ("second", "Inner")
    assert relu.origin.source_op == "aten.relu.default"
    assert relu.origin.location == f"tests/frontend/test_torch_models.py:{line}"
    dense = graph["first.dense.matmul"]
    assert (dense.origin.module, dense.origin.module_class) == ("first.dense", "Linear")
    assert dense.origin.location == relu.origin.location
    assert {n.name for n in graph.of_kind(NodeKind.PARAMETER)} == {
        "first.dense.weight",
        "first.dense.bias",
        "second.dense.weight",
        "second.dense.bias",
        "scale",
    }
    assert graph["scale"].shape == (1,)
    assert graph["first.dense.weight"].origin.module == "first.dense"


def test_a_module_that_is_called_twice_gives_distinct_names() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))

    graph = check(Twice(), (torch.randn(1, 16),))
    assert "inner.relu" in graph and "inner.relu_1" in graph
    assert graph["inner.relu_1"].origin.module == "inner"


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.relu_(x + 1).mul_(2), lambda x: x + torch.arange(16.0).diff(prepend=torch.zeros(1))],
    ids=["plain in-place ops", "constants"],
)
def test_torch_does_not_trace_again(monkeypatch: pytest.MonkeyPatch, function: Callable[..., torch.Tensor]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the program was traced once more")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", refuse)
    check(Fn(function), (torch.randn(1, 16),))


def test_dim_0_is_the_microbatch_unless_the_model_mixes_along_it() -> None:
    rows = from_torch(nn.Linear(16, 4), (torch.randn(8, 16),))
    assert rows.inputs[0].shape == (1, 16)

    class Mixes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.softmax(0)

    for mixes in (Mixes(), Fn(lambda x: x.cumsum(0))):  # a running sum leaves the first element as it is
        assert from_torch(mixes, (torch.randn(8, 16),)).inputs[0].shape == (8, 16)


def test_none_numbers_and_nested_inputs() -> None:
    class Net(nn.Module):
        def forward(
            self, x: torch.Tensor, skip: torch.Tensor | None, scale: float, states: dict[str, list[torch.Tensor]]
        ) -> torch.Tensor:
            y = x * scale + states["h"][0] - states["h"][1]
            return y if skip is None else y + skip

    x, a, b = torch.randn(3, 1, 8)
    graph = from_torch(Net(), (x, None, 3.0, {"h": [a, b]}))
    assert [n.attrs["argument"] for n in graph.inputs] == ["x", "states['h'][0]", "states['h'][1]"]
    fed = feeds(graph, (x, None, 3.0, {"h": [a, b]}))
    torch.testing.assert_close(evaluate(graph, fed)["model.output_0"], x * 3 + a - b)
    assert feeds(graph, {"states": {"h": [a, b]}, "x": x}).keys() == fed.keys()


A, B, C = torch.tensor([[1.0, -2.0]]), torch.tensor([[5.0, 0.5]]), torch.tensor([[-3.0, 4.0]])
KEYED: dict[str, tuple[Callable[..., torch.Tensor], tuple[object, ...], tuple[object, ...]]] = {
    "dict": (lambda d: d["b"] - d["a"], ({"b": A, "a": B},), ({"a": B, "b": A},)),
    "dicts with others beside them": (
        lambda d, x, e: d["b"] - d["a"] * x + e["q"]["r"],
        ({"b": A, "a": B}, C, {"q": {"s": None, "r": B}}),
        ({"a": B, "b": A}, C, {"q": {"r": B, "s": None}}),
    ),
    "in a list": (
        lambda parts: parts[0]["b"] - parts[0]["a"] * parts[1]["a"],
        ([{"b": A, "a": B}, {"a": C}],),
        ([{"a": B, "b": A}, {"a": C}],),
    ),
    "many arguments": (
        lambda *parts: parts[0]["b"] - parts[0]["a"] * parts[1]["a"],
        ({"b": A, "a": B}, {"a": C}),
        ({"a": B, "b": A}, {"a": C}),
    ),
    "lists and tuples": (lambda p, x: p[0] - p[1] * x, ([A, B], C), ((A, B), C)),
}
"""Models of nested arguments: traced on the first inputs, fed with the same values in another order of keys."""


@pytest.mark.parametrize("name", KEYED)
def test_values_of_a_dict_go_by_their_keys(name: str) -> None:
    model, first, later = KEYED[name]
    graph = from_torch(Fn(model), first)
    for given in (first, later):
        (got,) = evaluate(graph, feeds(graph, given)).values()
        torch.testing.assert_close(got, model(*first))


def test_a_dict_of_other_keys_is_refused() -> None:
    graph = from_torch(Fn(lambda d: d["b"] - d["a"]), ({"b": A, "a": B},))
    with pytest.raises(InputError, match=r"holds \['a'\], \['c'\]; the model was traced with"):
        feeds(graph, ({"a": B, "c": A},))


class Asserts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x < 2.5).all(), "x is large")
        return x * 2


def test_what_a_model_asserts_of_values_is_looked_at() -> None:
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(Asserts(), (torch.zeros(1, 4),), options=options, cache=False)
    assert torch.equal(session.run([(torch.ones(1, 4),)])[0][0], 2 * torch.ones(1, 4))
    with pytest.raises(InputError, match="that is not so: x is large"):
        session.run([(torch.full((1, 4), 3.0),)])
    with pytest.raises(UnsupportedOp, match="cannot assert"):
        Session.for_training(
            nn.Sequential(nn.Linear(4, 4), Asserts()), (torch.zeros(1, 4),), nn.MSELoss(), torch.zeros(1, 4)
        ).compile()


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ((torch.ones(3), 2.0), None),
        ((torch.ones(3), 2), None),
        ((torch.ones(3),), None),
        ({"x": torch.ones(3), "scale": 2.0, "way": "up", "flag": True}, None),
        ({"x": torch.ones(3), "flag": True}, None),
        ((torch.ones(3), 3.0), "scale is 3.0; the model was traced with 2.0"),
        ((torch.ones(3), 2.0, True, "up", 1), "one more argument is 1"),
        ({"x": torch.ones(3), "flag": False}, "flag is False; the model was traced with True"),
        ({"x": torch.ones(3), "flag": 1}, "flag is 1; the model was traced with True"),
        ({"x": torch.ones(3), "way": "down"}, "way is 'down'; the model was traced with 'up'"),
        ({"x": torch.ones(3), "other": 1}, "other is 1; the model was traced with None"),
    ],
)
def test_numbers_are_those_of_the_trace(given: tuple[object, ...] | dict[str, object], refused: str | None) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, scale: float, flag: bool = True, way: str = "up") -> torch.Tensor:
            return x * scale if flag and way == "up" else x

    graph = from_torch(Net(), (torch.ones(3), 2.0))
    if refused is None:
        assert [*feeds(graph, given)] == ["x"]
    else:
        with pytest.raises(InputError, match=refused):
            feeds(graph, given)


def test_reference_is_the_model_itself_in_its_own_mode() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train()
    x = torch.randn(1, 8)
    state = torch.get_rng_state()
    have = reference(module, (x,))[0]
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(have, module(x).detach())  # drawn from the same state
    torch.testing.assert_close(reference(module.eval(), (x,))[0], module[0](x).detach())


def test_threads_trace_one_after_the_other() -> None:
    """Two workbenches of a notebook: each compiles in a thread of its own, and torch.export is not made for that."""
    pairs = [models.make("mlp") for _ in range(3)]
    with ThreadPoolExecutor(len(pairs)) as pool:
        graphs = list(pool.map(lambda pair: from_torch(*pair), pairs))
    alone = from_torch(*pairs[0])
    assert [[n.name for n in graph] for graph in graphs] == [[n.name for n in alone]] * len(pairs)


def test_a_model_on_the_meta_device_is_traced_without_weights() -> None:
    """Constants that it makes in its forward are made for real; weights have no values."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.line(x) * torch.arange(8, device=x.device) + torch.ones(8, device=self.line.weight.device)

    with torch.device("meta"):
        model = Scaled()
    graph = from_torch(model, (torch.randn(1, 8, device="meta"),))
    assert graph["line.weight"].value is None
    assert all(n.value is not None for n in graph.of_kind(NodeKind.CONSTANT))


def test_a_model_on_the_meta_device_is_placed() -> None:
    """Every op has a place and every weight a queue; there is nothing that the host could write into it."""
    from tbuda_lab.core.compiler import compile_graph

    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32)).eval()
    result = compile_graph(from_torch(model, (torch.randn(1, 32, 64, device="meta"),)), "wormhole_b0")
    assert set(result.placement.ops) == {node.name for node in result.lowered.ops}
    weights = {node.name for node in result.lowered.of_kind(NodeKind.PARAMETER)}
    assert len(weights) == 4 and weights <= set(result.netlist.queues)
    assert not weights & set(result.parameters)


class _Rotary(nn.Module):
    """Attention with rotary positions and a learned place: a float buffer, one of integers, a table, a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 100.0 ** (torch.arange(0, 16, 2) / 16))
        self.register_buffer("places", torch.arange(64))
        self.place, self.norm = nn.Embedding(64, 32), nn.LayerNorm(32)
        self.query, self.key, self.value, self.out = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        x = self.norm(x + self.place(self.places[:length]))
        angles = torch.arange(length, device=x.device)[:, None] * self.frequencies
        angles = torch.cat([angles, angles], -1)

        def heads(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(-1, length, 2, 16).transpose(1, 2)

        def turned(y: torch.Tensor) -> torch.Tensor:
            return y * angles.cos() + torch.cat([-y[..., 8:], y[..., :8]], -1) * angles.sin()

        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        scores = turned(heads(self.query(x))) @ turned(heads(self.key(x))).transpose(2, 3) / 4
        mixed = (scores + mask).softmax(-1) @ heads(self.value(x))
        return self.out(mixed.transpose(1, 2).reshape(-1, length, 32))


def test_a_model_on_the_meta_device_is_lowered_as_the_real_one_and_does_not_run() -> None:
    """What the compiler folds into weights is folded by shape alone, so that ops, TMs and formats are the same."""
    from tbuda_lab.core.errors import InputError
    from tbuda_lab.core.session import Session

    def lines(graph: Graph) -> list[tuple[object, ...]]:
        return [(n.name, n.kind, n.op, n.inputs, n.shape, n.df) for n in graph]

    real = Session(_Rotary().eval(), torch.zeros(1, 32, 32), cache=False)
    with torch.device("meta"):
        bare = Session(_Rotary().eval(), torch.zeros(1, 32, 32), cache=False)
    assert lines(bare.graph()) == lines(real.graph()) and bare.time().cycles == real.time().cycles
    assert any(n.kind is NodeKind.PARAMETER and n.recipe is not None for n in bare.graph())
    for call in (bare.run, bare.verify, bare.tune_formats):
        with pytest.raises(InputError, match=r"has no weights .*cannot run"):
            call()


def test_a_cache_that_is_empty_on_the_meta_device_needs_no_values() -> None:
    class Grows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.tensor([], device=x.device), torch.relu(x)], -1)

    graph = from_torch(Grows(), {"x": torch.zeros(1, 4, 8, device="meta")})
    assert graph.outputs[0].shape == (1, 4, 8)

    class Holds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(8, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    with pytest.raises(ModelError, match="has no values"):
        from_torch(Holds(), {"x": torch.zeros(1, 4, 8, device="meta")})


class Translates(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = self.model.generate_square_subsequent_mask(target.shape[1])
        return self.model(source, target, tgt_mask=mask)


class Encodes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        return self.model(x, src_key_padding_mask=hidden)


def test_torch_s_own_transformers_look_at_no_values_of_masks() -> None:
    torch.manual_seed(0)
    check(Translates().eval(), (torch.randn(1, 6, 16), torch.randn(1, 4, 16)))

    encoder, x = Encodes().eval(), torch.randn(2, 6, 16)
    graph = from_torch(encoder, (x, torch.tensor([[False] * 6, [False] * 4 + [True] * 2])))
    hidden = torch.tensor([[False] * 5 + [True], [False] * 2 + [True] * 4])
    results = [y for feed in elements(graph, feeds(graph, (x, hidden))) for y in evaluate(graph, feed).values()]
    assert torch.allclose(torch.cat(results), encoder(x, hidden), atol=1e-5)  # torch has 0 there without gradients
