"""Kernels fitted to profiles that were made by a known law, and what is said of the rest."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.measured.calibrate import calibrate_kernels
from tbuda_lab.core.measured.kernels import (
    Kernel,
    bounds_of,
    dump_kernels,
    features,
    load_kernels,
    machine_of,
    packaged_kernels,
)
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tests.measured.files import op, signpost, table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "measured.md"
START, COMPUTE, DRAM = 2000.0, 1.4, 1.5


def law(rows: int, inner: int, cols: int, cores: int) -> float:
    """ns of a product by a law of our own: launch, and the longer of multiplier and traffic (blackhole, HiFi4)."""
    tiles = [-(-n // 32) for n in (rows, inner, cols)]
    multiplier = math.prod(tiles) / cores * 4 * 16 / 1.35
    traffic = 2 * 32 * 32 * (tiles[0] * tiles[1] + tiles[1] * tiles[2] + tiles[0] * tiles[2]) / 400
    return START + max(COMPUTE * multiplier, DRAM * traffic + (tiles[0] * tiles[2]) / cores * 150)


def profile(name: str, seed: int, noise: float = 0.0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(40):
        m, k, n = (int(32 * rng.integers(1, 60)) for _ in range(3))
        time = law(m, k, n, 64) * float(np.exp(noise * rng.standard_normal()))
        rows.append(op("Matmul", time, [(m, k), (k, n)], (m, n), **{"CORE COUNT": 64}))
    return read_ops_perf_text(table(rows), name)


def test_a_known_law_is_found_and_its_error_on_files_left_out_is_small() -> None:
    fitted = calibrate_kernels([profile("a.csv", 1, 0.05), profile("b.csv", 2, 0.05), profile("c.csv", 3, 0.05)])
    errors = {group: error for group, _, error in fitted.errors}
    assert errors["matmul"] < 0.15
    simple = fitted.kernels["matmul.simple"]
    assert simple.different == 120 and 1.2 < simple.coefficients[1] < 1.6


def test_one_outlier_does_not_bend_a_fit() -> None:
    plain, bent = profile("a.csv", 1), profile("a.csv", 1)
    ops = list(bent.ops)
    ops[3] = type(ops[3])(**{**ops[3].__dict__, "time": ops[3].time * 40})
    bent = type(bent)(**{**bent.__dict__, "ops": tuple(ops)})
    a, b = calibrate_kernels([plain]), calibrate_kernels([bent])
    machine = machine_of("blackhole")
    for measured in plain.ops[10:20]:
        assert a.estimate(measured, machine).time == pytest.approx(b.estimate(measured, machine).time, rel=0.15)


def test_what_is_beyond_the_measurements_is_said() -> None:
    fitted, machine = calibrate_kernels([profile("a.csv", 1)]), machine_of("blackhole")
    inside, huge, other = read_ops_perf_text(
        table(
            [
                op("Matmul", 1, [(640, 640), (640, 640)], (640, 640), **{"CORE COUNT": 64}),
                op("Matmul", 1, [(64000, 64000), (64000, 64000)], (64000, 64000), **{"CORE COUNT": 64}),
                op("Softmax", 1, [(64, 64)], (64, 64)),
            ]
        ),
        "x.csv",
    ).ops
    assert fitted.estimate(inside, machine).extrapolated == ""
    assert "beyond what was measured" in fitted.estimate(huge, machine).extrapolated
    assert "no run of a softmax" in fitted.estimate(other, machine).extrapolated


def test_another_arch_than_those_measured_is_an_extrapolation() -> None:
    (ran,) = read_ops_perf_text(table([op("Matmul", 5000, [(608, 768), (768, 768)], (608, 768))]), "x.csv").ops
    fitted = calibrate_kernels([profile("a.csv", 1), profile("b.csv", 2)])
    assert fitted.archs == packaged_kernels().archs == ("blackhole",)
    here, there = (fitted.estimate(ran, machine_of(arch)) for arch in ("blackhole", "wormhole_b0"))
    assert "wormhole" not in here.extrapolated and "no run on wormhole_b0 was measured" in there.extrapolated


def test_tables_are_written_and_read_back(tmp_path: Path) -> None:
    fitted, path = calibrate_kernels([profile("a.csv", 1), profile("b.csv", 2)]), tmp_path / "my.yaml"
    path.write_text(dump_kernels(fitted))
    again = load_kernels(path)
    assert again.kernels.keys() == fitted.kernels.keys() and again.files == ("a.csv", "b.csv")
    for key, kernel in again.kernels.items():
        assert kernel.coefficients == pytest.approx(fitted.kernels[key].coefficients, rel=1e-4)
    for text in (
        "",
        "fits: 3",
        "coefficients: [a]\nfits: []",
        path.read_text().replace("key: ''", "key: 'x'"),
        path.read_text().replace("values: [", "values: [.inf, "),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match="my"):
            load_kernels(path)


def test_the_packaged_table_says_how_far_it_can_be_trusted() -> None:
    packaged = packaged_kernels()
    errors = {group: error for group, _, error in packaged.errors}
    assert errors["matmul"] <= 0.20 and errors["all"] <= 0.35 and len(packaged.files) == 4
    assert all(len(k.coefficients) == 7 and min(k.coefficients) >= 0 for k in packaged.kernels.values())


def test_one_run_under_two_names_is_refused() -> None:
    """A file that is left out of the fit would stay in it."""
    with pytest.raises(InputError, match=r"a\.csv and b\.csv hold the same ops"):
        calibrate_kernels([profile("a.csv", 1), profile("c.csv", 2), profile("b.csv", 1)])


ROWS = [op("Matmul", 4000.5 + 900 * k, [(32 * k, 64), (64, 64)], (32 * k, 64)) for k in (1, 2, 3)]


@pytest.mark.parametrize(
    "rows, said",
    [
        ([signpost("begin"), *ROWS], "one.csv and two.csv hold the same ops and times"),
        ([*ROWS[:1], signpost("middle"), *ROWS[1:]], "hold the same ops and times"),
        (ROWS[::-1], "hold the same ops and times"),
        (ROWS * 2, "hold the same ops and times"),
        ([row | {"CORE COUNT": 9, "GLOBAL CALL COUNT": 7} for row in ROWS], "hold the same ops and times"),
        ([*ROWS, op("Matmul", "", [(32, 64), (64, 64)], (32, 64))], "hold the same ops and times"),
        ([*ROWS, op("Softmax", 900, [(32, 64)], (32, 64))], "one.csv: all its ops and times are in two.csv"),
        (ROWS[:2], "two.csv: all its ops and times are in one.csv"),
        ([*ROWS[:2], op("Matmul", 6701, [(96, 64), (64, 64)], (96, 64))], ""),  # one other time: another run
        ([*ROWS[:2], op("Matmul", 6700.5, [(96, 64), (64, 96)], (96, 96))], ""),  # one other shape
    ],
)
def test_a_file_with_all_that_another_measured_is_refused(rows: list[dict[str, object]], said: str) -> None:
    files = [read_ops_perf_text(table(r), name) for r, name in ((ROWS, "one.csv"), (rows, "two.csv"))]
    if said:
        with pytest.raises(InputError, match=said):
            calibrate_kernels(files)
    else:
        assert calibrate_kernels(files).files == ("one.csv", "two.csv")


def test_the_order_of_the_files_changes_nothing() -> None:
    many = [
        read_ops_perf_text(
            table(
                [op("Matmul", 4000 + 900 * a * k, [(32 * k, 64 * a), (64 * a, 64)], (32 * k, 64)) for k in (1, 2, 4)]
            ),
            f"{a}.csv",
        )
        for a in (1, 2, 3)
    ]
    there, back = calibrate_kernels(many), calibrate_kernels(many[::-1])
    assert {k: v.coefficients for k, v in there.kernels.items()} == {k: v.coefficients for k, v in back.kernels.items()}


def test_the_documentation_has_the_coefficients_of_the_packaged_table() -> None:
    """With as many digits as it shows, of every kernel; and the errors by group."""
    packaged, text = packaged_kernels(), DOCUMENT.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    shown = {row[0]: row[1:] for row in rows if len(row) == 11 and row[0] != "kernel"}
    assert shown == {key or "all": documented(kernel) for key, kernel in packaged.kernels.items()}
    errors = {row[0]: row[1:] for row in rows if len(row) == 3 and row[0] != "group"}
    assert errors == {group: [str(ops), f"{error:.0%}".replace("%", " %")] for group, ops, error in packaged.errors}
    assert all(name in text for name in packaged.files)


def documented(kernel: Kernel) -> list[str]:
    left_out = "" if np.isnan(kernel.left_out) else f"{100 * kernel.left_out:.0f} %"
    three = [f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in kernel.coefficients]
    return [str(kernel.ops), str(kernel.different), left_out, *three]


def test_features_are_counts_of_the_machine_at_its_best() -> None:
    (measured,) = read_ops_perf_text(
        table([op("Matmul", 1, [(64, 96), (96, 128)], (64, 128), **{"CORE COUNT": 2, "MATH FIDELITY": "HiFi2"})]),
        "x.csv",
    ).ops
    row = features(measured, machine_of("blackhole"))
    assert row[1] == pytest.approx(2 * 3 * 4 / 2 * 2 * 16 / 1.35)  # tiles, cores, passes, cycles, clock
    assert row[2] == pytest.approx(2 * (64 * 96 + 96 * 128 + 64 * 128) / 400)
    assert row[3] == pytest.approx(2 * 4 / 2 / 1.35)


@pytest.mark.parametrize(
    "code, inputs, output, touched",
    [
        ("EmbeddingsDeviceOperation", [(1, 32), (49408, 768)], (32, 768), 2 * 32 * 768),
        ("SliceDeviceOperation", [(4096, 768)], (32, 768), 2 * 32 * 768),
        ("MoveDeviceOperation", [(64, 64), (64, 64)], (64, 64), 64 * 64),
        ("UnaryDeviceOperation", [(64, 64)], (64, 64), 2 * 64 * 64),
    ],
)
def test_no_roof_counts_what_an_op_does_not_touch(
    code: str, inputs: list[tuple[int, int]], output: tuple[int, int], touched: int
) -> None:
    """A row of a table, a slice of a tensor, and a result that is listed as an operand, too."""
    (ran,) = read_ops_perf_text(table([op(code, 5000, inputs, output, **{"CORE COUNT": 2})]), "x.csv").ops
    bounds = bounds_of(ran, machine_of("blackhole"))
    assert bounds["noc"] == pytest.approx(touched * 2 / 2 / 48 / 1.35)


def test_the_command_prints_and_writes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, start in (("a.csv", 5000), ("b.csv", 5100)):
        (tmp_path / name).write_text(
            table([op("Matmul", start + k, [(32 * k, 64), (64, 64)], (32 * k, 64)) for k in (1, 2, 4)])
        )
        paths.append(str(tmp_path / name))
    out = tmp_path / "my.yaml"
    assert main(["calibrate", "--profile", *paths, "--kernels", "mine", "--out", str(out)]) == 0
    assert "left out" in capsys.readouterr().out and load_kernels(out).name == "mine"
    assert main(["calibrate"]) == 1 and main(["calibrate", str(tmp_path), "--profile", *paths]) == 1
