"""ONNX's RNN, LSTM and GRU, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tbuda_lab.core.frontend.aten.call import CannotMap
from tbuda_lab.core.frontend.onnx.node import OnnxNode, translates

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh,
    "Relu": torch.relu,
    "Softsign": torch.nn.functional.softsign,
    "Softplus": torch.nn.functional.softplus,
}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def cut_in(x: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    """Pieces of this size along dim."""
    return [x.narrow(dim, start, size) for start in range(0, x.shape[dim], size)]


@translates("RNN", "LSTM", "GRU")
def recurrent(n: OnnxNode) -> Any:
    kind, direction = n.op_type, n.attr("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    names = n.attr("activations")
    names = [a.decode() if isinstance(a, bytes) else str(a) for a in names] if names else DEFAULTS[kind] * directions
    unknown = [a for a in names if a not in ACTIVATIONS]
    if unknown:
        raise CannotMap(f"the activation {unknown[0]}; there are {', '.join(ACTIVATIONS)}")
    per = len(DEFAULTS[kind])
    clip = n.attr("clip")
    if n.attr("input_forget", 0):
        raise CannotMap("an LSTM with coupled gates (input_forget)")
    layout, hidden = n.attr("layout", 0), int(n.attr("hidden_size") or n.shape(2)[-1])
    length, batch = (n.shape()[1], n.shape()[0]) if layout else n.shape()[:2]
    if n.opt(4) is not None and n.ints(4, "sequence_lens") != [length] * batch:
        raise CannotMap("sequences of several lengths; pad them and mask what is too long")
    places = {k: n.opt(k) for k in (0, 1, 2, 3, 5, 6, 7) if n.opt(k) is not None}
    order = list(places)

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        t = dict(zip(order, tensors, strict=True))
        x = t[0].transpose(0, 1) if layout else t[0]
        all_steps, last_h, last_c = [], [], []
        for d in range(directions):
            backward = direction == "reverse" or d == 1
            act = [ACTIVATIONS[a] for a in names[d * per : (d + 1) * per]]
            w, r = t[1][d], t[2][d]
            gates = GATES[kind]
            both = t[3][d] if 3 in t else torch.zeros(2 * gates * hidden, dtype=x.dtype)
            wb, rb = both[: gates * hidden], both[gates * hidden :]
            h = _state(t.get(5), d, layout, x, batch, hidden)
            c = _state(t.get(6), d, layout, x, batch, hidden)
            peep = cut_in(t[7][d], hidden) if 7 in t else None
            steps: list[Tensor] = []
            for at in range(length - 1, -1, -1) if backward else range(length):
                h, c = _step(kind, x[at], h, c, w, r, wb, rb, act, hidden, clip, peep, n.attr("linear_before_reset", 0))
                steps.append(h)
            all_steps.append(torch.stack(steps[::-1] if backward else steps))
            last_h.append(h)
            last_c.append(c)
        y = torch.stack(all_steps, 1)
        yh, yc = torch.stack(last_h), torch.stack(last_c)
        if layout:
            y, yh, yc = y.permute(2, 0, 1, 3), yh.transpose(0, 1), yc.transpose(0, 1)
        return (y, yh, yc) if kind == "LSTM" else (y, yh)

    return tuple(n.trace(run, *places.values()))


def _state(initial: Tensor | None, d: int, layout: int, x: Tensor, batch: int, hidden: int) -> Tensor:
    if initial is None:
        return torch.zeros(batch, hidden, dtype=x.dtype)
    return initial[:, d] if layout else initial[d]


def _step(
    kind: str,
    x: Tensor,
    h: Tensor,
    c: Tensor,
    w: Tensor,
    r: Tensor,
    wb: Tensor,
    rb: Tensor,
    act: list[Callable[[Tensor], Tensor]],
    hidden: int,
    clip: float | None,
    peep: Any,
    linear_before_reset: int,
) -> tuple[Tensor, Tensor]:
    def cut(v: Tensor) -> Tensor:
        return v if clip is None else torch.clamp(v, -clip, clip)

    if kind == "RNN":
        return act[0](cut(torch.nn.functional.linear(x, w, wb) + torch.nn.functional.linear(h, r, rb))), c
    if kind == "LSTM":
        gates = torch.nn.functional.linear(x, w, wb) + torch.nn.functional.linear(h, r, rb)
        i, o, f, g = cut_in(gates, hidden, 1)
        if peep is not None:
            i, f = i + peep[0] * c, f + peep[2] * c
        new = act[0](cut(f)) * c + act[0](cut(i)) * act[1](cut(g))
        o = o + peep[1] * new if peep is not None else o
        return act[0](cut(o)) * act[2](new), new
    wx = cut_in(torch.nn.functional.linear(x, w, wb), hidden, 1)
    rz, rr, rn = cut_in(r, hidden)
    bz, br, bn = cut_in(rb, hidden)
    z = act[0](cut(wx[0] + torch.nn.functional.linear(h, rz, bz)))
    reset = act[0](cut(wx[1] + torch.nn.functional.linear(h, rr, br)))
    if linear_before_reset:
        new = act[1](cut(wx[2] + reset * torch.nn.functional.linear(h, rn, bn)))
    else:
        new = act[1](cut(wx[2] + torch.nn.functional.linear(reset * h, rn, bn)))
    return (1 - z) * new + z * h, c
