"""What the scripts here share: the machine's description, one thread, and the models of the tests."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

# Before numpy and torch are imported anywhere.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def describe() -> str:
    """Processor, cores, memory and versions, in one line of Markdown."""
    model = platform.processor() or platform.machine()
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    clock = ""
    if cpuinfo.is_file():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in fields.items()}
        model = fields.get("model name", model)
        clock = f" at {float(fields['cpu MHz']) / 1000:.1f} GHz" if "cpu MHz" in fields else ""
    memory = f", {int(meminfo.read_text().split()[1]) / 2**20:.0f} GiB" if meminfo.is_file() else ""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "numpy", "scipy"))
    return f"{model}{clock}, {os.cpu_count()} cores{memory}; Python {platform.python_version()}, {versions}; one thread"


def one_thread() -> None:
    """Hold torch to one thread as well (BLAS is held by the environment)."""
    import torch

    torch.set_num_threads(1)
