"""The options of a compile; see `core.overrides` for what is asked of single ops and queues."""

from __future__ import annotations

import dataclasses
import enum
import math
import numbers
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.name_patterns import name_pattern


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer that runs on the device. kind: "sgd", "adam", "adamw", "lamb" or "lars"; settings: its numbers by
    name, in alphabetical order (see `passes.autograd.optimizers`); runtime: those that the host may change between
    steps, beside the learning rate."""

    kind: str
    settings: tuple[tuple[str, float | bool | tuple[float, float]], ...] = ()
    runtime: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """What a compile for training adds to the model's graph.

    optimizer: None leaves the gradients to the host. updated: the weights that it changes; None: all.
    input_gradients: inputs by whose values gradients are sent back to the device before. recompute: the backward part
    calculates forward values anew instead of reading them from DRAM. batches: microbatches that may run forward before
    the first of them runs backward. per_weight: optimizers of single weights, by name, instead of `optimizer`.
    max_grad_norm: gradients are scaled down so that their common Euclidean norm is at most this; None: as they are.
    """

    optimizer: OptimizerOptions | None = None
    input_gradients: tuple[str, ...] = ()
    recompute: bool = False
    batches: int = 1
    updated: tuple[str, ...] | None = None
    per_weight: tuple[tuple[str, OptimizerOptions], ...] = ()
    max_grad_norm: float | None = None


@dataclasses.dataclass(frozen=True)
class PrecisionRule:
    """Formats and fidelity of the ops that a selector means; see `lowering.precision`.

    reason: who asked and why, one line. name: a pattern of whole names; op_type: a type in the model or of the
    hardware; part: "forward", "backward" or "optimizer"; gradients: whether the op adds to the sum of a weight's
    gradient (False: those that do not). inputs: (operand, format, whether an op that feeds it changes too);
    weight_bits: (operand, mantissa bits 8, 4 or 2) of parameters.
    """

    reason: str
    name: str | None = None
    op_type: str | None = None
    output_df: DataFormat | None = None
    intermediate_df: DataFormat | None = None
    accumulate_df: DataFormat | None = None
    math_fidelity: MathFidelity | None = None
    inputs: tuple[tuple[int, DataFormat, bool], ...] = ()
    weight_bits: tuple[tuple[int, int], ...] = ()
    part: str | None = None
    gradients: bool | None = None

    def __post_init__(self) -> None:
        """Raises `InputError` where the name is not a pattern."""
        if self.name is not None and (fault := pattern_fault(self.name)):
            raise InputError(f"the name of a precision rule is a pattern: {fault}")


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """Options of one compile. Names follow PyBuda's `CompilerConfig` where it has the option."""

    default_df_override: DataFormat | None = None   # None: Float16_b for Float32 models
    default_accumulate_df: DataFormat | None = None
    default_math_fidelity: MathFidelity = MathFidelity.HiFi3
    fp32_fallback: DataFormat = DataFormat.Float16_b
    balancer_policy: str = "default"
    scheduler_policy: str = "ModuleInputsBFS"
    enable_t_streaming: bool = True
    manual_t_streaming: bool = False
    enable_consteval: bool = True
    enable_enumerate_u_kt: bool = True
    enable_stable_softmax: bool = True
    enable_conv_prestride: bool = True
    enable_auto_fusing: bool = True                 # chains of element-wise ops as one op
    op_names_dont_fuse: tuple[str, ...] = ()
    op_names_manual_fuse: tuple[str, ...] = ()      # patterns: where there are any, only ops that match are fused
    fuse_outputs: bool = False                      # also an output's ops, which a nop then untilizes, as PyBuda does
    number_fused_ops: bool = False                  # fused ops have numbers for names, as PyBuda's, not their last op's
    fuse_reduces: bool = False                      # sums and means join chains of element-wise ops
    fuse_biases: bool = True                        # added row vectors are operands of the matmul before them
    fill_tiles_on_host: bool = True                 # weights with a size of 1 are stored with full tiles; else ops fill
    enable_conv_splitting: bool = True              # slow depthwise convolutions share their kernel positions
    enable_matmul_splitting: bool = True            # pairs of matmuls whose weights fit L1 in parts alone; batches
    op_parts: tuple[tuple[str, int], ...] = ()      # convolutions and second matmuls of pairs, cut into so many parts
    enable_row_padding: bool = True                 # tile rows with few divisors are padded to more
    op_names_pad: tuple[str, ...] = ()              # ops of the lowered graph whose rows are padded in any case
    op_names_dont_pad: tuple[str, ...] = ()         # and those whose rows are not
    op_rows: tuple[tuple[str, int], ...] = ()       # and those that have so many tile rows
    enable_fork_join_buffering: bool = True         # nops, queues and cuts where an epoch would not flow
    enable_auto_transposing_placement: bool = False
    place_on_one_row: bool = False                  # every op on cores of one row
    enable_single_buffer_fallback: bool = False
    default_dram_parameters: bool | None = None     # None: `Optimal` weighs it; else at microbatch 1 they stay in DRAM
    input_queues_on_host: bool = True
    output_queues_on_host: bool = True
    dram_placement_algorithm: str = "ROUND_ROBIN"
    chip_placement_policy: str = "MMIO_LAST"
    microbatch: int = 1
    objective: str = "auto"                         # what Optimal minimises: see OBJECTIVES
    target_cycles: int | None = None                # None: the policy's own target
    epoch_switch_cycles: int = 20_000               # what Optimal charges for an epoch: for switching to it,
    epoch_fill_cycles: int | None = None            # and per op of its longest chain for filling it (None: simulated)
    schedule_swaps: int = 16                        # trials of Optimal's search over other schedules; 0: none
    time_budget: float | None = None                # seconds after which Optimal searches no more; None: by steps
    optimise_steps: int = 0                         # steps of the search that goes on from a placement
    optimise_seconds: float | None = None           # or as many as these seconds allow (then results depend on time)
    cpu_fallback: str = "automatic"                 # what the host runs between the device's ops: see FALLBACKS
    cpu_fallback_ops: tuple[str, ...] = ("embedding",)  # types of ops that it runs in any case
    seed: int = 0
    fracture_groups: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()  # (name, dims, parts along each)
    precision: tuple[PrecisionRule, ...] = ()       # mixed precision, in order: the last wins
    training: TrainingOptions | None = None         # None: inference
    loaded_once: bool = False                       # epochs are loaded before the first run and stay: no run switches

    def __post_init__(self) -> None:
        """Raises `InputError` with a diagnostic for each value that no compile could use. Lists of names become tuples,
        and so does mappings of names."""
        for name in ("op_names_dont_fuse", "op_names_manual_fuse", "op_names_pad", "op_names_dont_pad",
                     "cpu_fallback_ops"):
            names = getattr(self, name)
            if isinstance(names, list | set | frozenset):
                object.__setattr__(self, name, tuple(names) if isinstance(names, list) else tuple(sorted(names)))
        for name in _NUMBERS_OF_OPS:
            numbers = getattr(self, name)
            if isinstance(numbers, dict) and all(isinstance(op, str) for op in numbers):
                object.__setattr__(self, name, tuple(sorted(numbers.items())))
        wrong = [Diagnostic("error", name, "option-value", *fault) for name, fault in _faults(self)]
        if wrong:
            raise InputError(f"illegal value of {quantity(len(wrong), 'option')}", wrong)

    @property
    def data_format(self) -> DataFormat:
        """The format of activations and parameters when nothing more special is said."""
        return self.default_df_override or DataFormat.Float16_b

    @property
    def inputs_counted(self) -> int:
        """Inputs among which the objective shares what a batch pays once: filling, preloading, switches of epochs."""
        return 1 if self.objective == "latency" else self.microbatch

    @property
    def counts_fill(self) -> bool:
        """Whether an epoch is charged for all that a batch of it takes in the simulator of epochs, filling included."""
        latency = self.objective in ("auto", "latency")
        return self.epoch_fill_cycles is None and (self.inputs_counted > 1 or latency)

    @property
    def streams_parameters(self) -> bool:
        """Whether parameters that are not small stay in DRAM. At one input a run they do, as in PyBuda, unless the
        policy counts what loading them takes."""
        if self.default_dram_parameters is not None:
            return self.default_dram_parameters
        counts_loads = self.balancer_policy.lower() in ("", "default", "optimal") and self.counts_fill
        return self.inputs_counted == 1 and not counts_loads


