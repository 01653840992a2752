"""Files as people write them, and files that are no netlists: exit code 1, one line per error with its place, never a
traceback."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core import netlist
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import command, noise

LOOSE = """
# written by hand
devices:
  arch: [WORMHOLE_B0, grayskull]
queues:
  in0 : {type: queue, input: HOST, entries: 4, grid_size: [1, 1], t: 1, mblock: [2, 1], ublock: [1, 2], df: Float16,
         target_device: 0, loc: dram, dram: [[0, 0x30000000]]}
  w:     # a ram
    type: ram
    read_ports: [1]
    write_ports: [2]
    input: host
    entries: 1
    grid_size: [1, 1]
    t: 1
    mblock: [1, 1]
    ublock: [1, 2]
    ublock_order: r
    df: Float16
    target_device: 0
    loc: dram
    dram:
      - [1, 0x30000000]
  out: {type: queue, input: sum, entries: 4, grid_size: [1, 1], t: 1, mblock: [2, 1], ublock: [1, 2], df: Float16,
        target_device: 0, loc: host, host: [0x0]}
graphs:
  g:
    target_device: 0
    input_count: 2
    sum:
      type: add
      grid_loc: [0, 0]
      grid_size: [1, 1]
      inputs: [in0, w]
      in_df: [Float16, Float16]
      acc_df: Float16
      out_df: Float16
      intermed_df: Float16
      ublock_order: r
      buf_size_mb: 2
      math_fidelity: HiFi3
      untilize_output: true
      t: 1
      mblock: [2, 1]
      ublock: [1, 2]
      input_0_tms: None
      input_1_tms: [broadcast: {r: 1}]
      input_1_tms: [broadcast: {r: 2}]
programs:
  - main:
      - param: [$p_loops]
      - var: [$zero]
      - var: {$two: 2, $eight: 8}
      - staticvar: [$l, $g]
      - loop: $p_loops
      - execute: {graph_name: g, queue_settings: {
          in0: {prologue: false, epilogue: False, zero: false, rd_ptr_local: $l, rd_ptr_global: $g},
          w: {prologue: true, epilogue: false, zero: false, rd_ptr_global: $zero, wr_ptr_global: $zero}}}
      - varinst: [$l, incwrap, $two, $eight]
      - varinst: [$g, incwrap, $two, $eight]
      - endloop
test-config:
  comparison-config: {type: AllCloseHw, atol: 0.01}
notes: [anything, {at: all}]
"""


def test_loosely_written_text(tmp_path: Path) -> None:
    """Upper-case archs, list and dict declarations, `None` for no TMs, TM keys that add up, sections of others."""
    file = tmp_path / "n.yaml"
    file.write_text(LOOSE.replace("input: host\n", "input: HOST\n"))
    assert command("netlist", "check", file) == 0
    assert command("netlist", "roundtrip", file, "--out", tmp_path / "again.yaml") == 0
    first, second = netlist.load(file), netlist.load(tmp_path / "again.yaml")
    assert first == second and list(second.extra) == ["test-config", "notes"]
    x = noise((4, 1, 64, 64), 0).astype(np.float16).astype(np.float32)
    w = noise((1, 1, 32, 64), 1).astype(np.float16).astype(np.float32)
    np.savez(tmp_path / "in.npz", in0=x, w=w)
    for param, count in (("p_loops=2", 4), ("$p_loops=1", 2)):
        assert (
            command(
                "netlist",
                "run",
                file,
                "--inputs",
                tmp_path / "in.npz",
                "--outputs",
                tmp_path / "out.npz",
                "--param",
                param,
            )
            == 0
        )
        with np.load(tmp_path / "out.npz") as result:
            assert result["out"].shape == (count, 1, 64, 64)
            np.testing.assert_allclose(result["out"], x[:count] + np.tile(w, (1, 1, 2, 1)), rtol=2**-10, atol=1e-4)


def test_a_retired_encoding_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A netlist from before `sparse_tile_ptr_bits` is valid, but what its words mean is not written anywhere."""
    n = b.identity()
    attributes = next(op for _, op in n.ops()).attributes
    for name in ("sparse_tile_ptr_bits", "sparse_ublock_idx_bits"):
        attributes.pop(name, None)
    attributes.update(indices_len=8, num_columns=1, starting_row=0)
    netlist.dump(n, tmp_path / "n.yaml")
    feeds = {}
    for q in n.queues.values():
        z, r, c = q.blocking.tiles(q.grid_size)
        feeds[q.name] = np.zeros((1, z, 32 * r, 32 * c), np.int32 if q.df.is_raw else np.float32)
    np.savez(tmp_path / "in.npz", **feeds)
    assert command("netlist", "check", tmp_path / "n.yaml") == 0
    assert (
        command(
            "netlist", "run", tmp_path / "n.yaml", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"
        )
        == 1
    )
    message = capfd.readouterr().err
    assert "old format" in message and "Traceback" not in message


