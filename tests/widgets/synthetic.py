"""A compile result made by hand: an encoder of N layers on a 10x8 grid, with the real dataclasses.

It lets the views be tested without the compiler, and always in the same state.
"""

from __future__ import annotations

import base64
import json
import pathlib
import threading
import types
from typing import Any

import numpy as np

from tbuda_lab.core import netlist
from tbuda_lab.core.balancer.types import CANDIDATE, Epoch, OpModels, OpPlacement, Placement, Reason
from tbuda_lab.core.epochsim import BatchTime, Bound, EpochTime, OpTime
from tbuda_lab.core.errors import Cancelled, Diagnostic
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frames import place, session_frames
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwUnary
from tbuda_lab.core.netlist.schema import Blocking, NetGraph, Netlist, NetOp, OpInput
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session.frames import Frames
from tbuda_lab.core.session.state import EVENTS, Events
from tbuda_lab.core.verification import Comparison

HIDDEN, SEQUENCE, HEADS = 768, 128, 12


def encoder_graph(layers: int = 12) -> Graph:
    """A lowered encoder: about 25 ops per layer, parameters and constants included, origins as a tracer gives them."""
    g = Graph("encoder")
    b16 = DataFormat.Float16_b

    def leaf(name: str, kind: NodeKind, shape: tuple[int, ...], module: str = "") -> str:
        g.add(Node(name, kind, shape, df=b16, origin=Origin(module)))
        return name

    def op(
        name: str, what: Any, shape: tuple[int, ...], *inputs: Any, module: str, cls: str, src: str, line: int
    ) -> str:
        edges = tuple(e if isinstance(e, Edge) else Edge(e) for e in inputs)
        g.add(Node(name, NodeKind.OP, shape, what, edges, b16, Origin(module, cls, src, f"model.py:{line}")))
        return name

    x = leaf("hidden_states", NodeKind.INPUT, (1, 1, SEQUENCE, HIDDEN))
    mask = leaf("attention_mask", NodeKind.INPUT, (1, 1, 32, SEQUENCE))
    rows, inner = (1, 1, SEQUENCE, HIDDEN), (1, 1, SEQUENCE, 4 * HIDDEN)
    scores, column = (1, HEADS, SEQUENCE, SEQUENCE), (1, HEADS, SEQUENCE, 32)
    for layer in range(layers):
        root = f"layer.{layer}"

        def dense(m: str, src: str, shape: tuple[int, ...], line: int, prefix: str = root) -> str:
            w = leaf(f"{prefix}.{m}.weight", NodeKind.PARAMETER, (1, 1, HIDDEN, shape[-1]), f"{prefix}.{m}")
            bias = leaf(f"{prefix}.{m}.bias", NodeKind.PARAMETER, (1, 1, 32, shape[-1]), f"{prefix}.{m}")
            return op(
                f"{prefix}.{m}.matmul",
                HwMatmul(bias=True),
                shape,
                src,
                w,
                Edge(bias, (TM("broadcast", ("r", 4)),)),
                module=f"{prefix}.{m}",
                cls="Linear",
                src="aten.linear.default",
                line=line,
            )

        def norm(m: str, src: str, line: int, prefix: str = root) -> str:
            where = {"module": f"{prefix}.{m}", "cls": "LayerNorm", "src": "aten.layer_norm.default", "line": line}
            stem = f"{prefix}.{m}.layernorm.dc."
            ones = leaf(f"{stem}ones", NodeKind.CONSTANT, (1, 1, HIDDEN, 32), f"{prefix}.{m}")
            wide = (TM("broadcast", ("c", 24)),)
            mean = op(stem + "reduce_avg.0", HwMatmul(), (1, 1, SEQUENCE, 32), src, ones, **where)
            centred = op(stem + "subtract.1", HwBinary("subtract"), rows, src, Edge(mean, wide), **where)
            square = op(stem + "multiply.2", HwBinary("multiply"), rows, centred, centred, **where)
            var = op(stem + "reduce_avg.3", HwMatmul(), (1, 1, SEQUENCE, 32), square, ones, **where)
            root_ = op(stem + "sqrt.4", HwUnary("sqrt"), (1, 1, SEQUENCE, 32), var, **where)
            inv = op(stem + "reciprocal.5", HwUnary("reciprocal"), (1, 1, SEQUENCE, 32), root_, **where)
            scaled = op(stem + "multiply.6", HwBinary("multiply"), rows, centred, Edge(inv, wide), **where)
            w = leaf(f"{prefix}.{m}.weight", NodeKind.PARAMETER, (1, 1, 32, HIDDEN), f"{prefix}.{m}")
            gain = Edge(w, (TM("broadcast", ("r", 4)),))
            return op(stem + "multiply.7", HwBinary("multiply"), rows, scaled, gain, **where)

        heads = (TM("hslice", (HEADS,)),)
        q = dense("attention.self.query", x, rows, 41)
        k = dense("attention.self.key", x, rows, 42)
        v = dense("attention.self.value", x, rows, 43)
        att = {"module": f"{root}.attention.self", "cls": "SelfAttention", "line": 50}
        s = op(
            f"{root}.attention.self.matmul_0",
            HwMatmul(),
            scores,
            Edge(q, heads),
            Edge(k, (*heads, TM("transpose"))),
            src="aten.matmul.default",
            **att,
        )
        s = op(
            f"{root}.attention.self.add_0",
            HwBinary("add"),
            scores,
            s,
            Edge(mask, (TM("broadcast", ("z", HEADS)),)),
            src="aten.add.Tensor",
            **att,
        )
        soft = f"{root}.attention.self.softmax.dc."
        att["src"] = "aten.softmax.int"
        e = op(soft + "exp.0", HwUnary("exp"), scores, s, **att)
        ones = leaf(soft + "ones", NodeKind.CONSTANT, (1, 1, SEQUENCE, 32), f"{root}.attention.self")
        total = op(soft + "reduce_sum.1", HwMatmul(), column, e, Edge(ones, (TM("broadcast", ("z", HEADS)),)), **att)
        inv = op(soft + "reciprocal.2", HwUnary("reciprocal"), column, total, **att)
        p = op(soft + "multiply.3", HwBinary("multiply"), scores, e, Edge(inv, (TM("broadcast", ("c", 4)),)), **att)
        att["src"] = "aten.matmul.default"
        ctx = op(f"{root}.attention.self.matmul_1", HwMatmul(), (1, HEADS, SEQUENCE, 64), p, Edge(v, heads), **att)
        out = dense("attention.output.dense", ctx, rows, 61)
        res = op(
            f"{root}.attention.output.add_0",
            HwBinary("add"),
            rows,
            out,
            x,
            module=f"{root}.attention.output",
            cls="SelfOutput",
            src="aten.add.Tensor",
            line=62,
        )
        x1 = norm("attention.output.LayerNorm", res, 63)
        up = dense("intermediate.dense", x1, inner, 71)
        act = op(
            f"{root}.intermediate.gelu_0",
            HwUnary("gelu"),
            inner,
            up,
            module=f"{root}.intermediate",
            cls="Intermediate",
            src="aten.gelu.default",
            line=72,
        )
        down = dense("output.dense", act, rows, 81)
        res = op(
            f"{root}.output.add_0",
            HwBinary("add"),
            rows,
            down,
            x1,
            module=f"{root}.output",
            cls="Output",
            src="aten.add.Tensor",
            line=82,
        )
        x = norm("output.LayerNorm", res, 83)
    g.add(Node("encoder.output_0", NodeKind.OUTPUT, rows, None, (Edge(x),), b16))
    return g