OBJECTIVES = ("auto", "latency", "throughput")
"""auto: cycles of the batch (`microbatch` inputs) by the simulator of epochs; latency: cycles from end to end of one
input alone, whatever the batch; throughput: as auto, but with a batch of one as if one input followed the other, so
that nothing is ever filled."""

FALLBACKS = ("automatic", "named", "none")
"""automatic: the host runs what the device has no form for, and what `cpu_fallback_ops` names; named: that alone; none:
nothing, and such a model is refused."""

_LEAST = {
    "microbatch": 1, "schedule_swaps": 0, "seed": 0, "epoch_switch_cycles": 0, "epoch_fill_cycles": 0,
    "target_cycles": 0, "time_budget": 0, "optimise_steps": 0, "optimise_seconds": 0,
}  # fmt: skip
_MOST = {"microbatch": 1 << 16}
_WHOLE = ("microbatch", "schedule_swaps", "seed", "optimise_steps")
_OPEN = (
    "epoch_fill_cycles", "target_cycles", "time_budget", "optimise_seconds", "default_df_override",
    "default_accumulate_df",
)  # fmt: skip
_NUMBERS_OF_OPS = ("op_parts", "op_rows")
_TEXTS = ("balancer_policy", "scheduler_policy", "dram_placement_algorithm", "chip_placement_policy")
_KINDS: dict[str, type[enum.Enum]] = {
    "default_df_override": DataFormat, "default_accumulate_df": DataFormat, "fp32_fallback": DataFormat,
    "default_math_fidelity": MathFidelity,
}  # fmt: skip


