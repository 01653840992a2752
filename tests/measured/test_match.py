"""Ops of a profile matched to those of a model, laid over its placement, and errors that leave the session as it is."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError, TbudaError, UnknownDevice
from tbuda_lab.core.measured import MeasuredProfile, read_profile
from tbuda_lab.core.measured.kernels import dump_kernels, packaged_kernels
from tbuda_lab.core.measured.match import align, match_profile, run_lengths
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.measured.steps import Step
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tests.measured.files import op, perceptron_rows, signpost, table, tensor_columns
from tests.session.models import perceptron


def steps(text: str) -> list[Step]:
    """Words like m64: a matmul of 64 rows."""
    kinds = {"m": "matmul", "t": "transpose", "r": "reshape", "b": "binary", "s": "softmax"}
    return [Step(w, kinds[w[0]], (int(w[1:]), 32), 32 if w[0] == "m" else 0) for w in text.split()]


@pytest.mark.parametrize(
    "left, right, pairs",
    [
        ("m1 m2 m3", "m1 m2 m3", "m1-m1 m2-m2 m3-m3"),
        ("m1 m3", "m1 m2 m3", "m1-m1 m3-m3"),
        ("m1 r1 r1 m3", "m1 m3", "m1-m1 m3-m3"),
        ("m1 b1 s1 m2", "m1 s1 b1 m2", "m1-m1 s1-s1 m2-m2"),
        ("r1 r2 t1 t2 m1", "r1 t1 r2 t2 m1", "r1-r1 r2-r2 t1-t1 t2-t2 m1-m1"),  # another order between two products
        ("m1", "s1", ""),
        ("", "m1", ""),
        ("m4096", "m2", ""),
    ],
)
def test_the_cheapest_alignment(left: str, right: str, pairs: str) -> None:
    a, b = steps(left), steps(right)
    found = sorted(f"{a[i].name}-{b[j].name}" for i, j, _ in align(a, b)[0])
    assert found == sorted(pairs.split())


def test_an_alignment_is_the_cheapest_of_all() -> None:
    """Against a plain recursion over all alignments."""
    from functools import cache

    from tbuda_lab.core.measured.match import ALONE, pair_costs

    a, b = steps("m1 r1 b2 t1 m4 s1 b1"), steps("r1 m1 t2 b1 m4 b1 s1 r2")
    costs = pair_costs(a, b)

    @cache
    def best(i: int, j: int) -> float:
        if i == len(a) or j == len(b):
            return sum(ALONE[s.group] for s in (*a[i:], *b[j:]))
        return min(
            best(i + 1, j + 1) + costs[i, j], best(i + 1, j) + ALONE[a[i].group], best(i, j + 1) + ALONE[b[j].group]
        )

    assert align(a, b)[1] == pytest.approx(best(0, 0), abs=1e-5)


def profile_of(rows, name: str = "run.csv"):
    return read_ops_perf_text(table(rows), name)


def test_a_perceptron_is_matched_and_several_runs_are_recognised(mlp: Session) -> None:
    graph = mlp.trace()
    match = match_profile(profile_of(perceptron_rows()), graph)
    assert {p.measured.name: p.op for p in match.pairs} == {
        "MatmulDeviceOperation_1": "first.matmul",
        "UnaryDeviceOperation_1": "relu",
        "MatmulDeviceOperation_2": "second.matmul",
    }
    assert [o.kind for o in match.unmatched] == ["tilize"] and not match.missing and match.share("matmul") == 1
    twice = match_profile(profile_of([*perceptron_rows(), *perceptron_rows((11000, 1700, 7000))]), graph)
    assert twice.runs == 2 and twice.times()["first.matmul"] == 10000


def test_a_profile_is_laid_over_the_placement(mlp: Session) -> None:
    told = []
    stop = mlp.on("measured", told.append)
    overlay = mlp.load_profile(profile_of(perceptron_rows()))
    stop()
    assert told == [overlay] and mlp.measured is overlay
    rows = {row.op: row for row in overlay.ops}
    assert set(rows) == set(mlp.compile().placement.ops)
    assert sum(row.measured or 0 for row in overlay.ops) == pytest.approx(9000 + 1500 + 7000)
    first = next(row for row in overlay.ops if "MatmulDeviceOperation_1" in row.names)
    assert first.ratio == pytest.approx(first.measured / first.ttnn) and first.lost < first.measured
    bound = first.bounds["compute"] / (128 / 32 * 512 / 32 * 256 / 32 / 8 * 4 * 16 / 1.35)
    assert bound > 0.99  # HiFi4: four passes of 16 cycles a tile on eight cores of 1.35 GHz
    assert len(mlp.run_by_op()) == 3
    with pytest.raises(UnknownDevice):
        mlp.run_by_op("vax")


def test_bad_profiles_change_nothing_of_the_session(mlp: Session, tmp_path: Path) -> None:
    before = mlp.load_profile(profile_of(perceptron_rows()))
    foreign = tmp_path / "other.csv"
    foreign.write_text(table([op("MatmulDeviceOperation", 5, [(7, 9000), (9000, 3)], (7, 3))] * 5))
    with pytest.raises(InputError, match="another model"):
        mlp.load_profile(foreign)
    with pytest.raises(InputError, match="cannot be read"):
        mlp.load_profile(tmp_path / "none.csv")
    good = tmp_path / "run.csv"
    good.write_text(table(perceptron_rows()))
    with pytest.raises(InputError):
        mlp.load_profile(good, kernels=foreign)
    assert mlp.measured is before


class Attention(nn.Module):
    """Queries, keys and values in an order of their own; what `late` names is computed behind the softmax."""

    def __init__(self, order: str = "qkv", late: str = "", size: int = 512) -> None:
        super().__init__()
        self.order, self.late = order, late
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in "qkvo")
        self.f, self.g = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = {name: getattr(self, name)(x) for name in self.order if name not in self.late}
        weights = (made["q"] @ made["k"].transpose(-1, -2)).softmax(-1)
        made |= {name: getattr(self, name)(x) for name in self.late}
        return self.g(self.f(self.o(weights @ made["v"])))


class Layers(nn.Module):
    def __init__(self, count: int, **how: str) -> None:
        super().__init__()
        self.l = nn.ModuleList(Attention(**how) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.l:
            x = layer(x)
        return x


def attention_rows(order: str) -> list[dict[str, Any]]:
    """As a profile has them: q, k, v, o, f and g are projections, s and a the two products around the softmax x."""
    project = op("MinimalMatmulOp", 10, [(16, 512), (512, 512)], (16, 512))
    rows = {
        "s": op("Matmul", 10, [(16, 512), (512, 16)], (16, 16)),
        "x": op("SoftmaxDeviceOperation", 10, [(16, 16)], (16, 16)),
        "f": op("MinimalMatmulOp", 10, [(16, 512), (512, 1024)], (16, 1024)),
        "g": op("MinimalMatmulOp", 10, [(16, 1024), (1024, 512)], (16, 512)),
        "a": op("Matmul", 10, [(16, 16), (16, 512)], (16, 512)),
    }
    return [rows.get(name, project) for name in order]


ALIKE = "{} of l.{}: {} products of the same shape; matched in the order of the model"


@pytest.mark.parametrize(
    "how, ran, names, alike",
    [
        ({}, "qkvsxao", "qkvo", "q, k, v"),
        ({"late": "v"}, "qkvsxao", "qkvo", "q, k, v"),  # the model's order is another, and each product has its partner
        ({"order": "vkq"}, "vkqsxao", "vkqo", "v, k, q"),
        ({}, "qksxvao", "qkvo", "q, k"),  # only values can run behind the softmax
        ({"order": "vkq"}, "kqsxvao", "kqvo", "k, q"),
        ({"late": "v"}, "qksxvao", "qkvo", "q, k"),
    ],
)
def test_products_that_nothing_tells_apart_are_matched_in_the_models_order_and_said(
    how: dict[str, str], ran: str, names: str, alike: str
) -> None:
    torch.manual_seed(0)
    graph = Session(Layers(3, **how), torch.randn(1, 16, 512), "n150").trace()
    match = match_profile(profile_of(attention_rows(ran + "fg") * 3), graph)
    assert match.share("matmul") == 1 and all("transpose" in name for name in match.missing)
    got = [graph[p.op].origin.module for p in match.pairs if p.measured.code == "MinimalMatmulOp"]
    assert got == [f"l.{layer}.{name}" for layer in range(3) for name in names + "fg"]
    assert match.notes == tuple(ALIKE.format(alike, layer, alike.count(",") + 1) for layer in range(3))


def test_marks_and_what_needs_what_tell_products_apart() -> None:
    torch.manual_seed(0)
    graph = Session(Layers(1), torch.randn(1, 16, 512), "n150").trace()
    q, k, v, *rest = attention_rows("qkvsxaofg")
    marked = [signpost("l.0.q"), q, signpost("l.0.k"), k, signpost("l.0.v"), v, signpost("rest"), *rest]
    assert match_profile(profile_of(marked), graph).notes == ()
    chain = Session(nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]), torch.randn(1, 16, 512), "n150").trace()
    assert match_profile(profile_of([q] * 4), chain).notes == ()


def test_the_command_says_which_products_are_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.csv").write_text(table(attention_rows("qkvsxaofg") * 5))
    (tmp_path / "model.py").write_text(
        "import torch\nfrom tests.measured.test_match import Layers\n\n\n"
        "def make():\n    return Layers(5), (torch.randn(1, 16, 512),)\n"
    )
    words = ["profile", "import", str(tmp_path / "run.csv"), "--model", f"{tmp_path / 'model.py'}:make"]
    assert main([*words, "--device", "n150"]) == 0
    text = capsys.readouterr().out
    assert f"note: {ALIKE.format('q, k, v', 2, 3)}" in text and "and 2 notes more like these" in text


SLIP = 1.764e12
"""ns of an op where two time bases are mixed."""


@pytest.mark.parametrize(
    "firsts, measured",
    [
        ([9000], 9000),
        ([""], None),
        (["oops"], None),
        ([SLIP], None),
        ([9000, ""], 9000),
        ([SLIP, 9000], 9000),
        ([SLIP, "", 9000, 7000], 8000),
        ([SLIP, ""], None),
    ],
)
def test_a_run_without_a_time_of_an_op_measured_nothing_of_it(
    mlp: Session, firsts: list[float | str], measured: float | None
) -> None:
    rows = [row for first in firsts for row in perceptron_rows((first, 1500, 7000))]  # type: ignore[arg-type]
    overlay = mlp.load_profile(profile_of(rows))
    times, placed = overlay.match.times(), {op.op: op for op in overlay.ops}
    assert overlay.match.runs == len(firsts) and times["second.matmul"] == 7000
    assert times.get("first.matmul") == measured
    alone = measured is None  # the activation that became part of the product is no measurement of the two
    assert placed["first.matmul"].measured == (None if alone else measured + 1500)
    assert (placed["first.matmul"].ratio is None) == alone and placed["second.matmul"].measured == 7000
    assert overlay.match.untimed == (("first.matmul",) if alone else ())
    assert ("1 op of the model without a time" in str(overlay)) == alone


@pytest.mark.parametrize("time", ["", "oops", SLIP])
def test_a_profile_that_measured_nothing_replaces_none(
    mlp: Session, time: float | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = mlp.load_profile(profile_of(perceptron_rows()))
    rows = perceptron_rows((time, time, time))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"run\.csv: none of its 3 ops that .* was measured"):
        mlp.load_profile(profile_of(rows))
    assert mlp.measured is before
    (tmp_path / "run.csv").write_text(table(rows))
    (tmp_path / "model.py").write_text("from tests.session.models import perceptron\n\nmake = perceptron\n")
    words = ["share", f"{tmp_path / 'model.py'}:make", "--profile", str(tmp_path / "run.csv")]
    assert main([*words, "--out", str(tmp_path / "page.html")]) == 1
    assert "none of its 3 ops" in capsys.readouterr().err and not (tmp_path / "page.html").exists()


def test_parts_of_an_op_of_our_own_trace_are_added(tmp_path: Path) -> None:
    """A softmax is several ops on the device."""
    session = Session(nn.Sequential(nn.Linear(64, 64), nn.Softmax(-1)), torch.randn(1, 32, 64), "n150")
    overlay = session.load_profile(session.export_trace(tmp_path / "trace.json"))
    parts = [p.measured.time or 0 for p in overlay.match.pairs if "softmax" in p.op]
    (name,) = {p.op for p in overlay.match.pairs if "softmax" in p.op}
    assert len(parts) > 1 and overlay.match.times()[name] == pytest.approx(sum(parts))


def test_a_profile_of_a_model_that_does_not_compile_is_not_kept() -> None:
    session = Session(*perceptron(), "n150", overrides=[Override("op_size", "first.matmul", (99, 99), source="test")])
    with pytest.raises(TbudaError):
        session.load_profile(profile_of(perceptron_rows()))
    assert session.measured is None


def test_marks_that_name_modules_are_anchors() -> None:
    """Two equal halves, of which the profile ran the second alone: its mark says so."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    graph = Session(model, torch.randn(1, 32, 64), "n150").trace()
    row = op("Matmul", 5, [(32, 64), (64, 64)], (32, 64))
    assert {p.op for p in match_profile(profile_of([signpost("1"), row]), graph).pairs} == {"1.matmul"}


