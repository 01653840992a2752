"""The options of a compile; see `core.overrides` for what is asked of single ops and queues."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import numbers
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.files.codec import fields_of, to_plain
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
        """Raises `InputError` where the name is not a pattern, or for bits or formats that nothing has."""
        if self.name is not None and (fault := pattern_fault(self.name)):
            raise InputError(f"the name of a precision rule is a pattern: {fault}")
        if any(bits not in (8, 4, 2) for _, bits in self.weight_bits):
            raise InputError(f"weight_bits of a precision rule are 8, 4 or 2, not {self.weight_bits!r}")
        formats = [(name, getattr(self, name)) for name in ("output_df", "intermediate_df", "accumulate_df")]
        for name, chosen in (*formats, *(("inputs", df) for _, df, _ in self.inputs)):
            if chosen is not None and (not chosen.is_float or chosen in (DataFormat.Lf8, DataFormat.Fp8_e4m3)):
                fix = "Float32, Float16, Float16_b, or a block format; pybuda.op.Quantize makes integers"
                raise InputError(f"{name} of a precision rule: nothing is calculated in {chosen.name}; {fix}")


OBJECTIVES = ("auto", "latency", "throughput")
"""auto: cycles of the batch (`microbatch` inputs) by the simulator of epochs; latency: cycles from end to end of one
input alone, whatever the batch; throughput: as auto, but with a batch of one as if one input followed the other, so
that nothing is ever filled, and on several chips as if batches followed each other: what counts is their slowest."""

ACCUMULATORS = (
    DataFormat.Float32,
    DataFormat.Float16,
    DataFormat.Float16_b,
    DataFormat.Bfp8,
    DataFormat.Bfp8_b,
)
"""Formats in which sums of floats may be kept (rules O14.intermed and O16.math)."""

FALLBACKS = ("automatic", "named", "none")
"""automatic: the host runs what the device has no form for, and what `cpu_fallback_ops` names; named: that alone; none:
nothing, and such a model is refused."""


class Stage(enum.IntEnum):
    """The first stage of a compile that reads an option. What earlier stages made stays when it changes."""

    PASSES = 0
    LOWERING = 1
    BALANCER = 2
    PLACER = 3  # it chooses among candidates: tables are the same whatever it says, but for `streams_parameters`
    SEARCH = 4  # it goes on from a placement


def _option(
    default: Any,
    stage: Stage = Stage.PASSES,
    *,
    least: float | None = None,
    most: float = math.inf,
    whole: bool = False,
    choices: tuple[str, ...] = (),
    patterns: bool = False,
) -> Any:
    """A field with what is known of the option: who reads it first, the range of a number (whole: no fraction), the
    words that it may be, or that its names are patterns. Where the default is None, None is a value."""
    known = {"stage": stage, "least": least, "most": most, "whole": whole, "choices": choices, "patterns": patterns}
    return dataclasses.field(default=default, metadata=known)


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """Options of one compile. Names follow PyBuda's `CompilerConfig` where it has the option."""

    default_df_override: DataFormat | None = None  # None: Float16_b for Float32 models
    default_accumulate_df: DataFormat | None = None
    default_math_fidelity: MathFidelity = MathFidelity.HiFi3
    fp32_fallback: DataFormat = DataFormat.Float16_b
    balancer_policy: str = _option("default", Stage.PLACER)
    scheduler_policy: str = _option("ModuleInputsBFS", Stage.PLACER)
    enable_t_streaming: bool = _option(True, Stage.BALANCER)
    manual_t_streaming: bool = _option(False, Stage.BALANCER)
    enable_consteval: bool = True
    enable_enumerate_u_kt: bool = _option(True, Stage.BALANCER)
    enable_stable_softmax: bool = True
    enable_conv_prestride: bool = True
    enable_auto_fusing: bool = _option(True, Stage.LOWERING)  # chains of element-wise ops as one op
    op_names_dont_fuse: tuple[str, ...] = _option((), Stage.LOWERING)
    # patterns: where there are any, only ops that match are fused
    op_names_manual_fuse: tuple[str, ...] = _option((), Stage.LOWERING, patterns=True)
    # also an output's ops, which a nop then untilizes, as PyBuda does
    fuse_outputs: bool = _option(False, Stage.LOWERING)
    # fused ops have numbers for names, as PyBuda's, not their last op's
    number_fused_ops: bool = _option(False, Stage.LOWERING)
    fuse_reduces: bool = _option(False, Stage.LOWERING)  # sums and means join chains of element-wise ops
    fuse_biases: bool = True  # added row vectors are operands of the matmul before them
    fill_tiles_on_host: bool = True  # weights with a size of 1 are stored with full tiles; else ops fill
    # slow depthwise convolutions share their kernel positions
    enable_conv_splitting: bool = _option(True, Stage.LOWERING)
    # pairs of matmuls whose weights fit L1 in parts alone; batches
    enable_matmul_splitting: bool = _option(True, Stage.LOWERING)
    # convolutions and second matmuls of pairs, cut into so many parts
    op_parts: tuple[tuple[str, int], ...] = _option((), Stage.LOWERING)
    enable_row_padding: bool = _option(True, Stage.LOWERING)  # tile rows with few divisors are padded to more
    # ops of the lowered graph whose rows are padded in any case
    op_names_pad: tuple[str, ...] = _option((), Stage.LOWERING)
    op_names_dont_pad: tuple[str, ...] = _option((), Stage.LOWERING)  # and those whose rows are not
    op_rows: tuple[tuple[str, int], ...] = _option((), Stage.LOWERING)  # and those that have so many tile rows
    # nops, queues and cuts where an epoch would not flow
    enable_fork_join_buffering: bool = _option(True, Stage.PLACER)
    enable_auto_transposing_placement: bool = _option(False, Stage.PLACER)
    place_on_one_row: bool = _option(False, Stage.BALANCER)  # every op on cores of one row
    enable_single_buffer_fallback: bool = _option(False, Stage.BALANCER)
    # None: `Optimal` weighs it; else at microbatch 1 they stay in DRAM
    default_dram_parameters: bool | None = _option(None, Stage.BALANCER)
    input_queues_on_host: bool = True
    output_queues_on_host: bool = True
    dram_placement_algorithm: str = _option("ROUND_ROBIN", Stage.PLACER)
    chip_placement_policy: str = _option("MMIO_LAST", Stage.PLACER)
    microbatch: int = _option(1, least=1, most=1 << 16, whole=True)
    objective: str = _option("auto", Stage.BALANCER, choices=OBJECTIVES)  # what Optimal minimises: see OBJECTIVES
    target_cycles: int | None = _option(None, Stage.PLACER, least=0)  # None: the policy's own target
    # what Optimal charges for an epoch: for switching to it
    epoch_switch_cycles: int = _option(20_000, Stage.PLACER, least=0)
    # and per op of the longest chain for filling it (None: simulated)
    epoch_fill_cycles: int | None = _option(None, Stage.PLACER, least=0)
    # trials of Optimal's search over other schedules; 0: none
    schedule_swaps: int = _option(16, Stage.PLACER, least=0, whole=True)
    # seconds after which Optimal searches no more; None: by steps
    time_budget: float | None = _option(None, Stage.PLACER, least=0)
    # steps of the search that goes on from a placement
    optimise_steps: int = _option(0, Stage.SEARCH, least=0, whole=True)
    # rounds of so many steps, each from where the one before ended and with steps drawn by its name; (): one round
    optimise_rounds: tuple[str, ...] = _option((), Stage.SEARCH)
    # or as many steps as these seconds allow (then results depend on time)
    optimise_seconds: float | None = _option(None, Stage.SEARCH, least=0)
    # what the host runs between the device's ops: see FALLBACKS
    cpu_fallback: str = _option("automatic", choices=FALLBACKS)
    cpu_fallback_ops: tuple[str, ...] = ("embedding",)  # types of ops that it runs in any case
    seed: int = _option(0, Stage.PLACER, least=0, whole=True)
    fracture_groups: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()  # (name, dims, parts along each)
    precision: tuple[PrecisionRule, ...] = ()  # mixed precision, in order: the last wins
    training: TrainingOptions | None = None  # None: inference
    loaded_once: bool = _option(False, Stage.PLACER)  # epochs are loaded before the first run and stay: no run switches

    def __post_init__(self) -> None:
        """Raises `InputError` with a diagnostic for each value that no compile could use. Lists of names become tuples,
        and so does mappings of names."""
        for name, kind in _types().items():
            value = getattr(self, name)
            if kind == _NAMES and isinstance(value, list | set | frozenset):
                object.__setattr__(self, name, tuple(value) if isinstance(value, list) else tuple(sorted(value)))
            if kind == _NUMBERS_OF_OPS and isinstance(value, dict) and all(isinstance(op, str) for op in value):
                object.__setattr__(self, name, tuple(sorted(value.items())))
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


