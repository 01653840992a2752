"""Whole models through ONNX: the same outputs as through torch, names of modules kept; bad files refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tbuda_lab.cli import main
from tbuda_lab.core import frontend
from tbuda_lab.core.errors import Cancelled, InputError, ModelError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.onnx import from_onnx, read
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.references import pcc

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Block(nn.Module):
    def __init__(self, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.norm = nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (4, 8)).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.norm(x + y.transpose(1, 2).flatten(2))


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.line = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.line(F.gelu(self.table(ids))), -1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 16, 3, 2, 1), nn.ConvTranspose2d(16, 8, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(F.leaky_relu(self.down(x)))
        return torch.cat([x, F.interpolate(F.max_pool2d(y, 2), scale_factor=2, mode="bilinear")], 1)


IMAGE = (torch.randn(1, 8, 16, 16, generator=torch.Generator().manual_seed(3)),)
ROWS = (torch.randn(1, 12, 32, generator=torch.Generator().manual_seed(4)),)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "conv net": (lambda: nn.Sequential(Block(8), Block(16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGE),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(), nn.Conv2d(8, 4, 1)), IMAGE),
    "u-net": (UNet, IMAGE),
    "attention": (Attention, ROWS),
    "torch's attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), ROWS),
    "language": (Looked, (torch.arange(12)[None],)),
    "multi-layer": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8), nn.Softmax(-1)), ROWS),
    "large pool": (lambda: nn.Sequential(nn.Conv2d(8, 4, 3), nn.AvgPool2d(2560, ceil_mode=True)), IMAGE),
    "wide pool": (lambda: nn.Sequential(nn.MaxPool2d((2, 900), ceil_mode=True), nn.Conv2d(8, 4, 1)), IMAGE),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)), IMAGE),
    "pixels": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.PixelShuffle(2), nn.AvgPool2d(2)), IMAGE),
    "pads": (lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(8, 4, 3), nn.ELU(), nn.InstanceNorm2d(4)), IMAGE),
}


def made(name: str, folder: Path) -> tuple[nn.Module, tuple[torch.Tensor, ...], Path]:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model = make().eval()
    for key, buffer in model.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5) if "var" in key else buffer.uniform_(-0.5, 0.5)
    path = folder / "model.onnx"
    torch.onnx.export(model, inputs, str(path), dynamo=True, verbose=False)
    return model, inputs, path


@pytest.mark.parametrize("name", MODELS)
def test_the_same_as_through_torch(name: str, tmp_path: Path) -> None:
    """PCC >= 0.9999 with torch and with onnxruntime; paths of modules are those of the torch model."""
    model, inputs, path = made(name, tmp_path)
    graph = from_onnx(path, inputs)
    got = list(evaluate(graph, frontend.feeds(graph, inputs)).values())
    for other in (frontend.reference(model, inputs), frontend.reference(str(path), inputs)):
        for g, w in zip(got, other, strict=True):
            assert g.shape == w.shape and pcc(w, g) >= 0.9999
    named = {m for m, _ in model.named_modules()}
    assert {node.origin.module for node in graph.ops} <= named
    selected = {n.name for n in graph if n.kind is NodeKind.PARAMETER}
    assert selected and {k.rpartition(".")[0] for k in selected if "." in k} <= named


@pytest.mark.e2e
@pytest.mark.parametrize("form", ["no mask", "input", "constant", "causal"])
def test_attention_of_hidden_rows_runs_on_the_grid(form: str, tmp_path: Path) -> None:
    """torch exports attention with a test for NaN, which the device does not have: rows that a mask hides are 0."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            q, x = self.line(x)[:, None], x[:, None]
            chosen = {"input": mask, "constant": torch.ones(12, 12).tril(-1) > 0}.get(form)
            return F.scaled_dot_product_attention(q, q, x, chosen, is_causal=form == "causal")

    torch.manual_seed(0)
    mask = torch.rand(1, 12, 12) > 0.5
    mask[:, 3] = False
    model, inputs = Masked().eval(), (*ROWS, mask)
    torch.onnx.export(model, inputs, str(tmp_path / "m.onnx"), dynamo=True, verbose=False)
    options = CompileOptions(default_df_override=DataFormat.Float32)
    (got,), want = Session(str(tmp_path / "m.onnx"), inputs, options=options).run()[0], model(*inputs).detach()
    assert torch.allclose(got, want, atol=1e-4)


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["conv net", "attention"])
def test_on_the_grid(name: str, tmp_path: Path) -> None:
    _, inputs, path = made(name, tmp_path)
    session = Session(str(path), inputs, options=CompileOptions(default_df_override=DataFormat.Float32))
    (got,), (want,) = session.run()[0], frontend.reference(str(path), inputs)
    assert pcc(want, got) >= 0.9999