def test_the_command_says_where_the_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.csv"
    path.write_text(table([*perceptron_rows(), op("ZzyzxOp", 5), op("ZzyzxOp", 5)]))
    model = tmp_path / "model.py"
    model.write_text("from tests.session.models import perceptron\n\n\ndef make():\n    return perceptron()\n")
    assert main(["profile", "import", str(path), "--model", f"{model}:make", "--device", "n150"]) == 0
    text = capsys.readouterr().out
    assert (
        "6 ops, blackhole, 0.020 ms" in text
        and "other: ZzyzxOp (2)" in text
        and "3 of 6 ops of run.csv matched" in text
        and "only in the profile (3): Tilize" in text
    )
    assert main(["profile", "import", str(tmp_path / "none.csv")]) == 1


@pytest.mark.parametrize(
    "words, message",
    [
        (["profile", "import", "RUN", "--device", "n150"], "--device: of a model alone"),
        (["profile", "import", "RUN", "--kernels", "RUN", "--device", "n150"], "--device and --kernels: of a model"),
        (["calibrate", "--profile", "RUN", "--arch", "blackhole"], "--arch blackhole: of measurement CSVs alone"),
        (["calibrate", "DIR", "--arch", "blackhole", "--kernels", "mine"], "--kernels names the table of profiles"),
    ],
)
def test_options_that_mean_nothing_here_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"RUN": str(tmp_path / "run.csv"), "DIR": str(tmp_path)}
    (tmp_path / "run.csv").write_text(table(perceptron_rows()))
    assert main([given.get(word, word) for word in words]) == 1
    assert message in capsys.readouterr().err


