"""Scripts that compile to an image and run it, as they are written for PyBuda; torch is the oracle."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda import compiled_device as devices
from tests.e2e.references import pcc


class Linear(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(1, 1, 64, 32, requires_grad=False)
        self.bias = pybuda.Parameter(32)

    def forward(self, act: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Add("add", pybuda.op.Matmul("matmul", act, self.weights), self.bias)


def linear() -> Linear:
    generator = torch.Generator().manual_seed(7)
    module = Linear("linear")
    module.set_parameter("weights", torch.randn(1, 1, 64, 32, generator=generator))
    module.set_parameter("bias", torch.randn(32, generator=generator))
    return module


X = torch.randn(1, 1, 96, 64, generator=torch.Generator().manual_seed(8))
W2 = torch.randn(1, 1, 64, 32, generator=torch.Generator().manual_seed(9))

LOADER = """
import sys
import numpy as np
import torch
import tbuda_lab as pybuda

img = pybuda.TTDeviceImage.load_from_disk(img_path="device_images/tt0.tti")
img.info()
device = pybuda.TTDevice.load_image(img=img)
assert [list(s) for s in img.get_input_shapes()] == [[1, 1, 96, 64]]
x = torch.from_numpy(np.load("x.npy"))
device.push_to_inputs([x])
first = pybuda.run_inference().get()[0].value()
device.modules[-1].set_parameter("weights", torch.from_numpy(np.load("w2.npy")))
device.push_to_inputs(x)
second = pybuda.run_inference().get()[0].value()
np.savez("out.npz", first=first.numpy(), second=second.numpy())
assert "tests" not in sys.modules
"""


def test_an_image_runs_in_another_process_and_takes_new_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of the articles: Silicon as the target, no silicon here."""
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="silicon"):
        tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Grayskull, devtype=pybuda.BackendType.Silicon)
    module = linear()
    tt0.place_module(module)
    image = tt0.compile_to_image(img_path="device_images/tt0.tti", training=False, sample_inputs=(X,))
    assert isinstance(image, pybuda.TTDeviceImage) and image.get_target_shapes() == []
    np.save("x.npy", X.numpy())
    np.save("w2.npy", W2.numpy())
    ran = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", LOADER],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    for line in (
        "- Device Name: tt0",
        "- arch: BackendDevice.Grayskull",
        "- chip_ids: [0]",
        "- backend device type: BackendType.Silicon",
        "- grid size: [10, 12]",
        "- harvested rows: 0",
        "- training: False",
        "- modules: ['linear']",
        "- ordered input shapes: [[1, 1, 96, 64]]",
        "- ordered targets shapes: []",
    ):
        assert line in ran.stdout
    tt0.push_to_inputs(X)
    ours = pybuda.run_inference().get()[0].value()
    with np.load("out.npz") as out:
        assert out["first"].tobytes() == ours.numpy().tobytes()
        assert pcc(X @ module.weights.value() + module.bias.value(), ours) > 0.999
        assert pcc(X @ W2 + module.bias.value(), torch.from_numpy(out["second"])) > 0.999
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()) == [
        "device_images/tt0.tti",
        "out.npz",
        "w2.npy",
        "x.npy",
    ]


def test_load_image_in_the_same_script_takes_the_place_of_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, devtype=pybuda.BackendType.Golden)
    module = linear()
    tt0.place_module(module)
    image = tt0.compile_to_image(sample_inputs=(X,))
    (written,) = (tmp_path / "device_images").iterdir()
    assert written.name.startswith("tt_") and len(written.stem) == 15
    monkeypatch.setattr(devices, "compile_with_fallback", None)  # never again
    state = copy.deepcopy(image.compiled_graph_state)
    assert state.ordered_input_names == image.compiled_graph_state.ordered_input_names
    loaded = pybuda.TTDevice.load_image(img=image)
    assert pybuda.pybudaglobal.get_devices() == [loaded] == [pybuda.get_tenstorrent_device()]
    loaded.push_to_inputs((X,))
    loaded.push_to_inputs(X)
    out = pybuda.run_inference(input_count=2)
    assert torch.equal(out.get()[0].value(), out.get()[0].value())
    again = loaded.modules[-1]
    assert again.get_name() == "linear"
    assert [p.get_name() for p in again.get_parameters()] == [p.get_name() for p in module.get_parameters()]
    assert torch.equal(again.get_parameter("bias").value(), module.bias.value())
    assert torch.equal(loaded.get_parameter_checkpoint()["linear.bias"].value(), module.bias.value())
    pybuda.update_device_parameters(loaded, [{"linear.bias": torch.zeros(32)}])
    loaded.push_to_inputs(X)
    assert pcc(X @ module.weights.value(), pybuda.run_inference().get()[0].value()) > 0.999
    assert torch.equal(again.forward(X)[0], X @ module.weights.value())
    assert Path(loaded.get_compiled_results().netlist_filename).read_text().startswith("devices")
    with pytest.raises(InputError, match=r"has shape \(1, 1, 64, 32\)"):
        again.set_parameter("weights", torch.zeros(3))
    with pytest.raises(RuntimeError, match=r"doesn't have parameter 'w'; it has linear\.weights"):
        again.set_parameter("w", W2)
    for call in (
        lambda: loaded.place_module(linear()),
        lambda: loaded.compile_for_inputs((X,)),
        lambda: loaded.get_compiled_results().lowered_graph,
    ):
        with pytest.raises(NotImplementedError, match="not supported"):
            call()
    with pytest.raises(InputError, match=r"microbatch|shape"):
        loaded.push_to_inputs(torch.zeros(1, 1, 32, 32))
        pybuda.run_inference()


