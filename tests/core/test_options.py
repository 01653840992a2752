"""Options without a meaning are refused where they are given, with what would work; all others are taken."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph import GraphError
from tbuda_lab.core.graph.query import Query
from tbuda_lab.core.options import ACCUMULATORS, CompileOptions, PrecisionRule, options_from_json, options_to_json
from tbuda_lab.core.session import Session

NAN, INF = float("nan"), float("inf")
BAD: dict[str, tuple[Any, ...]] = {
    "microbatch": (0, -1, 1.5, "2", None, 10**9, 10**400),
    "seed": (-1, "x", None, 1.5),
    "schedule_swaps": (-1, None),
    "target_cycles": (-5, "x", NAN, INF),
    "epoch_switch_cycles": (-1, None, "x"),
    "epoch_fill_cycles": (-1, "x"),
    "time_budget": (-1, "x", NAN, INF),
    "optimise_seconds": (-1, "x", NAN, INF),
    "default_math_fidelity": ("HiFi2", None),
    "default_df_override": ("Bfp8_b", 3, DataFormat.Fp8_e4m3, DataFormat.Lf8),
    "default_accumulate_df": ("Float32", *(DataFormat[df] for df in ("Bfp4_b", "Bfp2", "Int32", "Lf8", "Invalid"))),
    "fp32_fallback": (None, *(DataFormat[df] for df in ("Int32", "UInt16", "Lf8", "Fp8_e4m3", "RawUInt8", "Invalid"))),
    "balancer_policy": (None, 3),
    "scheduler_policy": (None,),
    "op_names_dont_fuse": ("x", None, (3,)),
    "op_names_manual_fuse": ("x", (3,), ("ok", "(")),
    "cpu_fallback_ops": (None, "embedding"),
    "op_parts": ("x", None, (3,), (("x", 0),), (("x", "2"),), {"x": 0}, {3: 2}, ["x"], (("x", 2, 3),)),
}
NO_PATTERNS = ("(", "a{9999999999}", "(?P<n", "[z-a]", "(" * 5000 + ")" * 5000)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_values_without_a_meaning_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        CompileOptions(**{name: value})
    assert [(d.where, d.rule) for d in caught.value.diagnostics] == [(name, "option-value")]
    assert caught.value.diagnostics[0].fix
    with pytest.raises(InputError):
        dataclasses.replace(CompileOptions(), **{name: value})


def test_numbers_of_ops_are_a_mapping_or_pairs_and_go_through_files() -> None:
    mappings: dict[str, Any] = {"op_parts": {"b": 2, "a": 3}, "op_rows": {"c": 100}}
    options = CompileOptions(**mappings)
    assert options.op_parts == (("a", 3), ("b", 2)) and options.op_rows == (("c", 100),)
    written = json.loads(json.dumps(options_to_json(options)))
    assert CompileOptions(**options_from_json(written)) == options
    for wrong in ({"op_parts": {"a": 2}}, {"op_parts": ["a"]}, {"op_parts": [["a"]]}, {"op_parts": [["a", "2"]]}):
        with pytest.raises(InputError):
            CompileOptions(**options_from_json(wrong))


@pytest.mark.parametrize("pattern", NO_PATTERNS, ids=range(len(NO_PATTERNS)))
def test_what_is_no_pattern_is_refused_where_it_is_given(pattern: str) -> None:
    """By options, by their form in files, by rules of precision and by predicates."""
    for give in (
        lambda: CompileOptions(op_names_manual_fuse=(pattern,)),
        lambda: CompileOptions(**options_from_json({"op_names_manual_fuse": [pattern]})),
        lambda: PrecisionRule("by hand", name=pattern),
        lambda: options_from_json({"precision": [{"reason": "by hand", "name": pattern}]}),
        lambda: Query("layer", pattern),
    ):
        with pytest.raises((InputError, GraphError), match="not a regular expression") as caught:
            give()
        assert len(str(caught.value)) < 600


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InputError, match="2 options") as caught:
        CompileOptions(microbatch=0, seed=-1)
    assert {d.where for d in caught.value.diagnostics} == {"microbatch", "seed"}


def test_the_least_and_the_usual_are_taken() -> None:
    CompileOptions(
        microbatch=1,
        seed=0,
        schedule_swaps=0,
        target_cycles=0,
        epoch_switch_cycles=0,
        epoch_fill_cycles=0,
        time_budget=0.0,
        default_df_override=DataFormat.Bfp8_b,
        default_math_fidelity=MathFidelity.LoFi,
    )
    assert CompileOptions(microbatch=np.int64(4)).microbatch == 4  # type: ignore[arg-type]
    listed = CompileOptions(op_names_dont_fuse=["b", "a"], cpu_fallback_ops={"y", "x"})  # type: ignore[arg-type]
    assert listed.op_names_dont_fuse == ("b", "a") and listed.cpu_fallback_ops == ("x", "y") and hash(listed)


def test_a_session_keeps_its_options_where_new_ones_are_refused() -> None:
    session = Session(torch.nn.Linear(32, 32), (torch.randn(1, 32, 32),))
    session.configure(seed=3)
    for name, values in BAD.items():
        with pytest.raises(InputError):
            session.configure(**{name: values[0]})
    assert session.options == CompileOptions(seed=3) and [step.label for step in session.history] == ["set seed = 3"]
    session.undo()
    assert session.options == CompileOptions()


FLOATS = tuple(df for df in DataFormat if df.is_float and df not in (DataFormat.Lf8, DataFormat.Fp8_e4m3))


@pytest.mark.parametrize("df", [df for df in DataFormat if df not in FLOATS])
@pytest.mark.parametrize("field", ["output_df", "intermediate_df", "accumulate_df", "inputs"])
def test_rules_of_precision_have_formats_that_ops_calculate_in(field: str, df: DataFormat) -> None:
    given: dict[str, Any] = {field: ((0, df, True),) if field == "inputs" else df}
    with pytest.raises(InputError, match=f"{field} of a precision rule: nothing is calculated in {df.name}; Float32"):
        PrecisionRule("by hand", **given)


@pytest.mark.parametrize("df", FLOATS)
@pytest.mark.parametrize("asked", ["fp32_fallback", "default_accumulate_df"])
def test_formats_that_are_taken_make_netlists_on_a_device_of_16_bits(asked: str, df: DataFormat) -> None:
    """Each is refused where it is given, when it meets the device, or the check of the netlist has nothing to say."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Softmax(-1)).eval()
    sums_refused = asked == "default_accumulate_df" and df not in ACCUMULATORS
    given: dict[str, Any] = {"default_df_override": DataFormat.Float32, asked: df}
    if sums_refused:
        with pytest.raises(InputError, match=f"default_accumulate_df: .*{df.name}.*legal: Float32, Float16,"):
            CompileOptions(**given)
        return
    session = Session(model, (torch.randn(1, 32, 64),), load_device("grayskull"), CompileOptions(**given))
    if asked == "fp32_fallback" and df is DataFormat.Float32:
        with pytest.raises(InputError, match=r"fp32_fallback: grayskull accumulates in 16 bits.*Float16_b"):
            session.compile()
        return
    sums = {op.acc_df for _, op in session.compile().netlist.ops()}
    assert sums <= set(ACCUMULATORS) - {DataFormat.Float32}
