"""The op types of a netlist and what each may carry: one table for reader, checker and views."""

from __future__ import annotations

import dataclasses

BINARY = frozenset(("add", "subtract", "multiply", "maximum", "quantization", "dequantization", "requantization"))
QUANT = frozenset(("quantization", "dequantization", "requantization"))
NOP = frozenset(("nop", "datacopy"))
UNARY = NOP | {"ethernet_datacopy"}
SFPU = frozenset(
    (
        "exp",
        "log",
        "sqrt",
        "gelu",
        "gelu_derivative",
        "reciprocal",
        "sigmoid",
        "dropout",
        "tanh",
        "square",
        "power",
        "sine",
        "cosine",
        "lrelu",
        "abs",
    )
)
OTHER = frozenset(("matmul", "reduce", "splice", "embedding", "tilizer", "depthwise", "topk", "fused_op", "drainer"))
OP_TYPES = BINARY | UNARY | SFPU | OTHER

# inputs that a type takes: (least, most); None: no upper limit
ARITY: dict[str, tuple[int, int | None]] = {
    **{name: (2, 2) for name in BINARY},
    **{name: (1, 1) for name in UNARY | SFPU},
    "matmul": (2, 4),
    "depthwise": (2, 3),
    "reduce": (1, 1),
    "splice": (1, 8),
    "embedding": (2, 2),
    "tilizer": (1, 1),
    "topk": (2, 2),
    "fused_op": (1, None),
    "drainer": (1, 1),
}

OP_FIELDS = (
    "type",
    "grid_loc",
    "grid_size",
    "inputs",
    "forked_dram_inputs",
    "gradient_op",
    "untilize_output",
    "grid_transpose",
    "overlay_size",
    "t",
    "mblock",
    "ublock",
    "tile_dim",
    "buf_size_mb",
    "input_buf_min_size_tiles",
    "input_dram_io_buf_size_tiles",
    "ublock_order",
    "in_df",
    "out_df",
    "intermed_df",
    "acc_df",
    "math_fidelity",
    "attributes",
)
QUEUE_FIELDS = (
    "input",
    "input_tms",
    "alias",
    "type",
    "entries",
    "grid_size",
    "t",
    "mblock",
    "ublock",
    "ublock_order",
    "tile_dim",
    "df",
    "layout",
    "target_device",
    "loc",
    "dram",
    "host",
    "read_ports",
    "write_ports",
)
SETTING_FIELDS = (
    "prologue",
    "epilogue",
    "zero",
    "read_only",
    "rd_ptr_local",
    "rd_ptr_global",
    "wr_ptr_global",
    "rd_ptr_autoinc",
    "global_wrptr_autoinc",
    "global_rdptr_autoinc",
)
SUB_OP_FIELDS = ("type", "inputs", "output", "mblock", "ublock", "pop", "pop_last", "zero_point", "attributes")
MATH_FIDELITIES = ("LoFi", "HiFi2", "HiFi3", "HiFi4", "HiFi2_A", "HiFi2_B")
TILE_DIMS = ((32, 32), (16, 32), (8, 32), (4, 32), (2, 32), (1, 32), (32, 16))
TMS = ("transpose", "broadcast", "hslice", "hstack", "vslice", "vstack", "pad", "tile_broadcast")


@dataclasses.dataclass(frozen=True)
class Attribute:
    """How an op attribute is written and which op types may carry it (None: every type)."""

    kind: str  # int uint float bool text value ints triple counts
    types: frozenset[str] | None = None


_SPARSE = frozenset(("matmul", "buffer", "fused_op"))
ATTRIBUTES: dict[str, Attribute] = {
    "m_k": Attribute("int"),
    "u_kt": Attribute("int"),
    "bias": Attribute("bool"),
    "accumulate": Attribute("bool", frozenset(("matmul",))),
    "z": Attribute("int", frozenset(("matmul", "reduce", "fused_op"))),
    "sfpu_op": Attribute("text"),
    "l1_acc": Attribute("bool", frozenset(("matmul", "depthwise"))),
    "min_buffer_input": Attribute("int", frozenset(("matmul", "fused_op", "buffer", "depthwise"))),
    "kernel_broadcast": Attribute("counts"),
    "kernel_broadcast_per_t": Attribute("counts"),
    "single_tile": Attribute("ints"),
    "relu_en": Attribute("bool"),
    "relu_threshold": Attribute("float"),
    "relu_mode": Attribute("text"),
    "vector": Attribute("text", SFPU),
    "approximate_mode": Attribute("bool", SFPU | UNARY | {"fused_op"}),
    "sfpu_execution_thread": Attribute("text", SFPU | {"matmul"}),
    "stoch_rnd_mode": Attribute("text"),
    "srnd_fpu_en": Attribute("bool"),
    "dim": Attribute("text", frozenset(("reduce",))),
    "type": Attribute("text", frozenset(("reduce",))),
    "identity": Attribute("bool", _SPARSE),
    "num_index_tiles": Attribute("int", _SPARSE),
    "num_sparse_tiles": Attribute("int", _SPARSE),
    "num_columns": Attribute("int", _SPARSE),
    "sparse_tile_ptr_bits": Attribute("int", _SPARSE),
    "sparse_ublock_idx_bits": Attribute("int", _SPARSE),
    "indices_len": Attribute("int", _SPARSE),
    "fracture_factor": Attribute("int", _SPARSE),
    "starting_row": Attribute("int", _SPARSE),
    "act_t": Attribute("int", _SPARSE),
    "num_nz_strips": Attribute("ints", _SPARSE),
    "p": Attribute("float", frozenset(("dropout",))),
    "seed": Attribute("uint", frozenset(("dropout",))),
    "slope": Attribute("float", frozenset(("lrelu",))),
    "exp": Attribute("int", frozenset(("power",))),
    "fused_op_id": Attribute("text", frozenset(("fused_op",))),
    "granularity": Attribute("text", frozenset(("splice",))),
    **{f"input{n}": Attribute("triple", frozenset(("splice",))) for n in range(8)},
    "num_indices": Attribute("int", frozenset(("embedding",))),
    "requant": Attribute("bool", frozenset(("matmul",))),
    "dequant": Attribute("bool", frozenset(("matmul",))),
    "zero_point": Attribute("float"),
    "k": Attribute("int", frozenset(("topk",))),
    "sort": Attribute("text", frozenset(("topk",))),
    "kreduce": Attribute("value", frozenset(("topk",))),
    "ingress_channels": Attribute("ints"),
    "egress_channels": Attribute("ints"),
    "dest_device": Attribute("int"),
}

SUB_OP_ATTRIBUTES: dict[str, Attribute] = {
    "m_k": Attribute("int"),
    "u_kt": Attribute("int"),
    "vector": Attribute("text", SFPU),
    "type": Attribute("text", frozenset(("reduce",))),
    "dim": Attribute("text", frozenset(("reduce",))),
    "relu_en": Attribute("bool"),
    "relu_threshold": Attribute("float"),
    "relu_mode": Attribute("text"),
    "p": Attribute("float", frozenset(("dropout",))),
    "seed": Attribute("uint", frozenset(("dropout",))),
    "slope": Attribute("float", frozenset(("lrelu",))),
    "exp": Attribute("int", frozenset(("power",))),
}


def attributes_of(op_type: str) -> list[str]:
    """The attribute names that an op of this type may carry, for messages and editors."""
    return [name for name, spec in ATTRIBUTES.items() if spec.types is None or op_type in spec.types]
