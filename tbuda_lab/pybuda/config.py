"""The compiler configuration of the PyBuda API: one global object, and functions that write to it."""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.options import PrecisionRule
from tbuda_lab.pybuda import compiler_config, query
from tbuda_lab.pybuda.compiler_config import NO_EFFECT, CompilerConfig, OpNames
from tbuda_lab.pybuda.enums import CompileDepth as CompileDepth
from tbuda_lab.pybuda.enums import DRAMPlacementAlgorithm, PerfTraceLevel
from tbuda_lab.pybuda.enums import TTIDumpFormat as TTIDumpFormat
from tbuda_lab.pybuda.query import NodePredicateBuilder

# -- the global configuration ------------------------------------------------------------------------------------
_CONFIG = CompilerConfig()


def _get_global_compiler_config() -> CompilerConfig:
    return _CONFIG


def _set_global_compiler_config(config: CompilerConfig) -> None:
    global _CONFIG
    _CONFIG = config


@contextlib.contextmanager
def using(config: CompilerConfig | None) -> Iterator[CompilerConfig]:
    """Inside, the global configuration is this one; None leaves the global one."""
    before = _CONFIG
    _set_global_compiler_config(config if config is not None else before)
    try:
        yield _CONFIG
    finally:
        _set_global_compiler_config(before)


def _clear_global_compiler_config() -> None:
    compiler_config.reset_warnings()
    _set_global_compiler_config(CompilerConfig())


EPOCH_TYPES = ("forward", "backward", "optimizer")

DEVICE_CONFIGS: dict[str, str] = {
    "wh_n150": "n150",
    "wh_n300": "n300",
    "gs_e150": "e150",
    "gs_e300": "e300",
    "bh_test": "blackhole",
}
"""device_config names of PyBuda -> device names here."""

RENAMED = {"accumulate_df": "default_accumulate_df", "math_fidelity": "default_math_fidelity"}


def _device_of_config(name: Any) -> str:
    """The device of a device_config. Raises `PipelineError` for one that there is not."""
    if name == "galaxy":
        raise not_supported(
            "device_config='galaxy'",
            "its links are not described here: name its cluster "
            "descriptor by backend_cluster_descriptor_path and the chips by TTDevice(chip_ids=)",
        )
    if not isinstance(name, str) or name not in DEVICE_CONFIGS:
        raise PipelineError(
            f"Unsupported backend device configuration: {name}. Valid options are: {list(DEVICE_CONFIGS)}"
        )
    return DEVICE_CONFIGS[name]


def _check_values(config: CompilerConfig, values: Mapping[str, Any]) -> None:
    """Raises `PipelineError` for a value that its option does not take."""
    for name, value in values.items():
        if name != "harvested_rows" and hasattr(config, RENAMED.get(name, name)):
            compiler_config.check_option(RENAMED.get(name, name), value)
    if not 0 <= values.get("backend_opt_level", 4) <= 4:
        raise PipelineError(f"backend_opt_level is 0 to 4, not {values['backend_opt_level']!r}")
    if values.get("amp_level", 0) not in (0, 1, 2):
        raise PipelineError(f"amp_level is 0, 1 or 2, not {values['amp_level']!r}")
    if values.get("math_fidelity") is MathFidelity.Invalid:
        raise PipelineError("math_fidelity is LoFi, HiFi2, HiFi3 or HiFi4, not Invalid")


