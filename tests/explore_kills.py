"""`python -m tests.explore_kills [RUNS] [--first N]`: explorations whose client is killed three times at random, on no
workers or on two of which one is killed at random, too, end in the file of an undisturbed run, and no row that was
there is made again. Prints a line a run; exit code 1 where a file differs."""

import argparse
import os
import random
import shutil
import signal
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
KILLS = 3


def command(folder: Path, out: Path, workers: int) -> list[str]:
    """The command that begins, or goes on."""
    head = [sys.executable, "-m", "tbuda_lab", "explore"]
    target = [str(out)] if (out / "explore.jsonl").exists() else [f"{folder / 'm.py'}:make", *SPACE, "--out", str(out)]
    return [*head, *target, "--no-cache", "--workers", str(workers)]


def workers_of(process: int) -> list[int]:
    """Ids of the worker processes that a client has started."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            line = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"spawn_main" in line:
                found.append(int(child))
    return found


def rows_of(out: Path) -> set[bytes]:
    """The whole lines of a file, its header left out."""
    path = out / "explore.jsonl"
    return {line for line in path.read_bytes().splitlines(True)[1:] if line.endswith(b"\n")} if path.exists() else set()


def kill_worker(client: subprocess.Popen[bytes], chance: random.Random) -> int:
    """Kill one of a client's workers, if it has any now; returns how many were killed."""
    try:
        workers = workers_of(client.pid)
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        return len(workers[:1])
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return 0


def run_with_kills(folder: Path, out: Path, workers: int, chance: random.Random) -> tuple[int, int, set[bytes]]:
    """Kill client and workers, then let it end. Returns how many kills met a client and a worker at work, and the rows
    that were there at any kill."""
    clients = killed = 0
    seen: set[bytes] = set()
    for last in (False,) * KILLS + (True,):
        before = len(rows_of(out))
        process = subprocess.Popen(command(folder, out, workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(rows_of(out)) <= before:  # it is at work
            time.sleep(0.05)
        if workers:
            time.sleep(chance.uniform(0, 1))
            killed += kill_worker(process, chance)
        if last:
            if process.wait():
                raise SystemExit(f"the last run ended with exit code {process.returncode}")
            break
        time.sleep(chance.uniform(0, 1.5))
        clients += process.poll() is None
        process.kill()
        process.wait()
        seen |= rows_of(out)
    return clients, killed, seen


def main(first: int, runs: int) -> int:
    """Compare `runs` disturbed explorations with one that is not."""
    folder = Path(tempfile.mkdtemp(prefix="tbuda-kills-"))
    wrong = 0
    try:
        (folder / "m.py").write_text(MODEL)
        subprocess.run(command(folder, folder / "plain", 0), check=True, stdout=subprocess.DEVNULL)
        plain = list(without_times(folder / "plain"))
        for seed in range(first, first + runs):
            out, workers = folder / str(seed), 2 * (seed % 2)
            clients, killed, seen = run_with_kills(folder, out, workers, random.Random(seed))
            same, again = list(without_times(out)) == plain, len(seen - rows_of(out))
            wrong += not same or again > 0
            print(
                f"run {seed}, {workers} workers: {clients} clients and {killed} workers killed at work, "
                f"{len(read(out).trials)} rows, {again} made again, {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{runs - wrong} of {runs} files equal")
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run; odd ones are on two workers")
    arguments = parser.parse_args()
    sys.exit(main(arguments.first, arguments.runs))
