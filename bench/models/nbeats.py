"""N-BEATS (Oreshkin et al., 2019; generic blocks) of a large batch: compiled, run and compared with torch.

    python bench/models/nbeats.py [--blocks 30] [--batch 1024] [--width 512]

Prints CPU seconds: the compile, the run, torch; and of 32 inputs one after the other beside 32 together, with the
largest difference of their outputs, which must be 0.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from sys import path
from unittest import mock

import torch
from torch import nn

path.insert(0, str(Path(__file__).parents[1]))
from machine import describe, one_thread

HISTORY, HORIZON = 72, 24


class Block(nn.Module):
    def __init__(self, width: int, layers: int = 4) -> None:
        super().__init__()
        sizes = [HISTORY] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.theta = nn.Linear(width, HISTORY + HORIZON)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = torch.relu(layer(x))
        theta = self.theta(x)
        return theta[:, :HISTORY], theta[:, -HORIZON:]


class NBeats(nn.Module):
    """x and mask (n, HISTORY); returns the forecast (n, HORIZON)."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        residual, mask, forecast = x.flip(1), mask.flip(1), x[:, -1:]
        for block in self.blocks:
            back, ahead = block(residual)
            residual, forecast = (residual - back) * mask, forecast + ahead
        return forecast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=512)
    arguments = parser.parse_args()
    one_thread()
    from tbuda_lab.core.runner import Runner
    from tbuda_lab.core.session import Session
    from tbuda_lab.sim import Executor

    print(describe())
    torch.manual_seed(0)
    model = NBeats(arguments.blocks, arguments.width).eval()
    inputs = torch.randn(arguments.batch, HISTORY), torch.ones(arguments.batch, HISTORY)
    start = time.process_time()
    result = Session(model, inputs, "wormhole_b0").compile()
    compiled = time.process_time()
    runner = Runner(result)
    (got,) = runner.run([inputs])[0]
    ran = time.process_time()
    with torch.no_grad():
        expected = model(*inputs)
    ended = time.process_time()
    pcc = torch.corrcoef(torch.stack([got.flatten(), expected.flatten()]))[0, 1]
    print(
        f"{len(result.placement.ops)} ops, batch {arguments.batch}: compile {compiled - start:.1f}, run "
        f"{ran - compiled:.1f}, torch {ended - ran:.2f} CPU s; PCC {pcc:.6f}"
    )
    few = inputs[0][:32], inputs[1][:32]
    start = time.process_time()
    (together,) = runner.run([few])[0]
    middle = time.process_time()
    with mock.patch.object(Executor, "at_once", return_value=1):
        (apart,) = runner.run([few])[0]
    ended = time.process_time()
    print(
        f"32 inputs: together {middle - start:.2f}, one after the other {ended - middle:.2f} CPU s, difference "
        f"{float((together - apart).abs().max())}"
    )


if __name__ == "__main__":
    main()
