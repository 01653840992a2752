"""What SambaFlow programs may ask for beyond training: ONNX models, regions, dropout, profiles, names
without a form."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab import alias, samba
from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp
from tbuda_lab.samba import utils
from tbuda_lab.samba.utils.argparser import parse_app_args


@pytest.fixture(autouse=True)
def fresh_session() -> None:
    samba.session.reset()


def named(tensor: torch.Tensor, name: str, region: str | None = None) -> samba.SambaTensor:
    return samba.from_torch_tensor(tensor, name=name, batch_dim=0, region_name=region)


def onnx_network() -> Any:
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    generator = torch.Generator().manual_seed(2)
    weights = {"fc.weight": torch.randn(24, 10, generator=generator), "fc.bias": torch.randn(10, generator=generator)}
    nodes = [
        h.make_node("Gemm", ["x", "fc.weight", "fc.bias"], ["logits"]),
        h.make_node("SoftmaxCrossEntropyLoss", ["logits", "label"], ["loss"], reduction="mean"),
    ]
    graph = h.make_graph(
        nodes,
        "net",
        [h.make_tensor_value_info("x", t.FLOAT, [4, 24]), h.make_tensor_value_info("label", t.INT64, [4])],
        [h.make_tensor_value_info("loss", t.FLOAT, []), h.make_tensor_value_info("logits", t.FLOAT, [4, 10])],
        [onnx.numpy_helper.from_array(value.numpy(), key) for key, value in weights.items()],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def test_an_onnx_model_compiles_runs_and_trains(tmp_path: Path) -> None:
    proto = onnx_network()
    x, label = torch.randn(4, 24), torch.randint(0, 10, (4,))
    inputs = [named(label, "label"), named(x, "x")]  # by name: another order than the model's
    module = samba.session.module_of(proto, inputs[::-1])
    optimizer = samba.optim.SGD(module.parameters(), lr=0.1)
    config = {"output_folder": str(tmp_path), "pef_name": "net"}
    pef = samba.session.compile(proto, inputs[::-1], optimizer, config_dict=config)
    outputs = utils.trace_graph(proto, inputs[::-1], optimizer, pef=pef)
    before = dict(module.named_parameters())
    weight, bias = before["fc.weight"].detach().clone(), before["fc.bias"].detach().clone()
    loss, logits = samba.session.run(inputs, outputs)
    leaves = [weight.requires_grad_(), bias.requires_grad_()]
    expected = torch.nn.functional.cross_entropy(x @ leaves[0] + leaves[1], label)
    expected.backward()
    torch.testing.assert_close(samba.to_torch(loss).reshape(()), expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(samba.to_torch(logits), (x @ leaves[0] + leaves[1]).detach(), rtol=1e-4, atol=1e-4)
    samba.session.to_cpu(proto)
    stored = {
        t.name: torch.frombuffer(bytearray(t.raw_data), dtype=torch.float32).reshape(*t.dims)
        for t in proto.graph.initializer
    }
    torch.testing.assert_close(stored["fc.weight"], (weight - 0.1 * weight.grad).detach(), rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match="ModelProto, not int"):
        utils.trace_graph(3, inputs)


class Step(torch.nn.Module):
    """A state that goes on by one input."""

    def forward(self, state: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        return state * 0.5 + token


def test_graphs_share_tensors_by_region(tmp_path: Path) -> None:
    """One graph fills the cache, another reads and writes it, run after run."""
    first, step = torch.nn.Linear(16, 16), Step()
    begin = samba.graph.FwdGraph(samba.from_torch_model(first), first, "begin")
    (cache,) = utils.trace_multigraph(begin, named(torch.zeros(4, 16), "x"))
    cache.region_name = "cache"
    go_on = samba.graph.FwdGraph(step, step, "go_on")
    (after,) = utils.trace_multigraph(
        go_on, [named(torch.zeros(4, 16), "state", "cache"), named(torch.zeros(4, 16), "token")]
    )
    after.region_name = "cache"
    for graph in (begin, go_on):
        samba.session.add_graph(graph)
    pef = samba.session.compile_multigraph(name="cached", config_dict={"output_folder": str(tmp_path)})
    samba.session.init_multigraph_runtime(pef)
    token = torch.randn(4, 16)
    with pytest.raises(ValueError, match="region 'cache' holds nothing"):
        samba.session.run([named(token, "token")], graph_name="go_on")
    x = torch.randn(4, 16)
    samba.session.run([named(x, "x")], graph_name="begin")
    expected = first(x).detach()
    for _ in range(2):
        (result,) = samba.session.run([named(token, "token")], graph_name="go_on")
        expected = expected * 0.5 + token
        torch.testing.assert_close(samba.to_torch(result), expected, rtol=1e-4, atol=1e-5)
    own = torch.ones(4, 16)
    (result,) = samba.session.run([named(token, "token"), named(own, "state")], graph_name="go_on")
    torch.testing.assert_close(samba.to_torch(result), own * 0.5 + token, rtol=1e-4, atol=1e-5)


def test_a_region_has_one_shape() -> None:
    step = Step()
    for name, width in (("a", 16), ("b", 32)):
        graph = samba.graph.FwdGraph(step, step, name)
        utils.trace_multigraph(
            graph, [named(torch.zeros(4, width), "state", "cache"), named(torch.zeros(4, width), "token")]
        )
        if name == "a":
            samba.session.add_graph(graph)
        else:
            with pytest.raises(ValueError, match=r"'cache' is \(4, 16\) .* and \(4, 32\)"):
                samba.session.add_graph(graph)


class Dropping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = torch.nn.Linear(16, 32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.first(x)))).sum()


def test_dropout_is_torchs_with_the_same_seed_and_p_changes_at_run_time() -> None:
    torch.manual_seed(0)
    model, reference = Dropping(), Dropping()
    reference.load_state_dict(model.state_dict())
    samba.from_torch_model_(model)
    x = torch.randn(4, 16)
    outputs = utils.trace_graph(model, [named(x, "x")], samba.optim.SGD(model.parameters(), lr=0.1))
    golden = torch.optim.SGD(reference.parameters(), lr=0.1)
    for p in (None, 0.25, 0.0):
        reference.drop.p = 0.5 if p is None else p
        torch.manual_seed(7)
        (loss,) = samba.session.run([named(x, "x")], outputs, hyperparam_dict={} if p is None else {"p": p})
        torch.manual_seed(7)
        expected = reference(x)
        golden.zero_grad()
        expected.backward()
        golden.step()
        torch.testing.assert_close(samba.to_torch(loss), expected.detach(), rtol=1e-4, atol=1e-4)
    samba.session.to_cpu(model)
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="probability"):
        samba.session.run([named(x, "x")], outputs, hyperparam_dict={"p": 1.0})
    model.eval()
    outputs = utils.trace_graph(model, [named(x, "x")], None)
    with pytest.warns(UserWarning, match="p has no effect"):
        samba.session.run([named(x, "x")], outputs, hyperparam_dict={"p": 0.5})


class ByFunction(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.layer(x), 0.5, training=self.training).sum()


def test_dropout_by_a_function_warns() -> None:
    model = samba.from_torch_model_(ByFunction())
    with pytest.warns(UserWarning, match=r"use nn\.Dropout"):
        utils.trace_graph(model, [named(torch.randn(4, 8), "x")], samba.optim.SGD(model.parameters()))


def test_profiles_are_chrome_traces(tmp_path: Path) -> None:
    layer = samba.from_torch_model_(torch.nn.Linear(16, 16))
    x = named(torch.randn(4, 16), "x")
    outputs = utils.trace_graph(layer, [x], None)
    session = samba.session
    with pytest.raises(RuntimeError, match="start_samba_profile"):
        session.end_samba_profile()
    session.start_samba_profile()
    session.start_runtime_profile()
    session.profiler.start_event("own")
    session.run([x], outputs)
    session.profiler.end_event("own")
    with pytest.raises(RuntimeError, match="'own' was not begun"):
        session.profiler.end_event("own")
    steps = json.loads(Path(session.end_samba_profile(filename=str(tmp_path / "s.json"))).read_text())["traceEvents"]
    assert [e["name"] for e in steps] == ["push x", "run run_fwd_0", "pop linear.output_0", "own"] or [
        e["name"].split()[0] for e in steps
    ] == ["push", "run", "pop", "own"]
    device = json.loads(Path(session.end_runtime_profile(str(tmp_path / "r.json"))).read_text())["traceEvents"]
    assert [e["name"] for e in device] == ["section 0 (fwd)"] and device[0]["dur"] > 0


def test_what_has_no_form_says_so() -> None:
    for call in (
        samba.session.create_dynamic_dim,
        samba.session.load_dynamic_dims_config,
        samba.session.add_aux_tensor,
        lambda: samba.optim.SparseAdamW([], lr=0.1),
    ):
        with pytest.raises(UnsupportedOp):
            call()
    with pytest.raises(UnsupportedOp, match="alpha="):
        samba.functional.add(torch.ones(2), torch.ones(2), alpha=2)
    with pytest.raises(AttributeError, match="softmax"):
        _ = samba.functional.nothing
    assert isinstance(samba.functional.relu(named(torch.ones(2), "x")), samba.SambaTensor)
    with pytest.raises(TypeError, match="Adam"):
        utils.trace_graph(
            torch.nn.Linear(4, 4), [named(torch.ones(2, 4), "x")], torch.optim.Adam(torch.nn.Linear(4, 4).parameters())
        )


@pytest.mark.parametrize("option", ["--n-chips=2", "--visualize", "--optimization-rules=a", "--distlearn-config=b"])
def test_an_option_without_effect_is_named(option: str) -> None:
    with pytest.warns(UserWarning, match=option.split("=")[0]):
        parse_app_args(["compile", option])


class Small(torch.nn.Module):
    """(loss, scores) of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.layer(x)
        return torch.nn.functional.cross_entropy(scores, y), scores