def test_a_table_of_kernels_holds_for_the_profile_that_it_came_with(mlp: Session, tmp_path: Path) -> None:
    profile = profile_of(perceptron_rows())
    plain = [op.ttnn for op in mlp.load_profile(profile).ops]
    slow = dataclasses.replace(
        packaged_kernels(),
        kernels={
            key: dataclasses.replace(kernel, coefficients=tuple(3 * c for c in kernel.coefficients))
            for key, kernel in packaged_kernels().kernels.items()
        },
    )
    (tmp_path / "slow.yaml").write_text(dump_kernels(slow))
    assert [op.ttnn for op in mlp.load_profile(profile, tmp_path / "slow.yaml").ops] != plain
    assert [op.ttnn for op in mlp.load_profile(profile).ops] == plain


@pytest.mark.slow
def test_a_clip_text_encoder_is_matched_to_a_profile_of_its_shapes() -> None:
    """Ours as transformers has it, with random weights; the profile in the order in which TTNN runs a layer."""
    transformers = pytest.importorskip("transformers")
    hidden, heads, tokens, layers = 128, 4, 19, 3
    config = transformers.CLIPTextConfig(
        vocab_size=100,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=32,
        attn_implementation="eager",
        eos_token_id=2,
        bos_token_id=1,
    )
    torch.manual_seed(0)
    model = transformers.CLIPTextModel(config).eval()
    graph = Session(model, {"input_ids": torch.randint(0, 100, (1, tokens))}, "n150").trace()
    h, t, size = hidden, tokens, hidden // heads
    product = lambda m, k, n: op("MinimalMatmulOp", 10, [(m, k), (k, n), (1, n)], (m, n))  # noqa: E731
    layer = [
        op("LayerNormDeviceOperation", 10, [(t, h), (1, h), (1, h)], (t, h)),
        *[product(t, h, h)] * 3,
        op("BinaryNgDeviceOperation", 10, [(t, h)], (t, h)),
        *[op("ReshapeDeviceOperation", 10, [(t, h)], (t, heads, size))] * 3,
        *[op("TransposeDeviceOperation", 10, [(t, heads, size)], (heads, t, size))] * 3,
        op("TransposeDeviceOperation", 10, [(heads, t, size)], (heads, size, t)),
        op("Matmul", 10, [(heads, t, size), (heads, size, t)], (heads, t, t)),
        op("SoftmaxDeviceOperation", 10, [(heads, t, t)], (heads, t, t)),
        op("Matmul", 10, [(heads, t, t), (heads, t, size)], (heads, t, size)),
        op("TransposeDeviceOperation", 10, [(heads, t, size)], (t, heads, size)),
        op("ReshapeDeviceOperation", 10, [(t, heads, size)], (t, h)),
        product(t, h, h),
        op("BinaryNgDeviceOperation", 10, [(t, h), (t, h)], (t, h)),
        op("LayerNormDeviceOperation", 10, [(t, h), (1, h), (1, h)], (t, h)),
        product(t, h, 4 * h),
        op("UnaryDeviceOperation", 10, [(t, 4 * h)], (t, 4 * h)),
        product(t, 4 * h, h),
        op("BinaryNgDeviceOperation", 10, [(t, h), (t, h)], (t, h)),
    ]
    match = match_profile(profile_of(layer * layers * 2), graph)
    assert match.runs == 2 and match.share("matmul") == 1
    words = ["q_proj", "k_proj", "v_proj", "self_attn.matmul", "self_attn.matmul_1", "out_proj", "fc1", "fc2"]
    got = [p.op for p in match.pairs if p.measured.kind == "matmul"]
    assert len(got) == 8 * layers * 2
    for at, name in enumerate(got):
        assert f"layers.{at // 8 % layers}." in name and words[at % 8] in name


