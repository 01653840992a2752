"""What is attacked: for every kind of file how a damaged one is made of a seed, and what reads it.

`Subject.read` does with a file what the program does with one from a user, further than reading where that is quick.
It may raise `TbudaError` and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.cost.tables import load_fits
from tbuda_lab.core.device import load_device
from tbuda_lab.core.diff.files import file_sides
from tbuda_lab.core.netlist.check import ARCHS
from tbuda_lab.core.netlist.image import image_facts, read_image
from tbuda_lab.core.session.journal import read_journal, read_overrides
from tbuda_lab.core.tti import load_image
from tbuda_lab.pybuda.specs import masks_of
from tbuda_lab.sim.files import run_file
from tbuda_lab.tools.measurements import read_sheet
from tbuda_lab.widgets.handlers.lab.documents import journal_frame
from tests.device.test_load import CLUSTER, DESCRIPTOR
from tests.fuzz import compiled
from tests.fuzz.mutations import NoAliases, mutated, mutated_bytes, mutated_text
from tests.netlist import builders

Make = Callable[[random.Random, Path, int], Path]
"""(where chance comes from, folder, changes) -> the file; without changes it is a good one."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of file. count: how many a long run makes."""

    name: str
    count: int
    make: Make
    read: Callable[[Path], object]


def write(path: Path, data: str | bytes) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    return path


# -- netlists ----------------------------------------------------------------------------------------------------------
BASES = (
    builders.unary,
    builders.binary,
    builders.matmul_bias,
    builders.identity,
    builders.reduce,
    builders.gradient,
    builders.fused_chain,
    builders.splice,
    builders.two_chips,
)


@functools.cache
def netlist_texts() -> tuple[str, ...]:
    return tuple(builders.text(make()) for make in BASES)


def with_aliases(text: str, rng: random.Random) -> str:
    """A text with anchors put before values and aliases in place of others."""
    starts = [i for i, c in enumerate(text) if c in "{[" and text[max(0, i - 2) : i] == ": "]
    for at in sorted(rng.sample(starts, min(len(starts), rng.randrange(1, 8))), reverse=True):
        text = text[:at] + f"&n{rng.randrange(4)} " + text[at:]
    for _ in range(rng.randrange(1, 8)):
        at = text.find(": ", rng.randrange(len(text)))
        if at > 0:
            text = text[: at + 2] + f"*n{rng.randrange(4)} " + text[at + 2 + rng.randrange(8) :]
    levels, width = rng.choice(((3, 3), (40, 2), (90, 1), (8, 9), (300, 1)))
    chain = "z0: &z0 [x]\n" + "".join(f"z{i}: &z{i} [{', '.join([f'*z{i - 1}'] * width)}]\n" for i in range(1, levels))
    return text + rng.choice(("", "\n" + chain))


def yaml_file(texts: Callable[[], tuple[str, ...]], suffix: str = ".yaml") -> Make:
    """A changed structure, a changed text, or one with aliases."""

    def make(rng: random.Random, folder: Path, changes: int) -> Path:
        text, kind = rng.choice(texts()), rng.randrange(8)
        if not changes:
            return write(folder / f"file{suffix}", text)
        if kind <= 3:
            data = mutated(yaml.load(text, yaml.CSafeLoader), rng, changes)
            text = yaml.dump(data, Dumper=NoAliases, sort_keys=False, allow_unicode=True)
        if kind in (4, 5):
            text = with_aliases(text, rng)
        if kind >= 5:
            text = mutated_text(text, rng, changes)
        return write(folder / f"file{suffix}", text)

    return make


def read_netlist(path: Path) -> object:
    result = netlists.load(path, lenient=True)
    for arch in (None, *ARCHS, "toaster"):
        netlists.check(result, arch, "strict")
    netlists.show(result)
    return netlists.dumps(result) if not result.problems else None


# -- devices and other YAML ----------------------------------------------------------------------------------------
FITS = """\
arch: grayskull
fits:
  - {kind: exp, format: fp16, runs: 12, median_error: 0.01, mean_error: 0.02, pieces: [{tiles: 12.5, const: 40}]}
  - {kind: matmul, format: bfp8, variant: l1_acc, runs: 7, median_error: 0.1, mean_error: 0.2, pieces: [{a: 1}, {b: 2}]}
"""
PARAMS = "system-device0-harvesting_mask: 2050\nsystem-device1-harvesting_mask: 0x12\nother: [1, {a: b}]\n"


def read_device(path: Path) -> object:
    return load_device(path), load_device(path, chips=2)


def read_cluster(path: Path) -> object:
    spec = load_device("n150", cluster=path)
    return [spec.hops(spec.chips[0], chip) for chip in spec.chips[:8]]


