"""The same import and compile give the same bytes: twice in a process, in processes that hash strings differently."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, sys, torch
from tbuda_lab.core import netlist
from tbuda_lab.core.session import Session
from tests.e2e.kinds import KINDS
from tests.models import unet
from tests.session.models import encoder
def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()
torch.manual_seed(0)
for name, (module, inputs) in (("encoder", encoder(2)), ("unet", unet.make_model()),
                               ("depthwise", KINDS["squeeze_excite"]())):
    for _ in range(1 if name == "encoder" else int(sys.argv[1])):
        session = Session(module, inputs, device="wormhole_b0")
        traced = [(n.name, n.shape, n.sources, repr(n.op), n.origin) for n in session.trace()]
        result = session.compile()
        text = netlist.dumps(result.netlist) + repr(result.placement.report)
        print(name, digest(repr(traced)), digest(text))
"""


def digests(hash_seed: str, times: int) -> list[tuple[str, ...]]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TBUDA_CACHE": "off", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", SCRIPT, str(times)]
    answer = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return [tuple(line.split()) for line in answer.stdout.splitlines()]


@pytest.mark.e2e
@pytest.mark.slow
def test_byte_equal_graphs_and_netlists() -> None:
    once, twice = digests("1", 1), digests("271828", 2)
    assert [name for name, *_ in once] == ["encoder", "unet", "depthwise"]
    assert len({digest for _, *both in once for digest in both}) == 6
    assert all(len(digest) == len(hashlib.sha256().hexdigest()) for _, *both in once for digest in both)
    assert twice == [line for line in once for _ in range(1 if line[0] == "encoder" else 2)]
