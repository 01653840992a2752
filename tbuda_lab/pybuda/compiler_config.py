"""What a compile is told through the PyBuda API: options, overrides, environment switches; and which of them change
nothing here, and why."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.formats import DataFormat, MathFidelity, parse_format
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.precision import rules_of
from tbuda_lab.core.options import CompileOptions, PrecisionRule, pattern_fault
from tbuda_lab.core.overrides import FIRST, Override, Target
from tbuda_lab.pybuda.enums import CompileDepth, DeviceMode, DRAMPlacementAlgorithm, PerfTraceLevel, TTIDumpFormat
from tbuda_lab.pybuda.query import NodePredicateBuilder

_TVM = "models are traced by torch.export, not by TVM"
_JAX = "JAX models are not traced by TVM here"

NO_EFFECT: dict[str, str] = {
    "graph_solver_self_cut_type": "edges and shapes are chosen together, and queues are put where they pay",
    "use_interactive_placer": "there is one placer, which is interactive",
    "enable_enumerate_u_kt": "every inner step is a candidate",
    "enable_pt2_fx_graph_link": "graphs of torch.compile are compiled one by one",
    "enable_tm_cpu_fallback": "reshapes and slices of integers run on the host without it, all others on the device",
    "tm_cpu_fallback_max_depth": "reshapes and slices of integers run on the host without it, all others on the device",
    "enable_tvm_unsupported_ops": f"{_TVM}; ops that are not supported are all named in one error",
    "enable_op_level_comparision": "Session.verify compares every op",
    "enable_tvm_constant_prop": f"{_TVM}: constants are folded by enable_consteval",
    "convert_framework_params_to_tvm": _TVM,
    "enable_xla_jax_convert": _JAX,
    "enable_tvm_jax_freeze_large_model": _JAX,
    "framework_model_output_names": f"{_TVM}: outputs have the names of the returned structure",
    "tvm_constnat_prop_mask": _TVM,
    "compile_tvm_to_python": f"{_TVM}: no Python file stands between",
    "retain_tvm_python_files": f"{_TVM}: no Python file stands between",
    "tvm_graph_store_path": _TVM,
    "tvm_graph_load_path": _TVM,
    "tvm_module_to_num_patterns": _TVM,
    "max_pool_add_sub_surround": "padding never wins a maximum here",
    "max_pool_add_sub_surround_value": "padding never wins a maximum here",
    "enable_device_tilize": "inputs are tilized on the host",
    "enable_forked_dram_inputs": "every reader has its own DRAM stream",
    "enable_broadcast_splitting": "broadcasts are TMs on edges, and their fork is priced",
    "conv_multi_op_fracture_factor_override": "a convolution is one picker and one matmul; slow ones are split unasked",
    "enable_single_buffer_fallback": "an op that fits with single buffers only is placed with them without it",
    "backend_opt_level": "there is one executor",
    "backend_runtime_args": "there is one executor",
}
"""Options that are accepted and change nothing, and why."""

READ_ELSEWHERE = frozenset(
    (
        "GOLDEN_WORMHOLE_B0",
        "PYBUDA_GOLDEN_BLACKHOLE",
        "PYBUDA_TTI_BACKEND_FORMAT",
        "PYBUDA_TTI_BACKEND_TILIZED_FORMAT",
        "PYBUDA_OVERRIDES_VETO",
        "PYBUDA_VERIFY_GOLDEN",
        "PYBUDA_FORCE_VERIFY_ALL",
        "PYBUDA_VERIFY_POST_AUTOGRAD_PASSES",
        "PYBUDA_VERIFY_POST_PLACER",
        "PYBUDA_VERIFY_RESULTS_OFF_BY_DEFAULT",
        "TT_BACKEND_GOLDEN_QUANTIZE",
        "PYBUDA_CONTINUE_ON_MISMATCH",
    )
)
"""Switches that are read where they matter (architecture, images, verification)."""

NATURAL = {
    "PYBUDA_FORCE_SEQUENTIAL": "everything runs in the calling thread anyway",
    "PYBUDA_FORCE_THREADS": "everything runs in the calling thread",
    "PYBUDA_MICROBATCH_LOOPING": "the program loops over the microbatch anyway",
    "LOGGER_LEVEL": "messages go to Python's loggers below tbuda_lab: logging.getLogger('tbuda_lab').setLevel",
    "TT_BACKEND_OVERLAY_MAX_EXTRA_BLOB_SIZE": "no overlay blobs are made",
}

_warned: set[str] = set()


def warn_once(name: str, reason: str) -> None:
    """Warn once that a setting has no effect."""
    if name not in _warned:
        _warned.add(name)
        warnings.warn(f"{name} has no effect: {reason}", UserWarning, stacklevel=3)


def reset_warnings() -> None:
    """Say everything again when it is set again."""
    _warned.clear()


def warn_options(config: Any) -> None:
    """Warn of every option of a configuration object that is not at its default and has no effect."""
    plain = type(config)()
    if config.enable_link_past_cache_ios and not config.compile_subgraphs:
        warn_once("enable_link_past_cache_ios", "caches are linked where compile_subgraphs is True as well")
    if config.effective("rotate_past_cache_params") and not (
        config.enable_link_past_cache_ios and config.compile_subgraphs
    ):
        warn_once(
            "rotate_past_cache_params",
            "caches are linked where compile_subgraphs and enable_link_past_cache_ios are True",
        )
    for field in dataclasses.fields(config):
        if field.name in NO_EFFECT and getattr(config, field.name) != getattr(plain, field.name):
            warn_once(field.name, NO_EFFECT[field.name])


def warn_environment(config: Any) -> None:
    """Warn of every switch of PyBuda's or its backend's in the environment that nothing reads. config: those that a
    compile reads."""
    for name in sorted(os.environ):
        theirs = name.startswith(("PYBUDA_", "TT_BACKEND_")) or name in NATURAL
        if theirs and name not in config and name not in READ_ELSEWHERE:
            warn_once(name, NATURAL.get(name, "no code here reads this switch"))


def _is_one(kind: type[Any], value: Any) -> bool:
    return isinstance(value, kind if kind in (DataFormat, MathFidelity) else kind | int)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda v: isinstance(v, int) and v in (0, 1), "True or False"),
    "int": (lambda v: isinstance(v, int), "a whole number"),
    "float": (lambda v: isinstance(v, int | float), "a number"),
    "str": (lambda v: isinstance(v, str | os.PathLike), "a text"),
    "list": (lambda v: isinstance(v, list | tuple), "a list"),
    "list[str]": (lambda v: isinstance(v, list | tuple) and all(isinstance(n, str) for n in v), "a list of names"),
    "set[str]": (
        lambda v: isinstance(v, set | frozenset | list | tuple) and all(isinstance(n, str) for n in v),
        "a set of names",
    ),
    "dict": (lambda v: isinstance(v, dict), "a dict"),
    "tuple": (lambda v: isinstance(v, tuple | list), "a list"),
    "None": (lambda v: v is None, "None"),
    **{
        kind.__name__: (functools.partial(_is_one, kind), f"a {kind.__name__}")
        for kind in (
            DataFormat,
            MathFidelity,
            CompileDepth,
            DeviceMode,
            DRAMPlacementAlgorithm,
            PerfTraceLevel,
            TTIDumpFormat,
        )
    },
}
"""By the word of an annotation: whether a value is of that type, and what to say where it is none. Numbers of
enumerations are looked up where they are read (`CompilerConfig.effective`)."""


def check_option(name: str, value: Any) -> None:
    """Raise `PipelineError` for a value of another type than the option `name` has."""
    words = [word.strip() for word in str(CompilerConfig.__annotations__[name]).split("|")]
    kinds = [_KINDS[word] if word in _KINDS else _KINDS[word.partition("[")[0]] for word in words]
    if not any(fits(value) for fits, _ in kinds):
        raise PipelineError(f"{name} is {' or '.join(text for _, text in kinds)}, not {value!r}")


OpNames = str | NodePredicateBuilder | Sequence[str | NodePredicateBuilder]


@dataclasses.dataclass(frozen=True)
class OverrideCall:
    """One call of an override function: what `core.options.Override` will be once the model's names are known."""

    kind: str
    target: str | NodePredicateBuilder | tuple[str | NodePredicateBuilder, ...]
    value: Any = True

    def resolve(self, graph: Graph) -> Override:
        """The override for a traced graph: predicates become the names they match, decomposed ones included."""
        if isinstance(self.value, dict) and isinstance(self.value.get("dest"), tuple):
            ends = self.value["dest"]
            named = [n for p in ends for n in ((p,) if isinstance(p, str) else p.names(graph))]
            if not named:
                raise PipelineError(f"{self.kind} of {self.target!r}: no op of the model is one of its readers")
            if ends != tuple(named):
                again = {**self.value, "dest": tuple(dict.fromkeys(named))}
                return dataclasses.replace(self, value=again).resolve(graph)
        parts = self.target if isinstance(self.target, tuple) else (self.target,)
        if all(isinstance(p, str) for p in parts):
            target: Target = self.target if isinstance(self.target, str) else tuple(str(p) for p in parts)
            return Override(self.kind, target, self.value, source="pybuda")
        names = [n for p in parts for n in ((p,) if isinstance(p, str) else p.names(graph))]
        listed = isinstance(self.target, tuple) and self.kind in ("epoch_break", "chip_break")
        patterns = [re.escape(name) + r"(\.dc\..*|\.lc\d+)?" for name in names]
        patterns += [p.text for p in parts if isinstance(p, NodePredicateBuilder) and p.kind == "name"]
        value = FIRST if listed else self.value
        if not patterns:  # no name says this, so that the override addresses nothing and its warning quotes it
            return Override(self.kind, ", ".join(str(p) for p in parts), value, source="pybuda")
        return Override(self.kind, re.compile("|".join(f"(?:{p})" for p in patterns)), value, "pybuda")


