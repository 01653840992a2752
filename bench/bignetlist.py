"""A netlist as large as the largest real ones: encoders in a pipeline over many chips, with e2e queues between them."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import (
    Blocking,
    EndLoop,
    Execute,
    Loop,
    NetGraph,
    Netlist,
    NetOp,
    OpInput,
    Param,
    Program,
    Queue,
    QueueBuffer,
    QueueSetting,
    Tm,
    Value,
    Var,
    VarInst,
)

F16B = DataFormat.Float16_b
ROWS, COLS = 10, 8
PARAMETERS = 6  # per block
CHAIN = ("matmul", "add", "matmul", "multiply", "add", "matmul", "gelu", "matmul", "add", "multiply", "exp", "nop")
LONG = "bert.encoder.layer"


def big_netlist(ops: int = 1466, chips: int = 32, microbatch: int = 8) -> Netlist:
    """`ops` ops in blocks of a dozen, one graph for each block, block after block on chip after chip and round again.

    Every block reads six parameters and writes a queue that the next one reads.
    """
    n = Netlist(["wormhole_b0"])
    n.order = ["devices", "queues", "graphs", "programs"]
    places: dict[int, list[int]] = {}

    def buffers(chip: int, count: int, tiles: int, entries: int) -> list[QueueBuffer]:
        out = []
        size = 32 + entries * tiles * 2080
        for _ in range(count):
            channels = places.setdefault(chip, [0x30000000] * 6)
            channel = min(range(6), key=channels.__getitem__)
            out.append(QueueBuffer(channel, channels[channel]))
            channels[channel] += -(-size // 1024) * 1024
        return out

    def queue(name: str, chip: int, kind: str, source: str, entries: int) -> str:
        n.queues[name] = Queue(
            name,
            kind,
            source,
            entries,
            (2, 4),
            Blocking(1, (2, 1), (2, 2), "r"),
            F16B,
            chip,
            "dram",
            buffers(chip, 8, 8, entries),
            (32, 32),
        )
        return name

    previous = queue("hidden_states", 0, "queue", "HOST", 2 * microbatch)
    result = block = 0
    settings: list[tuple[str, dict[str, QueueSetting]]] = []
    moved: list[str] = []
    while result < ops:
        chip = block % chips
        graph = NetGraph(f"fwd_0_{block}_temporal_epoch_{block}", chip, microbatch)
        n.graphs[graph.name] = graph
        fields: dict[str, QueueSetting] = {
            previous: QueueSetting(
                {
                    "prologue": False,
                    "epilogue": False,
                    "zero": False,
                    "rd_ptr_local": f"$lptr_q{block}",
                    "rd_ptr_global": f"$gptr_q{block}",
                }
            )
        }
        weights = []
        count = min(len(CHAIN), ops - result)
        for k in range(min(PARAMETERS, count)):
            name = queue(f"{LONG}.{block}.attention.self.projection_{k}.weight", chip, "ram", "HOST", 1)
            weights.append(name)
            rams: dict[str, Value] = {
                "prologue": True,
                "epilogue": False,
                "zero": False,
                "rd_ptr_global": "$c_zero",
                "wr_ptr_global": "$c_zero",
            }
            fields[name] = QueueSetting(rams)
        source = previous
        for k in range(count):
            kind = CHAIN[k]
            name = f"{LONG}.{block}.{kind}_{result + k}"
            inputs = [OpInput(source, F16B)]
            attributes: dict[str, object] = {}
            if kind in ("matmul", "add", "multiply"):
                inputs.append(
                    OpInput(
                        weights[k % PARAMETERS],
                        F16B,
                        [Tm("hslice", (1,)), Tm("broadcast", (("z", 1),))] if k % 3 == 0 else None,
                    )
                )
            if kind == "matmul":
                attributes = {"m_k": 4, "min_buffer_input": 0, "u_kt": 2}
            row, col = divmod(k, 2)
            graph.ops[name] = NetOp(
                name,
                kind,
                (2, 4) if k < 8 else (1, 4),
                inputs,
                Blocking(1, (2, 1) if k < 8 else (4, 1), (2, 2), "r"),
                F16B,
                (2 * row if k < 8 else 8 + (k - 8) // 2, 4 * col),
                intermed_df=F16B,
                acc_df=F16B,
                math_fidelity="HiFi3",
                tile_dim=(32, 32),
                buf_size_mb=2,
                input_buf_min_size_tiles=[0] * len(inputs),
                attributes=attributes,
            )
            source = name
        result += count
        settings.append((graph.name, fields))
        moved.append(previous)
        block += 1
        previous = queue(
            f"e2e_{LONG}.{block - 1}.output_{block}",
            block % chips if result < ops else chip,
            "queue",
            source,
            2 * microbatch,
        )
    body: list[Param | Var | Loop | Execute | VarInst | EndLoop] = [
        Param(["$p_loop_count"]),
        Var(False, {"$c_zero": 0, "$c_one": 1, "$c_microbatch_size": microbatch}),
        Var(True, {f"${p}ptr_q{k}": 0 for k in range(block) for p in ("l", "g")}),
        Loop("$p_loop_count"),
    ]
    for k, (name, fields) in enumerate(settings):
        body.append(Execute(name, fields))
        body += [VarInst(f"${p}ptr_q{k}", "incwrap", ["$c_microbatch_size", 4 * microbatch]) for p in ("g", "l")]
    n.programs.append(Program("run_fwd_0", [*body, EndLoop()]))
    return n
