"""legal, whatif, suggest, why: each answer is held against what really happens."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
import torch

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.epochsim import epoch_limits, simulate
from tbuda_lab.core.epochsim.batch_time import Bound
from tbuda_lab.core.errors import Cancelled, InputError, OverrideError, PlacementError
from tbuda_lab.core.frames import total_cycles
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility
from tbuda_lab.core.session import EpochBreak, QueueChannel, ResizeOp, Session
from tbuda_lab.core.session.legal import edge_refusals, free_starts
from tests.placer.test_stall_repair import model
from tests.session.models import encoder
from tests.session.test_edits import check_placement, matmuls


def test_verdicts_are_what_compiling_says(bert):
    op = matmuls(bert)[4]
    table = bert.legal(op)
    rng = np.random.default_rng(1)
    rows, cols = table.shapes.shape
    illegal = [(r + 1, c + 1) for r in range(rows) for c in range(cols) if (r + 1, c + 1) not in table.legal]
    picked = [illegal[i] for i in rng.permutation(len(illegal))[:6]]
    for size in [*table.legal, *picked]:
        bert.apply(ResizeOp(op, size))
        if table.shapes[size[0] - 1, size[1] - 1]["verdict"] == 0:
            row = bert.compile().placement.candidate(op)
            assert (row["grid_r"], row["grid_c"]) == size
            check_placement(bert)
            # the table does not depend on the size it is asked for
            assert bert.legal(op).legal == table.legal
        else:
            assert table.why_not(*size).meaning
            with pytest.raises((OverrideError, PlacementError)):
                bert.compile()
        bert.undo()


def test_shapes_are_the_divisors_of_the_tiles(shared):
    for op in shared.result.placement.schedule[:20]:
        table = shared.legal(op)
        tiles = parallel_tiles(table.candidates.profile)
        for r, c in table.legal:
            assert tiles[0] % r == 0 and tiles[1] % c == 0
            rows = table.candidates.rows
            own = rows[(rows["grid_r"] == r) & (rows["grid_c"] == c) & (rows["reason"] == 0)]
            shape = table.shapes[r - 1, c - 1]
            assert shape["cycles"] in own["cycles"] and shape["cores"] == r * c
            assert shape["limiter_cycles"] >= shape["cycles"]
            assert shape["epoch_cycles"] >= shape["limiter_cycles"]
            assert shape["epoch_kernel_cycles"] >= shape["cycles"]
            if shape["limiter_cycles"] > shape["cycles"]:
                assert table.limiters[shape["limiter"]] != "kernel"


def test_the_table_agrees_with_the_placement_as_it_is(shared):
    report = shared.result.placement.report
    for op in shared.result.placement.schedule:
        table = shared.legal(op)
        r, c = table.grid
        assert table.shapes[r - 1, c - 1]["verdict"] == 0
        spot = shared.result.placement.ops[op]
        assert spot.start in table.starts(*spot.size)
        if table.shapes[r - 1, c - 1]["row"] == spot.row:
            shape, epoch = table.shapes[r - 1, c - 1], report.epochs[spot.epoch]
            assert shape["epoch_cycles"] == epoch.limiter_cycles
            assert shape["epoch_kernel_cycles"] == epoch.kernel_cycles
            kernel, limiter, what = report.op_limiters[op]
            assert (shape["cycles"], shape["limiter_cycles"], table.limiters[shape["limiter"]]) == (
                kernel,
                limiter,
                what,
            )
            # of several ops that take as long, one is named
            named = table.ops[shape["epoch_op"]]
            assert report.op_limiters[named][1] == epoch.limiter_cycles
            assert shape["edge"] == 0  # the placement as it stands goes together
            assert table.shapes[r - 1, c - 1]["balance"] == pytest.approx(report.epochs[spot.epoch].balance, rel=1e-3)


def test_the_table_estimates_the_time_that_every_view_shows(shared):
    op = matmuls(shared)[4]
    table = shared.legal(op)
    now = table.shapes[table.grid[0] - 1, table.grid[1] - 1]
    assert now["time"] == pytest.approx(shared.time().per_input, rel=1e-6), "as it stands nothing is estimated"
    others = [s for s in table.legal if s != table.grid]
    assert others and all(np.isfinite(table.shapes[r - 1, c - 1]["time"]) for r, c in others)
    slower = max(others, key=lambda s: table.shapes[s[0] - 1, s[1] - 1]["epoch_cycles"])
    estimate = float(table.shapes[slower[0] - 1, slower[1] - 1]["time"])
    exact = shared.whatif(ResizeOp(op, slower), queues=False).time[1]
    assert estimate == pytest.approx(exact, rel=0.25)


def test_edge_verdicts_are_those_of_streams_and_stacks(shared):
    """With neighbours that stream at random, held against the placer's own book of edges."""
    placed = shared.placed()
    problem, rng = placed.problem, np.random.default_rng(5)
    agreed, stacks = {True: 0, False: 0}, 0
    for op in shared.result.placement.schedule[:24]:
        table, number = shared.legal(op), problem.number[op]
        segment = placed.segments[table.epoch]
        span = (segment.first, segment.last)
        rows = {}
        for o in range(*span):
            legal = problem.legal[problem.tables[o].signature]
            streams = legal[problem.tables[o].rows["stream"][legal] != ""]
            rows[o] = int(rng.choice(streams if len(streams) else legal))
        shapes = table.shapes.copy()
        shapes["edge"] = 0
        own = problem.legal[problem.tables[number].signature]
        some = shapes["row"] >= 0
        shapes["row"][some] = rng.choice(own, int(some.sum()))
        edges = edge_refusals(problem, number, rows, span, shapes)
        for r, c in np.argwhere(some):
            book = EdgeCompatibility(problem, *span, {})
            message = set()
            for other in {o for o in rows if o != number}:
                book.rows = {other: rows[other]}
                if not book.check(number, int(shapes[r, c]["row"])):
                    message.add(book.refusal[2].name)
            wrong = bool(message & set(STREAM_RULES))
            assert bool(shapes[r, c]["edge"]) == wrong
            if wrong:
                names, text = edges[int(shapes[r, c]["edge"])].split(": ", 1)
                broken = next(r for r in EdgeReason if text.startswith(r.value))
                assert broken.name in message
                if broken.name.startswith("STACK_"):
                    stacks += 1
                    assert re.search(r" -> .*, operand \d through ([hv]stack \d|the stack of its t-stream)", names)
                    assert RouteRule[broken.name].fix in text and "legal on this edge" in text
            agreed[wrong] += 1
    assert min(agreed.values()) > 20 and stacks > 0


