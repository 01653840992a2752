"""Comparisons of placements made by hand."""

from __future__ import annotations

import dataclasses
import html
import re

import mistune
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.diff import DeviceGrid, Diff, Side, compare_sides
from tests.diff.hand import op, queue, side


def classes(diff: Diff) -> dict[str, tuple[str, ...]]:
    return {c.op: c.classes for c in diff.changes}


def test_every_class_by_hand() -> None:
    before = side(
        "main",
        {
            "same": op(),
            "gone": op(0, (0, 3)),
            "moves": op(0, (1, 0)),
            "grows": op(1, (0, 0), (1, 2), 400),
            "slower": op(1, (1, 0), cycles=50),
            "turns": op(1, (1, 1), (1, 2)),
        },
    )
    after = side(
        "branch",
        {
            "same": op(),
            "new": op(0, (0, 2)),
            "moves": op(0, (1, 3)),
            "grows": op(1, (0, 0), (1, 4), 200),
            "slower": op(1, (1, 0), cycles=50, limiter=80),
            "turns": op(1, (1, 1), (1, 2), transposed=True),
        },
    )
    diff = compare_sides(before, after)
    assert classes(diff) == {
        "gone": ("removed",),
        "new": ("added",),
        "moves": ("moved",),
        "grows": ("resized", "retimed"),
        "slower": ("retimed",),
        "turns": ("moved",),
    }
    assert diff.limiter_cycles == (500, 300) and diff.kernel_cycles == (500, 300)
    assert diff.slower == pytest.approx(-0.4)
    assert {c.op: c.delta for c in diff.changes} == {
        "gone": -100,
        "new": 100,
        "moves": 0,
        "grows": -200,
        "slower": 30,
        "turns": 0,
    }
    grows = next(c for c in diff.changes if c.op == "grows")
    assert grows.ratio == -0.5 and diff.added[0].ratio is None


def test_an_epoch_put_in_front_moves_nobody() -> None:
    old = {f"op{k}": op(k) for k in range(4)}
    new = {"first": op(0)} | {f"op{k}": op(k + 1) for k in range(4)}
    diff = compare_sides(side("a", old), side("b", new))
    assert classes(diff) == {"first": ("added",)}
    assert diff.pairs == ((None, 0), (0, 1), (1, 2), (2, 3), (3, 4))


def test_an_epoch_that_is_gone_stands_last() -> None:
    diff = compare_sides(side("a", {"x": op(0), "y": op(1), "z": op(2)}), side("b", {"x": op(0), "z": op(1)}))
    assert diff.pairs == ((0, 0), (2, 1), (1, None)) and classes(diff) == {"y": ("removed",)}


def test_epochs_side_by_side_count_once() -> None:
    """Two chips at the same time: the slower one decides, twice over."""
    ops = {"a": op(0, cycles=100), "b": op(1, cycles=300, chip=1), "c": op(2, cycles=50)}
    one = side("a", ops, temporal=(0, 0, 1))
    assert one.limiter_cycles == 350 and one.temporal_epochs == 2
    assert side("b", ops).limiter_cycles == 450


def test_queues_by_hand() -> None:
    before = side("a", {"x": op()}, {"same": queue(), "gone": queue(), "moved": queue((0, 1)), "fatter": queue()})
    after = side("b", {"x": op()}, {"same": queue(), "new": queue(), "moved": queue((0, 2)), "fatter": queue(size=1)})
    diff = compare_sides(before, after)
    assert {q.queue: q.what for q in diff.queues} == {
        "gone": "removed",
        "new": "added",
        "moved": "moved",
        "fatter": "resized",
    }
    assert not diff.changes and "Nothing differs" not in diff.to_markdown()


def test_what_cannot_be_believed_is_said() -> None:
    a = side("a", {"x": op()}, cycles_from="estimate", unknown=("x",))
    b = dataclasses.replace(side("b", {"x": op()}), grid=DeviceGrid("other", 9, 9, tuple(range(9)), ()))
    notes = " ".join(compare_sides(a, b).notes)
    assert "grids differ" in notes and "estimates" in notes and "No estimate for x" in notes
    assert compare_sides(side("a", {}), side("b", {})).notes == ()