def test_harvested_rows_and_two_chips(tmp_path: Path) -> None:
    pybuda.set_configuration_options(harvested_rows=[1, 11])
    tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Grayskull, module=linear())
    tt0.compile_to_image(img_path=tmp_path / "gs.tti", sample_inputs=pybuda.Tensor.create_from_torch(X))
    pybuda.pybuda_reset()
    image = pybuda.TTDeviceImage.load_from_disk(tmp_path / "gs.tti")
    assert image.harvested_rows == [2050] and image.grid_size == [8, 12]

    pybuda.config.override_op_placement("matmul", chip_id=1)
    two = pybuda.TTDevice("two", chip_ids=[0, 1], arch=pybuda.BackendDevice.Wormhole_B0, module=linear())
    two.compile_to_image(img_path=tmp_path / "wh.tti", sample_inputs=(X,))
    two.push_to_inputs(X)
    expected = pybuda.run_inference().get()[0].value()
    pybuda.pybuda_reset()
    for chips in (None, [4, 7]):
        device = pybuda.TTDevice.load_image(img_path=tmp_path / "wh.tti", device_id_overrides=chips)
        assert device.chip_ids == (chips or [0, 1]) == device.image.chip_ids
        device.push_to_inputs(X)
        assert torch.equal(pybuda.run_inference().get()[0].value(), expected)
        pybuda.shutdown()


class Three(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.a, self.b, self.c = (pybuda.Parameter(64, 64) for _ in range(3))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        first = pybuda.op.Softmax("sm", pybuda.op.Matmul("mm1", x, self.a), dim=-1)
        return pybuda.op.Matmul("mm3", pybuda.op.Matmul("mm2", first, self.b), self.c)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: pybuda.set_epoch_break(pybuda.query.name_regex("mm[23]")),
        lambda: pybuda.set_epoch_break(["mm2", "mm3"]),
        lambda: pybuda.config.configure_mixed_precision(name_regex="mm.*", output_df=pybuda.DataFormat.Bfp8_b),
        lambda: pybuda.set_configuration_options(
            default_df_override=pybuda.DataFormat.Bfp8_b, balancer_policy="Ribbon"
        ),
    ],
    ids=["each", "first of a list", "a pattern with an op that cannot", "options"],
)
def test_what_a_script_asked_for_is_in_the_image(tmp_path: Path, ask: Any) -> None:
    """A session on the image compiles the netlist that is in it, and weights are kept in the formats asked for."""
    ask()
    x = torch.rand(1, 64, 64)
    device = pybuda.TTDevice("t", arch=pybuda.BackendDevice.Wormhole_B0, module=Three("m"))
    image = device.compile_to_image(img_path=tmp_path / "x.tti", sample_inputs=(x,))
    session = Session.open(tmp_path / "x.tti")
    assert netlist.dumps(session.compile().netlist) == netlist.dumps(image.loaded.netlist)
    session.export_tti(tmp_path / "y.tti")
    assert Session.open(tmp_path / "y.tti").overrides == session.overrides
    device.push_to_inputs(x)
    expected = pybuda.run_inference().get()[0].value()
    pybuda.pybuda_reset()
    loaded = pybuda.TTDevice.load_image(img_path=tmp_path / "x.tti")
    loaded.modules[-1].set_parameter("b", loaded.modules[-1].get_parameter("b").value())
    loaded.push_to_inputs(x)
    assert torch.equal(pybuda.run_inference().get()[0].value(), expected)


