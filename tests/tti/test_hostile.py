"""Archives that lie, climb, swell or run code: a typed error each, nothing written, nothing executed."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import pickle
import random
import signal
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.netlist import image
from tbuda_lab.core.netlist.archive import Archive
from tbuda_lab.core.netlist.image import read_image
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.tti import load_image
from tbuda_lab.core.tti.weights import sample_of
from tests.tti.models import files_of, session, write_tar

DEVICE, TOP = "unzipped_tti/device.json", "unzipped_tti/"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a good image."""
    return files_of(session("pair").export_tti(tmp_path_factory.mktemp("good") / "good.tti", dump_format="backend"))


class Trap:
    """A pickle that makes a folder when it is read."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.where),)


def changed(files: dict[str, bytes], edit: Callable[[dict[str, Any]], None]) -> dict[str, bytes]:
    manifest = json.loads(files[DEVICE])
    edit(manifest)
    return {**files, DEVICE: json.dumps(manifest).encode()}


def test_the_good_one_is_read(files: dict[str, bytes], tmp_path: Path) -> None:
    assert load_image(write_tar(tmp_path / "x.tti", files)).name == "pair"
    with zipfile.ZipFile(tmp_path / "zip.tti", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert load_image(tmp_path / "zip.tti").name == "pair"


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "version": lambda m: m.update(version="1.0.0"),
    "no section": lambda m: m.pop("tbuda_lab"),
    "no state": lambda m: m.pop("compiled_graph_state"),
    "a tensor outside": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(bin="../../etc/passwd"),
    "an absolute tensor": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(bin="/etc/passwd"),
    "a huge shape": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(shape=[1 << 40, 1, 1, 1]),
    "a negative shape": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(shape=[-1, 1, 1, 1]),
    "an odd format": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(format="object"),
    "other strides": lambda m: next(iter(m["tbuda_lab"]["arrays"].values())).update(strides=[1, 2, 3, 4]),
    "no arrays": lambda m: m["tbuda_lab"].update(arrays={}),
    "a queue that is not": lambda m: m["tbuda_lab"]["inputs"][0].update(queue="nobody"),
    "a wrong shape": lambda m: m["tbuda_lab"]["inputs"][0].update(shape=[0, -3]),
    "a graph that is not there": lambda m: m["tbuda_lab"].update(graph="module_files/other.graph"),
    "a graph outside": lambda m: m["tbuda_lab"].update(graph="../x.graph"),
    "a device that is none": lambda m: m["tbuda_lab"]["device"].update(rows="ten"),
    "a device without rows": lambda m: m["tbuda_lab"]["device"].update(rows=0),
    "a device without end": lambda m: m["tbuda_lab"]["device"].update(rows=1 << 40),
    "a device without DRAM": lambda m: m["tbuda_lab"]["device"].update(dram_cores=[]),
    "chips without rows": lambda m: m["tbuda_lab"]["device"].update(harvested_by_chip=[]),
    "an output that its queue has not": lambda m: m["tbuda_lab"]["outputs"][0]["shape"].append(1 << 40),
    "a TM that does not divide": lambda m: m["tbuda_lab"]["outputs"][0].update(tms=[["hslice", [7]]]),
    "a device with more": lambda m: m["tbuda_lab"]["device"].update(colour="red"),
    "an arch that is none": lambda m: m["tbuda_lab"]["device"].update(arch="../data"),
    "an unknown option": lambda m: m["tbuda_lab"].update(options={"backdoor": True}),
    "an unknown override": lambda m: m["tbuda_lab"].update(overrides=[{"kind": "x", "target": "y", "value": 1}]),
    "no netlist": lambda m: m["compiled_graph_state"].update(netlist_filename="unzipped_tti/none.yaml"),
    "a TM that is none": lambda m: m["tbuda_lab"]["outputs"][0].update(tms=[["system", ["ls"]]]),
    "parameters elsewhere": lambda m: m["module_name_to_metadata"]["pair"].update(parameters={"w": "nobody"}),
    "weights withheld and there": lambda m: m["compiled_graph_state"].update(post_const_eval_parameters={}),
    "no number of microbatches": lambda m: m["tbuda_lab"].update(options={"microbatch": 0}),
    "a section that is a list": lambda m: m.update(tbuda_lab=[1]),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_manifest_that_lies_is_refused(files: dict[str, bytes], tmp_path: Path, what: str) -> None:
    path = write_tar(tmp_path / "x.tti", changed(files, EDITS[what]))
    with pytest.raises(InputError):
        load_image(path)
    with pytest.raises(InputError):
        Session.open(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.tti"]


def test_an_input_of_no_type_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    name = TOP + "module_files/pair.graph"
    for kind in (b"float99", b"save", b"hub"):
        text = files[name].replace(b"'float32'", b"'%s'" % kind)
        with pytest.raises(InputError, match="which torch does not have"):
            load_image(write_tar(tmp_path / "x.tti", {**files, name: text}))


def test_every_name_of_a_manifest_is_followed_before_anything_runs(files: dict[str, bytes], tmp_path: Path) -> None:
    """Each reference of an input or output in turn leads elsewhere: to nothing, and to every other name that there is.
    What is read then runs, or ends in a typed error; what leads to nothing is refused when it is read."""
    section = json.loads(files[DEVICE])["tbuda_lab"]
    names = {b["name"] for end in ("inputs", "outputs") for b in section[end]} | {"", "nobody"}
    names |= {b["queue"] for end in ("inputs", "outputs") for b in section[end]} | set(section["weighted"])
    graphs = [None, section["graph"]]
    places: list[tuple[str, int, str, list[Any]]] = [
        (end, i, field, values)
        for end in ("inputs", "outputs")
        for i in range(len(section[end]))
        for field, values in (
            ("name", sorted(names)),
            ("queue", sorted(names)),
            ("recipe", graphs),
            ("sources", [[], *([n] for n in sorted(names)), ["x", "y"]]),
            ("gradient_of", sorted(names)),
        )
        if field not in ("sources", "gradient_of") or end == "inputs"
    ]
    runs = 0
    for end, i, field, values in places:
        for value in values:
            lie = changed(files, lambda m: m["tbuda_lab"][end][i].update({field: value}))  # noqa: B023
            try:
                image = load_image(write_tar(tmp_path / "x.tti", lie))
                assert value not in ("nobody", ["nobody"], []) or (field == "name" and end == "inputs"), (end, field)
                Runner(image, "golden").run([tuple(sample_of(image.graph, image.options.microbatch))])
                runs += 1
            except TbudaError as error:
                assert str(error)
    assert runs >= 8  # what it was before


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"version": ' + b"9" * 5000 + b"}", b"\xff\xfe\x00"]
)
def test_a_manifest_that_is_none_is_refused(files: dict[str, bytes], tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError):
        load_image(write_tar(tmp_path / "x.tti", {**files, DEVICE: data}))


def test_an_image_of_another_program_shows_its_netlist_and_no_pickle_is_opened(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    """As PyBuda writes them: pickled tensors and modules."""

    def theirs(manifest: dict[str, Any]) -> None:
        manifest.pop("tbuda_lab")
        manifest["version"] = "1.1.0"
        state = manifest["compiled_graph_state"]
        state["post_const_eval_parameters"] = dict.fromkeys(
            state["post_const_eval_parameters"], "tensors/torch.Tensor.w.pkl"
        )

    trap = pickle.dumps(Trap(tmp_path / "trapped"))
    selected = {n: d for n, d in changed(files, theirs).items() if "/tensors/" not in n and "/module_files/" not in n}
    path = write_tar(
        tmp_path / "x.tti", {**selected, TOP + "tensors/torch.Tensor.w.pkl": trap, TOP + "m.module.pkl": trap}
    )
    with pytest.raises(InputError, match=r"not written by tbuda_lab.*m\.module\.pkl.*pickles.*open_tti") as caught:
        load_image(path)
    assert "tbuda netlist run" in str(caught.value)
    image = read_image(path)
    assert image.pickles == 2 and "ops" not in image.netlists
    assert next(iter(image.netlists.values())).startswith("# ") or "devices" in next(iter(image.netlists.values()))
    from tbuda_lab.widgets import open_tti

    assert "<svg" in open_tti(path).static().html
    assert not (tmp_path / "trapped").exists()


def test_a_pickle_in_place_of_a_tensor_is_refused_by_name(files: dict[str, bytes], tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "trapped"))

    def swapped(manifest: dict[str, Any]) -> None:
        arrays = manifest["tbuda_lab"]["arrays"]
        arrays[next(iter(arrays))] = "tensors/torch.Tensor.w.pkl"

    path = write_tar(tmp_path / "x.tti", {**changed(files, swapped), TOP + "tensors/torch.Tensor.w.pkl": trap})
    with pytest.raises(InputError, match=r"torch\.Tensor\.w\.pkl.*pickle"):
        load_image(path)

    stream = io.BytesIO()
    np.save(stream, np.array([Trap(tmp_path / "trapped")], object), allow_pickle=True)

    def objects(manifest: dict[str, Any]) -> None:
        node = next(iter(manifest["tbuda_lab"]["arrays"].values()))
        node["npy"] = node.pop("bin")

    bad = changed(files, objects)
    name = next(iter(json.loads(bad[DEVICE])["tbuda_lab"]["arrays"].values()))["npy"]
    with pytest.raises(InputError, match=r"no plain numbers"):
        load_image(write_tar(tmp_path / "x.tti", {**bad, TOP + name: stream.getvalue()}))
    assert not (tmp_path / "trapped").exists()


def test_shapes_of_many_dims_are_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    """More than NumPy broadcasts."""
    shape = f"({'1, ' * 40}96)"
    body = f"  n = reshape[shape={shape}](tanh) : {shape}\n  m = add(n, n) : {shape}"
    with pytest.raises(InputError, match="dims"):
        load_image(write_tar(tmp_path / "x.tti", in_graph(files, body)))


def test_one_file_is_not_read_without_end(files: dict[str, bytes], tmp_path: Path) -> None:
    """A manifest of 40 kB that names one tensor of 4 MiB for each of 300 arrays would have 1.2 GB read."""

    def many(count: int) -> Path:
        node = {
            "format": "Float32",
            "shape": [1, 1, 1024, 1024],
            "strides": [1024 * 1024, 1024 * 1024, 1024, 1],
            "bin": "tensors/big.bin",
        }
        lie = changed(files, lambda m: m["tbuda_lab"]["arrays"].update({f"{n:016x}": node for n in range(count)}))
        return write_tar(tmp_path / "x.tti", {**lie, TOP + "tensors/big.bin": bytes(4 << 20)})

    assert load_image(many(3)).name == "pair"
    with pytest.raises(InputError, match=r"reading 'tensors/big\.bin' once more would take 4\.0 MiB"):
        load_image(many(300))


def link(kind: bytes, name: str) -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        if info.name == name:
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    return change


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_no_files(files: dict[str, bytes], tmp_path: Path, kind: bytes) -> None:
    tensor = next(n for n in files if n.startswith(TOP + "tensors/"))
    with pytest.raises(InputError, match="is not there"):
        load_image(write_tar(tmp_path / "x.tti", files, link(kind, tensor)))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "..\\x", "unzipped_tti/./../../x"])
def test_names_that_climb_are_refused(files: dict[str, bytes], tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="outside itself"):
        load_image(write_tar(tmp_path / "x.tti", {**files, name: b""}))


def test_what_stands_twice_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tti", files)
    with tarfile.open(path, "a", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo(DEVICE)
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    with pytest.raises(InputError, match="two files"):
        load_image(path)


def test_a_zip_that_swells_is_refused_before_it_is_unpacked(files: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.tti", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(TOP + "tensors/bomb.bin", bytes(64 << 20))
    assert (tmp_path / "bomb.tti").stat().st_size < 1 << 20
    with pytest.raises(InputError, match="would unpack"):
        load_image(tmp_path / "bomb.tti")


def test_a_sparse_file_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tti", files)
    info = tarfile.TarInfo(TOP + "tensors/holes.bin")
    info.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[386:410] = b"00000000000\x0000000000000\x00"[:24]
    head[483:495] = b"77777777777\x00"  # eight gigabytes of nothing
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    raw = path.read_bytes().rstrip(b"\0")
    path.write_bytes(raw + bytes(-len(raw) % 512) + bytes(head) + bytes(1024))
    with pytest.raises(InputError, match="sparse"):
        load_image(path)


def header(name: str, kind: bytes, size: int) -> bytes:
    """A tar's header that says what is not so, with the right check sum."""
    head = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    head[156:157] = kind
    head[124:136] = (size % (1 << 96)).to_bytes(12, "big") if size < 0 else bytes([128]) + size.to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head)


