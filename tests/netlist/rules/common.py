"""What the cases of the rules are made of: a rule, a valid netlist, one change, and the element that must be named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat as D
from tbuda_lab.core.netlist.schema import Execute, Loop, Netlist, NetOp, Queue
from tests.netlist import builders as b
from tests.netlist.builders import op

Change = Callable[[Netlist], Any]


@dataclasses.dataclass
class Case:
    rule: str
    base: Callable[[], Netlist]
    change: Change
    where: str
    arch: str | DeviceSpec = "wormhole_b0"


CASES: list[Case] = []


def case(
    rule: str, base: Callable[[], Netlist], change: Change, where: str, arch: str | DeviceSpec = "wormhole_b0"
) -> None:
    """Registers a case."""
    CASES.append(Case(rule, base, change, where, arch))


def the_op(n: Netlist) -> NetOp:
    return next(o for _, o in n.ops())


def q(n: Netlist, name: str = "x") -> Queue:
    return n.queues[name]


def on_op(**fields: Any) -> Change:
    """Sets fields of the first op; `attributes` are added."""

    def change(n: Netlist) -> None:
        for key, value in fields.items():
            if key == "attributes":
                the_op(n).attributes.update(value)
            else:
                setattr(the_op(n), key, value)

    return change


def on_queue(name: str = "x", **fields: Any) -> Change:
    return lambda n: [setattr(q(n, name), key, value) for key, value in fields.items()]


def on_blocking(element: Callable[[Netlist], Any], **fields: Any) -> Change:
    return lambda n: [setattr(element(n).blocking, key, value) for key, value in fields.items()]


def with_tms(index: int, *tms: Any) -> Change:
    return lambda n: setattr(the_op(n).inputs[index], "tms", list(tms))


def with_df(index: int, df: D) -> Change:
    return lambda n: setattr(the_op(n).inputs[index], "df", df)


def both(*changes: Change) -> Change:
    return lambda n: [change(n) for change in changes]


def execute(n: Netlist, k: int = 0) -> Execute:
    return [i for i in n.programs[0].instructions if isinstance(i, Execute)][k]


def setting(name: str = "x", k: int = 0, **fields: Any) -> Change:
    return lambda n: execute(n, k).settings[name].fields.update(fields)


def without(name: str, *keys: str) -> Change:
    return lambda n: [execute(n).settings[name].fields.pop(key) for key in keys]


def before_loop(*items: Any) -> Change:
    def change(n: Netlist) -> None:
        body = n.programs[0].instructions
        at = next(i for i, item in enumerate(body) if isinstance(item, Loop))
        body[at:at] = items

    return change


def in_loop(*items: Any) -> Change:
    def change(n: Netlist) -> None:
        body = n.programs[0].instructions
        body[-1:-1] = items

    return change


def sub_op(n: Netlist, k: int = 0) -> Any:
    return n.fused_ops["0"].schedules[0][k]


def on_sub(k: int, **fields: Any) -> Change:
    return lambda n: [setattr(sub_op(n, k), key, value) for key, value in fields.items()]


def fused_of(
    schedules: list[list[Any]],
    intermediates: int = 1,
    inputs: int = 1,
    shape: b.Shape = (1, 2, 2),
    ublock: tuple[int, int] = (1, 1),
    **fields: Any,
) -> Callable[[], Netlist]:
    names = [f"x{i}" for i in range(inputs)]
    return lambda: b.build(
        [op("f", "fused_op", names, shape, ublock=ublock, attributes={"fused_op_id": "0"}, **fields)],
        {name: shape for name in names},
        fused_ops=[b.fused("0", inputs, schedules, intermediates)],
    )