def small(optimizer: Any = samba.optim.SGD, **settings: Any) -> tuple[Any, list[Any], Any]:
    """A model that trains, its sample and what a trace needs."""
    torch.manual_seed(3)
    model = samba.from_torch_model_(Small())
    sample = [named(torch.randn(2, 8), "x"), named(torch.randint(0, 4, (2,)), "y")]
    return model, sample, optimizer(model.parameters(), lr=0.1, **settings)


def test_arguments_of_a_run_that_have_no_effect_are_named() -> None:
    model, sample, optimizer = small(samba.optim.AdamW)
    outputs = utils.trace_graph(model, sample, optimizer)
    with pytest.warns(UserWarning, match="reduce_on_rdu has no effect without data_parallel"):
        samba.session.run(sample, outputs, reduce_on_rdu=True)
    with pytest.warns(UserWarning, match="world_size has no effect without data_parallel"):
        samba.session.run(sample, outputs, world_size=2)
    with pytest.warns(UserWarning, match="momentum has no effect"):
        samba.session.run(sample, outputs, hyperparam_dict={"lr": 0.1, "momentum": 0.9})
    with pytest.warns(UserWarning, match="'opt_' has no effect: hyperparam_dict"):
        small(argin_region_name="opt_")
    sample[0].host_memory = True
    with pytest.warns(UserWarning, match="host_memory of input 'x' has no effect"):
        utils.trace_graph(samba.from_torch_model_(Small()), sample, None, init_output_grads=False)


