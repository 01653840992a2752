"""The cycle model: its arithmetic against formulas written out by hand, its properties, the fitter, the sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.cost import KINDS, Fit, Key, Table, cycles, dump_fits, load_fits, load_table
from tbuda_lab.core.errors import InputError, UnknownDevice, UnsupportedOp
from tbuda_lab.core.formats import FIDELITIES, DataFormat, MathFidelity
from tbuda_lab.tools.calibrate import calibrate, cross_validate, fit_pieces, group, read_folder, relative_errors
from tbuda_lab.tools.measurements import read_sheet

ARCHS = ("grayskull", "wormhole_b0", "blackhole")
FORMATS = (DataFormat.Bfp8_b, DataFormat.Float16_b, DataFormat.Float32, DataFormat.Int8, DataFormat.Int32)
EMPTY = Table("wormhole_b0", {}, load_table("wormhole_b0").published)


def table_of(*fits: tuple[Key, list[dict[str, float]]]) -> Table:
    return EMPTY.with_fits({key: Fit(key, tuple(pieces), 1, 0.0, 0.0) for key, pieces in fits})


# -- the arithmetic ---------------------------------------------------------------------------------------------------
def test_pieces_are_summed_and_the_largest_wins() -> None:
    table = table_of((Key("exp", "fp16"), [{"one": 100, "blocks": 200, "tiles": 3}, {"tiles": 60}]))
    m = np.array([1, 2, 4])
    result = cycles(
        "exp",
        arch="wormhole_b0",
        df=DataFormat.Float16_b,
        t=3,
        mblock_m=m,
        mblock_n=2,
        ublock_r=2,
        ublock_c=2,
        table=table,
    )
    blocks = 3 * m * 2
    assert list(result) == list(np.maximum(100 + 200 * blocks + 3 * 4 * blocks, 60 * 4 * blocks))


def test_matmul_features() -> None:
    weights = {"math": 16, "spill": 40, "spill_blocks": 5, "passes": 7, "step": 90, "inner": 3, "operands": 2}
    table = table_of((Key("matmul", "fp16"), [weights]))
    t, m, n, r, c, k, kt, f = 2, 3, 4, 2, 4, 5, 6, 3
    result = cycles(
        "matmul",
        arch="wormhole_b0",
        df=DataFormat.Float16,
        fidelity=MathFidelity.HiFi3,
        t=t,
        mblock_m=m,
        mblock_n=n,
        ublock_r=r,
        ublock_c=c,
        m_k=k,
        u_kt=kt,
        table=table,
    )
    u = t * m * n
    expected = (
        16 * k * kt * u * r * c * f
        + 40 * (k - 1) * u * r * c
        + 5 * (k - 1) * u
        + 7 * (k - 1) * t
        + 90 * k * u
        + 3 * k * kt * u
        + 2 * k * kt * u * (r + c)
    )
    assert result == expected


def test_accumulating_slices_is_a_longer_inner_dimension() -> None:
    common = dict(
        arch="wormhole_b0", df=DataFormat.Float16_b, t=1, mblock_m=2, mblock_n=2, ublock_r=2, ublock_c=2, u_kt=4
    )
    assert cycles("matmul", m_k=3, z=5, **common) == cycles("matmul", m_k=15, **common)


def test_published_forms_where_nothing_is_fitted() -> None:
    block = dict(t=2, mblock_m=3, mblock_n=4, ublock_r=2, ublock_c=2)
    u, tiles = 2 * 3 * 4, 2 * 3 * 4 * 4
    wormhole = dict(arch="wormhole_b0", df=DataFormat.Bfp8_b, table=EMPTY, **block)
    assert cycles("nop", **wormhole) == u * 305 + tiles * 56
    assert cycles("exp", vector="r", **wormhole) == round(u * 29.90928201 + tiles * 255.08236601)
    assert cycles("reduce", dim="z", z=4, **wormhole) == 2 * 4 * (12 * 0 + 48 * 287 + 268)
    assert cycles("embedding", **wormhole) == 10_000
    float16 = wormhole | {"df": DataFormat.Float16_b}
    assert cycles("add", **float16) == round(u * 234.25383456 + 2 * tiles * 49.60218332)
    grayskull = Table("grayskull", {}, load_table("grayskull").published)
    result = cycles(
        "matmul",
        arch="grayskull",
        df=DataFormat.Bfp8_b,
        fidelity=MathFidelity.LoFi,
        m_k=5,
        u_kt=2,
        table=grayskull,
        **block,
    )
    assert result == (5 - 1) * 2 * 1321 + 5 * u * 56 + 5 * 2 * tiles * 36


def test_published_sparse_form() -> None:
    t, m, n, r, c, nz, nzu, strips = 1, 4, 2, 2, 2, 100, 30, 6
    result = cycles(
        "sparse_matmul",
        arch="grayskull",
        df=DataFormat.Bfp8_b,
        fidelity=MathFidelity.HiFi2,
        t=t,
        mblock_m=m,
        mblock_n=n,
        ublock_r=r,
        ublock_c=c,
        m_k=2,
        u_kt=4,
        sparse=(nz, nzu, strips),
    )
    every = max(strips * m, nzu)
    math = nz * n * c * 36 * 2
    reload = (every * 20 + nzu * (20 + 20 * c * r)) * n + m * t * (20 + 20 * c * r) * n
    pack = 25 * (every - nzu) * n + 25 * 2 * t * n * m * c * r
    assert result == math + reload + pack + nz * 12 * (2 + n) + every * 8 + nzu * 8


def test_other_formats_take_at_least_their_traffic() -> None:
    """A binary op measured with block formats only: in 16 bit it cannot beat a copy of 16-bit tiles."""
    table = table_of((Key("add", "bfp"), [{"blocks": 300, "tiles": 20}]), (Key("nop", "fp16"), [{"tiles": 150}]))
    common = dict(arch="wormhole_b0", t=1, mblock_m=2, mblock_n=2, ublock_r=1, table=table)
    small, large = (cycles("add", df=DataFormat.Float16_b, ublock_c=c, **common) for c in (1, 8))
    assert small == 4 * 300 + 4 * 20
    assert large == 32 * 150
    assert cycles("add", df=DataFormat.Bfp8_b, ublock_c=8, **common) == 4 * 300 + 32 * 20


# -- properties of the packaged coefficients --------------------------------------------------------------------------
blocks = st.tuples(*(st.integers(1, 8) for _ in range(5)), st.integers(1, 16), st.integers(1, 8))


def call(kind: str, arch: str, df: DataFormat, block: tuple[int, ...], fidelity: MathFidelity, l1_acc: bool) -> int:
    t, m, n, r, c, k, kt = block
    return int(
        cycles(
            kind,
            arch=arch,
            df=df,
            fidelity=fidelity,
            t=t,
            mblock_m=m,
            mblock_n=n,
            ublock_r=r,
            ublock_c=c,
            m_k=k,
            u_kt=kt,
            l1_acc=l1_acc,
            sparse=(3 * t * m * r, t * m, t * k),
        )
    )


@settings(max_examples=200, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    arch=st.sampled_from(ARCHS),
    df=st.sampled_from(FORMATS),
    block=blocks,
    axis=st.integers(0, 6),
    fidelity=st.sampled_from(FIDELITIES),
    l1_acc=st.booleans(),
)
def test_more_work_never_costs_less(
    kind: str, arch: str, df: DataFormat, block: tuple[int, ...], axis: int, fidelity: MathFidelity, l1_acc: bool
) -> None:
    larger = list(block)
    larger[axis] *= 2
    before = call(kind, arch, df, block, fidelity, l1_acc)
    assert 0 < before <= call(kind, arch, df, tuple(larger), fidelity, l1_acc)
    assert call(kind, arch, df, block, MathFidelity.LoFi, l1_acc) <= before


@settings(max_examples=100, deadline=None)
@given(
    arch=st.sampled_from(("wormhole_b0", "blackhole")),
    df=st.sampled_from((DataFormat.Bfp8_b, DataFormat.Float16_b)),
    block=blocks,
    l1_acc=st.booleans(),
)
def test_matmul_is_never_quicker_than_its_multiplications(
    arch: str, df: DataFormat, block: tuple[int, ...], l1_acc: bool
) -> None:
    """A 32x32x32 product takes the math unit 16 cycles per fidelity phase."""
    t, m, n, r, c, k, kt = block
    assert call("matmul", arch, df, block, MathFidelity.HiFi4, l1_acc) >= 16 * 4 * t * m * n * r * c * k * kt


def test_one_call_for_all_candidates_equals_many() -> None:
    rng = np.random.default_rng(0)
    block = rng.integers(1, 9, (7, 50))
    for kind in KINDS:
        many = cycles(
            kind,
            arch="wormhole_b0",
            df=DataFormat.Float16_b,
            t=block[0],
            mblock_m=block[1],
            mblock_n=block[2],
            ublock_r=block[3],
            ublock_c=block[4],
            m_k=block[5],
            u_kt=block[6],
            sparse=(block[0] * 5, block[1] * 2, block[2]),
        )
        single = [
            cycles(
                kind,
                arch="wormhole_b0",
                df=DataFormat.Float16_b,
                t=b[0],
                mblock_m=b[1],
                mblock_n=b[2],
                ublock_r=b[3],
                ublock_c=b[4],
                m_k=b[5],
                u_kt=b[6],
                sparse=(b[0] * 5, b[1] * 2, b[2]),
            )
            for b in block.T
        ]
        assert many.dtype == np.int64 and many.shape == (50,)
        assert list(many) == [int(v) for v in single]


def test_block_arguments_broadcast() -> None:
    result = cycles(
        "add",
        arch="grayskull",
        df=DataFormat.Bfp8_b,
        t=1,
        mblock_m=np.arange(1, 4)[:, None],
        mblock_n=np.arange(1, 5),
        ublock_r=1,
        ublock_c=2,
    )
    assert result.shape == (3, 4)


def test_unknown_kinds_and_archs() -> None:
    common = dict(df=DataFormat.Bfp8_b, t=1, mblock_m=1, mblock_n=1, ublock_r=1, ublock_c=1)
    with pytest.raises(UnsupportedOp, match="gelu"):
        cycles("conv3d", arch="grayskull", **common)
    with pytest.raises(UnknownDevice, match="blackhole"):
        cycles("nop", arch="z80", **common)


# -- fitting ----------------------------------------------------------------------------------------------------------
def test_fit_recovers_the_larger_of_two_lines() -> None:
    rng = np.random.default_rng(3)
    x = np.stack([rng.integers(1, 65, 80), rng.integers(1, 513, 80), np.ones(80)], axis=1).astype(float)
    y = np.maximum(x @ [250.0, 30.0, 80.0], x @ [0.0, 150.0, 0.0])
    weights = fit_pieces(x, y, 2)
    assert relative_errors((x @ weights.T).max(axis=1), y).mean < 0.01
    assert (weights >= 0).all()
    assert relative_errors(cross_validate(x, y, 2), y).median < 0.01
    assert np.array_equal(weights, fit_pieces(x, y, 2))


def test_cross_validation_does_not_see_the_run() -> None:
    """With a feature of its own for every run, all can be fitted and none predicted."""
    x, y = np.eye(12), np.random.default_rng(0).random(12) + 0.5
    assert relative_errors((x @ fit_pieces(x, y, 1).T).max(axis=1), y).mean < 1e-9
    assert relative_errors(cross_validate(x, y, 1), y).mean == 1


# -- sheets -----------------------------------------------------------------------------------------------------------
HEAD = "input0_df,math_fidelity,t,mblock_m,mblock_n,ublock_rt,ublock_ct"


def sheet(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "extra", "values", "key"),
    [
        ("gelu.csv", "", "", Key("gelu", "bfp")),
        ("gelu-derivative-approx.csv", "", "", Key("gelu_derivative", "bfp", "approximate")),
        ("matmul-l1-acc-bfp8.csv", ",m_k,u_kt", ",2,3", Key("matmul", "bfp", "l1_acc")),
        ("matmul.csv", ",m_k,u_kt,l1_acc", ",2,3,True", Key("matmul", "bfp", "l1_acc")),
        ("matmul-int32.csv", ",m_k,u_kt,l1_acc", ",2,3,False", Key("matmul", "bfp")),
        ("whb0-reduce-c-performance.csv", "", "", Key("reduce", "bfp", "c")),
        ("reduce-z.csv", ",z", ",4", Key("reduce", "bfp", "z")),
        ("depthwise.csv", ",m_k,u_kt", ",9,1", Key("depthwise", "bfp")),
        ("anything.csv", ",Unary-Type", ",tanh", Key("tanh", "bfp")),
        ("anything.csv", ",nz_tiles,nz_ublocks,nz_strips", ",9,4,2", Key("sparse_matmul", "bfp")),
    ],
)
def test_op_and_variant_come_from_columns_or_name(tmp_path: Path, name: str, extra: str, values: str, key: Key) -> None:
    path = sheet(tmp_path, name, f"{HEAD}{extra},runtime\nBfp8_b,LoFi,1,2,4,2,1{values},1000\n")
    result = read_sheet(path)
    assert result.keys == [key]
    assert result.measured is not None and list(result.measured) == [1000.0]


def test_total_runtime_is_of_128_inputs(tmp_path: Path) -> None:
    head = (
        "Binary-Type,math_fidelity,input0_df,input0_t,output_t,output_mb_r,output_mb_c,output_ub_r,output_ub_c,"
        "total-runtime"
    )
    result = read_sheet(sheet(tmp_path, "x.csv", f"{head}\nadd,HiFi4,Float16_b,1,1,2,4,1,8,128000\n"))
    assert result.measured is not None and list(result.measured) == [1000.0]
    assert result.keys == [Key("add", "fp16")]
    assert result.counts["ublock_c"][0] == 8 and result.counts["fidelity"][0] == 4


def test_runs_without_a_time_are_estimated_but_not_fitted(tmp_path: Path) -> None:
    rows = "".join(f"Bfp8_b,LoFi,1,2,2,1,1,{text}\n" for text in ("100", "N/A", "", "-1", "inf"))
    result = read_sheet(sheet(tmp_path, "gelu.csv", f"{HEAD},runtime\n{rows}"))
    assert result.measured is not None and list(np.isnan(result.measured)) == [False, True, True, True, True]
    assert len(set(result.estimate("wormhole_b0"))) == 1
    assert len(group([result])[0].measured) == 1


def test_reductions_are_given_by_the_block_they_read(tmp_path: Path) -> None:
    """8 x 2 tiles of each of 4 x 3 blocks, reduced over r: 3 blocks of 2 tiles out, 32 tiles read for each."""
    result = read_sheet(sheet(tmp_path, "reduce-r.csv", f"{HEAD},runtime\nBfp8_b,LoFi,1,4,3,8,2,1\n"))
    features = result.block(np.array([0])).features()
    assert (features["blocks"][0], features["tiles"][0], features["inner_tiles"][0]) == (3, 6, 4 * 3 * 8 * 2)


def test_mixed_sheet_is_estimated_row_by_row(tmp_path: Path) -> None:
    path = sheet(tmp_path, "x.csv", f"Unary-Type,{HEAD}\ntanh,Bfp8_b,LoFi,1,2,2,1,1\nexp,Float16_b,HiFi4,1,4,2,2,2\n")
    result = read_sheet(path)
    assert result.measured is None
    tanh = cycles("tanh", arch="wormhole_b0", df=DataFormat.Bfp8_b, t=1, mblock_m=2, mblock_n=2, ublock_r=1, ublock_c=1)
    exp = cycles(
        "exp", arch="wormhole_b0", df=DataFormat.Float16_b, t=1, mblock_m=4, mblock_n=2, ublock_r=2, ublock_c=2
    )
    assert list(result.estimate("wormhole_b0")) == [int(tanh), int(exp)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gelu.csv", "", "empty"),
        ("gelu.csv", "input0_df,runtime\nBfp8_b,3\n", "no column output_mb_r or mblock_m"),
        ("gelu.csv", f"{HEAD}\nBfp8_b,LoFi,1,2,x,1,1\n", r"gelu.csv:2: column mblock_n .*'x'"),
        ("gelu.csv", f"{HEAD}\nBfp8_b,LoFi,1,2,-2,1,1\n", "is not a count"),
        ("gelu.csv", f"{HEAD}\nBfp8_b,LoFi,1,2,nan,1,1\n", "is not a count"),
        ("gelu.csv", f"{HEAD}\nBf,LoFi,1,2,2,1,1\n", "gelu.csv:2: .*Bfp8_b"),
        ("gelu.csv", f"{HEAD}\nBfp8_b,Low,1,2,2,1,1\n", "HiFi4"),
        ("gelu.csv", f"{HEAD}\nBfp8_b,LoFi,1\n", "gelu.csv:2: column mblock_m is empty"),
        ("mystery.csv", f"{HEAD}\nBfp8_b,LoFi,1,2,2,1,1\n", "--op"),
    ],
)
def test_wrong_sheets_say_where(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_sheet(sheet(tmp_path, name, text))


def write_runs(folder: Path, seed: int, count: int = 60) -> None:
    """Sheets of an invented machine: gelu takes max(50 + 100 U + 20 T, 70 T) cycles."""
    rng = np.random.default_rng(seed)
    m, n = rng.choice([1, 2, 4, 8], (2, count))
    r, c = rng.choice([1, 2, 4], (2, count))
    u, tiles = m * n, m * n * r * c
    runtime = np.maximum(50 + 100 * u + 20 * tiles, 70 * tiles)
    rows = [f"Bfp8_b,LoFi,1,{a},{b},{d},{e},{y}" for a, b, d, e, y in zip(m, n, r, c, runtime, strict=True)]
    sheet(folder, "gelu.csv", "\n".join([f"{HEAD},runtime", *rows]) + "\n")


def test_calibration_finds_the_machine(tmp_path: Path) -> None:
    seen, held_out = tmp_path / "seen", tmp_path / "held"
    seen.mkdir()
    held_out.mkdir()
    write_runs(seen, 1)
    write_runs(held_out, 2)
    fits = calibrate(group(read_folder(seen)))
    fit = fits[Key("gelu", "bfp")]
    assert len(fit.pieces) == 2 and fit.median_error < 0.01
    path = tmp_path / "fitted.yaml"
    path.write_text(dump_fits("wormhole_b0", fits), encoding="utf-8")
    arch, read = load_fits(path)
    assert arch == "wormhole_b0" and dump_fits(arch, read) == path.read_text(encoding="utf-8")
    unseen = read_sheet(held_out / "gelu.csv")
    assert unseen.measured is not None
    table = load_table("wormhole_b0").with_fits(read)
    assert relative_errors(unseen.estimate("wormhole_b0", table), unseen.measured).p95 < 0.01


@pytest.mark.parametrize(("crowding", "taken"), [(9, True), (0, False)])
def test_a_wider_form_is_kept_only_where_it_helps(tmp_path: Path, crowding: int, taken: bool) -> None:
    """An invented machine on which the tiles of a ublock wait for each other, and one on which they do not."""
    rows = [
        f"Float16_b,HiFi4,1,{m},{n},{r},{c},{70 + m * n * (250 + r * c * (20 + crowding * r * c))}"
        for m in (2, 4, 7)
        for n in (2, 4)
        for r in (1, 2, 4)
        for c in (1, 2)
    ]
    sheet(tmp_path, "power.csv", "\n".join([f"{HEAD},runtime", *rows]) + "\n")
    fit = calibrate(group(read_folder(tmp_path)))[Key("power", "fp16")]
    assert ["ublock_tiles" in piece for piece in fit.pieces] == [taken]
    assert fit.mean_error < 0.005
    result = cycles(
        "power",
        arch="grayskull",
        df=DataFormat.Float16_b,
        t=1,
        mblock_m=3,
        mblock_n=3,
        ublock_r=4,
        ublock_c=1,
        table=EMPTY.with_fits({fit.key: fit}),
    )
    assert result == pytest.approx(70 + 9 * (250 + 4 * (20 + crowding * 4)), rel=0.01)


def test_runs_in_two_sheets_count_once(tmp_path: Path) -> None:
    write_runs(tmp_path, 1, 20)
    one = group(read_folder(tmp_path))
    sheet(tmp_path, "gelu-again.csv", (tmp_path / "gelu.csv").read_text(encoding="utf-8"))
    two = group(read_folder(tmp_path))
    assert len(one) == len(two) == 1
    assert len(one[0].measured) == len(two[0].measured) <= 20


def test_empty_folders_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no measurement sheets"):
        read_folder(tmp_path)
    for text in ("- 1\n", "arch: z80\n", "arch: grayskull\nfits: [{kind: nop}]\n", "a: [\n"):
        with pytest.raises(InputError, match="not a"):
            load_fits(sheet(tmp_path, "f.yaml", text))


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_packaged_fits_are_within_the_bars(arch: str) -> None:
    """By the errors on unseen runs that stand beside them."""
    fits = load_table(arch).fits.values()
    assert len(fits) >= 20
    assert all(fit.median_error <= 0.20 for fit in fits)
    errors = np.repeat([fit.median_error for fit in fits], [fit.runs for fit in fits])
    assert np.median(errors) <= (0.04 if arch == "grayskull" else 0.08)
