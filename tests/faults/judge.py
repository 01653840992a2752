"""Plants one fault, asks the session, and judges the answer by what was planted."""

from __future__ import annotations

import dataclasses
import functools
import random
import time

import torch

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.graph import GraphError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.find_error import ErrorReport
from tests.faults.models import MODELS, make
from tests.faults.plant import Fault, faults, planted, with_netlist

TRIES = 5
QUICK = CompileOptions(balancer_policy="Ribbon")
FELT = 0.03
"""Relative error of the outputs from which a fault is felt; clean ones stay below a hundredth."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    fault: Fault
    report: ErrorReport
    ratio: float

    @property
    def right(self) -> bool:
        """The stage, and the op itself, or one that the report says it cannot be told from."""
        named = {self.report.op, *self.report.nodes}
        return self.report.stage == self.fault.stage and self.fault.op in named


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
        faulty = _session_with(model, session, fault)
        if faulty is not None and _felt(faulty):
            return _ask(faulty, fault)
    return None


def _session_with(model: str, session: Session, fault: Fault) -> Session | None:
    module, inputs = make(model)
    faulty = Session(module, inputs, "n150", QUICK, name=model, cache=False)
    try:
        if fault.stage == "netlist":
            faulty.compile()
            faulty.result = with_netlist(faulty.compile(), fault)
        else:
            with planted(fault):
                faulty.compile()
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
    begin = time.process_time()
    session.verify()
    run = time.process_time() - begin
    begin = time.process_time()
    report = session.find_error()
    return Outcome(fault, report, (time.process_time() - begin) / run)


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