def set_configuration_options(
    enable_recompute: bool | None = None,
    balancer_policy: str | None = None,
    place_on_one_row: bool | None = None,
    enable_t_streaming: bool | None = None,
    manual_t_streaming: bool | None = None,
    enable_consteval: bool | None = None,
    default_df_override: DataFormat | None = None,
    accumulate_df: DataFormat | None = None,
    math_fidelity: MathFidelity | None = None,
    performance_trace: PerfTraceLevel | None = None,
    backend_opt_level: int | None = None,
    backend_output_dir: str | None = None,
    backend_device_descriptor_path: str | None = None,
    backend_cluster_descriptor_path: str | None = None,
    backend_runtime_params_path: str | None = None,
    backend_runtime_args: str | None = None,
    enable_auto_fusing: bool | None = None,
    enable_conv_prestride: bool | None = None,
    enable_stable_softmax: bool | None = None,
    amp_level: int | None = None,
    harvested_rows: list[int] | list[list[int]] | None = None,
    store_backend_db_to_yaml: bool | None = None,
    input_queues_on_host: bool | None = None,
    output_queues_on_host: bool | None = None,
    enable_auto_transposing_placement: bool | None = None,
    use_interactive_placer: bool | None = None,
    op_intermediates_to_save: list[str] | None = None,
    enable_enumerate_u_kt: bool | None = None,
    enable_device_tilize: bool | None = None,
    dram_placement_algorithm: DRAMPlacementAlgorithm | str | None = None,
    chip_placement_policy: str | None = None,
    enable_forked_dram_inputs: bool | None = None,
    device_config: str | None = None,
) -> None:
    """Set options of the global configuration; None leaves an option as it is.

    harvested_rows: physical rows to leave out, of all chips, or a list for each. device_config: one of DEVICE_CONFIGS.
    Options that change nothing here warn once with the reason. Raises `PipelineError` for an unknown device_config.
    """
    values = {name: value for name, value in locals().items() if value is not None}
    config = _get_global_compiler_config()
    if "device_config" in values:
        config.backend_device_descriptor_path = _device_of_config(values.pop("device_config"))
    algorithm = values.get("dram_placement_algorithm")
    if isinstance(algorithm, str):
        if algorithm not in DRAMPlacementAlgorithm.__members__:
            names = ", ".join(DRAMPlacementAlgorithm.__members__)
            raise PipelineError(f"dram_placement_algorithm {algorithm!r} is none of {names}")
        values["dram_placement_algorithm"] = DRAMPlacementAlgorithm[algorithm]
    _check_values(config, values)
    if "harvested_rows" in values:
        config.harvesting_masks = _masks(values.pop("harvested_rows"))
        config.harvesting_mask = functools.reduce(operator.or_, config.harvesting_masks, 0)
    for name, value in values.items():
        if name in NO_EFFECT and value != getattr(CompilerConfig(), name, None):
            compiler_config.warn_once(name, NO_EFFECT[name])
        field = RENAMED.get(name, name)
        if hasattr(config, field):
            setattr(config, field, value)


def _masks(rows: Any) -> tuple[int, ...]:
    """One mask of harvested rows for all chips, or one for each. Raises `PipelineError` for what is no list of rows."""
    try:
        by_chip = rows if any(isinstance(row, list | tuple) for row in rows) else [rows]
        result = [{operator.index(row) for row in chip} for chip in by_chip]
        if isinstance(rows, str | bytes | dict) or not all(0 <= row < 64 for chip in result for row in chip):
            raise ValueError(rows)
    except (TypeError, ValueError):
        raise PipelineError(
            "harvested_rows is a list of physical rows, such as [1, 11], or a list of those, one for "
            f"each chip, not {rows!r}"
        ) from None
    return tuple(sum(1 << row for row in chip) for chip in result) if any(result) else ()


def set_epoch_break(op_names: OpNames) -> None:
    """Start a new epoch at an op; at every match of a predicate; of a list, at whichever is scheduled first."""
    _get_global_compiler_config().add("epoch_break", op_names)


def set_chip_break(op_names: OpNames) -> None:
    """Start placing on the next chip at an op; predicates and lists as in `set_epoch_break`."""
    _get_global_compiler_config().add("chip_break", op_names)


def _two(op_name: str, call: str, value: Any) -> tuple[int, int]:
    try:
        rows, columns = (operator.index(part) for part in value)
    except (TypeError, ValueError):
        raise PipelineError(f"{call} of {op_name!r} takes (rows, columns), not {value!r}") from None
    return rows, columns