# -- sessions and other JSON ---------------------------------------------------------------------------------------
JOURNAL: dict[str, Any] = {
    "format": "tbuda-session 1",
    "device": "n150",
    "harvested_rows": [3],
    "name": "x",
    "options": {"default_df_override": "Float32", "microbatch": 2, "op_names_dont_fuse": ["a"]},
    "overrides": [{"kind": "op_size", "target": "a", "value": [1, 2]}],
    "commands": [
        {"do": "resize", "op": "0.matmul", "size": [2, 2]},
        {"do": "place", "op": "a", "start": [1, 2], "chip": 0},
        {"do": "break", "op": "b"},
        {"do": "undo"},
        {"do": "redo"},
        {"do": "checkpoint", "name": "one"},
        {"do": "override", "kind": "data_format", "target": "0.matmul", "value": "Float32"},
        {"do": "override", "kind": "input_buffer_multiplier", "target": ["a", "b"], "value": {"0": 2}, "each": True},
        {"do": "override", "kind": "insert_nop", "target": "a", "value": True},
        {"do": "override", "kind": "queue_channel", "target": "q", "value": {"chip": 0, "channel": 1}},
        {"do": "begin", "label": "two"},
        {"do": "stream", "op": "a", "direction": "r", "shape": [2, 1]},
        {"do": "u_kt", "op": "a", "u_kt": 2},
        {"do": "end"},
        {"do": "insert-nop", "op": "a", "to": ["b"], "count": 2},
        {"do": "insert-queue", "op": "a", "to": ["b"], "port": 0},
        {"do": "constrain", "ops": ["a", "b"]},
        {"do": "format", "op": "a", "data_format": "Bfp8_b", "fidelity": "LoFi"},
        {"do": "reorder", "at": 0, "to": 1},
        {"do": "options", "set": {"default_math_fidelity": "LoFi"}},
        {"do": "clear", "op": "a", "kinds": ["op_size"]},
        {"do": "disable", "op": "b", "kinds": []},
        {"do": "queue", "queue": "q", "channel": 1},
        {"do": "optimise"},
    ],
}
OVERRIDES = {
    "format": "tbuda-overrides 1",
    "overrides": [{k: v for k, v in c.items() if k != "do"} for c in JOURNAL["commands"] if c["do"] == "override"],
}
RECORD = {
    "request": {"target": "m.py:make", "device": "n150", "op_size": ["a=1x2"], "seed": 3, "harvested_rows": [1]},
    "netlist_sha256": "00",
}


def json_file(data: Any, suffix: str) -> Make:
    def make(rng: random.Random, folder: Path, changes: int) -> Path:
        kind = rng.randrange(4)
        text = json.dumps(mutated(data, rng, changes) if kind <= 2 else data, indent=rng.choice((None, 1)))
        return write(folder / f"file{suffix}", mutated_text(text, rng, changes) if kind == 3 else text)

    return make


def read_session(path: Path) -> object:
    return journal_frame(read_journal(path), path)


def read_record(path: Path) -> object:
    from tbuda_lab.cli.request import read_record as read

    path.rename(path.parent / "compile.json")
    return read(path.parent)


# -- arrays --------------------------------------------------------------------------------------------------------
@functools.cache
def small_netlist() -> str:
    from tests.sim.test_files import example

    return netlists.dumps(example())


def npz_file(rng: random.Random, folder: Path, changes: int) -> Path:
    write(folder / "net.yaml", small_netlist())
    arrays = {"x.in": np.ones((2, 1, 32, 32), np.float32), "w": np.zeros((1, 1, 32, 32), np.float32)}
    dtype = rng.choice(("<f4", "<f4", ">f4", "<f2", "|b1", "<i8", "<c8", "<U3", "|O", "<M8[s]", "i4,i4"))
    shape = rng.choice(((2, 1, 32, 32), (0, 1, 32, 32), (), (1,), (2, 32, 32), (2**10, 1, 32, 32)))
    if changes and rng.randrange(3) == 0:
        arrays[rng.choice(("x.in", "w", "other"))] = np.zeros(shape, dtype)
    stream, kind = io.BytesIO(), rng.randrange(4)
    (np.savez if kind % 2 else np.savez_compressed)(stream, **arrays)  # type: ignore[operator]
    if kind <= 1 or not changes:
        return write(folder / "file.npz", mutated_bytes(stream.getvalue(), rng, changes))
    with zipfile.ZipFile(stream) as archive, zipfile.ZipFile(folder / "file.npz", "w") as out:
        for name in archive.namelist():
            data = archive.read(name)
            head = mutated_text(data[10:128].decode("latin-1"), rng, rng.randrange(changes + 1))
            raw = head.encode("latin-1", "replace")
            size = len(raw) if rng.randrange(5) else rng.randrange(1 << 16)
            out.writestr(name, data[:8] + min(size, 65535).to_bytes(2, "little") + raw + data[128:])
    return folder / "file.npz"


def read_npz(path: Path) -> object:
    return run_file(path.parent / "net.yaml", path, path.parent / "out.npz", max_steps=1000)