def test_two_torch_modules_of_one_device_keep_their_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, second = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Sequential(nn.Linear(64, 32))
    tt0 = pybuda.TTDevice("tt0", module=[pybuda.PyTorchModule("first", first), pybuda.PyTorchModule("second", second)])
    x = torch.randn(2, 64)
    tt0.compile_to_image(img_path=tmp_path / "x.tti", sample_inputs=(x,))
    pybuda.pybuda_reset()
    device = pybuda.TTDevice.load_image(img_path=tmp_path / "x.tti")
    assert [m.get_name() for m in device.modules] == ["first", "second"]
    other = torch.randn(32, 64)
    device.modules[-1].set_parameter("0.weight", other)
    device.push_to_inputs(x)
    expected = torch.relu(x @ first[0].weight.T + first[0].bias) @ other.T + second[0].bias
    assert pcc(expected.detach(), pybuda.run_inference().get()[0].value()) > 0.999


def test_a_loaded_device_between_hosts(tmp_path: Path) -> None:
    """CPU -> TT -> CPU with the middle from an image."""
    torch.manual_seed(1)
    pre, mid, post = nn.Embedding(40, 64), nn.Linear(64, 64), nn.Linear(64, 8)
    ids = torch.randint(0, 40, (1, 32))
    tt0 = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("mid", mid))
    tt0.compile_to_image(img_path=tmp_path / "mid.tti", sample_inputs=(pre(ids).detach(),))
    pybuda.pybuda_reset()
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("pre", pre))
    pybuda.TTDevice.load_image(img_path=tmp_path / "mid.tti")
    pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("post", post))
    cpu0.push_to_inputs(ids)
    out = pybuda.initialize_pipeline(training=False)
    pybuda.run_forward()
    assert pcc(post(mid(pre(ids))).detach(), out.get()[0].value()) > 0.999


def test_images_without_weights_wait_for_them(tmp_path: Path) -> None:
    tt0 = pybuda.TTDevice("tt0", module=linear())
    image = tt0.compile_to_image(img_path=tmp_path / "x.tti", sample_inputs=(X,))
    image.save_to_disk(tmp_path / "bare.tti", weights=False)
    pybuda.pybuda_reset()
    device = pybuda.TTDevice.load_image(img_path=tmp_path / "bare.tti")
    device.push_to_inputs(X)
    with pytest.raises(InputError, match=r"linear\.weights, linear\.bias"):
        pybuda.run_inference()
    module = linear()
    device.modules[-1].set_parameters(weights=module.weights.value(), bias=module.bias.value())
    device.push_to_inputs(X)
    assert pcc(X @ module.weights.value() + module.bias.value(), pybuda.run_inference().get()[0].value()) > 0.999


def test_the_backends_format_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from tests.tti.models import files_of

    tt0 = pybuda.TTDevice("tt0", module=linear())
    monkeypatch.setenv("PYBUDA_TTI_BACKEND_FORMAT", "1")
    tt0.compile_to_image(img_path=tmp_path / "x.tti", sample_inputs=(X,))
    files = files_of(tmp_path / "x.tti")
    assert not [n for n in files if n.endswith(".npy")] and [n for n in files if n.endswith("weights.bin")]
    written = json.loads(files["unzipped_tti/compile_and_runtime_config.json"])
    assert written == {"PYBUDA_TTI_BACKEND_FORMAT": "1"}
    cfg = json.loads(files["unzipped_tti/device.json"])["compiler_cfg"]
    assert cfg["tti_dump_format"] == {"__enum__": "TTIDumpFormat.DEFAULT"} and cfg["balancer_policy"] == "default"
    monkeypatch.setenv("PYBUDA_TTI_BACKEND_TILIZED_FORMAT", "1")
    with pytest.raises(NotImplementedError, match="raw row-major"):
        tt0.compile_to_image(img_path=tmp_path / "y.tti", sample_inputs=(X,))
    assert not (tmp_path / "y.tti").exists()


def test_refusals(tmp_path: Path) -> None:
    tt0 = pybuda.TTDevice("tt0", module=linear())
    with pytest.raises(RuntimeError, match="push_to_inputs first"):
        tt0.compile_to_image(img_path=tmp_path / "x.tti")
    with pytest.raises(RuntimeError, match="has not been compiled yet"):
        pybuda.TTDeviceImage.create_image_from_device(tt0)
    with pytest.raises(RuntimeError, match="takes an image"):
        pybuda.TTDevice.load_image()
    with pytest.raises(RuntimeError, match="img_path="):
        pybuda.TTDevice.load_image(img="x.tti")
    with pytest.raises(InputError, match="cannot be read"):
        pybuda.TTDevice.load_image(img_path=tmp_path / "none.tti")
    assert not list(tmp_path.iterdir())