def override_op_size(op_name: str, grid_size: tuple[int, int]) -> None:
    """Give an op a grid of (rows, columns) cores."""
    _get_global_compiler_config().add("op_size", op_name, _two(op_name, "override_op_size", grid_size))


def override_t_stream_dir(op_name: str, direction: str | None) -> None:
    """Direction of an op's t-streaming: n, r, c, rz, cz; None is n."""
    text = (direction or "n").lower()
    if text not in ("n", "r", "c", "rz", "cz"):
        raise PipelineError(f"override_t_stream_dir of {op_name!r}: {direction!r} is none of n, r, c, rz, cz")
    _get_global_compiler_config().add("t_stream_dir", op_name, text)


def override_t_stream_shape(op_name: str, shape: tuple[int, int]) -> None:
    """Into how many (row, column) pieces an op streams its output."""
    _get_global_compiler_config().add("t_stream_shape", op_name, _two(op_name, "override_t_stream_shape", shape))


def override_u_kt(op_name: str, u_kt: int) -> None:
    """Tiles of the inner dimension that a matmul takes at once."""
    _get_global_compiler_config().add("u_kt", op_name, int(u_kt))


def override_input_buffer_multiplier(op_name: str, operand_index: int, *, multiplier: int) -> None:
    """Make an operand's L1 buffer `multiplier` times as large."""
    _get_global_compiler_config().add("input_buffer_multiplier", op_name, {int(operand_index): int(multiplier)})


def internal_override_output_buffer_multiplier(op_name: str, *, multiplier: int) -> None:
    """Make an op's output buffer `multiplier` macro blocks."""
    _get_global_compiler_config().add("output_buffer_multiplier", op_name, int(multiplier))


def override_dram_parameters(op_name: str, force_dram_parameters: bool) -> None:
    """Keep an op's parameters in DRAM (True) or preload them to L1 (False)."""
    _get_global_compiler_config().add("dram_parameters", op_name, bool(force_dram_parameters))


def override_dram_queue_placement(queue_name: str, *, chip_id: int | None = None, channel: int | None = None) -> None:
    """Put a queue on a chip and in a DRAM channel."""
    value = {k: v for k, v in (("chip", chip_id), ("channel", channel)) if v is not None}
    if not value:
        raise PipelineError(f"override_dram_queue_placement of {queue_name!r}: give chip_id, channel, or both")
    _get_global_compiler_config().add("queue_channel", queue_name, value)


def override_op_placement(
    op_name: str | NodePredicateBuilder,
    *,
    start: Sequence[int] | None = None,
    transpose_op: bool = False,
    chip_id: int | None = None,
    spatial_epoch_break: bool = False,
    temporal_epoch_break: bool = False,
) -> None:
    """Where an op goes: `start` core (row, column), transposed grid, chip; and whether it opens a new epoch."""
    if start is not None and (isinstance(start, str) or len(tuple(start)) != 2):
        raise PipelineError(f"override_op_placement of {op_name!r}: start is (row, column), not {start!r}")
    config = _get_global_compiler_config()
    value: dict[str, Any] = {"transpose": bool(transpose_op)} if transpose_op else {}
    if start is not None:
        row, column = start
        value["start"] = (int(row), int(column))
    if chip_id is not None:
        value["chip"] = int(chip_id)
    if value:
        config.add("op_placement", op_name, value)
    if temporal_epoch_break:
        config.add("epoch_break", op_name)
    if spatial_epoch_break:
        config.add("chip_break", op_name)


