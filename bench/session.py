"""How long a session takes to answer: the legal table, what-if, recompile after one edit, undo, suggestions.

    python bench/session.py [--models NAME ...] [--samples N] [--device NAME] [--json FILE]

"bert_large" is the encoder of BERT-large at sequence 384, all 24 layers with the same weights, which no placement
depends on; "1000_ops" is the same with 36 layers. Samples are random ops and random legal sizes of them (seeded).
Times are CPU milliseconds of one thread: p50, p95 and the longest. "drawn" is the kernel's part of it: recompile,
frames, messages. "after ..." is a recompile after one edit of that kind, each from the same start, with what it ran
again: epochs made anew, tables of candidates, whole placements.
Bars: legal 5, what-if 100, recompile 500 (of 700 in the browser), undo 100, suggest 1000; breaks, nops, queues and
formats 2000.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import describe, one_thread

BARS = {"legal": 5, "what-if": 100, "recompile": 500, "drawn": 500, "undo": 100, "suggest": 1000, "nop": 2000}
SLOWER = ("epoch break", "nop", "queue on an edge", "format", "fidelity")


def bert_large(layers: int = 24, sequence: int = 384, width: int = 1024) -> tuple[Any, tuple[Any, ...]]:
    """The encoder of BERT-large; every layer uses the first one's storage, so that it fits small machines."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = {"hidden_size": width, "num_attention_heads": 16, "intermediate_size": 4 * width, "vocab_size": 32}
    first = BertModel(BertConfig(num_hidden_layers=1, **config)).encoder.layer[0]
    with torch.device("meta"):
        encoder = BertModel(BertConfig(num_hidden_layers=layers, **config)).encoder
    for layer in encoder.layer:
        values = {name: torch.nn.Parameter(value.detach()) for name, value in first.named_parameters()}
        layer.load_state_dict(values, assign=True)
    return encoder.eval().requires_grad_(False), (torch.randn(1, sequence, width),)


def session_of(name: str, device: str) -> Any:
    from bench.models import make
    from tbuda_lab.core.session import Session

    layers = {"bert_large": 24, "1000_ops": 36}
    model, inputs = bert_large(layers[name]) if name in layers else make(name)
    return Session(model, inputs, device, name=name)


def edit_of(kind: str, session: Any, op: str, rng: random.Random) -> Any:
    """One edit of a kind, about an op; None where it has none."""
    from tbuda_lab.core.lowering.data_formats import legal_fidelities, legal_formats
    from tbuda_lab.core.overrides import Override
    from tbuda_lab.core.session import EpochBreak, PlaceOp, QueueChannel, ResizeOp, SetUkt, StreamOp
    from tbuda_lab.core.session.commands import FormatOp, InsertNop, InsertQueue, SetOptions, SetOverride
    from tbuda_lab.core.session.legal import inner_steps, streams_of

    def one(values: Any) -> Any:
        matches = list(values)
        return rng.choice(matches) if matches else None

    result = session.result
    node, placement = result.lowered[op], result.placement
    if kind == "op size":
        table = session.legal(op)
        size = one(s for s in table.legal if s != table.grid)
        return size and ResizeOp(op, size)
    if kind == "u_kt":
        step = one(v for v, _ in inner_steps(session.compiles, op) if v != int(placement.candidate(op)["u_kt"]))
        return step and SetUkt(op, step)
    if kind == "t-stream":
        way = one(
            w for w, _ in streams_of(session.compiles, op) if w[0] != (str(placement.candidate(op)["stream"]) or "n")
        )
        return way and StreamOp(op, way[0], None if way[0] == "n" else way[1:])
    if kind == "input buffer":
        return SetOverride(Override("input_buffer_multiplier", op, {0: 4}))
    if kind == "place":
        table = session.legal(op)
        start = one(s for s in table.starts(*table.grid) if s != table.start)
        return start and PlaceOp(op, start)
    if kind == "epoch break":
        return EpochBreak(op)
    if kind == "DRAM channel":
        name = one(q.name for q in placement.queues.values() if q.location == "dram" and len(q.buffers) > 0)
        return name and QueueChannel(name, channel=rng.randrange(session.device.dram_channels))
    if kind in ("nop", "queue on an edge"):
        source = one(s for s in node.sources if s in placement.ops)
        if source is None:
            return None
        return InsertNop(source, (op,)) if kind == "nop" else InsertQueue(source, (op,))
    if kind == "format":
        name = one(f.name for f in legal_formats(result.lowered, op, session.device) if f.name != str(node.df))
        return name and FormatOp(op, data_format=name)
    if kind == "fidelity":
        now = str(node.attrs.get("fidelity"))
        name = one(f.name for f in legal_fidelities(result.lowered, op) if f.name != now)
        return name and FormatOp(op, fidelity=name)
    return SetOptions(balancer_policy=rng.choice(("Ribbon", "NLP", "CNN")))


KINDS = (
    "op size",
    "u_kt",
    "t-stream",
    "input buffer",
    "place",
    "epoch break",
    "DRAM channel",
    "nop",
    "queue on an edge",
    "format",
    "fidelity",
    "policy",
)