def test_what_a_run_cannot_give_is_refused() -> None:
    model, sample, optimizer = small()
    loss, scores = utils.trace_graph(model, sample, optimizer)
    (only,) = samba.session.run(sample, scores)
    assert only.sn_name == scores.sn_name and loss.sn_name != scores.sn_name
    with pytest.raises(ValueError, match="no output 'other'"):
        samba.session.run(sample, [loss, named(torch.zeros(2), "other")])
    with pytest.raises(ValueError, match="world_size is at least 1"):
        samba.session.run(sample, data_parallel=True, world_size=0)


def test_the_mapping_of_a_pef_is_told_where_the_program_wants_another(tmp_path: Path) -> None:
    model, sample, optimizer = small()
    config = {"output_folder": str(tmp_path), "pef_name": "small"}
    pef = samba.session.compile(model, sample, optimizer, config_dict=config)
    with pytest.raises(ValueError, match="mapping is one of section, spatial"):
        utils.trace_graph(model, sample, optimizer, pef=pef, mapping="diagonal")
    with pytest.warns(UserWarning, match="mapping='spatial' has no effect: .* was compiled by sections"):
        utils.trace_graph(model, sample, optimizer, pef=pef, mapping="spatial")
    with pytest.raises(ValueError, match="num_spatial_batches is at least 1"):
        samba.session.compile(model, sample, optimizer, config_dict={**config, "num_spatial_batches": -3})


