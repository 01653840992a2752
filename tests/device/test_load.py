"""Devices by name, by descriptor file, harvested, and in clusters."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tbuda_lab.core.device import ARCHS, BOARDS, StreamLimits, load_device
from tbuda_lab.core.errors import InputError, UnknownDevice
from tbuda_lab.core.formats import DataFormat

DESCRIPTOR = """\
grid:
  x_size: 5
  y_size: 4
arc: [0-0]
dram:
  [[0-1, 0-2, 0-3], [4-1, 4-2, 4-3]]
eth: [1-0, 2-0]
functional_workers:
  [
   1-1, 2-1,
   1-2, 2-2,
   1-3, 2-3,
  ]
harvested_workers: []
worker_l1_size: 1499136
dram_bank_size: 2147483648
eth_l1_size: 262144
arch_name: WORMHOLE_B0
features:
  math:
    dst_size_alignment: 32768
"""

CLUSTER = """\
chips: {0: [0,0,0,0], 1: [1,0,0,0], 2: [2,0,0,0]}
ethernet_connections: [
  [{chip: 0, chan: 0}, {chip: 1, chan: 0}],
  [{chip: 1, chan: 1}, {chip: 0, chan: 1}],
  [{chip: 2, chan: 0}, {chip: 1, chan: 2}],
]
chips_with_mmio: [1]
"""


def write(folder: Path, text: str, name: str = "device.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "grid", "chips"),
    [
        ("grayskull", (10, 12), 1),
        ("wormhole_b0", (10, 8), 1),
        ("blackhole", (10, 14), 1),
        ("e150", (10, 12), 1),
        ("e300", (8, 12), 1),
        ("n150", (9, 8), 1),
        ("n300", (8, 8), 2),
    ],
)
def test_named_devices(name: str, grid: tuple[int, int], chips: int) -> None:
    spec = load_device(name)
    assert (spec.rows, spec.cols) == grid and len(spec.chips) == chips
    assert load_device(name.upper()) == spec
    for chip in range(chips):
        physical = [spec.physical_row(r, chip) for r in range(spec.rows)]
        assert physical == sorted(set(physical))
        assert not set(physical) & set(spec.harvested_by_chip[chip])


@pytest.mark.parametrize("name", ARCHS + BOARDS)
def test_records_are_consistent(name: str) -> None:
    spec = load_device(name)
    assert len(spec.worker_cols) == spec.cols
    assert len(spec.dram_reserved) == spec.dram_channels
    assert len(spec.sysmem_reserved) == spec.sysmem_channels
    assert len({len(channel) for channel in spec.dram_cores}) == 1
    workers = {(x, y) for x in spec.worker_cols for y in spec.worker_rows}
    assert not workers & {core for channel in spec.dram_cores for core in channel}
    assert all(x < spec.noc_size[0] and y < spec.noc_size[1] for x, y in workers)
    for channel in range(spec.dram_channels):
        assert spec.dram_start(channel) % spec.dram_address_align == 0
        assert 0 < spec.dram_start(channel) < spec.p2p_window[0] < spec.dram_end(channel)


def test_published_figures() -> None:
    gs, wh, bh = (load_device(arch) for arch in ARCHS)
    assert (gs.l1_usable, wh.l1_usable, bh.l1_usable) == (839_616, 1_290_176, 1_277_824)
    assert gs.dram_start(0) == 0x4FB0900
    assert [wh.dram_start(c) for c in (0, 3)] == [51_183_616 + 0x100, 108_658_688 + 0x100]
    assert (gs.dram_channels, gs.dram_subchannels) == (8, 1)
    assert (wh.dram_channels, wh.dram_subchannels) == (6, 3)
    assert wh.sysmem_bytes(3) == (1 << 30) - (256 << 20)
    assert StreamLimits().phases == 862
    assert load_device("e300").harvesting_mask() == 2050
    assert [load_device("n300").harvesting_mask(c) for c in (0, 1)] == [2052, 2176]


def test_dst_and_accumulation() -> None:
    wh, gs = load_device("wormhole_b0"), load_device("grayskull")
    assert wh.dst_tiles(DataFormat.Float16_b) == wh.dst_tiles() == 8
    assert wh.dst_tiles(DataFormat.Float32) == wh.dst_tiles(DataFormat.Int32) == 4
    assert wh.supports_accumulate(DataFormat.Float32)
    assert not gs.supports_accumulate(DataFormat.Int32)
    assert gs.supports_accumulate(DataFormat.Float16)


def test_harvesting_by_rows_or_mask() -> None:
    spec = load_device("wormhole_b0", harvested_rows=[11, 1])
    assert spec.rows == 8 and spec.harvested_rows == (1, 11)
    assert load_device("wormhole_b0", harvested_rows=2050) == spec
    assert [spec.physical_row(r) for r in range(8)] == [2, 3, 4, 5, 7, 8, 9, 10]
    assert spec.physical_core(4, 4) == (6, 7)
    assert load_device("n150", harvested_rows=()).rows == 10
    with pytest.raises(InputError, match="1, 2, 3, 4, 5, 7"):
        load_device("grayskull", harvested_rows=[6])
    with pytest.raises(InputError, match="no row is left"):
        load_device("grayskull", harvested_rows=[1, 2, 3, 4, 5, 7, 8, 9, 10, 11])


def test_chips_and_hops() -> None:
    spec = load_device("wormhole_b0", chips=8)  # 2 x 4
    assert spec.chips == tuple(range(8))
    assert spec.hops(0, 7) == 4 and spec.hops(0, 0) == 0
    assert spec.neighbours(5) == {1: 4, 4: 4, 6: 4}
    assert load_device("n300", chips=1).chips == (0,)
    assert load_device("n300", chips=[1]).harvested_rows == (7, 11)
    assert load_device("n300").hops(0, 1) == 1
    assert load_device("grayskull", chips=2).hops(0, 1) is None
    with pytest.raises(InputError, match="different numbers"):
        load_device("n150", chips=[0, 0])
    with pytest.raises(InputError, match="different numbers"):
        load_device("n150", chips=0)
    for wrong in (True, "2"):
        with pytest.raises(InputError, match="number of chips"):
            load_device("n150", chips=wrong)
    with pytest.raises(InputError, match="numbers of physical rows"):
        load_device("n150", harvested_rows=True)


def test_descriptor_file(tmp_path: Path) -> None:
    spec = load_device(write(tmp_path, DESCRIPTOR))
    assert (spec.name, spec.arch, spec.rows, spec.cols) == ("device", "wormhole_b0", 3, 2)
    assert spec.dram_channels == 2 and len(spec.dram_reserved) == 2
    assert spec.eth_links == 2 and spec.noc_size == (5, 4)
    assert spec.physical_core(2, 1) == (2, 3)
    assert load_device(write(tmp_path, DESCRIPTOR), harvested_rows=[2]).rows == 2


def test_descriptor_with_translated_coordinates(tmp_path: Path) -> None:
    text = DESCRIPTOR.replace("1-", "18-").replace("2-", "19-")
    for y in (1, 2, 3):
        text = text.replace(f"18-{y},", f"18-{y + 17},").replace(f"19-{y},", f"19-{y + 17},")
    text = text.replace("grid:", "grid: {x_size: 32, y_size: 32}\nphysical:")
    spec = load_device(write(tmp_path, text))
    assert (spec.rows, spec.cols, spec.noc_size) == (3, 2, (5, 4))
    assert spec.physical_core(2, 1) == (2, 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2-3,\n", "", "2-3 is missing"),
        ("arch_name: WORMHOLE_B0", "arch_name: Z80", "one of grayskull"),
        ("arch_name: WORMHOLE_B0", "", "gives arch_name"),
        ("worker_l1_size: 1499136", "worker_l1_size: -1", "worker_l1_size"),
        ("dram_bank_size: 2147483648", "dram_bank_size: big", "dram_bank_size"),
        ("[0-1, 0-2, 0-3]", "[0-1]", "equally many"),
        ("1-1, 2-1,", "1-1, core,", "'core' is not a core"),
        ("functional_workers:\n  [", "functional_workers:\n  {", "not a device descriptor"),
        ("grid:\n", "size:\n", "x_size"),
    ],
)
def test_wrong_descriptors_name_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in DESCRIPTOR
    with pytest.raises((InputError, UnknownDevice), match=message):
        load_device(write(tmp_path, DESCRIPTOR.replace(old, new)))


def test_descriptors_run_no_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = write(tmp_path, f"arch_name: !!python/object/apply:pathlib.Path.touch [!!python/object/new:str [{marker}]]")
    with pytest.raises(InputError, match="not a device descriptor"):
        load_device(path)
    assert not marker.exists()


def test_unknown_devices_list_the_names(tmp_path: Path) -> None:
    for name in ("n151", "", tmp_path / "absent.yaml", "a" * 5_000 + ".yaml"):
        with pytest.raises(UnknownDevice):
            load_device(name)
    with pytest.raises(UnknownDevice, match="e150, e300, n150, n300"):
        load_device("n151")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8 text"):
        load_device(binary)


def test_cluster_file(tmp_path: Path) -> None:
    spec = load_device("n150", cluster=write(tmp_path, CLUSTER))
    assert spec.chips == (0, 1, 2) and spec.mmio_chips == (1,)
    assert spec.links == ((0, 1, 2), (1, 2, 1)) and spec.hops(0, 2) == 2
    assert spec.rows == 9 and len(spec.harvested_by_chip) == 3
    harvested = CLUSTER + "harvesting: {0: {harvest_mask: 2050}, 1: {harvest_mask: 2}}\n"
    spec = load_device("wormhole_b0", cluster=write(tmp_path, harvested))
    assert spec.rows == 8 and spec.harvested_by_chip == ((1, 11), (1,), ())
    with pytest.raises(InputError, match="does not join two"):
        load_device("n150", cluster=write(tmp_path, CLUSTER.replace("chip: 2", "chip: 9")))
    with pytest.raises(InputError, match="not a chip of the cluster"):
        load_device("n150", cluster=write(tmp_path, CLUSTER.replace("mmio: [1]", "mmio: [7]")))


def test_records_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_device("n150").rows = 3  # type: ignore[misc]


def test_channels_out_of_range() -> None:
    spec = load_device("n150")
    for call in (spec.dram_start, spec.dram_end, spec.sysmem_bytes, spec.physical_row):
        with pytest.raises(InputError):
            call(99)
