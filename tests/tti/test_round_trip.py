"""What is written is what is read: the same results bit for bit, in another process, without the model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tbuda_lab.core import frontend, netlist
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.tti import LoadedImage, load_image, loaded_of, model_facts, write_image
from tbuda_lab.core.tti.loaded_image import on_chips
from tests.tti.models import MODELS, files_of, session

DEVICES = {"tokens": "n150", "picture": "grayskull", "pair": "n300"}

ELSEWHERE = """
import sys, numpy as np, torch
from pathlib import Path
import tbuda_lab.core.compiler.pipeline as compiler, tbuda_lab.core.frontend as frontend
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.tti import load_image

def never(*_, **__):
    raise AssertionError("an image is neither traced nor placed")

compiler.place_and_repair = compiler.op_models = frontend.from_any = frontend.from_torch = never
folder = Path(sys.argv[1])
for image in sorted(folder.glob("*.tti")):
    given = np.load(folder / f"{image.stem}.inputs.npz")
    sample = tuple(torch.from_numpy(given[k]) for k in sorted(given.files))
    outputs = Runner(load_image(image)).run([sample])[0]
    np.savez(folder / f"{image.stem}.outputs.npz", *[t.numpy() for t in outputs])
print("tests" in sys.modules, "done")
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Session]]:
    """A folder with an image of each model, run in a process of its own; and the sessions that they came from."""
    folder = tmp_path_factory.mktemp("images")
    sessions = {name: session(name, DEVICES[name]) for name in MODELS}
    for k, (name, one) in enumerate(sessions.items()):
        one.export_tti(folder / f"{name}.tti", dump_format=("default", "backend")[k % 2])
        np.savez(folder / f"{name}.inputs.npz", *[t.numpy() for t in one.sample_inputs])
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(folder)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["False", "done"], ran.stderr
    return folder, sessions


@pytest.mark.parametrize("name", MODELS)
def test_another_process_gets_the_same_bits(written: tuple[Path, dict[str, Session]], name: str) -> None:
    folder, sessions = written
    ours = sessions[name].run()[0]
    expected = frontend.reference(sessions[name].model, sessions[name].sample_inputs)
    with np.load(folder / f"{name}.outputs.npz") as theirs:
        assert len(theirs.files) == len(ours)
        for key, mine, torchs in zip(theirs.files, ours, expected, strict=True):
            assert theirs[key].tobytes() == mine.numpy().tobytes()
            assert np.corrcoef(theirs[key].ravel(), torchs.numpy().ravel())[0, 1] > 0.999


@pytest.mark.parametrize("name", MODELS)
def test_a_session_on_an_image_is_the_session_it_came_from(written: tuple[Path, dict[str, Session]], name: str) -> None:
    folder, sessions = written
    again = Session.open(folder / f"{name}.tti", sample_inputs=sessions[name].sample_inputs)
    assert netlist.dumps(again.compile().netlist) == netlist.dumps(sessions[name].compile().netlist)
    assert not again.problems or all(p.rule != "image" for p in again.problems)
    assert again.device == sessions[name].device and again.options == sessions[name].options
    assert all(row.pcc > 0.999 for row in again.verify())
    form = ("default", "backend")[list(MODELS).index(name) % 2]
    again.export_tti(folder / "again.copy", dump_format=form)
    assert (folder / "again.copy").read_bytes() == (folder / f"{name}.tti").read_bytes()


