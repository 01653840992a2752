"""What stands behind the last element of a row that is cut: zeros at first, kept from counting in reductions."""

from __future__ import annotations

from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops import Pow, ReduceMax, Subtract
from tbuda_lab.core.passes.base import LEAVES
from tbuda_lab.core.passes.long_rows.groups import REDUCTIONS, Group
from tbuda_lab.core.passes.long_rows.pieces import ROW_MOVES, Pieces

_KEEPS_ZERO = frozenset(("sqrt", "tanh", "gelu", "leaky_relu", "abs", "sine", "buffer", "relu"))
_UNBOUNDED = frozenset(("log", "reciprocal", "pow"))

# What stands behind the last element: zeros; the lowest value; anything finite, or anything at all
ZERO, LOWEST, ANY, BAD = "zero", "lowest", "any", "bad"


def padding_is_harmless(graph: Graph, group: Group, pieces: Pieces) -> bool:
    """Whether nothing but finite numbers stands there where a reduction reads, for 0 times infinity is no number."""
    if pieces.padded == pieces.size:
        return True
    state: dict[str, str] = {}
    wide = {node.name for node in group.wide}
    lowered = {node.sources[0] for node in group.reductions if isinstance(node.op, ReduceMax)}
    for node in group.wide:
        state[node.name] = after(node, [_state_of(s, state, wide, node, lowered) for s in node.sources])
    return all(state[node.sources[0]] != BAD for node in group.reductions)


def _state_of(name: str, state: dict[str, str], wide: set[str], reader: Node, lowered: set[str]) -> str | None:
    if name not in wide:
        return None
    if name in lowered and isinstance(reader.op, Subtract) and reader.sources[0] == name != reader.sources[1]:
        return LOWEST
    return state[name]


def after(node: Node, states: list[str | None]) -> str:
    """What stands behind the last element of the result. None: an operand that is no row."""
    kind = node.op.type if node.op is not None else ""
    if isinstance(node.op, ROW_MOVES):
        return BAD if {LOWEST, BAD} & set(states) else ZERO if set(states) == {ZERO} else ANY
    if node.kind in LEAVES or kind == "matmul":
        return ZERO
    if BAD in states:
        return BAD
    if kind == "multiply":
        return ZERO if ZERO in states and LOWEST not in states else BAD if LOWEST in states else ANY
    if kind in ("add", "maximum") and all(s == ZERO for s in states):
        return ZERO
    if kind == "subtract":
        if all(s == ZERO for s in states):
            return ZERO
        return LOWEST if states == [LOWEST, None] else BAD if LOWEST in states else ANY
    if kind == "exp" and states == [LOWEST]:
        return ZERO
    if isinstance(node.op, Pow) and node.op.exponent > 0:
        return ZERO if states == [ZERO] else ANY
    if kind in REDUCTIONS:
        return ZERO if states == [ZERO] else ANY if LOWEST not in states else BAD
    if LOWEST in states or kind in _UNBOUNDED:
        return BAD
    return ZERO if kind in _KEEPS_ZERO and states == [ZERO] else ANY
