"""How good placements are: cycles per input of every model, device and policy, beside the lower bounds.

    python bench/placement.py [--models NAME ...] [--devices NAME ...] [--policies NAME ...]
                              [--microbatch N ...] [--objective NAME] [--optimise STEPS]
                              [--optimise-seconds SECONDS] [--without-router] [--json FILE]

Several `--microbatch` give one table; then come, for each batch and device, how far objective and simulator of epochs
are apart at most, the gap of the objective to its lower bound (median, worst), the limiter sums with loading over
PyBuda's of the same batch, the kernel sums over its kernel sums (each, and the geometric mean), and with `--optimise`
what so many steps of the search gain (median, worst), or with `--optimise-seconds` what it gains in so long. Each has
its bar (`BARS`), and the exit code is 1 where one is missed.

One set of coefficients holds for both sides: PyBuda's sums were made with version 1 of the published coefficients (2
for a maximum), so the rows of our placements are priced with these, too (`kernel_v1`, `limiter_v1`), and compared so.
Loading counts on both sides, over the inputs of the batch: `load` is what each of our epochs waits for its parameters;
of PyBuda's placements it is not known what they load ahead, and they are taken to load every parameter once, at the
rate of all of DRAM (`least_load`), however much of that their limiters count already.

`--without-router` places as if the router took every stack, slice and output buffer (routing.md), to see what its rules
cost; such a placement is for comparison alone.

`--json` writes the rows as a list: model, device, policy, epochs, ops, sums of kernel and limiter cycles, every bound,
balance, core_use, seconds. Prints a Markdown table, then geometric means of `Optimal` against our own `Ribbon` and
`NLP`, and against PyBuda where its numbers are known (`pybuda_placement.json`). `balance` is the useful part of all
core-cycles in the time that the slowest kernels need (placement.md#balance counts it so), `limiter_balance` the part in
the time with the bandwidth limits, in which cores may wait for DRAM however they are shaped.
Limiters are to be <= 0.6 of the better of our own two.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from machine import describe, one_thread

REFERENCE = Path(__file__).with_name("pybuda_placement.json")
RIVALS = ("Ribbon", "NLP")
BAR_MODELS = ("bert", "bert_large", "resnet50", "mobilenet_v2", "unet", "yolov5")
"""The models over which the bar against our own two is set; the others are printed beside."""
BARS: dict[int, dict[str, tuple[float, ...]]] = {
    1: {"gap": (1.6, 2.5), "limiters": (0.25,), "kernels": (0.55, 1.0)},
    64: {"gap": (1.10, 1.20), "limiters": (0.28,), "kernels": (0.40, 1.0)},
}
"""By microbatch: of the gap median and worst, of limiters with loading the geometric mean, of kernels that and the
worst. Any other microbatch has none."""
APART = 0.05
"""How far objective and simulator may be apart."""
PRINTED = ("gap", "limiter_balance", "worst_op", "worst_limit")
"""Columns of the printed table that follow from others, or from the placement, and are not written to the file."""


def lowered_graphs(model: str, devices: Iterable[str], options: Any) -> dict[str, tuple[Any, float]]:
    """The model's lowered graph for each device, and the CPU seconds of choosing epochs to decide what is fused,
    without those that a compile goes on from. It is traced and rewritten once."""
    from bench.models import make
    from tbuda_lab.core import passes
    from tbuda_lab.core.balancer import op_models
    from tbuda_lab.core.device import load_device
    from tbuda_lab.core.frontend import from_torch
    from tbuda_lab.core.lowering import lower
    from tbuda_lab.core.placer import begin, decide

    module, inputs = make(model)
    passed = passes.run(from_torch(module, inputs, name=model), options).graph
    del module
    lowered_graphs = {}
    for device in devices:
        spec, seconds = load_device(device), {}

        def begun(graph: Any, spec: Any = spec, seconds: dict[int, float] = seconds) -> Any:
            @contextlib.contextmanager
            def timed() -> Iterator[None]:
                start = time.process_time()
                yield
                seconds[id(graph)] = seconds.get(id(graph), 0.0) + time.process_time() - start

            return begin(graph, op_models(graph, spec, options), spec, options, stage=timed)

        lowered = lower(passed, spec, options)
        fusion = decide(passed, lowered, spec, options, begun)
        seconds.pop(id(fusion.lowered), None)
        lowered_graphs[device] = fusion.lowered, sum(seconds.values())
    return lowered_graphs


def measure(graph: Any, device: str, policy: str, microbatch: int, objective: str = "auto") -> dict[str, Any]:
    """The row of a lowered graph that is placed."""
    from tbuda_lab.core.balancer import op_models
    from tbuda_lab.core.device import load_device
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.placer import place_and_repair

    spec = load_device(device)
    options = CompileOptions(balancer_policy=policy, microbatch=microbatch, objective=objective)
    start = time.process_time()
    outcome = place_and_repair(graph, op_models(graph, spec, options), spec, options)
    return row(outcome.graph, outcome.placement, spec, options, time.process_time() - start)


def measure_search(
    model: str, device: str, microbatch: int, objective: str, steps: int, seconds: float | None
) -> dict[str, Any]:
    """The row of what `Session.optimise` makes of a model that is compiled: with so many steps, or in so many seconds.
    Its gain is a part of the time before it."""
    from bench.models import make
    from tbuda_lab.core.options import CompileOptions
    from tbuda_lab.core.session import Session

    module, inputs = make(model)
    options = CompileOptions(microbatch=microbatch, objective=objective)
    session = Session(module, inputs, device=device, options=options, name=model, cache=False)
    session.compile()
    start = time.process_time()
    session.optimise(seconds if not steps else None, steps or None)
    taken = time.process_time() - start
    result = session.compile()
    return row(result.lowered, result.placement, session.device, session.options, taken)


def row(graph: Any, placement: Any, spec: Any, options: Any, taken: float) -> dict[str, Any]:
    """One row of the table: the time that was minimised and what the simulator of epochs makes of it, per input of the
    batch; the sums of limiters and kernels, the bounds, and the CPU seconds that were taken."""
    from tbuda_lab.core.balancer.bandwidth import dram_rate
    from tbuda_lab.core.epochsim import simulate
    from tbuda_lab.core.epochsim.costs import op_costs
    from tbuda_lab.core.placer.stalls.epoch_throughput import Trial

    trial = Trial(graph, placement, spec, {})
    kernel_v1, limiter_v1 = sums_v1(graph, placement, spec, options)
    simulated = simulate(trial, options.inputs_counted).cycles
    costs = op_costs(trial)
    load = sum(max(costs[op].preload for op in epoch.ops) for epoch in placement.epochs)
    report = placement.report
    lower_bounds = {
        f"bound_{field.name}": getattr(report.bounds, field.name)
        for field in dataclasses.fields(report.bounds)
        if not field.name.startswith("achieved")
    }
    work = sum(e.balance * e.limiter_cycles for e in report.epochs)  # kernel cycles x cores / cores of the device
    value = report.objective
    return {
        "simulated": round(simulated / options.inputs_counted),
        "cycles_per_input": round(value.time),
        "time_bound": round(value.bound),
        "time_gap": round(value.gap, 3),
        "gain": round(1 - value.time / report.curve[0][1], 4) if report.curve else 0.0,
        "epochs": len(placement.epochs),
        "ops": len(placement.ops),
        "sum_kernel_cycles": report.bounds.achieved_kernel,
        "sum_limiter_cycles": report.bounds.achieved_limiter,
        "kernel_v1": kernel_v1,
        "limiter_v1": limiter_v1,
        "load": round(load / options.inputs_counted),
        "least_load": round(parameter_bytes(graph) / dram_rate(spec) / options.inputs_counted),
        **lower_bounds,
        "gap": round(report.bounds.gap, 3),
        "balance": round(work / max(1, report.bounds.achieved_kernel), 3),
        "limiter_balance": round(work / max(1, report.bounds.achieved_limiter), 3),
        "core_use": round(sum(e.cores for e in report.epochs) / (len(report.epochs) * spec.rows * spec.cols), 3),
        "seconds": round(taken, 2),
        "worst_op": max(report.epochs, key=lambda e: e.limiter_cycles).limiter_op,
        "worst_limit": max(report.epochs, key=lambda e: e.limiter_cycles).limiter,
    }


def parameter_bytes(graph: Any) -> int:
    """Bytes of all parameters and constants, each once, as they lie in DRAM."""
    from tbuda_lab.core.formats import tile_bytes
    from tbuda_lab.core.graph import NodeKind
    from tbuda_lab.core.lowering.hw_ops import tile_shape

    nodes = graph.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT)
    return sum(math.prod(tile_shape(node.shape)) * tile_bytes(node.df) for node in nodes if node.df is not None)


def sums_v1(graph: Any, placement: Any, spec: Any, options: Any) -> tuple[int, int]:
    """(kernels, limiters): the sums over the epochs of a placement with the coefficients that PyBuda asks for."""
    import numpy as np

    from tbuda_lab.core.balancer.enumerate import price_rows
    from tbuda_lab.core.cost import load_table
    from tbuda_lab.core.placer.model.problem import Problem
    from tbuda_lab.core.placer.model.segment import measure as measure_epoch

    latest = load_table(spec.arch)
    published = {
        kind: [rule for rule in rules if rule.get("since", 1) <= (2 if kind == "maximum" else 1)]
        for kind, rules in latest.published.items()
    }
    table = dataclasses.replace(latest, fits={}, published={kind: rules for kind, rules in published.items() if rules})
    order = [op for epoch in placement.epochs for op in epoch.ops]
    repriced = {}
    for op in order:
        rows = placement.models[op].rows.copy()
        price_rows(placement.models[op].profile, spec, rows, table)
        repriced[op] = dataclasses.replace(placement.models[op], rows=rows)
    problem = Problem.of(graph, repriced, spec, options, order)
    kernels = limiters = first = 0
    for epoch in placement.epochs:
        rows = {first + at: placement.ops[op].row for at, op in enumerate(epoch.ops)}
        kernel, limiter, _ = measure_epoch(problem, first, first + len(rows), rows)
        kernels, limiters, first = kernels + int(np.ceil(kernel)), limiters + int(np.ceil(limiter)), first + len(rows)
    return kernels, limiters


def without_router() -> None:
    """From now on no rule of stacks, slices and output buffers refuses a pair of candidates."""
    import numpy as np

    from tbuda_lab.core.balancer import enumerate as enumeration
    from tbuda_lab.core.balancer.routes import RouteTable

    def none_refused(rows: Any, input_count: int) -> Any:
        return np.zeros(len(rows), bool)

    enumeration.output_buffer_rules = none_refused
    RouteTable._judge = lambda self, p_stream, c_stream: None  # type: ignore[method-assign]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def comparisons(rows: list[dict[str, Any]], reference: dict[str, Any]) -> list[tuple[str, str, str, int, float]]:
    """(device, rival, measure, models, geometric mean of Optimal / rival): our own policies, then PyBuda's better."""
    cells = {(r["model"], r["device"], r["policy"]): r for r in rows}
    devices = dict.fromkeys(r["device"] for r in rows)
    models = dict.fromkeys(r["model"] for r in rows)
    comparisons: list[tuple[str, str, str, int, float]] = []
    for device in devices:
        for what in ("sum_kernel_cycles", "sum_limiter_cycles"):
            ours = {m: cells[m, device, "Optimal"][what] for m in models if (m, device, "Optimal") in cells}
            rivals = {
                policy: {m: cells[m, device, policy][what] for m in ours if (m, device, policy) in cells}
                for policy in RIVALS
            }
            both = [m for m in ours if all(m in rivals[p] for p in RIVALS)]
            better = {m: min(rivals[p][m] for p in RIVALS) for m in both}
            rivals["the better of both"] = better
            rivals["the better of both, models of the bar"] = {m: better[m] for m in BAR_MODELS if m in better}
            published = {
                m: min(entry[what] for entry in reference["models"][m][device].values())
                for m in ours
                if any(what in entry for entry in reference["models"].get(m, {}).get(device, {}).values())
            }
            rivals["PyBuda's better"] = published
            for rival, numbers in rivals.items():
                if numbers:
                    ratios = [ours[m] / numbers[m] for m in numbers]
                    comparisons.append((device, rival, what, len(ratios), geometric_mean(ratios)))
    return comparisons