def test_the_command_line_holds_where_the_program_says_nothing() -> None:
    """`--data-parallel-mode` of a run, in a program that does not hand it to `trace_graph`."""
    parse_app_args(["run", "--data-parallel-mode", "optimal"])
    model, sample, optimizer = small()
    utils.trace_graph(model, sample, optimizer)
    assert [t.data_parallel_mode for t in samba.session.graphs.values()] == ["optimal"]


def test_strict_of_a_run_judges_the_traced_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    module = importlib.import_module("tbuda_lab.samba.session")  # as an attribute it is the session itself
    monkeypatch.setattr(module, "refuse_host", lambda entries: judged.append(len(entries)))
    model, sample, optimizer = small()
    for arguments in (["run"], ["run", "--strict"]):
        parse_app_args(arguments)
        utils.trace_graph(model, sample, optimizer)
    assert len(judged) == 1 and judged[0] > 0


def test_op_by_op_makes_every_op_a_section(tmp_path: Path) -> None:
    layers = torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    model = samba.from_torch_model_(torch.nn.Sequential(*layers))
    x = named(torch.randn(4, 16), "x")
    arguments = parse_app_args(["compile", "-o0", "--output-folder", str(tmp_path), "--pef-name", "o0", "--inference"])
    pef = samba.session.compile(model, [x], None, config_dict=vars(arguments))
    outputs = utils.trace_graph(model, [x], None, pef=pef)
    placement = samba.session.graphs["sequential"].result.placement
    assert len(placement.epochs) == len(placement.ops) > 1
    (result,) = samba.session.run([x], outputs)
    torch.testing.assert_close(samba.to_torch(result), model(samba.to_torch(x)).detach(), rtol=1e-4, atol=1e-5)


def test_nothing_is_written_when_a_compile_is_refused(tmp_path: Path) -> None:
    model = samba.from_torch_model_(torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(84)]))
    config = {"output_folder": str(tmp_path), "pef_name": "big", "mapping": "spatial"}
    with pytest.raises(Exception, match="needs"):
        samba.session.compile(model, [named(torch.randn(32, 32), "x")], None, config_dict=config)
    assert not list(tmp_path.iterdir())


def test_tensors_let_go_of_their_data() -> None:
    tensor = named(torch.ones(2, 2), "x")
    assert tensor.has_data and tensor.cpu_() is tensor
    tensor.clear_data()
    assert not tensor.has_data and float(tensor.sum()) == 0
    tensor.copy_(torch.ones(2, 2))
    assert tensor.has_data


def test_a_model_without_declared_shapes_is_refused() -> None:
    with pytest.raises(ModelError, match="tensorflow"):
        from tbuda_lab.core.frontend.pybuda.foreign import TFModule

        TFModule("m", object())


