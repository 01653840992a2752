"""What the hardware's router demands of a netlist: the rules that balancer, checker and command line share.

`judge` says of one edge which rule it breaks first (routing.md#layout-of-an-edge); `stacks` has the part of it that is
asked about many candidates at once, as integer expressions on arrays.
"""

from tbuda_lab.core.netlist.routing.edge import EdgeVerdict, RoutedEdge, judge, judge_alone, shared_rule
from tbuda_lab.core.netlist.routing.layout import EdgeReader, OperandView, Source, Step, view
from tbuda_lab.core.netlist.routing.rules import RouteRule

__all__ = [
    "EdgeReader",
    "EdgeVerdict",
    "OperandView",
    "RouteRule",
    "RoutedEdge",
    "Source",
    "Step",
    "judge",
    "judge_alone",
    "shared_rule",
    "view",
]
