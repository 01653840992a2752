# ruff: noqa: E501 (netlist text)
"""The writer: PyBuda's layout, and nothing lost."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import Netlist, OpInput
from tbuda_lab.core.netlist.tables import queue_groups
from tests.netlist import builders as b

CANONICAL = """\
devices:
  arch: grayskull

queues:

  # input
  input_1:             {input: HOST, type: queue, entries: 4, grid_size: [1, 1], t: 1, mblock: [1, 2], ublock: [2, 1], df: Float16_b, target_device: 0, loc: dram, dram: [[0, 0x30000000]]}

  # output
  net.output_softmax:  {input: softmax, type: queue, entries: 4, grid_size: [1, 1], t: 1, mblock: [1, 2], ublock: [2, 1], ublock_order: r, df: Float16_b, target_device: 0, loc: host, host: [[0, 0x0]]}

  # parameter
  layer.weight:        {input: HOST, type: ram, entries: 1, grid_size: [1, 2], t: 1, mblock: [2, 1], ublock: [1, 1], df: Bfp8_b, target_device: 0, loc: dram, dram: [[1, 0x30000000], [2, 0x300008c0]]}

  # constant
  one:                 {input: HOST, type: queue, entries: 1, grid_size: [1, 1], t: 1, mblock: [1, 1], ublock: [1, 1], df: Float16_b, target_device: 0, loc: dram, dram: [[3, 0x30000000]]}

graphs:
  fwd_0:
    target_device: 0
    input_count: 2
    matmul_1: {type: matmul, grid_loc: [0, 0], grid_size: [1, 2], inputs: [input_1, layer.weight],
         t: 1, mblock: [1, 1], ublock: [2, 1], buf_size_mb: 2, ublock_order: r, in_df: [Float16_b, Bfp8_b], out_df: Float16_b, intermed_df: Float16_b, acc_df: Float16_b, math_fidelity: HiFi3,
         attributes: {m_k: 1, u_kt: 2}}
    softmax: {type: multiply, grid_loc: [1, 0], grid_size: [1, 1], inputs: [matmul_1, one], untilize_output: true,
         t: 1, mblock: [1, 2], ublock: [2, 1], buf_size_mb: 2, ublock_order: r, in_df: [Float16_b, Float16_b], out_df: Float16_b, intermed_df: Float16_b, acc_df: Float16_b, math_fidelity: HiFi3,
         input_1_tms: [broadcast: {r: 2}, broadcast: {c: 2}]}

programs:
  - run_fwd_0:
    - param: [$p_loop_count]
    - var: {$c_microbatch_size: 2, $c_one: 1, $c_zero: 0}
    - staticvar: {$gptr_q0: 0, $lptr_q0: 0}
    - loop: $p_loop_count
    -   execute: {graph_name: fwd_0, queue_settings: {
               layer.weight: {prologue: true, epilogue: false, zero: false, rd_ptr_global: $c_zero, wr_ptr_global: $c_zero},
               one: {prologue: true, epilogue: false, zero: false, rd_ptr_local: $c_zero, rd_ptr_global: $c_zero},
               input_1: {prologue: false, epilogue: false, zero: false, rd_ptr_local: $lptr_q0, rd_ptr_global: $gptr_q0}} }
    -   varinst: [$gptr_q0, incwrap, $c_microbatch_size, 8]
    -   varinst: [$lptr_q0, incwrap, $c_microbatch_size, 8]
    - endloop
