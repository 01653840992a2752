"""What a drag shows is what its edit gives: the place of the op, the neighbours that move, cycles per input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.epochsim import batch_time
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.session_hub import hub_of
from tests.session.models import encoder
from tests.widgets.talk import Page


def last(page: Page, kind: str) -> dict[str, Any]:
    return next(m for m, _ in reversed(page.messages) if m["type"] == kind)


@pytest.mark.parametrize("seed", [1])
def test_the_ghost_of_random_edits_is_what_the_compile_gives(seed: int) -> None:
    model, inputs = encoder()
    session = Session(model, inputs, "e300")
    session.compile()
    hub, ear = hub_of(session), Page("none")
    hub.attach(ear)
    rng = np.random.default_rng(seed)
    ops = list(session.compile().placement.ops)
    output = 0
    for number in range(20):
        op = ops[int(rng.integers(len(ops)))]
        table = session.legal(op)
        size = table.legal[int(rng.integers(len(table.legal)))]
        edit = {"do": "resize", "op": op, "size": list(size)}
        if number % 3 == 0 and table.starts(*table.grid):
            edit = {"do": "move", "op": op, "start": list(table.starts(*table.grid)[-1])}
        before = session.compile().placement.ops
        assert hub.edit_controller is not None
        hub.edit_controller.receive(ear, {"type": "probe_exact", "ask": number, "edit": edit})
        hub.edit_controller.wait(60)
        shown = last(ear, "exact")
        hub.edit_controller.receive(ear, {"type": "edit", **edit})
        hub.edit_controller.wait(60)
        answer = last(ear, "edited")
        if not answer["ok"]:
            assert not shown["ok"] or answer["text"].startswith("Nothing to do")
            continue
        output += 1
        result = session.compile()
        after = result.placement.ops
        ((name, _, *place),) = shown["own"]
        assert name == op and place == [*after[op].start, *after[op].size]
        moved = {n for n, p in after.items() if (p.start, p.size) != (before[n].start, before[n].size)}
        assert moved <= {d[0] for d in shown["displaced"]}
        for neighbour, _, _, *there in shown["displaced"]:
            assert there == [*after[neighbour].start, *after[neighbour].size]
        assert shown["time"][1] == batch_time(result, result.options.microbatch).per_input
        assert ("no gain" in answer["text"]) == (round(shown["time"][0]) == round(shown["time"][1]))
    assert output >= 8
