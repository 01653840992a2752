"""An Ir as text in the language dot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.core.files import atomic_file

if TYPE_CHECKING:
    from tbuda_lab.popxl.ir import Ir


def write_dot(ir: Ir, check: str, save_dir: str | None) -> None:
    """One file for each graph, `<check>_<number>.dot`."""
    folder = Path(save_dir or ".")
    for number, graph in enumerate(ir._graphs.values()):
        lines = [f'digraph "{graph.id}" {{']
        for op in graph._ops:
            lines.append(f'  "op{op.number}" [label="{op.kind}", shape=box];')
            lines += [f'  "{t.id}" -> "op{op.number}";' for t in op.inputs]
            lines += [f'  "op{op.number}" -> "{t.id}";' for t in op.outputs]
        with atomic_file(folder / f"{check}_{number}.dot") as temporary:
            temporary.write_text("\n".join([*lines, "}", ""]))