def test_reading_and_matching_by_path(mlp: Session, tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text(table(perceptron_rows()))
    assert len(mlp.load_profile(path).match.pairs) == len(match_profile(read_profile(path), mlp.trace()).pairs)


def test_two_profiles_are_compared_and_gated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A product that became slower, an op that is new before it: what stands behind keeps its partner."""
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    before.write_text(table(perceptron_rows()))
    rows = perceptron_rows((9000.0, 1500.0, 9100.0))
    after.write_text(table([op("CopyDeviceOperation", 300, [(9, 9)], (9, 9)), *rows]))
    assert main(["diff", str(before), str(after), "--html", str(tmp_path / "d.html")]) == 0
    text = capsys.readouterr().out
    assert "12.0 % more time: 20,000 → 22,400 ns" in text and "cycles" not in text
    assert "1 added, 1 retimed" in text and "`MatmulDeviceOperation_2`" in text and "7,000 → 9,100" in text
    assert main(["diff", str(before), str(after), "--fail-if-slower", "5%"]) == 1
    assert main(["diff", str(before), str(after), "--fail-if-slower", "20%"]) == 0
    assert main(["diff", str(before), str(tmp_path / "netlist.yaml")]) == 2


WIDE = [(8, 16), (16, 24), (24, 48), (48, 64)]
"""(inner, columns) of the products of a small model."""


def widths(scale: int, sizes: Sequence[tuple[int, int]] = WIDE) -> list[tuple[int, int]]:
    return [(k * scale, n * scale) for k, n in sizes]


def products(rows: int, sizes: Sequence[tuple[int, int]], device: int = 0) -> list[dict[str, Any]]:
    return [op("Matmul", 9000, [(rows, k), (k, n)], (rows, n), **{"DEVICE ID": device}) for k, n in sizes]


@pytest.mark.parametrize(
    "rows, hint",
    [
        (products(64, widths(8)), False),
        (products(128, widths(8)), True),  # another batch or length
        (products(32, widths(8)), True),
        ([r for device in (0, 1) for r in products(64, [(k, n // 2) for k, n in widths(8)], device)], True),
        ([*products(64, widths(8)[:3]), *products(64, [(384, 480)])], False),  # another head
    ],
)
def test_a_run_of_another_batch_length_or_number_of_devices_is_of_this_model(
    rows: list[dict[str, Any]], hint: bool
) -> None:
    module = nn.Sequential(*[nn.Linear(k, n) for k, n in widths(8)])
    overlay = Session(module, torch.randn(1, 64, 64), "n150").load_profile(profile_of(rows))
    assert len(overlay.match.pairs) == 4 and ("another batch or length" in str(overlay)) == hint


@pytest.mark.parametrize(
    "sizes",
    [
        widths(12),
        widths(6),
        widths(16),
        [(64, 128), (128, 160), (160, 320), (320, 448)],
        [(k, n + 32) for k, n in widths(8)],
    ],
    ids=["half as wide again", "narrower", "twice", "all but one", "other columns"],
)
@pytest.mark.parametrize("rows", [64, 128])
def test_a_profile_of_the_same_layers_with_other_weights_is_of_another_model(
    rows: int, sizes: list[tuple[int, int]]
) -> None:
    session = Session(nn.Sequential(*[nn.Linear(k, n) for k, n in widths(8)]), torch.randn(1, 64, 64), "n150")
    profile = profile_of(products(rows, sizes))
    assert len(match_profile(profile, session.trace()).pairs) > 2
    with pytest.raises(
        InputError, match=r"another model: [34] of the [34] products .* weights of another size: Matmul_. "
    ):
        session.load_profile(profile)
    assert session.measured is None


@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_a_profile_of_which_half_has_other_weights_is_of_another_model(others: int) -> None:
    sizes = widths(8)
    session = Session(nn.Sequential(*[nn.Linear(k, n) for k, n in sizes]), torch.randn(1, 64, 64), "n150")
    run = [(k, n + 32 * (at < others)) for at, (k, n) in enumerate(sizes)]
    if others <= 1:  # another head
        assert session.load_profile(profile_of(products(64, run)))
        return
    with pytest.raises(InputError, match=rf"another model: {others} of the 4"):
        session.load_profile(profile_of(products(64, run)))


class Heads(nn.Module):
    """Queries, keys and values by products of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x))


