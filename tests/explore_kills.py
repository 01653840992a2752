"""`python -m tests.explore_kills [RUNS]`: explorations whose client is killed at random, on 0 or 2 workers, end in the
file of an undisturbed run. Prints a line a run; exit code 1 where a file differs."""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tbuda_lab.core.explore import read, without_times

SPACE = [
    "--devices",
    "n150,n300,n150+grid=2x2",
    "--batches",
    "1,4",
    "--formats",
    "Float16_b,Bfp8_b",
    "--harvest",
    "0,3",
]
MODEL = """import torch
def make():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(128, 128), torch.nn.ReLU()] * 6
    return torch.nn.Sequential(*layers).eval(), (torch.ones(1, 128),)
"""


def command(folder: Path, out: Path, workers: int) -> list[str]:
    """The command that begins, or goes on."""
    head = [sys.executable, "-m", "tbuda_lab", "explore"]
    target = [str(out)] if (out / "explore.jsonl").exists() else [f"{folder / 'm.py'}:make", *SPACE, "--out", str(out)]
    return [*head, *target, "--no-cache", "--workers", str(workers)]


def run_with_kills(folder: Path, out: Path, workers: int, kills: int, chance: random.Random) -> int:
    """Kill the client so often, then let it end; returns how many kills met a run at work."""
    met = 0
    for _ in range(kills):
        process = subprocess.Popen(command(folder, out, workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (out / "explore.jsonl").exists():
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 6))
        met += process.poll() is None
        process.kill()
        process.wait()
    subprocess.run(command(folder, out, workers), check=True, stdout=subprocess.DEVNULL)
    return met


def main(runs: int) -> int:
    """Compare `runs` disturbed explorations with one that is not."""
    folder = Path(tempfile.mkdtemp(prefix="tbuda-kills-"))
    wrong = 0
    try:
        (folder / "m.py").write_text(MODEL)
        subprocess.run(command(folder, folder / "plain", 0), check=True, stdout=subprocess.DEVNULL)
        plain = list(without_times(folder / "plain"))
        for seed in range(runs):
            out = folder / str(seed)
            met = run_with_kills(folder, out, 2 if seed % 5 == 4 else 0, 3, random.Random(seed))
            same = list(without_times(out)) == plain
            wrong += not same
            print(
                f"run {seed}: {met} kills at work, {len(read(out).trials)} rows, {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{runs - wrong} of {runs} files equal")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