_NAMES = tuple[str, ...]
_NUMBERS_OF_OPS = tuple[tuple[str, int], ...]


@functools.cache
def _types() -> dict[str, Any]:
    """Option -> the type of its field."""
    return get_type_hints(CompileOptions)


def _faults(options: CompileOptions) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of every option whose value has no meaning: its name, what is wrong, what would work."""
    for field in dataclasses.fields(options):
        value, kind = getattr(options, field.name), _types()[field.name]
        if value is None and field.default is None:
            continue
        fault = _fault(value, kind, field.metadata)
        if fault is not None:
            yield field.name, fault
    if options.optimise_rounds and not options.optimise_steps:
        yield "optimise_rounds", ("there is no search of so many steps", "give optimise_steps, or no rounds")
    for name in ("default_df_override", "fp32_fallback"):
        chosen = getattr(options, name)
        transfers = chosen in (DataFormat.Lf8, DataFormat.Fp8_e4m3)
        if isinstance(chosen, DataFormat) and (not chosen.is_float or transfers):
            why = "is a format of transfers" if transfers else "holds integers"
            why = "is not a format" if chosen is DataFormat.Invalid else why
            yield (
                name,
                (
                    f"{chosen.name} {why}; activations and weights are calculated with",
                    "Float32, Float16, Float16_b, or a block format Bfp8, Bfp4, Bfp2 or with _b; "
                    "single tensors are quantised by pybuda.op.Quantize",
                ),
            )
    sums = options.default_accumulate_df
    if isinstance(sums, DataFormat) and sums not in ACCUMULATORS:
        why = f"partial results of floats are not kept in {sums.name}"
        yield "default_accumulate_df", (why, f"legal: {', '.join(df.name for df in ACCUMULATORS)}")


def _fault(value: Any, kind: Any, known: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is wrong with a value that is not None, and what would work; None where nothing is."""
    members = next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, enum.Enum)), None)
    if members is not None and not isinstance(value, members):
        allowed = ", ".join(member.name for member in members)
        return f"{value!r} is not a {members.__name__}", f"a {members.__name__}: {allowed}"
    if known.get("least") is not None:
        return _fault_of_number(value, known, type(None) in get_args(kind))
    if known.get("choices") and value not in known["choices"]:
        return f"{value!r} is none of its words", f"known: {', '.join(known['choices'])}"
    if kind is str and not isinstance(value, str):
        return f"{value!r} is not a name", "a string; the compile lists the names"
    if kind == _NAMES and not (isinstance(value, tuple) and all(isinstance(name, str) for name in value)):
        return f"{value!r} is not a tuple of names", "a tuple of names"
    if known.get("patterns") and (fault := next(filter(None, map(pattern_fault, value)), "")):
        return fault, "patterns of whole op names"
    if kind == _NUMBERS_OF_OPS and not (isinstance(value, tuple) and all(map(_is_number_of_op, value))):
        return f"{value!r} has no positive number for each of several ops", "{name of an op: 2}"
    return None