STREAM_RULES = (
    "STREAM_CONSUMER",
    "STREAM_DIRECTION",
    "STREAM_BROADCAST",
    "STREAM_TRANSPOSE",
    "STREAM_MATMUL_SIDE",
    "STREAM_CONV_HANG",
    *(r.name for r in EdgeReason if r.name.startswith("STACK_")),
    "UNFED_CORE",
)


def test_free_starts_against_every_rectangle():
    rng = np.random.default_rng(0)
    busy = rng.random((5, 7)) < 0.3
    masks = free_starts(busy)
    for h in range(1, 6):
        for w in range(1, 8):
            for y in range(5):
                for x in range(7):
                    fits = y + h <= 5 and x + w <= 7 and not busy[y : y + h, x : x + w].any()
                    assert bool(masks[h - 1, w - 1, y] >> x & 1) == fits


def shown_cycles(session):
    """Cycles per input as the views show them: with data, and of the kernels alone."""
    placement = session.result.placement
    temporal = np.array([e.temporal for e in placement.epochs])
    limits = np.array([e.limiter_cycles for e in placement.report.epochs])
    return total_cycles(temporal, limits), total_cycles(temporal, np.array(placement.epoch_cycles))


def test_chips_that_run_together_count_once():
    session = Session(*encoder(), "n300", name="two_chips")
    session.compile()
    assert len({e.temporal for e in session.result.placement.epochs}) < len(session.result.placement.epochs)
    op = matmuls(session)[0]
    here = session.result.placement.ops[op].size
    size = next(s for s in session.legal(op).legal if s != here)
    message = session.whatif(ResizeOp(op, size))
    first, before = shown_cycles(session), session.time().per_input
    session.apply(ResizeOp(op, size))
    session.compile()
    assert (message.total_cycles[0], message.kernel_cycles[0]) == first
    assert (message.total_cycles[1], message.kernel_cycles[1]) == shown_cycles(session)
    assert [(step.time, step.kernel) for step in session.queries.history_costs()] == [
        (before, first[1]),
        (session.time().per_input, shown_cycles(session)[1]),
    ]


def test_whatif_is_what_happens_and_changes_nothing(bert):
    op = matmuls(bert)[6]
    first, state = bert.result, bert.request
    for size in bert.legal(op).legal:
        message = bert.whatif(ResizeOp(op, size))
        assert bert.result is first and bert.request is state and not bert.stale
        bert.apply(ResizeOp(op, size))
        after = bert.compile().placement
        assert message.total_cycles[1] == sum(e.limiter_cycles for e in after.report.epochs)
        assert message.kernel_cycles[1] == sum(after.epoch_cycles)
        assert message.epochs == (len(first.placement.epochs), len(after.epochs))
        for displaced in message.displaced:
            assert after.ops[displaced.op] == displaced.after
        bert.undo()