def test_the_archive_is_what_the_tools_of_the_field_expect(written: tuple[Path, dict[str, Session]]) -> None:
    files = files_of(written[0] / "picture.tti")
    assert not [n for n in files if n.endswith((".pkl", ".py"))]
    assert {n.split("/")[0] for n in files} == {"unzipped_tti"}
    manifest = json.loads(files["unzipped_tti/device.json"])
    state = manifest["compiled_graph_state"]
    assert manifest["arch"] == {"__enum__": "BackendDevice.Grayskull"} and manifest["grid_size"] == [10, 12]
    assert manifest["version"].startswith("1.1.0")
    assert state["ordered_input_shapes"] == [[1, 3, 32, 32]]
    own = netlist.loads(files[state["netlist_filename"]].decode())
    assert set(state["ordered_input_names"] + state["ordered_output_names"]) <= set(own.queues)
    for name, node in {**state["post_const_eval_parameters"], **state["post_const_eval_constants"]}.items():
        assert len(files[f"unzipped_tti/{node['bin']}"]) == np.prod(node["shape"]) * node["itemsize"]
        z, rows, cols = own.queues[name].blocking.tiles(own.queues[name].grid_size)
        assert node["shape"] == [1, z, rows * 32, cols * 32] and node["strides"][3] == node["itemsize"]
    assert sorted(state["post_const_eval_parameters"]) == sorted(state["ordered_parameter_node_names"])
    assert json.loads(files["unzipped_tti/compile_and_runtime_config.json"]) == {}


def test_the_descriptors_are_those_of_the_device(written: tuple[Path, dict[str, Session]], tmp_path: Path) -> None:
    for name, board in DEVICES.items():
        files = files_of(written[0] / f"{name}.tti")
        for kind in ("device", "cluster"):
            text = files[f"unzipped_tti/backend_build_binaries/{kind}_desc.yaml"]
            (tmp_path / f"{kind}.yaml").write_bytes(text)
            assert isinstance(yaml.safe_load(text), dict)
        spec, read = load_device(board), load_device(tmp_path / "device.yaml", cluster=tmp_path / "cluster.yaml")
        for field in (
            "arch",
            "rows",
            "cols",
            "chips",
            "harvested_by_chip",
            "mmio_chips",
            "l1_size",
            "dram_cores",
            "noc_size",
            "worker_cols",
        ):
            assert getattr(read, field) == getattr(spec, field), (board, field)
        assert sum(n for *_, n in read.links) == sum(n for *_, n in spec.links)


def test_the_same_model_gives_the_same_bytes(written: tuple[Path, dict[str, Session]], tmp_path: Path) -> None:
    session("pair", DEVICES["pair"]).export_tti(tmp_path / "pair.tti")
    other = "default" if "pair" in list(MODELS)[::2] else "backend"
    session("pair", DEVICES["pair"]).export_tti(tmp_path / "again.tti", dump_format=other)
    assert (tmp_path / "again.tti").read_bytes() == (written[0] / "pair.tti").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.tti", "pair.tti"]


@pytest.mark.parametrize("name", MODELS)
def test_new_weights_are_folded_as_a_compile_folds_them(written: tuple[Path, dict[str, Session]], name: str) -> None:
    image = load_image(written[0] / f"{name}.tti")
    rng = np.random.default_rng(5)
    new = {
        n: (np.abs(rng.normal(size=v.shape)) * 0.1 + 0.05).astype(np.float32) for n, v in image.weight_values().items()
    }
    model, sample = MODELS[name]()
    existing = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for n, v in new.items():
            existing[n].copy_(torch.from_numpy(v))
    compiled = Session(model, sample, DEVICES[name], name=name).compile()
    got = image.with_weights(new)
    assert set(got.parameters) == set(compiled.parameters)
    for queue, value in compiled.parameters.items():
        assert np.array_equal(got.parameters[queue], value), queue
    ran, expected = Runner(got).run([sample])[0], frontend.reference(model, sample)
    for ours, theirs in zip(ran, expected, strict=True):
        assert np.corrcoef(ours.numpy().ravel(), theirs.numpy().ravel())[0, 1] > 0.999


@pytest.mark.parametrize("name", MODELS)
def test_without_weights_nothing_of_them_is_in_the_file(
    written: tuple[Path, dict[str, Session]], name: str, tmp_path: Path
) -> None:
    folder, sessions = written
    bare = sessions[name].export_tti(tmp_path / "bare.tti", weights=False)
    whole = load_image(folder / f"{name}.tti")
    files = files_of(bare)
    weights = whole.weight_values()
    assert not [n for n in files for w in weights if n.endswith((f"module.{w}.npy", f"Tensor.{w}.npy"))]
    blob = b"".join(files.values())
    assert not [w for w, v in weights.items() if np.ptp(v) and np.ascontiguousarray(v).tobytes() in blob]
    image = load_image(bare)
    assert image.missing == list(weights)
    with pytest.raises(InputError, match=f"no values for {next(iter(weights))}"):
        image.with_weights({})
    with pytest.raises(InputError, match="without weights: give them"):
        Session.open(bare)
    full = image.with_weights(weights)
    assert all(np.array_equal(full.parameters[q], v) for q, v in whole.parameters.items())
    again = Session.open(bare, parameters=weights)
    assert netlist.dumps(again.compile().netlist) == netlist.dumps(whole.netlist)


