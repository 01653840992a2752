"""`tbuda demo`: the bring-up of the first notebook, in the terminal.

The demo's model: the encoder that the first notebook brings up, BERT-base's of `transformers`.

Where `transformers` is not installed, the same architecture in plain torch takes its place, after Vaswani et al. (2017)
and Devlin et al. (2018): 12 post-norm layers, hidden 768, 12 heads, feed-forward 3072.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from tbuda_lab.cli.output import epoch_table, output_folder, summary
from tbuda_lab.core.errors import quantity

if TYPE_CHECKING:
    from tbuda_lab.core.session import Session
    from tbuda_lab.core.verification import Comparison

TRACED_INPUTS = 4
"""So many that an epoch is seen to fill, to run full and to drain, and few enough for any viewer."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `tbuda demo`."""
    parser = subparsers.add_parser("demo", help="bring up a BERT-base encoder: trace, place, run, report")
    parser.add_argument("--out", type=Path, default=Path("build/demo"), metavar="DIR")
    parser.add_argument("--device", default="n150", metavar="NAME")
    parser.set_defaults(handler=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the table of epochs and the comparison with torch; write netlist, report and trace."""
    from tbuda_lab.cli.bringup import CompileRequest, compile_session, run_and_compare, write_results
    from tbuda_lab.core.epochsim import simulate
    from tbuda_lab.widgets.report import write_report

    with output_folder(arguments.out) as folder:
        began = time.perf_counter()
        request = CompileRequest(f"{Path(__file__)}:make_model", device=arguments.device)
        print(f"BERT-base encoder (12 layers, hidden 768, sequence 128, random weights) on {arguments.device}")
        session = compile_session(request)
        compiled = time.perf_counter()
        print(epoch_table(session.compile()))
        print(summary(session.compile()))
        _, passed = run_and_compare(session, session.sample_inputs, 0.99)
        ran = time.perf_counter()
        write_results(session, request, folder, arguments.out)
        simulate(session.compile(), TRACED_INPUTS).trace.to_chrome_trace(folder / "trace.json")
        verdicts = session.verify()
        write_report(session, folder / "report.html", verdicts)
    print(
        f"compiled in {compiled - began:.1f} s, ran and compared in {ran - compiled:.1f} s; wrote {arguments.out}/: "
        "netlist.yaml, report.html, trace.json (open it in ui.perfetto.dev)"
    )
    print()
    print(closing(session, verdicts, arguments.out))
    return 0 if passed else 1


def closing(session: Session, verdicts: Sequence[Comparison], folder: Path) -> str:
    """Five lines: what was compiled, how fast it is, what limits it, how well it agrees with torch, what to open."""
    from tbuda_lab.core.epochsim import epoch_limits

    result, times, device = session.compile(), session.time(), session.device
    limits = epoch_limits(result.placement, times)
    bounds = Counter(limit.bound for limit in limits)
    most, count = bounds.most_common(1)[0]
    longest = max(range(len(limits)), key=lambda e: times.epochs[e].cycles)
    lowest = min((v.pcc for v in verdicts), default=1.0)
    rows = (
        (
            "what",
            f"{quantity(len(result.placement.ops), 'op')} in {quantity(len(limits), 'epoch')} on {device.name}, "
            f"{device.cores} cores",
        ),
        (
            "fast",
            f"{times.per_input:,.0f} cycles per input in a batch of {times.batch}, "
            f"{device.clock_hz / times.per_input:,.0f} inputs/s, simulated",
        ),
        (
            "limit",
            f"{most.words} in {count} of {quantity(len(limits), 'epoch')}; the longest is epoch {longest}. "
            f"{limits[longest].text}",
        ),
        ("PCC", f"{lowest:.6f} against the model itself"),
        ("next", f"open {folder}/report.html, or drag it yourself: make lab"),
    )
    return "\n".join(f"{name:6s} {text}" for name, text in rows)


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, hidden = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.reshape(batch, rows, self.heads, hidden // self.heads).transpose(1, 2)

        query, key, value = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(hidden // self.heads)
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        out: torch.Tensor = self.dense(mixed.transpose(1, 2).reshape(batch, rows, hidden))
        return out


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.norm_1 = nn.LayerNorm(hidden)
        self.feed_forward = nn.Sequential(nn.Linear(hidden, inner), nn.GELU(), nn.Linear(inner, hidden))
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm_1(x + self.attention(x))
        out: torch.Tensor = self.norm_2(x + self.feed_forward(x))
        return out


class Encoder(nn.Module):
    def __init__(self, layers: int = 12, hidden: int = 768, heads: int = 12, inner: int = 3072) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer(hidden, heads, inner) for _ in range(layers)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(hidden_states)
        return out


def make_model(seed: int = 0) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """(BERT-base's encoder with random weights, in eval mode; one input of shape (1, 128, 768))."""
    torch.manual_seed(seed)
    model: nn.Module
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        model = Encoder()
    else:
        model = BertModel(BertConfig()).encoder
    return model.eval().requires_grad_(False), (torch.randn(1, 128, 768),)
