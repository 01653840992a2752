"""What a compile through the PyBuda API leaves beside its result: files of `backend_output_dir`, a performance trace, a
file of runtime parameters; and a compile that stops early, by `compile_depth`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tbuda_lab.core import netlist
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pybuda_stages import DEPTHS, StagedCompile, compile_until
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import cycles_path, simulate, write_cycles_csv
from tbuda_lab.core.files import atomic_text, file_stem, make_folder
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.runtime.compiler_config import CompilerConfig
from tbuda_lab.runtime.enums import CompileDepth, PerfTraceLevel

TRACED_INPUTS = {PerfTraceLevel.LIGHT: 1, PerfTraceLevel.VERBOSE: 8}
"""Inputs that a performance trace follows."""


def stops_early(settings: CompilerConfig) -> bool:
    """Whether `compile_depth` ends a compile before anything is placed."""
    return bool(settings.effective("compile_depth") < CompileDepth.BALANCER_PASS)


def compile_to_depth(
    graph: Graph, spec: DeviceSpec, options: CompileOptions, overrides: tuple[Override, ...], depth: CompileDepth
) -> StagedCompile:
    """The stages of a compile up to `depth`."""
    return compile_until(graph, spec, options, overrides, DEPTHS[min(depth, len(DEPTHS) - 1)])


def write_files(result: CompileResult, name: str, settings: CompilerConfig) -> list[Path]:
    """The files that options ask for: netlist and cycles of its ops in `backend_output_dir`; with `performance_trace`
    the simulated trace beside them (or in ./tbuda_build). Returns their paths."""
    written: list[Path] = []
    level = settings.effective("performance_trace")
    if not settings.backend_output_dir and level is PerfTraceLevel.NONE:
        return written
    folder = make_folder(settings.backend_output_dir or "tbuda_build")
    if settings.backend_output_dir:
        path = folder / f"{file_stem(name)}_netlist.yaml"
        netlist.dump(result.netlist, path)
        write_cycles_csv(result, cycles_path(path))
        written += [path, cycles_path(path)]
    if level is not PerfTraceLevel.NONE:
        written.append(write_trace(result, folder, name, level))
    return written


def write_trace(result: CompileResult, folder: Path, name: str, level: PerfTraceLevel) -> Path:
    """When each op works and what it waits for, as Chrome trace JSON: `NAME_perf.trace.json`."""
    path = make_folder(folder) / f"{file_stem(name)}_perf.trace.json"
    simulate(result, TRACED_INPUTS.get(level, 1)).trace.to_chrome_trace(path)
    return path


def write_runtime_params(spec: DeviceSpec, path: Path) -> None:
    """Arch, grid and harvested rows of every chip, as `backend_runtime_params_path` reads them again."""
    facts: dict[str, Any] = {"backend-arch_name": spec.arch, "backend-device_name": spec.name,
                             "backend-grid_size": [spec.rows, spec.cols]}
    for i, chip in enumerate(spec.chips):
        facts[f"system-device{chip}-harvesting_mask"] = spec.harvesting_mask(i)
    with atomic_text(path) as stream:
        yaml.safe_dump(facts, stream, sort_keys=True)
