"""What cannot be explored, or gone on with: one clear line each, and nothing that was there is overwritten."""

import shutil
from pathlib import Path

import pytest

from tbuda_lab.cli import main
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore import read, without_times
from tbuda_lab.core.explore.store import TrialFile
from tbuda_lab.core.session.explore import Explore
from tests.explore.perceptron import session, tiny_model

BAD = {
    "axis": (["--set", "fuse_reduce=true"], "no option 'fuse_reduce'"),
    "device": (["--devices", "n151"], "unknown device"),
    "change": (["--devices", "n150+colour=3"], "is no change"),
    "empty": ([], "the space is empty"),
    "no values": (["--batches", ""], "no values"),
    "budget": (["--batches", "1", "--budget", "0"], "a budget is 1 trial or more"),
    "objective": (["--batches", "1", "--objective", "speed:max"], "no number of a trial"),
    "requirement": (["--batches", "1", "--require", "pcc=0.9"], "write NUMBER>=VALUE"),
    "twice": (["--batches", "1,1"], "twice"),
    "workers": (["--batches", "1", "--workers", "many"], "give a number"),
    "harvest": (["--batches", "1", "--harvest", "x"], "numbers of rows"),
    "no harvest": (["--harvest", "-1"], "numbers of rows"),
    "seconds": (["--batches", "1", "--trial-seconds", "0"], "more than 0 seconds"),
    "wanted twice": (["--batches", "1", "--objective", "chips", "--objective", "chips:max"], "given twice"),
    "no value": (["--set", "fuse_reduces"], "write NAME=VALUE"),
    "overrides": (["--overrides", "nobody.json"], "nobody.json"),
    "a time": (["--batches", "1", "--objective", "compile_s", "--sampler", "tpe"], "a time of this machine"),
    "two places": (["--batches", "1", "--workers", "2", "--scheduler", "tcp://127.0.0.1:9"], "give one of them"),
    "check": (["--batches", "1", "--fail-if-slower", "3%"], "needs --check"),
    "nothing to check": (["--batches", "1", "--check", "nobody"], "nobody/explore.jsonl cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_command_that_is_wrong_writes_nothing(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = BAD[case]
    model = tiny_model(tmp_path)
    assert main(["explore", model, *words, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error and error.count("\n") == 0
    assert not (tmp_path / "out" / "explore.jsonl").exists()


UNWRITABLE = {
    "csv of no folder": ("--csv {at}/none/a.csv", "none/a.csv"),
    "html in a file": ("--html {at}/a_file/a.html", "a.html"),
    "csv is a folder": ("--csv {at}", "it is a folder"),
    "parquet of no folder": ("--parquet {at}/none/a.parquet", "parquet"),
    "one file twice": ("--csv {at}/a --html {at}/a", "give each one of its own"),
    "its own file": ("--csv {at}/out/explore.jsonl", "the exploration itself lies there"),
    "its own graph": ("--html {at}/out/graph.txt", "the exploration itself lies there"),
    "out is a file": ("--out {at}/a_file", "is a file"),
    "out in a file": ("--out {at}/a_file/deep/out", "is a file"),
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_results_that_cannot_be_written_are_refused_before_the_model_is_opened(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = UNWRITABLE[case]
    (tmp_path / "a_file").write_text("kept")
    model = tmp_path / "model.py"
    model.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    given = words.format(at=tmp_path).split()
    out = [] if "--out" in given else ["--out", str(tmp_path / "out")]
    before = contents(tmp_path)
    assert main(["explore", f"{model}:make", "--batches", "1", *out, *given]) == 1
    error = capsys.readouterr().err.strip()
    assert message in error and error.count("\n") == 0
    assert contents(tmp_path) == before and not (tmp_path / "out").exists()


def test_results_may_lie_in_the_folder_that_is_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        main(["explore", tiny_model(tmp_path), "--batches", "1", "--out", str(out), "--csv", str(out / "a.csv")]) == 0
    )
    assert (out / "a.csv").read_text().count("\n") == 2


def test_a_folder_that_is_not_there_is_no_empty_space(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "build/nowhere"]) == 1
    error = capsys.readouterr().err.strip()
    assert "build/nowhere: there is no such folder" in error and error.count("\n") == 0


def test_another_model_is_not_compared_with_and_nothing_is_compiled(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--batches", "1", "--check", str(undisturbed), "--out", str(tmp_path / "out")]
    assert main(["explore", tiny_model(tmp_path), *words]) == 1
    assert "give a folder of the same model" in capsys.readouterr().err
    assert not read(tmp_path / "out").trials


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but the lock, which is empty."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != ".lock"}


def copy_of(undisturbed: Path, folder: Path) -> Path:
    shutil.copytree(undisturbed, folder)
    return folder


FOLDERS = {
    "another model": (["{other}", "--batches", "1", "--out", "{made}"], "holds another model"),
    "another space": (["{model}", "--batches", "2", "--out", "{made}"], "another exploration (space differ)"),
    "another seed": (
        ["{model}", "--batches", "1", "--seed", "1", "--out", "{made}"],
        "another exploration (seed differ)",
    ),
    "axes": (["{made}", "--batches", "2"], "leave --batches out"),
    "no budget": (["{made}", "--budget", "0"], "leave --budget out"),
    "sampler": (["{made}", "--sampler", "random"], "leave --sampler out"),
    "no exploration": (["{empty}"], "explore.jsonl"),
    "check of nothing": (["{made}", "--check", "{empty}"], "explore.jsonl"),
    "check of another model": (["{made}", "--check", "{made_other}"], "give a folder of the same model"),
    "a file": (["{model}", "--batches", "1", "--out", "{model_file}"], "tiny.py"),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_a_folder_that_is_wrong_stays_as_it_is(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, other = tiny_model(tmp_path), tiny_model(tmp_path, "other", 64)
    names = {k: tmp_path / k for k in ("made", "made_other", "empty")}
    names["empty"].mkdir()
    assert main(["explore", model, "--batches", "1", "--out", str(names["made"])]) == 0
    assert main(["explore", other, "--batches", "1", "--out", str(names["made_other"])]) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    words, message = FOLDERS[case]
    named = {"model": model, "other": other, "model_file": model.partition(":")[0], **names}
    assert main(["explore", *(word.format(**named) for word in words)]) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1] and not [line for line in error if "Traceback" in line]
    assert contents(tmp_path) == before


@pytest.mark.parametrize("words", [["--scheduler", "tcp://127.0.0.1:9"], ["--scheduler", "nobody.json"]])
def test_a_scheduler_that_does_not_answer_is_one_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    from tbuda_lab.core.explore import dask_engine

    monkeypatch.setattr(dask_engine, "CONNECT", 0.5)
    assert main(["explore", tiny_model(tmp_path), "--batches", "1", *words, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.strip()
    assert "does not answer" in error and words[1] in error and error.count("\n") == 0
    assert not read(tmp_path / "out").trials


def test_a_file_cut_at_any_byte_is_healed_or_refused(tmp_path: Path) -> None:
    """What was written whole stays; a header that is cut is refused, and then nothing changes."""
    made = tmp_path / "made"
    exploration = session().explore({"batch": [1, 4]}, out=made)
    exploration.run()
    exploration.close()
    path, whole, header = made / "explore.jsonl", (made / "explore.jsonl").read_bytes(), read(made).header
    head = whole.index(b"\n") + 1
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        if cut < head:
            with pytest.raises(InputError, match="header is cut off"):
                TrialFile(made, header, "")
            assert path.read_bytes() == whole[:cut]
            continue
        file = TrialFile(made, header, "")
        file.close()
        lines = whole[:cut].count(b"\n")
        assert sorted(file.trials) == list(range(lines - 1))
        assert path.read_bytes() == b"".join(whole.splitlines(True)[:lines])


def test_a_file_cut_anywhere_goes_on_to_the_same_file(undisturbed: Path, tmp_path: Path) -> None:
    whole = (undisturbed / "explore.jsonl").read_bytes()
    head = whole.index(b"\n") + 1
    ends = [k for k, byte in enumerate(whole) if byte == 10]
    for cut in (head, ends[3] + 1, ends[9] + 40):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "explore.jsonl").write_bytes(whole[:cut])
        exploration = Explore.resume(session(), folder)
        exploration.run()
        exploration.close()
        assert list(without_times(folder)) == list(without_times(undisturbed))


DAMAGE = {
    "state": (b'"state": "done"', b'"state": "good"', "line 2"),
    "number": (b'"n": 0', b'"n": "0"', "line 2"),
    "twice": (b'"n": 1,', b'"n": 0,', "line 3: trial 0 is there already"),
    "placement": (b'"placement": "', b'"placement": "../', "line 2: placement"),
    "format": (b'"tbuda-explore 1"', b'"tbuda-explore 9"', "line 1"),
    "header": (b'"objectives"', b'"wishes"', "the header has"),
    "text": (b'"done"', b'"\xff"', "not UTF-8"),
    "no object": (b'{"key"', b'["key"', "line 2"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_file_that_is_damaged_is_refused_by_line(case: str, undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "x")
    old, new, message = DAMAGE[case]
    text = (folder / "explore.jsonl").read_bytes()
    assert old in text
    (folder / "explore.jsonl").write_bytes(text.replace(old, new, 1))
    before = contents(folder)
    with pytest.raises(InputError, match=message) as caught:
        Explore.resume(session(), folder)
    assert "explore.jsonl" in str(caught.value) and "\n" not in str(caught.value)
    assert contents(folder) == before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_placement_that_is_cut_is_named(share: float, undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(undisturbed, tmp_path / "x")
    exploration = Explore.resume(session(), folder)
    trial = next(t for t in exploration.trials if t.placement)
    path = folder / "placements" / f"{trial.placement}.json"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=trial.placement):
        exploration.export(trial.n, tmp_path / "o.json")
    assert not (tmp_path / "o.json").exists()
    exploration.close()
