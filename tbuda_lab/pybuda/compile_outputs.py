"""What a compile through the PyBuda API leaves beside its result: files of `backend_output_dir`, a performance trace, a
file of runtime parameters; and a compile that stops early, by `compile_depth`."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import yaml

from tbuda_lab.core import netlist
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pybuda_stages import DEPTHS, StagedCompile, compile_until
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import cycles_path, simulate, write_cycles_csv
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.files import atomic_text, file_stem, make_folder
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.pybuda.compiler_config import CompilerConfig
from tbuda_lab.pybuda.enums import CompileDepth, PerfTraceLevel

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
    """What a compile leaves in `netlist_folder`: the netlist, `NAME_netlist.yaml`, and with `performance_trace` the
    simulated trace; where `backend_output_dir` names the folder, the cycles of all ops as well. Returns their paths.

    Raises `OutputError` for a folder that the script names; elsewhere a netlist that cannot be written is a warning.
    """
    level = settings.effective("performance_trace")
    path = netlist_folder(settings) / f"{file_stem(name)}_netlist.yaml"
    written = [path]
    try:
        make_folder(path.parent)
        netlist.dump(result.netlist, path)
    except OutputError as error:
        if settings.backend_output_dir or level is not PerfTraceLevel.NONE:
            raise
        warnings.warn(
            f"the netlist is not written: {error}; backend_output_dir names another folder", UserWarning, stacklevel=3
        )
        return []
    if settings.backend_output_dir:
        write_cycles_csv(result, cycles_path(path))
        written.append(cycles_path(path))
    if level is not PerfTraceLevel.NONE:
        written.append(write_trace(result, path.parent, name, level))
    return written


FOLDER = "TBUDA_OUTPUT_DIR"
"""Variable of the environment: the folder for netlists of scripts instead of the current one."""


def netlist_folder(settings: CompilerConfig) -> Path:
    """Where files of a script's compiles go: `backend_output_dir`, or the current folder, as PyBuda leaves them."""
    return Path(settings.backend_output_dir or os.environ.get(FOLDER) or ".")


def write_trace(result: CompileResult, folder: Path, name: str, level: PerfTraceLevel) -> Path:
    """When each op works and what it waits for, as Chrome trace JSON: `NAME_perf.trace.json`."""
    path = make_folder(folder) / f"{file_stem(name)}_perf.trace.json"
    simulate(result, TRACED_INPUTS.get(level, 1)).trace.to_chrome_trace(path, result.model_shapes)
    return path


def write_runtime_params(spec: DeviceSpec, path: Path) -> None:
    """Arch, grid and harvested rows of every chip, as `backend_runtime_params_path` reads them again."""
    facts: dict[str, Any] = {
        "backend-arch_name": spec.arch,
        "backend-device_name": spec.name,
        "backend-grid_size": [spec.rows, spec.cols],
    }
    for i, chip in enumerate(spec.chips):
        facts[f"system-device{chip}-harvesting_mask"] = spec.harvesting_mask(i)
    with atomic_text(path) as stream:
        yaml.safe_dump(facts, stream, sort_keys=True)
