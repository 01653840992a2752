"""Every netlist that a command emits, judged by the router's rules: how many, and what they break.

    python bench/emitted_netlists.py --folder FOLDER [COMMAND ...]

Runs the command with a hook in all its Python processes (test workers, kernels of notebooks, command lines), which
writes each distinct netlist to the folder as text the moment it is emitted, also where the compile goes on to refuse
it. Then reads every text back, checks it as a file from elsewhere would be checked, without anything that the compile
knew, and prints a table: netlists, ops, edges by what reads them, and how many break which of the rules N
(routing.md#rules-of-a-netlist); and the findings themselves. Without a command, what the folder holds already is
judged.

    python bench/emitted_netlists.py --folder build/seen python -m pytest -q tests/e2e tests/pybuda
    python bench/emitted_netlists.py --folder build/seen python bench/emitted_netlists.py --models bert_large gpt2_small

`--models` compiles models of `bench/placement.py` on both archs, at microbatch 1 and 64, and prints nothing.
Exits with 1 where a netlist breaks a rule that is an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HOOK = """
import hashlib, importlib.abc, importlib.machinery, os, sys, tempfile

FOLDER, MODULE = os.environ["TBUDA_EMITTED"], "tbuda_lab.core.emit"


def keep(netlist):
    from tbuda_lab.core.netlist import dumps

    text = dumps(netlist).encode()
    path = os.path.join(FOLDER, hashlib.sha256(text).hexdigest()[:32] + ".yaml")
    if not os.path.exists(path):
        handle, part = tempfile.mkstemp(dir=FOLDER)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.replace(part, path)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            emit = module.emit

            def recorded(*arguments, **named):
                emission = emit(*arguments, **named)
                keep(emission.netlist)
                return emission

            module.emit = recorded

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""
DEVICES = ("grayskull", "wormhole_b0")
MICROBATCHES = (1, 64)


def run(command: list[str], folder: Path) -> int:
    """Runs the command; all its Python processes record into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as hooks:
        Path(hooks, "sitecustomize.py").write_text(HOOK)
        paths = os.pathsep.join(p for p in (hooks, os.environ.get("PYTHONPATH", "")) if p)
        environment = os.environ | {"TBUDA_EMITTED": str(folder.resolve()), "PYTHONPATH": paths}
        return subprocess.run(command, env=environment, check=False).returncode


def compile_models(names: list[str]) -> None:
    from bench.models import make
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    for name in names:
        module, inputs = make(name)
        for device in DEVICES:
            for microbatch in MICROBATCHES:
                start = time.process_time()
                Session(module, inputs, device, CompileOptions(microbatch=microbatch)).compile()
                seconds = time.process_time() - start
                print(f"{name} {device} microbatch {microbatch}: {seconds:.1f} CPU s", flush=True)


def judge(folder: Path) -> int:
    """Prints the table of the netlists in a folder; the number of findings that are errors."""
    from tbuda_lab.core import netlist as netlists
    from tbuda_lab.core.netlist.check.context import CheckContext
    from tbuda_lab.core.netlist.check.registry import facts_of, leading_arch
    from tbuda_lab.core.netlist.check.routing import input_edge
    from tbuda_lab.core.netlist.expand import expand
    from tbuda_lab.core.netlist.tables import Tables

    counts: Counter[str] = Counter()
    edges: Counter[str] = Counter()
    broken: Counter[tuple[str, str]] = Counter()
    lines: list[str] = []
    for path in sorted(folder.glob("*.yaml")):
        net = netlists.loads(path.read_text())
        arch = leading_arch(net)
        facts = facts_of(arch)
        context = CheckContext(Tables(expand(net, facts.align)), facts)
        counts["netlists"] += 1
        counts[f"netlists for {arch}"] += 1
        counts["of several chips"] += len({str(g.target_device) for g in net.graphs.values()}) > 1
        for _, op in context.n.ops():
            counts["ops"] += 1
            for port in range(len(op.inputs)):
                edge = input_edge(context, op, port)
                edges[edge.reader.type if edge is not None else f"not judged ({op.type})"] += 1
            edges["queue"] += len(context.queues_by_writer.get(op.name, ()))
        for f in netlists.check(net, profile="strict"):
            if f.severity == "error" or f.rule.startswith("N"):
                broken[f.severity, f.rule] += 1
                lines.append(f"{path.name} {f}")
    print("| what | number |\n|---|---|")
    for name, number in (*counts.items(), *((f"edges to {kind}", n) for kind, n in sorted(edges.items()))):
        print(f"| {name} | {number:,} |")
    print(f"| edges | {sum(edges.values()):,} |")
    for (severity, rule), number in sorted(broken.items()):
        print(f"| {severity} {rule} | {number:,} |")
    errors = sum(n for (severity, _), n in broken.items() if severity == "error")
    print(f"| **errors** | **{errors:,}** |")
    print("\n".join(lines))
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="where the texts are written, or were")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="compile these")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.models:
        compile_models(arguments.models)
        return 0
    if arguments.folder is None:
        parser.error("--folder is missing")
    if arguments.command and (code := run(arguments.command, arguments.folder)):
        print(f"the command ended with {code}", file=sys.stderr)
    return min(1, judge(arguments.folder))


if __name__ == "__main__":
    sys.exit(main())