def test_whatif_counts_queues_and_dram(bert):
    """A new epoch sends what crosses it through DRAM: as many queues and bytes as compiling it gives."""
    op = bert.result.placement.epochs[0].ops[2]
    message = bert.whatif(EpochBreak(op))
    before = bert.compile().netlist
    bert.apply(EpochBreak(op))
    after = bert.compile().netlist
    assert message.queues == (len(before.queues), len(after.queues)) and message.queues[1] > message.queues[0]
    sizes = []
    for netlist in (before, after):
        ends = [
            (len(q.buffers) * bert.result.placement.queues[q.name].bytes_per_buffer, q)
            for q in netlist.queues.values()
            if q.loc == "dram" and q.name in bert.result.placement.queues
        ]
        sizes.append(sum(size for size, _ in ends))
    assert message.dram_bytes[1] == sizes[1] and message.dram_bytes[0] <= message.dram_bytes[1]
    assert 0 < message.dram_full[0] <= message.dram_full[1] < 1
    with pytest.raises((OverrideError, PlacementError)):  # known only when queues are placed
        bert.whatif(QueueChannel(next(iter(after.queues)), channel=99))
    assert bert.whatif(ResizeOp(op, bert.legal(op).grid), queues=False).queues is None


def test_a_cancelled_whatif_changes_nothing(bert):
    stop = threading.Event()
    stop.set()
    op = matmuls(bert)[0]
    size = next(s for s in bert.legal(op).legal if s != bert.legal(op).grid)
    result = bert.result
    with pytest.raises(Cancelled):
        bert.whatif(ResizeOp(op, size), cancel=stop)
    assert bert.result is result and not bert.history and not bert.stale
    assert bert.whatif(ResizeOp(op, size), cancel=threading.Event()).displaced


def test_suggestions_are_real(traced):
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300", name="encoder")
    session.configure(balancer_policy="MinimizeGrid")
    session.compile()
    result = session.suggest(5)
    assert result and len(result) <= 5
    assert [s.gain for s in result] == sorted((s.gain for s in result), reverse=True)
    best = result[0]
    before = session.time().per_input
    session.apply(*best.commands)
    after = session.compile()
    assert best.cycles == (before, simulate(after, session.options.microbatch).cycles / session.options.microbatch)
    assert best.gain == best.cycles[0] - best.cycles[1] > 0
    limiters = sum(e.limiter_cycles for e in after.placement.report.epochs)
    assert limiters == best.effect.total_cycles[1]


def test_suggestions_are_of_many_kinds_and_do_what_they_say(traced):
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300", name="encoder")
    session.apply(EpochBreak("0.softmax.dc.exp.2"), EpochBreak("0.add_1"), ResizeOp("0.up.matmul", (1, 1)))
    session.compile()
    result = session.suggest(30)
    kinds = {s.kind for s in result}
    assert {"resize", "merge", "free"} <= kinds
    for kind in kinds:
        one = next(s for s in result if s.kind == kind)
        before = session.time().per_input
        session.apply(*one.commands)
        assert (before, session.time().per_input) == one.cycles and one.gain > 0
        session.undo()
        session.compile()
    assert len({s.kind for s in session.suggest(10)}) >= 3


def test_an_op_is_moved_to_an_epoch_where_it_costs_less(traced):
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300", CompileOptions(objective="throughput"), name="encoder")
    starts = ("0.softmax.dc.exp.2", "0.norm.layernorm.dc.subtract.1", "0.add_1", "1.query.matmul", "1.matmul_1")
    session.apply(*(EpochBreak(name) for name in starts))
    session.compile()
    one = next(s for s in session.suggest(50) if s.kind == "move")
    session.apply(*one.commands)
    session.compile()
    check_placement(session)
    assert session.time().per_input == one.cycles[1] < one.cycles[0]


def test_streams_and_inner_steps_are_suggested_where_a_policy_left_them_slow():
    torch.manual_seed(0)
    big = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).eval()
    options = CompileOptions(microbatch=64, balancer_policy="MaximizeTMinimizeGrid")
    session = Session(big, (torch.randn(1, 384, 512),), "e300", options)
    result = session.suggest(40)
    for kind in ("stream", "u_kt"):
        one = next(s for s in result if s.kind == kind)
        session.apply(*one.commands)
        assert session.time().per_input == one.cycles[1] < one.cycles[0]
        session.undo()