def insert_nop(
    src_op: str | NodePredicateBuilder,
    dest_ops: str | NodePredicateBuilder | Sequence[str | NodePredicateBuilder],
    *,
    hoist_tms: bool = True,
    nop_count: int = 1,
    daisy_chain: bool = False,
) -> None:
    """Put `nop_count` nops between an op and one or several of its readers, called `buffer_<i>_<src>_<dest>`.

    Several readers share the nops, or follow each other along them in a daisy chain. hoist_tms: the edge's TMs are
    applied before the nops (they then copy what the reader reads), else behind them.
    """
    Predicate = str | NodePredicateBuilder
    dests = (dest_ops,) if isinstance(dest_ops, Predicate) else tuple(dest_ops)
    if not isinstance(src_op, Predicate) or not dests or not all(isinstance(d, Predicate) for d in dests):
        raise PipelineError(f"insert_nop takes the names of an op and of its readers, not {src_op!r} and {dest_ops!r}")
    for what, flag in (("hoist_tms", hoist_tms), ("daisy_chain", daisy_chain)):
        if not isinstance(flag, bool):
            raise PipelineError(f"insert_nop: {what} is True or False, not {flag!r}")
    value = {"dest": dests, "hoist_tms": hoist_tms, "nop_count": nop_count, "daisy_chain": daisy_chain}
    _get_global_compiler_config().add("insert_nop", src_op, value)


def insert_buffering_nop(
    src_op: str, dest_ops: str | Sequence[str], *, hoist_tms: bool = True, nop_count: int = 1, daisy_chain: bool = False
) -> None:
    """The old name of `insert_nop`."""
    warnings.warn("insert_buffering_nop is called insert_nop now", DeprecationWarning, stacklevel=2)
    insert_nop(src_op, dest_ops, hoist_tms=hoist_tms, nop_count=nop_count, daisy_chain=daisy_chain)


def _internal_insert_fj_buffering_nop(
    src_op: str, dest_ops: str | Sequence[str], *, hoist_tms: bool = True, nop_count: int = 1, daisy_chain: bool = False
) -> None:
    """`insert_nop`: nops that buffer for a fork are nops like any other here."""
    insert_nop(src_op, dest_ops, hoist_tms=hoist_tms, nop_count=nop_count, daisy_chain=daisy_chain)


def add_schedule_constraint(partial_ordering: Sequence[str]) -> None:
    """These ops run in this order, whatever the scheduler policy would do."""
    names = () if isinstance(partial_ordering, str) else tuple(partial_ordering)
    if len(names) < 2 or not all(isinstance(n, str) for n in names):
        raise PipelineError(f"add_schedule_constraint takes a list of op names, not {partial_ordering!r}")
    _get_global_compiler_config().add("schedule_constraint", names)


def add_cpu_fallback_ops(op_types: str | list[str]) -> None:
    """Op types that run on the host."""
    _get_global_compiler_config().cpu_fallback_ops.update([op_types] if isinstance(op_types, str) else op_types)


def remove_cpu_fallback_ops(op_types: str | list[str]) -> None:
    """Take op types back from the host."""
    _get_global_compiler_config().cpu_fallback_ops.difference_update(
        [op_types] if isinstance(op_types, str) else op_types
    )


def set_auto_transposing_placement(enable_auto_transposing_placement: bool) -> None:
    """Let the placer turn grids where that saves space."""
    _get_global_compiler_config().enable_auto_transposing_placement = bool(enable_auto_transposing_placement)


def insert_fracture_group(nodes: Sequence[Any], chip_ids: Any = ()) -> None:
    """Cut ops into parts that are ops of their own. nodes: (name, dim or dims, number of parts along each), where the
    name is of an op, or of a parameter and means the matmul that it is the weight of; a bare name belongs to the group
    and is left whole. Dims count from the end. Raises `PipelineError`, and `NotSupported` for `chip_ids`."""
    if chip_ids:
        raise not_supported(
            "insert_fracture_group(chip_ids=...)",
            "place the parts, fractured_<k>_<op>, by override_op_placement(chip_id=)",
        )
    rules = []
    for node in nodes:
        if isinstance(node, str):
            continue
        if not isinstance(node, tuple | list) or len(node) != 3 or not isinstance(node[0], str):
            raise PipelineError(f"insert_fracture_group takes names and (name, dims, parts), not {node!r}")
        name, dims, parts = node[0], *(tuple([v] if isinstance(v, int) else v) for v in node[1:])
        if len(dims) != len(parts) or not all(isinstance(d, int) and d < 0 for d in dims) or min(parts) < 1:
            raise PipelineError(
                f"insert_fracture_group of {name!r}: dims count from the end (-1, -2, ...) and each "
                f"has a number of parts, not {dims} and {parts}"
            )
        rules.append((name, dims, parts))
    _get_global_compiler_config().fracture_groups.extend(rules)


