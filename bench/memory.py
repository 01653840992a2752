"""Resident memory of a compile and one run, in a process of its own. Bar: BERT-base <= 4 GB at the peak.

python bench/memory.py [MODEL ...] [--device NAME]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

from machine import describe, one_thread

BARS = {"bert": 4.0}


def resident() -> float:
    """GB resident now (Linux; elsewhere the peak so far)."""
    try:
        import psutil

        return psutil.Process().memory_info().rss / 1e9
    except ImportError:
        return peak()


def peak() -> float:
    """GB resident at the highest so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def child(name: str, device: str) -> None:
    """Go through the pipeline, note the memory after each part, print the notes as JSON."""
    one_thread()
    notes: dict[str, float] = {}

    from tbuda_lab.core.session import Session
    from tests.models import make

    module, inputs = make(name)
    notes["model"] = resident()
    session = Session(module, inputs, device=device)
    session.compile()
    notes["compiled"], notes["peak of compile"] = resident(), peak()
    session.run([inputs])
    notes["run"], notes["peak"] = resident(), peak()
    print(json.dumps(notes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "resnet18"])
    parser.add_argument("--device", default="wormhole_b0")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.models[0], arguments.device)
        return
    print(f"## Memory, GB resident ({arguments.device})\n\n{describe()}\n")
    print("| model | model made | compiled | after the run | peak of compile | peak | bar |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in arguments.models:
        command = [sys.executable, __file__, name, "--device", arguments.device, "--child"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        notes = json.loads(answer.stdout.splitlines()[-1])
        columns = " | ".join(f"{notes[k]:.2f}" for k in ("model", "compiled", "run", "peak of compile", "peak"))
        bar = f"{BARS[name]:.1f}" if name in BARS else ""
        print(f"| {name} | {columns} | {bar} |")
    print()


if __name__ == "__main__":
    main()