def fields(**said: str) -> bytes:
    """A header with further fields of the next one."""
    lines = b"".join(b"%d%s" % (len(line) + 2, line) for line in (f" {k}={v}\n".encode() for k, v in said.items()))
    return header("p", tarfile.XHDTYPE, len(lines)) + lines.ljust(512, b"\0")


FILE = header("file", tarfile.REGTYPE, 0)
LIES = {
    "a size below nothing": FILE + header("x", tarfile.REGTYPE, -512),
    "a header that leads to itself": FILE + header("x", b"Z", -512),
    "two headers in a circle": FILE + header("x", b"Z", 0) + header("y", b"Z", -1024),
    "a field that leads back": FILE + fields(size="-1536") + header("x", b"Z", 0),
    "a name for no memory": header("x", tarfile.GNUTYPE_LONGNAME, 1 << 40),
    "a name for no integer": header("x", tarfile.GNUTYPE_LONGNAME, 1 << 80),
    "fields that take for ever": header("x", tarfile.XHDTYPE, 1 << 20) + b"1" * (1 << 20),
    "fields of fields": fields(comment="x") * 3000 + FILE,
    "a size that is not there": FILE + header("x", tarfile.REGTYPE, 1 << 70),
}


@pytest.fixture
def at_once() -> Iterator[None]:
    """What takes for ever fails instead."""

    def late(*_: Any) -> None:
        raise AssertionError("it takes for ever")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("what", LIES)
