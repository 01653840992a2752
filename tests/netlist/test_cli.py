"""`tbuda netlist` as others call it: arguments, streams, exit codes, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tbuda_lab.cli.app import main
from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError
from tests.netlist import builders as b


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    netlist.dump(b.fused_chain(), path)
    return path


def edited(path: Path, old: str, new: str) -> Path:
    text = path.read_text()
    assert old in text
    out = path.with_name("edited.yaml")
    out.write_text(text.replace(old, new))
    return out


def test_check_of_a_valid_netlist(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["netlist", "check", str(good)]) == 0
    out, err = capsys.readouterr()
    assert "valid: 4 queues, 1 graph, 1 op\n" in out and not err


def test_check_writes_one_line_per_error(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = edited(edited(good, "type: exp", "type: sinc"), "grid_loc: [0, 0]", "grid_loc: [0, 9]")
    assert main(["netlist", "check", str(path), "--profile", "strict"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith(f"{path}:") and ": error: " in line for line in lines)
    assert "schedules/0/s1/type" in lines[0] and "'sinc'" in lines[0] and "'f'" in lines[0]
    assert "g/f/grid_loc" in lines[1] and "10x8" in lines[1]


def test_profiles_and_archs(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = edited(good, "0x10000000", "0x10002000")
    for profile in ([], ["--profile", "backend"], ["--profile", "strict"]):  # the first is the default
        assert main(["netlist", "check", str(path), *profile]) == 1
        assert "overlaps" in capsys.readouterr().err
    path = edited(good, "- endloop", "- deallocate_queue: [x]")
    for profile in ([], ["--profile", "backend"]):
        main(["netlist", "check", str(path), *profile])
        assert "warning: programs/" in capsys.readouterr().out
    assert main(["netlist", "check", str(path), "--profile", "strict"]) == 1
    assert "loop without endloop" in capsys.readouterr().err
    assert main(["netlist", "check", str(good), "--arch", "n300"]) == 0
    assert main(["netlist", "check", str(good), "--arch", "tpu"]) == 1
    assert "tpu" in capsys.readouterr().err
    many = edited(good, "arch: wormhole_b0", "arch: [GRAYSKULL, wormhole_b0]")
    assert main(["netlist", "check", str(many), "--arch", "Wormhole_B0"]) == 0
    assert main(["netlist", "check", str(many), "--arch", "blackhole"]) == 1


def test_the_first_arch_decides(tmp_path: Path) -> None:
    n = b.unary(acc_df=b.DataFormat.Float32)
    n.arch, n.arch_as_list = ["wormhole_b0", "grayskull"], True
    findings = netlist.check(b.reread(n))
    assert [(f.severity, f.rule) for f in findings] == [("warning", "O14.grayskull")]
    assert findings[0].message.startswith("on grayskull: ")
    n.arch.reverse()
    assert [(f.severity, f.rule) for f in netlist.check(b.reread(n))] == [("error", "O14.grayskull")]


def test_unreadable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("queues: [")
    for command in (
        ["check", str(bad)],
        ["check", str(tmp_path / "none.yaml")],
        ["roundtrip", str(bad), "--out", str(tmp_path / "out.yaml")],
        ["run", str(bad), "--inputs", str(bad), "--outputs", str(tmp_path / "out.npz")],
    ):
        assert main(["netlist", *command]) == 1
        err = capsys.readouterr().err
        assert "bad.yaml" in err or "none.yaml" in err
        assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.yaml"]


def test_roundtrip(good: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    assert main(["netlist", "roundtrip", str(good), "--out", str(out)]) == 0
    assert netlist.load(out) == netlist.load(good)
    assert main(["netlist", "roundtrip", str(good), "--out", str(tmp_path / "no" / "out.yaml")]) == 1


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.yaml"
    netlist.dump(b.two_chips(), path)
    assert main(["netlist", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "epoch 0, graph g0: chip 0, input_count 1, together with g1" in out
    assert "program run: 8 instructions, 2 executes" in out and "varinst: [$lptr, incwrap, 1, 4]" in out
    assert main(["netlist", "show", str(path), "--graph", "g1"]) == 0
    out = capsys.readouterr().out
    assert "graph g1" in out and "graph g0:" not in out and "b.out" in out and "program" not in out
    assert main(["netlist", "show", str(path), "--graph", "g2"]) == 1
    assert "g0, g1" in capsys.readouterr().err


def test_show_draws_cores() -> None:
    ops = [b.op("a", "nop", ["x"], grid=(1, 2)), b.op("c", "exp", ["a"], loc=(2, 1), grid=(2, 1))]
    n = b.build(ops, {"x": (1, 2, 2)})
    lines = netlist.show(n).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("epoch")) + 2
    grid = [line.split()[1:] for line in lines[first : first + 10]]
    cells = {(r, c): cell for r, row in enumerate(grid) for c, cell in enumerate(row) if cell != ".."}
    assert cells == {(0, 0): "00", (0, 1): "00", (2, 1): "01", (3, 1): "01"}
    n.graphs["g"].ops["c"].grid_transpose = True
    n.graphs["g"].ops["c"].grid_loc = (0, 1)
    text = netlist.show(n)
    assert "##" in text and "transposed" in text  # both ops claim a core


def test_params() -> None:
    from tbuda_lab.cli.netlist import read_params

    assert read_params(["p_loop_count=3", "$z=true", "a=0x10"]) == {"$p_loop_count": 3, "$z": 1, "$a": 16}
    for wrong in ("p", "p=", "=3", "p=x", "p=1.5"):
        with pytest.raises(InputError, match="NAME=VALUE"):
            read_params([wrong])


def test_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "n.yaml"
    netlist.dump(b.unary(), path)
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 1, 64, 64), np.float32))
    run = ["netlist", "run", str(path), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz")]
    assert main([*run, "--max-steps", "1"]) == 1
    assert "program 'run', instruction 1: the program reached its limit of 1 steps" in capsys.readouterr().err
    assert not (tmp_path / "out.npz").exists()
    assert main([*run, "--max-steps", "20"]) == 0 and (tmp_path / "out.npz").exists()
    for wrong in ("0", "-1", "x", "1.5"):
        with pytest.raises(SystemExit) as stopped:
            main([*run, "--max-steps", wrong])
        assert stopped.value.code == 2 and "1 or more" in capsys.readouterr().err
