"""From the outside: a netlist file and an .npz go in, the command line does the rest, float64 NumPy judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tbuda_lab.cli import main
from tbuda_lab.core import netlist
from tbuda_lab.core.netlist.schema import Netlist

STEP = {"Float32": 1e-5, "Float16_b": 2**-7, "Float16": 2**-9, "Bfp8_b": 2**-5, "Bfp8": 2**-5}
Arrays = Mapping[str, np.ndarray]


def bf16(x: np.ndarray) -> np.ndarray:
    """What Float16_b keeps of float32: the upper half of the word."""
    return (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def noise(shape: tuple[int, ...], seed: int = 0, low: float = -1, high: float = 1) -> np.ndarray:
    """Values that Float16_b holds exactly."""
    return bf16(np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32))


def command(*arguments: Any) -> int:
    return int(main([str(a) for a in arguments]) or 0)


def run(folder: Path, n: Netlist, feeds: Arrays, *, mode: str = "golden", params: tuple[str, ...] = ()) -> Arrays:
    """check, roundtrip, show and run of the file; the arrays of out.npz."""
    file, again = folder / "n.yaml", folder / "again.yaml"
    netlist.dump(n, file)
    assert command("netlist", "check", file) == 0
    assert command("netlist", "roundtrip", file, "--out", again) == 0
    assert netlist.load(again) == netlist.load(file) and again.read_bytes() == file.read_bytes()
    assert command("netlist", "show", file) == 0
    np.savez(folder / "in.npz", **feeds)
    arguments = [x for p in params for x in ("--param", p)]
    assert (
        command(
            "netlist",
            "run",
            file,
            "--inputs",
            folder / "in.npz",
            "--outputs",
            folder / "out.npz",
            "--mode",
            mode,
            *arguments,
        )
        == 0
    )
    with np.load(folder / "out.npz", allow_pickle=False) as result:
        return {name: result[name] for name in result.files}


def pcc(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    if np.ptp(b) == 0:
        return float(np.allclose(a, b, rtol=0.05, atol=0.05))
    return float(np.corrcoef(a, b)[0, 1])


def agree(
    folder: Path,
    n: Netlist,
    feeds: Arrays,
    expected: Arrays,
    *,
    params: tuple[str, ...] = (),
    exact: bool = False,
    device: float = 0.99,
) -> None:
    """Golden: every element to one step of the format (integers and `exact`: bit for bit). Device: by correlation."""
    for mode in ("golden", "device"):
        got = run(folder, n, feeds, mode=mode, params=params)
        assert sorted(got) == sorted(expected)
        for name, value in expected.items():
            result, df = got[name], n.queues[name].df
            assert result.shape == value.shape, name
            whole = df.is_integer or df.is_raw
            assert result.dtype == (np.int32 if whole else np.float32)
            if exact or df.is_raw or (whole and mode == "golden"):
                np.testing.assert_array_equal(result, value, err_msg=f"{name} in {mode} mode")
            elif mode == "golden":
                step = STEP[df.name]
                scale = float(np.abs(value).max())
                slack = step * scale if df.is_bfp else 1e-5 * scale
                np.testing.assert_allclose(result, value, rtol=step, atol=slack + 1e-6, err_msg=f"{name}, golden")
            else:
                assert pcc(result, value) >= device, f"{name}: PCC {pcc(result, value)} in device mode"