@dataclasses.dataclass
class CompilerConfig:
    """Options of a compile; fields and defaults as PyBuda's. `config.NO_EFFECT`: those that change nothing here."""

    enable_training: bool = False
    enable_recompute: bool = False
    match_subgraph_patterns: int | None = None
    balancer_policy: str = "default"
    scheduler_policy: str = "ModuleInputsBFS"
    place_on_one_row: bool = False
    enable_t_streaming: bool = True
    manual_t_streaming: bool = False
    enable_consteval: bool = True
    enable_auto_fusing: bool = True
    compile_subgraphs: bool = False
    graph_solver_self_cut_type: str = "FastCut"
    use_interactive_placer: bool = True
    enable_enumerate_u_kt: bool = True
    enable_link_past_cache_ios: bool = False
    enable_pt2_fx_graph_link: bool = False
    rotate_past_cache_params: bool = False  # PyBuda has the environment switch alone
    compile_depth: CompileDepth = CompileDepth.FULL
    enable_tvm_cpu_fallback: bool = True
    cpu_fallback_ops: set[str] = dataclasses.field(default_factory=lambda: {"embedding"})
    enable_tm_cpu_fallback: bool = False
    tm_cpu_fallback_max_depth: int = 10
    enable_tvm_dropout: bool = False
    enable_tvm_unsupported_ops: bool = False
    enable_op_level_comparision: bool = False
    enable_tvm_constant_prop: bool = False
    convert_framework_params_to_tvm: bool = True
    enable_xla_jax_convert: bool = False
    enable_tvm_jax_freeze_large_model: bool = True
    framework_model_output_names: list[str] = dataclasses.field(default_factory=list)
    tvm_constnat_prop_mask: set[str] = dataclasses.field(default_factory=set)
    compile_tvm_to_python: bool = True
    retain_tvm_python_files: bool = False
    tvm_graph_store_path: str = ""
    tvm_graph_load_path: str = ""
    tvm_module_to_num_patterns: dict[str, int] = dataclasses.field(default_factory=dict)
    enable_conv_prestride: bool = True
    max_pool_add_sub_surround: bool = False
    max_pool_add_sub_surround_value: float = 1.0
    loopback_outputs: dict[str, Any] = dataclasses.field(default_factory=dict)
    enable_device_tilize: bool = False
    enable_forked_dram_inputs: bool = False
    chip_placement_policy: str = "MMIO_LAST"
    op_names_dont_fuse: list[str] = dataclasses.field(default_factory=list)
    op_names_manual_fuse: list[str] = dataclasses.field(default_factory=list)
    default_dram_parameters: bool | None = None
    default_df_override: DataFormat | None = None
    default_accumulate_df: DataFormat | None = None
    enable_broadcast_splitting: bool = False
    default_math_fidelity: MathFidelity = MathFidelity.HiFi3
    performance_trace: PerfTraceLevel = PerfTraceLevel.NONE
    amp_level: int | None = None
    amp_light: int = 0
    harvesting_mask: int = 0  # of all chips together; each chip's own in harvesting_masks, one for all where one
    harvesting_masks: tuple[int, ...] = ()
    enable_auto_transposing_placement: bool = False
    fracture_groups: list[Any] = dataclasses.field(default_factory=list)
    conv_multi_op_fracture_factor_override: dict[str, int] = dataclasses.field(default_factory=dict)
    enable_stable_softmax: bool = True
    enable_single_buffer_fallback: bool = False
    device_mode: DeviceMode = DeviceMode.CompileAndRun
    backend_opt_level: int = 4
    backend_output_dir: str = ""
    backend_device_descriptor_path: str = ""
    backend_cluster_descriptor_path: str = ""
    backend_runtime_params_path: str = ""
    backend_runtime_args: str = ""
    store_backend_db_to_yaml: bool = False
    input_queues_on_host: bool = True
    output_queues_on_host: bool = True
    insert_queues: list[tuple[str, str, int]] = dataclasses.field(default_factory=list)
    paddings: dict[str, bool] = dataclasses.field(default_factory=dict)
    op_intermediates_to_save: list[str] = dataclasses.field(default_factory=list)
    tti_dump_format: TTIDumpFormat = TTIDumpFormat.DEFAULT
    dram_placement_algorithm: DRAMPlacementAlgorithm = DRAMPlacementAlgorithm.ROUND_ROBIN
    amp_properties: list[PrecisionRule] = dataclasses.field(default_factory=list)
    overrides: list[OverrideCall] = dataclasses.field(default_factory=list)

    # -- methods of PyBuda's class ---------------------------------------------------------------------------
    def place_on_new_epoch(self, op_names: OpNames) -> None:
        self.add("epoch_break", op_names)

    def place_on_new_chip(self, op_names: OpNames) -> None:
        self.add("chip_break", op_names)

    def balancer_op_override(self, op_name: str, attribute: str, value: Any) -> None:
        """Attributes: grid_shape, t_stream_shape, t_stream_dir, u_kt."""
        kinds = {
            "grid_shape": "op_size",
            "t_stream_shape": "t_stream_shape",
            "t_stream_dir": "t_stream_dir",
            "u_kt": "u_kt",
        }
        if attribute not in kinds:
            raise not_supported(f"balancer_op_override of {attribute!r}", f"known attributes: {', '.join(kinds)}")
        self.add(kinds[attribute], op_name, value)

    def dont_fuse(self, name: str) -> None:
        """The op stays an op of its own."""
        self.op_names_dont_fuse.append(name)

    def manual_fuse(self, names: str | Sequence[str]) -> None:
        """Only ops whose whole names these patterns match are fused, as far as they can be."""
        many = [names] if isinstance(names, str) else list(names)
        for text in many:
            if fault := pattern_fault(text):
                raise PipelineError(f"manual_fuse takes patterns of op names: {fault}")
        self.op_names_manual_fuse.extend(many)

    def enable_amp_light(self, level: int = 1) -> None:
        """Cheaper weights of all matmuls: level 1: 8-bit blocks, HiFi2; 2: 4-bit, HiFi2; 3: 4-bit, LoFi."""
        if level not in (0, 1, 2, 3):
            raise PipelineError(f"enable_amp_light takes a level 0 to 3, not {level!r}")
        self.amp_light = level

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, 3)
            text = f"; did you mean {', '.join(near)}?" if near else ""
            warnings.warn(f"there is no compiler option {name!r}, nothing reads it{text}", UserWarning, stacklevel=2)
        object.__setattr__(self, name, value)

    # -- to the compiler -------------------------------------------------------------------------------------
    def add(self, kind: str, target: OpNames, value: Any = True) -> None:
        """Append an override record."""
        if not isinstance(target, str | NodePredicateBuilder | list | tuple):
            raise PipelineError(
                f"{kind} takes an op name, a predicate, or a list of those, not {type(target).__name__}"
            )
        if not isinstance(target, str | NodePredicateBuilder) and any(isinstance(t, list | tuple) for t in target):
            for part in target:  # lists of lists: each is a request of its own
                self.add(kind, part, value)
            return
        one = target if isinstance(target, str | NodePredicateBuilder) else tuple(target)
        if isinstance(one, tuple) and not (one and all(isinstance(t, str | NodePredicateBuilder) for t in one)):
            raise PipelineError(f"{kind} takes op names and predicates, not {target!r}")
        self.overrides.append(OverrideCall(kind, one, value))

    def options(self, microbatch: int = 1, fp32_fallback: DataFormat = DataFormat.Float16_b) -> CompileOptions:
        """The options of a compile, environment switches applied. Raises `PipelineError` for a value of another type
        than the option has."""
        for field in dataclasses.fields(self):
            check_option(field.name, getattr(self, field.name))
        option_names = {f.name for f in dataclasses.fields(CompileOptions)}
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in option_names}
        values |= {name: value for name, value in environment().items() if name in option_names}
        values["fuse_outputs"] = values["number_fused_ops"] = True
        values["cpu_fallback_ops"] = tuple(sorted(self.cpu_fallback_ops))
        alone = {*self.op_names_dont_fuse, *self.op_intermediates_to_save}  # what is kept is the op's own output
        values["op_names_dont_fuse"] = tuple(sorted(alone))
        if not all(isinstance(name, str) and isinstance(pads, bool) for name, pads in self.paddings.items()):
            raise PipelineError(
                f"paddings says of an op by name whether its rows are padded: {{name: True or False}}, "
                f"not {self.paddings!r}"
            )
        values["op_names_pad"] = tuple(sorted(name for name, pads in self.paddings.items() if pads))
        values["op_names_dont_pad"] = tuple(sorted(name for name, pads in self.paddings.items() if not pads))
        level, default_df = self.effective("amp_level"), self.effective("default_df_override")
        if level not in (None, 0, 1, 2):
            raise PipelineError(f"amp_level is 0, 1 or 2, not {level!r}")
        family = "" if default_df is None else default_df.family
        values["precision"] = rules_of(self.amp_properties, level, self.effective("amp_light"), family)
        if level and default_df is None:  # a level has a format of its own for what no rule names
            values["default_df_override"] = DataFormat.Float16_b if level == 1 else DataFormat.Float16
        if not all(isinstance(group, tuple) and len(group) == 3 for group in self.fracture_groups):
            raise PipelineError("fracture_groups is filled by insert_fracture_group")
        values["fracture_groups"] = tuple(self.fracture_groups)
        values["op_names_manual_fuse"] = tuple(self.op_names_manual_fuse)
        if values["default_dram_parameters"] is None and microbatch > 1:
            values["default_dram_parameters"] = False  # PyBuda then preloads all that fit
        values["dram_placement_algorithm"] = self.dram_placement_algorithm.name
        return CompileOptions(**values | {"microbatch": microbatch, "fp32_fallback": fp32_fallback})

    def effective(self, name: str) -> Any:
        """An option as the environment has it, else as it was set. Raises `PipelineError` for a number that is no
        member where an option is one of an enumeration."""
        value = environment().get(name, getattr(self, name))
        kind = type(getattr(_DEFAULTS, name))
        if not issubclass(kind, enum.Enum) or isinstance(value, kind):
            return value
        members = {member.value: member for member in kind}
        if value not in members:
            raise PipelineError(f"{name} is one of {', '.join(kind.__members__)}, not {value!r}")
        return members[value]

    def resolve_overrides(self, graph: Graph) -> tuple[Override, ...]:
        """All override records for one traced graph."""
        queues = tuple(
            Override("insert_queue", producer, {"dest": consumer, "port": port}, source="pybuda")
            for producer, consumer, port in self.insert_queues
        )
        return (*(record.resolve(graph) for record in self.overrides), *queues)


