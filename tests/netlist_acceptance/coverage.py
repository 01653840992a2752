"""Which test runs which feature of a netlist: (file, test) by op type, attribute, TM, format, setting, instruction.

`test_coverage.py` holds this table against the tables of the reader, so that nothing a netlist may say is without a
test that runs it and judges the result.
"""

from __future__ import annotations

Test = tuple[str, str]

OPS, CORES, FEATURES = "test_ops", "test_cores", "test_features"
PROGRAMS, TILES, FILES = "test_programs", "test_tiles", "test_files"

_UNARY, _BINARY = (OPS, "test_unary"), (OPS, "test_binary_with_a_broadcast_and_relu")
_QUANT, _SPARSE = (OPS, "test_quantisation"), (OPS, "test_sparse_matmul")
OP_TYPES: dict[str, Test] = {
    **dict.fromkeys(
        (
            "nop",
            "datacopy",
            "exp",
            "log",
            "sqrt",
            "gelu",
            "reciprocal",
            "sigmoid",
            "tanh",
            "square",
            "sine",
            "cosine",
            "abs",
            "lrelu",
            "power",
        ),
        _UNARY,
    ),
    **dict.fromkeys(("add", "subtract", "multiply", "maximum"), _BINARY),
    **dict.fromkeys(("quantization", "requantization", "dequantization"), _QUANT),
    "gelu_derivative": (OPS, "test_gelu_derivative"),
    "dropout": (OPS, "test_dropout_keeps_the_mean"),
    "ethernet_datacopy": (CORES, "test_datacopy_over_ethernet"),
    "matmul": (OPS, "test_matmul"),
    "reduce": (FEATURES, "test_reductions"),
    "splice": (OPS, "test_splice_of_ublocks"),
    "embedding": (OPS, "test_embedding"),
    "tilizer": (OPS, "test_tilizer_reads_rows"),
    "depthwise": (OPS, "test_depthwise"),
    "topk": (OPS, "test_topk"),
    "fused_op": (OPS, "test_fused_chain_with_tile_broadcast"),
}

_PLACEMENT = (FEATURES, "test_attributes_of_placement")
_RELU = (OPS, "test_binary_with_a_broadcast_and_relu")
_REDUCE, _TOPK = (OPS, "test_reduce_max"), (OPS, "test_topk")
_ETHERNET, _SPLICE = (CORES, "test_datacopy_over_ethernet"), (OPS, "test_splice_of_ublocks")
ATTRIBUTES: dict[str, Test] = {
    "m_k": (OPS, "test_matmul"),
    "u_kt": (OPS, "test_matmul"),
    "bias": (OPS, "test_matmul_bias_gelu_relu"),
    "accumulate": (OPS, "test_matmul_accumulates_z"),
    "z": (OPS, "test_matmul_accumulates_z"),
    "sfpu_op": (TILES, "test_other_functions_after_a_matmul"),
    "l1_acc": (OPS, "test_matmul"),
    "min_buffer_input": _PLACEMENT,
    "kernel_broadcast": _PLACEMENT,
    "kernel_broadcast_per_t": _PLACEMENT,
    "single_tile": _PLACEMENT,
    "relu_en": _RELU,
    "relu_threshold": _RELU,
    "relu_mode": (OPS, "test_relu_that_caps"),
    "vector": (CORES, "test_vector_modes"),
    "approximate_mode": _PLACEMENT,
    "sfpu_execution_thread": _PLACEMENT,
    "stoch_rnd_mode": (CORES, "test_stochastic_rounding_is_seeded_and_close"),
    "srnd_fpu_en": (CORES, "test_stochastic_rounding_is_seeded_and_close"),
    "dim": _REDUCE,
    "type": (FEATURES, "test_reductions"),
    **dict.fromkeys(
        (
            "identity",
            "num_index_tiles",
            "num_sparse_tiles",
            "sparse_tile_ptr_bits",
            "sparse_ublock_idx_bits",
            "fracture_factor",
            "act_t",
            "num_nz_strips",
        ),
        _SPARSE,
    ),
    **dict.fromkeys(("num_columns", "indices_len", "starting_row"), (FILES, "test_a_retired_encoding_is_refused")),
    "p": (OPS, "test_dropout_keeps_the_mean"),
    "seed": (OPS, "test_dropout_keeps_the_mean"),
    "slope": _UNARY,
    "exp": _UNARY,
    "fused_op_id": (OPS, "test_fused_chain_with_tile_broadcast"),
    "granularity": (OPS, "test_splice_of_slices"),
    **dict.fromkeys((f"input{n}" for n in range(8)), _SPLICE),
    "num_indices": (OPS, "test_embedding"),
    "requant": (OPS, "test_integer_matmul_with_scales"),
    "dequant": (OPS, "test_integer_matmul_with_scales"),
    "zero_point": _QUANT,
    "k": _TOPK,
    "sort": _TOPK,
    "kreduce": _TOPK,
    "ingress_channels": _ETHERNET,
    "egress_channels": _ETHERNET,
    "dest_device": _ETHERNET,
}