def test_the_command_line_compiles_and_runs_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, path = made("multi-layer", tmp_path)
    assert main(["compile", str(path), "--out", str(tmp_path / "out")]) == 0
    assert main(["run", str(tmp_path / "out"), "--pcc", "0.99"]) == 0
    assert "output" in capsys.readouterr().out


def plain(*nodes: Any, shape: tuple[Any, ...] = (1, 4), stored: tuple[Any, ...] = (), out: str = "y") -> Any:
    h = onnx.helper
    x = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))
    y = h.make_tensor_value_info(out, onnx.TensorProto.FLOAT, None)
    graph = h.make_graph(list(nodes), "g", [x], [y], list(stored))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, inputs, outputs, name=f"/part/{kind}", **attributes)


def test_an_open_batch_is_the_microbatch() -> None:
    model = plain(node("Relu", ["x"], ["y"]), shape=("batch", 4))
    x = torch.randn(3, 4)
    session = Session(model, (x,), options=CompileOptions(default_df_override=DataFormat.Float32))
    torch.testing.assert_close(session.run()[0][0], x.relu())


@pytest.mark.parametrize(
    ("kind", "function"),
    [("ReduceLogSumExp", lambda x: x.logsumexp(1, True)), ("Softmax", lambda x: x.softmax(1))],
)
def test_rows_with_infinities_are_torchs(kind: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    attributes: dict[str, Any] = {"axes": [1]} if kind.startswith("Reduce") else {"axis": 1}
    inf = torch.inf
    x = torch.tensor([[1.0, inf, 3, 0], [-inf] * 4, [1, -inf, 3, 0], [1, torch.nan, 3, 0], [1, 2, 3, 4]])
    model = plain(node(kind, ["x"], ["y"], **attributes), shape=tuple(x.shape))
    session = Session(model, (torch.ones(5, 4),), options=CompileOptions(default_df_override=DataFormat.Float32))
    torch.testing.assert_close(session.run([(x,)])[0][0], function(x), rtol=1e-4, atol=1e-5, equal_nan=True)


def test_every_gap_is_named_with_its_place() -> None:
    gaps = node("Det", ["x"], ["a"]), node("NonMaxSuppression", ["x", "x"], ["b"])
    model = plain(*gaps, node("Add", ["a", "b"], ["y"]))
    with pytest.raises(UnsupportedOp) as caught:
        from_onnx(model)
    assert len(caught.value.diagnostics) == 2
    assert "/part/Det" in str(caught.value) and "onnx.NonMaxSuppression" in str(caught.value)


def test_open_sizes_need_sample_inputs() -> None:
    model = plain(node("Relu", ["x"], ["y"]), shape=("n", "m"))
    with pytest.raises(InputError, match="sample inputs"):
        from_onnx(model)
    assert from_onnx(model, torch.zeros(1, 7)).inputs[0].shape == (1, 7)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "link.bin", "short.bin", ""])