@dataclasses.dataclass(frozen=True)
class Summary:
    """One measure over the models, for a batch and device. met: whether its bar holds, None where it has none."""

    microbatch: int
    device: str
    what: str
    result: str
    met: bool | None = None

    def __str__(self) -> str:
        bar = {None: "", True: "met", False: "missed"}[self.met]
        return f"| {self.microbatch} | {self.device} | {self.what} | {self.result} | {bar} |"


def within(values: tuple[float, ...], bars: tuple[float, ...] | None) -> bool | None:
    """Whether each value keeps its bar."""
    return None if bars is None else all(value <= bar for value, bar in zip(values, bars, strict=False))


def summaries(rows: list[dict[str, Any]], searched: str) -> list[Summary]:
    """What is measured of `Optimal` over the models, for the bars that hold over all of them."""
    lines: list[Summary] = []
    for batch, device in dict.fromkeys((r["microbatch"], r["device"]) for r in rows):
        mine = [r for r in rows if (r["microbatch"], r["device"], r["policy"]) == (batch, device, "Optimal")]
        if not mine:
            continue
        bars = BARS.get(batch, {})
        off = max(abs(r["simulated"] / r["cycles_per_input"] - 1) for r in mine)
        lines.append(Summary(batch, device, "simulator over objective, largest difference", f"{off:.1%}", off <= APART))
        gaps = [r["time_gap"] for r in mine]
        gap = statistics.median(gaps), max(gaps)
        lines.append(
            Summary(batch, device, "gap, median and worst", f"{gap[0]:.2f}, {gap[1]:.2f}", within(gap, bars.get("gap")))
        )
        models = reference(batch)["models"]
        for bar, ours, theirs, what in (
            ("limiters", ("limiter_v1", "load"), ("least_load",), "limiters with loading over PyBuda's better"),
            ("kernels", ("kernel_v1",), (), "kernels over PyBuda's better"),
        ):
            name = "sum_limiter_cycles" if bar == "limiters" else "sum_kernel_cycles"
            ratios = {
                r["model"]: sum(r[key] for key in ours)
                / (min(e[name] for e in known.values()) + sum(r[key] for key in theirs))
                for r in mine
                if (known := models.get(r["model"], {}).get(device)) and all(name in e for e in known.values())
            }
            if ratios:
                each = ", ".join(f"{model} {ratio:.2f}" for model, ratio in ratios.items())
                mean = geometric_mean(list(ratios.values()))
                met = within((mean, max(ratios.values())), bars.get(bar))
                lines.append(Summary(batch, device, what, f"{mean:.2f} ({each})", met))
        if searched:
            gains = [r["gain"] for r in mine]
            text = f"{statistics.median(gains):.1%}, {min(gains):.1%}"
            lines.append(Summary(batch, device, f"gain of {searched}, median and least", text))
    return lines