_SLICES = (OPS, "test_slices_and_stacks")
TMS: dict[str, Test] = {
    "transpose": (OPS, "test_transpose_then_broadcast"),
    "broadcast": (OPS, "test_transpose_then_broadcast"),
    "hslice": _SLICES,
    "vslice": _SLICES,
    "hstack": _SLICES,
    "vstack": (OPS, "test_vstack_of_all"),
    "pad": (OPS, "test_pad_and_unpad"),
    "tile_broadcast": (OPS, "test_fused_chain_with_tile_broadcast"),
}

_FLOATS, _WORDS = (FEATURES, "test_every_float_format_through_every_kind_of_op"), (OPS, "test_integers_and_words_pass")
FORMATS: dict[str, Test] = {
    **dict.fromkeys(("Float32", "Float16", "Float16_b", "Bfp8", "Bfp8_b", "Bfp4", "Bfp4_b", "Bfp2", "Bfp2_b"), _FLOATS),
    "Lf8": (CORES, "test_eight_bit_floats"),
    "Fp8_e4m3": (CORES, "test_eight_bit_floats"),
    **dict.fromkeys(("Int8", "UInt8", "Int32", "RawUInt8", "RawUInt16", "RawUInt32"), _WORDS),
    "UInt16": _TOPK,
}

_POINTERS, _RAM = (FEATURES, "test_read_pointers"), (PROGRAMS, "test_ram_pointers_that_move_by_themselves")
SETTINGS: dict[str, Test] = {
    "prologue": _POINTERS,
    "epilogue": (PROGRAMS, "test_gradients_accumulate"),
    "zero": (PROGRAMS, "test_gradients_accumulate"),
    "read_only": (PROGRAMS, "test_a_view_of_a_ram"),
    "rd_ptr_local": _POINTERS,
    "rd_ptr_global": _POINTERS,
    "rd_ptr_autoinc": _POINTERS,
    "wr_ptr_global": (PROGRAMS, "test_a_cache_that_is_written_and_read_with_initial_contents"),
    "global_wrptr_autoinc": _RAM,
    "global_rdptr_autoinc": _RAM,
}

_LOOP = (PROGRAMS, "test_microbatches_in_a_loop_with_a_parameter")
INSTRUCTIONS: dict[str, Test] = {
    "Param": _LOOP,
    "Var": _LOOP,
    "VarInst": (PROGRAMS, "test_variable_arithmetic_chooses_slots"),
    "Loop": _LOOP,
    "EndLoop": (PROGRAMS, "test_nested_loops_and_negative_pointers"),
    "Execute": _LOOP,
    "Allocate": (PROGRAMS, "test_allocated_queues"),
    "Deallocate": (PROGRAMS, "test_allocated_queues"),
}

_STREAM = (FEATURES, "test_three_epochs_of_several_inputs_with_a_ram_between")
QUEUE_FIELDS: dict[str, Test] = {
    "input": _STREAM,
    "input_tms": (CORES, "test_queue_with_tms_on_its_way_in"),
    "alias": (PROGRAMS, "test_a_view_of_a_ram"),
    "type": _STREAM,
    "entries": _STREAM,
    "grid_size": _SPARSE,
    "t": _SLICES,
    "mblock": _SLICES,
    "ublock": (CORES, "test_fused_on_several_cores_and_slices"),
    "ublock_order": (OPS, "test_transposed_grid_and_column_order"),
    "tile_dim": (OPS, "test_tiny_tiles"),
    "df": _FLOATS,
    "layout": (OPS, "test_tilizer_reads_rows"),
    "target_device": (CORES, "test_instances_on_two_chips"),
    "loc": (FEATURES, "test_host_queues_in_all_spellings"),
    "dram": _STREAM,
    "host": (FEATURES, "test_host_queues_in_all_spellings"),
    "read_ports": (FILES, "test_loosely_written_text"),
    "write_ports": (FILES, "test_loosely_written_text"),
}
OP_FIELDS: dict[str, Test] = {
    "type": _UNARY,
    "grid_loc": _STREAM,
    "grid_size": (OPS, "test_matmul"),
    "inputs": _UNARY,
    "forked_dram_inputs": (CORES, "test_forked_inputs_read_the_same"),
    "gradient_op": (PROGRAMS, "test_gradients_accumulate"),
    "untilize_output": (OPS, "test_untilized_output"),
    "grid_transpose": (OPS, "test_transposed_grid_and_column_order"),
    "overlay_size": _PLACEMENT,
    "t": _SLICES,
    "mblock": _SLICES,
    "ublock": (OPS, "test_matmul"),
    "tile_dim": (TILES, "test_eltwise"),
    "buf_size_mb": _PLACEMENT,
    "input_buf_min_size_tiles": _PLACEMENT,
    "input_dram_io_buf_size_tiles": _PLACEMENT,
    "ublock_order": (OPS, "test_splice_of_ublocks"),
    "in_df": _FLOATS,
    "out_df": _FLOATS,
    "intermed_df": _FLOATS,
    "acc_df": _FLOATS,
    "math_fidelity": (FEATURES, "test_fidelities"),
    "attributes": _PLACEMENT,
}