class Tokens(torch.nn.Module):
    """Two optional arguments, indices of 16 bits, a buffer without dims, and SambaFlow's own product."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(40, 32)
        self.weight = torch.nn.Parameter(torch.randn(48, 32))
        self.bias = torch.nn.Parameter(torch.randn(48))
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, ids: torch.Tensor, mask: Any = None, extra: Any = None, labels: Any = None) -> Any:
        assert mask is None and extra is None
        logits = samba.addmm(self.bias, self.table(ids) * self.scale, self.weight, is_transposed=True)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 48), labels.view(-1), reduction="none")
        return loss, logits


def test_a_language_model_s_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None among the inputs of a trace, int16 indices and labels, a 0-dim buffer that changes, the PEF's own name from
    the command line, a gradient of the program's."""
    alias.install("sambaflow")
    logger = importlib.import_module("sambaflow.logging").samba_logger
    ordered = importlib.import_module("sambaflow.sambacollections").OrderedSet
    monkeypatch.setenv("SAMBA_SEED", "5")
    arguments = parse_app_args(
        ["compile", "--pef-name", "tokens", "--output-folder", str(tmp_path), "--log-level", "error"]
    )
    assert logger.level == 40 and torch.initial_seed() == 5 and arguments.pef_name == "tokens"
    model = samba.from_torch_model_(Tokens())
    reference = copy.deepcopy(model)
    ids = torch.randint(0, 40, (2, 16)).short()
    labels = torch.randint(0, 48, (2, 16), dtype=torch.int16)
    inputs = (named(ids, "ids"), None, None, named(labels, "labels"))
    optimizer = samba.optim.SGD(ordered(model.parameters()), lr=0.5)
    pef = samba.session.compile(model, inputs, optimizer, squeeze_bs_dim=True)
    assert pef == str(tmp_path / "tokens" / "tokens.pef") and Path(pef).is_file()
    with torch.no_grad():
        model.scale.fill_(0.25)
        reference.scale.fill_(0.25)
    outputs = utils.trace_graph(model, inputs, optimizer, pef=pef)
    gradient = torch.rand(32)
    outputs[0].sn_grad = gradient
    step = torch.optim.SGD(reference.parameters(), lr=0.5)
    for _ in range(2):
        loss, _ = samba.session.run([t for t in inputs if t is not None], outputs)
        expected, _ = reference(ids.long(), labels=labels.long())
        torch.testing.assert_close(samba.to_torch(loss), expected, rtol=1e-4, atol=1e-4)
        step.zero_grad()
        expected.backward(gradient)
        step.step()


def test_what_the_package_has_beside_samba() -> None:
    alias.install("sambaflow")
    ordered = importlib.import_module("sambaflow.sambacollections").OrderedSet
    assert list(ordered("cab").union("dc")) == list("cabd") and "d" not in ordered("cab")
    assert importlib.import_module("sambaflow.samba.nn.parameter").SambaParameter is samba.SambaParameter
    logging = importlib.import_module("sambaflow.logging")
    with pytest.raises(ValueError, match="log levels are debug"):
        logging.set_level("loud")
    directives = importlib.import_module("sambaflow.samba.directives")
    layer = torch.nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="op_fusion"):
        assert directives.op_fusion(layer, "Encoder") is layer
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        directives.op_fusion("layer")
    x, w = torch.randn(3, 2, 4), torch.randn(5, 4)
    torch.testing.assert_close(samba.addmm(torch.ones(5), x, w, is_transposed=True), x @ w.T + 1)
    torch.testing.assert_close(samba.addmm(torch.ones(5), x, w.T), x @ w.T + 1)


def test_a_logger_that_says_a_thing_once(caplog: pytest.LogCaptureFixture) -> None:
    alias.install("sambaflow")
    logger = importlib.import_module("sambaflow.logging").samba_logger
    logger.setLevel("WARNING")
    for _ in range(3):
        logger.warning("said once", log_limit=1)
        logger.warning("said always")
    assert [r.message for r in caplog.records] == ["said once", "said always", "said always", "said always"]


def test_arguments_without_a_meaning_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="--num-tiles has no effect here"):
        parse_app_args(["compile", "--num-tiles", "4"])
    with pytest.warns(UserWarning, match="--arch has no effect here"):
        parse_app_args(["compile", "--arch", "sn30"])
    monkeypatch.setenv("SAMBA_SEED", "many")
    with pytest.raises(InputError, match="SAMBA_SEED is a whole number"):
        parse_app_args(["compile"])