def _fault_of_number(value: Any, known: Mapping[str, Any], optional: bool) -> tuple[str, str] | None:
    number = isinstance(value, numbers.Integral if known["whole"] else numbers.Real)
    if number and known["least"] <= value <= known["most"] and value < math.inf:  # no NaN
        return None
    shown = "a huge number" if isinstance(value, int) and value.bit_length() > 200 else repr(value)
    upto = "" if known["most"] == math.inf else f" to {known['most']}"
    what = "a whole number" if known["whole"] else "a number"
    return f"it is {shown}", f"{what} from {known['least']}{upto}{', or None' if optional else ''}"


def _is_number_of_op(pair: Any) -> bool:
    if not (isinstance(pair, tuple) and len(pair) == 2):
        return False
    return isinstance(pair[0], str) and type(pair[1]) is int and pair[1] > 0


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


def read_from(first: Stage, last: Stage = Stage.SEARCH) -> tuple[str, ...]:
    """The options that are read first by one of these stages."""
    return tuple(
        f.name for f in dataclasses.fields(CompileOptions) if first <= f.metadata.get("stage", Stage.PASSES) <= last
    )


BACK_END = read_from(Stage.BALANCER)
"""Options that neither passes nor lowering read."""

LOWERING = read_from(Stage.LOWERING, Stage.LOWERING)
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
    """A value of an option as JSON has it; of a rule of precision what it says, without what it leaves open."""
    if isinstance(value, PrecisionRule):
        return {name: item for name, item in to_plain(value).items() if item not in (None, [])}
    return [plain_value(item) for item in value] if isinstance(value, tuple) else to_plain(value)


def options_to_json(options: CompileOptions) -> dict[str, Any]:
    """The options that are not at their defaults, as plain data; `options_from_json` reads it. `training` is not among
    them: who writes it has a form of its own."""
    changed = options_changed(CompileOptions(), options)
    return {name: plain_value(value) for name, value in changed.items() if name != "training"}


def options_from_json(fields: Any) -> dict[str, Any]:
    """Options from plain data, each checked against the type of its field. Raises `InputError`."""
    if isinstance(fields, dict) and "training" in fields:
        raise InputError("training is not an option of a file; Session.for_training makes a session that trains")
    return fields_of(CompileOptions, fields, "options", partly=True)
