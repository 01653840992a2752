"""The numbers behind the plots against the compile, and the figures against the numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tbuda_lab.core.analysis.memory import dram_map
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tbuda_lab.core.session.profile import bound_costs, epoch_costs, op_costs
from tests.session.models import encoder


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(2), "e300", name="encoder")
    op = next(n for n in session.compile().placement.ops if n.endswith("up.matmul"))
    table = session.legal(op)
    session.apply(ResizeOp(op, next(s for s in table.legal if s != table.grid)))
    session.apply(EpochBreak(next(n for n in session.result.placement.ops if n.startswith("1."))))
    session.compile()
    return session


def test_epochs(session: Session) -> None:
    placement, times = session.result.placement, session.time()
    rows = epoch_costs(session.result, times)
    assert [r.kernel for r in rows] == list(placement.epoch_cycles)
    for row, epoch in zip(rows, placement.epochs, strict=True):
        cores = sum(placement.ops[op].size[0] * placement.ops[op].size[1] for op in epoch.ops)
        work = sum(
            int(placement.candidate(op)["cycles"]) * placement.ops[op].size[0] * placement.ops[op].size[1]
            for op in epoch.ops
        )
        assert row.cores == pytest.approx(cores / session.device.cores)
        assert row.busy == pytest.approx(work / (row.time * session.device.cores))
        assert 0 < row.busy <= row.cores <= 1 and row.time >= row.kernel
    assert sum(r.time for r in rows) == pytest.approx(times.per_input), "one chip: the bars add up to the model"


def test_ops(session: Session) -> None:
    rows = op_costs(session.result)
    assert [r.op for r in rows] == list(session.result.placement.ops)
    assert sum(r.dram for r in rows) == pytest.approx(dram_map(session.result).demand.sum())
    assert all(0 < r.achieved <= 1 and r.intensity > 0 for r in rows)
    assert all((r.achieved == 1) == (r.limited_by == "kernel") for r in rows if r.limiter != r.kernel)


def test_no_bound_is_above_what_was_reached(session: Session) -> None:
    rows = dict(bound_costs(session.result, session.time()))
    reached = rows["reached: slowest kernels or transfers"]
    assert len(rows) == 8 and rows["reached: simulated, batch of 1"] == round(session.time().per_input) >= reached
    del rows["reached: simulated, batch of 1"]
    assert all(value <= reached for value in rows.values())


def test_history_is_what_each_state_compiles_to(session: Session) -> None:
    rows = session.queries.history_costs()
    assert [r.label for r in rows] == ["start", *(s.label for s in session.history)]
    totals = {}
    for row, name in zip(rows[::-1], ("now", "previous"), strict=False):
        totals[name] = row
    for name, row in totals.items():
        diff = session.diff(name)
        assert (row.kernel, row.time) == (diff.before.cycles, diff.before.time)
        assert row.epochs == diff.epochs[0]
    assert rows[0].time == session.diff("start").time[0]


def test_figures_show_the_numbers(session: Session) -> None:
    pytest.importorskip("bokeh")
    from tbuda_lab.widgets.pictures import plots

    def column(figure: object, name: str) -> list[object]:
        matches = [r.data_source.data[name] for r in figure.renderers if name in r.data_source.data]  # type: ignore[attr-defined]
        return list(matches[0])

    rows = epoch_costs(session.result, session.time())
    assert column(plots.utilisation(session), "busy") == [r.busy for r in rows]
    assert column(plots.epoch_cycles(session), "switch_to") == pytest.approx([r.time for r in rows])
    assert column(plots.gap(session), "cycles") == [c for _, c in bound_costs(session.result, session.time())][::-1]
    assert column(plots.history(session), "label") == [r.label for r in session.queries.history_costs()]
    roof = plots.roofline(session)
    ops = [op for r in roof.renderers for op in r.data_source.data.get("op", ())]
    assert sorted(ops) == sorted(session.result.placement.ops)


def test_the_page_needs_no_network(session: Session, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    from tbuda_lab.widgets.pictures.plots import write_plots

    path = write_plots(session, tmp_path / "plots.html")
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<(script|link)[^>]+(src|href)=", text) and "Gap to bounds" in text
    assert len(text) < 3_000_000
    with pytest.raises(OutputError):
        write_plots(session, tmp_path / "no such folder" / "plots.html")


def test_without_bokeh_it_says_what_to_install(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from tbuda_lab.widgets.pictures import plots

    monkeypatch.setitem(sys.modules, "bokeh.plotting", None)
    with pytest.raises(OutputError, match="pip install bokeh"):
        plots.gap(session)