VALID = netlist.dumps(b.matmul_bias())
ANCHORS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{c}: &{c} [{', '.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN = {
    "empty": "",
    "binary": bytes(range(256)),
    "zeros": b"\0" * 4096,
    "tabs": VALID.replace("  ", "\t"),
    "scalar": "42",
    "list": "- a\n- b\n",
    "null": "~",
    "deep": "[" * 100_000,
    "deep map": "{a: " * 20_000,
    "circle": "devices: &d {arch: *d}",
    "anchors": ANCHORS + VALID,
    "tag": "devices: !!python/object/apply:os.system [echo]",
    "merge": "x: &x {arch: grayskull}\ndevices: {<<: *x}",
    "huge": VALID.replace("entries: 2", "entries: 1" + "0" * 5000),
    "hex": VALID.replace("t: 1", "t: 0x" + "f" * 400),
    "float": VALID.replace("t: 1", "t: 1.5"),
    "nan": VALID.replace("t: 1", "t: .nan"),
    "negative": VALID.replace("t: 1", "t: -3"),
    "date": VALID.replace("t: 1", "t: 2020-01-01"),
    "utf16": VALID.encode("utf-16"),
    "bom": "\ufeff" + VALID.replace("Float16_b", "Flo"),
    "surrogate": VALID.replace("Float16_b", "\ud800").encode("utf-8", "surrogatepass"),
    "duplicate": VALID.replace("  x:", "  w:"),
    "no arch": VALID.replace("arch", "arc"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "n.yaml"
    data = BROKEN[name]
    file.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"))
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 1, 64, 128), np.float32))
    codes = [
        command("netlist", "check", file),
        command("netlist", "run", file, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"),
    ]
    assert codes == [1, 1]
    assert command("netlist", "roundtrip", file, "--out", tmp_path / "again.yaml") in (0, 1)
    assert command("netlist", "show", file) in (0, 1)
    message = capfd.readouterr()
    assert "Traceback" not in message.out + message.err
    assert message.err.strip()


SCALARS = (
    "",
    "~",
    "[]",
    "{}",
    "[[]]",
    "{a: 1}",
    "-1",
    "0",
    "99999999999999999999",
    "1e400",
    ".inf",
    "true",
    "$x",
    "None",
    "'",
    "[1",
    "!!binary aa",
    "*z",
    "\x07",
    "[0, 0]",
    "[-1, -1]",
    "[1, 2, 3]",
)


@pytest.mark.parametrize("seed", range(60))
def test_wrong_values_anywhere(seed: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One value of a valid file replaced, a piece cut out, or its end cut off."""
    chance = random.Random(seed)
    source = netlist.dumps(
        chance.choice(
            [
                b.matmul_bias,
                b.gradient,
                b.fused_chain,
                b.splice,
                b.two_chips,
                b.depthwise,
                b.reduce,
                b.identity,
                b.untilized,
            ]
        )()
    )
    text = source
    for _ in range(chance.choice([1, 1, 2])):
        match chance.randrange(4):
            case 0:
                at = chance.randrange(len(text))
                text = text[:at]
            case 1:
                at = chance.randrange(len(text) - 1)
                text = text[:at] + text[at + chance.randrange(1, 30) :]
            case _:
                colons = [k for k in range(len(text) - 2) if text[k : k + 2] == ": "] or [0]
                at = chance.choice(colons) + 2
                end = min((k for k in (text.find(c, at) for c in ",}\n") if k >= 0), default=len(text))
                text = text[:at] + chance.choice(SCALARS) + text[end:]
    file = tmp_path / "n.yaml"
    file.write_text(text)
    feeds = {}
    for q in netlist.loads(source).queues.values():
        if q.input == "HOST":
            z, r, c = q.blocking.tiles(q.grid_size)
            feeds[q.name] = np.zeros((1, z, 32 * r, 32 * c), np.int32 if q.df.is_raw else np.float32)
    np.savez(tmp_path / "in.npz", **feeds)
    check = command("netlist", "check", file)
    message = capfd.readouterr()
    if check:
        assert f"{file}:" in message.err
    code = command("netlist", "run", file, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    command("netlist", "roundtrip", file, "--out", tmp_path / "again.yaml")
    command("netlist", "show", file)
    assert code in (0, 1)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("case", ["missing", "rank", "shape", "type", "none", "object", "too many", "truncated"])
def test_wrong_inputs_list_what_is_expected(case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    n = b.build([b.op("o", "add", ["x", "w"])], {"x": (1, 2, 2)}, [b.queue("w", (1, 2, 2), kind="ram", entries=1)])
    netlist.dump(n, tmp_path / "n.yaml")
    good = {"x": noise((1, 1, 64, 64)), "w": noise((1, 1, 64, 64))}
    archive = tmp_path / "in.npz"
    bad = {
        "missing": {"x": good["x"]},
        "rank": {**good, "w": good["w"][0]},
        "shape": {**good, "w": good["w"][..., :32]},
        "type": {**good, "w": good["w"].astype("U9")},
        "too many": {**good, "w": np.repeat(good["w"], 2, 0)},
        "object": {**good, "w": np.array([{}] * 4096, object).reshape(1, 1, 64, 64)},
    }.get(case, good)
    np.savez(archive, **bad)
    if case == "none":
        archive.unlink()
    if case == "truncated":
        archive.write_bytes(archive.read_bytes()[:-2000])
    assert command("netlist", "run", tmp_path / "n.yaml", "--inputs", archive, "--outputs", tmp_path / "out.npz") == 1
    message = capfd.readouterr().err
    assert "Traceback" not in message and not (tmp_path / "out.npz").exists()
    if case in ("missing", "rank", "shape", "too many"):
        assert ("w" in message and "ram of Float16_b" in message) or "the ram has 1" in message
    if case in ("missing", "rank", "shape"):
        assert "(n, 1, 64, 64) float32" in message


def test_as_a_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A good run as a process of its own; refusals within this one, which has started already."""
    netlist.dump(b.unary(), tmp_path / "n.yaml")
    np.savez(tmp_path / "in.npz", x=noise((1, 1, 64, 64)))
    base = [sys.executable, "-m", "tbuda_lab", "netlist"]
    done = subprocess.run(
        [*base, "run", tmp_path / "n.yaml", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and not done.stderr
    (tmp_path / "n.yaml").write_text(netlist.dumps(b.unary()).replace("exp", "exq"))
    assert main(["netlist", "check", str(tmp_path / "n.yaml")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith(str(tmp_path / "n.yaml")) and "error" in line for line in lines)
    for bad in (["--param", "x"], ["--mode", "gold"], ["--arch", "nope"]):
        try:
            code = main(
                [
                    "netlist",
                    "run",
                    str(tmp_path / "n.yaml"),
                    "--inputs",
                    str(tmp_path / "in.npz"),
                    "--outputs",
                    str(tmp_path / "out.npz"),
                    *bad,
                ]
            )
        except SystemExit as end:
            code = end.code
        assert code not in (0, None) and "Traceback" not in capsys.readouterr().err