# -- sheets --------------------------------------------------------------------------------------------------------
SHEET = """\
op_type,input0_df,output_t,output_mb_r,output_mb_c,output_ub_r,output_ub_c,ublock_kt,mblock_k,math_fidelity,runtime
matmul,Float16_b,1,2,2,1,4,4,8,HiFi3,1200
exp,Bfp8_b,2,4,2,1,4,1,1,LoFi,9000
add,Float32,1,1,1,1,1,1,1,HiFi4,
"""
CYCLES = "op,graph,kernel_cycles,limiter_cycles,limiter\nop0,g,100,120,kernel\nop1,g,3,9,output noc\n"


def csv_file(rng: random.Random, folder: Path, changes: int) -> Path:
    text = rng.choice((SHEET, SHEET, CYCLES))
    name = "net.cycles.csv" if text is CYCLES else rng.choice(("runs.csv", "exp-approx.csv", "matmul-l1-acc.csv"))
    write(folder / "net.yaml", rng.choice(netlist_texts()))
    if rng.randrange(2):
        rows = [line.split(",") for line in text.splitlines()]
        rows = [
            [str(cell) for cell in row] if isinstance(row, list) else [str(row)] for row in mutated(rows, rng, changes)
        ]
        text = "\n".join(",".join(row) for row in rows)
    else:
        text = mutated_text(text, rng, changes)
    return write(folder / name, text)


def read_csv(path: Path) -> object:
    if path.name == "net.cycles.csv":
        return file_sides(path.parent / "net.yaml", path.parent / "net.yaml")
    with contextlib.suppress(Exception):  # ours or not: the second reading tells
        read_sheet(path, strict=True)
    return read_sheet(path, strict=False).estimate("grayskull")


# -- images --------------------------------------------------------------------------------------------------------
@functools.cache
def images() -> tuple[dict[str, bytes], ...]:
    """The files of good images, of both kinds of tensors."""
    import tempfile

    from tests.tti.models import files_of, session

    result = []
    with tempfile.TemporaryDirectory() as folder:
        for model, dump in (("pair", "default"), ("tokens", "backend"), ("pair", "backend")):
            result.append(files_of(session(model).export_tti(Path(folder) / "x.tti", dump_format=dump)))
    return tuple(result)


def image_file(rng: random.Random, folder: Path, changes: int) -> Path:
    files = dict(rng.choice(images()))
    kind = rng.randrange(6) if changes else 6
    names = {suffix: [n for n in files if n.endswith(suffix)] for suffix in (".json", ".graph", ".npy", "netlist.yaml")}
    if kind <= 1:
        name = next(n for n in names[".json"] if n.endswith("device.json"))
        files[name] = json.dumps(mutated(json.loads(files[name]), rng, changes)).encode()
    elif kind <= 3:
        name = rng.choice(names[".graph"] + [n for n in files if n.endswith((".yaml", ".csv"))])
        text = mutated_text(files[name].decode(), rng, changes)
        files[name] = text.encode("utf-8", "surrogatepass")
    elif kind == 4:
        name = rng.choice(sorted(files))
        files[name] = mutated_bytes(files[name], rng, changes)
    stream = io.BytesIO()
    if rng.randrange(4) == 0:
        with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=stream, mode="w:", format=tarfile.GNU_FORMAT) as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    whole = stream.getvalue()
    return write(folder / "file.tti", mutated_bytes(whole, rng, changes) if kind == 5 else whole)


def read_tti(path: Path) -> object:
    facts = image_facts(read_image(path))
    return facts, load_image(path)


SUBJECTS = {
    s.name: s
    for s in (
        Subject("netlist", 10_000, yaml_file(netlist_texts), read_netlist),
        Subject("image", 3_000, image_file, read_tti),
        Subject("device", 1_000, yaml_file(lambda: (DESCRIPTOR,)), read_device),
        Subject(
            "cluster",
            1_000,
            yaml_file(lambda: (CLUSTER, CLUSTER + "harvesting: {0: {harvest_mask: 2}}\n")),
            read_cluster,
        ),
        Subject("session", 1_000, json_file(JOURNAL, ".buda.json"), read_session),
        Subject("npz", 1_000, npz_file, read_npz),
        Subject("csv", 1_000, csv_file, read_csv),
        Subject("coefficients", 500, yaml_file(lambda: (FITS,)), load_fits),
        Subject("runtime parameters", 500, yaml_file(lambda: (PARAMS,)), masks_of),
        Subject("overrides", 500, json_file(OVERRIDES, ".json"), read_overrides),
        Subject("record", 500, json_file(RECORD, ".json"), read_record),
        Subject("pef", 1_000, compiled.pef_file, compiled.read_program),
        Subject("placement", 500, compiled.placement_file, compiled.read_placement),
        Subject("findings", 500, compiled.findings_file, compiled.read_placement),
        Subject("onnx", 1_000, compiled.onnx_file, compiled.read_model),
        Subject("tflite", 500, compiled.tflite_file, compiled.read_model),
    )
}