def edits(session: Any, samples: int, seed: int = 2) -> list[dict[str, Any]]:
    """Recompiles after one edit of every kind: times, and what was run again (the most of any sample)."""
    from tbuda_lab.core.errors import TbudaError

    rows = []
    for kind in KINDS:
        rng, times, work = random.Random(f"{seed} {kind}"), Times(), {"epochs": 0, "tables": 0, "whole": 0}
        ops, tried, refused = list(session.compile().placement.ops), 0, 0
        count = samples if kind != "policy" else 3
        while len(times.samples.get("after", ())) < count and tried < 6 * samples:
            tried += 1
            edit = edit_of(kind, session, rng.choice(ops), rng)
            if edit is None:
                continue
            before = dict(session.work)
            session.apply(edit)
            try:
                times.take("after", session.compile)
            except TbudaError:
                refused += 1
            else:
                for name, stage in (("epochs", "epoch"), ("tables", "table"), ("whole", "place")):
                    work[name] = max(work[name], session.work.get(stage, 0) - before.get(stage, 0))
            session.undo()
            session.compile()
        rows += [{**row, "what": f"after {kind}", "refused": refused, **work} for row in times.rows()]
    return rows


class Page:
    """What stands for a browser: it takes every message."""

    def __init__(self) -> None:
        self.bytes = self.messages = 0

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.bytes += len(json.dumps(message)) + sum(map(len, buffers))
        self.messages += 1

    def selection_changed(self, selection: dict[str, Any]) -> None:
        pass

    def wants(self, key: str) -> bool:
        return True


class Times:
    """Samples of CPU seconds by name."""

    def __init__(self) -> None:
        self.samples: dict[str, list[float]] = {}

    def take(self, name: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        self.samples.setdefault(name, []).append(time.process_time() - start)
        return result

    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for name, values in self.samples.items():
            values = sorted(values)
            p50, p95 = (values[min(len(values) - 1, int(len(values) * q))] for q in (0.5, 0.95))
            row = {"what": name, "n": len(values), "p50": p50, "p95": p95, "most": values[-1]}
            rows.append({k: round(1000 * v, 1) if isinstance(v, float) else v for k, v in row.items()})
        return rows


def measure(name: str, device: str, samples: int, seed: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(facts about the model, one row per question)."""
    from tbuda_lab.core.errors import TbudaError
    from tbuda_lab.core.session import ResizeOp
    from tbuda_lab.core.session.commands import InsertNop, InsertQueue
    from tbuda_lab.widgets.handlers.session_hub import hub_of

    session = session_of(name, device)
    times = Times()
    times.take("trace", session.trace)
    times.take("passes, lower", lambda: session.graph("lowered"))
    times.take("balance, place", session.placed)
    result = times.take("rest of the compile", session.compile)
    ops = list(result.placement.ops)
    rng = random.Random(seed)
    hub, page = hub_of(session), Page()
    hub.attach(page)
    refused = 0
    for _ in range(samples):
        op = rng.choice(ops)
        table = times.take("legal", lambda op=op: session.legal(op))
        sizes = [size for size in table.legal if size != table.grid]
        if not sizes:
            continue
        edit = ResizeOp(op, rng.choice(sizes))
        try:
            times.take("what-if", lambda edit=edit: session.whatif(edit))
        except TbudaError:
            refused += 1
            continue
        times.take("legal after", lambda op=op: session.legal(op))
        session.apply(edit)
        before = page.bytes, page.messages
        times.take("recompile after what-if, drawn", session.compile)
        sent = page.bytes - before[0], page.messages - before[1]
        times.take("undo", session.undo)
    for _ in range(samples):
        op = rng.choice(ops)
        sizes = [size for size in session.legal(op).legal if size != session.legal(op).grid]
        if sizes:
            session.apply(ResizeOp(op, rng.choice(sizes)))
            try:
                times.take("recompile, drawn", session.compile)
            except TbudaError:
                refused += 1
            session.undo()
    session.compile()
    graph = result.lowered
    edges = [(s, n.name, p) for n in graph.ops for p, s in enumerate(n.sources) if s in result.placement.ops]
    for k in range(samples // 4):
        source, reader, port = rng.choice(edges)
        session.apply(InsertQueue(source, (reader,), port) if k % 2 else InsertNop(source, (reader,)))
        try:
            times.take("nop or queue inserted, drawn", session.compile)
        except TbudaError:
            refused += 1
        session.undo()
    session.compile()
    times.take("suggest", session.suggest)
    times.take("suggest again", session.suggest)
    changed = edits(session, max(4, samples // 4), seed)
    facts = {
        "model": name,
        "ops": len(ops),
        "epochs": len(result.placement.epochs),
        "refused": refused,
        "bytes of a commit": sent[0],
        "messages": sent[1],
    }
    return facts, [*times.rows(), *changed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["bert", "1000_ops"], metavar="NAME")
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    one_thread()
    print(f"## Sessions, CPU ms ({arguments.device})\n\n{describe()}\n", flush=True)
    everything = []
    for name in arguments.models:
        facts, rows = measure(name, arguments.device, arguments.samples)
        print(", ".join(f"{k} {v}" for k, v in facts.items()) + "\n")
        print("| what | samples | p50 | p95 | most | bar | epochs, tables, whole |\n|---|---:|---:|---:|---:|---:|---|")
        for row in rows:
            bar = next((b for k, b in BARS.items() if row["what"].startswith(k)), "")
            again, kind = "", row["what"].removeprefix("after ")
            if "epochs" in row:
                bar = 2000 if kind in SLOWER else "" if kind == "policy" else 500
                again = f"{row['epochs']}, {row['tables']}, {row['whole']}"
            print(f"| {row['what']} | {row['n']} | {row['p50']} | {row['p95']} | {row['most']} | {bar} | {again} |")
        print(flush=True)
        everything.append({**facts, "times": rows})
    if arguments.json is not None:
        temporary = arguments.json.with_name(arguments.json.name + ".tmp")
        temporary.write_text(json.dumps(everything, indent=1) + "\n")
        temporary.replace(arguments.json)


if __name__ == "__main__":
    main()
