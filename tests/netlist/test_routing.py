"""The router's rules: verdicts of the original tools, and array expressions against single edges."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist import schema
from tbuda_lab.core.netlist.routing import (
    EdgeReader,
    EdgeVerdict,
    RoutedEdge,
    RouteRule,
    Source,
    judge,
    judge_alone,
    shared_rule,
    view,
)
from tbuda_lab.core.netlist.routing.cases import MOST_LINE, dram_inputs, edge_of, judge_lines
from tbuda_lab.core.netlist.routing.layout import shape_after
from tbuda_lab.core.netlist.routing.stacks import breaking_step, chain_of, phases, sent_in_phases, step_text
from tests.netlist import builders

JUDGED = Path(__file__).with_name("judged_edges.jsonl")
"""Edges with what parser, router and pipe generator of the original stack said of them: for each rule one that they
refused, and one that they took for each kind of reader."""


def test_verdicts_of_the_original_tools(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["netlist", "edges", str(JUDGED), "--out", str(out)]) == 0
    cases = [json.loads(line) for line in JUDGED.read_text().splitlines()]
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [a["id"] for a in answers] == [c["id"] for c in cases]
    assert {c["id"]: c["rule"] for c in cases} == {a["id"]: a["rule"] for a in answers}
    assert all((a["verdict"] == "legal") == (a["rule"] == "ok") for a in answers)
    assert len({c["rule"] for c in cases}) >= 30


def test_a_line_that_is_no_case_is_named_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    good = JUDGED.read_text().splitlines()[0]
    bad = tmp_path / "bad.jsonl"
    for text, message in (
        ("{", "line 2"),
        ("[]", "line 2"),
        (good.replace('"grid": [', '"grid": [-1, '), "pair"),
        (good[:-1] + " " * MOST_LINE + good[-1:], "line 2"),
        (good.replace('"tms": [', '"tms": [["spin", 2], '), "spin"),
        (json.dumps({**json.loads(good), "input_count": 10**12}), "whole number"),
    ):
        bad.write_text(good + "\n" + text + "\n")
        assert main(["netlist", "edges", str(bad), "--out", str(tmp_path / "out.jsonl")]) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out.jsonl").exists()
    with pytest.raises(InputError, match="line 1"):
        list(judge_lines(['{"producer": 3}']))


def test_arrays_say_what_single_edges_say() -> None:
    """Phases over all producers and readers of one stack at once, against one edge after the other."""
    seen_rules: set[int] = set()
    for steps, t in (
        ((("hstack", 4), ("vstack", 3)), 12),
        ((("vstack", 6), ("hstack", 2)), 24),
        ((("vslice", 2), ("hstack", 8)), 8),
        ((("hslice", 3), ("hstack", 2), ("vstack", 3)), 12),
    ):
        chain, rows, columns = chain_of(steps), 4, 6
        after = shape_after((t, rows, columns), steps)
        grid = np.array(
            np.meshgrid(
                [1, 2, 4, 6, 8, 24], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3], [1, 2, 4], indexing="ij"
            )
        ).reshape(6, -1)
        size, gr, gc, u, v, cut = grid
        good = (after[1] % (gr * u) == 0) & (after[2] % (gc * v) == 0) & (u * v <= 8)
        size, gr, gc, u, v, cut = grid[:, good]
        m, n = after[1] // (gr * u), after[2] // (gc * v)
        for scan in "rc":
            view_ = view(EdgeReader("eltwise", 0, (gr, gc), after[0], (m, n), (u, v), scan, "nop"), after)
            slots = Source((cut, 1), t, (rows // cut, 1), (1, columns), "r", size).slots(2)
            refused = phases(chain, slots, after[1:], (0, 0), view_).rule
            at_once = np.where(sent_in_phases(chain, t, slots), refused, 0)
            seen_rules |= set(at_once.tolist())
            for k in range(0, len(size), 11):
                a = {
                    name: int(x[k])
                    for name, x in zip(
                        ("size", "gr", "gc", "u", "v", "cut", "m", "n"), (size, gr, gc, u, v, cut, m, n), strict=True
                    )
                }
                source = Source((a["cut"], 1), t, (rows // a["cut"], 1), (1, columns), "r", a["size"])
                reader = EdgeReader(
                    "eltwise", 0, (a["gr"], a["gc"]), after[0], (a["m"], a["n"]), (a["u"], a["v"]), scan, "nop"
                )
                alone = judge(RoutedEdge(source, steps, reader, input_count=2)).rule
                if alone is RouteRule.BUF_T:
                    continue  # said before anything of stacks
                of_stacks = RouteRule.STACK_TM_ORDER <= alone <= RouteRule.STACK_SCAN_COL
                assert (alone if of_stacks else 0) == at_once[k], (steps, scan, a)
    assert len(seen_rules) > 6


def test_a_buffer_that_holds_all_t_lifts_every_rule_of_stacks() -> None:
    for line in JUDGED.read_text().splitlines():
        case = json.loads(line)
        if case["rule"].startswith("stack_"):
            edge = edge_of(case)
            size = 2 * edge.source.t
            edge = dataclasses.replace(edge, source=dataclasses.replace(edge.source, buf_size_mb=size))
            assert not judge_alone(edge).rule.label.startswith("stack_"), case["id"]


def test_each_rule_of_stacks_has_words_of_its_own_for_what_would_be_legal() -> None:
    fixes = [rule.fix for rule in RouteRule if rule.of_stacks]
    assert len(fixes) == len(set(fixes)) == 14
    assert len({rule.text for rule in RouteRule}) == len(RouteRule)
    assert all(rule.fix for rule in RouteRule if rule not in (RouteRule.OK, RouteRule.SHAPE))


@pytest.mark.parametrize(
    ("rule", "steps", "named"),
    [
        ("STACK_GRID", [("vslice", 2), ("hstack", 2), ("vstack", 4)], "vstack 4"),  # the hstack undoes the slice
        ("STACK_GRID", [("hstack", 8)], "hstack 8"),
        ("STACK_SLICE", [("hslice", 3), ("vstack", 4)], "hslice 3"),
        ("STACK_TM_ORDER", [("hstack", 4), ("c", 2)], "broadcast c 2"),
        ("STACK_TM_ORDER", [("hstack", 4), ("vstack", 2), ("hstack", 2)], "hstack 2"),
        ("STACK_PAD", [("hstack", 4), ("pad", 1, 0)], "pad 1 0"),
        ("TRANSPOSE_OP", [("transpose",), ("hstack", 2)], "transpose"),
        ("Z_BROADCAST_T", [("z", 4)], "broadcast z 4"),
        ("CHUNK_2048", [("hstack", 4)], None),
    ],
)
def test_a_refusal_names_the_tm(rule: str, steps: list[tuple[object, ...]], named: str | None) -> None:
    step = breaking_step(RouteRule[rule], steps)
    assert (None if step is None else step_text(step)) == named


def test_the_check_names_the_tm() -> None:
    netlist = builders.reduce()
    netlist.graphs["g"].ops["red"].inputs[0].tms = [schema.Tm("transpose")]
    (finding,) = [f for f in netlists.check(netlist, "wormhole_b0") if f.rule == "N3"]
    assert "through transpose): this input of this op type cannot be transposed" in finding.message


@pytest.mark.parametrize(
    ("grid", "pipes", "legal"),
    [
        ((1, 1), (23,), True),
        ((1, 1), (24,), False),
        ((2, 1), (24, 23), True),
        ((2, 1), (23, 24), False),
        ((1, 2), (23, 24), True),
        ((1, 2), (24, 23), False),
        ((2, 2), (24, 25, 23, 24), True),
        ((2, 2), (25, 0, 0, 0), False),
        ((2, 2), (0, 0, 24, 0), False),
        ((2, 2), (0, 26, 0, 0), False),
    ],
)
def test_streams_of_a_product_are_counted_core_by_core(
    grid: tuple[int, int], pipes: tuple[int, ...], legal: bool
) -> None:
    """24 extra streams: the readers of a core less one, and its reads from DRAM: operand 0 comes to column 0 of each
    row, operand 1 to the last row of each column."""
    source = Source(grid, 1, (1, 1), (1, 1), "r", 2, "matmul")
    reader = EdgeReader("eltwise", 0, (1, 1), 1, (1, 1), (1, 1), "r")
    read = tuple(True for _ in pipes)  # by another reader, if not by this one
    verdict = EdgeVerdict(RouteRule.OK, max(pipes), 1, 1, True, read, pipes=pipes)
    assert (shared_rule(source, [(reader, verdict)], 1, dram_inputs(source)) is RouteRule.OK) is legal
