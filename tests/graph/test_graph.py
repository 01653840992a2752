"""Text, verifier, predicates and diff of graphs, nD and lowered."""

from __future__ import annotations

import numpy as np
import pytest

from tbuda_lab.core import ops
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph import (
    TM,
    Edge,
    Graph,
    GraphError,
    GraphSyntaxError,
    Node,
    NodeKind,
    Origin,
    Payload,
    parse_graph,
    print_graph,
    problems,
    verify,
)
from tbuda_lab.core.graph.diff import diff
from tbuda_lab.core.graph.query import Query, layer_regex, name_regex, op_type, select
from tbuda_lab.core.graph.text import array_table, equal
from tbuda_lab.core.lowering.hw_ops import HwMatmul, HwSparseMatmul, PackerRelu

TEXT = """graph 'mlp' {
  x = input : (1, 32) {dtype: 'float32'}
  'layer 1' = parameter : (32, 64) = float32 fill 0.5 @ {module: 'net.0'}
  half = constant : (3,) = float32 [0.5, -inf, 1e-20]
  ids = constant : (2,) = int64 [3, -4]
  h = matmul(x, 'layer 1') : (1, 64) @ {module: 'net.0', class: 'Linear', op: 'aten.linear.default', at: "it's.py:3"}
  s = index[dim=-1, start=0, stop=32](h) : (1, 32) {original_op_name: 'h'}
  y = output(s) : (1, 32)
}
"""


def lowered() -> Graph:
    graph = Graph("lowered")
    x = Node("x", NodeKind.INPUT, (1, 1, 32, 768), df=DataFormat.Float16_b)
    graph.add(x)
    attrs = {"acc_df": DataFormat.Float32, "fidelity": MathFidelity.HiFi3, "span": (1, 2.5), "note": None}
    edge = Edge("x", (TM("hslice", (12,)), TM("transpose"), TM("broadcast", ("z", 2))))
    op = HwMatmul(bias=True, relu=PackerRelu(0.5, "max"))
    graph.add(Node("m", NodeKind.OP, (1, 12, 64, 32), op, (edge, Edge("x")), DataFormat.Bfp8_b, attrs=attrs))
    rows = np.stack([np.zeros(900, int), np.arange(900), np.arange(900)[::-1]], 1)
    graph.add(Node("p", NodeKind.OP, (1, 1, 900, 32), HwSparseMatmul(Payload(rows)), (Edge("m"),)))
    graph.add(Node("out", NodeKind.OUTPUT, (1, 1, 900, 32), inputs=(Edge("p"),)))
    return graph


def test_text_is_what_was_written() -> None:
    graph = parse_graph(TEXT)
    assert print_graph(graph) == TEXT
    assert graph["half"].value is not None and graph["half"].value.dtype == np.float32
    assert graph["h"].origin == Origin("net.0", "Linear", "aten.linear.default", "it's.py:3")
    assert graph["s"].op == ops.Index(-1, 0, 32)


def test_lowered_graphs_with_tms_formats_and_payloads_read_back() -> None:
    graph = lowered()
    again = parse_graph(print_graph(graph))
    assert equal(graph, again)
    for node in graph:
        other = again[node.name]
        assert (node.op, node.inputs, node.df, node.attrs) == (other.op, other.inputs, other.df, other.attrs)


def test_arrays_by_digest() -> None:
    graph = Graph("g")
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    graph.add(Node("w", NodeKind.PARAMETER, (8, 8), value=values))
    large = Payload(np.arange(70000)[::-1])
    graph.add(Node("x", NodeKind.INPUT, (70000, 4)))
    graph.add(Node("r", NodeKind.OP, (70000, 4), ops.GatherRows(large), (Edge("x"),)))
    text = print_graph(graph)
    assert "#" in text and len(text) < 1000
    full = parse_graph(text, array_table(graph))
    assert np.array_equal(full["w"].value, values) and np.array_equal(full["r"].op.index.array, large.array)
    without = parse_graph(text)
    assert without["w"].value is None and without["r"].op == graph["r"].op
    assert print_graph(without) == text
    changed = values.copy()
    changed[3, 3] += 1
    graph["w"].value = changed
    assert print_graph(graph) != text


