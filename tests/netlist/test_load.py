# ruff: noqa: E501 (netlist text)
"""What the reader accepts, what it keeps, and what it refuses."""

from __future__ import annotations

import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import EndLoop, Execute, Loop, Param, Tm, Var, VarInst
from tests.netlist import builders as b

FULL = """\
# a comment
devices: {arch: [GRAYSKULL, wormhole_b0]}
queues:
  in.0:  {type: queue, input: HOST, entries: 2, grid_size: [1, 1], t: 1, mblock: [1, 1], ublock: [1, 1], df: Bfp8_b, target_device: 0, loc: dram, dram: [[0, 0x10000000]]}
  "odd: name": {type: ram, input: HOST, entries: 1, grid_size: [1, 1], t: 1, mblock: [1, 1], ublock: [1, 1], ublock_order: c,
    df: Float32, tile_dim: [16, 32], layout: flat, target_device: 0, loc: host, host: [0x20, [1, 64]], dram: [[0, 1]], read_ports: [0]}
graphs:
  g:
    target_device: 0
    input_count: 1
    add0:
      type: add
      grid_loc: [0, 0]
      grid_size: [1, 1]
      inputs: [in.0, "odd: name"]
      in_df: [Bfp8_b, Float32]
      out_df: Float32
      intermed_df: Float32
      acc_df: Float32
      ublock_order: r
      buf_size_mb: 2
      math_fidelity: HiFi2_A
      t: 1
      mblock: [1, 1]
      ublock: [1, 1]
      input_0_tms: [broadcast: {r: 2, c: 0x3}, transpose]
      input_0_tms: [hslice: 2]
      input_1_tms: None
      input_1_pad: {rt: 1, ct: 0, pad_value: 1e-3}
      input_1_unpad: {rt: 0, ct: 1}
      untilize_output: FALSE
      attributes: {relu_en: true, relu_threshold: .5, relu_mode: min, kernel_broadcast: {input_0: 2}}
programs:
- p:
  - param: [$p_n]
  - var: [$a, $b]
  - staticvar: {$s: 0, $t: }
  - varinst: [$s, incwrap, -1, 0x10]
  - loop: $p_n
  - execute: {graph_name: g, queue_settings: {in.0: {prologue: True, rd_ptr_local: $s, rd_ptr_global: 3}}}
  - execute: {graph_name: g}
  - endloop
- q: [{endloop: }]
test-config:
  io-config: {inputs: [in.0], rate: 1.0e-3, when: 2020-01-01, none: ~}
"""


def test_every_field_arrives() -> None:
    n = netlist.loads(FULL)
    assert n.arch == ["GRAYSKULL", "wormhole_b0"] and n.archs == ["grayskull", "wormhole_b0"] and n.arch_as_list
    assert n.order == ["devices", "queues", "graphs", "programs", "test-config"]
    odd = n.queues["odd: name"]
    assert (odd.type, odd.tile_dim, odd.layout, odd.blocking.order, odd.read_ports) == (
        "ram",
        (16, 32),
        "flat",
        "c",
        [0],
    )
    assert [(x.channel, x.address, x.bare) for x in odd.buffers] == [(0, 0x20, True), (1, 64, False)]
    assert odd.other == {"dram": [[0, 1]]}
    assert n.queues["in.0"].tile_dim is None and n.queues["in.0"].blocking.order is None
    op = n.graphs["g"].ops["add0"]
    assert op.inputs[0].tms == [Tm("broadcast", (("r", 2), ("c", 3))), Tm("transpose"), Tm("hslice", (2,))]
    assert op.inputs[1].tms == [] and op.inputs[1].df is DataFormat.Float32
    assert op.inputs[1].pad == {"rt": 1, "ct": 0, "pad_value": 0.001} and op.inputs[1].unpad == {"rt": 0, "ct": 1}
    assert op.untilize_output is False and op.gradient_op is None and op.math_fidelity == "HiFi2_A"
    assert list(op.attributes.items()) == [
        ("relu_en", True),
        ("relu_threshold", 0.5),
        ("relu_mode", "min"),
        ("kernel_broadcast", {"input_0": 2}),
    ]
    p, q = n.programs
    assert p.instructions[:5] == [
        Param(["$p_n"]),
        Var(False, {"$a": None, "$b": None}, True),
        Var(True, {"$s": 0, "$t": None}),
        VarInst("$s", "incwrap", [-1, 16]),
        Loop("$p_n"),
    ]
    first, second = p.instructions[5:7]
    assert isinstance(first, Execute) and isinstance(second, Execute)
    assert first.settings is not None
    assert first.settings["in.0"].fields == {"prologue": True, "rd_ptr_local": "$s", "rd_ptr_global": 3}
    assert second.settings is None
    assert q.instructions == [EndLoop(as_map=True)]
    assert n.extra["test-config"] == {
        "io-config": {"inputs": ["in.0"], "rate": 0.001, "when": "2020-01-01", "none": None}
    }


def test_the_source_map_points_into_the_text() -> None:
    n = netlist.loads(FULL)
    lines = FULL.splitlines()
    for where, (line, column) in n.source.items():
        here = lines[line - 1][column - 1 :]
        name = where[-1]
        assert here.lstrip('"-[{ ').startswith(name) or name.isdigit(), (where, here[:20])
    assert n.span(("graphs", "g", "add0", "inputs", "nothing")) == n.source[("graphs", "g", "add0", "inputs")]
    assert n.span(("nothing",)) is None


