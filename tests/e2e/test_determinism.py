"""The same import and compile give the same bytes: twice in a process, in processes that hash strings differently."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tbuda_lab.core import netlist
from tbuda_lab.core.session import Session
from tests.e2e.kinds import KINDS
from tests.session.models import encoder

Digests = list[tuple[str, str, str]]
"""Of each compile: the model's name, and digests of its graph and of its netlist with the placement's report."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def compiled(times: int) -> Digests:
    """times: of the last model, the smallest."""
    torch.manual_seed(0)
    digests = []
    for name, (module, inputs) in (
        ("encoder", encoder(2)),
        ("decoder", KINDS["decoder"]()),
        ("depthwise", KINDS["squeeze_excite"]()),
    ):
        for _ in range(times if name == "depthwise" else 1):
            session = Session(module, inputs, device="wormhole_b0")
            traced = [(n.name, n.shape, n.sources, repr(n.op), n.origin) for n in session.trace()]
            result = session.compile()
            text = netlist.dumps(result.netlist) + repr(result.placement.report)
            digests.append((name, digest(repr(traced)), digest(text)))
    return digests


def compiled_elsewhere(hash_seed: str, times: int) -> Digests:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "TBUDA_CACHE": "off", "PYTHONPATH": str(root)}
    script = f"import json; from tests.e2e.test_determinism import compiled; print(json.dumps(compiled({times})))"
    answer = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return [(name, graph, text) for name, graph, text in json.loads(answer.stdout)]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.uncached
def test_byte_equal_graphs_and_netlists() -> None:
    assert os.environ.get("PYTHONHASHSEED") != "271828", "the other process has to hash strings differently"
    once, twice = compiled(1), compiled_elsewhere("271828", 2)
    assert [name for name, *_ in once] == ["encoder", "decoder", "depthwise"]
    assert len({digest for _, *both in once for digest in both}) == 6
    assert all(len(digest) == len(hashlib.sha256().hexdigest()) for _, *both in once for digest in both)
    assert twice == [line for line in once for _ in range(2 if line[0] == "depthwise" else 1)]
