"""What several cores, chips and odd attributes change, judged by float64 NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.formats import DataFormat as F
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import agree, noise, run
from tests.netlist_acceptance.test_ops import blocks, feeds_of, fused, product, single, tiles


def test_splice_on_two_cores_walks_each_core(tmp_path: Path) -> None:
    n = single(
        "splice",
        {"x": (1, 2, 4), "y": (1, 2, 4)},
        (1, 2, 8),
        grid=(1, 2),
        attributes={"input0": [0, 1, 1], "input1": [0, 1, 1]},
    )
    feeds = feeds_of(n)
    expected = np.zeros((1, 1, 64, 256))
    for core in range(2):
        x, y = (blocks(feeds[k][0, 0][:, core * 64 : core * 64 + 64], "r") for k in "xy")
        stream = [tile for pair in zip(x, y, strict=True) for tile in pair]
        for k, tile in enumerate(stream):
            r, c = divmod(k, 4)
            expected[0, 0, r * 32 : r * 32 + 32, core * 128 + c * 32 : core * 128 + c * 32 + 32] = tile
    agree(tmp_path, n, feeds, {"o.out": expected}, exact=True)


def test_embedding_on_two_rows_of_cores(tmp_path: Path) -> None:
    """Every row of cores takes its own num_indices indices."""
    queues = [
        b.queue("table", (1, 4, 2), kind="ram", entries=1, layout="flat"),
        b.queue("index", (1, 2, 1), df=F.RawUInt32, grid=(2, 1)),
    ]
    n = single(
        "embedding",
        {},
        (1, 2, 2),
        queues=queues,
        in_df=[F.Float16_b, F.RawUInt32],
        grid=(2, 1),
        attributes={"num_indices": 32},
    )
    table = noise((1, 1, 128, 64))
    chosen = np.random.default_rng(1).integers(0, 128, (2, 32))
    words = np.zeros((1, 1, 2, 32 * 32), np.int32)  # tile after tile
    words[0, 0, :, :32] = chosen
    agree(
        tmp_path,
        n,
        {"table": table, "index": words.reshape(1, 1, 64, 32)},
        {"o.out": table[0, 0][chosen.ravel()][None, None]},
        exact=True,
    )


def test_fused_on_several_cores_and_slices(tmp_path: Path) -> None:
    subs = [
        b.sub("m", "multiply", ["input0", "input1"], "intermed0", mblock=(1, 1), ublock=(2, 2)),
        b.sub("t", "tanh", ["intermed0"], "intermed1", mblock=(1, 1), ublock=(2, 2), pop=["intermed0"]),
        b.sub("s", "subtract", ["intermed1", "input0"], "output", mblock=(1, 1), ublock=(2, 2), pop=["intermed1"]),
    ]
    n = fused(subs, {"x": (3, 4, 4), "y": (3, 4, 4)}, (3, 4, 4), 2, grid=(2, 2), ublock=(2, 2))
    feeds = feeds_of(n, low=-2, high=2)
    x = feeds["x"].astype(float)
    agree(tmp_path, n, feeds, {"o.out": np.tanh(x * feeds["y"]) - x})


def test_datacopy_over_ethernet(tmp_path: Path) -> None:
    copy = b.op(
        "o",
        "ethernet_datacopy",
        ["x"],
        (1, 2, 2),
        loc=None,
        attributes={"dest_device": 1, "ingress_channels": [0], "egress_channels": [8]},
    )
    n = b.build({"g": [copy], "empty": []}, {"x": (1, 2, 2)}, chips={"empty": 1})
    n.queues["o.out"].target_device = 1
    x = noise((1, *tiles(1, 2, 2)))
    agree(tmp_path, n, {"x": x}, {"o.out": x}, exact=True)


@pytest.mark.parametrize("df", [F.Lf8, F.Fp8_e4m3])
def test_eight_bit_floats(df: F, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["x"], (1, 1, 1), df=df, acc_df=F.Float16)],
        None,
        [b.queue("x", (1, 1, 1), df=df)],
        arch="blackhole" if df is F.Fp8_e4m3 else "wormhole_b0",
    )
    x = noise((1, 1, 32, 32), low=0.5, high=4)
    result = run(tmp_path, n, {"x": x})["o.out"]
    bits = 2 if df is F.Lf8 else 3
    exponent = np.floor(np.log2(x))
    expected = np.floor(x / 2**exponent * 2**bits) / 2**bits * 2**exponent
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("extra", [{"stoch_rnd_mode": "pack"}, {"stoch_rnd_mode": "all"}, {"srnd_fpu_en": True}])
def test_stochastic_rounding_is_seeded_and_close(extra: dict[str, Any], tmp_path: Path) -> None:
    n = single("matmul", {"x": (1, 2, 2), "w": (1, 2, 2)}, (1, 2, 2), attributes={"m_k": 2, "u_kt": 1, **extra})
    feeds = feeds_of(n)
    first = run(tmp_path, n, feeds, mode="device")["o.out"]
    np.testing.assert_allclose(first, product(n, feeds), rtol=2**-5, atol=0.05)
    np.testing.assert_array_equal(run(tmp_path, n, feeds, mode="device")["o.out"], first)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_vector_modes(mode: str, tmp_path: Path) -> None:
    n = single("exp", {"x": (1, 1, 1)}, (1, 1, 1), attributes={"vector": mode})
    x = noise((1, 1, 32, 32))
    got = run(tmp_path, n, {"x": x})["o.out"]
    part = np.s_[:, :, :4] if mode == "r" else np.s_[..., :16]
    np.testing.assert_allclose(got[part], np.exp(x.astype(float))[part], rtol=2**-7)
    rest = np.ones_like(got, bool)
    rest[part] = False
    assert not np.allclose(got[rest], np.exp(x)[rest], rtol=0.01)


def test_queue_with_tms_on_its_way_in(tmp_path: Path) -> None:
    n = single("nop", {"x": (2, 2, 2)}, (2, 2, 2))
    n.graphs["g"].ops["o"].buf_size_mb = 4  # both slices, so that their columns can be put side by side
    out = n.queues["o.out"]
    out.blocking = b.blocking((1, 2, 4))
    out.input_tms = [b.tm("hstack", 2)]
    out.buffers.clear()
    b.lay_out(n)
    n.queues["o.out"].buffers[0].address = 0x30000000
    x = noise((1, *tiles(2, 2, 2)))
    agree(tmp_path, n, {"x": x}, {"o.out": x.transpose(0, 2, 1, 3).reshape(1, 1, 64, 128)}, exact=True)


def test_forked_inputs_read_the_same(tmp_path: Path) -> None:
    n = b.build(
        [b.op("a", "nop", ["x"]), b.op("c", "exp", ["x"], loc=(0, 1), forked_dram_inputs=[{"x": "a"}])],
        {"x": (1, 2, 2)},
    )
    x = noise((1, *tiles(1, 2, 2)))
    agree(tmp_path, n, {"x": x}, {"a.out": x, "c.out": np.exp(x.astype(float))})


def test_instances_on_two_chips(tmp_path: Path) -> None:
    n = b.build([b.op("o", "exp", ["x"])], {"x": (1, 2, 2)})
    n.graphs["g"].target_device = [0, 1]
    for q in n.queues.values():
        q.target_device = [0, 1]
    x = noise((2, *tiles(1, 2, 2)))
    feeds = {"x.0": x[:1], "x.1": x[1:]}
    got = run(tmp_path, n, feeds)
    assert sorted(got) == ["o.out.0", "o.out.1"]
    for k in range(2):
        np.testing.assert_allclose(got[f"o.out.{k}"], np.exp(x[k : k + 1].astype(float)), rtol=2**-7)