def device(harvested: tuple[int, ...] = (3, 8)) -> Any:
    """A stand-in with the fields that views read: 10 physical rows less the harvested ones, 8 columns."""
    alive = [r for r in range(10) if r not in harvested]
    return types.SimpleNamespace(
        name="wormhole_b0",
        arch="wormhole_b0",
        rows=len(alive),
        cols=8,
        harvested_rows=harvested,
        chips=(0,),
        chip_rows=(),
        clock_hz=1.0e9,
        l1_size=1_499_136,
        l1_reserved=299_136,
        l1_usable=1_200_000,
        tile_align=32,
        physical_row=lambda r: alive[r],
    )


def models(kind: str, tiles: tuple[int, int, int], rows: int, cols: int) -> OpModels:
    """Candidates over every grid that divides the tiles, with cycles that fall as the grid grows."""
    z, rt, ct = tiles
    shapes = [(r, c) for r in range(1, rows + 1) for c in range(1, cols + 1)]
    table = np.zeros(len(shapes), dtype=CANDIDATE)
    for i, (r, c) in enumerate(shapes):
        row = table[i]
        row["grid_r"], row["grid_c"], row["cores"], row["t"] = r, c, r * c, z
        row["reason"] = Reason.LEGAL if rt % r == 0 and ct % c == 0 else Reason.OUTPUT_BUFFER
        row["ublock_r"], row["ublock_c"] = (2 if rt // r % 2 == 0 else 1), (2 if ct // c % 2 == 0 else 1)
        row["mblock_m"] = max(1, rt // r // int(row["ublock_r"]))
        row["mblock_n"] = max(1, ct // c // int(row["ublock_c"]))
        per_tile = 400 if kind == "matmul" else 90
        row["cycles"] = -(-z * rt * ct // (r * c)) * per_tile + 350
        row["buf_size_mb"] = 2
        block = int(row["mblock_m"]) * int(row["mblock_n"]) * int(row["ublock_r"]) * int(row["ublock_c"])
        row["l1_output"] = 2 * block * 2080
        row["l1_input"] = 90_000
        row["l1_total"] = row["l1_output"] + row["l1_input"]
        if kind == "matmul":
            row["m_k"], row["u_kt"] = 6, 4
    return OpModels(f"{kind}:{tiles}", table)


def placed(graph: Graph, dev: Any) -> Placement:
    """First-fit shelves, epoch by epoch: legal rectangles, no policy worth the name."""
    tables: dict[str, OpModels] = {}
    shared: dict[tuple[str, tuple[int, int, int]], OpModels] = {}
    ops: dict[str, OpPlacement] = {}
    epochs: list[list[str]] = [[]]
    top, left, tall = 0, 0, 0
    for node in graph.ops:
        kind = str(getattr(node.op, "netlist_type", ""))
        tiles = (node.shape[1], -(-node.shape[2] // 32), -(-node.shape[3] // 32))
        key = (kind, tiles)
        if key not in shared:
            shared[key] = models(kind, tiles, dev.rows, dev.cols)
        tables[node.name] = shared[key]
        rows = shared[key].rows
        legal = shared[key].legal()
        goal = 16000 if kind == "matmul" else 12000
        row = min(legal.tolist(), key=lambda i: (abs(int(rows[i]["cycles"]) - goal), int(rows[i]["cores"])))
        h, w = int(rows[row]["grid_r"]), int(rows[row]["grid_c"])
        if left + w > dev.cols:
            top, left, tall = top + tall, 0, 0
        if top + h > dev.rows:
            epochs.append([])
            top, left, tall = 0, 0, 0
        ops[node.name] = OpPlacement(node.name, len(epochs) - 1, 0, (top, left), (h, w), False, row)
        epochs[-1].append(node.name)
        left, tall = left + w, max(tall, h)
    cycles = tuple(max(int(tables[n].rows["cycles"][ops[n].row]) for n in e) for e in epochs)
    return Placement(
        ops=ops,
        epochs=tuple(Epoch(i, i, 0, tuple(e)) for i, e in enumerate(epochs)),
        queues={},
        models=tables,
        schedule=tuple(n.name for n in graph.ops),
        epoch_cycles=cycles,
    )


def emitted(graph: Graph, placement: Placement) -> Netlist:
    """The op entries of a netlist (no queues, no programs): enough for the views that show text."""
    result = Netlist(arch=["wormhole_b0"], order=["devices", "graphs"])
    for epoch in placement.epochs:
        body = NetGraph(f"fwd_0_{epoch.index}", 0, 1)
        for name in epoch.ops:
            node, row = graph[name], placement.candidate(name)
            body.ops[name] = NetOp(
                name=name,
                type=str(getattr(node.op, "netlist_type", "")),
                grid_size=(int(row["grid_r"]), int(row["grid_c"])),
                grid_loc=placement.ops[name].start,
                inputs=[OpInput(e.source, DataFormat.Float16_b) for e in node.inputs],
                blocking=Blocking(
                    int(row["t"]),
                    (int(row["mblock_m"]), int(row["mblock_n"])),
                    (int(row["ublock_r"]), int(row["ublock_c"])),
                    "r",
                ),
                out_df=DataFormat.Float16_b,
                intermed_df=DataFormat.Float16_b,
                acc_df=DataFormat.Float16_b,
                math_fidelity="HiFi3",
                buf_size_mb=2,
                untilize_output=False,
                attributes={"m_k": int(row["m_k"]), "u_kt": int(row["u_kt"])} if row["m_k"] else {},
            )
        result.graphs[body.name] = body
    return result


def result(layers: int = 12) -> Any:
    """What a compile hands on, as far as views read it."""
    graph, dev = encoder_graph(layers), device()
    placement = placed(graph, dev)
    return types.SimpleNamespace(
        graph=graph,
        passed=graph,
        lowered=graph,
        placement=placement,
        netlist=emitted(graph, placement),
        device=dev,
        diagnostics=(
            Diagnostic(
                "warning",
                "layer.0.intermediate.gelu_0",
                "approximate",
                "gelu runs in its approximate mode",
                "set `approximate=False` to evaluate it exactly",
            ),
            Diagnostic("note", "attention_mask", "padded", "32 rows of the mask are padding"),
        ),
        timings={"trace": 1.2, "passes": 0.4, "lower": 0.6, "place": 2.2, "netlist": 0.3},
    )


def times(placement: Placement) -> BatchTime:
    """As if every op were held by its kernel, but in each epoch one, 1.5 times slower by DRAM, which limits it."""
    result = []
    for epoch in placement.epochs:
        kernels = [int(placement.candidate(n)["cycles"]) for n in epoch.ops]
        slow = len(kernels) // 2
        cycles = [c * 3 // 2 if at == slow else c for at, c in enumerate(kernels)]
        ops = tuple(
            OpTime(
                c,
                0,
                k,
                *(("input 0 dram", Bound.DRAM) if c > k else ("kernel", Bound.COMPUTE)),
                k,
                100,
                50,
                c - k,
                0,
                at == slow,
            )
            for at, (c, k) in enumerate(zip(cycles, kernels, strict=True))
        )
        steady = cycles[slow]
        result.append(EpochTime(steady + 24_000, steady, 3_500, 500, 20_000, Bound.SWITCH, slow, slow, ops))
    return BatchTime(1, sum(e.cycles for e in result), tuple(result))


def text(res: Any) -> str:
    return netlist.dumps(res.netlist)


class FakeSession:
    """A session whose stages take no time: emits the events of `core.session.Session` and ends with `result`."""

    def __init__(self, compiled: Any = None, fail: Exception | None = None) -> None:
        self.name, self.rev, self.options = "encoder", 0, CompileOptions()
        self._compiled = compiled if compiled is not None else result(2)
        self.device = self._compiled.device
        self.result: Any = None
        self.timings: dict[str, float] = {}
        self.problems: list[Diagnostic] = []
        self.fail = fail
        self.gate = threading.Event()
        self.gate.set()
        self.cancelled = threading.Event()
        self.events = Events(*EVENTS)
        self.history = self.future = self.records = ()
        self.frames = Frames(self, self)  # type: ignore[arg-type]
        self.stages = ("trace", "passes", "lower", "balance", "place", "emit", "check", "run")

    def first_placement(self) -> None:
        return None

    def on(self, event: str, listener: Any) -> Any:
        return self.events.on(event, listener)

    @property
    def stale(self) -> bool:
        return self.result is None

    def graph(self, stage: str) -> Graph:
        return self._compiled.graph if stage == "traced" else getattr(self._compiled, stage)

    def time(self, compiled: Any) -> BatchTime:
        return times(compiled.placement)

    def cancel(self) -> None:
        self.cancelled.set()
        self.gate.set()

    def compile(self) -> Any:
        if self.result is None:
            for stage in self.stages[:-1]:
                self.events.emit("stage", stage, 0.0)
                self.gate.wait()
                if self.cancelled.is_set():
                    raise Cancelled(f"cancelled before stage {stage!r}")
                if self.fail is not None and stage == "place":
                    self.problems = list(getattr(self.fail, "diagnostics", ()))
                    raise self.fail
                self.events.emit("stage", stage, 0.5)
                self.timings[stage] = 0.01
                self.events.emit("stage", stage, 1.0)
            self.result = self._compiled
            self.problems = list(self._compiled.diagnostics)
            self.events.emit("compiled", self.result)
        return self.result

    def run(self, steps: int = 500) -> list[Any]:
        self.events.emit("stage", "run", 0.0)
        for done in range(steps):
            self.events.emit("run", done, steps)
        self.timings["run"] = 0.02
        self.events.emit("stage", "run", 1.0)
        return []

    def verify(self, *, break_below: float | None = None) -> list[Comparison]:
        self.run()
        verify = [Comparison("output 0", 0.9991, 0.02, 3.0)]
        self.events.emit("verified", verify)
        return verify


def fixture() -> dict[str, Any]:
    """What the TypeScript tests read: the frames of a two-layer encoder, and where the kernel puts its boxes."""
    compiled = result(2)
    frames = session_frames(
        compiled,
        compiled.device,
        compiled.diagnostics,
        "encoder",
        [Comparison("output 0", 0.9991, 0.02, 3.0)],
        times(compiled.placement),
    )
    lowered = next(f for f in frames if f.key == "graph:lowered")
    groups = range(len(lowered.text("group_path")))
    layouts = []
    some = [g for g in groups if g % 3 != 2]
    plain = [(opened, "TB", False) for opened in ([], lowered.meta["open"], some, list(groups))]
    for opened, direction, words in (*plain, (some, "LR", False), (list(groups), "LR", True), (some, "TB", True)):
        layout = place(lowered, set(opened), direction, words)
        boxes = [[i, *(round(float(v), 9) for v in layout.boxes[i])] for i in np.flatnonzero(layout.visible).tolist()]
        layouts.append(
            {
                "open": list(opened),
                "direction": direction,
                "words": words,
                "size": [round(s, 9) for s in layout.size],
                "boxes": boxes,
            }
        )
    packed = []
    for frame in frames:
        if frame.key in ("graph:traced", "graph:passed"):
            continue
        header, buffer = frame.pack()
        packed.append({"header": header, "data": base64.b64encode(buffer).decode("ascii")})
    return {"frames": packed, "layouts": layouts}


FIXTURE = pathlib.Path(__file__).parent / "fixture.json"

if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(fixture(), ensure_ascii=False) + "\n", encoding="utf-8")