names = st.sampled_from([f"op{k}" for k in range(8)])
ops = st.dictionaries(
    names,
    st.builds(
        op,
        epoch=st.integers(0, 3),
        start=st.tuples(st.integers(0, 1), st.integers(0, 3)),
        grid=st.tuples(st.integers(1, 2), st.integers(1, 4)),
        cycles=st.integers(1, 1000),
    ),
    max_size=8,
)


@given(ops, ops)
def test_properties(one: dict, two: dict) -> None:
    a, b = side("a", one), side("b", two)
    diff, back = compare_sides(a, b), compare_sides(b, a)
    assert compare_sides(a, a).changes == () and compare_sides(a, a).slower == 0
    assert {c.op for c in diff.added} == set(two) - set(one) == {c.op for c in back.removed}
    assert {c.op: c.delta for c in diff.changes} == {c.op: -c.delta for c in back.changes}
    assert {c.op for c in diff.resized} == {n for n in set(one) & set(two) if one[n].grid != two[n].grid}
    seen_a = [x for x, _ in diff.pairs if x is not None]
    seen_b = [y for _, y in diff.pairs if y is not None]
    assert sorted(seen_a) == list(range(len(a.epochs))) and seen_b == list(range(len(b.epochs)))


def test_markdown() -> None:
    before = side("main", {"a": op(cycles=1000), "b|`c`": op(0, (0, 1))})
    after = side("branch", {"a": op(cycles=1250), "b|`c`": op(0, (1, 1))})
    text = compare_sides(before, after).to_markdown()
    assert text.splitlines()[:8] == [
        "### main → branch",
        "",
        "25.0 % more cycles: 1,000 → 1,250 per input.",
        "",
        "| | before | after | change |",
        "|---|---:|---:|---:|",
        "| slowest op of each epoch | 1,000 | 1,250 | +25.0 % |",
        "| kernels alone | 1,000 | 1,250 | +25.0 % |",
    ]
    assert "| `a` | retimed | 1x1 at 0,0, epoch 0 | 1x1 at 0,0, epoch 0 | 1,000 → 1,250 | +25.0 % |" in text
    assert "**2 ops differ**: 1 moved, 1 retimed" in text
    one = compare_sides(side("a", {"b": op()}), side("b", {"b": op(0, (1, 1))}))
    assert "**1 op differs**: 1 moved" in one.to_markdown()
    assert "| `b\\|''c''`" not in text and "`b\\|'c'`" in text  # a name cannot leave its cell


def test_markdown_is_cut_where_it_gets_long() -> None:
    before: Side = side("a", {f"op{k:02}": op(cycles=100) for k in range(40)})
    after = side("b", {f"op{k:02}": op(cycles=101 + k) for k in range(40)})
    text = compare_sides(before, after).to_markdown(5)
    rows = [line for line in text.splitlines() if line.startswith("| `op")]
    assert [r.split("`")[1] for r in rows] == ["op39", "op38", "op37", "op36", "op35"]
    assert "| and 35 more |" in text and "**40 ops differ**: 40 retimed" in text


@pytest.mark.parametrize(
    "name",
    [
        "a](javascript:x)[b",
        "![x](y.png)",
        "<script>alert(1)</script>",
        "*a* _b_ `c` ~~d~~",
        "a | b",
        "a\r\n# b",
        "&lt;b&gt;",
        "x\u2028# y",
        "[a]: http://b",
        "1\\. x",
    ],
)
def test_names_of_files_are_no_markup(name: str) -> None:
    """The oracle is a renderer of Markdown: it shows the name and makes nothing of it."""
    text = compare_sides(side(name, {name: op()}), side("b", {name: op(start=(1, 1))})).to_markdown()
    page = mistune.create_markdown(plugins=["table", "strikethrough", "url"])(text)
    assert isinstance(page, str)
    tags = set(re.findall(r"<(/?\w+)", page))
    assert not tags & {"a", "img", "script", "em", "del", "h1"}
    head = re.search(r"<h3>(.*?)</h3>", page, re.DOTALL)
    assert head is not None
    shown = "".join(c if c.isprintable() else " " for c in name)
    assert html.unescape(head[1]) == f"{shown} → b"
