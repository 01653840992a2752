"""`pybuda.query`: predicates over ops, for the overrides."""

from tbuda_lab.runtime.query import NodePredicateBuilder, layer_regex, name_regex, op_type

__all__ = ["NodePredicateBuilder", "layer_regex", "name_regex", "op_type"]