def test_one_product_for_queries_keys_and_values_is_of_this_model() -> None:
    rows = [
        op("Matmul", 9000, [(64, 64), (64, 192)], (64, 192)),
        op("Matmul", 900, [(64, 64), (64, 64)], (64, 64)),
        op("Softmax", 300, [(64, 64)], (64, 64)),
        op("Matmul", 900, [(64, 64), (64, 64)], (64, 64)),
        op("Matmul", 9000, [(64, 64), (64, 64)], (64, 64)),
    ]
    assert Session(Heads(), torch.randn(1, 64, 64), "n150").load_profile(profile_of(rows))


def test_a_profile_without_shapes_is_matched_by_kind_and_order(mlp: Session) -> None:
    columns = [c for k in range(3) for c in tensor_columns(f"INPUT_{k}")]
    profile = read_ops_perf_text(table(perceptron_rows(), without=[*columns, *tensor_columns("OUTPUT_0")]), "run.csv")
    match = match_profile(profile, mlp.trace())
    assert match.share("matmul") == 1 and match.notes[0].startswith("the profile has no shapes")
    assert [p.op for p in match.pairs] == [
        p.op for p in match_profile(profile_of(perceptron_rows()), mlp.trace()).pairs
    ]


def test_a_convolution_of_other_channels_is_of_another_model() -> None:
    module = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(64, 96, 3, padding=1))
    session = Session(module, torch.randn(1, 32, 8, 8), "n150")

    def run(*channels: int) -> MeasuredProfile:
        sizes = itertools.pairwise((32, *channels))
        rows = [op("Conv2dDeviceOperation", 9000, [(1, 1, 64, c), (9 * c, n)], (1, 1, 64, n)) for c, n in sizes]
        return profile_of(rows)

    assert len(session.load_profile(run(64, 96)).match.pairs) == 2
    with pytest.raises(InputError, match=r"2 of the 2 products .* weights of another size"):
        session.load_profile(run(96, 128))