def test_weights_that_do_not_fit_are_all_named(written: tuple[Path, dict[str, Session]]) -> None:
    image = load_image(written[0] / "pair.tti")
    with pytest.raises(InputError) as caught:
        image.with_weights(
            {
                "first.weight": np.zeros((3, 3), np.float32),
                "nobody": np.zeros(1, np.float32),
                "second.weight": np.full((32, 96), "word"),
            }
        )
    text = str(caught.value)
    assert "second.weight: holds <U4, not numbers" in text
    assert "first.weight: has shape (3, 3), the parameter (96, 64)" in text and "second.weight" in text


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = torch.nn.Linear(32, 32), torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale.exp()


def test_a_weight_may_be_a_single_number(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Scaled().eval(), torch.randn(1, 32, 32)
    image = load_image(Session(model, (x,), "n150").export_tti(tmp_path / "x.tti"))
    got = Runner(image.with_weights({"scale": np.array(0.5)})).run([(x,)])[0][0]
    with torch.no_grad():
        expected = model.inner(x) * torch.tensor(0.5).exp()
    assert torch.allclose(got, expected, atol=0.02 * float(expected.abs().max()))


def test_edits_are_in_the_image(tmp_path: Path) -> None:
    """Overrides, and what the placer made of them, on two chips."""
    one = session("pair", "n300")
    one.gesture(f"chip break at {one.compile().placement.schedule[2]}")
    ours = one.run()[0]
    assert len({one.result.placement.ops[op].chip for op in one.result.placement.schedule}) == 2
    image = load_image(one.export_tti(tmp_path / "edited.tti"))
    assert image.overrides and len(image.device.chips) == 2
    for loaded in (image, on_chips(image, [5, 2]), image.with_weights(image.weight_values())):
        assert all(torch.equal(a, b) for a, b in zip(Runner(loaded).run([one.sample_inputs])[0], ours, strict=True))
    moved = on_chips(image, [5, 2])
    assert {g.target_device for g in moved.netlist.graphs.values()} == {5, 2} and moved.device.chips == (5, 2)
    with pytest.raises(InputError, match="as many different numbers"):
        on_chips(image, [1])
    assert Session.open(tmp_path / "edited.tti").compile().placement.epochs == one.result.placement.epochs


def test_a_microbatch_stays_one(tmp_path: Path) -> None:
    from tbuda_lab.core.options import CompileOptions

    model, (x, y) = MODELS["pair"]()
    inputs = (torch.cat([x, -x]), torch.cat([y, y]))
    one = Session(model, inputs, "n150", CompileOptions(microbatch=2))
    image = load_image(one.export_tti(tmp_path / "two.tti"))
    got = Runner(image).run([inputs])[0]
    assert all(torch.equal(a, b) for a, b in zip(got, one.run()[0], strict=True))
    assert image.manifest["compiled_graph_state"]["ordered_input_shapes"] == [[2, 32, 64], [2, 32, 96]]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tbuda_lab.core.tti import write

    one = session("pair")
    result = one.compile()
    loaded: LoadedImage = loaded_of(result, "pair", model_facts(one.model, "pair", result.graph))
    (tmp_path / "old.tti").write_bytes(b"old")

    def broken(*_: object, **__: object) -> object:
        raise OSError("the disk is full")

    monkeypatch.setattr(write.tarfile.TarFile, "addfile", broken)
    with pytest.raises(Exception, match="disk is full"):
        write_image(tmp_path / "old.tti", loaded)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("old.tti", b"old")]
