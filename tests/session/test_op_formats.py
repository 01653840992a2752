"""Formats and fidelity of single ops: what the netlist says, what the executor gives, what is refused and why."""

from __future__ import annotations

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.errors import OverrideError, PipelineError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.lowering.data_formats import legal_fidelities, legal_formats
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import FormatOp, Session
from tbuda_lab.core.session.commands import InsertNop, SetUkt
from tbuda_lab.pybuda import config

OP = "0.query.matmul"
LAST = "1.last.layernorm.dc.add.10"


def net_op(result, name: str):
    return next(o for g in result.netlist.graphs.values() for o in g.ops.values() if o.name == name)


def test_the_netlist_and_all_readers_have_the_format(bert: Session) -> None:
    plain = bert.result
    bert.apply(FormatOp(OP, "Bfp8_b", "LoFi"))
    result = bert.compile()
    op = net_op(result, OP)
    assert (op.out_df, op.math_fidelity) == (DataFormat.Bfp8_b, "LoFi")
    readers = [
        (o, i)
        for g in result.netlist.graphs.values()
        for o in g.ops.values()
        for i in o.inputs
        if i.source in (OP, f"e2e_{OP}_0")
    ]
    assert readers and all(i.df is DataFormat.Bfp8_b for _, i in readers)
    assert {r.kind: (r.state, r.obtained[OP]) for r in bert.records} == {
        "data_format": ("obtained", "Bfp8_b"),
        "math_fidelity": ("obtained", "LoFi"),
    }
    assert all(c.pcc > 0.99 for c in bert.verify())
    bert.undo()
    assert bert.compile() is plain and net_op(plain, OP).out_df is DataFormat.Float16_b


def test_two_mantissa_bits_are_seen_in_the_result(bert: Session) -> None:
    """The executor rounds as the netlist says: of two formats the narrower gives the larger error, at that op."""
    errors = []
    for name in ("Float16_b", "Bfp8_b", "Bfp4_b", "Bfp2_b"):
        bert.apply(FormatOp(OP, name))
        errors.append(1 - bert.verify_ops()[OP].comparison.pcc)
    assert errors == sorted(errors) and errors[0] < errors[-1]


def test_what_is_refused_says_what_is_legal_and_leaves_nothing(bert: Session) -> None:
    graph, device = bert.compile().lowered, bert.device
    legal = [f.name for f in legal_formats(graph, OP, device)]
    assert legal == ["Float16_b", "Bfp8_b", "Bfp4_b", "Bfp2_b"]  # grayskull does not accumulate in Float32
    for op, requested in ((OP, "Float32"), (OP, "Float16"), (LAST, "Bfp8_b")):
        with pytest.raises(OverrideError) as error:
            bert.attempt(FormatOp(op, requested))
        assert error.value.diagnostics[0].where == op and error.value.diagnostics[0].fix
        assert not bert.overrides and bert.history == ()
    with pytest.raises(OverrideError, match="known: Float32"):
        FormatOp(OP, "Bfp9")
    with pytest.raises(OverrideError):
        FormatOp(OP)


@pytest.mark.parametrize("what", ["format", "fidelity"])
def test_every_legal_value_compiles_and_runs(mlp: Session, what: str) -> None:
    graph = mlp.compile().lowered
    op = "first.matmul"
    values = legal_formats(graph, op, mlp.device) if what == "format" else legal_fidelities(graph, op)
    for value in values:
        mlp.gesture(f"{what} of {op} = {value.name}")
        ((output,),) = mlp.run()
        assert torch.isfinite(output).all()
        assert next(iter(mlp.records)).obtained == {op: value.name}
    assert len(mlp.overrides) == 1


def test_a_nop_that_is_inserted_can_have_a_format(mlp: Session) -> None:
    graph = mlp.compile().lowered
    source, reader = next((s, n.name) for n in graph.ops for s in n.sources if s in {o.name for o in graph.ops})
    nop = f"buffer_0_{source}_{reader}"
    mlp.apply(FormatOp(nop, "Bfp8_b"), InsertNop(source, (reader,)))
    assert net_op(mlp.compile(), nop).out_df is DataFormat.Bfp8_b


def test_the_python_line_does_the_same(bert: Session) -> None:
    bert.apply(FormatOp(OP, "Bfp8_b", "HiFi2"))
    expected = bert.compile()
    config._clear_global_compiler_config()
    try:
        exec(bert.to_python(), {"pybuda": pybuda})
        overrides = config._get_global_compiler_config().resolve_overrides(bert.trace())
    finally:
        config._clear_global_compiler_config()
    got = compile_graph(bert.trace(), bert.device, bert.options, overrides)
    assert net_op(got, OP) == net_op(expected, OP)
    assert (net_op(got, OP).out_df, net_op(got, OP).math_fidelity) == (DataFormat.Bfp8_b, "HiFi2")


def test_mixed_precision_by_type_spares_ops_that_cannot(bert: Session) -> None:
    config._clear_global_compiler_config()
    try:
        config.configure_mixed_precision(op_type="matmul", output_df=DataFormat.Bfp8_b, math_fidelity=MathFidelity.LoFi)
        with pytest.raises(PipelineError):
            config.configure_mixed_precision(output_df=DataFormat.Bfp8_b)
        overrides = config._get_global_compiler_config().resolve_overrides(bert.trace())
    finally:
        config._clear_global_compiler_config()
    result = compile_graph(bert.trace(), bert.device, bert.options, overrides)
    names = [n.name for n in bert.trace().ops if n.op is not None and n.op.type == "matmul"]
    formats = {n: net_op(result, n).out_df for n in names if n in result.placement.ops}
    assert len(formats) > 8 and set(formats.values()) == {DataFormat.Bfp8_b}
    assert net_op(result, LAST).out_df is DataFormat.Float16_b
    assert len(Runner(result).run([bert.sample_inputs])) == 1


def test_a_format_survives_the_journal(bert: Session, tmp_path) -> None:
    path = bert.save(tmp_path / "encoder.buda.json")
    bert.apply(FormatOp(OP, "Bfp4_b"))
    again = Session.open(path, bert.trace(), bert.sample_inputs)
    assert again.overrides == bert.overrides


@pytest.mark.parametrize(("arch", "df"), [("grayskull", "Bfp2_b"), ("wormhole_b0", "Bfp4_b")])
def test_partial_results_of_a_picker_of_small_blocks_are_wider(arch: str, df: str) -> None:
    """Rows picked in several steps are added up: not in blocks of 4 or 2 bits (netlist-format.md#op-rules, O14)."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 8, 1),
    ).eval()
    session = Session(model, (torch.randn(1, 3, 48, 48),), arch)
    plain = session.compile()
    placed = plain.placement.ops
    picker = next(n for n in plain.lowered.ops if isinstance(n.op, HwSparseMatmul) and n.sources[0] in placed)
    table = plain.placement.models[picker.name]
    steps = next(int(row["u_kt"]) for row in table.rows[table.legal()] if row["m_k"] > 1)
    session.apply(FormatOp(picker.sources[0], df))
    session.apply(SetUkt(picker.name, steps))
    op = net_op(session.compile(), picker.name)
    assert op.attributes["m_k"] > 1 and op.out_df is DataFormat[df] and op.intermed_df is DataFormat.Bfp8_b
    assert all(c.pcc > 0.5 for c in session.verify())