def test_headers_that_lie_are_refused_at_once(tmp_path: Path, what: str) -> None:
    (tmp_path / "x.tti").write_bytes(LIES[what] + bytes(1024))
    with pytest.raises(InputError, match=r"x\.tti"):
        read_image(tmp_path / "x.tti")


def test_a_zip_of_many_small_members_does_not_swell_either(files: dict[str, bytes], tmp_path: Path) -> None:
    """Each below the size from which a member's own ratio counts."""
    with zipfile.ZipFile(tmp_path / "bomb.tti", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(DEVICE, files[DEVICE])
        for number in range(6):
            archive.writestr(f"{TOP}{number}.yaml", bytes(3 << 20))
    with pytest.raises(InputError, match="that is not a device image"):
        read_image(tmp_path / "bomb.tti")


def test_netlists_that_are_too_much_together_are_not_read(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "MAX_TEXTS", len(files[DEVICE]) + 5000)
    path = write_tar(tmp_path / "x.tti", {DEVICE: files[DEVICE], **{f"{n}.yaml": b"#" * 2000 for n in range(3)}})
    with pytest.raises(InputError, match="manifests and netlists, more than"):
        read_image(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_is_stored_or_deflated(files: dict[str, bytes], tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.tti", "w", method) as archive:
        archive.writestr(DEVICE, files[DEVICE])
    with pytest.raises(InputError, match="stored or deflated"):
        read_image(tmp_path / "x.tti")


def test_a_file_that_ends_early_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "x.tti", files).read_bytes()
    for part in (0, 100, 512, 5_000, len(whole) // 2, len(whole) - 12_000):
        (tmp_path / "cut.tti").write_bytes(whole[:part])
        with pytest.raises(InputError):
            load_image(tmp_path / "cut.tti")
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path / "none.tti")
    with pytest.raises(InputError, match="cannot be read"):
        load_image(tmp_path)


def read_or_refused(path: Path) -> bool:
    """Whether it is an image or refused by a typed error; anything else comes out."""
    try:
        return load_image(path).netlist is not None
    except TbudaError:
        return True


def test_an_image_with_noise_in_it_is_read_or_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    """Any bytes: an image or a typed error, never anything else."""
    rng = random.Random(11)
    whole = write_tar(tmp_path / "x.tti", {n: d for n, d in files.items() if "/tensors/" not in n or len(d) < 9000})
    raw = whole.read_bytes()
    for _ in range(120):
        noisy = bytearray(raw)
        for _ in range(rng.choice((1, 3, 20))):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        (tmp_path / "noise.tti").write_bytes(noisy)
        assert read_or_refused(tmp_path / "noise.tti")


def test_a_manifest_of_any_shape_is_read_or_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    """Every value of the manifest in turn replaced by what does not belong there."""
    manifest = json.loads(files[DEVICE])

    def places(value: Any, path: tuple[Any, ...] = ()) -> Any:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield (*path, key)
            yield from places(inner, (*path, key))

    rng = random.Random(4)
    every = [p for p in places(manifest) if p[0] in ("tbuda_lab", "compiled_graph_state", "module_name_to_metadata")]
    for place in rng.sample(every, min(150, len(every))):
        twin = copy.deepcopy(manifest)
        at = twin
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = rng.choice((None, -1, 1e300, "../x", [], {}, [[1]], True))
        path = write_tar(tmp_path / "x.tti", {**files, DEVICE: json.dumps(twin).encode()})
        assert read_or_refused(path)


def test_an_archive_is_closed_whatever_happens(files: dict[str, bytes], tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tti", files)
    with Archive(path) as archive, pytest.raises(InputError, match="more than 3"):
        archive.read(DEVICE, 3)
    (tmp_path / "x.tti").unlink()


def lines(size: int, line: Callable[[int], str]) -> str:
    """Numbered lines of about that many bytes together."""
    return "\n".join(line(i) for i in range(size // len(line(0))))


GRAPH, NETLIST = TOP + "module_files/pair.graph", TOP + "pair_netlist.yaml"


def in_graph(files: dict[str, bytes], body: str) -> dict[str, bytes]:
    head, output, rest = files[GRAPH].decode().partition("  pair.output_0 =")
    return {**files, GRAPH: f"{head}{body}\n{output}{rest}".encode()}


def in_netlist(files: dict[str, bytes], body: str) -> dict[str, bytes]:
    return {**files, NETLIST: files[NETLIST] + body.encode()}


def in_section(files: dict[str, bytes], field: str, record: Any, size: int) -> dict[str, bytes]:
    many = [record] * (size // len(json.dumps(record)))
    return changed(files, lambda m: m["tbuda_lab"].__setitem__(field, many))


MUCH: dict[str, Callable[[dict[str, bytes], int], dict[str, bytes]]] = {
    "a chain of ops": lambda f, n: in_graph(
        f, lines(n, lambda i: f"  n{i} = tanh(n{i - 1}) : (1, 32, 96)").replace("n-1", "tanh")
    ),
    "an op with many readers": lambda f, n: in_graph(f, lines(n, lambda i: f"  n{i} = tanh(tanh) : (1, 32, 96)")),
    "an op with many operands": lambda f, n: in_graph(
        f, f"  n = concatenate[axis=-1]({', '.join(['tanh'] * (n // 6))}) : (1, 32, {96 * (n // 6)})"
    ),
    "a long list of numbers": lambda f, n: in_graph(
        f, f"  n = constant : ({n // 5},) = float32 [{', '.join(['0.5'] * (n // 5))}]"
    ),
    "a long attribute": lambda f, n: in_graph(
        f, f"  n = tanh(tanh) : (1, 32, 96) {{a: [{', '.join(['1'] * (n // 3))}]}}"
    ),
    "a shape of many dims": lambda f, n: in_graph(f, f"  n = tanh(tanh) : ({', '.join(['1'] * (n // 3))})"),
    "empty lines": lambda f, n: in_graph(f, "\n" * n),
    "many parameters": lambda f, n: in_graph(
        f, lines(n, lambda i: f"  n{i} = parameter : (96, 64) = float32 #20ae3d9e3189d409")
    ),
    "keys of a netlist": lambda f, n: in_netlist(f, "zz:\n" + lines(n, lambda i: f"  a{i}: 1") + "\n"),
    "a list in a netlist": lambda f, n: in_netlist(f, f"zz: [{'1, ' * (n // 3)}1]\n"),
    "many queues": lambda f, n: {
        **f,
        NETLIST: f[NETLIST].replace(
            b"queues:\n", f"queues:\n{lines(n, lambda i: f'  q{i}: {{input: HOST, t: 1}}')}\n".encode()
        ),
    },
    "many overrides": lambda f, n: in_section(f, "overrides", {"kind": "op_size", "target": "a", "value": [1, 1]}, n),
    "many names": lambda f, n: in_section(f, "weighted", "first.weight", n),
    "many inputs": lambda f, n: in_section(f, "inputs", json.loads(f[DEVICE])["tbuda_lab"]["inputs"][0], n),
}


@pytest.mark.parametrize("what", MUCH)
def test_the_work_of_reading_grows_as_the_image_does(files: dict[str, bytes], tmp_path: Path, what: str) -> None:
    """Work is counted in calls, of Python's functions and of C's: four times the bytes are at most 4.4 times the calls.
    A zip of 46 kB unpacks to 4.6 MB at most."""

    def calls(size: int) -> int:
        path = write_tar(tmp_path / f"{size}.tti", MUCH[what](files, size))
        count = 0

        def counted(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(counted)
        try:
            with contextlib.suppress(TbudaError):
                load_image(path)
        finally:
            sys.setprofile(None)
        return count

    none, once, four = calls(0), calls(4_000), calls(16_000)
    assert four - none <= 4.4 * max(once - none, 0) + 1_000