def reference(microbatch: int) -> dict[str, Any]:
    """PyBuda's numbers for that batch, as far as they are known."""
    existing: dict[str, Any] = json.loads(REFERENCE.read_text())
    return existing if microbatch == 1 else existing.get(f"microbatch_{microbatch}", {"models": {}})


def main() -> int:
    from bench.models import MODELS
    from tbuda_lab.core.options import OBJECTIVES, CompileOptions

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--devices", nargs="+", default=["wormhole_b0", "grayskull"])
    parser.add_argument("--policies", nargs="+", default=["Optimal", *RIVALS])
    parser.add_argument("--microbatch", type=int, nargs="+", default=[1], metavar="N")
    parser.add_argument(
        "--objective",
        default="auto",
        choices=OBJECTIVES,
        help="at a microbatch of one sums of limiters are compared with `throughput`",
    )
    parser.add_argument("--optimise", type=int, default=0, metavar="STEPS", help="search on from every placement")
    parser.add_argument("--optimise-seconds", type=float, metavar="SECONDS", help="the same for so long")
    parser.add_argument("--without-router", action="store_true", help="no rule of routing.md refuses a candidate")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    steps, seconds = arguments.optimise, arguments.optimise_seconds
    searched = f"{steps} steps" if steps else "" if seconds is None else f"{seconds:g} seconds"
    one_thread()
    if arguments.without_router:
        without_router()
    batches = ", ".join(map(str, arguments.microbatch))
    print(f"## Placements (microbatch {batches}, {arguments.objective})\n\n{describe()}\n")
    rows: list[dict[str, Any]] = []
    for model in arguments.models:
        for batch in arguments.microbatch:
            options = CompileOptions(microbatch=batch, objective=arguments.objective)
            for device, (graph, deciding) in lowered_graphs(model, arguments.devices, options).items():
                for policy in arguments.policies:
                    result = {"model": model, "device": device, "policy": policy, "microbatch": batch}
                    if searched and policy == "Optimal":
                        result |= measure_search(model, device, batch, arguments.objective, steps, seconds)
                    else:
                        result |= measure(graph, device, policy, batch, arguments.objective)
                        result["seconds"] = round(result["seconds"] + deciding * (policy == "Optimal"), 2)
                    if not rows:
                        print("| " + " | ".join(result) + " |\n|" + "---|" * len(result))
                    print("| " + " | ".join(map(str, result.values())) + " |", flush=True)
                    rows.append(result)
    print("\n| microbatch | device | of Optimal | result | bar |\n|---:|---|---|---|---|")
    found = summaries(rows, searched)
    print(*found, sep="\n")
    for batch in arguments.microbatch:
        compared = comparisons([r for r in rows if r["microbatch"] == batch], reference(batch))
        if compared:
            print(f"\n| device | Optimal against (microbatch {batch}) | measure | models | geometric mean |")
            print("|---|---|---|---:|---:|")
            for device, rival, what, count, mean in compared:
                print(f"| {device} | {rival} | {what} | {count} | {mean:.2f} |")
    if arguments.json is not None:
        selected = [{name: value for name, value in row.items() if name not in PRINTED} for row in rows]
        temporary = arguments.json.with_name(arguments.json.name + ".tmp")
        temporary.write_text(json.dumps(selected, indent=1) + "\n")
        temporary.replace(arguments.json)
    return 1 if any(line.met is False for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())