_FIELDS = frozenset(CompilerConfig.__annotations__)
_DEFAULTS = CompilerConfig()


def _level(text: str) -> int:
    if text not in ("0", "1", "2", "3"):
        raise PipelineError(f"a level of mixed precision is 0, 1, 2 or (PYBUDA_AMP_LIGHT) 3, not {text!r}")
    return int(text)


def _member(kind: type[Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.upper() not in kind.__members__:
            raise PipelineError(f"{text!r} is not a {kind.__name__}; there are {', '.join(kind.__members__)}")
        return kind[text.upper()]

    return read


def _flag(text: str) -> bool:
    return text not in ("", "0", "false", "False")


ENVIRONMENT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "PYBUDA_DEFAULT_DF": ("default_df_override", parse_format),
    "PYBUDA_BALANCER_POLICY_TYPE": ("balancer_policy", str),
    "PYBUDA_SCHEDULER_POLICY": ("scheduler_policy", str),
    "PYBUDA_ENABLE_INPUT_QUEUES_ON_HOST": ("input_queues_on_host", _flag),
    "PYBUDA_ENABLE_OUTPUT_QUEUES_ON_HOST": ("output_queues_on_host", _flag),
    "PYBUDA_DEFAULT_DRAM_PARAMETERS": ("default_dram_parameters", _flag),
    "PYBUDA_DISABLE_STABLE_SOFTMAX": ("enable_stable_softmax", lambda text: not _flag(text)),
    "PYBUDA_DISABLE_OP_FUSING": ("enable_auto_fusing", lambda text: not _flag(text)),
    "PYBUDA_FUSE_REDUCE": ("fuse_reduces", _flag),
    "PYBUDA_DISABLE_ENUMERATE_U_KT": ("enable_enumerate_u_kt", lambda text: not _flag(text)),
    "PYBUDA_ENABLE_SINGLE_BUFFER_FALLBACK": ("enable_single_buffer_fallback", _flag),
    "PYBUDA_ENABLE_AUTO_TRANSPOSE": ("enable_auto_transposing_placement", _flag),
    "PYBUDA_ROTATE_PAST_CACHE_PARAMS": ("rotate_past_cache_params", _flag),
    "PYBUDA_DISABLE_PADDING_PASS": ("enable_row_padding", lambda text: not _flag(text)),
    "PYBUDA_DISABLE_FORK_JOIN_BUF": ("enable_fork_join_buffering", lambda text: not _flag(text)),
    "PYBUDA_DISABLE_CONSTANT_FOLDING": ("enable_consteval", lambda text: not _flag(text)),
    "PYBUDA_PRESTRIDE_DISABLE": ("enable_conv_prestride", lambda text: not _flag(text)),
    "PYBUDA_NO_FUSE_MATMUL_BIAS": ("fuse_biases", lambda text: not _flag(text)),
    "PYBUDA_DISABLE_TILE_BROADCAST_CONSTEVAL": ("fill_tiles_on_host", lambda text: not _flag(text)),
    "PYBUDA_COMPILE_DEPTH": ("compile_depth", _member(CompileDepth)),
    "PYBUDA_PERFORMANCE_TRACE": ("performance_trace", _member(PerfTraceLevel)),
    "PYBUDA_AMP_LEVEL": ("amp_level", _level),
    "PYBUDA_AMP_LIGHT": ("amp_light", _level),
    "PYBUDA_OVERRIDE_DEVICE_YAML": ("backend_device_descriptor_path", str),
}
"""Environment switch -> (option, how its text is read). Read at every compile; of others `settings` warns."""


def environment() -> dict[str, Any]:
    """Options set by environment switches now."""
    return {option: read(os.environ[name]) for name, (option, read) in ENVIRONMENT.items() if name in os.environ}
