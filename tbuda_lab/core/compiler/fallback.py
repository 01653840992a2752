"""CPU fallback as devices have it: inference is compiled as a chain (`compiler.host_chain`), training in sections, some
on the host (in torch), the others compiled for the device, each by itself. See `compiler.sections` for the cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tbuda_lab.core.compiler.integer_outputs import meant_by, sections_of_host
from tbuda_lab.core.compiler.pipeline import compile_graph
from tbuda_lab.core.compiler.result import CompileResult
from tbuda_lab.core.compiler.sections import Section, cut_graph, gradients_into, places_report
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override

OverridesOf = Callable[[Graph], tuple[Override, ...]]
"""The overrides that are meant for a graph."""


@dataclasses.dataclass(frozen=True)
class CompiledSection(Section):
    """A section, and the compile of one that the device runs."""

    result: CompileResult | None = None


@dataclasses.dataclass(frozen=True)
class SplitResult:
    """A model compiled for training in sections, in the order in which they run. reasons: a note for each op on the
    host."""

    graph: Graph
    sections: tuple[CompiledSection, ...]
    device: DeviceSpec
    options: CompileOptions
    reasons: tuple[Diagnostic, ...] = ()

    @property
    def results(self) -> tuple[CompileResult, ...]:
        """The compiles of the device sections."""
        return tuple(s.result for s in self.sections if s.result is not None)

    def report(self) -> str:
        """Which part of the model runs where, and why: a line per section and per op that the host runs."""
        lines = places_report([(section.place, section.graph) for section in self.sections])
        return "\n".join((*lines, *map(str, self.reasons)))


def compile_with_fallback(
    graph: Graph,
    spec: DeviceSpec,
    options: CompileOptions,
    overrides_of: OverridesOf = lambda graph: (),
    automatic: bool = True,
) -> CompileResult | SplitResult:
    """Compile for the device as `compile_graph` does. A model with ops that only the host can run gets a chain
    (`CompileResult.chain`); for training it becomes sections.

    automatic: whether ops that the compiler refuses go to the host; without it they raise `UnsupportedOp`. Raises the
    compiler's other errors.
    """
    if options.training is None:
        own = dataclasses.replace(options, cpu_fallback="automatic" if automatic else "named")
        return compile_graph(graph, spec, own, overrides_of(graph))
    refused: dict[str, str] = {}
    while True:
        cut = cut_graph(graph, options, automatic, sections_of_host(refused))
        cut.refuse_lost_writes()
        compiled: list[CompiledSection] = []
        try:
            for part in cut.sections:
                if part.place == "host":
                    compiled.append(CompiledSection(part.place, part.graph))
                    continue
                own = _options_of(cut.graph, part, options) if len(cut.sections) > 1 else options
                result = compile_graph(part.graph, spec, own, overrides_of(part.graph), chains=False)
                compiled.append(CompiledSection(part.place, part.graph, result))
        except UnsupportedOp as error:
            more = meant_by(cut.graph, cut.host_reasons(error), refused)
            if not automatic or not set(more) - set(refused):
                raise
            refused |= more
            continue
        if len(compiled) == 1 and compiled[0].result is not None:
            return compiled[0].result
        cut.refuse_host_alone()
        return SplitResult(cut.graph, tuple(compiled), spec, options, cut.notes)


def _options_of(graph: Graph, part: Section, options: CompileOptions) -> CompileOptions:
    """The options of a section: in training it sends gradients to the sections before it, and does not update weights
    that the host reads too."""
    plan = options.training
    if plan is None:
        return options
    back = gradients_into(graph, part, plan.input_gradients)
    return dataclasses.replace(options, training=dataclasses.replace(plan, input_gradients=back))


__all__ = ["SplitResult", "compile_with_fallback"]
