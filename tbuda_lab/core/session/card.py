"""One op of a session on a card: where it comes from, where it stands, what it costs, what was asked for it."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session.records import OverrideRecord

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session


@dataclasses.dataclass(frozen=True)
class OpCard:
    """What there is to say of a placed op. facts: (name, text) in the order in which they are shown."""

    op: str
    facts: tuple[tuple[str, str], ...]
    overrides: tuple[OverrideRecord, ...]

    def __getitem__(self, name: str) -> str:
        """One of the facts. Raises `KeyError` naming them."""
        result = dict(self.facts)
        if name not in result:
            raise KeyError(f"{name!r}; there are {', '.join(result)}")
        return result[name]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        lines = [self.op, *(f"  {name:<{width}}  {text}" for name, text in self.facts)]
        lines += [f"  {r.python}  # {r.state}" for r in self.overrides]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th scope='row' style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self.facts
        )
        calls = "".join(f"<li><code>{escape(r.python)}</code>: {escape(r.state)}</li>" for r in self.overrides)
        return f"<table><caption>{escape(self.op)}</caption>{rows}</table>" + (f"<ul>{calls}</ul>" if calls else "")


def card_of(session: Session, op: str) -> OpCard:
    """The card of an op of the current result; compiles what is not compiled. Raises `InputError` with near names."""
    import difflib

    result = session.compile()
    placement = result.placement
    if op not in placement.ops:
        near = difflib.get_close_matches(op, list(placement.ops), n=3, cutoff=0.3)
        raise InputError(f"no op {op!r}" + (f"; near it: {', '.join(near)}" if near else ""))
    node, spot, row = result.lowered[op], placement.ops[op], placement.candidate(op)
    facts: list[tuple[str, Any]] = [
        ("type", getattr(node.op, "netlist_type", type(node.op).__name__)),
        ("module", node.origin.module),
        ("source", node.origin.location),
        ("reads", ", ".join(node.sources)),
        ("epoch", f"{spot.epoch} of {len(placement.epochs)}, chip {spot.chip}"),
        ("place", f"{spot.size[0]} rows x {spot.size[1]} columns at row {spot.start[0]}, column {spot.start[1]}"
                  + (", transposed" if spot.transposed else "")),
        ("block", f"t {row['t']}, mblock {row['mblock_m']}x{row['mblock_n']}, ublock {row['ublock_r']}x"
                  f"{row['ublock_c']}" + (f", m_k {row['m_k']}, u_kt {row['u_kt']}" if row["u_kt"] else "")),
        ("L1", f"{int(row['l1_total']):,} of {result.device.l1_usable:,} bytes"),
    ]  # fmt: skip
    if placement.report is not None:
        kernel, limiter, what = placement.report.op_limiters[op]
        epoch = placement.report.epochs[spot.epoch]
        facts.append(("kernel cycles", f"{kernel:,} per input; slowest kernel of the epoch {epoch.kernel_cycles:,}"))
        facts.append(("limiter cycles", f"{limiter:,} ({what}); of the epoch {epoch.limiter_cycles:,}"))
    table = placement.models[op]
    facts.append(("candidates", f"{len(table.legal()):,} legal of {len(table.rows):,}"))
    asked = tuple(r for r in session.records if op in r.matched)
    return OpCard(op, tuple((name, str(text)) for name, text in facts if str(text)), asked)