def without_a_time(time: float | str) -> str:
    return table(perceptron_rows((time, 1500, 7000)))  # type: ignore[arg-type]


WHOLE = table(perceptron_rows())
UNTIMED = "1 op without a time: MatmulDeviceOperation_1 (row 3)"
DAMAGED = {
    "no time": (without_a_time(""), UNTIMED, "profile-time"),
    "no number": (without_a_time("oops"), UNTIMED, "profile-number"),
    "a slip of the clock": (without_a_time(SLIP), UNTIMED, "profile-outlier"),
    "cut": (WHOLE[:-100], "row 5: it is cut", "profile-row"),
    "an open quotation mark": (
        WHOLE.replace(",tt_dnn_device", ',"tt_dnn_device', 1),
        "a quotation mark takes",
        "profile-row",
    ),
}


@pytest.mark.parametrize("turned", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_gate_refuses_runs_whose_time_is_not_known(
    damage: str, turned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their rows; without a gate they are compared, with what was found in either file."""
    text, said, rule = DAMAGED[damage]
    (tmp_path / "whole.csv").write_text(WHOLE)
    (tmp_path / "odd.csv").write_text(text)
    files = [str(tmp_path / name) for name in (("odd.csv", "whole.csv") if turned else ("whole.csv", "odd.csv"))]
    assert main(["diff", *files, "--fail-if-slower", "3%"]) == 2
    got = capsys.readouterr()
    assert not got.out and "InputError: speed cannot be compared" in got.err
    assert said in got.err.split("InputError")[1] and f"[{rule}]" in got.err.split("InputError")[0]
    assert main(["diff", *files]) == 0
    got = capsys.readouterr()
    assert f"[{rule}]" in got.err and said in got.out.replace("\\", "") and "Nothing differs" not in got.out


FIRMWARE, PER_CORE = "DEVICE FW DURATION [ns]", "DEVICE KERNEL DURATION PER CORE MAX [ns]"
TWO = [row | {"DEVICE ID": device} for row in perceptron_rows() for device in (0, 1)]
OTHER_WORK = {
    "cut between two rows": (perceptron_rows()[:-1], "1 op that the other has not: MatmulDeviceOperation_2"),
    "cut behind the first": (perceptron_rows()[:1], "3 ops that the other has not"),
    "another op": (
        [*perceptron_rows(), op("SoftmaxDeviceOperation", 400, [(64, 64)], (64, 64))],
        "1 op that the other",
    ),
    "another shape": (
        [
            row if "Matmul" not in row["OP CODE"] else row | {"OUTPUT_0_Y_PAD[LOGICAL]": "256[256]"}
            for row in perceptron_rows()
        ],
        "2 ops of another shape",
    ),
    "a move at the end": (
        [*perceptron_rows(), *[op("CopyDeviceOperation", 300, [(9, 9)], (9, 9))] * 2],
        "2 ops behind",
    ),
    "two devices": (TWO, "the other on 2"),
    "an op that nobody knows": ([*perceptron_rows(), op("Foo", 9000, [(9, 9)], (9, 9))], "1 op that the other"),
    "ops of the host": (
        [*perceptron_rows(), op("(torch) add", "", **{"OP TYPE": "python_fallback"})],
        "and 1 of the other",
    ),
}


@pytest.mark.parametrize("turned", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("kind", OTHER_WORK)
def test_a_gate_refuses_runs_of_other_work(
    kind: str, turned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was cut between two rows looks whole; without a gate the comparison says it."""
    rows, text = OTHER_WORK[kind]
    (tmp_path / "whole.csv").write_text(WHOLE)
    (tmp_path / "odd.csv").write_text(table(rows))
    files = [str(tmp_path / name) for name in (("odd.csv", "whole.csv") if turned else ("whole.csv", "odd.csv"))]
    assert main(["diff", *files, "--fail-if-slower", "1000%"]) == 2
    got = capsys.readouterr()
    assert not got.out and "not of the same work" in got.err and "--allow-other-ops" in got.err
    assert text in got.err or turned
    assert main(["diff", *files]) == 0 and (text in capsys.readouterr().out.replace("\\", "") or turned)
    assert main(["diff", *files, "--fail-if-slower", "1000%", "--allow-other-ops"]) == 0


def test_a_gate_refuses_times_of_firmware_beside_those_of_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(WHOLE)
    (tmp_path / "b.csv").write_text(WHOLE.replace("DEVICE KERNEL DURATION [ns]", FIRMWARE))
    words = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-if-slower", "3%"]
    assert main(words) == 2 and f"the other's of {FIRMWARE}" in capsys.readouterr().err
    assert main([*words, "--allow-other-ops"]) == 0
    assert main([*words[:3], "--allow-other-ops"]) == 2


def test_a_number_that_the_file_ends_in_is_not_believed(tmp_path: Path) -> None:
    """The last column of the last row; of a whole file the line ends."""
    rows = table(perceptron_rows()).split("\r\n")
    lines = [f"{line},{cell}" for line, cell in zip(rows, (FIRMWARE, 1, 2, 3, 9000), strict=False)]
    lines = [line.replace(",DEVICE KERNEL DURATION [ns]", ",KERNEL") for line in lines]
    profile = read_ops_perf_text("\n".join(lines)[:-2], "run.csv")
    assert [o.time for o in profile.ops] == [1, 2, 3, None] and "profile-row" in {f.rule for f in profile.gaps}
    assert not read_ops_perf_text("\n".join(lines) + "\n", "run.csv").gaps


def test_a_device_whose_rows_end_early_is_told() -> None:
    profile = read_ops_perf_text(table(TWO[:-1]), "run.csv")
    (gap,) = profile.gaps
    assert gap.rule == "profile-device" and "it has 3 of the 4 ops of device 0" in gap.message
    assert not read_ops_perf_text(table(TWO), "run.csv").findings


def test_an_op_that_one_run_did_not_time_is_in_neither_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(WHOLE)
    (tmp_path / "b.csv").write_text(without_a_time(""))
    (tmp_path / "none.csv").write_text(table(row | {"DEVICE KERNEL DURATION [ns]": ""} for row in perceptron_rows()))
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
    assert "As fast as before: 11,000 ns" in capsys.readouterr().out
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "none.csv")]) == 0
    text = capsys.readouterr().out
    assert "No op has a time in both runs" in text and "4 ops without a time" in text and "As fast" not in text
    assert main(["profile", "import", str(tmp_path / "b.csv")]) == 0
    assert "1 op without a time is left out of the sums" in capsys.readouterr().out


