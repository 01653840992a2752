"""Files from anybody: what is too deep, too long, too large or of another kind is an error of ours, with its place."""

from __future__ import annotations

import errno
import io
import os
import random
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tbuda_lab.cli.output import output_folder
from tbuda_lab.core.cost.tables import load_fits
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, OutputError, TbudaError
from tbuda_lab.core.files import (
    Budget,
    Fault,
    Limits,
    atomic_text,
    bounded_text,
    compose_yaml,
    parse_json,
    parse_npy,
    parse_yaml,
    path_inside,
    read_npz,
    yaml_fault,
    yaml_map,
)
from tbuda_lab.core.frontend import from_any
from tbuda_lab.core.netlist import load, loads
from tbuda_lab.core.netlist.image import read_image
from tbuda_lab.core.session.journal import read_journal, read_overrides
from tbuda_lab.core.tti import load_image
from tbuda_lab.dialects.program import read_programs
from tbuda_lab.pybuda.specs import masks_of

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 8)
)
CHAIN = "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 400))
HOSTILE = {
    "60,000 levels": ("x: " + "[" * 60_000, "nested more than 100 levels deep"),
    "maps within maps": ("{a: " * 60_000, "nested more than 100 levels deep"),
    "aliases that multiply": (LAUGHS, "aliases"),
    "a chain of aliases": (CHAIN, "by aliases"),
    "an alias of itself": ("a: &a [*a]", "contains itself"),
    "no YAML": ("a: [1, 2", "not YAML"),
    "a tag of Python": ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    "an integer that is none": ("a: !!int x", "not YAML"),
    "a truth that is none": ("a: !!bool x", "not YAML"),
    "a list as a key": ("? [a, b]\n: 1", "not YAML"),
    "a number of 10,000 digits": ("a: " + "9" * 10_000, "not YAML"),
    "a number to the base 60": ("a: " + "1" + ":1" * 5_000, "not YAML"),
    "half a character": ("a: \ud800", "not YAML"),
    "a name that occurs twice": ("a: 1\nb: {c: 1, d: 2, c: 3}", "line 2, column 17.*'c' occurs twice"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_yaml_is_refused_with_its_place(what: str, tmp_path: Path) -> None:
    text, words = HOSTILE[what]
    with pytest.raises(InputError, match=words):
        parse_yaml(text, "some.yaml")
    path = tmp_path / "some.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    for read in (load_device, load_fits, masks_of, lambda p: load_device("n150", cluster=p)):
        with pytest.raises(InputError):
            read(path)
    if "by aliases" in words or "levels" in words:
        netlist = loads(text, lenient=True)
        assert any(words in p.message for p in netlist.problems)


def test_a_text_holds_as_many_values_as_its_limit() -> None:
    assert parse_yaml("[1, 2, 3]", "some.yaml", Limits(nodes=4)) == [1, 2, 3]
    with pytest.raises(InputError, match=r"line 1, column 9.*more than 3 values"):
        parse_yaml("[1, 2, 3]", "some.yaml", Limits(nodes=3))


def test_places_are_counted_from_one() -> None:
    fault = compose_yaml("a: 1\nb: [1, {c: *d}]\n")
    assert isinstance(fault, Fault) and (fault.line, fault.column) == (2, 12)
    fault = yaml_fault("a: 1\n" + "b: " + "[" * 9, Limits(levels=4))
    assert fault is not None and (fault.line, fault.column) == (2, 7)


def test_a_yaml_list_has_a_limit_and_a_map_has_none() -> None:
    limits = Limits(items=4)
    assert yaml_fault("a: [1, [2], {b: 3}, 4]\n", limits) is None
    assert yaml_fault("".join(f"k{i}: [1, 2]\n" for i in range(9)), limits) is None
    fault = yaml_fault("a: 1\nb: [1, 2, [3, 3], 4, 5]\n", limits)
    assert fault is not None and (fault.message, fault.line) == ("a list of more than 4 items", 2)


def test_plain_values_are_what_yaml_says() -> None:
    text = "a: 1\nb: [0x10, -2.5, .inf, true, null, 2020-01-01, 1e3, '7', 017, 1_000]\nc: {1: 2}\n"
    text += "d: &d [1]\ne: [*d, *d]"
    assert parse_yaml(text, "x") == {
        "a": 1,
        "b": [16, -2.5, float("inf"), True, None, "2020-01-01", "1e3", "7", 15, 1000],
        "c": {1: 2},
        "d": [1],
        "e": [[1], [1]],
    }
    assert parse_yaml("2020-99-99", "x") == "2020-99-99"


def test_the_survey_counts_what_composing_would_make() -> None:
    """The oracle: nodes counted in the composed graph, aliases followed."""

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        return 1 + sum(
            map(size, (n for pair in node.value for n in pair) if isinstance(node, yaml.MappingNode) else node.value)
        )

    rng = random.Random(5)
    for _ in range(50):
        names: list[str] = []
        lines = []
        for i in range(rng.randrange(1, 12)):
            items = [rng.choice([f"*{n}" for n in names] or ["x"]) for _ in range(rng.randrange(1, 4))]
            lines.append(f"k{i}: &n{i} [{', '.join(items)}, {{y: z}}]")
            names.append(f"n{i}")
        text = "\n".join(lines)
        plain = len([e for e in yaml.parse(text) if isinstance(e, yaml.ScalarEvent | yaml.CollectionStartEvent)])
        added = size(yaml.compose(text)) - plain
        assert yaml_fault(text, Limits(alias_nodes=added - 4 * len(text))) is None
        if added:
            assert yaml_fault(text, Limits(alias_nodes=added - 1 - 4 * len(text))) is not None


def test_files_are_read_as_far_as_is_plausible(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(InputError, match="more than 4 MiB"):
        yaml_map(path, "device")
    assert bounded_text(Path("/proc/self/cmdline"), 1 << 20, "is not text")  # a file that says that it is empty
    for wrong in (tmp_path, tmp_path / "none", Path("a\0b")):
        with pytest.raises(InputError, match="cannot be read"):
            bounded_text(wrong, 10, "is not text")


def test_a_link_to_itself_is_no_way_out(tmp_path: Path) -> None:
    """Its error is ours, whatever uses the path."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(InputError, match="cannot be read"):
        bounded_text(path_inside(tmp_path, "loop"), 10, "is not text")
    with pytest.raises(InputError, match="leaves the folder"):
        path_inside(tmp_path, "out/passwd")
    with pytest.raises(InputError, match="half a character"):
        path_inside(tmp_path, "\ud800")


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "9" * 5000, '{"a": ' * 5000, "\ud800", "", '[{"a": 1, "b": 2, "a": 1}]']
)
def test_hostile_json_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not JSON"):
        parse_json(text, "some.json")


def npy(header: str, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode("latin-1") + data


HEADERS = {
    "an empty type": ("{'descr': (), 'fortran_order': False, 'shape': (1,)}", b"12345678"),
    "not closed": ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,", b"1234"),
    "a huge shape": ("{'descr': '<f4', 'fortran_order': False, 'shape': (1180591620717411303424,)}", b"1234"),
    "a shape of 13 GiB": ("{'descr': '<f4', 'fortran_order': False, 'shape': (3500000000,)}", b"1234"),
    "a negative shape": ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", b"1234"),
    "nothing times much": ("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 9)}", b""),
    "objects": ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"\x80\x04N."),
    "records": ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", b"1234"),
    "a call": ("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (1,)}", b"1234"),
    "many brackets": ("(" * 9000, b""),
    "a type that is none": ("{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}", b"1234"),
    "no shape": ("{'descr': '<f4', 'fortran_order': False}", b"1234"),
    "a key twice": ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", b"1234"),
    "ninety dimensions": ("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 90 + ")}", b"1234"),
}


@pytest.mark.parametrize("what", HEADERS)
def test_npy_headers_are_matched_not_evaluated(what: str, tmp_path: Path) -> None:
    data = npy(*HEADERS[what])
    with pytest.raises(InputError, match=r"some\.npy"):
        parse_npy(data, "some.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", data)
    with pytest.raises(InputError, match=r"x\.npz"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "|b1", "<i8", "|u1", "<f2", "<c8"])
def test_plain_arrays_are_read_as_numpy_reads_them(dtype: str, order: str, tmp_path: Path) -> None:
    arrays = {
        str(n): np.asarray(np.arange(n).reshape(shape), dtype, order=order)  # type: ignore[call-overload]
        for n, shape in ((24, (2, 3, 4)), (0, (0, 5)), (1, ()), (7, (7,)))
    }
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    for file in ("plain.npz", "packed.npz"):
        result = read_npz(tmp_path / file)
        assert list(result) == list(arrays)
        for name, array in arrays.items():
            assert result[name].dtype == array.dtype
            np.testing.assert_array_equal(result[name], array)
    stream = io.BytesIO()
    np.save(stream, arrays["24"])
    np.testing.assert_array_equal(parse_npy(stream.getvalue(), "x"), arrays["24"])


def test_a_zip_of_zeros_is_refused_and_what_nobody_asks_for_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, zeros=np.zeros((5 << 20,), np.float32), x=np.ones(3))
    with pytest.raises(InputError, match="without compression"):
        read_npz(path)
    assert list(read_npz(path, {"x"}.__contains__)) == ["x"]


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(999.0), b=np.ones(3))
    good = (tmp_path / "x.npz").read_bytes()
    rng = random.Random(1)
    for _ in range(200):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (tmp_path / "bad.npz").write_bytes(data[: rng.randrange(len(data) // 2, len(data) + 1)])
        try:
            read_npz(tmp_path / "bad.npz")
        except TbudaError as error:
            assert "bad.npz" in str(error)


def test_a_budget_is_for_all_together() -> None:
    budget = Budget("x.graph", 1000)
    budget.take_array((10, 10), 4, "a")
    with pytest.raises(InputError, match=r"x\.graph: b of shape 20x10 would take 800 bytes; 600 bytes of 1000 bytes"):
        budget.take_array((20, 10), 4, "b")
    with pytest.raises(InputError, match="sizes below 0"):
        budget.take_array((-1, -1), 4, "c")
    with pytest.raises(InputError, match="2\\^"):
        budget.take_array((1 << 90,) * 3, 4, "d")
    budget.take(600, "the rest")


def test_a_full_disk_is_a_typed_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"), atomic_text(tmp_path / "x.txt") as stream:
        stream.write("x")
    assert list(tmp_path.iterdir()) == []


OTHERS = {
    "a pipe": lambda path: os.mkfifo(path),
    "a link to a pipe": lambda path: _linked_pipe(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": lambda path: _socket(path),
}


def _linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("there"))
    path.symlink_to("there")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


READERS: dict[str, Callable[[Path], Any]] = {
    "device": load_device,
    "cost table": load_fits,
    "masks": masks_of,
    "arrays": read_npz,
    "cluster": lambda p: load_device("n150", cluster=p),
    "text": lambda p: bounded_text(p, 99, "is none"),
    "netlist": load,
    "image": load_image,
    "archive": read_image,
    "session": read_journal,
    "overrides": read_overrides,
    "PEF": read_programs,
    "ONNX": lambda p: from_any(str(p), (np.ones(1),), name="x"),
}
ENDINGS = {"arrays": ".npz", "image": ".tti", "archive": ".tti", "PEF": ".pef", "ONNX": ".onnx"}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("what", READERS)
def test_what_is_no_file_is_refused_and_not_opened(what: str, other: str, tmp_path: Path) -> None:
    """A pipe would be waited for and a device read without end."""
    path = tmp_path / f"it{ENDINGS.get(what, '.yaml')}"
    OTHERS[other](path)
    with pytest.raises(TbudaError):
        READERS[what](path)


def test_a_pipe_that_nobody_reads_is_no_place_for_a_result(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="cannot write"), atomic_text(tmp_path / "pipe") as stream:
        stream.write("x")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with atomic_text(tmp_path / "pipe") as stream:
        stream.write("x")
    assert os.read(reader, 9) == b"x"
    os.close(reader)


WRITERS = {
    "a file": "from tbuda_lab.core.files import atomic_text\nwith atomic_text(place / 'x.txt') as out:\n  out.fileno()",
    "a folder": "from tbuda_lab.cli.output import output_folder\nwith output_folder(place / 'x') as out:\n  out.mkdir",
    "an archive": "from tbuda_lab.core.files import atomic_file\n"
    "with atomic_file(place / 'x.npz') as out:\n  out.write_bytes(b'PK')",
}


def _writing(what: str, place: Path) -> subprocess.Popen[str]:
    """A process in the middle of writing."""
    code = f"import pathlib, time\nplace = pathlib.Path({str(place)!r})\n{WRITERS[what]}\n  print(flush=True)"
    code += "; time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "\n"
    return process


@pytest.mark.parametrize("what", WRITERS)
def test_the_next_one_removes_what_a_killed_one_left(what: str, tmp_path: Path) -> None:
    """What is still being written stays, and so does what only looks alike."""
    alike = [tmp_path / ".x.12-3.txt", tmp_path / ".tbuda-notes", tmp_path / "tbuda-1-1.x"]
    for path in alike:
        path.write_text("mine")
    killed, alive = _writing(what, tmp_path), _writing(what, tmp_path)
    killed.kill()
    killed.wait()
    try:
        assert len(set(tmp_path.iterdir()) - set(alike)) == 2
        with atomic_text(tmp_path / "other.txt") as stream:
            stream.write("x")
        left = set(tmp_path.iterdir()) - {*alike, tmp_path / "other.txt"}
        assert [path.name.split("-")[1] for path in left] == [str(alive.pid)]
    finally:
        alive.kill()
        alive.wait()
    with output_folder(tmp_path / "folder"):
        pass
    assert set(tmp_path.iterdir()) == {*alike, tmp_path / "other.txt", tmp_path / "folder"}