"""


def test_the_layout_of_pybuda_is_a_fixed_point() -> None:
    n = netlist.loads(CANONICAL)
    assert [f.text() for f in netlist.check(n, profile="strict")] == []
    assert netlist.dumps(n) == CANONICAL


def test_groups() -> None:
    groups = queue_groups(b.reread(b.gradient()))
    assert groups == {"x": "input", "w": "input", "acc": "accumulator"}
    n = b.build(
        {"g0": [b.op("a", "nop", ["x"])], "g1": [b.op("c", "nop", ["between"])]},
        {"x": (1, 2, 2)},
        [b.queue("between", (1, 2, 2), source="a")],
    )
    assert queue_groups(n) == {"x": "input", "between": "epoch_to_epoch", "c.out": "output"}
    n.queues["x"].name = "x"
    shuffled = dict(sorted(n.queues.items()))
    n.queues = shuffled
    assert "# epoch_to_epoch" not in netlist.dumps(n)  # the file's own order wins; headings would mislead


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=12)
numbers = st.one_of(st.integers(-(2**31), 2**31), st.floats(allow_nan=False))
dims = st.tuples(st.integers(1, 64), st.integers(1, 64))
tms = st.lists(
    st.one_of(
        st.just(b.tm("transpose")),
        st.builds(lambda d, n: b.tm("broadcast", **{d: n}), st.sampled_from("rcz"), st.integers(1, 99)),
        st.builds(b.tm, st.sampled_from(("hslice", "hstack", "vslice", "vstack")), st.integers(0, 99)),
        st.builds(lambda r, c, v: b.tm("pad", r, c, v), st.integers(0, 9), st.integers(0, 9), numbers),
    ),
    max_size=4,
)


@st.composite
def netlists(draw: Any) -> Netlist:
    """Readable netlists, most of them not valid: odd names, TMs, numbers and fields."""
    n = b.build([b.op("o", draw(st.sampled_from(("add", "matmul", "gelu"))), [])], program=False, outputs=False)
    for name in draw(st.lists(names, unique=True, max_size=4)):
        q = b.queue(name, (1, 2, 2), kind=draw(st.sampled_from(("queue", "ram"))), source=draw(names))
        q.blocking = dataclasses.replace(q.blocking, mblock=draw(dims), order=draw(st.sampled_from((None, "r", "c"))))
        q.target_device = draw(st.one_of(st.integers(0, 40), st.lists(st.integers(0, 9), min_size=1, max_size=3)))
        q.alias, q.input_tms = draw(st.none() | names), draw(st.none() | tms)
        q.loc = draw(st.sampled_from(("dram", "host")))
        n.queues[name] = q
        n.extra[draw(names.filter(lambda s: s not in netlist.dump.__globals__["_SECTIONS"]))] = draw(
            st.recursive(
                st.none() | st.booleans() | numbers | names,
                lambda x: st.lists(x, max_size=3) | st.dictionaries(names, x, max_size=3),
                max_leaves=6,
            )
        )
    from tests.netlist.builders import lay_out

    lay_out(n)
    op = n.graphs["g"].ops["o"]
    op.inputs = [OpInput(s, DataFormat.Float16, draw(st.none() | tms)) for s in draw(st.lists(names, max_size=3))]
    op.attributes = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "zero_point": st.floats(-1e30, 1e30),
                "relu_threshold": numbers,
                "bias": st.booleans(),
                "m_k": st.integers(0, 2**31),
                "sfpu_op": names,
                "kernel_broadcast": st.dictionaries(names, st.integers(0, 99), max_size=2),
            },
        )
    )
    op.forked_dram_inputs = draw(st.none() | st.lists(st.dictionaries(names, names, max_size=2), max_size=2))
    n.order += list(n.extra)
    return n


@settings(max_examples=100, deadline=None)
@given(netlists())
def test_load_of_dump_is_the_same(n: Netlist) -> None:
    text = netlist.dumps(n)
    again = netlist.loads(text)
    assert again == n
    assert list(again.queues) == list(n.queues) and again.order == n.order
    assert netlist.dumps(again) == text


@settings(max_examples=100, deadline=None)
@given(netlists())
def test_another_reader_sees_the_same_numbers(n: Netlist) -> None:
    """PyYAML, which types scalars by their looks, finds the same integers and fractions."""
    data = yaml.load(netlist.dumps(n), yaml.CSafeLoader)
    queues = data["queues"] or {}
    assume(len(queues) == len(n.queues))  # to PyYAML the names 0 and 00 are one number
    for q, written in zip(n.queues.values(), queues.values(), strict=True):
        assert written["mblock"] == list(q.blocking.mblock)
        assert written[q.loc] == [[x.channel, x.address] for x in q.buffers]
    for key in ("zero_point", "relu_threshold", "m_k"):
        attributes = n.graphs["g"].ops["o"].attributes
        if key in attributes:
            assert data["graphs"]["g"]["o"]["attributes"][key] == attributes[key]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Any) -> None:
    n = b.unary()
    path = tmp_path / "n.yaml"
    netlist.dump(n, path)
    assert netlist.load(path) == n and [p.name for p in tmp_path.iterdir()] == ["n.yaml"]
    assert path.stat().st_mode & 0o400
    with pytest.raises(OutputError):
        netlist.dump(n, tmp_path / "missing" / "n.yaml")
    with pytest.raises(OutputError):
        netlist.dump(n, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["n.yaml"]


@pytest.mark.parametrize(
    "word,again", [("None", "None"), ("", None), ("~", None), ("null", None), ("[]", []), ("transpose", "transpose")]
)
def test_a_word_for_no_tms_stays(word: str, again: Any) -> None:
    """Real files write `None` or nothing; a scalar is not a TM, as iterating one yields nothing."""
    text = b.text(b.unary()).replace("inputs: [x]", f"inputs: [x], input_0_tms: {word}")
    n = netlist.loads(text)
    port = next(op for _, op in n.ops()).inputs[0]
    assert port.tms == []
    for copied in (n, copy.deepcopy(n), netlist.loads(netlist.dumps(n))):
        assert copied == n
        data = yaml.safe_load(netlist.dumps(copied))
        assert data["graphs"]["g"]["op0"]["input_0_tms"] == again