def test_odd_cells_do_not_hide_that_rows_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = table([op("Matmul", 9000) | {"CORE COUNT": "many"}] * 300)
    (tmp_path / "a.csv").write_text(odd)
    (tmp_path / "b.csv").write_text(odd[:-100])
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "a.csv"), "--fail-if-slower", "3%"]) == 0
    capsys.readouterr()
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-if-slower", "3%"]) == 2
    assert "row 300: it is cut" in capsys.readouterr().err


def test_our_own_trace_is_matched_by_names(tmp_path: Path) -> None:
    """It has no shapes. The copy that the compiler adds has no partner, and is no product."""
    session = Session(*perceptron(), "n150")
    trace = session.export_trace(tmp_path / "trace.json")
    overlay = Session(*perceptron(), "n150").load_profile(trace)
    assert {p.op for p in overlay.match.pairs if p.measured.kind == "matmul"} == {
        n.name for n in session.trace().ops if n.op.type == "matmul"
    }
    assert all(o.kind == "copy" for o in overlay.match.unmatched)


@pytest.mark.parametrize("runs", [2, 1001, 2000])
def test_any_number_of_runs_of_the_model_is_one_model(runs: int) -> None:
    graph = Session(*perceptron(), "n150").trace()
    match = match_profile(read_ops_perf_text(table(perceptron_rows() * runs), "x.csv"), graph)
    assert match.runs == runs and {o.kind for o in match.unmatched} == {"tilize"}


