"""Images of models of which the host runs a part: the same numbers as the compile gives, without the model."""

from __future__ import annotations

import io
import json
import tarfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab import pybuda
from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError, ModelError, NotSupported
from tbuda_lab.core.session import Session
from tbuda_lab.core.tti import load_image
from tbuda_lab.pybuda import PyTorchModule, TTDevice


class Router(nn.Module):
    """Two equal blocks of the device, with a choice by the host behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 64)
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.relu(self.first(self.table(tokens) + x)).topk(64, -1)
        return torch.relu(self.second(values)).sort(-1, descending=True)[0], places


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 40, (2, 16)), torch.randn(2, 16, 64)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Router]]:
    pybuda.pybuda_reset()
    torch.manual_seed(7)
    model, path = Router().eval(), tmp_path_factory.mktemp("images") / "router.tti"
    device = TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=PyTorchModule("router", model))
    with pytest.warns(UserWarning, match="sections: .*topk"):
        device.compile_to_image(img_path=path, sample_inputs=inputs())
    pybuda.pybuda_reset()
    yield path, model
    pybuda.pybuda_reset()


def test_it_runs_all_sections_without_the_model(image: tuple[Path, Router]) -> None:
    path, model = image
    device = TTDevice.load_image(img_path=path)
    compiled = TTDevice("again", arch=pybuda.BackendDevice.Wormhole_B0, module=PyTorchModule("router", model))
    pybuda.set_device_pipeline([device])
    places = [stage.place for stage in device.loaded.chain.stages]  # type: ignore[attr-defined]
    assert places == ["device", "host", "device", "host"]
    assert "section 1, host: topk" in device.fallback_report()
    for _ in range(2):
        feeds = inputs()
        device.push_to_inputs(feeds)
        got = [tensor.value() for tensor in pybuda.run_inference().get(timeout=1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the sections
            bits = compiled.run_forward(feeds)
        with torch.no_grad():
            want = model(*feeds)
        assert [g.dtype for g in got] == [torch.float32, torch.int64]
        for g, b, w in zip(got, bits, want, strict=True):
            assert torch.equal(g, b), "as the compile has it, bit for bit"
            assert g.shape == w.shape and (g.dtype is torch.int64 or torch.allclose(g, w, atol=1e-3))
    shapes = pybuda.TTDeviceImage.load_from_disk(path).get_input_shapes()
    assert shapes == [[2, 16], [2, 16, 64]], "those of the model, not of a section"


def test_it_is_written_again_and_for_another_chip(image: tuple[Path, Router], tmp_path: Path) -> None:
    path, model = image
    again = TTDevice.load_image(img_path=path)
    again.compile_to_image(tmp_path / "again.tti")
    assert (tmp_path / "again.tti").read_bytes() == path.read_bytes()
    moved = TTDevice.load_image(img_path=path, device_id_overrides=[3])
    moved.compile_to_image(tmp_path / "moved.tti")
    device = TTDevice.load_image(img_path=tmp_path / "moved.tti")
    assert device.chip_ids == [3]
    pybuda.set_device_pipeline([device])
    feeds = inputs()
    device.push_to_inputs(feeds)
    with torch.no_grad():
        assert torch.allclose(pybuda.run_inference().get(timeout=1)[0].value(), model(*feeds)[0], atol=1e-3)


def test_the_command_line_runs_it(image: tuple[Path, Router], tmp_path: Path) -> None:
    path, model = image
    tokens, x = inputs()
    np.savez(tmp_path / "in.npz", tokens=tokens.numpy(), x=x.numpy())
    command = ["run", str(path), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert main(command) == 0
    with np.load(tmp_path / "out.npz") as file, torch.no_grad():
        got = file["router.output_0"]
        assert np.allclose(got, model(tokens, x)[0].numpy(), atol=1e-3)


def test_what_it_cannot_do_is_refused(image: tuple[Path, Router], tmp_path: Path) -> None:
    path, _ = image
    device = TTDevice.load_image(img_path=path)
    with pytest.raises(NotSupported, match="new weights of the image 'tt0', which is in sections"):
        device.modules[-1].set_parameter("first.weight", torch.zeros(64, 64))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"image in sections.*give the model itself"):
        Session.open(path)
    loaded = load_image(path)
    with pytest.raises(InputError, match="weights stay as they were compiled"):
        loaded.with_weights({})
    with pytest.raises(InputError, match="write it with weights"):
        pybuda.TTDeviceImage.load_from_disk(path).save_to_disk(tmp_path / "bare.tti", weights=False)


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1


def test_a_model_that_torch_leads_has_no_image(tmp_path: Path) -> None:
    pybuda.pybuda_reset()
    device = TTDevice("tt0", module=PyTorchModule("branches", Branches()))
    x = torch.randn(1, 32, 32)
    with pytest.warns(UserWarning, match="depends on data"):
        pybuda.run_inference(inputs=[(x,)])
    with pytest.raises(ModelError, match=r"depends on the value of a tensor.*torch\.where"):
        device.compile_to_image(img_path=tmp_path / "branches.tti", sample_inputs=(x,))
    pybuda.pybuda_reset()


def edited(path: Path, target: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """A copy whose manifest was changed."""
    with tarfile.open(path) as old, tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as new:
        for member in old.getmembers():
            file = old.extractfile(member) if member.isfile() else None
            data = b"" if file is None else file.read()
            if member.name == "unzipped_tti/device.json":
                manifest = json.loads(data)
                edit(manifest["tbuda_lab"])
                data = json.dumps(manifest).encode()
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return target


def test_sections_that_do_not_fit_are_refused(image: tuple[Path, Router], tmp_path: Path) -> None:
    path, _ = image

    def refused(text: str, edit: Callable[[dict[str, Any]], None]) -> None:
        with pytest.raises(InputError, match=text):
            load_image(edited(path, tmp_path / "bad.tti", edit))

    def stage(number: int, **change: Any) -> Callable[[dict[str, Any]], None]:
        return lambda ours: ours["chain"]["stages"][number].update(change)

    def renamed(number: int, part: str) -> Callable[[dict[str, Any]], None]:
        def edit(ours: dict[str, Any]) -> None:
            names = ours["chain"]["stages"][number][part]
            names[next(iter(names))] = "nowhere"

        return edit

    assert load_image(edited(path, tmp_path / "same.tti", lambda ours: None)).chain is not None
    refused("which no stage before it gives", lambda ours: ours["chain"]["stages"].reverse())
    refused("no stage gives", lambda ours: ours["chain"]["stages"].pop())
    refused("no stages|no stage gives", lambda ours: ours["chain"]["stages"].clear())
    refused("as earlier versions wrote them", lambda ours: ours.update(sections=[]))
    refused("not of the host or the device", stage(0, place="moon"))
    refused("program is None", lambda ours: ours["chain"]["stages"][0].pop("program"))
    refused("there is no program 'run_far'", stage(0, program="run_far"))
    refused("which are not its ends", stage(2, program="run_fwd_0"))
    refused("which are not its ends", stage(1, place="device", program="run_fwd_0"))
    refused("reads is no object of texts", stage(1, reads={"a": 1}))
    refused("which are not its ends", stage(1, reads={}))
    refused("which are not its ends", stage(0, keeps={"x": "first.weight"}))
    for number in range(4):
        for part in ("reads", "gives"):
            refused("'nowhere', which", renamed(number, part))
    refused("is no type of torch", lambda ours: ours["chain"].update(dtypes={}))
    refused("not there", stage(1, graph="nowhere.graph"))