def _faults(options: CompileOptions) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of every option whose value has no meaning: its name, what is wrong, what would work."""
    for name, least in _LEAST.items():
        value: Any = getattr(options, name)
        number = isinstance(value, numbers.Integral if name in _WHOLE else numbers.Real)
        most = _MOST.get(name, math.inf)
        good = number and least <= value <= most and value < math.inf  # no NaN
        if not good and not (value is None and name in _OPEN):
            what = "a whole number" if name in _WHOLE else "a number"
            upto = f" to {most}" if name in _MOST else ""
            shown = "a huge number" if isinstance(value, int) and value.bit_length() > 200 else repr(value)
            yield name, (f"it is {shown}", f"{what} from {least}{upto}{', or None' if name in _OPEN else ''}")
    for name, names in _KINDS.items():
        value = getattr(options, name)
        if not isinstance(value, names) and not (value is None and name in _OPEN):
            allowed = ", ".join(member.name for member in names)
            yield name, (f"{value!r} is not a {names.__name__}", f"a {names.__name__}: {allowed}")
    chosen = options.default_df_override
    if isinstance(chosen, DataFormat) and (not chosen.is_float or chosen is DataFormat.Lf8):
        why = "is a format of transfers" if chosen is DataFormat.Lf8 else "holds integers"
        why = "is not a format" if chosen is DataFormat.Invalid else why
        yield "default_df_override", (f"{chosen.name} {why}; activations and weights are calculated with",
                                      "Float32, Float16, Float16_b, or a block format Bfp8, Bfp4, Bfp2 or with _b; "
                                      "single tensors are quantised by pybuda.op.Quantize")
    if options.objective not in OBJECTIVES:
        yield "objective", (f"{options.objective!r} is not an objective", f"known: {', '.join(OBJECTIVES)}")
    if options.cpu_fallback not in FALLBACKS:
        yield "cpu_fallback", (f"{options.cpu_fallback!r} is not a way to fall back", f"known: {', '.join(FALLBACKS)}")
    for name in _TEXTS:
        if not isinstance(getattr(options, name), str):
            yield name, (f"{getattr(options, name)!r} is not a name", "a string; the compile lists the names")
    for name in ("op_names_dont_fuse", "op_names_manual_fuse", "cpu_fallback_ops"):
        value = getattr(options, name)
        if not (isinstance(value, tuple) and all(isinstance(n, str) for n in value)):
            yield name, (f"{value!r} is not a tuple of names", "a tuple of names")
        elif name == "op_names_manual_fuse":
            yield from ((name, (fault, "patterns of whole op names")) for fault in map(pattern_fault, value) if fault)


    for name in _NUMBERS_OF_OPS:
        value = getattr(options, name)
        if not (isinstance(value, tuple) and all(
            isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int
            and pair[1] > 0 for pair in value
        )):  # fmt: skip
            yield name, (f"{value!r} has no positive number for each of several ops", "{name of an op: 2}")


def pattern_fault(text: object) -> str:
    """Why a text is not a regular expression that names are compared with (`name_patterns`); empty if it is one."""
    if not isinstance(text, str):
        return f"a pattern is a text, not {text!r}"
    try:
        name_pattern(text)
    except ValueError as error:
        shown = text if len(text) <= 200 else text[:200] + "..."
        return f"{shown!r} is not a regular expression: {error}; re.escape(name) gives that of a name"
    return ""


BACK_END = (
    "balancer_policy", "scheduler_policy", "enable_t_streaming", "manual_t_streaming", "enable_enumerate_u_kt",
    "enable_auto_transposing_placement", "enable_single_buffer_fallback", "default_dram_parameters",
    "dram_placement_algorithm", "chip_placement_policy", "target_cycles", "seed", "enable_fork_join_buffering",
    "schedule_swaps", "time_budget", "place_on_one_row", "epoch_switch_cycles", "epoch_fill_cycles",
    "objective", "optimise_steps", "optimise_seconds", "loaded_once",
)  # fmt: skip
"""Options that neither passes nor lowering read."""


LOWERING = (
    "enable_auto_fusing", "op_names_dont_fuse", "op_names_manual_fuse", "fuse_outputs", "number_fused_ops",
    "fuse_reduces", "enable_conv_splitting", "enable_matmul_splitting", "op_parts", "enable_row_padding",
    "op_names_pad", "op_names_dont_pad", "op_rows",
)  # fmt: skip
"""Options of lowering that decide which ops there are, and not what one of them costs; no pass reads them."""


def front_end(options: CompileOptions) -> CompileOptions:
    """The options as passes and lowering see them: all others have their defaults."""
    plain = CompileOptions()
    return dataclasses.replace(options, **{name: getattr(plain, name) for name in BACK_END})


def options_changed(before: CompileOptions, after: CompileOptions) -> dict[str, Any]:
    """By name, the values of `after` that are not those of `before`, in the order of the fields."""
    names = [field.name for field in dataclasses.fields(after)]
    return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}


# -- files -------------------------------------------------------------------------------------------------------------
def plain_value(value: Any) -> Any:
    """A value of an option as JSON has it."""
    if isinstance(value, (DataFormat, MathFidelity)):
        return value.name
    if isinstance(value, PrecisionRule):
        plain = {f.name: plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {name: item for name, item in plain.items() if item not in (None, [])}
    return [plain_value(item) for item in value] if isinstance(value, tuple) else value


def _rule_from_json(fields: Any) -> PrecisionRule:
    """A rule from plain data. Raises `InputError`."""
    hints = get_type_hints(PrecisionRule)
    if not isinstance(fields, dict) or not set(fields) <= set(hints) or not isinstance(fields.get("reason"), str):
        raise InputError(f"a precision rule has a reason and some of {', '.join(hints)}, not {fields!r}")
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("reason", "name", "op_type") and isinstance(value, str):
            values[name] = value
        elif name == "math_fidelity" or name.endswith("_df"):
            values[name] = _member(MathFidelity if name == "math_fidelity" else DataFormat, name, value)
        elif name == "inputs" and isinstance(value, list):
            rows = [row for row in value if isinstance(row, list) and len(row) == 3 and type(row[0]) is int]
            if len(rows) != len(value):
                raise InputError(f"inputs of a precision rule are (operand, format, whether), not {value!r}")
            values[name] = tuple((row[0], _member(DataFormat, name, row[1]), bool(row[2])) for row in rows)
        elif name == "weight_bits" and isinstance(value, list) and all(
            isinstance(row, list) and len(row) == 2 and all(type(n) is int for n in row) and row[1] in (8, 4, 2)
            for row in value
        ):
            values[name] = tuple((row[0], row[1]) for row in value)
        else:
            raise InputError(f"{name} of a precision rule does not take {value!r}")
    return PrecisionRule(**values)


def _member(kind: type[enum.Enum], name: str, value: Any) -> Any:
    members = {member.name: member for member in kind}
    if not isinstance(value, str) or value not in members:
        raise InputError(f"{name} is one of {', '.join(members)}, not {value!r}")
    return members[value]


def options_to_json(options: CompileOptions) -> dict[str, Any]:
    """The options that are not at their defaults, as plain data; `options_from_json` reads it. `training` is not among
    them: who writes it has a form of its own."""
    changed = options_changed(CompileOptions(), options)
    return {name: plain_value(value) for name, value in changed.items() if name != "training"}


def options_from_json(fields: Any) -> dict[str, Any]:
    """Options from plain data, each checked against the type of its field."""
    if not isinstance(fields, dict):
        raise InputError("options are an object of names and values")
    hints = get_type_hints(CompileOptions)
    values: dict[str, Any] = {}
    for name, value in fields.items():
        if name not in hints:
            raise InputError(f"unknown option {name!r}; known: {', '.join(hints)}")
        hint = str(hints[name])
        enum = DataFormat if "DataFormat" in hint else MathFidelity if "MathFidelity" in hint else None
        if name == "precision" and isinstance(value, list):
            values[name] = tuple(_rule_from_json(rule) for rule in value)
        elif name in _NUMBERS_OF_OPS and isinstance(value, list) and all(isinstance(pair, list) for pair in value):
            values[name] = tuple(tuple(pair) for pair in value)
        elif name == "training":
            raise InputError("training is not an option of a file; Session.for_training makes a session that trains")
        elif value is None and "None" in hint:
            values[name] = None
        elif enum is not None:
            members = {member.name: member for member in enum}
            if not isinstance(value, str) or value not in members:
                raise InputError(f"{name} is one of {', '.join(members)}, not {value!r}")
            values[name] = members[value]
        elif "tuple" in hint and isinstance(value, list) and all(isinstance(v, str) for v in value):
            values[name] = tuple(value)
        elif type(value).__name__ in re.findall(r"\w+", hint):
            values[name] = value
        else:
            raise InputError(f"{name} does not take {value!r}")
    return values