def override_multi_op_fracture_factor(op_name: str, multi_op_fracture_factor: int) -> None:
    """Stored; it changes nothing, and the first compile warns of it."""
    _get_global_compiler_config().conv_multi_op_fracture_factor_override[op_name] = int(multi_op_fracture_factor)


def _input_format(index: int, value: Any) -> tuple[int, DataFormat, bool]:
    """(operand, format, whether activations change too) of one entry of `input_df`: a format, or a pair."""
    df, activations = value if isinstance(value, tuple | list) and len(value) == 2 else (value, False)
    if not isinstance(df, DataFormat):
        raise PipelineError(f"input_df is {{operand: (format, whether activations change)}}, not {value!r}")
    return int(index), df, bool(activations)


def _float(name: str, df: DataFormat | None) -> DataFormat | None:
    """The format, or None with a warning for one that holds no fractions: ops of floats keep their own then."""
    if df is None or df.is_float:
        return df
    warnings.warn(
        f"{name}={df.name} of mixed precision: an op of floats cannot have it and keeps its format; "
        "pybuda.op.Quantize and Dequantize calculate with integers",
        UserWarning,
        stacklevel=4,
    )
    return None


def configure_mixed_precision(
    *,
    op_type: str | None = None,
    epoch_type: str | None = None,
    output_df: DataFormat | None = None,
    intermediate_df: DataFormat | None = None,
    accumulate_df: DataFormat | None = None,
    math_fidelity: MathFidelity | None = None,
    name_regex: str | None = None,
    input_df: dict[int, Any] | None = None,
    is_gradient_op: bool | None = None,
    input_parameter_indices_to_optimize: list[tuple[int, int]] | None = None,
) -> None:
    """Formats and fidelity of ops: those whose name matches `name_regex` (the whole name), that are of `op_type` and of
    the part of training `epoch_type` ("forward", "backward", "optimizer"), and that add to the sum of a weight's
    gradient (`is_gradient_op`) or do not; each selector may be left out.
    Later calls win. An op that a pattern reaches and that cannot have the format keeps its own; what each call changed
    is in `CompileResults.precision_report`. A format of integers warns: no op of floats can have it.

    input_df: {operand: (format, whether an op that feeds it changes too)}. input_parameter_indices_to_optimize:
    (operand, mantissa bits) of parameters.
    Raises `PipelineError` without a selector, `NotSupported` for a part of it that there is not.
    """
    rule = _precision_rule(
        "configure_mixed_precision",
        op_type,
        epoch_type,
        output_df,
        intermediate_df,
        accumulate_df,
        math_fidelity,
        name_regex,
        input_df,
        is_gradient_op,
        input_parameter_indices_to_optimize,
    )
    config = _get_global_compiler_config()
    selects = rule.part is not None or rule.gradients is not None
    if selects or rule.inputs or rule.weight_bits or rule.intermediate_df is not None or rule.accumulate_df is not None:
        config.amp_properties.append(rule)
        return
    target: str | NodePredicateBuilder = query.name_regex(".*" if name_regex is None else name_regex)
    if op_type is not None:
        target = query.name_regex(name_regex or ".*") & query.op_type(op_type)
    if rule.output_df is not None:
        config.add("data_format", target, rule.output_df.name)
    if math_fidelity is not None:
        config.add("math_fidelity", target, math_fidelity.name)