def test_a_run_of_another_length_is_told() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128)).eval()
    rows = [
        op("MatmulDeviceOperation", 9000, [(1, 1, 128, 256), (1, 1, 256, 512)], (1, 1, 128, 512)),
        op("UnaryDeviceOperation", 900, [(1, 1, 128, 512)], (1, 1, 128, 512)),
        op("MatmulDeviceOperation", 9000, [(1, 1, 128, 512), (1, 1, 512, 128)], (1, 1, 128, 128)),
    ]
    graph = Session(module, (torch.randn(1, 32, 256),), "n150").trace()
    other = match_profile(read_ops_perf_text(table(rows), "x.csv"), graph)
    assert "no matched product has the model's shape" in str(other)
    same = Session(module, (torch.randn(1, 128, 256),), "n150").trace()
    assert "shape" not in str(match_profile(read_ops_perf_text(table(rows), "x.csv"), same))


@pytest.mark.parametrize("cut", [False, True])
def test_our_own_trace_of_another_model_of_the_same_names_is_refused(cut: bool, tmp_path: Path) -> None:
    def model(width: int) -> tuple[nn.Module, torch.Tensor]:
        return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64)), torch.randn(1, 32, 64)

    trace = Session(*model(256), "n150").export_trace(tmp_path / "trace.json")
    if cut:
        trace.write_text(trace.read_text()[:-400])
    session = Session(*model(128), "n150")
    with pytest.raises(InputError, match=r"trace of another model: 3 of 4 parameters .*0.weight is 256x64, .* 128x64"):
        session.load_profile(trace)
    assert session.measured is None and Session(*model(256), "n150").load_profile(trace)


def test_a_gate_refuses_traces_of_other_models_and_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def trace(name: str, width: int, rows: int) -> str:
        module = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64))
        return str(Session(module, torch.randn(1, rows, 64), "n150", name=name).export_trace(tmp_path / f"{name}.json"))

    first, wide, long = trace("a", 128, 32), trace("b", 256, 32), trace("c", 128, 512)
    (tmp_path / "m.csv").write_text(WHOLE)
    gate = ["--fail-if-slower", "1000%"]
    assert main(["diff", first, first, *gate]) == 0
    for other, text in (
        (wide, "0.weight is 128x64, and 256x64"),
        (long, "other inputs"),
        (tmp_path / "m.csv", "simulated"),
    ):
        capsys.readouterr()
        assert main(["diff", first, str(other), *gate]) == 2
        assert text in capsys.readouterr().err
    assert main(["diff", str(tmp_path / "m.csv"), str(tmp_path / "m.csv"), "--arch", "x"]) == 2


def test_a_gate_looks_at_all_devices_and_all_columns_of_times(tmp_path: Path) -> None:
    """Devices that run other ops, one of which lost its last; a column that one run has in its first row alone."""
    alone = [op("Softmax", 9000, [(64, 64)], (64, 64)), *perceptron_rows()]
    rows = [row | {"DEVICE ID": device} for device, rows in enumerate((alone * 2, perceptron_rows())) for row in rows]
    (tmp_path / "a.csv").write_text(table(rows))
    (tmp_path / "b.csv").write_text(table(rows[:-3]))
    per_core = [row | {PER_CORE: 2000} for row in perceptron_rows()]
    (tmp_path / "c.csv").write_text(table([per_core[0], *perceptron_rows()[1:]]))
    (tmp_path / "d.csv").write_text(table(per_core))
    for a, b in ("ab", "cd"):
        assert main(["diff", str(tmp_path / f"{a}.csv"), str(tmp_path / f"{b}.csv"), "--fail-if-slower", "1000%"]) == 2


def test_a_run_that_is_cut_leaves_the_runs_before_it(mlp: Session) -> None:
    rows = perceptron_rows()
    for more in (1, 2, 3):
        match = match_profile(profile_of([*rows * 3, *rows[:more]]), mlp.trace())
        assert match.runs == 3 and len(match.pairs) == 3 * len(match_profile(profile_of(rows), mlp.trace()).pairs)
        assert match.notes[0].startswith("the last run is cut")


def test_a_profile_without_a_product_is_of_another_model(mlp: Session) -> None:
    rows = [op("Relu", 100, [(999, 7)], (999, 7))] * 6
    with pytest.raises(InputError, match="another model"):
        mlp.load_profile(profile_of(rows))


@pytest.mark.parametrize(
    "text", ["a", "aa", "aaaaaaa", "abab", "ababa", "abcabcab", "aabaabaab", "abcd", "aabaab", "abaaba"]
)
def test_lengths_of_runs_are_those_of_a_plain_search(text: str) -> None:
    """Every length up to a half is tried; of those that leave a cut run the shortest counts."""
    n = len(text)
    repeats = [m for m in range(n // 2, 0, -1) if all(text[k] == text[k - m] for k in range(m, n))]
    wanted = [n, *(m for m in repeats if n % m == 0 or m == min(repeats))]
    assert run_lengths(profile_of([op(c, 1) for c in text]).ops) == wanted
