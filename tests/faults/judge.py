"""Plants one fault, asks the session, and judges the answer by what was planted."""

from __future__ import annotations

import dataclasses
import functools
import gc
import random
import time

import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frontend import feeds
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import Graph, GraphError
from tbuda_lab.core.lowering.evaluate import evaluate_ops
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.find_error import ErrorReport
from tbuda_lab.core.session.op_checks import lowered_inputs
from tbuda_lab.core.verification import compare_tensors
from tests.faults.models import MODELS, make
from tests.faults.plant import Fault, faults, planted, with_netlist

TRIES = 5
QUICK = CompileOptions(balancer_policy="Ribbon")
FELT = 0.03
"""Relative error of the outputs from which a fault is felt; clean ones stay below a hundredth."""


MOST = 4
"""Ops that one answer may stand for."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    fault: Fault
    report: ErrorReport
    ratio: float

    @property
    def right(self) -> bool:
        """The stage, and the op itself, or one of `MOST` that the report says it cannot be told from: a report that
        stands for a whole graph names nothing."""
        nodes = self.report.nodes if len(self.report.nodes) <= MOST else ()
        return self.report.stage == self.fault.stage and self.fault.op in {self.report.op, *nodes}

    def __str__(self) -> str:
        text = f"{'right' if self.right else 'WRONG'} {self.ratio:5.2f} {self.fault.stage:8} {self.fault.op}"
        return text if self.right else f"{text}; told: {self.report} {self.report.nodes}"


@functools.lru_cache(8)
def clean(model: str) -> tuple[Session, tuple[Fault, ...]]:
    module, inputs = make(model)
    session = Session(module, inputs, "n150", QUICK, name=model, cache=False)
    return session, tuple(faults(session.compile()))


def try_fault(model: str, kind: str, random_: random.Random) -> Outcome | None:
    """A fault of a kind that is felt, and what was found; None where a few tries give none."""
    session, every = clean(model)
    stages = sorted({f.stage for f in every if f.kind == kind})
    for _ in range(TRIES if stages else 0):
        stage = random_.choice(stages)
        fault = random_.choice([f for f in every if (f.kind, f.stage) == (kind, stage)])
        if not _told_by_graphs(session, fault):
            continue
        faulty = session_with(model, session, fault)
        if faulty is not None and _felt(faulty):
            return _ask(faulty, fault)
    return None


def _told_by_graphs(session: Session, fault: Fault) -> bool:
    """Whether the graph that has the fault gives other outputs; so most that nobody would feel are not compiled."""
    result = session.compile()
    feed = next(iter(elements(result.graph, feeds(result.graph, session.sample_inputs))))
    if fault.stage == "passed":
        values = [_outputs(g, evaluate_nodes(g, feed)) for g in (result.passed, _changed(result.passed, fault))]
    elif fault.stage == "lowered":
        given = lowered_inputs(result, feed)
        graphs = (result.lowered, _changed(result.lowered, fault))
        values = [_outputs(g, {n.name: v for n, v in evaluate_ops(g, given)}) for g in graphs]
    else:
        return True
    off = torch.linalg.vector_norm(values[0] - values[1]) / torch.linalg.vector_norm(values[0])
    return not float(off) <= FELT


def _changed(graph: Graph, fault: Fault) -> Graph:
    other = graph.clone()
    fault.change(other)
    return other


def _outputs(graph: Graph, values: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([values[n.sources[0]].double().reshape(-1) for n in graph.outputs])


def session_with(model: str, session: Session, fault: Fault) -> Session | None:
    module, inputs = make(model)
    faulty = Session(module, inputs, "n150", QUICK, name=model, cache=False)
    try:
        with planted(fault):
            result = faulty.compile()
        if fault.stage == "netlist":  # after the compile, which else would be made again
            faulty.result = with_netlist(result, fault)
        return faulty
    except (TbudaError, GraphError, ValueError, AssertionError, KeyError, IndexError):
        return None  # the compile itself refuses it


def _felt(session: Session) -> bool:
    result = session.compile()
    assert isinstance(result, CompileResult)
    with torch.no_grad():
        expected = session.model(*session.sample_inputs)
    try:
        (got,) = Runner(result).run([session.sample_inputs])[0]
    except (TbudaError, ValueError):
        return False
    off = torch.linalg.vector_norm((got - expected).double()) / torch.linalg.vector_norm(expected.double())
    return not float(off) <= FELT


def _ask(session: Session, fault: Fault) -> Outcome:
    """Times are CPU, of five the shortest, without collections of garbage, as `timeit` takes them: of a run and its
    verdict, from the placed model on, and of a search."""
    runs, searches = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            begin = time.process_time()
            (got,) = Runner(session.compile()).run([session.sample_inputs])[0]
            compare_tensors("output", session.model(*session.sample_inputs), got)
            runs.append(time.process_time() - begin)
            begin = time.process_time()
            report = session.find_error()
            searches.append(time.process_time() - begin)
    finally:
        gc.enable()
    return Outcome(fault, report, min(searches) / min(runs))


def clean_alarms(count: int) -> list[str]:
    """What is said of clean models that is not "right everywhere"."""
    alarms = []
    for k in range(count):
        name = list(MODELS)[k % len(MODELS)]
        module, inputs = make(name, seed=100 + k)
        report = Session(module, inputs, ("n150", "e300")[k // 6 % 2], QUICK, name=name, cache=False).find_error()
        if not report.right:
            alarms.append(f"{name}, seed {100 + k}: {report}")
    return alarms