def AMPNodeProperties(
    op_type: str | None = None,
    epoch_type: Any = None,
    output_df: DataFormat | None = None,
    intermediate_df: DataFormat | None = None,
    accumulate_df: DataFormat | None = None,
    math_fidelity: MathFidelity | None = None,
    name_regex_match: str | None = None,
    input_df: dict[int, Any] | None = None,
    is_gradient_op: bool | None = None,
    input_parameter_indices_to_optimize: list[tuple[int, int]] | None = None,
) -> PrecisionRule:
    """An entry of `CompilerConfig.amp_properties`, of which later ones win. Arguments and errors are those of
    `configure_mixed_precision`, with `name_regex_match` for its `name_regex`."""
    return _precision_rule(
        "AMPNodeProperties",
        op_type,
        epoch_type,
        output_df,
        intermediate_df,
        accumulate_df,
        math_fidelity,
        name_regex_match,
        input_df,
        is_gradient_op,
        input_parameter_indices_to_optimize,
    )


def _precision_rule(
    call: str,
    op_type: str | None,
    epoch_type: Any,
    output_df: DataFormat | None,
    intermediate_df: DataFormat | None,
    accumulate_df: DataFormat | None,
    math_fidelity: MathFidelity | None,
    name_regex: str | None,
    input_df: dict[int, Any] | None,
    is_gradient_op: bool | None,
    input_parameter_indices_to_optimize: list[tuple[int, int]] | None,
) -> PrecisionRule:
    """The rule that the arguments of `call` state. Raises what `configure_mixed_precision` raises."""
    if math_fidelity is MathFidelity.Invalid:
        raise PipelineError("math_fidelity is LoFi, HiFi2, HiFi3 or HiFi4, not Invalid")
    if op_type is None and name_regex is None and epoch_type is None and is_gradient_op is None:
        raise PipelineError(f"{call} selects ops: give op_type, a pattern of names, epoch_type or is_gradient_op")
    part = None if epoch_type is None else str(getattr(epoch_type, "name", epoch_type)).lower()
    if part not in (None, *EPOCH_TYPES):
        raise PipelineError(f"epoch_type is one of {', '.join(EPOCH_TYPES)}, not {epoch_type!r}")
    gradients = None if is_gradient_op is None else bool(is_gradient_op)
    inputs = tuple(_input_format(index, value) for index, value in (input_df or {}).items())
    pairs = [
        tuple(pair) if isinstance(pair, Sequence) else (pair,) for pair in input_parameter_indices_to_optimize or ()
    ]
    if any(len(pair) != 2 for pair in pairs):
        raise PipelineError(
            "input_parameter_indices_to_optimize has pairs (operand, mantissa bits), such as [(1, 8)], "
            f"not {input_parameter_indices_to_optimize}"
        )
    bits = tuple((int(index), int(count)) for index, count in pairs)
    if any(count not in (8, 4, 2) for _, count in bits):
        raise PipelineError(f"input_parameter_indices_to_optimize has mantissas of 8, 4 or 2 bits, not {bits}")
    if name_regex is not None:
        query.name_regex(name_regex)
    selectors = {"op_type": op_type, "name_regex": name_regex, "epoch_type": part, "is_gradient_op": gradients}
    text = ", ".join(f"{k}={v}" for k, v in selectors.items() if v is not None)
    return PrecisionRule(
        f"{call}({text})",
        name_regex,
        op_type,
        _float("output_df", output_df),
        _float("intermediate_df", intermediate_df),
        _float("accumulate_df", accumulate_df),
        math_fidelity,
        tuple(entry for entry in inputs if _float("input_df", entry[1]) is not None),
        bits,
        part,
        gradients,
    )


def set_num_repeated_patterns(module_name: str, num_patterns: int) -> None:
    """Stored; it changes nothing, and the first compile warns of it."""
    _get_global_compiler_config().tvm_module_to_num_patterns[module_name] = int(num_patterns)


def _set_pybuda_override_veto(general: dict[str, Any] | None = None, environ: dict[str, Any] | None = None) -> None:
    """Options that win over the global configuration until the next reset (`general`); `environ` is set now."""
    config = _get_global_compiler_config()
    for name, value in (general or {}).items():
        field = RENAMED.get(name, name)
        if not hasattr(config, field):
            raise PipelineError(f"no option {name!r} to veto")
        setattr(config, field, value)
    for name, value in (environ or {}).items():
        os.environ[str(name)] = str(value)
