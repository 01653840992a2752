"""Profiles of several devices: which of their ops are copies of one op, and which are parts of one run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.measured import MeasuredProfile, read_profile
from tbuda_lab.core.measured.match import match_profile
from tbuda_lab.core.measured.ops_perf import read_ops_perf_text
from tbuda_lab.core.session import Session
from tests.measured.files import op, perceptron_rows, table

Row = dict[str, Any]
CODES = {"m": ("Matmul", 100), "a": ("Add", 20), "s": ("Softmax", 50), "t": ("Transpose", 7)}


def rows_of(text: str, launched: bool = False, slow: int = -1) -> list[Row]:
    """Words like "m0": a product on device 0; "m0w": a wider one; "s0!": one that takes ten times as long. launched:
    with calls as new files number them, the n-th op of each device being one launch."""
    rows, counts = [], {0: 0, 1: 0, 2: 0, 3: 0}
    for word in text.split():
        code, time = CODES[word[0]]
        device, width = int(word[1]), 64 if "w" in word else 32
        counts[device] += 1
        time *= 10 if "!" in word else 1
        row = op(code, time + device, [(32, width)], (32, width)) | {"DEVICE ID": device}
        rows.append(row | ({"GLOBAL CALL COUNT": counts[device] << 10 | device} if launched else {}))
    return rows


def read(rows: Sequence[Row]) -> MeasuredProfile:
    return read_ops_perf_text(table(rows), "run.csv")


LANES = {  # rows: (codes of the run, its ns, rules)
    "copies": ("m0 m1 a0 a1", "m a", 122, []),
    "copies, one of other shapes": ("m0 m1w a0 a1", "m a", 122, []),
    "one behind the other": ("m0 a0 m1 a1", "m a", 122, ["profile-copies"]),
    "one behind the other, of other shapes": ("m0 a0 m1w a1w", "m a m a", 242, ["profile-parts"]),
    "parts": ("m0 a0 s1 m1", "m a s m", 272, ["profile-parts"]),
    "parts, the first again": ("m0 s1 a0", "m s a", 171, ["profile-parts", "profile-mixed"]),
    "one op alone elsewhere": ("m0 a0 t1 m0 a0", "m a t m a", 248, ["profile-parts", "profile-mixed"]),
    "two pairs of copies": ("m0 m1 a0 a1 s2 s3 t2 t3", "m a s t", 185, ["profile-parts"]),
    "one ends early": ("m0 m1 a0", "m a", 121, ["profile-device"]),
    "one has an op more at the begin": ("t0 m0 m1 a0 a1", "t m m a a", 249, ["profile-parts", "profile-mixed"]),
    "three stages": ("m0 t0 a1 t1 s2", "m t a t s", 188, ["profile-parts"]),
}


@pytest.mark.parametrize("case", LANES)
def test_ops_of_devices_are_copies_or_parts_and_none_is_dropped_without_a_word(case: str) -> None:
    text, run, total, rules = LANES[case]
    profile = read(rows_of(text))
    assert [o.code[0].lower() for o in profile.sequence()] == run.split()
    assert profile.total == total and [f.rule for f in profile.findings] == rules


@pytest.mark.parametrize("text", ["m0 m1 a0 a1", "m0 a0 m1 a1", "m0 a0 m1w a1w", "m1 a1 m0 a0"])
def test_numbers_of_launches_say_which_ops_are_one_whatever_the_order_of_the_rows(text: str) -> None:
    profile = read(rows_of(text, launched=True))
    assert profile.total == 122 and not profile.findings


GATED = {  # before: (after, code of the gate, what it says)
    "m0 a0 s1 m1": ("m0 a0 s1! m1", 1, "slower"),
    "m0 a0 s1 m1 a2": ("m0 a0 s1 m1 a2!", 1, "slower"),
    "m0 m1 a0 a1": ("m0 m1! a0 a1", 1, "slower"),
    "m0 s1 a0 ": ("m0 s1! a0", 2, "run different ops in turn"),
    "m0 a0 m1 a1": ("m0 a0 m1! a1", 2, "run the same ops one behind the other"),
    "m0 m1 a0 a1 ": ("m0 m1 a0 s1", 2, "the other has not"),
}


@pytest.mark.parametrize("before", GATED)
def test_a_gate_counts_every_device(before: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after, code, said = GATED[before]
    for name, text in (("a.csv", before), ("b.csv", after)):
        (tmp_path / name).write_text(table(rows_of(text)))
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert main(["diff", *files, "--fail-if-slower", "3%"]) == code
    assert said in capsys.readouterr().err
    unsure = "one behind" in said or "in turn" in said
    assert main(["diff", files[0], files[0], "--fail-if-slower", "0%"]) == (2 if unsure else 0)
    assert main(["diff", *files, "--fail-if-slower", "3%", "--allow-other-ops"]) == 1


def test_the_command_counts_the_ops_of_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("m0 m1 a0 a1", "2 ops on 2 devices (4 with copies"), ("m0 a0 s1 m1", "4 ops on 2 devices, ")):
        (tmp_path / "run.csv").write_text(table(rows_of(text)))
        assert main(["profile", "import", str(tmp_path / "run.csv")]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert int(out.split(": ")[1].split()[0]) == sum(int(n) for n in re.findall(r"^\w+ +(\d+) +[\d.]+ ", out, re.M))


def on(devices: Sequence[int]) -> list[Row]:
    return [row | {"DEVICE ID": device} for row, device in zip(perceptron_rows(), devices, strict=True)]


@pytest.mark.parametrize(
    "devices", [(0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 1, 1), (0, 1, 2, 3), (1, 1, 0, 0), (0, 0, 1, 0)]
)
def test_a_model_cut_over_devices_is_matched_as_on_one(devices: Sequence[int], mlp: Session) -> None:
    whole = match_profile(read(perceptron_rows()), mlp.trace())
    match = match_profile(read(on(devices)), mlp.trace())
    assert match.times() == whole.times() and not match.missing and len(match.times()) == 3


def test_alike_parts_of_a_model_are_told_by_the_model() -> None:
    """Two layers of the same ops on two devices; of one layer the second device has a copy."""
    import torch
    from torch import nn

    layers = [nn.Linear(256, 256), nn.ReLU()]
    one = Session(nn.Sequential(*layers), torch.randn(1, 128, 256), "n150").trace()
    two = Session(nn.Sequential(*layers, nn.Linear(256, 256), nn.ReLU()), torch.randn(1, 128, 256), "n150").trace()
    rows = [
        op("MatmulDeviceOperation", 9000 + device, [(128, 256), (256, 256), (1, 256)], (128, 256))
        | {"DEVICE ID": device}
        if first
        else op("UnaryDeviceOperation", 500, [(128, 256)], (128, 256)) | {"DEVICE ID": device}
        for device, first in itertools.product((0, 1), (True, False))
    ]
    profile = read(rows)
    copies, parts = match_profile(profile, one), match_profile(profile, two)
    assert sorted(copies.times().values()) == [500, 9001] and sorted(parts.times().values()) == [500, 500, 9000, 9001]
    assert "profile-copies" in {f.rule for f in copies.profile.findings} and not parts.profile.findings
    assert not parts.missing and "parts of the model" in parts.notes[0] and parts.profile.total == 19001


def test_processes_of_a_trace_are_devices(tmp_path: Path) -> None:
    def total(*events: tuple[str, float, float, object]) -> tuple[float, list[str]]:
        spans = [{"ph": "X", "name": n, "ts": t, "dur": d, "pid": p, "tid": 1} for n, t, d, p in events]
        (tmp_path / "t.json").write_text(json.dumps(spans))
        profile = read_profile(tmp_path / "t.json")
        return profile.total, [f.rule for f in profile.findings]

    for one, other in ((1, 2), ("rank 0", "rank 1"), ("1", "2")):
        assert total(("mm", 0, 5, one), ("mm", 1, 9, other), ("add", 11, 1, one), ("add", 12, 1, other)) == (10000, [])
        assert total(("mm", 0, 9, one), ("add", 10, 2, other)) == (11000, ["profile-parts"])


def test_a_file_of_more_devices_than_there_are_is_read_without_comparing_all_of_them(tmp_path: Path) -> None:
    rows = [op(f"Kind{k}", 100, [(32, 32)], (32, 32)) | {"DEVICE ID": k} for k in range(3000)]
    profile = read(rows)
    assert len(profile.sequence()) == 3000 and len(profile.devices) == 1024
    assert any("DEVICE ID: '1024' is no whole number of it" in f.message for f in profile.findings)
    events = [{"ph": "X", "name": "Matmul", "ts": k, "dur": 1, "pid": f"p{k}", "tid": 0} for k in range(3000)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    traced = read_profile(path)
    assert len(traced.devices) == 1024 and any("more than 1,024" in f.message for f in traced.findings)