def test_constants_stand_in_the_text_where_that_is_asked_for_and_parameters_do_not() -> None:
    graph, drawn = Graph("g"), np.random.default_rng(0)
    for dtype in ("float32", "float16", "int64", "uint8", "bool"):
        values = drawn.integers(-9, 9, (5, 7)).astype(dtype)
        graph.add(Node(f"c_{dtype}", NodeKind.CONSTANT, (5, 7), value=values))
    graph.add(Node("infinite", NodeKind.CONSTANT, (3, 3), value=np.triu(np.full((3, 3), -np.inf, np.float32), 1)))
    graph.add(Node("w", NodeKind.PARAMETER, (5, 7), value=drawn.random((5, 7))))
    again = parse_graph(print_graph(graph, constants=True))
    for node in graph.of_kind(NodeKind.CONSTANT):
        assert again[node.name].value.dtype == node.value.dtype
        assert np.array_equal(again[node.name].value, node.value)
    assert again["w"].value is None
    assert print_graph(again) == print_graph(graph)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("graph 'g' {\n  x = conv9d(y) : (1,)\n}", "line 2: 'conv9d' is not a known op"),
        ("graph 'g' {\n  x = relu(y) : (1,)\n}", "reads 'y', which is not defined"),
        ("graph 'g' {\n  x = input : (1,)\n  x = input : (1,)\n}", "defined twice"),
        ("graph 'g' {\n  x = input : 3\n}", "not a tuple"),
        ("graph 'g' {\n  x = input : (1,) df Float99\n}", "not a data format"),
        ("graph 'g' {\n  x = input : (1,)\n", "found 'the end'"),
        ("graph 'g' {\n  x = index[dim=-1, stopp=2](x) : (1,)\n}", "no attribute 'stopp'"),
        ("graph 'g' {\n  x = index[dim=-1](x) : (1,)\n}", "missing"),
        ("graph 'g' {\n  x = constant : (2,) = float32 [1.0]\n}", "line 2"),
        ("graph 'g' {\n  x = constant : (2,) = object [1.0, 2.0]\n}", "not a type of numbers"),
        ("graph 'g' {\n  x = input : (1,) {a: __import__('os')}\n}", "is not a value"),
        ("graph 'g' { x = input : (1,) ` }", "cannot read"),
        ("graph 'g' {\n  x = gather_rows[index=packed int64 (2,) ~AAAA](x) : (1,)\n}", "cannot be read"),
        ("graph 'g' {\n  x = constant : (9,) = float32 packed ~AAAA\n}", "line 2: the value of 'x'"),
        ("graph 'g' {\n  x = constant : (2,) = uint8 packed ~eNpjZGIGAAANAAc=\n}", "what is packed is not 2 of uint8"),
        ("graph 'g' {\n  x = constant : (4,) = uint8 packed ~eNpjZGIGAAANAAc=\n}", "what is packed is not 4 of uint8"),
        ("graph 'g' {\n  x = constant : (99999999,) = int64 packed ~AAAA\n}", "would take"),
    ],
)
def test_broken_text_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(GraphSyntaxError, match=words.replace("(", r"\(")):
        parse_graph(text)


def test_verifier_names_every_problem() -> None:
    graph = parse_graph(TEXT)
    verify(graph)
    graph["h"].shape = (1, 65)
    graph["x"].inputs = (Edge("half"),)
    graph["ids"].value = np.zeros(3, np.int64)
    result = problems(graph)
    assert any("'h'" in p and "(1, 64)" in p for p in result)
    assert any("'x'" in p and "reads nothing" in p for p in result)
    assert any("'ids'" in p for p in result)
    with pytest.raises(GraphError, match="after some_pass"):
        verify(graph, after="some_pass")


def test_verifier_finds_cycles_and_missing_operands() -> None:
    graph = parse_graph("graph 'g' {\n  x = input : (4,)\n  a = exp(b) : (4,)\n  b = exp(a) : (4,)\n}")
    assert any("cycle" in p for p in problems(graph))
    graph["a"].inputs = (Edge("nowhere"),)
    assert any("'nowhere'" in p for p in problems(graph))


def test_predicates() -> None:
    graph = parse_graph(TEXT)
    names = lambda query: [node.name for node in select(graph, query)]  # noqa: E731
    assert names(op_type("matmul")) == ["h"]
    assert names(layer_regex(r"net\.\d")) == ["h"]
    assert names(name_regex("h|s")) == ["h", "s"]
    assert names(name_regex("h|s") & ~op_type("index")) == ["h"]
    assert names(op_type("matmul") | name_regex("s")) == ["h", "s"]
    assert names(op_type("matmul").negate()) == ["s"]
    combined = (name_regex("h.*") & ~op_type("index")) | layer_regex("net")
    assert Query.from_json(combined.to_json()) == combined
    for bad in ({"pattern": "x"}, {"kind": "magic"}, {"kind": "name", "pattern": "("}, 3):
        with pytest.raises(GraphError):
            Query.from_json(bad)  # type: ignore[arg-type]


def test_original_op_type_is_matched_after_decomposition() -> None:
    node = Node("s.dc.exp.1", NodeKind.OP, (1,), ops.Exp(), attrs={"original_op_type": "softmax"})
    assert op_type("softmax")(node) and op_type("exp")(node) and not op_type("log")(node)


def test_diff_names_what_changed() -> None:
    before, after = parse_graph(TEXT), parse_graph(TEXT)
    assert not diff(before, after)
    after["s"].op = ops.Index(-1, 32, 64)
    after["half"].value = np.zeros(3, np.float32)
    after.add(Node("t", NodeKind.OP, (1, 32), ops.Exp(), (Edge("s"),)))
    del after.nodes["ids"]
    result = diff(before, after)
    assert result.added == ("t",) and result.removed == ("ids",)
    assert [change.name for change in result.changed] == ["half", "s"]
    assert "start=0, stop=32] -> index[dim=-1, start=32, stop=64" in str(result)


def test_a_line_asks_for_no_more_than_graphs_are_printed_with() -> None:
    """`fill` makes arrays that are not in the file: each is small, and all of them together are."""
    line = "  c{0} = constant : (1, 1, 2048, {1}) = float32 fill 0.5\n".format
    assert parse_graph("graph g {\n" + line(0, 2048) + "}\n")["c0"].shape == (1, 1, 2048, 2048)
    for text, says in (
        (line(0, 2049), r"c0.*fill makes 16.* at most"),
        (line(0, 1 << 40), "c0.*fill makes"),
        ("".join(line(k, 2048) for k in range(33)), "c32.*would take"),
    ):
        with pytest.raises(GraphSyntaxError, match=says):
            parse_graph("graph g {\n" + text + "}\n")