def test_a_round_trip_keeps_it_all() -> None:
    n = netlist.loads(FULL)
    assert netlist.loads(netlist.dumps(n)) == n


def wrong(text: str, old: str, new: str) -> NetlistError:
    assert old in text
    with pytest.raises(NetlistError) as caught:
        netlist.loads(text.replace(old, new, 1), path="some.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("old", "new", "rule", "words"),
    [
        ("entries: 2", "entrys: 2", "Q1", ("entrys", "entries")),
        ("entries: 2", "entries: 2, entries: 3", "Y2", ("entries", "twice")),
        ("entries: 2", "entries: two", "Y4", ("'two'", "integer")),
        ("entries: 2", "entries: 5000000000", "Y4", ("32 bits",)),
        ("entries: 2", "entries: [2]", "Y4", ("a list",)),
        ("mblock: [1, 1]", "mblock: [1]", "Q3", ("1 values", "exactly two")),
        ("df: Bfp8_b", "df: Bfp9_b", "Q8", ("Bfp9_b", "Bfp8_b")),
        ("dram: [[0, 0x10000000]]", "dram: [[0]]", "Q4", ("channel, address",)),
        ('  "odd: name"', "  in.0", "Q2", ("in.0", "line 4")),
        ("      type: add", "      type: add\n      colour: red", "O1", ("colour",)),
        ("      type: add", "      type: add\n      t: 2", "Y2", ("'t'",)),
        ("[Bfp8_b, Float32]", "[Bfp8_b]", "O4", ("1 in_df for 2 inputs",)),
        ("hslice: 2", "hslice: {r: 2}", "O9", ("single number",)),
        ("hslice: 2", "rotate: 2", "O9", ("rotate", "vstack")),
        ("hslice: 2", "broadcast: {q: 2}", "O9", ("'q'",)),
        ("transpose]", "flip]", "O9", ("'flip'",)),
        ("input_1_tms", "input_2_tms", "O9", ("no input 2",)),
        ("relu_en: true", "relu_on: true", "O1", ("relu_on", "relu_en")),
        ("relu_en: true", "approximate_mode: true", "O1", ("'add' ops", "exp")),
        ("relu_en: true", "relu_en: maybe", "Y4", ("'maybe'",)),
        ("relu_en: true, relu_threshold: .5, relu_mode: min, kernel_broadcast: {input_0: 2}", "", "O1", ("empty",)),
        ("{arch: [GRAYSKULL, wormhole_b0]}", "{arch: grayskull, grid: [1, 1]}", "D1", ("grid",)),
        ("  - loop: $p_n", "  - loop:", "P2", ("count",)),
        ("  - loop: $p_n", "  - repeat: 2", "P1", ("repeat", "loop")),
        ("  - endloop", "  - stop", "P1", ("'stop'",)),
        ("var: [$a, $b]", "var: $a", "P2", ("a list or a map",)),
        ("[$s, incwrap, -1, 0x10]", "[$s]", "P2", ("1 items",)),
        ("graph_name: g, queue", "graph: g, queue", "P3", ("graph_name",)),
        ("prologue: True", "prolog: True", "P3", ("prolog", "prologue")),
        ("- q: [{endloop: }]", "- q: [{endloop: , loop: 2}]", "P1", ("one key",)),
        ("- q: ", "- p: ", "P1", ("'p'", "twice")),
        ("graphs:\n", "graphs: [1]\nx:\n", "Y3", ("a list",)),
        ("devices:", "queues: {}\ndevices:", "Y2", ("queues", "twice")),
        ("# a comment", "\tx: [", "Y1", ("not YAML",)),
    ],
)
def test_refused_with_line_and_remedy(old: str, new: str, rule: str, words: tuple[str, ...]) -> None:
    error = wrong(FULL, old, new)
    matches = [d for d in error.diagnostics if d.rule == rule]
    assert matches, str(error)
    assert all(any(word in str(d) for d in matches) for word in words), str(error)
    assert "some.yaml:" in matches[0].where
    if rule != "Y1":
        line = FULL[: FULL.index(old)].count("\n") + 1
        assert any(f"some.yaml:{at}:" in d.where for d in matches for at in range(line, line + 16)), str(error)


def test_all_problems_at_once_and_lenient() -> None:
    text = FULL.replace("entries: 2", "entries: two").replace("type: add", "kind: add").replace("- endloop", "- stop")
    with pytest.raises(NetlistError, match="4 problems"):  # an unknown field, and attributes without a type... of add
        netlist.loads(text.replace("relu_en: true", "relu_on: true"))
    n = netlist.loads(text, lenient=True)
    assert len(n.problems) == 3 and n.queues["in.0"].entries == -1 and len(n.graphs["g"].ops) == 1


def test_unknown_sections_and_fused_fields_pass_through() -> None:
    n = b.fused_chain()
    n.fused_ops["0"].other["custom_kernel_path"] = "kernels/a.cpp"
    n.extra["performance-check"] = {"config-0": {"tensors-per-second": {"expected": 10, "rtol": 0.1}}, "note": "5"}
    n.order.append("performance-check")
    assert b.reread(n) == n
    assert not [f for f in netlist.check(b.reread(n)) if f.severity == "error"]


def test_sub_op_attributes_need_the_type_before_them() -> None:
    text = b.text(b.fused_chain()).replace(
        "{type: exp, inputs: [dest]", "{attributes: {vector: r}, type: exp, inputs: [dest]"
    )
    with pytest.raises(NetlistError, match="F12"):
        netlist.loads(text)
