"""Netlist files with inputs and outputs in archives."""

import numpy as np
import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError, NetlistError, OutputError
from tbuda_lab.core.files import read_npz
from tbuda_lab.core.netlist.schema import EndLoop, Execute, Loop, Param
from tbuda_lab.sim import Executor, files
from tbuda_lab.sim.files import run_file
from tests.sim.build import Net
from tests.sim.test_programs import ONE, ones, setting
from tests.sim.test_rams import cache, gradient


def write(path, net):
    netlist.dump(net, path)
    return path


def example(loops=1, count=2):
    net = Net("blackhole", "Float32")
    net.graph("g", count)
    net.queue("x.in", ONE, entries=count)
    net.ram("w", ONE)
    net.op("op", "add", ["x.in", "w"], ONE)
    net.queue("out", ONE, source="op", entries=count)
    net.streaming(loops=loops)
    return net.netlist()


def test_a_file_runs_and_more_entries_than_a_queue_holds_follow(tmp_path):
    path = write(tmp_path / "n.yaml", example(loops=3))
    np.savez(tmp_path / "in.npz", **{"x.in": ones(6), "w": ones(1, 10), "other": np.zeros(3)})
    assert run_file(path, tmp_path / "in.npz", tmp_path / "out.npz") == ["out"]
    with np.load(tmp_path / "out.npz") as result:
        assert result.files == ["out"]
        np.testing.assert_array_equal(result["out"], ones(6) + 10)
    first = (tmp_path / "out.npz").read_bytes()
    run_file(path, tmp_path / "in.npz", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npz", "n.yaml", "out.npz"]


def endless():
    """A loop over an op that reads rams alone, so that no queue runs dry and none fills."""
    net = Net("blackhole", "Float32")
    net.ram("a", ONE)
    net.op("op", "add", ["a", "a"], ONE)
    net.ram("sum", ONE, source="op")
    still = setting(rd_ptr_global=0, wr_ptr_global=0)
    net.program("run", [Param(["$p_n"]), Loop("$p_n"), Execute("g", {"a": still, "sum": still}), EndLoop()])
    return net


def test_a_loop_without_end_is_refused_before_its_first_turn(tmp_path):
    path = tmp_path / "n.yaml"
    write(path, endless().netlist())
    np.savez(tmp_path / "in.npz", a=ones(1))
    seen = []
    for turns, allowed in ((2**31 - 1, None), (10**20, None), (6, 13), (5_000_000, None)):
        more = {} if allowed is None else {"max_steps": allowed}
        with pytest.raises(NetlistError, match=r"'run', instruction 1: a loop of \d+ turns .*allowed") as error:
            run_file(path, tmp_path / "in.npz", tmp_path / "out.npz", params={"$p_n": turns}, **more)
        seen.append(str(error.value))
    assert "takes 4294967294 steps or more, 10000000 are allowed" in seen[0] and "--max-steps" in seen[0]
    assert not (tmp_path / "out.npz").exists()
    run_file(path, tmp_path / "in.npz", tmp_path / "out.npz", params={"$p_n": 6}, max_steps=14)
    with np.load(tmp_path / "out.npz") as result:
        np.testing.assert_array_equal(result["sum"], 2 * ones(1))


def test_steps_count_over_all_loops_of_a_program():
    net = endless()
    _, _, execute, end = net.netlist().programs[0].instructions
    net.program("nested", [Loop(10), Loop(10), execute, end, end])
    executor = Executor(net.netlist())
    executor.push("a", ones(1))
    executor.run("nested", max_steps=1 + 10 * (1 + 20 + 1))
    with pytest.raises(NetlistError, match="steps"):
        executor.run("nested", max_steps=10 * (1 + 20 + 1))


def test_missing_and_misshapen_inputs_are_listed_together(tmp_path):
    path = write(tmp_path / "n.yaml", example())
    np.savez(tmp_path / "in.npz", w=np.zeros((1, 1, 64, 32), np.float32))
    with pytest.raises(InputError) as error:
        run_file(path, tmp_path / "in.npz", tmp_path / "out.npz")
    assert "x.in: missing; queue of Float32, (n, 1, 32, 32) float32" in str(error.value)
    assert "w: has shape (1, 1, 64, 32); ram of Float32 takes (n, 1, 32, 32) float32" in str(error.value)
    assert not (tmp_path / "out.npz").exists()


def test_archives_with_objects_and_other_files_are_refused(tmp_path):
    path = write(tmp_path / "n.yaml", example())
    np.savez(tmp_path / "in.npz", w=np.array([{}], object))
    with pytest.raises(InputError, match=r"is not an .npz archive of plain arrays"):
        run_file(path, tmp_path / "in.npz", tmp_path / "out.npz")
    (tmp_path / "in.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"is not an .npz archive") as error:
        run_file(path, tmp_path / "in.npz", tmp_path / "out.npz")
    assert "allow_pickle" not in str(error.value)
    np.save(tmp_path / "in.npy", np.zeros(3))
    with pytest.raises(InputError, match="is a single array"):
        run_file(path, tmp_path / "in.npy", tmp_path / "out.npz")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        run_file(path, tmp_path / "none.npz", tmp_path / "out.npz")
    np.savez(tmp_path / "in.npz", **{"x.in": ones(2), "w": ones(1)})
    with pytest.raises(OutputError, match=r"cannot write .*: No such file"):
        run_file(path, tmp_path / "in.npz", tmp_path / "no" / "out.npz")
    with pytest.raises(NetlistError):
        run_file(tmp_path / "no.yaml", tmp_path / "in.npz", tmp_path / "out.npz")


def test_rams_are_written_out_by_slot_and_take_initial_contents(tmp_path):
    path = write(tmp_path / "n.yaml", cache().netlist())
    np.savez(tmp_path / "in.npz", **{"in": ones(1, 7), "cache": ones(3)})
    assert run_file(path, tmp_path / "in.npz", tmp_path / "out.npz", params={"slot": 2}) == ["cache", "out"]
    with np.load(tmp_path / "out.npz") as result:
        assert result["cache"][:, 0, 0, 0].tolist() == [1, 2, 7]
        assert result["out"][:, 0, 0, 0].tolist() == [7]


def test_the_host_need_not_feed_a_view_of_what_an_op_writes(tmp_path):
    net = Net("blackhole", "Float32")
    net.graph("g", 1)
    net.queue("x", (4, 1, 1))
    net.op("w", "nop", ["x"], (4, 1, 1))
    whole = net.ram("whole", (4, 1, 1), source="w")
    net.graph("h", 4)
    net.ram("slices", ONE, entries=4, alias=whole, buffers=net.net.queues[whole].buffers)
    net.op("r", "nop", ["slices"], ONE, graph="h")
    net.queue("out", ONE, source="r", entries=4)
    net.streaming(
        "g", whole={"prologue": False, "epilogue": False, "zero": False, "rd_ptr_global": 0, "wr_ptr_global": 0}
    )
    net.streaming("h", slices={"prologue": False, "read_only": True, "global_rdptr_autoinc": 1})
    net.net.programs[1].name = "read"
    x = np.random.default_rng(0).random((1, 4, 32, 32), np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    run_file(write(tmp_path / "n.yaml", net.netlist()), tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as result:
        np.testing.assert_array_equal(result["out"], x.swapaxes(0, 1))


def test_params_default_to_one_and_modes_differ(tmp_path):
    path = write(tmp_path / "n.yaml", gradient(loops=1))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 1, 32, 64)).astype(np.float32), rng.normal(size=(2, 1, 64, 32)).astype(np.float32)
    np.savez(tmp_path / "in.npz", a=a, b=b)
    run_file(path, tmp_path / "in.npz", tmp_path / "golden.npz")
    run_file(path, tmp_path / "in.npz", tmp_path / "device.npz", mode="device")
    with np.load(tmp_path / "golden.npz") as one, np.load(tmp_path / "device.npz") as other:
        np.testing.assert_allclose(one["acc"][0], (a @ b).sum(0), rtol=1e-5, atol=1e-5)
        assert (one["acc"] != other["acc"]).any()
        np.testing.assert_allclose(one["acc"], other["acc"], rtol=0.02, atol=0.02)
    with pytest.raises(InputError, match="unknown mode 'silicon'"):
        run_file(path, tmp_path / "in.npz", tmp_path / "x.npz", mode="silicon")


def test_an_instance_takes_the_array_of_the_name_before_its_suffix(tmp_path):
    net = example()
    net.graphs["g"].target_device = [0, 1]
    for queue in net.queues.values():
        queue.target_device = [0, 1]
    path = write(tmp_path / "n.yaml", net)
    np.savez(tmp_path / "in.npz", **{"x.in": ones(2), "w.0": ones(1, 10), "w.1": ones(1, 20)})
    assert run_file(path, tmp_path / "in.npz", tmp_path / "out.npz") == ["out.0", "out.1"]
    with np.load(tmp_path / "out.npz") as result:
        np.testing.assert_array_equal(result["out.1"] - result["out.0"], np.full_like(result["out.0"], 10))


def test_integer_and_raw_outputs_are_int32(tmp_path):
    net = Net("blackhole", "Int8")
    net.queue("a", (1, 1, 2))
    net.op("op", "nop", ["a"], (1, 1, 2))
    net.queue("out", (1, 1, 2), source="op")
    net.queue("words", (1, 1, 2), fmt="RawUInt32")
    net.op("raw", "nop", ["words"], (1, 2, 1), fmt="RawUInt32", tms={0: [("hslice", 2), ("vstack", 2)]})
    net.queue("moved", (1, 2, 1), source="raw", fmt="RawUInt32")
    net.streaming()
    path = write(tmp_path / "n.yaml", net.netlist())
    words = np.arange(2048, dtype=np.int32).reshape(1, 1, 32, 64) - 7
    np.savez(tmp_path / "in.npz", a=np.full((1, 1, 32, 64), 300, np.int32), words=words)
    run_file(path, tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as result:
        assert result["out"].dtype == np.int32 and (result["out"] == 127).all()
        # words run tile after tile: the first tile is the upper one now, its words the first 1024 as before
        np.testing.assert_array_equal(result["moved"].reshape(-1), words.reshape(-1))


def test_queues_of_any_name_and_equal_bytes(tmp_path):
    """Names that are keywords of NumPy's own writer, or hold a slash."""
    arrays = {
        "file": np.ones((1, 1, 2, 2), np.float32),
        "allow_pickle": np.zeros((1, 1, 2, 2), np.int32),
        "a/b.c": np.full((2, 1, 2, 2), 3, np.float32),
        "é": np.ones((1, 1, 1, 1), np.float32),
    }
    files.write_archive(tmp_path / "one.npz", arrays)
    files.write_archive(tmp_path / "two.npz", arrays)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as result:
        assert sorted(result.files) == sorted(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(result[name], array)
    assert sorted(read_npz(tmp_path / "two.npz")) == sorted(arrays)
