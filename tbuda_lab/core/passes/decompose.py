"""Every op is written in canonical ones, until nothing changes."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp, counted
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.passes.base import Pass, Report, Rewriter

ROUNDS = 16


@dataclasses.dataclass(frozen=True)
class Decompose(Pass):
    """`canonicalise` of each op, repeated; ops of the types in `keep` wait for a later pass.

    Raises one `UnsupportedOp` with a finding for every op that the device cannot run.
    """

    name = "decompose"
    doc = "Write every op in the canonical set that lowering takes"
    keep: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Report:
        total = 0
        for _ in range(ROUNDS):
            findings: list[Diagnostic] = []
            refused: list[str] = []

            def visit(
                r: Rewriter,
                node: Node,
                operands: tuple[str, ...],
                findings: list[Diagnostic] = findings,
                refused: list[str] = refused,
            ) -> str | None:
                if not isinstance(node.op, NdOp) or node.op.type in self.keep:
                    return None
                try:
                    return node.op.canonicalise(r.builder(node), node, *operands)
                except UnsupportedOp as e:
                    findings.extend(e.diagnostics)
                    refused.extend(e.ops)
                    return None

            rewrites = Rewriter(graph, self.options).run(visit)
            if findings:
                many = counted(len(findings), "op")
                raise UnsupportedOp(f"the model holds {many} that the device cannot run", findings, refused)
            total += rewrites
            if rewrites == 0:
                return Report(self.name, total)
        raise AssertionError(f"canonical forms did not settle in {ROUNDS} rounds")