def test_external_data_stays_in_its_folder_and_has_the_length_it_says(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(np.zeros(16, np.float32).tobytes())
    (folder / "short.bin").write_bytes(b"1234")
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    stored = onnx.TensorProto(name="w", data_type=1, dims=[4, 4], data_location=onnx.TensorProto.EXTERNAL)
    stored.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(plain(node("MatMul", ["x", "w"], ["y"]), stored=(stored,)).SerializeToString())
    with pytest.raises(ModelError, match="'w'"):
        from_onnx(folder / "m.onnx")


def test_external_data_is_read(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    (tmp_path / "w.bin").write_bytes(b"????" + weight.tobytes())
    stored = onnx.TensorProto(name="w", data_type=1, dims=[4, 4], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", "w.bin"), ("offset", "4"), ("length", "64")):
        stored.external_data.add(key=key, value=value)
    (tmp_path / "m.onnx").write_bytes(plain(node("MatMul", ["x", "w"], ["y"]), stored=(stored,)).SerializeToString())
    graph = from_onnx(tmp_path / "m.onnx")
    (got,) = evaluate(graph, {"x": torch.eye(4)[:1]}).values()
    np.testing.assert_array_equal(got.numpy(), weight[:1])


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07", bytes(range(256))])
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError):
        from_onnx(tmp_path / "m.onnx")


TWICE = {
    "two nodes": lambda: plain(node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["y"])),
    "a node and an input": lambda: plain(node("Relu", ["x"], ["x"]), node("Exp", ["x"], ["y"])),
    "two initialisers": lambda: plain(node("Add", ["x", "w"], ["y"]), stored=(whole("w", 1), whole("w", 2))),
}


@pytest.mark.parametrize("what", TWICE)
def test_a_name_of_two_values_is_refused(what: str) -> None:
    with pytest.raises(ModelError, match=r"'y'|'x'|'w'"):
        from_onnx(TWICE[what]())


def test_what_has_no_end_is_not_read_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(read, "LARGEST", 1 << 20)
    with pytest.raises(ModelError, match="a device, not a file"):
        from_onnx("/dev/zero")
    large = tmp_path / "large.onnx"
    large.write_bytes(bytes(2 << 20))
    with pytest.raises(ModelError, match="more than 1 MiB"):
        from_onnx(str(large))
    with pytest.raises(ModelError, match="cannot be read"):
        from_onnx("a\0b.onnx")


def whole(name: str, *values: Any) -> Any:
    return onnx.numpy_helper.from_array(np.array(values, np.int64), name)


def known(*steps: Any, stored: tuple[Any, ...] = ()) -> Any:
    """A model that adds a tensor `c`, which its steps make of known ones, to its input."""
    return plain(*steps, node("Add", ["x", "c"], ["y"]), stored=stored)


LARGE: dict[str, Callable[[], Any]] = {
    "a filled tensor": lambda: known(node("ConstantOfShape", ["s"], ["c"]), stored=(whole("s", 30_000, 30_000),)),
    "a range": lambda: known(
        node("Range", ["a", "b", "d"], ["c"]),
        stored=tuple(onnx.numpy_helper.from_array(np.float32(v), k) for k, v in (("a", 0), ("b", 1e10), ("d", 1))),
    ),
    "a repeated tensor": lambda: known(node("Tile", ["t", "s"], ["c"]), stored=(whole("t", 1, 2), whole("s", 10**9))),
    "an outer product": lambda: known(
        node("Reshape", ["i", "s"], ["j"]),
        node("Mul", ["i", "j"], ["c"]),
        stored=(whole("i", *range(20_000)), whole("s", 20_000, 1)),
    ),
    "a table of positions": lambda: known(
        node("OneHot", ["i", "d", "v"], ["c"]), stored=(whole("i", 1), whole("d", 10**10), whole("v", 0, 1))
    ),
    "a resized image": lambda: plain(
        node("Resize", ["x", "", "s"], ["y"], mode="cubic"),
        shape=(1, 1, 4, 4),
        stored=(onnx.numpy_helper.from_array(np.array([1, 1, 1, 1e8], np.float32), "s"),),
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_what_a_few_bytes_ask_for_is_not_made(what: str) -> None:
    """Of each the model states gigabytes; how much is known before it is made."""
    with pytest.raises(UnsupportedOp, match=r"a tensor that is known of shape .* would take .* [GT]iB"):
        from_onnx(LARGE[what]())


def test_functions_that_multiply_are_refused() -> None:
    """30 functions of which each calls the next one twice stand for a billion nodes."""
    h, sets = onnx.helper, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("f", 1)]
    twice = [
        [h.make_node(f"F{k + 1}", ["a"], ["t"], domain="f"), h.make_node(f"F{k + 1}", ["t"], ["b"], domain="f")]
        for k in range(29)
    ]
    bodies = [*twice, [h.make_node("Relu", ["a"], ["b"])]]
    model = plain(h.make_node("F0", ["x"], ["y"], domain="f"))
    model.opset_import.extend(sets[1:])
    model.functions.extend(h.make_function("f", f"F{k}", ["a"], ["b"], body, sets) for k, body in enumerate(bodies))
    with pytest.raises(ModelError, match="more than 16,384 nodes"):
        from_onnx(model)


@pytest.mark.parametrize("scopes", ["[" * 100_000, "[" + "9" * 9_000 + "]", "{"])
def test_odd_scopes_are_none(scopes: str) -> None:
    one = node("Relu", ["x"], ["y"])
    one.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    assert len(list(from_onnx(plain(one)).ops)) == 1


def test_a_quantised_model_agrees_with_onnxruntime() -> None:
    keep = onnx.numpy_helper.from_array
    rng = np.random.default_rng(1)
    weight = rng.integers(-127, 127, (4, 8)).astype(np.int8)
    stored = (keep(weight, "w"), keep(np.float32(0.02), "s"), keep(np.int8(0), "z"))
    model = plain(
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "s", "z"], ["wd"]),
        node("MatMul", ["d", "wd"], ["y"]),
        stored=stored,
    )
    x = torch.from_numpy(rng.standard_normal((1, 4)).astype(np.float32))
    graph = from_onnx(model)
    (got,) = evaluate(graph, {"x": x}).values()
    (want,) = frontend.reference(model, (x,))
    torch.testing.assert_close(got, want)
    assert [n.name for n in graph if n.kind is NodeKind.PARAMETER] == ["w"]


def test_reading_is_heard_of_and_can_be_stopped() -> None:
    model = plain(node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["y"]))
    heard: list[str] = []
    frontend.from_any(model, progress=heard.append)
    assert heard == ["op 1 of 2", "op 2 of 2"]

    def stop(_: str) -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled):
        frontend.from_any(model, progress=stop)
