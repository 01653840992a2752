"""The chips of a device as they stand to each other, and what a placement asks of each and of their links."""

from tbuda_lab.core.analysis.cluster.layout import positions
from tbuda_lab.core.analysis.cluster.use import ChipUse, ClusterMap, LinkUse, cluster_map

__all__ = ["ChipUse", "ClusterMap", "LinkUse", "cluster_map", "positions"]