def test_a_nop_is_suggested_where_the_simulator_sees_an_epoch_wait():
    options = CompileOptions(microbatch=24, enable_fork_join_buffering=False)
    session = Session(model(1024)[2], (torch.randn(1, 64, 256),), "grayskull", options, name="ff")
    result = session.compile()
    assert any(s.critical for s in simulate(result, 8).stalls)
    one = next(s for s in session.suggest(30) if s.kind == "nop")
    assert session.result is result and not session.overrides
    before, after = one.cycles
    assert one.batch is None and before == session.time().per_input
    session.apply(*one.commands)
    assert simulate(session.compile(), 24).cycles / 24 == after < before


def test_stalls_of_the_timeline_have_a_remedy_in_a_session_of_one_input():
    """The timeline shows 8 inputs: what waits there is suggested too, and said to hold for that batch."""
    options = CompileOptions(microbatch=1, enable_fork_join_buffering=False, objective="throughput")
    session = Session(model(1024)[2], (torch.randn(1, 64, 256),), "grayskull", options, name="ff")
    result = session.compile()
    assert any(s.critical for s in session.timeline(8).stalls)
    one = next(s for s in session.suggest(30) if s.kind == "nop")
    assert one.batch == 8 and "batch of 8" in one.text
    assert one.cycles[0] == simulate(result, 8).cycles / 8
    session.apply(*one.commands)
    assert simulate(session.compile(), 8).cycles / 8 == one.cycles[1] < one.cycles[0]


def test_why_names_the_limiter_and_counts_refusals(shared):
    placement, times = shared.result.placement, shared.time()
    for op in matmuls(shared)[:4]:
        why = shared.why(op)
        table = shared.result.placement.models[op]
        assert sum(n for _, n, _, _ in why.refused) + why.legal == why.total == len(table.rows)
        epoch = times.epochs[why.epoch]
        limit = epoch_limits(placement, times)[why.epoch]
        assert (why.limiter_op, why.limiter, why.limits) == (limit.slowest, limit.op_bound, limit.text)
        assert why.limiter_op == placement.report.epochs[why.epoch].limiter_op and op in why.text
        assert (why.time, why.epoch_time) == (times.per_input, epoch.cycles / times.batch)
        assert f"most of it is {epoch.bound.words}." in why.text
        for other in why.next_best:
            assert other.grid != why.grid and other.against
            assert other.time == shared.whatif(other.command).time[1], "one truth: what the simulation says of the edit"
            assert other.time is None or other.against.startswith("legal"), "what has a time can be applied"
            assert other.against.endswith("would be faster") == (other.time is not None and other.time < why.time)


def test_bounds_are_said_in_words():
    said = {bound.value: bound.words for bound in Bound}
    assert said.pop("fill") == "filling the pipeline"
    assert said.pop("switch") == "the epoch switch"
    assert said.pop("stall") == "full buffers"
    assert all(value == words for value, words in said.items())


def test_names_that_are_not_there(shared):
    for ask in (shared.legal, shared.why):
        with pytest.raises(InputError, match="nobody"):
            ask("nobody")


@pytest.mark.parametrize(
    ("device", "shape"), [("wormhole_b0", (320, 96)), ("grayskull", (64, 384)), ("n150", (288, 64))]
)
def test_tall_and_wide_shapes_have_their_why_on_a_grid_that_is_no_square(device, shape):
    """Ten rows cannot be turned onto eight columns; "make room" is held against every rectangle of an epoch."""
    torch.manual_seed(0)
    layers = [m for _ in range(8) for m in (torch.nn.Linear(shape[1], shape[1]), torch.nn.Tanh())]
    session = Session(torch.nn.Sequential(*layers), (torch.randn(1, *shape),), device)
    ops = session.compile().placement.ops
    rows, cols = session.device.rows, session.device.cols
    oversized = in_the_way = 0
    for op, mine in ops.items():
        busy = np.zeros((rows, cols), dtype=bool)
        for name, spot in ops.items():
            if name != op and spot.epoch == mine.epoch:
                busy[spot.start[0] : spot.start[0] + spot.size[0], spot.start[1] : spot.start[1] + spot.size[1]] = True
        for other in session.why(op).next_best:
            high, wide = other.grid
            oversized += high > cols or wide > rows
            free = any(
                not busy[y : y + h, x : x + w].any()
                for h, w in {(high, wide), (wide, high)}
                for y in range(rows - h + 1)
                for x in range(cols - w + 1)
            )
            if "other ops make room" in other.against or other.against.startswith("no free place"):
                in_the_way += 1
                assert not free
    assert oversized and in_the_way


def test_a_table_says_which_shapes_it_has(shared):
    table = shared.legal(next(iter(shared.result.placement.ops)))
    rows, cols = table.shapes.shape
    for size in ((0, 1), (1, 0), (rows + 1, 1), (1, cols + 1)):
        for ask in (table.why_not, table.starts):
            with pytest.raises(InputError, match=f"{rows}x{cols}"):
                ask(*size)
