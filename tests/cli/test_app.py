"""The command itself: version, help, doctor, usage errors, records of compiled folders."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tbuda_lab._version
from tbuda_lab.cli import main
from tbuda_lab.cli.app import build_parser
from tbuda_lab.cli.request import read_request


def test_version_and_module_entry() -> None:
    command = [sys.executable, "-m", "tbuda_lab", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == f"tbuda {tbuda_lab._version.__version__}\n"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("from tbuda_lab.cli.app import build_parser; build_parser()", ("torch", "scipy", "pandas", "bokeh")),
        ("import tbuda_lab.core.session", ("torch._dynamo", "torch.export._trace", "sympy", "tbuda_lab.samba")),
        ("import tbuda_lab.widgets", ("torch", "scipy", "tbuda_lab.core.session", "bokeh")),
    ],
)
def test_help_and_widgets_load_no_torch_and_a_session_no_tracer(statement: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print([name for name in {unwanted!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


def test_doctor_lists_what_is_here_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["ok", "torch", torch.__version__] for line in lines)
    assert all(line.startswith(("  ok  ", "  no  ", "  --  ")) for line in lines[1:])


def test_doctor_fails_without_a_required_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tbuda_lab.cli.doctor.REQUIRED", ("torch", "no-such-distribution-anywhere"))
    assert main(["doctor"]) == 1
    assert "no-such-distribution-anywhere" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["no-such-command"], ["compile"], ["compile", "m.py:f"]])
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(argv)
    assert refusal.value.code == 2
    assert "usage: tbuda" in capsys.readouterr().err


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    commands = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    existing = (
        "compile run report tune explore script diff share bisect netlist tti export profile cost calibrate demo doctor"
    )
    assert commands == existing.split()
    for command in commands:
        with pytest.raises(SystemExit) as leaving:
            main([command, "--help"])
        assert leaving.value.code == 0
        assert f"usage: tbuda {command}" in capsys.readouterr().out


def test_request_of_a_compiled_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It leads to a Python file of the user's, which is named before it is executed."""
    out = tmp_path / "out"
    out.mkdir()
    request_of = {"target": "../model.py:make", "device": "n150", "harvested_rows": [3], "op_size": ["a=1x1"]}
    record = {"request": request_of, "netlist_sha256": hashlib.sha256(b"devices:").hexdigest()}
    (out / "netlist.yaml").write_text("devices:")
    (out / "compile.json").write_text(json.dumps(record))
    arguments = build_parser().parse_args(["run", str(out)])
    request = read_request(arguments)
    assert request.target == f"{tmp_path / 'model.py'}:make"
    assert capsys.readouterr().err == f"{out} was compiled from {tmp_path / 'model.py'}: executing it\n"
    assert (request.device, request.harvested_rows, request.op_size) == ("n150", (3,), ("a=1x1",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "[]",
        "{}",
        '{"request": 1}',
        '{"request": {}}',
        '{"request": {"target": 3}}',
        '{"request": {"target": "m.py"}}',
        '{"request": {"target": "m.py:f", "surplus": 1}}',
    ],
)
def test_a_broken_record_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compile.json").write_text(text)
    assert main(["run", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tbuda: ModelError: ") and "compile again" in error


def test_a_compiled_folder_keeps_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compile.json").write_text('{"request": {"target": "m.py:f"}}')
    assert main(["run", str(tmp_path), "--device", "n150"]) == 1
    assert "--device would change that" in capsys.readouterr().err


def test_python_may_leave_docs_and_asserts_away() -> None:
    """Under PYTHONOPTIMIZE=2 there are no docstrings, of which rules had their titles, and no asserts."""
    code = (
        "import tbuda_lab.widgets; from tbuda_lab.cli import main; from tbuda_lab.core.netlist.check import RULES; "
        "assert False; print(len(RULES)); main(['--help'])"
    )
    run = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert int(run.stdout.split()[0]) > 50, run.stderr


MODEL = """
import torch
def make():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)]
    return torch.nn.Sequential(*layers).eval(), (torch.randn(1, 64, 128),)
"""


CLUSTER = """
chips: {0: [0,0,0,0], 1: [1,0,0,0], 2: [2,0,0,0]}
ethernet_connections: [
  [{chip: 0, chan: 0}, {chip: 1, chan: 0}],
  [{chip: 1, chan: 1}, {chip: 2, chan: 1}],
]
chips_with_mmio: [0, 1, 2]
"""


def test_a_cluster_descriptor_says_which_chips_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    words = ["compile", f"{tmp_path / 'model.py'}:make", "--batch", "8", "--device", "wormhole_b0"]
    assert main([*words, "--cluster", str(file), "--out", str(tmp_path / "out")]) == 0
    chips = {int(chip) for chip in re.findall(r"target_device: (\d+)", (tmp_path / "out" / "netlist.yaml").read_text())}
    assert chips <= {0, 1, 2} and len(chips) > 1
    assert main(["netlist", "check", str(tmp_path / "out" / "netlist.yaml")]) == 0
    capsys.readouterr()
    file.write_text(CLUSTER.replace("chip: 2", "chip: 9"))
    assert main([*words, "--cluster", str(file), "--out", str(tmp_path / "wrong")]) != 0
    assert "'chip': 9" in capsys.readouterr().err and not (tmp_path / "wrong").exists()


def test_a_compile_says_the_time_of_the_batch_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    words = [f"{tmp_path / 'model.py'}:make", "--batch", "8", "--set", "schedule_swaps=0"]
    assert main(["compile", *words, "--chips", "2", "--out", str(tmp_path / "two")]) == 0
    record = json.loads((tmp_path / "two" / "compile.json").read_text())
    parts = record["objective"]
    together = parts["slowest_ops"] + parts["filling_and_waiting"] + parts["switches"]
    assert 0 < record["cycles_per_input"] < together  # two chips work side by side: the slower one counts
    assert 0 < parts["minimised"] <= record["cycles_per_input"]  # the batch also fills and leaves the chips
    assert list(record).index("cycles_per_input") < list(record).index("sum_limiter_cycles")
    assert f"modelled: {record['cycles_per_input']:,} cycles per input in a batch of 8" in capsys.readouterr().out

    assert main(["tune", *words, "--steps", "6", "--out", str(tmp_path / "tuned")]) == 0
    record = json.loads((tmp_path / "tuned" / "compile.json").read_text())
    assert record["curve"][0][0] == 0 and record["curve"][-1] == [6, record["cycles_per_input"]]
    assert "optimise_steps=6" in record["request"]["set"]
