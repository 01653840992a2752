"""Llama-7B without weights (the meta device): traced, placed on 1, 8 and 32 chips, and shown. Bars: 4 GB, 120 CPU s.

    python bench/models/llama7b.py [--chips 1 8 32] [--layers 32] [--tokens 128]

A process of its own for each number of chips; CPU seconds without imports, the placement cache off. "drawn": what the
first picture of the graph holds, with the layers that repeat folded into one group.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from machine import describe, one_thread

SECONDS, GIGABYTES = 120, 4


def measure(chips: int, layers: int, tokens: int) -> None:
    """Prints one row of the table."""
    one_thread()
    import torch
    from torch import nn
    from transformers import LlamaConfig, LlamaModel

    from tbuda_lab.core.device import load_device
    from tbuda_lab.core.formats import DataFormat
    from tbuda_lab.core.frames.graph_frame import first_open
    from tbuda_lab.core.frames.hierarchy import hierarchy
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = LlamaModel(LlamaConfig(num_hidden_layers=layers, use_cache=False))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(inputs_embeds=x, use_cache=False).last_hidden_state

    with torch.device("meta"):
        model = Decoder().eval().requires_grad_(False)
        inputs = (torch.zeros(1, tokens, 4096),)
    options = CompileOptions(default_df_override=DataFormat.Bfp8_b)
    start = time.process_time()
    session = Session(model, inputs, load_device("wormhole_b0", chips=chips if chips > 1 else None), options)
    result = session.compile()
    seconds = time.process_time() - start
    placed = result.placement
    used = len({epoch.chip for epoch in placed.epochs if epoch.ops})
    tree = hierarchy(result.graph)
    opened = set(first_open(tree))
    drawn = sum(home in opened for home in tree.home) + sum(g.parent in opened for g in tree.groups)
    folded = [group.label for group in tree.groups if group.repeats]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    held = "yes" if seconds <= SECONDS and memory <= GIGABYTES else "no"
    print(
        f"| {chips} ({used} with ops) | {len(placed.ops)} ops, {len(placed.epochs)} epochs | {seconds:.1f} | "
        f"{memory:.2f} | {held} | {drawn} of {len(tree.nodes)}, {', '.join(folded)} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--here", action="store_true", help="measure in this process")
    arguments = parser.parse_args()
    if arguments.here:
        measure(arguments.chips[0], arguments.layers, arguments.tokens)
        return
    print(
        f"{describe()}\n\n| chips | result | CPU s | peak, GB | within {SECONDS} s, {GIGABYTES} GB | drawn |\n"
        "|---|---|---:|---:|---|---|",
        flush=True,
    )
    for chips in arguments.chips:
        command = [
            sys.executable,
            __file__,
            "--here",
            "--chips",
            str(chips),
            "--layers",
            str(arguments.layers),
            "--tokens",
            str(arguments.tokens),
        ]
        subprocess.run(command, check=True, env={**os.environ, "TBUDA_CACHE": "off"})


if __name__ == "__main__":
    main()
