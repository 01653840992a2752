"""Numbers that no machine holds: an error that names the element, at once and without the memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.netlist.schema import Netlist
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import command, noise

HUGE = 2**31 - 1


def entries(n: Netlist) -> str:
    n.queues["x"].entries = HUGE
    return ""


def ram_entries(n: Netlist) -> str:
    n.queues["o.out"].type = "ram"
    n.queues["o.out"].entries = HUGE
    return "o.out"


def blocking(n: Netlist) -> str:
    n.graphs["g"].ops["o"].blocking.mblock = n.queues["o.out"].blocking.mblock = (2**20, 2**20)
    return "op 'o'"


def slices(n: Netlist) -> str:
    n.graphs["g"].ops["o"].blocking.t = n.queues["o.out"].blocking.t = 2**27
    return "op 'o'"


def broadcast(n: Netlist) -> str:
    n.graphs["g"].ops["o"].inputs[0].tms = [b.tm("broadcast", r=2**20), b.tm("broadcast", c=2**20)]
    return "op 'o'"


def padding(n: Netlist) -> str:
    n.graphs["g"].ops["o"].inputs[0].pad = {"rt": 2**25, "ct": 2**10, "pad_value": 0}
    return "op 'o'"


def inputs(n: Netlist) -> str:
    n.graphs["g"].input_count = HUGE
    return ""


def grid(n: Netlist) -> str:
    n.graphs["g"].ops["o"].grid_size = (2**30, 2**30)
    return "op 'o'"


@pytest.mark.parametrize("change", [entries, ram_entries, blocking, slices, broadcast, padding, inputs, grid])
def test_huge_numbers(change: Callable[[Netlist], str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    n = b.build([b.op("o", "nop", ["x"], (1, 2, 2))], {"x": (1, 2, 2)})
    named = change(n)
    netlist.dump(n, tmp_path / "n.yaml")
    np.savez(tmp_path / "in.npz", x=noise((2, 1, 64, 64)))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for words in (["check"], ["check", "--profile", "strict"], ["show"], ["roundtrip", "--out", tmp_path / "r.yaml"]):
        assert command("netlist", words[0], tmp_path / "n.yaml", *words[1:]) in (0, 1)
    code = command(
        "netlist", "run", tmp_path / "n.yaml", "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz"
    )
    message = capfd.readouterr().err
    assert code == (0 if change is entries else 1) and "Traceback" not in message
    assert named in message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2e6, "kilobytes"
    assert time.process_time() - start < 20
